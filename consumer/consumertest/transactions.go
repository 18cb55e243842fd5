package consumertest

import (
	"context"
	"errors"
	"reflect"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Transactions is a producer of transactions.
type Transactions struct {
	t           testing.TB
	addr, topic string
	client      *kgo.Client
}

// NewTransactions is a producer of transactions to one topic, whose name is its transactional ID too. It is closed at
// the test's end.
func NewTransactions(t testing.TB, addr, topic string) *Transactions {
	t.Helper()
	client, err := newClient(addr, kgo.TransactionalID(topic), kgo.ProducerLinger(0),
		kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatalf("consumertest: transactions to %s: %v", topic, err)
	}
	t.Cleanup(client.Close)
	return &Transactions{t, addr, topic, client}
}

var errNotEnded = errors.New("its markers are not written yet")

// Open begins a transaction of these records, each in the partition that it names, and leaves it open.
func (p *Transactions) Open(records ...*kgo.Record) {
	p.t.Helper()
	err := p.client.BeginTransaction()
	if err == nil {
		err = p.client.ProduceSync(context.Background(), records...).FirstErr()
	}
	if err != nil {
		p.t.Fatalf("consumertest: transaction to %s: %v", p.topic, err)
	}
}

// End waits for the markers too: the coordinator answers before they are written, and others may write in between.
func (p *Transactions) End(how kgo.TransactionEndTry) {
	p.t.Helper()
	if err := p.client.EndTransaction(context.Background(), how); err != nil {
		p.t.Fatalf("consumertest: end a transaction to %s: %v", p.topic, err)
	}
	admin(p.t, p.addr, "end a transaction to "+p.topic, func(ctx context.Context, a *kadm.Client) error {
		return poll(ctx, func() error {
			stable, err := a.ListCommittedOffsets(ctx, p.topic)
			if err != nil {
				return err
			}
			ends, err := a.ListEndOffsets(ctx, p.topic)
			if err == nil && !reflect.DeepEqual(stable.KOffsets(), ends.KOffsets()) {
				err = errNotEnded
			}
			return err
		})
	})
}
