package handlers

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/deduptest"
)

// asConsumer lets a new login consume, and has the bench's store use it.
func (b *bench) asConsumer() (login string, pool *pgxpool.Pool) {
	b.t.Helper()
	login = b.text(`select 'consumer_' || oid from pg_database where datname = current_database()`)
	b.exec(`create role ` + login + ` login;
		grant usage on schema firstseen to ` + login + `;
		grant all on all tables in schema firstseen to ` + login + `;
		grant all on all sequences in schema firstseen to ` + login + `;
		grant execute on all functions in schema firstseen to ` + login + `;
		grant all on all tables in schema public to ` + login)
	admin := b.pool
	b.t.Cleanup(func() {
		_, err := admin.Exec(context.Background(), `drop owned by `+login+`; drop role `+login)
		require.NoError(b.t, err)
	})
	pool = deduptest.OpenPool(b.t, deduptest.As(b.t, b.dsn, login), nil)
	var err error
	b.store, err = dedup.Open(context.Background(), pool, dedup.Config{Inbox: "test"})
	require.NoError(b.t, err)
	b.position = b.acquire(0)
	return login, pool
}

func TestADeferredConstraintCostsNoOtherMessageWhereASchemaIsClosedToTheConsumer(t *testing.T) {
	t.Parallel()
	for kind, wrap := range map[string]func(Handler) BatchHandler{"each": Each, "opaque": opaque} {
		t.Run(kind, func(t *testing.T) {
			b := newBench(t)
			b.exec(family + `;
				create schema closed;
				create table closed.t (id int primary key deferrable initially deferred)`)
			b.asConsumer()
			p := b.processor(nil, Registration{Name: "h", Handler: wrap(newObedient("h")), Retry: later})
			ms := b.messages("a=ok", "b=ok", "k=defer", "c=ok", "d=ok", "e=ok", "f=defer", "g=ok", "h=ok", "i=ok")
			require.Equal(t, Result{New: 8, Parked: 2}, b.process(p, ms))
			require.Equal(t, "2/1 6/1", b.parked())
			require.NotContains(t, b.text(`select string_agg(error, ' ') from firstseen.parked`), "closed")
		})
	}
}

// What is deferred is checked as the commit would: with the session's search_path, and every constraint as it was
// declared.
func TestCheckOfWhatIsDeferredIsLikeTheCommit(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.exec(`create schema app;
		create table app.noted (id int);
		create table app.once (id int constraint same_name unique deferrable initially immediate);
		create table app.other (id int constraint same_name check (id > 0));
		create table app.entry (id int);
		create function app.note() returns trigger language plpgsql as $$
		begin
			insert into noted values (new.id); -- found by the search_path
			if new.id < 0 then raise 'negative'; end if;
			return null;
		end $$;
		create constraint trigger note after insert on app.entry deferrable initially deferred
			for each row execute function app.note()`)
	cfg, err := pgxpool.ParseConfig(b.dsn)
	require.NoError(t, err)
	cfg.ConnConfig.RuntimeParams["search_path"] = "public, app"
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	b.store, err = dedup.Open(t.Context(), pool, dedup.Config{Inbox: "test"})
	require.NoError(t, err)
	caught := 0
	h := HandlerFunc(func(ctx context.Context, tx pgx.Tx, m dedup.Message) error {
		if _, err := tx.Exec(ctx, `insert into entry values ($1::text::int)`, string(m.Value)); err != nil {
			return err
		}
		err := pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, `insert into once values (1)`)
			return err
		})
		if err != nil {
			caught++ // at the statement, not at the end
		}
		return nil
	})
	p := b.processor(nil, Registration{Name: "h", Handler: opaque(h), Retry: later})
	require.Equal(t, Result{New: 7, Parked: 1}, b.process(p,
		b.messages("a=1", "b=2", "c=3", "d=-4", "e=5", "f=6", "g=7", "h=8")))
	require.Equal(t, "3/1", b.parked())
	require.Contains(t, b.text(`select error from firstseen.parked`), "negative")
	require.Equal(t, 7, b.count(`select count(*) from app.noted`), "once a message")
	require.Equal(t, 1, b.count(`select count(*) from app.once`))
	require.Greater(t, caught, 6)
}

func TestManyDeferredFailuresInOneBatchAreIsolated(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.exec(family + `; insert into parent values (7)`)
	h := HandlerFunc(func(ctx context.Context, tx pgx.Tx, m dedup.Message) error {
		_, err := tx.Exec(ctx, `insert into child values ($1::text::int)`, string(m.Value))
		return err
	})
	p := b.processor(nil, Registration{Name: "h", Handler: Each(h), Retry: later})
	texts := make([]string, 500)
	for i := range texts {
		texts[i] = fmt.Sprintf("k%d=7", i)
		if i%4 == 0 {
			texts[i] = fmt.Sprintf("k%d=1", i)
		}
	}
	require.Equal(t, Result{New: 375, Parked: 125}, b.process(p, b.messages(texts...)))
}
