// Package reach finds out what keeps a client from a cluster. What a client meets is an end of the connection or a
// silence, whatever the cause; so this asks each address again, over connections of its own, step by step: is there a
// listener, does it speak TLS, Kafka, SASL, and can the addresses be reached that the brokers advertise. It says what
// it found and what to set. It is for after a failure, and keeps to a few seconds.
//
// In reading order: reach.go (the steps), port.go (what speaks at an address), login.go (SASL).
package reach

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/segmentio/kafka-go/sasl"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Cluster is how a client would reach it.
type Cluster struct {
	Brokers []string
	TLS     *tls.Config
	SASL    sasl.Mechanism
}

const (
	// stepLimit bounds what is waited for one address, and so all: they are asked side by side.
	stepLimit = time.Second
	// mostAsked caps the addresses that are asked, and the advertised ones.
	mostAsked = 5
)

// Why is what keeps the client from the cluster. Nil: nothing was found, as where one of the addresses is well.
func Why(ctx context.Context, c Cluster) error {
	asked := c.Brokers[:min(len(c.Brokers), mostAsked)]
	found := make([]error, len(asked))
	each(len(asked), func(i int) { found[i] = c.why(ctx, asked[i]) })
	for _, err := range found {
		if err == nil || ctx.Err() != nil {
			return nil
		}
	}
	return errors.Join(found[:min(len(found), 1)]...)
}

func each(n int, do func(i int)) {
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { do(i) })
	}
	wg.Wait()
}

// why asks one address.
func (c Cluster) why(ctx context.Context, address string) error {
	ctx, cancel := context.WithTimeout(ctx, stepLimit)
	defer cancel()
	p, err := c.open(ctx, address)
	if err != nil {
		return err
	}
	defer p.close()
	if err := c.logIn(ctx, p); err != nil {
		return err
	}
	return c.advertised(ctx, p)
}

// Silence is that somebody did not answer within a second: it is no Kafka, or it is slow.
type Silence struct{ text string }

func (s *Silence) Error() string { return s.text }

func silence(format string, args ...any) error { return &Silence{fmt.Sprintf(format, args...)} }

// advertised finds a broker that the cluster names by an address which can't be reached from here.
func (c Cluster) advertised(ctx context.Context, p *port) error {
	request := kmsg.NewPtrMetadataRequest()
	request.Version = 1
	request.Topics = []kmsg.MetadataRequestTopic{} // none, where null is all
	answer := kmsg.NewPtrMetadataResponse()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stepLimit)
	defer cancel()
	switch err := p.ask(request, answer); {
	case err != nil && c.SASL == nil:
		return c.lacksLogin(ctx, p.address)
	case err != nil:
		return nil // of this the client's own error says more
	}
	brokers := answer.Brokers[:min(len(answer.Brokers), mostAsked)]
	found := make([]error, len(brokers))
	each(len(brokers), func(i int) {
		b := brokers[i]
		address := net.JoinHostPort(b.Host, strconv.Itoa(int(b.Port)))
		conn, err := dial(ctx, address)
		if err != nil {
			found[i] = fmt.Errorf("%s answers, and has broker %d at %s, where clients are to go: %w; set "+
				"advertised.listeners of the broker to an address that can be reached from here", p.address, b.NodeID,
				address, err)
			return
		}
		_ = conn.Close()
	})
	return errors.Join(found...)
}
