package consumertest

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
)

// NoOffset is CommittedOffset's answer for a partition that the group committed nothing of.
const NoOffset = -1

// CommittedOffset is the next offset that the group reads of a partition, or NoOffset.
func CommittedOffset(t testing.TB, addr, group, topic string, partition int32) (offset int64) {
	t.Helper()
	what := fmt.Sprintf("committed offset of %s in %s/%d", group, topic, partition)
	admin(t, addr, what, func(ctx context.Context, a *kadm.Client) error {
		// A coordinator that is new or moving is waited for.
		return poll(ctx, func() (err error) {
			offset, err = committed(ctx, a, group, topic, partition)
			return err
		})
	})
	return offset
}

// AwaitCommitted waits until the group reads a partition from next on, or from later.
func AwaitCommitted(t testing.TB, addr, group, topic string, partition int32, next int64) {
	t.Helper()
	admin(t, addr, "wait for committed offset", func(ctx context.Context, a *kadm.Client) error {
		return poll(ctx, func() error {
			offset, err := committed(ctx, a, group, topic, partition)
			if err == nil && offset < next {
				err = fmt.Errorf("group %s is at %s/%d@%d, before %d", group, topic, partition, offset, next)
			}
			return err
		})
	})
}

func committed(ctx context.Context, a *kadm.Client, group, topic string, partition int32) (int64, error) {
	all, err := a.FetchOffsets(ctx, group)
	if errors.Is(err, kerr.GroupIDNotFound) {
		return NoOffset, nil
	}
	if err != nil {
		return 0, err
	}
	at, found := all.Lookup(topic, partition)
	if !found {
		return NoOffset, nil
	}
	return at.At, at.Err
}

// EndOffset is the offset that the next record of a partition gets. A broker that does not answer is asked again.
func EndOffset(t testing.TB, addr, topic string, partition int32) (offset int64) {
	t.Helper()
	what := fmt.Sprintf("end offset of %s/%d", topic, partition)
	admin(t, addr, what, func(ctx context.Context, a *kadm.Client) error {
		return poll(ctx, func() (err error) {
			offset, err = endOffset(ctx, a, topic, partition)
			return err
		})
	})
	return offset
}

func endOffset(ctx context.Context, a *kadm.Client, topic string, partition int32) (int64, error) {
	ends, err := a.ListEndOffsets(ctx, topic)
	if err != nil {
		return 0, err
	}
	end, found := ends.Lookup(topic, partition)
	if !found {
		return 0, errors.New("no such partition")
	}
	return end.Offset, end.Err
}
