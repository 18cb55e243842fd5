package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/firstseen/firstseen/cmd/internal/config"
	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/migrations/dial"
)

const shardUsage = "`name` of the shard, where the config has postgres.shards"

// overShards is what a command says that goes over all shards.
const overShards = `

Where the config has postgres.shards, all of them are gone over, unless --shard names one; what is found is told by shard, as
JSON in an object by their names. One that can't be reached stops no other.`

// environ is the process's, in which the shard that the command line names is the one that is meant.
func (t *target) environ() []string { return config.WithShard(os.Environ(), t.shard) }

// overShards is eachShard for the config's shards, where it has some and neither it nor the command line says which one
// is meant, or which database.
func (t *target) overShards(cmd *cobra.Command, asJSON bool, do func() error) error {
	names := config.Shards(t.file, t.environ())
	if t.dsn != "" || len(names) == 0 {
		return do()
	}
	return eachShard(cmd, asJSON, &t.shard, names, do)
}

func (c *clusterOf) overShards(cmd *cobra.Command, asJSON bool, do func() error) error {
	t := target{file: c.file, dsn: c.dsn, shard: c.shard}
	return t.overShards(cmd, asJSON, func() error {
		c.shard = t.shard
		return do()
	})
}

// eachShard runs do for one shard after the other, and tells each one's output by its name.
func eachShard(cmd *cobra.Command, asJSON bool, shard *string, names []string, do func() error) error {
	out := cmd.OutOrStdout()
	defer cmd.SetOut(out)
	defer func(named string) { *shard = named }(*shard)
	ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	answers := map[string]json.RawMessage{}
	var failed []error
	for _, name := range names {
		*shard = name
		var answer bytes.Buffer
		cmd.SetOut(&answer)
		err := do()
		if err != nil {
			failed = append(failed, fmt.Errorf("shard %s: %w", name, err))
		}
		if ctx.Err() != nil { // the rest is left
			return worst(failed)
		}
		if asJSON {
			answers[name] = json.RawMessage(orNull(answer.Bytes()))
			continue
		}
		if _, err := fmt.Fprintf(out, "shard %s:\n%s\n", name, answer.String()); err != nil {
			return err
		}
	}
	if asJSON {
		if err := printJSON(out, answers); err != nil {
			return err
		}
	}
	return worst(failed)
}

// orNull is a JSON text; null where there is none.
func orNull(text []byte) []byte {
	if text = bytes.TrimSpace(text); len(text) == 0 {
		return []byte("null")
	}
	return text
}

// worst is one error of several, with the highest of their exit codes.
func worst(failed []error) error {
	if len(failed) == 0 {
		return nil
	}
	code, texts := 0, make([]string, len(failed))
	for i, err := range failed {
		code, texts[i] = max(code, exitCode(err)), err.Error()
	}
	return &codedError{code, errors.New(strings.Join(texts, "; "))}
}

// declareHomes has the databases of a map remember which shards they are, by their connection strings.
func declareHomes(ctx context.Context, p config.Postgres, group string, dsns map[string]string) error {
	pools := map[string]*pgxpool.Pool{}
	for name, dsn := range dsns {
		conf, err := pgxpool.ParseConfig(dsn)
		if err != nil {
			return err
		}
		dial.Prepare(&conf.ConnConfig.Config, 0)
		conf.MaxConns = 1
		pool, err := pgxpool.NewWithConfig(ctx, conf)
		if err != nil {
			return err
		}
		defer dedup.ClosePool(pool)
		pools[name] = pool
	}
	return dedup.DeclareHomes(ctx, p.Schema, group, p.Map(), pools)
}
