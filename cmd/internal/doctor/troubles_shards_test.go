package doctor

import "github.com/firstseen/firstseen/cmd/internal/config"

// spread has the config's partitions at home in two shards, of which this one is a.
func spread(c *config.Config) {
	c.Postgres.Shards, c.Postgres.Shard = config.Names{"a": "0-7", "b": "8-"}, "a"
}

var shardTroubles = map[string][]trouble{
	"shards.home": {
		{Fault, `^not at home in this database: the config takes it for shard a of shop, and it was never declared`,
			func(l *lab) { l.also(spread) }},
		{Fault, `^not at home in this database: it is shard b of billing \(.*\), and the config has no postgres.shards`,
			func(l *lab) {
				l.also(func(c *config.Config) { c.Group = "billing" })
				l.sql(`insert into firstseen.shards values ('billing', 'b', '{[8,)}', 'a: 0-7; b: 8-', now())`)
				l.heal(func() { l.sql(`truncate firstseen.shards`) })
			}},
	},
	"shards.ids": {{Info, `^handler ledger takes payments and refunds: an ID that comes in two of them`, func(l *lab) {
		l.also(func(c *config.Config) {
			spread(c)
			ledger := []config.Handler{{Name: "ledger"}}
			c.Topics = []config.Topic{{Name: "payments", Handlers: ledger}, {Name: "refunds", Handlers: ledger}}
		})
	}}},
}
