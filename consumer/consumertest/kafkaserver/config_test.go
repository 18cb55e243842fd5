package kafkaserver

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestConfigNamesAllItsFaults(t *testing.T) {
	_, err := Start(t.Context(), Config{Brokers: -1, Settings: map[string]string{"node.id": "7", "log.dirs": "/"}})
	require.EqualError(t, err, "start kafka: brokers: -1 is negative\n"+
		"settings: log.dirs is different for each start\n"+
		"settings: node.id is different for each start")
}

func TestHeapIsSmallerWhereThereAreSeveral(t *testing.T) {
	require.Equal(t, "512m", Config{}.withDefaults().Heap)
	require.Equal(t, "384m", Config{Brokers: 2}.withDefaults().Heap)
	require.Equal(t, "1g", Config{Heap: "1g"}.withDefaults().Heap)
}

func TestSettingsWinOverTheDefaultsOfACluster(t *testing.T) {
	c := &Cluster{
		Brokers: []*Broker{{ID: 1}, {ID: 2}, {ID: 3}},
		config:  Config{Settings: map[string]string{"default.replication.factor": "2"}},
	}
	got := parse(c.properties(c.Brokers[0]))
	require.Equal(t, "2", got["default.replication.factor"])
	require.Equal(t, "2", got["min.insync.replicas"], "the cluster's default stays")
}

func TestOptimizeKeepsTheJVMsCompilerAndCollector(t *testing.T) {
	quick, full := &Broker{}, &Broker{config: Config{Optimize: true}}
	for _, flag := range []string{"-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"} {
		require.Contains(t, quick.flags(), flag)
		require.NotContains(t, full.flags(), flag)
	}
}

// parse reads properties as Kafka does: the last of one name counts.
func parse(text string) map[string]string {
	values := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, found := strings.Cut(strings.TrimSpace(line), "="); found {
			values[name] = value
		}
	}
	return values
}
