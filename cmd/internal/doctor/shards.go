package doctor

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/firstseen/firstseen/dedup"
)

var shardChecks = []Check{
	{
		Name: "shards.home", About: "the database is the shard that the config takes it for, or the only one",
		needs: needsConfig | needsInbox, run: shardHome,
		Do: map[Level]string{Fault: "Nothing is begun here until they agree. Give all processes the same postgres.shards; " +
			"where the map is to change, run `firstseen migrate up` with it before they are restarted."},
	},
	{
		Name: "shards.ids", About: "no handler relies on IDs that two partitions bring", needs: needsConfig, run: shardIDs,
		Do: map[Level]string{Info: "The same ID takes effect once for each shard that it comes in. Where messages come in " +
			"several of the topics, give these as many partitions and the same keys: then copies come in partitions of one " +
			"number, and those have one home."},
	},
}

func shardHome(ctx context.Context, p *target, r *report) error {
	home := p.Config.Postgres.Home()
	if !home.Alone() && home.Shard == "" {
		return errors.New("the config has shards, and --shard does not say which one this is")
	}
	err := p.inbox.Store().CheckHome(ctx, p.Config.Group, home)
	switch {
	case errors.Is(err, dedup.ErrNotHome):
		r.fault("%v", err)
	case err != nil:
		return err
	case home.Alone():
		r.ok("it is the only one")
	default:
		r.ok("it is shard %s of %s", home.Shard, home.Map)
	}
	return nil
}

// shardIDs finds handlers that have several topics: an inbox knows an ID whichever of them brings it, and two shards do
// not.
func shardIDs(_ context.Context, p *target, r *report) error {
	topics := map[string][]string{}
	for _, t := range p.Config.Topics {
		for _, h := range t.Handlers {
			topics[h.Name] = append(topics[h.Name], t.Label())
		}
	}
	for _, name := range slices.Sorted(maps.Keys(topics)) {
		if len(topics[name]) > 1 && !p.Config.Postgres.Home().Alone() {
			r.info("handler %s takes %s: an ID that comes in two of them, in partitions of different shards, takes effect in "+
				"each", name, strings.Join(topics[name], " and "))
		}
	}
	r.ok("each ID comes in one shard, as far as the config says")
	return nil
}
