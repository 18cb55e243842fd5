package admin

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/consumer/service"
)

// authority signs certificates.
type authority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	a := &authority{t: t}
	a.cert, a.key = a.sign(&x509.Certificate{Subject: pkix.Name{CommonName: "ca"}, IsCA: true,
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign})
	return a
}

// sign makes a certificate, signed by the authority or, where it has none yet, by itself.
func (a *authority) sign(template *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(a.t, err)
	template.SerialNumber, template.NotBefore, template.NotAfter = big.NewInt(time.Now().UnixNano()),
		time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	require.NoError(a.t, err)
	cert, err := x509.ParseCertificate(der)
	require.NoError(a.t, err)
	return cert, key
}

// client is what a client with a certificate of this name connects with; empty: it has none.
func (a *authority) client(cn string, trusted *x509.Certificate) *tls.Config {
	cfg := &tls.Config{RootCAs: x509.NewCertPool()}
	cfg.RootCAs.AddCert(trusted)
	if cn != "" {
		cert, key := a.sign(&x509.Certificate{Subject: pkix.Name{CommonName: cn},
			ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
		cfg.Certificates = []tls.Certificate{{Certificate: [][]byte{cert.Raw}, PrivateKey: key}}
	}
	return cfg
}

func (s *stage) as(cfg *tls.Config) {
	s.client.CloseIdleConnections()
	s.scheme, s.client = "https",
		&http.Client{Transport: &http.Transport{TLSClientConfig: cfg, ForceAttemptHTTP2: true}}
	s.t.Cleanup(s.client.CloseIdleConnections)
}

func TestCertificatesReadAndThoseOfWritersWrite(t *testing.T) {
	ca, stranger := newAuthority(t), newAuthority(t)
	s := newStage(t, func(s *stage) {
		cert, key := ca.sign(&x509.Certificate{Subject: pkix.Name{CommonName: "server"},
			IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}})
		s.cfg.TLS = &tls.Config{MinVersion: tls.VersionTLS12,
			Certificates: []tls.Certificate{{Certificate: [][]byte{cert.Raw}, PrivateKey: key}},
			ClientAuth:   tls.VerifyClientCertIfGiven, ClientCAs: x509.NewCertPool()}
		s.cfg.TLS.ClientCAs.AddCert(ca.cert)
		s.settings.Access = service.Access{Certificates: true, Writers: []string{"night-shift"}, WriteToken: writeToken}
	})
	s.as(ca.client("", ca.cert))
	s.get("/readyz")
	require.Contains(t, s.refused(http.StatusUnauthorized, http.MethodGet, prefix+"/status", "").Detail, "certificate")
	s.get(prefix+"/status", "Authorization", "Bearer "+writeToken)

	s.as(ca.client("dashboard", ca.cert))
	require.Equal(t, 2, s.get(prefix+"/status").ProtoMajor)
	p := s.refused(http.StatusForbidden, http.MethodPost, prefix+"/pauses", newPauseOK)
	require.Contains(t, p.Detail, "certificate dashboard")
	s.ask(200, http.MethodPost, prefix+"/pauses", newPauseOK, "Authorization", "Bearer "+writeToken)

	s.as(ca.client("night-shift", ca.cert))
	s.ask(200, http.MethodPost, prefix+"/pauses", `{"kind":"topic","name":"returns","why":"x"}`, "X-Actor", "ann")
	require.Equal(t, "certificate night-shift (ann)", s.get(prefix+"/audit").at("audit.0.actor"))

	s.as(stranger.client("night-shift", ca.cert))
	require.Error(t, s.unreached(prefix+"/status"), "a certificate that the CA has not signed ends the handshake")
	old := ca.client("night-shift", ca.cert)
	old.MinVersion, old.MaxVersion = tls.VersionTLS10, tls.VersionTLS11
	s.as(old)
	require.ErrorContains(t, s.unreached("/livez"), "protocol version")
}
