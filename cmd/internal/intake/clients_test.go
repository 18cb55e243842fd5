package intake

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/cmd/internal/config"
	"github.com/firstseen/firstseen/handlers/ingress"
)

func TestAClientIsTheHolderOfItsTokenOrCertificate(t *testing.T) {
	cfg := config.Ingress{Tokens: map[string]config.Secret{"shop": "a-token-for-the-shop", "none": ""},
		Certificates: config.List{"ops"}, Tenants: config.Names{"shop": "acme", "ops": "acme"}}
	for name, c := range map[string]struct {
		authorization, certificate, want string
	}{
		"token":                       {"Bearer a-token-for-the-shop", "", "shop"},
		"scheme in any case":          {"bearer  a-token-for-the-shop ", "", "shop"},
		"certificate":                 {"", "ops", "ops"},
		"both":                        {"Bearer a-token-for-the-shop", "ops", "shop"},
		"wrong token, certificate":    {"Bearer wrong", "ops", "ops"},
		"nothing":                     {"", "", ""},
		"wrong token":                 {"Bearer a-token-for-the-sho", "", ""},
		"an empty token":              {"Bearer ", "", ""},
		"no bearer":                   {"Basic a-token-for-the-shop", "", ""},
		"certificate of another":      {"", "dev", ""},
		"certificate without a name":  {"", " ", ""},
		"token of the name, not less": {"Bearer shop", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := httptest.NewRequest(http.MethodPost, "/", nil)
			r.Header.Set("Authorization", c.authorization)
			if c.certificate != "" {
				r.TLS = &tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{
					{{Subject: pkix.Name{CommonName: c.certificate}}}}}
			}
			got, err := caller(r, cfg)
			if c.want == "" {
				require.ErrorIs(t, err, errNoClient)
				return
			}
			require.NoError(t, err)
			require.Equal(t, ingress.Caller{Name: c.want, Tenant: "acme"}, got)
		})
	}
}

func TestACertificateThatWasNotVerifiedIsNone(t *testing.T) {
	r := httptest.NewRequest(http.MethodPost, "/", nil)
	r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{{Subject: pkix.Name{CommonName: "ops"}}}}
	_, err := caller(r, config.Ingress{Certificates: config.List{"ops"}})
	require.ErrorIs(t, err, errNoClient)
}

// One certificate is the server's, its client's, and the one that both are signed by.
func TestServerSpeaksTLSAndKnowsItsClientsByTheirCertificates(t *testing.T) {
	cert, certFile, keyFile := selfSigned(t, "shop")
	s := newStage(t)
	s.cfg.Ingress.CertFile, s.cfg.Ingress.KeyFile, s.cfg.Ingress.ClientCAFile = certFile, keyFile, certFile
	s.cfg.Ingress.Certificates = config.List{"shop"}
	s.start(config.Fixed(s.cfg))
	roots := x509.NewCertPool()
	roots.AddCert(cert.Leaf)
	client := func(shown ...tls.Certificate) *http.Client {
		transport := &http.Transport{ForceAttemptHTTP2: true,
			TLSClientConfig: &tls.Config{RootCAs: roots, Certificates: shown, MinVersion: tls.VersionTLS12}}
		t.Cleanup(transport.CloseIdleConnections)
		return &http.Client{Timeout: waitFor, Transport: transport}
	}
	status, protocol := s.post(client(cert), "https", "")
	require.Equal(t, []any{http.StatusCreated, "HTTP/2.0"}, []any{status, protocol})
	status, _ = s.post(client(), "https", "")
	require.Equal(t, http.StatusUnauthorized, status)
	status, _ = s.post(client(), "https", shopToken)
	require.Equal(t, http.StatusCreated, status)
	require.NotEqual(t, http.StatusCreated, s.postPlainly(shopToken))
}

// selfSigned is a certificate for 127.0.0.1, and the files of it and of its key.
func selfSigned(t *testing.T, name string) (cert tls.Certificate, certFile, keyFile string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{Subject: pkix.Name{CommonName: name}, SerialNumber: big.NewInt(1), IsCA: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), BasicConstraintsValid: true,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	require.NoError(t, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	certFile, keyFile = filepath.Join(t.TempDir(), "cert.pem"), filepath.Join(t.TempDir(), "key.pem")
	write := func(path, kind string, der []byte) {
		require.NoError(t, os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
	}
	write(certFile, "CERTIFICATE", der)
	write(keyFile, "PRIVATE KEY", private)
	cert, err = tls.LoadX509KeyPair(certFile, keyFile)
	require.NoError(t, err)
	return cert, certFile, keyFile
}
