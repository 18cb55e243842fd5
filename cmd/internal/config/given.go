package config

import (
	"cmp"
	"time"
)

// Given is what a command is told in place of the config's. Where the brokers or the group are given, it is about a group
// whose handlers are a program's own, and needs no topics; those that it is given, or finds in the config, need no
// handlers.
type Given struct {
	DSN     Secret
	Schema  string
	Brokers []string
	Group   string
	// Inbox is the group's, by its name where there is none.
	Inbox  string
	Topics []string
	// IDs and Days are ages for retention.ids and retention.inbox.
	IDs, Days time.Duration
}

func (g Given) replace(l *loader, c *Config) {
	c.Postgres.override(g.DSN)
	c.Postgres.Schema = cmp.Or(g.Schema, c.Postgres.Schema)
	if len(g.Brokers) > 0 {
		c.Kafka.Brokers = g.Brokers
	}
	if g.Group != "" {
		c.Group, c.Inbox = g.Group, ""
	}
	c.Inbox = cmp.Or(g.Inbox, c.Inbox)
	if len(g.Topics) > 0 {
		c.Topics = make([]Topic, len(g.Topics))
		for i, name := range g.Topics {
			c.Topics[i].Name = name
		}
	}
	c.Retention.IDs, c.Retention.Inbox = cmp.Or(g.IDs, c.Retention.IDs), cmp.Or(g.Days, c.Retention.Inbox)
	l.elsewhere = len(g.Brokers) > 0 || g.Group != "" || len(g.Topics) > 0
}
