package consumer_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/firstseen/firstseen/consumer"
	"github.com/firstseen/firstseen/consumer/consumertest"
	"github.com/firstseen/firstseen/handlers"
)

const (
	waitLimit = 30 * time.Second
	waitTick  = 20 * time.Millisecond
)

// logbook keeps what a consumer logs.
type logbook struct {
	mu      sync.Mutex
	entries []map[string]any
}

// Write takes one entry, as slog's JSON handler writes it.
func (l *logbook) Write(line []byte) (int, error) {
	entry := map[string]any{}
	err := json.Unmarshal(line, &entry)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.entries = append(l.entries, entry)
	return len(line), err
}

func (l *logbook) logger() *slog.Logger {
	var out io.Writer = l
	if os.Getenv("FIRSTSEEN_TEST_LOG") != "" {
		out = io.MultiWriter(l, os.Stderr)
	}
	return slog.New(slog.NewJSONHandler(out, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// times counts the entries of a level whose message contains a text and whose attributes contain others, given as
// names and texts.
func (l *logbook) times(level slog.Level, message string, attrs ...string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, entry := range l.entries {
		found := entry["level"] == level.String() && strings.Contains(fmt.Sprint(entry["msg"]), message)
		for i := 0; i < len(attrs); i += 2 {
			found = found && strings.Contains(fmt.Sprint(entry[attrs[i]]), attrs[i+1])
		}
		if found {
			n++
		}
	}
	return n
}

func (l *logbook) has(level slog.Level, message string, attrs ...string) bool {
	return l.times(level, message, attrs...) > 0
}

// logged waits for such an entry.
func (s *stage) logged(l *logbook, level slog.Level, message string, attrs ...string) {
	s.t.Helper()
	s.eventually(func() bool { return l.has(level, message, attrs...) },
		"never logged: %s %q %v", level, message, attrs)
}

func (s *stage) eventually(is func() bool, message string, args ...any) {
	s.t.Helper()
	require.Eventually(s.t, is, waitLimit, waitTick, fmt.Sprintf(message, args...))
}

// run starts a consumer whose log is kept.
func (s *stage) run(change func(*consumer.Config, *handlers.Config)) (book *logbook, stop func()) {
	s.t.Helper()
	book = &logbook{}
	c := s.consumer(func(cc *consumer.Config, hc *handlers.Config) {
		cc.Logger = book.logger()
		if change != nil {
			change(cc, hc)
		}
	})
	return book, s.start(c)
}

// settings changes the consumer's own config only.
func settings(change func(*consumer.Config)) func(*consumer.Config, *handlers.Config) {
	return func(cc *consumer.Config, _ *handlers.Config) { change(cc) }
}

// effects waits until n messages have taken effect, and asserts that they are n different ones.
func (s *stage) effects(n int) {
	s.t.Helper()
	s.eventually(func() bool { return s.count(`select count(*) from effects`) >= n }, "fewer than %d effects", n)
	require.Equal(s.t, n, s.count(`select count(*) from effects`), "effects")
	require.Equal(s.t, n, s.count(`select count(distinct message_id) from effects`), "messages that took effect")
}

// begun waits until all partitions have a position.
func (s *stage) begun() {
	s.t.Helper()
	s.eventually(func() bool {
		return s.count(`select count(*) from firstseen.positions where next_offset is not null`) == s.partitions
	}, "not all partitions have a position")
}

func (s *stage) recordsTo(partition int32, n int) []*kgo.Record {
	rs := s.records(n, 5)
	for _, r := range rs {
		r.Partition = partition
	}
	return rs
}

// fill writes n new messages to each partition.
func (s *stage) fill(n int) {
	s.t.Helper()
	for p := range s.partitions {
		consumertest.ProduceTo(s.t, s.addr, s.recordsTo(int32(p), n)...)
	}
}

// admin does something to the broker with a client of its own.
func (s *stage) admin(do func(ctx context.Context, a *kadm.Client) error) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
	defer cancel()
	client, err := kgo.NewClient(kgo.SeedBrokers(s.addr))
	require.NoError(s.t, err)
	defer client.Close()
	require.NoError(s.t, do(ctx, kadm.NewClient(client)))
}

// moveGroup sets the group's offset in a partition, as an operator does while no member is there.
func (s *stage) moveGroup(partition int32, offset int64) {
	s.t.Helper()
	s.admin(func(ctx context.Context, a *kadm.Client) error {
		var to kadm.Offsets
		to.AddOffset(s.topic, partition, offset, -1)
		return a.CommitAllOffsets(ctx, s.group, to)
	})
}

// deleteBefore deletes a partition's records below an offset, as retention does.
func (s *stage) deleteBefore(partition int32, offset int64) {
	s.t.Helper()
	s.admin(func(ctx context.Context, a *kadm.Client) error {
		var to kadm.Offsets
		to.AddOffset(s.topic, partition, offset, -1)
		deleted, err := a.DeleteRecords(ctx, to)
		if err != nil {
			return err
		}
		return deleted.Error()
	})
}

func (s *stage) committed(partition int32) int64 {
	s.t.Helper()
	return consumertest.CommittedOffset(s.t, s.addr, s.group, s.topic, partition)
}

// exampleTest is as much of a test as an example needs.
type exampleTest struct {
	testing.TB
	cleanups []func()
}

func (t *exampleTest) Helper()                           {}
func (t *exampleTest) Name() string                      { return "Example" }
func (t *exampleTest) Cleanup(f func())                  { t.cleanups = append(t.cleanups, f) }
func (t *exampleTest) Errorf(format string, args ...any) { fmt.Printf(format+"\n", args...) }
func (t *exampleTest) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }

func (t *exampleTest) end() {
	for i := range t.cleanups {
		t.cleanups[len(t.cleanups)-1-i]()
	}
}
