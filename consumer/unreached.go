package consumer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/firstseen/firstseen/consumer/internal/reach"
	"github.com/firstseen/firstseen/dedup/holds"
	"github.com/firstseen/firstseen/dedup/wait"
)

// slowAnswer is how long brokers may take before it is looked what keeps this client from them.
const slowAnswer = 500 * time.Millisecond

// Unreached is what keeps this client from the cluster, in words that say what was found and what to set; nil: nothing
// was found. It asks each of Brokers, for a few seconds at most, and is for after a failure. It is not sure of brokers
// that only did not answer within a second.
func (c *Connection) Unreached(ctx context.Context) (why error, sure bool) { //nolint:revive // it is no failure of ours
	why = reach.Why(ctx, reach.Cluster{Brokers: c.Brokers, TLS: c.tls(), SASL: c.SASL})
	return why, why != nil && !errors.As(why, new(*reach.Silence))
}

// explained is an error of a request with what keeps this client from the cluster, where that is found.
func (c *Consumer) explained(ctx context.Context, err error) error {
	if why, _ := c.cfg.Unreached(ctx); why != nil {
		return fmt.Errorf("%w (%w)", why, err)
	}
	return err
}

// watch has a place hold for what is found where no answer comes soon: some requests fail only after many seconds. Of
// what may take long by itself silence says nothing. Call answered when there is an answer, or none any more.
func (c *Consumer) watch(ctx context.Context, place *holds.Place, mayTakeLong bool) (answered func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if !wait.Sleep(ctx, slowAnswer) {
			return
		}
		if why, sure := c.cfg.Unreached(ctx); why != nil && ctx.Err() == nil && (sure || !mayTakeLong) {
			place.Wait(holds.Kafka, why)
		}
	}()
	return func() {
		cancel()
		<-done
	}
}
