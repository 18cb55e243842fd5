package online

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/dedup/deduptest"
)

// No chunk reads the whole table, or needs an index; and what the check has shown needs no reading again.
func TestTableIsReadByWhereRowsLieAndOnceMoreForTheCheck(t *testing.T) {
	db := deduptest.New(t)
	_, err := db.Pool.Exec(t.Context(), `create table orders (id int, key text);
		insert into orders select i, null from generate_series(1, 20000) i; analyze orders`)
	require.NoError(t, err)
	conf, err := pgx.ParseConfig(db.DSN)
	require.NoError(t, err)
	for setting, value := range map[string]string{"session_preload_libraries": "auto_explain",
		"auto_explain.log_min_duration": "0", "auto_explain.log_level": "notice", "client_min_messages": "debug1"} {
		conf.RuntimeParams[setting] = value
	}
	var said strings.Builder
	conf.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) { said.WriteString(n.Message + "\n") }
	orders := &Table{cfg: Config{LockTimeout: 2 * time.Second, Wait: time.Minute}}
	require.NoError(t, orders.open(t.Context(), conf, "orders"))
	defer orders.Close()
	chunks := 0
	require.NoError(t, orders.SetNotNull(t.Context(), Backfill{Column: "key", Value: "id", Pages: 4,
		OnProgress: func(Progress) { chunks++ }}))

	plans := said.String()
	require.Greater(t, chunks, 10, "so many that there is a generic plan")
	require.Equal(t, chunks, strings.Count(plans, "->  Tid Range Scan on orders"))
	require.Equal(t, chunks, strings.Count(plans, "->  Tid Scan on orders"))
	require.NotContains(t, plans, "Seq Scan on orders")
	require.Len(t, regexp.MustCompile(`verifying table "orders"`).FindAllString(plans, -1), 1, "for the check")
	require.Contains(t, plans, "are sufficient to prove that it does not contain nulls")
}
