package reach

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"syscall"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/firstseen/firstseen/consumer/internal/login"
)

// port is a connection to something that speaks Kafka.
type port struct {
	address string
	conn    net.Conn
	sasl    bool // it knows of SASL
}

func (p *port) close() { _ = p.conn.Close() }

// open connects as the client would, and finds out what is there where that is no Kafka.
func (c Cluster) open(ctx context.Context, address string) (*port, error) {
	conn, err := dial(ctx, address)
	if err != nil {
		return nil, fmt.Errorf("%w; set kafka.brokers to the address of a broker that runs", err)
	}
	if c.TLS == nil {
		return c.openPlain(ctx, address, conn)
	}
	if p, err := overTLS(ctx, address, conn, c.TLS); err == nil {
		return p, nil
	} else if said := ofCertificate(address, err); said != nil {
		return nil, said
	}
	if speaks(ctx, address, false) == nil {
		return nil, fmt.Errorf("%s speaks Kafka without TLS, and kafka.tls.enabled is true: set it to false, "+
			"or kafka.brokers to the listener with TLS", address)
	}
	return nil, notKafka(address, nil)
}

func (c Cluster) openPlain(ctx context.Context, address string, conn net.Conn) (*port, error) {
	p := &port{address: address, conn: conn}
	first, err := p.hello(ctx)
	if err == nil {
		return p, nil
	}
	p.close()
	if beginsTLS(first) {
		return nil, withoutTLS(address)
	}
	if err := speaks(ctx, address, true); err == nil || wantsCertificate(err) {
		return nil, withoutTLS(address)
	}
	return nil, notKafka(address, first)
}

func withoutTLS(address string) error {
	return fmt.Errorf("%s speaks TLS, and kafka.tls.enabled is false: set it to true, and kafka.tls.ca_file where "+
		"its certificate is of an authority of yours", address)
}

// dial says what is wrong where there is no connection.
func dial(ctx context.Context, address string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	var dns *net.DNSError
	switch {
	case err == nil:
		if deadline, ok := ctx.Deadline(); ok {
			_ = conn.SetDeadline(deadline)
		}
		return conn, nil
	case errors.As(err, &dns) && dns.IsNotFound:
		return nil, fmt.Errorf("there is no host %s", dns.Name)
	case errors.Is(err, syscall.ECONNREFUSED):
		return nil, fmt.Errorf("nobody listens at %s: connection refused", address)
	case ctx.Err() != nil:
		return nil, silence("%s answers no attempt to connect: a firewall, or a host that is down", address)
	}
	return nil, err
}

// speaks says whether an address speaks Kafka, with TLS whatever its certificate, or without.
func speaks(ctx context.Context, address string, withTLS bool) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stepLimit)
	defer cancel()
	conn, err := dial(ctx, address)
	if err != nil {
		return err
	}
	p := &port{address: address, conn: conn}
	defer p.close()
	if withTLS {
		p.conn = tls.Client(conn, &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // nothing is sent but a question
	}
	_, err = p.hello(ctx)
	return err
}

func overTLS(ctx context.Context, address string, conn net.Conn, cfg *tls.Config) (*port, error) {
	cfg = cfg.Clone()
	if host, _, err := net.SplitHostPort(address); err == nil && cfg.ServerName == "" {
		cfg.ServerName = host
	}
	p := &port{address: address, conn: tls.Client(conn, cfg)}
	if _, err := p.hello(ctx); err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

// ofCertificate is what to do about a certificate, ours or theirs; nil: that is not it.
func ofCertificate(address string, err error) error {
	switch {
	case errors.As(err, new(x509.UnknownAuthorityError)):
		return fmt.Errorf("the certificate of %s is of no authority that is known here: set kafka.tls.ca_file to that "+
			"authority's", address)
	case errors.As(err, new(x509.HostnameError)):
		return fmt.Errorf("%w: set kafka.brokers to a name of the certificate's, or kafka.tls.server_name", err)
	case errors.As(err, new(*tls.CertificateVerificationError)):
		return fmt.Errorf("the certificate of %s: %w", address, err)
	case wantsCertificate(err):
		return fmt.Errorf("%s wants a certificate of the client that it trusts: set kafka.tls.cert_file and key_file: %w",
			address, err)
	}
	return nil
}

// wantsCertificate says that the other side has refused ours, or that there is none.
func wantsCertificate(err error) bool {
	return errors.As(err, new(tls.AlertError)) || isRemoteAlert(err)
}

// isRemoteAlert says that the other side speaks TLS and has broken it off.
func isRemoteAlert(err error) bool {
	var remote *net.OpError
	return errors.As(err, &remote) && remote.Op == "remote error"
}

// hello asks for API versions, which every Kafka answers anybody. What else comes is given.
func (p *port) hello(ctx context.Context) (first []byte, err error) {
	if secure, ok := p.conn.(*tls.Conn); ok {
		if err := secure.HandshakeContext(ctx); err != nil {
			return nil, err
		}
	}
	answer := kmsg.NewPtrApiVersionsResponse()
	if err := p.ask(kmsg.NewPtrApiVersionsRequest(), answer); err != nil {
		var foreign *login.ForeignError
		if errors.As(err, &foreign) {
			first = foreign.First
		}
		return first, err
	}
	for _, k := range answer.ApiKeys {
		p.sasl = p.sasl || k.ApiKey == kmsg.SASLHandshake.Int16()
	}
	return nil, nil
}

// ask sends a request, and reads its answer.
func (p *port) ask(request kmsg.Request, answer kmsg.Response) error {
	return login.Ask(p.conn, "firstseen", request, answer)
}

// beginsTLS says that bytes are a record of TLS: an alert, or a handshake.
func beginsTLS(first []byte) bool {
	return len(first) > 1 && (first[0] == 0x15 || first[0] == 0x16) && first[1] == 3
}

// notKafka says what speaks there, where its first bytes tell.
func notKafka(address string, first []byte) error {
	what := "what is there does not answer as Kafka does"
	switch {
	case bytes.HasPrefix(first, []byte("HTTP/")):
		what = "it speaks HTTP"
	case bytes.HasPrefix(first, []byte("SSH-")):
		what = "it speaks SSH"
	case len(first) == 8 && first[0] == 'E' && first[1] == 0:
		what = "it seems to be a Postgres"
	case len(first) == 0:
		return silence("%s accepts a connection and does not answer: it is no Kafka, or overloaded; see kafka.brokers", address)
	}
	return fmt.Errorf("%s is no Kafka: %s; set kafka.brokers to the address of a broker", address, what)
}
