// Package login authenticates connections to brokers by SASL, and again while they are used: a broker that limits how
// long a login lasts (connections.max.reauth.ms, KIP-368) closes a connection that is used beyond that, and a member of
// a group would have it rebalance each time. kafka-go logs in once, and so gets connections that are logged in already.
//
// In reading order: login.go, conn.go (a connection that logs in again), exchange.go (what is asked and answered), ask.go (a
// request's bytes).
package login

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/segmentio/kafka-go/sasl"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// By is how to log in.
type By struct {
	Mechanism sasl.Mechanism
	// ClientID names this program in the brokers' logs.
	ClientID string
	// Timeout bounds each login that follows the first.
	Timeout time.Duration
}

// Over logs in over a connection to an address before ctx ends, and gives it as one that logs in again when the broker
// wants it to. On an error it is closed. What brokers send before they hang up is in the error's text.
func (b By) Over(ctx context.Context, conn net.Conn, address string) (net.Conn, error) {
	c := &logged{Conn: conn, by: b, host: metadata(address)}
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	deadline, _ := ctx.Deadline()
	_ = conn.SetDeadline(deadline)
	err := c.first(ctx)
	if err == nil {
		err = conn.SetDeadline(time.Time{})
	}
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	return c, nil
}

func metadata(address string) *sasl.Metadata {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return &sasl.Metadata{Host: address}
	}
	n, _ := strconv.Atoi(port)
	return &sasl.Metadata{Host: host, Port: n}
}

// newest is the version of SaslAuthenticate that tells how long a login lasts; Kafka has it since 2.2.
const newest = 1

// first asks which versions there are, and logs in.
func (l *logged) first(ctx context.Context) error {
	answer := kmsg.NewPtrApiVersionsResponse()
	if err := Ask(l.Conn, l.by.ClientID, kmsg.NewPtrApiVersionsRequest(), answer); err != nil {
		return fmt.Errorf("ask for API versions: %w", err)
	}
	for _, k := range answer.ApiKeys {
		if k.ApiKey == kmsg.SASLAuthenticate.Int16() {
			l.version = min(k.MaxVersion, newest)
		}
	}
	return l.logIn(ctx)
}

// logIn goes through the exchange of the mechanism, and takes down when it is to be done again.
func (l *logged) logIn(ctx context.Context) error {
	began := time.Now()
	life, err := l.exchange(sasl.WithMetadata(ctx, l.host))
	if err != nil {
		return fmt.Errorf("log in by %s: %w", strings.ToLower(l.by.Mechanism.Name()), err)
	}
	l.again = time.Time{}
	if life > 0 {
		l.again = began.Add(life / 20 * 17) // 0.85 of it, as Kafka's own clients at the earliest
	}
	return nil
}

func (l *logged) exchange(ctx context.Context) (life time.Duration, err error) {
	known, err := Handshake(l.ask, l.by.Mechanism.Name())
	if errors.As(err, new(*kerr.Error)) {
		return 0, fmt.Errorf("%w; the broker knows %s", err, strings.Join(known, ", "))
	}
	if err != nil {
		return 0, err
	}
	state, message, err := l.by.Mechanism.Start(ctx)
	if err != nil {
		return 0, err
	}
	return Authenticate(ctx, l.ask, l.version, state, message)
}

// ask sends a request of the exchange. Some brokers say no by hanging up: that is no lost connection, upon which the
// same would be tried at once.
func (l *logged) ask(request kmsg.Request, answer kmsg.Response) error {
	if err := Ask(l.Conn, l.by.ClientID, request, answer); err != nil {
		return errors.New(err.Error())
	}
	return nil
}
