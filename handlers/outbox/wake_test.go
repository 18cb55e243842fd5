package outbox

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/deduptest"
	"github.com/firstseen/firstseen/handlers"
)

func testRelay(t *testing.T, db *deduptest.DB) *Relay {
	r, err := New(t.Context(), Config{Pool: db.Pool, IdlePoll: time.Hour, Destinations: []Destination{{Name: "to t",
		Topics: []string{"t"}, Sender: Func(func(context.Context, dedup.Message) error { return nil })}}})
	require.NoError(t, err)
	return r
}

func TestWakeEndsEveryPauseOfARelay(t *testing.T) {
	r := testRelay(t, deduptest.New(t))
	r.Wake()
	r.Wake()                                        // and does not wait
	rest(context.Background(), r.tender, time.Hour) // or the test does not end
	require.Len(t, r.workers, 2)
	for _, w := range r.workers {
		rest(context.Background(), w.bell, time.Hour)
	}
}

func TestPausesGrowWhileNothingComesUpToIdlePoll(t *testing.T) {
	r := &Relay{cfg: Config{IdlePoll: 5 * time.Second}}
	for idle, want := range map[time.Duration]time.Duration{0: busyPoll, 999 * time.Millisecond: busyPoll,
		4 * time.Second: time.Second, time.Hour: 5 * time.Second} {
		require.Equal(t, want, r.pause(idle), idle)
	}
}

// A program may have a relay and no consumer, who does both of these.
func TestARelayWithoutAConsumerMakesDaysAheadAndTellsWhatWaits(t *testing.T) {
	last := "inbox_" + time.Now().UTC().AddDate(0, 0, 7).Format("20060102")
	db := deduptest.New(t)
	away := Func(func(context.Context, dedup.Message) error {
		return handlers.Unavailable(errors.New("the crane is down"))
	})
	r, err := New(t.Context(), Config{Pool: db.Pool, IdlePoll: 5 * time.Millisecond,
		Destinations: []Destination{{Name: "to t", Topics: []string{"t"}, Sender: away}}})
	require.NoError(t, err)
	r.partitionsEvery = time.Millisecond
	_, err = db.Pool.Exec(t.Context(), `drop table firstseen.`+last)
	require.NoError(t, err)
	_, err = (&Writer{}).Add(t.Context(), db.Pool, Message{Topic: "t"})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { r.Run(ctx) })
	defer running.Wait()
	defer cancel()
	is := func(sql string, args ...any) func() bool {
		return func() (yes bool) {
			require.NoError(t, db.Pool.QueryRow(t.Context(), sql, args...).Scan(&yes))
			return yes
		}
	}
	require.Eventually(t, is(`select to_regclass('firstseen.' || $1) is not null`, last), 3*time.Minute,
		10*time.Millisecond)
	require.Eventually(t, is(`select coalesce(bool_or(consumer = 'relay/outbox' and holds::text like '%crane%'), false)
		from firstseen.holds`), 3*time.Minute, 10*time.Millisecond)
}

// Only whoever asks for it has his commits wait for one another.
func TestCommitOfAWriterThatNotifiesWakesRelaysThatListenAndNoOtherDoes(t *testing.T) {
	db := deduptest.New(t)
	r := testRelay(t, db)
	ctx, cancel := context.WithCancel(t.Context())
	listening, ended := make(chan struct{}), make(chan error)
	go func() { ended <- r.hear(ctx, func() { close(listening) }) }()
	<-listening
	rest(ctx, r.tender, time.Hour) // what came before is looked for
	ear, err := pgx.Connect(ctx, db.DSN)
	require.NoError(t, err)
	defer ear.Close(context.Background()) //nolint:errcheck // the test's end
	_, err = ear.Exec(ctx, `listen firstseen_outbox`)
	require.NoError(t, err)
	add := func(w Writer) {
		_, err := w.Add(ctx, db.Pool, Message{Topic: "t", IdempotencyKey: "twin"})
		require.NoError(t, err)
		_, err = w.AddAll(ctx, db.Pool, []Message{{Topic: "t"}, {Topic: "t", IdempotencyKey: "twin"}})
		require.NoError(t, err)
	}
	add(Writer{})
	_, err = ear.Exec(ctx, `select 1; notify firstseen_outbox, 'end'`)
	require.NoError(t, err)
	heard, err := ear.WaitForNotification(ctx)
	require.NoError(t, err)
	require.Equal(t, "end", heard.Payload, "nobody has notified before")
	rest(ctx, r.tender, time.Hour) // by that
	add(Writer{Notify: true})
	rest(ctx, r.tender, time.Hour)
	cancel()
	require.ErrorIs(t, <-ended, context.Canceled)
}
