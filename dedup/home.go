package dedup

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/firstseen/firstseen/dedup/internal/db"
	"github.com/firstseen/firstseen/dedup/shards"
	"github.com/firstseen/firstseen/migrations"
	"github.com/firstseen/firstseen/migrations/dial"
)

// ErrNotHome is returned where a database is not the shard of the consumer that it is taken for, or a partition is at
// home in another one; the error's text says what was found and what to do. Nothing was changed.
var ErrNotHome = errors.New("not at home in this database")

// homeError says in words what Postgres has refused.
func homeError(err error) error {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) || pg.Code != codeNotHome {
		return err
	}
	return fmt.Errorf("%w: %s: %s", ErrNotHome, pg.Message, pg.Hint)
}

const homeSQL = `select shard, spread from firstseen.shards where consumer = $1`

// CheckHome says whether the database remembers to be what the consumer takes it for: the shard home, of the same map,
// or the consumer's only database. Where it does not, the error is ErrNotHome.
func (s *Store) CheckHome(ctx context.Context, consumer string, home shards.Home) error {
	var is, spread string
	err := s.Answered(ctx, 0, func(ctx context.Context) error {
		return s.db.Pool.QueryRow(ctx, s.db.SQL(homeSQL), consumer).Scan(&is, &spread)
	})
	unknown := errors.Is(err, pgx.ErrNoRows)
	if err != nil && !unknown {
		return fmt.Errorf("look which shard of %s this is: %w", consumer, err)
	}
	switch {
	case unknown && home.Alone(), !unknown && is == home.Shard && spread == home.Map.String():
		return nil
	case unknown:
		return fmt.Errorf("%w: the config takes it for shard %s of %s, and it was never declared: run `firstseen migrate "+
			"up` with this config", ErrNotHome, home.Shard, consumer)
	case home.Alone():
		return fmt.Errorf("%w: it is shard %s of %s (%s), and the config has no postgres.shards: what is at home elsewhere "+
			"would begin anew here", ErrNotHome, is, consumer, spread)
	case is != home.Shard:
		return fmt.Errorf("%w: it is shard %s of %s, and the config takes it for shard %s: see whether the addresses of two "+
			"shards were swapped, or a shard was renamed", ErrNotHome, is, consumer, home.Shard)
	}
	return fmt.Errorf("%w: the shards of %s are declared as %s, and the config has %s: give all processes the same map, "+
		"and where it is to change run `firstseen migrate up` with it first", ErrNotHome, consumer, spread, home.Map)
}

const declareSQL = `select firstseen.declare_shard($1, $2, $3::int4multirange, $4, $5)`

// DeclareHomes has databases remember which shards of a consumer they are, by the shards' names, and of which map. It
// takes the rights of the schema's owner. Where all of the map are given the map may be another one than was declared,
// as long as each partition that has a position stays where that is. Where one database refuses, because it is another
// shard or a partition would lose its home, the error is ErrNotHome, and nothing is changed in any.
func DeclareHomes(ctx context.Context, schema, consumer string, m shards.Map,
	databases map[string]*pgxpool.Pool) error {
	if schema == "" {
		schema = migrations.DefaultSchema
	}
	all := len(databases) == len(m)
	declare := func(context.Context) error { return nil }
	for name, pool := range databases {
		home, then := shards.Home{Shard: name, Map: m}, declare
		if err := home.Check(); err != nil {
			return fmt.Errorf("declare shards of %s: %w", consumer, err)
		}
		s := newStore(pool, Config{Schema: schema, AnswerTimeout: dial.Silence})
		declare = func(ctx context.Context) error { // each transaction commits after those within it
			return s.db.InTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
				_, err := tx.Exec(ctx, s.db.SQL(declareSQL), consumer, name, home.Partitions().Multirange(), m.String(), all)
				if err != nil {
					return fmt.Errorf("declare shard %s of %s: %w", name, consumer, homeError(db.RightsError(err)))
				}
				return then(ctx)
			})
		}
	}
	return declare(ctx)
}
