package intake

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/firstseen/firstseen/cmd/internal/config"
	"github.com/firstseen/firstseen/handlers/ingress"
)

var errNoClient = errors.New("neither a token nor a certificate of a client was shown")

// caller is the holder of the token that a request shows, or else of its certificate.
func caller(r *http.Request, cfg config.Ingress) (ingress.Caller, error) {
	name := holder(r, cfg.Tokens)
	if name == "" {
		name = certificate(r, cfg.Certificates)
	}
	if name == "" {
		return ingress.Caller{}, errNoClient
	}
	return ingress.Caller{Name: name, Tenant: cfg.Tenants[name]}, nil
}

// holder compares what a request shows with all tokens, in a time that does not depend on which is like it.
func holder(r *http.Request, tokens map[string]config.Secret) (name string) {
	scheme, shown, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	sum := sha256.Sum256([]byte(strings.TrimSpace(shown)))
	for of, token := range tokens {
		expected := sha256.Sum256([]byte(token.Reveal()))
		if subtle.ConstantTimeCompare(sum[:], expected[:]) == 1 && token != "" {
			name = of
		}
	}
	return name
}

// certificate is the common name of the certificate that a client has shown and the TLS handshake has verified, where
// it is one that may post.
func certificate(r *http.Request, allowed []string) string {
	if r.TLS == nil || len(r.TLS.VerifiedChains) == 0 {
		return ""
	}
	name := r.TLS.VerifiedChains[0][0].Subject.CommonName
	if !slices.Contains(allowed, name) {
		return ""
	}
	return name
}
