package deduptest

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Explained gives a pool whose statements, with those inside of functions, are explained into plans.
func Explained(t testing.TB, dsn string, plans *strings.Builder) *pgxpool.Pool {
	return OpenPool(t, dsn, func(c *pgxpool.Config) {
		c.MaxConns = 1
		for setting, value := range map[string]string{
			"session_preload_libraries": "auto_explain", "auto_explain.log_min_duration": "0",
			"auto_explain.log_nested_statements": "on", "auto_explain.log_level": "notice",
		} {
			c.ConnConfig.RuntimeParams[setting] = value
		}
		c.ConnConfig.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) { plans.WriteString(n.Message + "\n") }
	})
}
