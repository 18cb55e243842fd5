package cluster

import (
	"context"
	"fmt"
	"strconv"

	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/firstseen/firstseen/consumer/internal/wire"
)

// Settings are those of a cluster.
type Settings struct {
	ClusterID string
	Brokers   int // how many are alive
	// Version is the release of Kafka that one of the brokers seems to be, such as "v4.0", by the requests that it
	// speaks.
	Version string
	// Hidden is why AutoCreate is not known; nil where it is. It matches ErrNotAllowed where the ACLs are the cause.
	Hidden error
	// AutoCreate is auto.create.topics.enable: whoever asks for a topic that does not exist creates it.
	AutoCreate bool
}

// Settings tells of the cluster. That ACLs keep something from this client is no error, see Settings.Hidden.
func (c *Cluster) Settings(ctx context.Context) (Settings, error) {
	answer := kmsg.NewMetadataResponse()
	request := kmsg.NewPtrMetadataRequest()
	request.Topics = []kmsg.MetadataRequestTopic{} // nil asks for all
	err := c.patiently(ctx, func() error {
		return c.wire.Ask(ctx, wire.Call{Broker: wire.AnyBroker, Request: request, Min: 4, Max: 12}, &answer)
	})
	if err != nil {
		return Settings{}, fmt.Errorf("settings of the cluster: %w", err)
	}
	s := Settings{Brokers: len(answer.Brokers)}
	if answer.ClusterID != nil {
		s.ClusterID = *answer.ClusterID
	}
	spoken, err := c.wire.Versions(ctx, wire.AnyBroker)
	if err != nil {
		return s, fmt.Errorf("version of the cluster: %w", err)
	}
	s.Version = kversion.FromApiVersionsResponse(spoken).VersionGuess()
	if len(answer.Brokers) > 0 {
		s.readBroker(ctx, c, answer.Brokers[0].NodeID)
	}
	return s, nil
}

const autoCreate = "auto.create.topics.enable"

// readBroker asks a broker for its own settings; another's it does not tell.
func (s *Settings) readBroker(ctx context.Context, c *Cluster, id int32) {
	name := strconv.Itoa(int(id))
	found := c.settings(ctx, id, kmsg.ConfigResourceTypeBroker, []string{name}, []string{autoCreate})[name]
	if s.Hidden = found.err; s.Hidden == nil {
		s.Hidden = found.missing([]string{autoCreate})
	}
	s.AutoCreate = found.values[autoCreate] == "true"
}
