package consumertest

import (
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// newClient is a client that learns of a new topic or leader at once, not after kgo's default of seconds.
func newClient(addr string, opts ...kgo.Opt) (*kgo.Client, error) {
	const fresh = 20 * time.Millisecond
	return kgo.NewClient(append(opts, kgo.SeedBrokers(addr), kgo.MetadataMinAge(fresh))...)
}
