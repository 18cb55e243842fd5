package config

import (
	"errors"
	"io/fs"
	"math"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/firstseen/firstseen/dedup"
)

// dsnAdvice stands for the parser's message, which can quote pieces of a password.
const dsnAdvice = "can't be read as a connection string; write postgres://USER:PASSWORD@HOST:5432/DATABASE and " +
	"percent-encode special characters of the password (@ is %40, / is %2F, # is %23)"

func (l *loader) checkDSN(p Postgres) {
	if p.DSN == "" {
		if !l.has("postgres.dsn_file") {
			l.require("postgres.dsn", "",
				"write postgres://USER:PASSWORD@HOST:5432/DATABASE, or give postgres.dsn_file")
		}
		return
	}
	_, err := pgxpool.ParseConfig(p.DSN.Reveal())
	var file *fs.PathError
	switch {
	case errors.As(err, &file):
		l.fault("postgres.dsn", "names a file that can't be read: %v", file)
	case err != nil:
		l.fault("postgres.dsn", "%s", dsnAdvice)
	}
}

func (l *loader) checkConnections(c *Config) {
	least := c.Batch.Transactions + 3 + len(c.webhooks())
	switch n := c.Postgres.MaxConnections; {
	case n < least:
		l.fault("postgres.max_connections", "%d is too few; %d are needed: one for each of "+
			"the %d transactions (batch.transactions), two for lane workers, one for each webhook and one to spare",
			n, least, c.Batch.Transactions)
	case n > math.MaxInt32:
		l.fault("postgres.max_connections", "%d is too many", n)
	}
}

// Pool is the connection pool's config: as the keys say, over what the connection string says.
func (c Config) Pool() (*pgxpool.Config, error) {
	pool, err := pgxpool.ParseConfig(c.Postgres.DSN.Reveal())
	if err != nil {
		return nil, errors.New("postgres.dsn " + dsnAdvice)
	}
	dedup.PreparePool(pool, c.Timeouts.Postgres)
	pool.MaxConns = int32(c.Postgres.MaxConnections) //nolint:gosec // checked
	if !c.Postgres.PreparedStatements {
		pool.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
	}
	params := pool.ConnConfig.RuntimeParams
	if params["application_name"] == "" {
		params["application_name"] = "firstseen " + c.Group
	}
	return pool, nil
}

// Place is the database as people name it: host, port and database, nothing of the login.
func (p Postgres) Place() string {
	c, err := pgx.ParseConfig(p.DSN.Reveal())
	if err != nil {
		return "postgres"
	}
	host := c.Host
	if !strings.HasPrefix(host, "/") {
		host = joinPort(host, c.Port)
	}
	return host + "/" + c.Database
}
