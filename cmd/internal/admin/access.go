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

	"github.com/firstseen/firstseen/cmd/internal/config"
	"github.com/firstseen/firstseen/cmd/internal/httpjson"
)

// role is what a client may do.
type role int

const (
	nobody role = iota
	reader
	writer
)

// client is who asks, as far as the server can tell.
type client struct {
	role role
	// name is what the credential proves: "local", "read token", "write token", "certificate CN".
	name string
}

// identify says who asks, or why the request is refused. Without tokens and a CA for certificates a client has to be
// on the same host, and may do everything; else it has to show one, wherever it is.
func identify(r *http.Request, cfg config.HTTP) (client, *httpjson.Problem) {
	if cfg.ReadToken == "" && cfg.WriteToken == "" && cfg.ClientCAFile == "" {
		return local(r)
	}
	known := client{}
	if cn, ok := certificate(r); ok && cfg.ClientCAFile != "" {
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
			"the API is for clients on the same host; for others set http.write_token, "+
				"http.read_token or http.client_ca_file in the config")
	}
	if !isLocalHost(r.Host) {
		return client{}, httpjson.Errorf(http.StatusForbidden, "the request is for a host of another name; "+
			"ask for localhost or 127.0.0.1, or set http.write_token in the config")
	}
	for _, name := range []string{"Forwarded", "Via", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto",
		"X-Real-Ip"} {
		if r.Header.Get(name) != "" {
			return client{}, httpjson.Errorf(http.StatusForbidden,
				"the request comes through a proxy, which hides where from; set http.write_token in the config")
		}
	}
	return client{writer, "local"}, nil
}

func isLocalHost(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.TrimSuffix(strings.ToLower(host), ".")
	if host == "localhost" {
		return true
	}
	address, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return err == nil && address.Unmap().IsLoopback()
}

// certificate is the common name of the certificate that a client has shown and the TLS handshake has verified.
func certificate(r *http.Request) (cn string, ok bool) {
	if r.TLS == nil || len(r.TLS.VerifiedChains) == 0 {
		return "", false
	}
	return r.TLS.VerifiedChains[0][0].Subject.CommonName, true
}

// tokenHolder compares what the client shows with both tokens, in a time that does not depend on where they differ.
func tokenHolder(r *http.Request, cfg config.HTTP) client {
	scheme, shown, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return client{}
	}
	shown = strings.TrimSpace(shown)
	mayWrite, mayRead := sameToken(shown, cfg.WriteToken.Reveal()), sameToken(shown, cfg.ReadToken.Reveal())
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

func credentialAdvice(cfg config.HTTP) string {
	var ways []string
	if cfg.ReadToken != "" || cfg.WriteToken != "" {
		ways = append(ways, "send the header Authorization: Bearer TOKEN with one of the config's tokens")
	}
	if cfg.ClientCAFile != "" {
		ways = append(ways, "show a certificate that http.client_ca_file has signed")
	}
	return strings.Join(ways, ", or ")
}

// mayWrite says why a client may not change anything; nil: it may. No page in a browser may, whatever it shows.
func (c client) mayWrite(r *http.Request) *httpjson.Problem {
	if r.Header.Get("Origin") != "" {
		return httpjson.Errorf(http.StatusForbidden,
			"changes can't be asked for by a web page: the request has the header Origin")
	}
	if c.role < writer {
		return httpjson.Errorf(http.StatusForbidden, "%s may read and not change: it takes http.write_token, "+
			"or a certificate whose common name is in http.writers", c.name)
	}
	return nil
}

const maxActor = 100

// actor is who is written down for a change: what the credential proves, and in brackets who the client says it is.
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
