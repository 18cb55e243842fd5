package idempotency_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/firstseen/firstseen/dedup/deduptest"
	"github.com/firstseen/firstseen/dedup/idempotency"
	"github.com/firstseen/firstseen/dedup/idempotency/idempotencytest"
	"github.com/firstseen/firstseen/migrations"
)

func open(t testing.TB, pool *pgxpool.Pool) *idempotency.Postgres {
	t.Helper()
	store, err := idempotency.Open(context.Background(), pool, idempotency.PostgresConfig{})
	require.NoError(t, err)
	return store
}

func TestPostgresIsAStore(t *testing.T) {
	pools := map[idempotency.Store]*pgxpool.Pool{}
	fresh := func(t *testing.T) idempotency.Store {
		pool := deduptest.New(t).Pool
		store := open(t, pool)
		pools[store] = pool
		return store
	}
	broken := func(sql string) func(*testing.T) idempotency.Store {
		return func(t *testing.T) idempotency.Store {
			store := fresh(t)
			e := idempotencytest.Entry("k", "a")
			fence, _, err := store.Claim(t.Context(), e, time.Minute, time.Hour)
			require.NoError(t, err)
			require.NoError(t, store.Complete(t.Context(), e.ID, fence, idempotency.Answer{Status: 200}))
			_, err = pools[store].Exec(t.Context(), sql)
			require.NoError(t, err)
			return store
		}
	}
	idempotencytest.TestStore(t, idempotencytest.Kit{
		New: fresh,
		Pass: func(t *testing.T, s idempotency.Store, d time.Duration) {
			_, err := pools[s].Exec(t.Context(),
				`update firstseen.idempotency set expires_at = expires_at - $1::interval,
				lease_until = lease_until - $1::interval`, d)
			require.NoError(t, err)
		},
		Break: map[idempotency.ErrorKind]func(*testing.T) idempotency.Store{
			idempotency.KindConnection: func(t *testing.T) idempotency.Store {
				store := fresh(t)
				pools[store].Close()
				return store
			},
			idempotency.KindQuery:         broken(`alter table firstseen.idempotency rename to gone`),
			idempotency.KindSerialisation: broken(`update firstseen.idempotency set headers = 'no header'`),
		},
	})
}

func TestOpenSaysWhatIsMissing(t *testing.T) {
	db := deduptest.New(t)
	_, err := idempotency.Open(t.Context(), db.Pool, idempotency.PostgresConfig{Schema: "elsewhere"})
	require.ErrorContains(t, err, "migrate up")

	name := "reader_" + strings.ReplaceAll(time.Now().Format("150405.000000"), ".", "")
	_, err = db.Pool.Exec(t.Context(), `create role `+name+` login; grant usage on schema firstseen to `+name+
		`; grant select on firstseen.idempotency to `+name)
	require.NoError(t, err)
	t.Cleanup(func() { _, _ = db.Pool.Exec(context.Background(), `drop owned by `+name+`; drop role `+name) })
	reader := deduptest.OpenPool(t, deduptest.As(t, db.DSN, name), nil)
	_, err = idempotency.Open(t.Context(), reader, idempotency.PostgresConfig{})
	require.ErrorContains(t, err, "[insert update delete]")
	require.ErrorContains(t, err, "migrate roles")
}

func TestPostgresInAnotherSchema(t *testing.T) {
	db := deduptest.New(t)
	_, err := migrations.Up(t.Context(), db.DSN, migrations.Config{Schema: "other"})
	require.NoError(t, err)
	store, err := idempotency.Open(t.Context(), db.Pool, idempotency.PostgresConfig{Schema: "other"})
	require.NoError(t, err)
	_, _, err = store.Claim(t.Context(), idempotencytest.Entry("k", "a"), time.Minute, time.Hour)
	require.NoError(t, err)
	require.Equal(t, []int{0, 1},
		[]int{count(t, db.Pool, "firstseen.idempotency"), count(t, db.Pool, "other.idempotency")})
}

// Many claim a key at once, in a database whose transactions see nothing that has happened since they began.
func TestOneOfManyClaimsAKeyWhateverTheDefaultIsolation(t *testing.T) {
	store := open(t, deduptest.OpenPool(t, deduptest.New(t).DSN, func(c *pgxpool.Config) {
		c.MaxConns = 8
		c.ConnConfig.RuntimeParams["default_transaction_isolation"] = "serializable"
	}))
	for key := range 50 {
		e := idempotencytest.Entry(fmt.Sprint(key), "a")
		var claimed atomic.Int32
		var claiming errgroup.Group
		for range 8 {
			claiming.Go(func() error {
				fence, _, err := store.Claim(t.Context(), e, time.Minute, time.Hour)
				if fence != 0 {
					claimed.Add(1)
				}
				return err
			})
		}
		require.NoError(t, claiming.Wait())
		require.EqualValues(t, 1, claimed.Load())
	}
}

func count(t testing.TB, pool *pgxpool.Pool, table string) (n int) {
	t.Helper()
	require.NoError(t, pool.QueryRow(context.Background(), `select count(*) from `+table).Scan(&n))
	return n
}
