package devstack

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/deduptest/child"
	"github.com/firstseen/firstseen/dedup/deduptest/pgserver"
	"github.com/firstseen/firstseen/migrations"
)

// stack holds what a run stands on: Postgres with its tables, and a broker with its topic.
type stack struct {
	names    names
	options  *Options
	dsn      string
	postgres *pgserver.Server // nil where a server was named
	db       *pgxpool.Pool
	broker   *broker
	scratch  *child.Scratch // the consumer's log
	operator string         // the address of the consumer's admin API and operator's page; empty: there is none
}

// openStack starts what is not named, and makes the schemas, the topic and the tables.
func openStack(ctx context.Context, o *Options) (_ *stack, err error) {
	s := &stack{names: newNames(o), options: o, dsn: o.Postgres}
	defer func() {
		if err != nil {
			s.close(o.Out)
		}
	}()
	if s.scratch, err = child.NewScratch("dev", nil); err != nil {
		return nil, err
	}
	if s.dsn == "" {
		if err := s.startPostgres(ctx); err != nil {
			return nil, err
		}
	}
	if _, err := migrations.Up(ctx, s.dsn, migrations.Config{Schema: s.names.Schema}); err != nil {
		return nil, err
	}
	if s.db, err = openPool(ctx, s.dsn, s.names.searchPath(), 0); err != nil {
		return nil, err
	}
	if err := createBank(ctx, s.db, s.names); err != nil {
		return nil, err
	}
	if o.Listen != "" {
		port, err := child.FreePort()
		if err != nil {
			return nil, err
		}
		s.operator = child.Loopback(port)
	}
	s.broker, err = openBroker(ctx, o.Kafka, s.names, o.Partitions)
	return s, err
}

func (s *stack) startPostgres(ctx context.Context) (err error) {
	if s.postgres, err = pgserver.Start(ctx, pgserver.Config{Dir: s.options.Data}); err != nil {
		return err
	}
	s.dsn = s.postgres.DSN(pgserver.Superuser)
	return nil
}

// openPool's connections find the bank's tables first, then firstseen's. There are at least so many.
func openPool(ctx context.Context, dsn, searchPath string, least int32) (*pgxpool.Pool, error) {
	cfg, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, fmt.Errorf("connect to postgres: %w", err)
	}
	dedup.PreparePool(cfg, 0)
	cfg.MaxConns = max(cfg.MaxConns, least)
	cfg.ConnConfig.RuntimeParams["search_path"] = searchPath
	return pgxpool.NewWithConfig(ctx, cfg)
}

// announce tells what runs, and where to look into it.
func (s *stack) announce(out io.Writer) {
	if s.postgres == nil {
		say(out, "postgres  the one you named; schemas %s and %s", s.names.Schema, s.names.Bank)
	} else {
		say(out, "postgres  embedded; data in %s", s.postgres.Dir())
		say(out, "          psql '%s' (schemas %s and %s)", s.dsn, s.names.Schema, s.names.Bank)
	}
	kafka := "embedded"
	if s.broker.embedded == nil {
		kafka = "the one you named"
	}
	say(out, "kafka     %s; %s, topic %s, group %s", kafka, s.broker.addr, s.names.Topic, s.names.Group)
	say(out, "consumer  a child process; log in %s", s.log())
	if s.operator != "" {
		say(out, "operator  %s, the page and the API that firstseen run has too", s.operatorPage())
	}
}

// operatorPage is the address of the operator's page; empty: there is none.
func (s *stack) operatorPage() string {
	if s.operator == "" {
		return ""
	}
	return "http://" + s.operator + "/ui/"
}

// log is the file that all consumers of the run write to.
func (s *stack) log() string { return s.scratch.Path("consumer.log") }

// keepLog saves the consumer's log from being removed.
func (s *stack) keepLog(out io.Writer) {
	kept := s.scratch.Dir + ".log"
	if err := os.Rename(s.log(), kept); err == nil {
		say(out, "The consumer's log is kept: %s", kept)
	}
}

// close ends everything that runs, and tells what is left.
func (s *stack) close(out io.Writer) {
	if s.db != nil {
		s.db.Close()
	}
	if s.postgres != nil {
		s.closePostgres(out)
	} else if s.db != nil {
		say(out, "Left in Postgres: schemas %s, %s", s.names.Schema, s.names.Bank)
	}
	if s.broker != nil {
		s.broker.close()
		if s.broker.embedded == nil {
			say(out, "Left in Kafka: topic %s, group %s", s.names.Topic, s.names.Group)
			if s.names.Sent != "" {
				say(out, "               topic %s, group %s", s.names.Sent, s.names.Second)
			}
		}
	}
	s.scratch.Remove()
}

func (s *stack) closePostgres(out io.Writer) {
	dir := s.postgres.Dir()
	if err := s.postgres.Close(); err != nil {
		say(out, "%v", err)
	}
	if s.options.Data != "" {
		say(out, "Postgres is stopped; its data is in %s (schemas %s, %s)", dir, s.names.Schema, s.names.Bank)
		return
	}
	say(out, "Postgres is stopped; its data, in %s, is removed (--data DIR keeps it)", dir)
}

// names of everything that a run makes.
type names struct {
	Topic  string
	Group  string
	Schema string // firstseen's tables
	Bank   string // the handler's tables
	// Sent is the topic that the outbox's messages are sent to, and Second the group that reads it; empty: there is none.
	Sent, Second string
}

// newNames gives plain names where all is embedded and thrown away, and else ones that nobody has yet.
func newNames(o *Options) names {
	n := names{Topic: "movements", Group: "bank", Schema: "firstseen", Bank: "bank"}
	if o.Kafka != "" || o.Postgres != "" || o.Data != "" {
		run := fmt.Sprintf("%08x", rand.Uint32())
		n = names{
			Topic: "firstseen-dev-" + run, Group: "firstseen-dev-" + run,
			Schema: "firstseen_dev_" + run, Bank: "firstseen_dev_" + run + "_bank",
		}
	}
	if o.Outbox {
		n.Sent, n.Second = n.Topic+"-sent", n.Group+"-second"
	}
	return n
}

// searchPath has statements find the bank's tables, then firstseen's.
func (n names) searchPath() string { return n.Bank + ", " + n.Schema }

// Servers runs a Postgres and a broker, both empty, until ctx ends, and says on out where they are, as lines for a
// shell. What was in them is gone afterwards.
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
