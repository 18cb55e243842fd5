package handlers

import (
	"cmp"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// WebhookConfig says where a Webhook posts to, and how.
type WebhookConfig struct {
	// URL is the receiver's, http or https. It holds no credentials: those go in Headers. Required.
	URL string
	// Secrets sign each call, by Standard Webhooks: whsec_ and the base64 of 24 to 64 random bytes. Give two while one
	// replaces the other: the call then has a signature of each. Default none: calls are not signed.
	Secrets []string
	// Headers are sent with each call, such as Authorization. Their values are kept out of errors and logs.
	Headers map[string]string
	// Timeout bounds each call, from the dial to the answer's end. Default 10 s.
	Timeout time.Duration
	// AllowPrivate lets it call loopback and private addresses. Link-local addresses, which clouds serve their
	// metadata at, and multicast ones stay refused. The address is looked at when it is dialled, whatever name led
	// there.
	AllowPrivate bool
	// Proxy is the URL of an HTTP proxy. It decides which addresses it connects to: none is refused here then. Default
	// none, whatever the environment says.
	Proxy string
	// Connections caps the connections to the host. A call waits for a free one within its Timeout, so have at least
	// as many as Registration.Concurrency. Default 64.
	Connections int
	// TLS, if set, is what https is spoken with; below TLS 1.2 it never is. Default: the system's roots.
	TLS *tls.Config
}

// WithDefaults is the config with a default wherever it says nothing.
func (c WebhookConfig) WithDefaults() WebhookConfig {
	c.Timeout = cmp.Or(c.Timeout, 10*time.Second)
	c.Connections = cmp.Or(c.Connections, 64)
	return c
}

func (w *Webhook) setURL(cfg WebhookConfig) error {
	if cfg.URL == "" {
		return errors.New("url: is required")
	}
	u, err := url.Parse(cfg.URL)
	if err != nil {
		return errors.New("url: can't be read as a URL") // the parser's text would quote it
	}
	w.url = u
	w.hide(u.RequestURI())
	var faults []error
	check := func(fault bool, text string) {
		if fault {
			faults = append(faults, errors.New("url: "+text))
		}
	}
	check(u.Scheme != "https" && u.Scheme != "http" || u.Hostname() == "",
		"must begin with https:// or http:// and a host")
	check(u.User != nil, "holds credentials; give them as a header")
	check(u.Fragment != "", "has a fragment, which is never sent")
	check(!validPort(u.Port()), "must have a port between 1 and 65535")
	check(cfg.Proxy == "" && refusedHost(u.Hostname(), cfg.AllowPrivate),
		"is an address that is refused; allow_private permits private ones")
	return errors.Join(faults...)
}

func validPort(text string) bool {
	n, err := strconv.ParseUint(text, 10, 16)
	return text == "" || err == nil && n > 0
}

// refusedHost says of a host that is an address whether it is refused. What a name leads to is seen at the dial.
func refusedHost(host string, allowPrivate bool) bool {
	a, err := netip.ParseAddr(host)
	return err == nil && refused(a, allowPrivate)
}

func (w *Webhook) setSecrets(secrets []string) error {
	var faults []error
	for i, secret := range secrets {
		text := strings.TrimPrefix(secret, "whsec_")
		key, err := base64.StdEncoding.DecodeString(text)
		switch {
		case err != nil || text == secret:
			faults = append(faults, fmt.Errorf("secrets: number %d is not whsec_ and base64", i+1))
		case len(key) < 24 || len(key) > 64:
			faults = append(faults,
				fmt.Errorf("secrets: number %d has %d bytes; Standard Webhooks has 24 to 64", i+1, len(key)))
		}
		w.keys = append(w.keys, key)
		w.hide(text)
	}
	return errors.Join(faults...)
}

var (
	token    = regexp.MustCompile("^[!#$%&'*+.^_`|~0-9A-Za-z-]+$") // RFC 9110, 5.6.2
	reserved = []string{headerKey, headerType, "Content-Length", "Host", "Connection", "Transfer-Encoding", "Trailer",
		"Upgrade", "Te", "Expect", "Keep-Alive"}
)

func (w *Webhook) setHeaders(headers map[string]string) error {
	w.headers.Set("User-Agent", "firstseen")
	var faults []error
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		canonical := http.CanonicalHeaderKey(name)
		switch {
		case !token.MatchString(name):
			faults = append(faults, fmt.Errorf("headers: %q is no name of a header", name))
		case slices.Contains(reserved, canonical), strings.HasPrefix(canonical, headerOurs),
			strings.HasPrefix(canonical, "Webhook-"):
			faults = append(faults, fmt.Errorf("headers: %s is not yours to set", canonical))
		case !sendable(headers[name]):
			faults = append(faults,
				fmt.Errorf("headers: the value of %s has a character that can't be sent", canonical))
		}
		w.headers.Set(name, headers[name])
		w.hide(headers[name])
		_, credentials, _ := strings.Cut(headers[name], " ") // of Bearer and its like
		w.hide(credentials)
	}
	return errors.Join(faults...)
}

// sendable says whether a text can be the value of a header: printable ASCII (RFC 9110, 5.5).
func sendable(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r > '~' })
}

// hide keeps a text out of errors. What is very short is no secret, and would blot out everything.
func (w *Webhook) hide(text string) {
	if len(text) >= 6 {
		w.hidden = append(w.hidden, text)
	}
}

// setTransport makes the connections: HTTP/1.1, one call at a time on each, and none to an address that is refused.
func (w *Webhook) setTransport(cfg WebhookConfig) error {
	var faults []error
	if cfg.Timeout < 0 {
		faults = append(faults, errors.New("timeout: can't be negative"))
	}
	if cfg.Connections < 0 {
		faults = append(faults, errors.New("connections: can't be negative"))
	}
	dialer := &net.Dialer{Timeout: w.timeout, Control: guard(cfg.AllowPrivate)}
	w.transport = &http.Transport{
		DialContext: dialer.DialContext, TLSHandshakeTimeout: w.timeout,
		TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12},
		MaxConnsPerHost: cfg.Connections, MaxIdleConnsPerHost: cfg.Connections, IdleConnTimeout: 30 * time.Second,
		DisableCompression: true, MaxResponseHeaderBytes: maxAnswer,
	}
	if cfg.TLS != nil {
		w.transport.TLSClientConfig = cfg.TLS.Clone()
		w.transport.TLSClientConfig.MinVersion = max(cfg.TLS.MinVersion, tls.VersionTLS12)
	}
	if cfg.Proxy != "" {
		proxy, err := url.Parse(cfg.Proxy)
		if err != nil || proxy.Host == "" || proxy.Scheme != "http" && proxy.Scheme != "https" {
			faults = append(faults, errors.New("proxy: is no URL of a proxy; write http://HOST:PORT"))
		}
		dialer.Control = nil // it is the proxy that is dialled
		w.transport.Proxy = http.ProxyURL(proxy)
	}
	return errors.Join(faults...)
}

// Addresses beyond those that netip knows the kind of; from the IANA registries of special-purpose addresses.
var (
	// neverCalled are clouds' metadata outside of the link-local addresses (Azure, Oracle, Alibaba, AWS), and
	// addresses that are no host's.
	neverCalled = prefixes("168.63.129.16/32", "192.0.0.0/24", "100.100.100.200/32", "fd00:ec2::254/128",
		"0.0.0.0/8", "240.0.0.0/4", "fec0::/10", "100::/64")
	// private are shared, benchmarking and documentation addresses.
	private = prefixes("100.64.0.0/10", "198.18.0.0/15", "192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24",
		"2001:db8::/32", "3fff::/20")
	// embedding are IPv6 addresses that stand for an IPv4 one, which is not looked at: NAT64, Teredo, 6to4.
	embedding = prefixes("64:ff9b::/96", "64:ff9b:1::/48", "2001::/32", "2002::/16", "::/96")
)

func prefixes(texts ...string) []netip.Prefix {
	list := make([]netip.Prefix, len(texts))
	for i, text := range texts {
		list[i] = netip.MustParsePrefix(text)
	}
	return list
}

// refused says whether an address must not be called.
func refused(a netip.Addr, allowPrivate bool) bool {
	a = a.Unmap().WithZone("")
	in := func(p netip.Prefix) bool { return p.Contains(a) }
	switch {
	case !a.IsValid(), a.IsUnspecified(), a.IsMulticast(),
		a.IsLinkLocalUnicast(), slices.ContainsFunc(neverCalled, in):
		return true
	case a.IsLoopback(), a.IsPrivate(), slices.ContainsFunc(private, in), slices.ContainsFunc(embedding, in):
		return !allowPrivate
	}
	return false
}

// guard is a net.Dialer's Control: it sees the address that is really dialled, after the name was looked up.
func guard(allowPrivate bool) func(network, address string, _ syscall.RawConn) error {
	return func(_, address string, _ syscall.RawConn) error {
		at, err := netip.ParseAddrPort(address)
		if err != nil {
			return fmt.Errorf("address %s: %w", address, err)
		}
		if refused(at.Addr(), allowPrivate) {
			return fmt.Errorf("address %s is refused: it is private, local or special", at.Addr())
		}
		return nil
	}
}
