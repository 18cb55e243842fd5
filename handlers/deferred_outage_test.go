package handlers

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/deduptest"
)

// remote makes a table whose deferred trigger does what it is told to, and a handler that inserts there.
func (b *bench) remote(does string) BatchHandler {
	b.t.Helper()
	b.exec(`create table remote (id int);
		create function remote() returns trigger language plpgsql as $$ begin ` + does + `; return null; end $$;
		create constraint trigger remote after insert on remote deferrable initially deferred for each row execute function remote()`)
	return Each(HandlerFunc(func(ctx context.Context, tx pgx.Tx, m dedup.Message) error {
		if string(m.Value) != "remote" {
			return nil
		}
		_, err := tx.Exec(ctx, `insert into remote values (1)`)
		return err
	}))
}

// What a trigger meets elsewhere, by dblink say, is not what our own connection has met.
func TestADeferredTriggerThatMeetsAnOutageElsewhereCostsNoOtherMessage(t *testing.T) {
	t.Parallel()
	for code, attempts := range map[string]int{"08001": 0, "08006": 0, "57P01": 0, "57P03": 0, "42P01": 0,
		"55P03": 1, "40001": 1, "40P01": 1} {
		t.Run(code, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			h := b.remote(fmt.Sprintf(`raise exception 'told to' using errcode = '%s'`, code))
			p := b.processor(nil, Registration{Name: "h", Handler: h, Retry: later})
			require.Equal(t, Result{New: 2, Parked: 1}, b.process(p, b.messages("a=ok", "k=remote", "b=ok")))
			require.Equal(t, fmt.Sprint("1/", attempts), b.parked())
		})
	}
}

// silent has the bench's store give Postgres so long to answer.
func (b *bench) silent(limit time.Duration) {
	b.t.Helper()
	pool := deduptest.OpenPool(b.t, b.dsn, func(c *pgxpool.Config) { c.MaxConns = 8 })
	store, err := dedup.Open(context.Background(), pool, dedup.Config{Inbox: "test", AnswerTimeout: limit})
	require.NoError(b.t, err)
	b.store, b.position = store, b.acquire(0)
}

func TestAMessageWhoseCommitHangsIsSetApartAndRunsOutOfAttempts(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	h := b.remote(`perform pg_sleep(60)`)
	b.silent(500 * time.Millisecond)
	p := b.processor(nil, Registration{Name: "h", Handler: h, Retry: Retry{Base: 1, Cap: 1, MaxAttempts: 2}})
	batch := b.batch(b.messages("k=remote"))
	_, err := p.Process(t.Context(), batch)
	require.ErrorIs(t, err, dedup.ErrNoAnswer)
	require.True(t, p.Suspicious(t.Context(), err))
	batch.Apart = true
	_, err = p.Process(t.Context(), batch)
	require.NoError(t, err)
	b.drain(p)
	require.Equal(t, "attempts_exhausted 2", b.text(`select reason || ' ' || attempts from firstseen.dead_letters`))
}

// A commit may fail where its rehearsal does not.
func TestAMessageWhoseCommitFailsUnrehearsedIsSetApartAndRunsOutOfAttempts(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	h := Each(HandlerFunc(func(ctx context.Context, tx pgx.Tx, m dedup.Message) error {
		if string(m.Value) != "temp" {
			return nil
		}
		_, err := tx.Exec(ctx, `create temp table cleared (id int primary key) on commit delete rows; create temp table kept (id int references cleared)`)
		return err
	}))
	p := b.processor(nil, Registration{Name: "h", Handler: h, Retry: Retry{Base: 1, Cap: 1, MaxAttempts: 2}})
	batch := b.batch(b.messages("k=temp"))
	_, err := p.Process(t.Context(), batch)
	require.ErrorContains(t, err, "unsupported ON COMMIT")
	require.True(t, p.Suspicious(t.Context(), err))
	batch.Apart = true
	_, err = p.Process(t.Context(), batch)
	require.NoError(t, err)
	b.drain(p)
	require.Equal(t, "attempts_exhausted 2", b.text(`select reason || ' ' || attempts from firstseen.dead_letters`))
}
