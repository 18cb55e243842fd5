package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"text/tabwriter"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/firstseen/firstseen/cmd/internal/config"
	"github.com/firstseen/firstseen/cmd/internal/terminal"
	"github.com/firstseen/firstseen/consumer"
	"github.com/firstseen/firstseen/consumer/cluster"
	"github.com/firstseen/firstseen/consumer/view"
	"github.com/firstseen/firstseen/dedup"
)

const offsetsLong = `Look at where the group of the config stands in its topics, and move it.

  show    positions in Postgres, offsets in Kafka, and who reads each partition
  reset   have a group that has no members go on somewhere else

To have messages handled that were read long ago there is no need to move a group: see ` + "`firstseen replay`." + groupHelp

const clusterHelp = `

The cluster, the group and the database are those of the config of ` + "`firstseen run`" + `: --config, the file that
FIRSTSEEN_CONFIG names, ./firstseen.yaml, and the environment.`

const groupHelp = clusterHelp + ` For a program with handlers of its own, which has no such
config, say --brokers, --group and --dsn. What it takes to reach them, TLS say, may stand in a config that has no topics, or
in the environment.`

// clusterOf is a group, for commands that look at Kafka and Postgres both: a config's, or that of a program with handlers
// of its own.
type clusterOf struct {
	file  string
	given config.Given
	dsn   string
	shard string
	json  bool
}

func (c *clusterOf) addFlags(cmd *cobra.Command) {
	flags := cmd.PersistentFlags()
	flags.StringVar(&c.file, "config", "",
		"config `file` (default $FIRSTSEEN_CONFIG, or firstseen.yaml if it is there)")
	flags.StringVar(&c.dsn, "dsn", "", "connection `string`, instead of the config's; the role firstseen_operator is "+
		"enough")
	flags.StringVar(&c.shard, "shard", "", shardUsage)
	flags.BoolVar(&c.json, "json", false, "print JSON")
}

// addGroupFlags are for a group that no config has.
func (c *clusterOf) addGroupFlags(cmd *cobra.Command) {
	flags := cmd.PersistentFlags()
	flags.StringSliceVar(&c.given.Brokers, "brokers", nil, "`addresses` of brokers, host:port, instead of the config's")
	flags.StringVar(&c.given.Group, "group", "", "`name` of the consumer group, instead of the config's")
	flags.StringSliceVar(&c.given.Topics, "topics", nil, "`names` of its topics, instead of the config's")
	flags.StringVar(&c.given.Inbox, "inbox", "", "`name` of its inbox (default: the config's, or the group's name)")
	flags.StringVar(&c.given.Schema, "schema", "", "`name` of the Postgres schema, instead of the config's")
}

// config is the group's, with what the flags say in place of what it says.
func (c *clusterOf) config() (*config.Live, error) {
	c.given.DSN = config.Secret(c.dsn)
	return config.FollowOn(c.given, c.file, config.WithShard(os.Environ(), c.shard))
}

// with runs do on the group's cluster and inbox, until it is done or a signal comes.
func (c *clusterOf) with(cmd *cobra.Command, do func(context.Context, config.Config, *cluster.Cluster,
	*dedup.Store) error) error {
	live, err := c.config()
	if err != nil {
		return err
	}
	cfg := live.Load()
	ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	pool, err := openPool(ctx, cfg, func(c *pgxpool.Config) { c.MaxConns = 2 })
	if err != nil {
		return err
	}
	defer dedup.ClosePool(pool)
	store, err := dedup.Attach(ctx, pool, cfg.Store())
	if err != nil {
		return err
	}
	s, err := cfg.Consumer(live.Logger(cmd.ErrOrStderr()))
	if err != nil {
		return err
	}
	cluster, err := newCluster(s)
	if err != nil {
		return err
	}
	defer cluster.Close()
	return sayRole(do(ctx, cfg, cluster, store), pool.Config().ConnConfig.User)
}

// newCluster asks the brokers that the consumer would.
func newCluster(s consumer.Config) (*cluster.Cluster, error) {
	return cluster.New(cluster.Config{Connection: s.Connection, Home: s.Home, Logger: s.Logger})
}

func newOffsets() *cobra.Command {
	c := &clusterOf{}
	cmd := &cobra.Command{
		Use:   "offsets",
		Short: "Look at where the group stands, and move it",
		Long:  offsetsLong,
		Example: `  firstseen offsets show
  firstseen offsets show orders --brokers kafka-1:9092 --group billing --dsn "$POSTGRES"
  firstseen offsets reset orders --to 2h-ago --dry-run`,
	}
	c.addFlags(cmd)
	c.addGroupFlags(cmd)
	return parentOf(cmd, newOffsetsShow(c), newOffsetsReset(c))
}

func newOffsetsShow(c *clusterOf) *cobra.Command {
	return &cobra.Command{
		Use:   "show [TOPIC]...",
		Short: "Show where the group stands in each partition",
		Long: `Show where the group stands in each partition of the config's topics, or of those given.

  POSITION   the offset to process next, in Postgres; this is what counts
  COMMITTED  the offset that is committed to Kafka, which follows it within a second
  START      the first offset that Kafka has left
  STABLE     the partition's end for readers of committed messages
  END        its end; what lies between STABLE and END is in a producer's open transaction
  LAG        offsets from POSITION to STABLE
  OWNER      the group's member that reads it, or in brackets the process that did so last

With --json one object: group, state, members, partitions; null where there is nothing. A partition's next_offset is POSITION,
end_offset STABLE and high_watermark END, as in the admin API; leader_epoch is that of the last message before POSITION, by
which a log is known again.

Exit codes: 0 shown, 1 it failed, or a topic does not exist or is denied, and the others are shown; 2 wrong usage or config.`,
		Example: `  firstseen offsets show
  firstseen offsets show orders --json | jq '[.partitions[].lag] | add'`,
		RunE: func(cmd *cobra.Command, topics []string) error {
			return c.with(cmd, func(ctx context.Context, cfg config.Config, cluster *cluster.Cluster,
				store *dedup.Store) error {
				if len(topics) == 0 && len(cfg.Topics) == 0 {
					return usage(cmd, "name topics, or give --topics: there is no config that has some")
				}
				topics, err := orAll(ctx, topics, cfg, cluster)
				if err != nil {
					return err
				}
				s, failed := cluster.Standing(ctx, store, cfg.Group, topics)
				if failed != nil && len(s.Partitions) == 0 {
					return failed
				}
				out := cmd.OutOrStdout()
				if c.json {
					err = printJSON(out, view.StandingOf(cfg.Group, &s))
				} else {
					err = printStanding(out, cfg.Group, &s)
				}
				if !cfg.Postgres.Home().Alone() { // a topic may have no partition that is at home here
					return cmp.Or(err, failed)
				}
				return cmp.Or(err, failed, missingTopic(topics, &s))
			})
		},
	}
}

// missingTopic finds a topic that was asked for and is not there.
func missingTopic(asked []string, s *cluster.Standing) error {
	for _, topic := range asked {
		if !slices.ContainsFunc(s.Partitions, func(p cluster.PartitionStanding) bool { return p.Topic == topic }) {
			return fmt.Errorf("topic %s does not exist in Kafka", topic)
		}
	}
	return nil
}

func printStanding(out io.Writer, group string, s *cluster.Standing) error {
	_, _ = fmt.Fprintf(out, "group %s: %s, %s\n\n", group, s.Group.State,
		terminal.Count(len(s.Group.Members), "member"))
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(table, "PARTITION\tPOSITION\tCOMMITTED\tSTART\tSTABLE\tEND\tLAG\tOWNER")
	for _, p := range s.Partitions {
		_, _ = fmt.Fprintf(table, "%s/%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", p.Topic, p.Partition, offsetText(p.Position),
			offsetText(p.Committed),
			offsetText(p.Earliest), offsetText(p.Stable), offsetText(p.End), offsetText(p.Lag), ownerText(&p))
	}
	return table.Flush()
}

func offsetText(offset int64) string {
	if offset < 0 {
		return "-"
	}
	return strconv.FormatInt(offset, 10)
}

func ownerText(p *cluster.PartitionStanding) string {
	switch {
	case p.Member.ID != "":
		return terminal.Brief(p.Member.ClientID+" at "+strings.TrimPrefix(p.Member.Host, "/"), 60)
	case p.Owner != "":
		return terminal.Brief("("+p.Owner+")", 60)
	}
	return "-"
}

// orAll is the topics that were given, or all that the config reads of those in the cluster.
func orAll(ctx context.Context, topics []string, cfg config.Config, cluster *cluster.Cluster) ([]string, error) {
	if len(topics) > 0 {
		return topics, nil
	}
	var all []string
	if patterns := cfg.Patterns(); len(patterns) > 0 {
		var err error
		if all, err = cluster.TopicNames(ctx); err != nil {
			return nil, err
		}
		topics = cfg.ReadOf(all)
		if len(topics) == 0 {
			return nil, fmt.Errorf("no topic of the cluster matches %s", strings.Join(patterns, ", nor "))
		}
		return topics, nil
	}
	return cfg.ReadOf(nil), nil
}
