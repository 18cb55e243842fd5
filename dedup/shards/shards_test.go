package shards

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func parsed(t require.TestingT, text string) Partitions {
	p, err := ParsePartitions(text)
	require.NoError(t, err)
	return p
}

func TestPartitionsAreWrittenInOneWay(t *testing.T) {
	for text, want := range map[string]string{"0-7": "0-7", "8-": "8-", "3": "3", "5-6, 0-4,9": "0-6,9", "2-2": "2",
		"0-": "0-"} {
		require.Equal(t, want, parsed(t, text).String(), text)
		require.Equal(t, want, parsed(t, want).String(), text)
	}
	require.Equal(t, "{[0,6],[9,9],[12,)}", parsed(t, "0-6,9,12-").Multirange())
	for _, text := range []string{"", "a", "-3", "7-0", "1,1", "0-4,3-", "0-,5", "1;2", "12345678901", "0,,1"} {
		_, err := ParsePartitions(text)
		require.Error(t, err, text)
	}
}

func TestEachPartitionHasOneHome(t *testing.T) {
	of := func(texts ...string) (m Map) {
		for i, text := range texts {
			m = append(m, Shard{Name: string(rune('a' + i)), Partitions: parsed(t, text)})
		}
		return m
	}
	require.NoError(t, of("0-7", "8-").Check())
	require.NoError(t, of("0,2,4", "1,3,5-").Check())
	require.NoError(t, of("0-").Check())
	require.ErrorContains(t, of("0-7", "9-").Check(), "partitions 8 are at home in no shard")
	require.ErrorContains(t, of("1-7", "8-").Check(), "partitions 0 are at home in no shard")
	require.ErrorContains(t, of("0-7", "8-15").Check(), "partitions 16- are at home in no shard")
	require.ErrorContains(t, of("0-7", "4-").Check(), "partition 4 is at home in a and in b")
	require.ErrorContains(t, of("0-", "4-5").Check(), "partition 4 is at home in a and in b")
	require.ErrorContains(t, of("0-9", "4-5", "7-").Check(), "partition 7 is at home in a and in c")
	require.Error(t, Map{{"a", parsed(t, "0-3")}, {"a", parsed(t, "4-")}}.Check())
	require.Error(t, Map{{"A b", parsed(t, "0-")}}.Check())
	require.Error(t, Map{}.Check())
}

func TestAHomeHasItsPartitionsAndNoOther(t *testing.T) {
	m := Map{{"b", parsed(t, "8-")}, {"a", parsed(t, "0-7")}}
	require.Equal(t, "a: 0-7; b: 8-", m.String())
	a := Home{Shard: "a", Map: m}
	require.NoError(t, a.Check())
	require.True(t, a.Has(7))
	require.False(t, a.Has(8))
	require.Equal(t, "b", m.Of(NoEnd))
	require.True(t, Home{}.Has(8))
	require.NoError(t, Home{}.Check())
	require.ErrorContains(t, Home{Shard: "c", Map: m}.Check(), `shard "c" is none of b, a`)
	require.Error(t, Home{Map: m}.Check())
}

func TestAMapWithoutFaultsHasEachPartitionOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var m Map
		for i := range rapid.IntRange(1, 4).Draw(t, "shards") {
			var p Partitions
			for range rapid.IntRange(1, 3).Draw(t, "ranges") {
				from := rapid.Int32Range(0, 12).Draw(t, "from")
				p = append(p, Range{from, rapid.SampledFrom([]int32{from, from + 1, from + 3, NoEnd}).Draw(t, "to")})
			}
			m = append(m, Shard{Name: string(rune('a' + i)), Partitions: p})
		}
		once := true
		for n := range int32(20) {
			homes := 0
			for _, s := range m {
				for _, r := range s.Partitions {
					if r.From <= n && n <= r.To {
						homes++
					}
				}
			}
			once = once && homes == 1
		}
		require.Equal(t, once, m.Check() == nil, "%s", m)
	})
}
