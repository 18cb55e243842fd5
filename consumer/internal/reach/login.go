package reach

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/segmentio/kafka-go/sasl"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/firstseen/firstseen/consumer/internal/login"
)

// logIn authenticates as the client would, and says what is wrong with that.
func (c Cluster) logIn(ctx context.Context, p *port) error {
	if c.SASL == nil {
		return nil
	}
	mechanisms, err := login.Handshake(p.ask, c.SASL.Name())
	switch {
	case !p.sasl, errors.Is(err, kerr.IllegalSaslState):
		return fmt.Errorf("%s asks for no SASL, and kafka.sasl is set: take it out, or set kafka.brokers to the listener "+
			"with SASL", p.address)
	case errors.Is(err, kerr.UnsupportedSaslMechanism):
		return fmt.Errorf("%s does not know kafka.sasl.mechanism %s: set it to one of %s", p.address,
			strings.ToLower(c.SASL.Name()), names(mechanisms))
	case err != nil:
		return nil // of this the client's own error says more
	}
	began, message, err := c.SASL.Start(sasl.WithMetadata(ctx, &sasl.Metadata{Host: p.address}))
	switch {
	case err != nil && ctx.Err() != nil:
		return silence("%s waits for the login by %s: %v", p.address, strings.ToLower(c.SASL.Name()), err)
	case err != nil:
		return err // nobody was asked but whoever gives tokens
	}
	if _, err := login.Authenticate(ctx, p.ask, 0, began, message); err != nil && ctx.Err() == nil {
		return c.refused(p.address, began, err)
	}
	return nil
}

// refused says what to set where a login is refused. Of a token the mechanism itself says what it is like.
func (c Cluster) refused(address string, began sasl.StateMachine, err error) error {
	if by, ok := began.(interface{ Refusal() string }); ok {
		return fmt.Errorf("%s refuses the token that kafka.sasl logs in by: %s: %w", address, by.Refusal(), err)
	}
	return fmt.Errorf("%s refuses the login by %s: set kafka.sasl.username and password to those of one of its users: %w",
		address, strings.ToLower(c.SASL.Name()), err)
}

func names(mechanisms []string) string { return strings.ToLower(strings.Join(mechanisms, ", ")) }

// lacksLogin says that somebody who does not authenticate is not let in.
func (c Cluster) lacksLogin(ctx context.Context, address string) error {
	p, err := c.open(ctx, address)
	if err != nil {
		return nil
	}
	defer p.close()
	mechanisms, _ := login.Handshake(p.ask, "NONE")
	if len(mechanisms) == 0 {
		return nil
	}
	return fmt.Errorf("%s lets nobody in without SASL: set kafka.sasl.mechanism to one of %s, and what it logs in by",
		address, names(mechanisms))
}
