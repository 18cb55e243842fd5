package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/firstseen/firstseen/consumer"
	"github.com/firstseen/firstseen/dedup/shards"
)

// WithShard is an environment in which a process works on the shard of that name; empty: on the one that it says.
func WithShard(environ []string, shard string) []string {
	if shard == "" {
		return environ
	}
	return append(slices.Clone(environ), prefix+"POSTGRES_SHARD="+shard)
}

// Shards are the names of the config's shards, where it has some and does not say which one is meant. Its faults don't
// matter.
func Shards(path string, environ []string) []string {
	_, c := load(path, environ)
	if c.Postgres.Shard != "" {
		return nil
	}
	return c.Postgres.Map().Names()
}

// Map gives each partition to a shard; empty without shards. What can't be read of it is left out.
func (p Postgres) Map() shards.Map {
	var m shards.Map
	for _, name := range slices.Sorted(maps.Keys(p.Shards)) {
		partitions, _ := shards.ParsePartitions(p.Shards[name])
		m = append(m, shards.Shard{Name: name, Partitions: partitions})
	}
	return m
}

// Home is the shard that this process works on; its zero value without shards.
func (p Postgres) Home() shards.Home {
	if len(p.Shards) == 0 {
		return shards.Home{}
	}
	return shards.Home{Shard: p.Shard, Map: p.Map()}
}

// spread says what the database is among several.
func (p Postgres) spread() string {
	if len(p.Shards) == 0 {
		return ""
	}
	return fmt.Sprintf(", shard %s of %s", p.Shard, p.Map())
}

// readShard has the connection string of the shard that this process works on be the one that counts.
func (l *loader) readShard(p *Postgres) {
	if p.DSN != "" || p.DSNFile != "" {
		l.fault("postgres.shards", "is given beside postgres.dsn or postgres.dsn_file; keep one of the two")
		return
	}
	dsn, file := p.ShardDSNs[p.Shard], p.ShardDSNFiles[p.Shard]
	switch {
	case file == "":
	case dsn != "":
		l.fault("postgres.shard_dsn_files["+p.Shard+"]", "is given beside one in postgres.shard_dsns; keep one of the "+
			"two")
	default:
		dsn = l.readSecret("postgres.shard_dsn_files["+p.Shard+"]", file)
	}
	p.DSN = Secret(strings.TrimSpace(dsn.Reveal()))
}

func (l *loader) checkShards(p Postgres) {
	before := len(l.faults)
	for name, text := range p.Shards {
		if _, err := shards.ParsePartitions(text); err != nil {
			l.fault("postgres.shards["+name+"]", "%v", err)
		}
	}
	names := p.Map().Names()
	for _, name := range append(slices.Collect(maps.Keys(p.ShardDSNs)), slices.Collect(maps.Keys(p.ShardDSNFiles))...) {
		if !slices.Contains(names, name) {
			l.fault("postgres.shard_dsns", "or shard_dsn_files has a name that postgres.shards has not; those are %s",
				strings.Join(names, ", "))
		}
	}
	if len(l.faults) > before || l.has("postgres.shards") {
		return
	}
	switch err := p.Map().Check(); {
	case err != nil:
		l.fault("postgres.shards", "%s", strings.ReplaceAll(err.Error(), "\n", "; "))
	case p.Shard == "":
		l.fault("postgres.shard", "is required where there are shards; say which one by --shard, one of %s",
			strings.Join(names, ", "))
	case !slices.Contains(names, p.Shard):
		l.fault("postgres.shard", "%sis none of %s", l.shown("postgres.shard"), strings.Join(names, ", "))
	case p.DSN == "" && !l.has("postgres.shard_dsn_files["+p.Shard+"]"):
		l.require("postgres.shard_dsns["+p.Shard+"]", "", "give the server's connection string there, or its file in "+
			"postgres.shard_dsn_files")
	default:
		l.checkString("postgres.shard_dsns["+p.Shard+"]", p.DSN)
	}
}

// checkSpread checks what can't be where there are several servers.
func (l *loader) checkSpread(c *Config) {
	if len(c.Postgres.Shards) == 0 {
		return
	}
	if c.Ingress.Listen != "" {
		l.fault("ingress.listen", "can't be given beside postgres.shards; what comes by HTTP has no partition, and each "+
			"process would take it in once, in its own shard")
	}
	if c.StartAt == string(consumer.Latest) {
		l.fault("start_at", "can't be latest beside postgres.shards; a shard that is reached later than the others would "+
			"skip what came meanwhile: move the group with `firstseen offsets reset` before the first start")
	}
}
