package main

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/firstseen/firstseen/cmd/internal/terminal"
	"github.com/firstseen/firstseen/cmd/internal/view"
	"github.com/firstseen/firstseen/dedup/operate"
)

const explainLong = `Tell what became of a message, in sentences: when and where it was first seen, which handlers handled it, after how many
attempts, what it waits for and behind which message, what it died of, which copies with another content came, and who
redrove or discarded it and why.

The message is named by its ID (a UUID in any spelling, or what the producer wrote), or by its place, topic/partition/offset.
For a place that no message is known of, the nearest reason is told: the consumer has not reached it, is held at it, or is past it.

An offset is looked for in the inbox by reading it back, day by day, to --since: no index is kept for that.` + databaseHelp + `

Exit codes: 0 told, 1 it failed, or the ID was never seen, 2 wrong usage or config.`

func newExplain() *cobra.Command {
	i := &inspected{}
	var since string
	var byID bool
	cmd := &cobra.Command{
		Use:   "explain ID | TOPIC/PARTITION/OFFSET",
		Short: "Tell what became of a message, and why",
		Long:  explainLong,
		Example: `  firstseen explain order-4711
  firstseen explain orders/3/120042 --since 168h`,
		Args: oneArg("an ID or a place"),
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
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
			return i.explain(cmd, func(ctx context.Context, s *operate.Inbox) (operate.Explanation, error) {
				return s.ExplainID(ctx, ids...)
			})
		}
		return i.explain(cmd, func(ctx context.Context, s *operate.Inbox) (operate.Explanation, error) {
			return s.ExplainPlace(ctx, topic, partition, offset, from)
		})
	}
	i.addFlags(cmd)
	cmd.Flags().StringVar(&since, "since", "",
		"how far back to read the inbox for an offset, a `time`: 168h (before now), 2026-03-01 (default 48h)")
	cmd.Flags().BoolVar(&byID, "id", false, "it is an ID, though it looks like a place")
	return cmd
}

func (i *inspected) explain(cmd *cobra.Command,
	ask func(context.Context, *operate.Inbox) (operate.Explanation, error)) error {
	return i.withStore(cmd, func(ctx context.Context, s *operate.Inbox) error {
		e, err := ask(ctx, s)
		if err != nil {
			return err
		}
		if i.json {
			err = printJSON(cmd.OutOrStdout(), view.ExplanationOf(&e))
		}
		for _, sentence := range e.Sentences {
			if !i.json && err == nil {
				_, err = fmt.Fprintln(cmd.OutOrStdout(), terminal.OneLine(sentence))
			}
		}
		if err == nil && len(e.Seen) == 0 && e.Place == nil {
			err = fmt.Errorf("message %s was never seen", e.Asked)
			if !e.ForgottenBefore.IsZero() {
				err = fmt.Errorf("%w, or was forgotten by retention", err)
			}
		}
		return err
	})
}

// placeForm is topic/partition/offset or topic/partition@offset, as it is printed. Topics have no slashes.
var placeForm = regexp.MustCompile(`^([^/\s]+)/(\d+)[/@](\d+)$`)

func parsePlace(text string) (topic string, partition int32, offset int64, ok bool) {
	parts := placeForm.FindStringSubmatch(text)
	if parts == nil {
		return "", 0, 0, false
	}
	p, errP := strconv.ParseInt(parts[2], 10, 32)
	offset, errO := strconv.ParseInt(parts[3], 10, 64)
	return parts[1], int32(p), offset, errP == nil && errO == nil
}
