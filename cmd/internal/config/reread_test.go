package config

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/firstseen/firstseen/consumer/consumertest"
	"github.com/firstseen/firstseen/dedup/httpjson"
)

const (
	patience = 3 * time.Minute
	tick     = 50 * time.Millisecond
)

// rotated are a certificate's files in one place, which others can be put into.
type rotated struct{ cert, key string }

func newRotated(t *testing.T) *rotated {
	t.Helper()
	dir := t.TempDir()
	r := &rotated{filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")}
	r.put(t)
	return r
}

// put replaces the files by those of another authority, and gives its certificate as a server's.
func (r *rotated) put(t *testing.T) tls.Certificate {
	t.Helper()
	cert, key := selfSigned(t)
	require.NoError(t, os.Rename(cert, r.cert))
	require.NoError(t, os.Rename(key, r.key))
	return r.pair(t)
}

func (r *rotated) pair(t *testing.T) tls.Certificate {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(r.cert, r.key)
	require.NoError(t, err)
	return pair
}

func (r *rotated) pool(t *testing.T) *x509.CertPool {
	t.Helper()
	pool := x509.NewCertPool()
	require.Empty(t, addCertificates(pool, "", r.cert))
	return pool
}

// logTo is a log whose lines can be counted.
func logTo(out *bytes.Buffer) *slog.Logger { return slog.New(slog.NewTextHandler(out, nil)) }

// A broker that wants certificates of clients is given another authority's, and so are the client's files: neither
// would let the other in by what there was before.
func TestCertificatesToKafkaAreReadAgain(t *testing.T) {
	files := newRotated(t)
	var broker atomic.Pointer[tls.Config]
	serve := func() {
		broker.Store(&tls.Config{Certificates: []tls.Certificate{files.pair(t)}, ClientCAs: files.pool(t),
			ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS12})
	}
	serve()
	fake := consumertest.NewFake(t, kfake.TLS(&tls.Config{MinVersion: tls.VersionTLS12,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return broker.Load(), nil }}))
	c, err := loadText(t, minimal, "FIRSTSEEN_KAFKA_BROKERS="+fake.Addr, "FIRSTSEEN_KAFKA_TLS_ENABLED=true",
		"FIRSTSEEN_KAFKA_TLS_CA_FILE="+files.cert, "FIRSTSEEN_KAFKA_TLS_CERT_FILE="+files.cert,
		"FIRSTSEEN_KAFKA_TLS_KEY_FILE="+files.key)
	require.NoError(t, err)
	settings, err := c.Consumer(slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	reached := func() bool {
		transport := settings.Transport()
		defer transport.CloseIdleConnections()
		_, err := (&kafka.Client{Addr: kafka.TCP(fake.Addr), Transport: transport, Timeout: 10 * time.Second}).Metadata(
			t.Context(), &kafka.MetadataRequest{})
		return err == nil
	}
	require.True(t, reached())
	files.put(t)
	serve()
	require.Eventually(t, reached, patience, tick)
	why, _ := settings.Unreached(t.Context())
	require.NoError(t, why)
}

func TestCertificatesOfAServerAreReadAgain(t *testing.T) {
	files := newRotated(t)
	h := HTTP{CertFile: files.cert, KeyFile: files.key, ClientCAFile: files.cert}
	c, err := h.TLS(slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server := &http.Server{TLSConfig: c, ReadHeaderTimeout: time.Minute, //nolint:gosec // of a test
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if len(r.TLS.VerifiedChains) == 0 {
				w.WriteHeader(http.StatusForbidden)
			}
		})}
	done := make(chan error, 1)
	go func() { done <- httpjson.Serve(server, listener) }()
	t.Cleanup(func() {
		require.NoError(t, server.Close())
		require.ErrorIs(t, <-done, http.ErrServerClosed)
	})
	// both sides are of the authority of the moment, and speak HTTP/2
	reached := func() bool {
		transport := &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{RootCAs: files.pool(t),
			Certificates: []tls.Certificate{files.pair(t)}, MinVersion: tls.VersionTLS12}}
		defer transport.CloseIdleConnections()
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+listener.Addr().String(), nil)
		require.NoError(t, err)
		answer, err := (&http.Client{Transport: transport}).Do(request)
		if err != nil {
			return false
		}
		defer answer.Body.Close()
		return answer.StatusCode == http.StatusOK && answer.ProtoMajor == 2
	}
	require.True(t, reached())
	files.put(t)
	require.Eventually(t, reached, patience, tick)
}

func TestAuthorityOfPostgresIsReadAgain(t *testing.T) {
	files := newRotated(t)
	c, err := loadText(t, strings.Replace(minimal, "@db/shop",
		"@db,other/shop?sslmode=verify-full&sslrootcert="+files.cert, 1))
	require.NoError(t, err)
	pool, err := c.Pool()
	require.NoError(t, err)
	c.Postgres.Following(slog.New(slog.DiscardHandler))(pool)
	before := files.pool(t)
	files.put(t)
	after := files.pool(t)
	trusts := func(authority *x509.CertPool) bool {
		next := pool.ConnConfig.Copy()
		require.NoError(t, pool.BeforeConnect(t.Context(), next))
		require.Equal(t, "db", next.TLSConfig.ServerName)
		require.Len(t, next.Fallbacks, 1)
		require.Equal(t, "other", next.Fallbacks[0].TLSConfig.ServerName)
		return next.TLSConfig.RootCAs.Equal(authority) && next.Fallbacks[0].TLSConfig.RootCAs.Equal(authority)
	}
	require.True(t, trusts(before), "not more often than every two seconds")
	require.Eventually(t, func() bool { return trusts(after) }, patience, tick)
}

func TestFilesThatCantBeReadAgainKeepWhatThereWasAndAreSaidOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		made, fails := 0, errors.New("cert_file: with key_file: private key does not match")
		var err error
		r := &reread[int]{what: "kafka.tls", log: logTo(&out), make: func() (int, error) { made++; return made, err }}
		first, errFirst := r.read()
		require.NoError(t, errFirst)
		require.Equal(t, 1, first)
		require.Equal(t, 1, r.get(), "it was read just now")
		err = fails
		for range 5 {
			time.Sleep(lookInterval)
			require.Equal(t, 1, r.get())
		}
		require.Equal(t, 1, strings.Count(out.String(), "certificates can't be read again"), out.String())
		require.Contains(t, out.String(), "of=kafka.tls")
		require.Contains(t, out.String(), "private key does not match")
		err = nil
		time.Sleep(lookInterval)
		require.Equal(t, 7, r.get())
		require.Equal(t, 1, strings.Count(out.String(), "certificates are read again"), out.String())
		time.Sleep(lookInterval)
		require.Equal(t, 8, r.get())
		require.Equal(t, 2, strings.Count(out.String(), "\n"))
	})
}

func TestFaultOfTheConnectionStringsFilesDoesNotQuoteIt(t *testing.T) {
	_, err := Postgres{DSN: "postgres://app:" + password + "@db/shop?sslmode=verify-full&sslrootcert=/none"}.parsed()
	require.ErrorContains(t, err, "/none")
	require.NotContains(t, err.Error(), password)
}
