package main

import "github.com/spf13/cobra"

// pageFlags say which part of a list to show.
type pageFlags struct {
	limit int
	after string
}

func (p *pageFlags) addFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.IntVar(&p.limit, "limit", 50, "how many to show at most")
	flags.StringVar(&p.after, "after", "", "go on behind this `cursor`, which the list before gave")
}

const maxLimit = 10_000

func (p *pageFlags) check(cmd *cobra.Command) error {
	if p.limit < 1 || p.limit > maxLimit {
		return usage(cmd, "--limit %d: from 1 to %d", p.limit, maxLimit)
	}
	return nil
}
