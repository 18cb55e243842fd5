package admin

import (
	"crypto/sha256"
	"crypto/subtle"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/firstseen/firstseen/consumer/service"
	"github.com/firstseen/firstseen/dedup/httpjson"
)

// role is a client's right: a writer may read too.
type role int

const (
	nobody role = iota
	reader
	writer
)

// client is the sender of a request, as far as the server can tell.
type client struct {
	role role
	// name is proved by the credential: "local", "read token", "write token", "certificate CN".
	name string
}

// identify says who asks, or why the request is refused. Without tokens and a CA for certificates a client has to be
// on the same host, and may do everything; else it has to show one, wherever it is.
func identify(r *http.Request, cfg service.Access) (client, *httpjson.Problem) {
	if cfg.ReadToken == "" && cfg.WriteToken == "" && !cfg.Certificates {
		return local(r)
	}
	known := client{}
	if cn, ok := certificate(r); ok && cfg.Certificates {
		known = client{reader, "certificate " + cn}
		if cn != "" && slices.Contains(cfg.Writers, cn) {
			known.role = writer
		}
	}
	if holder := tokenHolder(r, cfg); holder.role > known.role {
		known = holder
	}
	if known.role == nobody {
		return known, httpjson.Errorf(http.StatusUnauthorized, "%s", credentialAdvice(cfg)).With("WWW-Authenticate",
			`Bearer realm="firstseen"`)
	}
	return known, nil
}

// local admits clients on the same host. A web page in a browser there is not meant: its requests name another host,
// though DNS leads here. Nor is a proxy, behind which anyone may be.
func local(r *http.Request) (client, *httpjson.Problem) {
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil || !peer.Addr().Unmap().IsLoopback() {
		return client{}, httpjson.Errorf(http.StatusForbidden,
			"the API is for clients on the same host; for others it takes tokens, or a CA for their certificates: "+
				"http.write_token, http.read_token or http.client_ca_file in the config")
	}
	if !isLocalHost(r.Host) {
		return client{}, httpjson.Errorf(http.StatusForbidden, "the request is for a host of another name; "+
			"ask for localhost or 127.0.0.1, or set a token, http.write_token in the config")
	}
	for _, name := range []string{"Forwarded", "Via", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto",
		"X-Real-Ip"} {
		if r.Header.Get(name) != "" {
			return client{}, httpjson.Errorf(http.StatusForbidden,
				"the request comes through a proxy, which hides where from; set a token, http.write_token in the config")
		}
	}
	return client{writer, "local"}, nil
}

// isLocalHost takes a name with the dot of DNS' root too.
func isLocalHost(host string) bool {
	if name, port, err := net.SplitHostPort(host); err == nil {
		return httpjson.ThisHost(net.JoinHostPort(strings.TrimSuffix(name, "."), port))
	}
	return httpjson.ThisHost(strings.TrimSuffix(host, "."))
}

// certificate is the common name of the certificate that a client has shown and the TLS handshake has verified.
func certificate(r *http.Request) (cn string, ok bool) {
	if r.TLS == nil || len(r.TLS.VerifiedChains) == 0 {
		return "", false
	}
	return r.TLS.VerifiedChains[0][0].Subject.CommonName, true
}

// tokenHolder compares what the client shows with both tokens, in a time that does not depend on where they differ.
func tokenHolder(r *http.Request, cfg service.Access) client {
	scheme, shown, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return client{}
	}
	shown = strings.TrimSpace(shown)
	mayWrite, mayRead := sameToken(shown, cfg.WriteToken), sameToken(shown, cfg.ReadToken)
	switch {
	case mayWrite:
		return client{writer, "write token"}
	case mayRead:
		return client{reader, "read token"}
	}
	return client{}
}

func sameToken(shown, token string) bool {
	a, b := sha256.Sum256([]byte(shown)), sha256.Sum256([]byte(token))
	return subtle.ConstantTimeCompare(a[:], b[:]) == 1 && token != ""
}

func credentialAdvice(cfg service.Access) string {
	var ways []string
	if cfg.ReadToken != "" || cfg.WriteToken != "" {
		ways = append(ways, "send the header Authorization: Bearer TOKEN with one of the config's tokens")
	}
	if cfg.Certificates {
		ways = append(ways, "show a certificate that the CA for clients has signed")
	}
	return strings.Join(ways, ", or ")
}

// ownPage lets through what no page in a browser asks for, or the server's own.
var ownPage = http.NewCrossOriginProtection()

// mayWrite says why a client may not change anything; nil: it may. No page in a browser may, whatever it shows, but the
// server's own.
func (c client) mayWrite(r *http.Request) *httpjson.Problem {
	if ownPage.Check(r) != nil {
		return httpjson.Errorf(http.StatusForbidden,
			"changes can't be asked for by a web page of another server: see the request's headers Origin and Sec-Fetch-Site")
	}
	if c.role < writer {
		return httpjson.Errorf(http.StatusForbidden, "%s may read and not change: it takes the write token, "+
			"or a certificate of one of the writers: http.write_token and http.writers in the config", c.name)
	}
	return nil
}

const maxActor = 100

// actor names who makes a change, for the audit: what the credential proves, and in brackets who the client says it
// is.
func (c client) actor(r *http.Request) (string, *httpjson.Problem) {
	said := r.Header.Get("X-Actor")
	if said == "" {
		return c.name, nil
	}
	if len(said) > maxActor || strings.ContainsFunc(said, func(r rune) bool { return !unicode.IsPrint(r) }) ||
		!utf8.ValidString(said) {
		return "", httpjson.Wrong("X-Actor", "has more than %d bytes, or a character that can't be printed", maxActor)
	}
	return c.name + " (" + said + ")", nil
}
