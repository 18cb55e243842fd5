package config

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// spreading is minimal with what is said of Postgres in place of its dsn.
func spreading(postgres string) string {
	return strings.Replace(minimal, `{dsn: "postgres://app@db/shop"}`, "{"+postgres+"}", 1)
}

const twoShards = `shards: {b: 8-, a: 0-7}, shard_dsns: {a: "postgres://app@one/shop", b: "postgres://app@two/shop"}`

func TestAShardIsTheDatabaseOfTheProcess(t *testing.T) {
	c, err := loadText(t, spreading(twoShards), WithShard(nil, "b")...)
	require.NoError(t, err)
	require.Equal(t, "postgres://app@two/shop", c.Postgres.DSN.Reveal())
	home := c.settings().Home
	require.Equal(t, "b", home.Shard)
	require.Equal(t, "a: 0-7; b: 8-", home.Map.String())
	require.Contains(t, c.Summary(), "two:5432/shop, shard b of a: 0-7; b: 8-")

	c, err = loadText(t, minimal)
	require.NoError(t, err)
	require.True(t, c.settings().Home.Alone())

	path := write(t, "firstseen.yaml", spreading(twoShards))
	require.Equal(t, []string{"a", "b"}, Shards(path, nil))
	require.Empty(t, Shards(path, WithShard(nil, "a")))
	p, err := LoadPostgres(path, nil, Postgres{DSN: "postgres://other@three/shop"}, true)
	require.NoError(t, err)
	require.Equal(t, "postgres://other@three/shop", p.DSN.Reveal())
	require.True(t, p.Home().Alone())
}

func TestEffectiveConfigOfAShardShowsNoOtherDSN(t *testing.T) {
	e, err := LoadEffective(write(t, "firstseen.yaml", spreading(twoShards)), WithShard(nil, "b"))
	require.NoError(t, err)
	text := e.YAML()
	require.Contains(t, text, "\n  dsn: # default\n")
	require.Contains(t, text, "\n  shard: b # FIRSTSEEN_POSTGRES_SHARD\n")
	require.NotContains(t, text, "app@")
}

func TestAProcessReadsTheFileOfItsOwnShardOnly(t *testing.T) {
	file := write(t, "a", "postgres://app@one/shop\n")
	text := spreading("shards: {a: 0-7, b: 8-}, shard_dsn_files: {a: " + file + ", b: /not/here}")
	c, err := loadText(t, text, WithShard(nil, "a")...)
	require.NoError(t, err)
	require.Equal(t, "postgres://app@one/shop", c.Postgres.DSN.Reveal())
	_, err = loadText(t, text, WithShard(nil, "b")...)
	require.ErrorContains(t, err, "postgres.shard_dsn_files[b]")
}

func TestFaultsOfShards(t *testing.T) {
	requireFaultsOf(t, spreading(twoShards), "postgres.shard: is required where there are shards; say which one by "+
		"--shard, one of a, b")
	requireFaultsOf(t, spreading(twoShards+", shard: c"), `postgres.shard: "c" is none of a, b`)
	requireFaultsOf(t, spreading(twoShards+`, shard: a, dsn: "postgres://app@db/shop"`),
		"postgres.shards: is given beside postgres.dsn")
	requireFaultsOf(t, spreading("shard: a, shards: {a: 0-7, b: 8-}, shard_dsns: {b: x}"),
		"postgres.shard_dsns[a]: is required")
	requireFaultsOf(t, spreading(twoShards+", shard: a")+
		"ingress: {listen: ':0', tokens: {shop: a-token-for-the-shop}, topics: [orders]}\nstart_at: latest\n",
		"ingress.listen: can't be given beside postgres.shards", "start_at: can't be latest beside")
	for shards, want := range map[string]string{
		"{a: 0-7, b: 7-}":        "postgres.shards: partition 7 is at home in a and in b",
		"{a: 0-7, b: 8-15}":      "postgres.shards: partitions 16- are at home in no shard",
		`{a: x, b: 8-}`:          "postgres.shards[a]: is no list of partitions",
		`{a: 0-7, b: "8-", c: }`: "postgres.shards",
	} {
		_, err := loadText(t, spreading("shard: a, shards: "+shards+`, shard_dsns: {a: "postgres://app@one/shop"}`))
		require.ErrorContains(t, err, strings.Split(want, ": ")[0])
		require.Contains(t, strings.Join(faults(t, err), "\n"), want)
	}
	_, err := loadText(t, spreading(twoShards+", shard: a, shard_dsn_files: {c: /x}"))
	require.ErrorContains(t, err, "has a name that postgres.shards has not; those are a, b")
	requireFaults(t, "log: {level: info}\n")
	requireFaultsOf(t, spreading(`shard: a, dsn: "postgres://app@db/shop"`),
		`postgres.shard: is "a", and there are no postgres.shards`)
}
