package dedup_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/deduptest"
	"github.com/firstseen/firstseen/dedup/failure"
)

func TestPartitionsAreDaysOfUTC(t *testing.T) {
	t.Parallel()
	deduptest.AwayFromMidnight(t)
	for _, zone := range []string{"UTC", "Pacific/Kiritimati", "America/Adak"} {
		t.Run(zone, func(t *testing.T) {
			db := deduptest.New(t)
			dropPartitions(t, db.Pool)
			pool := deduptest.OpenPool(t, db.DSN,
				func(c *pgxpool.Config) { c.ConnConfig.RuntimeParams["timezone"] = zone })
			store, err := dedup.Open(t.Context(), pool, dedup.Config{Inbox: "test", PartitionDays: 2})
			require.NoError(t, err)
			made, err := store.MakePartitions(t.Context())
			require.NoError(t, err)
			require.Zero(t, made, "Open made them")
			for day := range 3 {
				from := time.Now().UTC().Truncate(24*time.Hour).AddDate(0, 0, day)
				var bounds string
				require.NoError(t, db.Pool.QueryRow(t.Context(), `select pg_get_expr(relpartbound, oid) from pg_class
					where oid = to_regclass($1)`, from.Format("firstseen.inbox_20060102")).Scan(&bounds))
				require.Equal(t, fmt.Sprintf("FOR VALUES FROM ('%s+00') TO ('%s+00')",
					from.Format(time.DateTime), from.AddDate(0, 0, 1).Format(time.DateTime)), bounds)
			}
		})
	}
}

func dropPartitions(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	_, err := pool.Exec(t.Context(), `alter database `+pool.Config().ConnConfig.Database+` set timezone = 'UTC'`)
	require.NoError(t, err)
	pool.Reset()
	_, err = pool.Exec(t.Context(), `do $$ declare v_name text; begin
		for v_name in select relname from pg_class where relname ~ '^inbox_\d+$' and relkind = 'r' loop
			execute 'drop table firstseen.' || v_name;
		end loop; end $$`)
	require.NoError(t, err)
}

func TestRowsOfADayWithoutAPartitionAreMovedIntoIt(t *testing.T) {
	t.Parallel()
	deduptest.AwayFromMidnight(t)
	s := newStage(t)
	dropPartitions(t, s.admin)
	s.accept(s.batch(s.position(0), newIDs(5)...))
	require.Equal(t, 5, s.count(`select count(*) from firstseen.inbox_default`))
	s.exec(`update firstseen.inbox_default set received_at = received_at - interval '3 days' where "offset" = 0`)

	open, err := s.store.Accept(t.Context(), s.batch(s.position(0), newIDs(1)...))
	require.NoError(t, err)
	made, err := s.store.MakePartitions(t.Context())
	require.NoError(t, err, "an open batch is no hindrance")
	require.Equal(t, 8, made)
	require.NoError(t, open.Commit(t.Context()))
	require.Equal(t, 1, s.count(`select count(*) from firstseen.inbox_default`), "of another day")
	s.requireRows(6)
}

func TestDefaultPartitionInUseIsNotWaitedForLong(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	dropPartitions(t, s.admin)
	dump, err := s.admin.Begin(t.Context())
	require.NoError(t, err)
	_, err = dump.Exec(t.Context(), `select * from firstseen.inbox_default`)
	require.NoError(t, err)

	made, err := s.store.MakePartitions(t.Context())
	require.NoError(t, err)
	require.Zero(t, made)
	s.accept(s.batch(s.position(0), newIDs(1)...))

	require.NoError(t, dump.Rollback(t.Context()))
	made, err = s.store.MakePartitions(t.Context())
	require.NoError(t, err)
	require.Equal(t, 8, made)
	s.requireRows(1)
}

func TestPartitionsAreMadeOnceByManyAtOnceUnderLoad(t *testing.T) {
	t.Parallel()
	deduptest.AwayFromMidnight(t)
	s := newStage(t)
	dropPartitions(t, s.admin)
	var group errgroup.Group
	made := make([]int, 8)
	for i := range made {
		group.Go(func() (err error) {
			made[i], err = s.store.MakePartitions(context.Background())
			return err
		})
	}
	p := s.position(0)
	for range 20 {
		b := s.batch(p, newIDs(5)...)
		err := s.tryAccept(b)
		for failure.Of(err) == failure.Concurrent { // a row for the default partition, whose day was made meanwhile
			err = s.tryAccept(b)
		}
		require.NoError(t, err)
	}
	require.NoError(t, group.Wait())
	total := 0
	for _, n := range made {
		total += n
	}
	require.Equal(t, 8, total)
	s.requireRows(100)
	require.Zero(t, s.count(`select count(*) from firstseen.inbox_default`))
}

func TestOpenRefusesASchemaOfAnotherVersion(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	latest := int64(s.count(`select max(version_id) from firstseen.schema_version`))
	for _, found := range []int64{latest + 1, latest - 1, 0} {
		s.exec(`delete from firstseen.schema_version where version_id > 0`)
		s.exec(`insert into firstseen.schema_version (version_id, is_applied) values ($1, true)`, found)
		_, err := dedup.Open(t.Context(), s.pool, dedup.Config{Inbox: "test"})
		var schema *dedup.SchemaError
		require.ErrorAs(t, err, &schema)
		require.Equal(t, dedup.SchemaError{Schema: "firstseen", Found: found, Need: latest}, *schema)
		require.ErrorContains(t, err, "firstseen migrate")
	}
	_, err := dedup.Open(t.Context(), s.pool, dedup.Config{Inbox: "test", Schema: "nowhere"})
	require.ErrorContains(t, err, "schema nowhere is not there")
	_, err = dedup.Open(t.Context(), s.pool, dedup.Config{})
	require.ErrorContains(t, err, "a name is required")
}

func TestRowThatCommitsWhileItsPartitionIsMadeIsMovedToo(t *testing.T) {
	t.Parallel()
	deduptest.AwayFromMidnight(t)
	s := newStage(t)
	dropPartitions(t, s.admin)
	writer, err := s.admin.Begin(t.Context())
	require.NoError(t, err)
	// where the test fails, its database can still be dropped
	defer func() { _ = writer.Rollback(context.Background()) }()
	_, err = writer.Exec(t.Context(),
		`insert into firstseen.inbox (scope_id, message_id, topic) values (1, gen_random_uuid(), 'orders')`)
	require.NoError(t, err)
	made := make(chan error, 1)
	go func() {
		_, err := s.store.MakePartitions(context.Background())
		made <- err
	}()
	awaitLockWait(t, s.admin)
	require.NoError(t, writer.Commit(t.Context()))
	require.NoError(t, <-made)
	require.Equal(t, 1, s.count(`select count(*) from firstseen.inbox`))
	require.Zero(t, s.count(`select count(*) from firstseen.inbox_default`))
}
