package config

import (
	"errors"
	"io/fs"
	"math"
	"net"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/firstseen/firstseen/dedup"
)

// dsnAdvice stands for the parser's message, which can quote pieces of a password.
const dsnAdvice = "can't be read as a connection string; write postgres://USER:PASSWORD@HOST:5432/DATABASE and " +
	"percent-encode special characters of the password (@ is %40, / is %2F, # is %23)"

func (l *loader) checkDSN(p Postgres) {
	if len(p.Shards) > 0 {
		l.checkShards(p)
		return
	}
	if p.Shard != "" {
		l.fault("postgres.shard", "is %q, and there are no postgres.shards", p.Shard)
	}
	if p.DSN == "" {
		if !l.has("postgres.dsn_file") {
			l.require("postgres.dsn", "",
				"write postgres://USER:PASSWORD@HOST:5432/DATABASE, or give postgres.dsn_file")
		}
		return
	}
	l.checkString("postgres.dsn", p.DSN)
}

// checkString checks that a connection string can be read.
func (l *loader) checkString(path string, dsn Secret) {
	_, err := pgxpool.ParseConfig(dsn.Reveal())
	var file *fs.PathError
	switch {
	case errors.As(err, &file):
		l.fault(path, "names a file that can't be read: %v", file)
	case err != nil:
		l.fault(path, "%s", dsnAdvice)
	}
}

func (c *Config) leastConnections() int {
	n := c.Batch.Transactions + 3 + len(c.webhooks())
	if c.Ingress.Listen != "" {
		n += c.Ingress.Concurrency
	}
	return n + c.Outbox.connections()
}

func (l *loader) checkConnections(c *Config) {
	least := c.leastConnections()
	switch n := c.Postgres.MaxConnections; {
	case n < least:
		l.fault("postgres.max_connections", "%d is too few; %d are needed: one for each of "+
			"the %d transactions (batch.transactions), two for lane workers, one for each webhook, ingress.concurrency "+
			"where it listens, what outbox.destinations take, and one to spare", n, least, c.Batch.Transactions)
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

// override has another connection string in place of all that is given; empty is none.
func (p *Postgres) override(dsn Secret) {
	if dsn != "" {
		p.DSN, p.DSNFile, p.Shards, p.Shard = dsn, "", nil, ""
	}
}

// Place is the database as people name it: host, port and database, nothing of the login.
func (p Postgres) Place() string {
	c, err := pgx.ParseConfig(p.DSN.Reveal())
	if err != nil {
		return "postgres"
	}
	host := c.Host
	if !strings.HasPrefix(host, "/") {
		host = net.JoinHostPort(host, strconv.Itoa(int(c.Port)))
	}
	return host + "/" + c.Database
}
