package kafkaserver

import (
	_ "embed"
	"fmt"
	"maps"
	"slices"
	"strings"
)

//go:embed server.properties
var defaults string

// ownSettings are those that Start chooses.
var ownSettings = []string{"node.id", "listeners", "log.dirs", "controller.quorum.voters"}

// replicated are the defaults of a cluster that has brokers enough for three replicas.
const replicated = `
default.replication.factor=3
min.insync.replicas=2
offsets.topic.replication.factor=3
transaction.state.log.replication.factor=3
transaction.state.log.min.isr=2
`

// properties is a broker's server.properties. Of two lines with one name Kafka takes the later.
func (c *Cluster) properties(b *Broker) string {
	var text strings.Builder
	text.WriteString(defaults)
	if len(c.Brokers) >= 3 {
		text.WriteString(replicated)
	}
	fmt.Fprintf(&text, "\nnode.id=%d\nlog.dirs=%s\nlisteners=%s\ncontroller.quorum.voters=%s\n",
		b.ID, b.path("logs"), b.listeners(), strings.Join(c.voters(), ","))
	if c.config.Secured != "" {
		fmt.Fprintf(&text, "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SECURED:%s\n",
			c.config.Secured)
	}
	for _, name := range slices.Sorted(maps.Keys(c.config.Settings)) {
		fmt.Fprintf(&text, "%s=%s\n", name, c.config.Settings[name])
	}
	return text.String()
}

func (b *Broker) listeners() string {
	text := "PLAINTEXT://" + b.Addr + ",CONTROLLER://" + b.controller
	if b.Secured != "" {
		text += ",SECURED://" + b.Secured
	}
	return text
}

func (c *Cluster) voters() []string {
	var voters []string
	for _, b := range c.Brokers {
		voters = append(voters, fmt.Sprintf("%d@%s", b.ID, b.controller))
	}
	return voters
}
