package config

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/plain"

	"github.com/firstseen/firstseen/consumer"
	"github.com/firstseen/firstseen/consumer/consumertest"
	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/deduptest"
	"github.com/firstseen/firstseen/handlers"
)

func TestMain(m *testing.M) { os.Exit(deduptest.Main(m)) }

// Each way to secure the connection is used as a config names it, down to a committed offset.
func TestSecuredBrokersAreConsumedFrom(t *testing.T) {
	cert, key := selfSigned(t)
	pair, err := tls.LoadX509KeyPair(cert, key)
	require.NoError(t, err)
	server := kfake.TLS(&tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12})
	encrypted := []string{"FIRSTSEEN_KAFKA_TLS_ENABLED=true", "FIRSTSEEN_KAFKA_TLS_CA_FILE=" + cert}
	login := func(mechanism string) []string {
		return []string{"FIRSTSEEN_KAFKA_SASL_MECHANISM=" + mechanism, "FIRSTSEEN_KAFKA_SASL_USERNAME=billing",
			"FIRSTSEEN_KAFKA_SASL_PASSWORD_FILE=" + write(t, "password", password+"\n")}
	}
	user := func(mechanism string) []kfake.Opt {
		return []kfake.Opt{kfake.EnableSASL(), kfake.Superuser(mechanism, "billing", password),
			kfake.Superuser("PLAIN", "test", "test")}
	}
	for _, c := range []struct {
		name    string
		cluster []kfake.Opt
		environ []string
	}{
		{"tls", []kfake.Opt{server}, encrypted},
		{"plain", user("PLAIN"), login("plain")},
		{"scram-sha-256", user("SCRAM-SHA-256"), login("scram-sha-256")},
		{"scram-sha-512", user("SCRAM-SHA-512"), login("scram-sha-512")},
		{"tls and scram-sha-512", append(user("SCRAM-SHA-512"), server), append(encrypted, login("scram-sha-512")...)},
	} {
		t.Run(c.name, func(t *testing.T) {
			fake := consumertest.NewFake(t, append(c.cluster, kfake.SeedTopics(1, "orders"))...)
			cfg, err := loadText(t, minimal, append(c.environ, "FIRSTSEEN_KAFKA_BROKERS="+fake.Addr)...)
			require.NoError(t, err)
			client := testClient(t, cfg, fake.Addr)
			require.NoError(t, client.ProduceSync(t.Context(), &kgo.Record{Topic: "orders", Key: []byte("k"),
				Headers: []kgo.RecordHeader{{Key: "message-id", Value: []byte("1")}}}).FirstErr())
			consumeOne(t, cfg)
			offsets, err := kadm.NewClient(client).FetchOffsets(t.Context(), cfg.Group)
			require.NoError(t, err)
			at, _ := offsets.Lookup("orders", 0)
			require.EqualValues(t, 1, at.At)
		})
	}
}

// testClient logs in as the test's own user, where there are users.
func testClient(t *testing.T, cfg Config, addr string) *kgo.Client {
	t.Helper()
	opts := []kgo.Opt{kgo.SeedBrokers(addr)}
	secured, err := cfg.Consumer(slog.Default())
	require.NoError(t, err)
	if secured.TLS != nil {
		opts = append(opts, kgo.DialTLSConfig(secured.TLS))
	}
	if secured.SASL != nil {
		opts = append(opts, kgo.SASL(plain.Auth{User: "test", Pass: "test"}.AsMechanism()))
	}
	client, err := kgo.NewClient(opts...)
	require.NoError(t, err)
	t.Cleanup(client.Close)
	return client
}

// consumeOne runs the consumer until its handler has had a message, and ends it.
func consumeOne(t *testing.T, cfg Config) {
	t.Helper()
	store, err := dedup.Open(t.Context(), deduptest.New(t).Pool, cfg.Store())
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	handled := false
	var registry handlers.Registry
	require.NoError(t, registry.Register("book", handlers.BatchHandlerFunc(
		func(context.Context, pgx.Tx, []dedup.Message) error { handled = true; return nil }), "orders"))
	processor, err := handlers.NewProcessor(handlers.Config{Store: store,
		Handlers: &registry, Observe: func(s handlers.Stage) {
			if s == handlers.StageCommitted && handled {
				cancel()
			}
		}})
	require.NoError(t, err)
	settings, err := cfg.Consumer(slog.New(slog.NewTextHandler(io.Discard, nil)))
	require.NoError(t, err)
	c, err := consumer.New(settings, processor)
	require.NoError(t, err)
	require.NoError(t, c.Run(ctx))
	require.True(t, handled)
}

// selfSigned writes a certificate for 127.0.0.1, which signs itself, and its key.
func selfSigned(t *testing.T) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "kafka"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: []string{"kafka"},
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	require.NoError(t, err)
	keyDER, err := x509.MarshalECPrivateKey(private)
	require.NoError(t, err)
	dir := t.TempDir()
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	writePEM(t, cert, "CERTIFICATE", der)
	writePEM(t, key, "EC PRIVATE KEY", keyDER)
	return cert, key
}

func writePEM(t *testing.T, path, kind string, der []byte) {
	t.Helper()
	require.NoError(t, os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
}
