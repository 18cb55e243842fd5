package main

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/firstseen/firstseen/cmd/internal/config"
	"github.com/firstseen/firstseen/cmd/internal/terminal"
	"github.com/firstseen/firstseen/consumer/view"
	"github.com/firstseen/firstseen/dedup/operate"
	"github.com/firstseen/firstseen/dedup/request"
)

const explainLong = `Tell what became of a message, in sentences: when and where it was first seen, which handlers handled it, after how many
attempts, what it waits for and behind which message, what it died of, which copies with another content came, and who
redrove or discarded it and why; which messages of the outbox its handlers have added for it, and where those were sent.

With --idempotency-key it tells of HTTP requests with that key: whether they were answered, are being worked on or were left
behind by a process, and what became of the message that is known by it. Never is anything told of a body.

The message is named by its ID (a UUID in any spelling, or what the producer wrote), or by its place, topic/partition/offset.
For a place that no message is known of, the nearest reason is told: the consumer has not reached it, is held at it, or is past it.

An offset is looked for in the inbox by reading it back, day by day, to --since: no index is kept for that.` + databaseHelp + overShards + ` A place is looked for in its partition's shard.

Exit codes: 0 told, 1 it failed, or ID or key was never seen, 2 wrong usage or config.`

func newExplain() *cobra.Command {
	i := &inspected{}
	var since, key string
	var byID bool
	var narrow operate.KeyFilter
	cmd := &cobra.Command{
		Use:   "explain ID | TOPIC/PARTITION/OFFSET",
		Short: "Tell what became of a message, and why",
		Long:  explainLong,
		Example: `  firstseen explain order-4711
  firstseen explain orders/3/120042 --since 168h
  firstseen explain --idempotency-key order-4711 --tenant acme`,
		Args: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("idempotency-key") {
				return noArgs(cmd, args)
			}
			return oneArg("an ID or a place")(cmd, args)
		},
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if cmd.Flags().Changed("idempotency-key") {
			return i.explainKey(cmd, key, narrow)
		}
		if narrow != (operate.KeyFilter{}) {
			return usage(cmd, "--tenant and --topic go with --idempotency-key")
		}
		from, err := parseTime(since, time.Now())
		if err != nil {
			return usage(cmd, "--since: %v", err)
		}
		topic, partition, offset, isPlace := parsePlace(args[0])
		if !isPlace || byID {
			ids, err := parseIDs(cmd, args)
			if err != nil {
				return err
			}
			return i.explain(cmd, args[0], func(ctx context.Context, s *operate.Inbox) (operate.Explanation, error) {
				return s.ExplainID(ctx, ids...)
			})
		}
		i.goHome(partition)
		return i.explain(cmd, args[0], func(ctx context.Context, s *operate.Inbox) (operate.Explanation, error) {
			return s.ExplainPlace(ctx, topic, partition, offset, from)
		})
	}
	i.addFlags(cmd)
	cmd.Flags().StringVar(&since, "since", "",
		"how far back to read the inbox for an offset, a `time`: 168h (before now), 2026-03-01 (default 48h)")
	cmd.Flags().BoolVar(&byID, "id", false, "it is an ID, though it looks like a place")
	cmd.Flags().StringVar(&key, "idempotency-key", "", "the `key` of HTTP requests, as their client sent it")
	cmd.Flags().StringVar(&narrow.Tenant, "tenant", "", "with a key: `name` of the tenant whose it is")
	cmd.Flags().StringVar(&narrow.Topic, "topic", "", "with a key: `name` of the topic of the message that it stands for")
	return cmd
}

// explainKey explains an idempotency key, also where the schema has no inbox: its requests may be all that there is.
func (i *inspected) explainKey(cmd *cobra.Command, text string, narrow operate.KeyFilter) error {
	key, err := request.ParseKey(text)
	switch {
	case err != nil:
		return usage(cmd, "--idempotency-key: %v", err)
	case key == "":
		return usage(cmd, "--idempotency-key is empty, and that is no key")
	}
	i.anyInbox = true
	return i.explain(cmd, "", func(ctx context.Context, s *operate.Inbox) (operate.Explanation, error) {
		return s.ExplainKey(ctx, key, narrow)
	})
}

// goHome has a partition's shard be the one that is asked, where there are several and none is named.
func (t *target) goHome(partition int32) {
	if len(config.Shards(t.file, t.environ())) > 0 && t.dsn == "" {
		t.shard = t.config().Postgres.Map().Of(partition)
	}
}

// unseenError says that nothing is known of what was asked for.
type unseenError struct{ text string }

func (e *unseenError) Error() string { return e.text }

// explain prints what ask finds, below what it was asked for, where that may be shown: a key may not. Of several shards
// one is enough that knows it.
func (i *inspected) explain(cmd *cobra.Command, asked string,
	ask func(context.Context, *operate.Inbox) (operate.Explanation, error)) error {
	var seen int
	var unseen *unseenError
	err := i.overShards(cmd, i.json, func() error {
		err := i.explainHere(cmd, asked, ask)
		if errors.As(err, &unseen) {
			return nil
		}
		if err == nil {
			seen++
		}
		return err
	})
	switch {
	case err != nil:
		return err
	case seen == 0 && unseen != nil:
		return unseen
	case seen > 1 && !i.json:
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "It came in partitions of %d shards, and each has taken it for a "+
			"message of its own: shards do not share what they have seen.\n", seen)
	}
	return err
}

func (i *inspected) explainHere(cmd *cobra.Command, asked string,
	ask func(context.Context, *operate.Inbox) (operate.Explanation, error)) error {
	return i.withStore(cmd, func(ctx context.Context, s *operate.Inbox) error {
		e, err := ask(ctx, s)
		if err != nil {
			return err
		}
		if i.json {
			err = printJSON(cmd.OutOrStdout(), view.ExplanationOf(&e, nil))
		}
		for _, sentence := range append(askedFor(asked, &e), e.Sentences...) {
			if !i.json && err == nil {
				_, err = fmt.Fprintln(cmd.OutOrStdout(), terminal.OneLine(sentence))
			}
		}
		if err == nil && len(e.Seen)+len(e.Waiting) == 0 && e.Place == nil && len(e.Requests) == 0 {
			unseen := "message " + asked + " was never seen"
			if i.anyInbox {
				unseen = "no request with this key is known, nor a message that it stands for"
			}
			if !e.ForgottenBefore.IsZero() {
				unseen += ", or was forgotten by retention"
			}
			err = &unseenError{unseen}
		}
		return err
	})
}

// askedFor says what was asked, and which ID that is where it is spelled another way.
func askedFor(asked string, e *operate.Explanation) []string {
	switch {
	case asked == "":
		return nil
	case e.Place == nil && e.Asked != asked:
		asked += ", the message " + e.Asked
	}
	return []string{"Asked for " + asked + ", in inbox " + e.Inbox + "."}
}

// placeForm is topic/partition/offset or topic/partition@offset, as it is printed. Topics have no slashes. Partition
// -1 is that of what came by HTTP.
var placeForm = regexp.MustCompile(`^([^/\s]+)/(-1|\d+)[/@](\d+)$`)

func parsePlace(text string) (topic string, partition int32, offset int64, ok bool) {
	parts := placeForm.FindStringSubmatch(text)
	if parts == nil {
		return "", 0, 0, false
	}
	p, errP := strconv.ParseInt(parts[2], 10, 32)
	offset, errO := strconv.ParseInt(parts[3], 10, 64)
	return parts[1], int32(p), offset, errP == nil && errO == nil
}
