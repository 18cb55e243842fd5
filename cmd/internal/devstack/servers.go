package devstack

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/firstseen/firstseen/dedup/deduptest/pgserver"
)

// Servers runs a Postgres and a broker, both empty, until ctx ends, and says on out where they are, as lines for a shell.
// What was in them is gone afterwards.
func Servers(ctx context.Context, out io.Writer) (err error) {
	postgres, err := pgserver.Start(ctx, pgserver.Config{})
	if err != nil {
		return fmt.Errorf("start the embedded Postgres: %w", err)
	}
	defer func() { err = errors.Join(err, postgres.Close()) }()
	broker, err := kfake.NewCluster(kfake.NumBrokers(1))
	if err != nil {
		return fmt.Errorf("start the embedded broker: %w", err)
	}
	defer broker.Close()
	say(out, "export POSTGRES=%s", quoted(postgres.DSN(pgserver.Superuser)))
	say(out, "export KAFKA=%s", quoted(broker.ListenAddrs()[0]))
	<-ctx.Done()
	return nil
}

// quoted is text as one word of a shell.
func quoted(text string) string {
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}
