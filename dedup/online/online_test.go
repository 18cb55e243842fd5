package online_test

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/firstseen/firstseen/dedup/failure"
	"github.com/firstseen/firstseen/dedup/online"
)

var once = online.Index{Name: "orders_once", Unique: true, Columns: "tenant, idempotency_key",
	Where: "idempotency_key is not null"}

// keyed is a table whose column is there, with rows that have no key, some to a page.
func keyed(t testing.TB, rows int) *stage {
	s := newStage(t)
	s.exec(`alter table orders add column idempotency_key text`)
	s.exec(`insert into orders (tenant, item) select 't', repeat('x', 1000) from generate_series(1, $1)`, rows)
	return s
}

// A report reads the table for hours: the change waits for it, and nobody waits behind the change.
func TestChangeStepsBackForThoseWhoWaitBehindIt(t *testing.T) {
	s := newStage(t)
	orders := s.open(time.Minute)
	release := s.hold(`select from orders`)
	added := make(chan error, 1)
	go func() { added <- orders.AddColumn(context.Background(), "idempotency_key", "text") }()
	s.await(waitsSQL, `^alter table`)
	s.exec(`set statement_timeout = '30s'; insert into orders (tenant, item) values ('t', 'meanwhile')`)
	require.Empty(t, added)
	release()
	require.NoError(t, <-added)
	require.Equal(t, 1, s.count(`idempotency_key is null`))
}

func TestWaitForOthersHasAnEndThatNamesThem(t *testing.T) {
	const wait = 100 * time.Millisecond
	for name, c := range map[string]struct {
		others string
		step   func(*online.Table) error
	}{
		"column": {`select from orders`, func(orders *online.Table) error {
			return orders.AddColumn(context.Background(), "another", "text")
		}},
		"index": {`select 1`, func(orders *online.Table) error { return orders.AddIndex(context.Background(), once) }},
		"index that was left invalid": {`lock table orders in share update exclusive mode`,
			func(orders *online.Table) error { return orders.AddIndex(context.Background(), once) }},
		"not null": {`select from orders`, func(orders *online.Table) error {
			return orders.SetNotNull(context.Background(), oldOrders(nil))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			s := keyed(t, 10)
			if name == "index that was left invalid" {
				s.killDuringBuild(func() error { return s.open(time.Minute).AddIndex(context.Background(), once) })
			}
			release := s.hold(`set local application_name = 'report'; ` + c.others)
			require.ErrorContains(t, c.step(s.open(wait)), `application "report"`)
			release()
			require.NoError(t, c.step(s.open(time.Minute)))
		})
	}
}

func TestOneProcessTakesAStepAtATime(t *testing.T) {
	s := keyed(t, 10)
	release := s.hold(`select 1`)
	first, second := s.open(time.Minute), s.open(100*time.Millisecond)
	var building errgroup.Group
	building.Go(func() error { return first.AddIndex(context.Background(), once) })
	s.await(buildsSQL)
	require.ErrorContains(t, second.AddIndex(t.Context(), once), "another process is changing the table")
	release()
	require.NoError(t, building.Wait())
	require.NoError(t, second.AddIndex(t.Context(), once))
}

func TestStepsMayBeTakenByManyAtOnceAndAgain(t *testing.T) {
	s := newStage(t)
	s.exec(`insert into orders (tenant, item) select 't', repeat('x', 1000) from generate_series(1, 2000)`)
	all := func() error {
		for _, step := range []func() error{
			func() error { return addKey(context.Background(), s.db.DSN) },
			func() error { return giveKeys(context.Background(), s.db.DSN, nil) },
			func() error { return requireKeys(context.Background(), s.db.DSN, nil) },
		} {
			if err := step(); err != nil {
				return err
			}
		}
		return nil
	}
	var group errgroup.Group
	for range 4 {
		group.Go(all)
	}
	require.NoError(t, group.Wait())
	require.NoError(t, all())
	require.Equal(t, 2000, s.count(`idempotency_key = 'order-' || id`))
	require.Equal(t, "valid", s.index())
	s.await(`select not exists (select from pg_constraint where conrelid = 'orders'::regclass and contype = 'c')`)
}

func TestIndexThatSomebodyBuildsByHandIsWaitedFor(t *testing.T) {
	s := keyed(t, 10)
	release := s.hold(`select 1`)
	var building errgroup.Group
	building.Go(func() error {
		_, err := s.db.Pool.Exec(context.Background(), `create unique index concurrently orders_once on orders
			(tenant, idempotency_key) where idempotency_key is not null`)
		return err
	})
	s.await(buildsSQL)
	var built, is uint32
	const oidSQL = `select 'orders_once'::regclass::oid`
	require.NoError(t, s.db.Pool.QueryRow(t.Context(), oidSQL).Scan(&built))
	orders := s.open(time.Minute)
	building.Go(func() error { return orders.AddIndex(context.Background(), once) })
	s.await(waitsSQL, `lock table`)
	release()
	require.NoError(t, building.Wait())
	require.NoError(t, s.db.Pool.QueryRow(t.Context(), oidSQL).Scan(&is))
	require.Equal(t, built, is, "it was not dropped")
	require.Equal(t, "valid", s.index())
}

// Who breaks off has Postgres stop, too, and leaves what the next one copes with.
func TestBuildThatIsBrokenOffIsTakenAgain(t *testing.T) {
	s := keyed(t, 10)
	release := s.hold(`select 1`)
	ctx, breakOff := context.WithCancel(t.Context())
	orders := s.open(time.Minute)
	built := make(chan error, 1)
	go func() { built <- orders.AddIndex(ctx, once) }()
	s.await(buildsSQL)
	breakOff()
	require.ErrorIs(t, <-built, context.Canceled)
	s.await(`select not ` + buildsSQL[len(`select `):])
	require.Equal(t, "invalid", s.index())
	release()
	require.NoError(t, s.open(time.Minute).AddIndex(t.Context(), once))
	require.Equal(t, "valid", s.index())
}

// Programs that write keys before there is an index fail at nothing, and twins among them are two orders. The page
// says how they are found, and what lets the index be built.
func TestKeysThatCameTwiceBeforeTheIndex(t *testing.T) {
	s := keyed(t, 1)
	ids := map[bool][]int64{}
	for range 2 {
		require.NoError(t, pgx.BeginFunc(t.Context(), s.db.Pool, func(tx pgx.Tx) error {
			id, isNew, err := insertOnce(t.Context(), tx, "t", "k", "new")
			ids[isNew] = append(ids[isNew], id)
			return err
		}))
	}
	require.Len(t, ids[true], 2)
	require.Equal(t, "23505", failure.Code(addKey(t.Context(), s.db.DSN)))
	require.Equal(t, "invalid", s.index())
	page, err := os.ReadFile("../../docs/TABLES.md")
	require.NoError(t, err)
	blocks := regexp.MustCompile("(?s)```sql\n(.*?)```").FindAllStringSubmatch(string(page), -1)
	require.Len(t, blocks, 2)
	var tenant, key string
	var twins []int64
	require.NoError(t, s.db.Pool.QueryRow(t.Context(), blocks[0][1]).Scan(&tenant, &key, &twins))
	require.Equal(t, []any{"t", "k", ids[true]}, []any{tenant, key, twins})
	s.exec(blocks[1][1])
	require.NoError(t, addKey(t.Context(), s.db.DSN))
	require.Equal(t, "valid", s.index())
	require.Equal(t, 1, s.count(`id = $1 and idempotency_key = 'k'`, twins[0]))
	require.Equal(t, 1, s.count(`id = $1 and idempotency_key is null`, twins[1]))
}

func TestBackfillWaitsForNoRow(t *testing.T) {
	s := keyed(t, 10)
	release := s.hold(`update orders set item = 'changed' where id = 1`)
	require.NoError(t, s.open(100*time.Millisecond).Backfill(t.Context(), oldOrders(nil)))
	require.Equal(t, 9, s.count(`idempotency_key is not null`))
	release()
	require.NoError(t, s.open(time.Minute).Backfill(t.Context(), oldOrders(nil)))
	require.Equal(t, 10, s.count(`idempotency_key = 'order-' || id`))
}

// Their rows lie at the same places of other files.
func TestBackfillLeavesInheritedTablesAlone(t *testing.T) {
	s := keyed(t, 10)
	s.exec(`create table kept () inherits (orders);
		insert into kept (id, tenant, item, idempotency_key) select i, 't', 'x', 'kept' from generate_series(1, 10) i`)
	require.NoError(t, s.open(time.Minute).Backfill(t.Context(), oldOrders(nil)))
	require.Equal(t, 10, s.count(`idempotency_key = 'kept'`))
	require.Equal(t, 10, s.count(`idempotency_key = 'order-' || id`))
}

// A program of the old version has inserted something at the last moment, and somebody has it locked.
func TestRowWithoutAValueIsWaitedForBeforeItIsRequired(t *testing.T) {
	s := keyed(t, 100)
	b := oldOrders(nil)
	pass, release := 0, func() {}
	b.Pages, b.OnProgress = 1, func(p online.Progress) {
		switch {
		case p.Pages == p.Total:
			pass++
			if pass == 1 {
				s.exec(`insert into orders (tenant, item) select 't', repeat('x', 1000) from generate_series(1, 20)`)
			}
		case p.Pages == 1 && pass == 1:
			release = s.hold(`select from orders where id = 120 for update`)
		case p.Pages == 1 && pass == 3:
			release()
		}
	}
	require.NoError(t, s.open(time.Minute).SetNotNull(t.Context(), b))
	require.Equal(t, 120, s.count(`idempotency_key = 'order-' || id`))
	_, err := s.db.Pool.Exec(t.Context(), `insert into orders (tenant, item) values ('t', 'x')`)
	require.ErrorContains(t, err, "not-null")
}

func TestCheckThatABrokenOffProcessHasLeftIsGoneOnWith(t *testing.T) {
	s := keyed(t, 10)
	s.exec(`alter table orders add constraint idempotency_key_backfilled check (idempotency_key is not null) not valid`)
	require.NoError(t, s.open(time.Minute).SetNotNull(t.Context(), oldOrders(nil)))
	s.await(`select attnotnull from pg_attribute where attrelid = 'orders'::regclass and attname = 'idempotency_key'`)
	s.await(`select not exists (select from pg_constraint where conname = 'idempotency_key_backfilled')`)
}

func TestWhatCanNotBeDoneIsRefused(t *testing.T) {
	s := keyed(t, 10)
	s.exec(`create table parts (id int) partition by range (id); create table others (id int unique)`)
	ctx := t.Context()
	for _, table := range []string{"nowhere", "parts", "pg_stat_activity"} {
		_, err := online.Open(ctx, s.db.DSN, table, online.Config{})
		require.ErrorContains(t, err, table)
	}
	orders := s.open(time.Minute)
	null := online.Backfill{Column: "idempotency_key", Value: "null::text"}
	for want, err := range map[string]error{
		"not of type uuid":  orders.AddColumn(ctx, "idempotency_key", "uuid"),
		"is no type":        orders.AddColumn(ctx, "x", "nothing"),
		"add column x":      orders.AddColumn(ctx, "x", "text default random()"), // would rewrite the table
		"another table":     orders.AddIndex(ctx, online.Index{Name: "others_id_key", Columns: "id"}),
		"being unique":      orders.AddIndex(ctx, online.Index{Name: "orders_pkey", Columns: "id"}),
		"10 rows is null":   orders.Backfill(ctx, null),
		"value of 10 rows":  orders.SetNotNull(ctx, null),
		"it is not there":   orders.SetNotNull(ctx, online.Backfill{Column: "x", Value: "1"}),
		"backfill nothing:": orders.Backfill(ctx, online.Backfill{Column: "nothing", Value: "1"}),
	} {
		require.ErrorContains(t, err, want)
	}
	require.Equal(t, 10, s.count(`idempotency_key is null`))
}

// The table is named as in SQL.
func TestTableInAnotherSchema(t *testing.T) {
	s := newStage(t)
	s.exec(`create schema "Sales"; create table "Sales"."Orders" (id int); insert into "Sales"."Orders" values (1)`)
	orders, err := online.Open(t.Context(), s.db.DSN, `"Sales"."Orders"`, online.Config{})
	require.NoError(t, err)
	defer orders.Close()
	require.NoError(t, orders.AddColumn(t.Context(), "Key", "text"))
	require.NoError(t, orders.AddIndex(t.Context(), online.Index{Name: "Once", Unique: true, Columns: `"Key"`}))
	s.killDuringBuild(func() error {
		return orders.AddIndex(context.Background(), online.Index{Name: "Twice", Columns: `"Key", id`})
	})
	orders, err = online.Open(t.Context(), s.db.DSN, `"Sales"."Orders"`, online.Config{})
	require.NoError(t, err)
	defer orders.Close()
	require.NoError(t, orders.AddIndex(t.Context(), online.Index{Name: "Twice", Columns: `"Key", id`}))
	require.NoError(t, orders.SetNotNull(t.Context(), online.Backfill{Column: "Key", Value: "id::text"}))
	var got string
	require.NoError(t, s.db.Pool.QueryRow(t.Context(), `select format('%s %s', "Key", (select count(*) from pg_index
		where indrelid = '"Sales"."Orders"'::regclass and indisvalid)) from "Sales"."Orders"`).Scan(&got))
	require.Equal(t, fmt.Sprint("1 ", 2), got)
}
