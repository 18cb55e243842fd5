package reach_test

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http/httptest"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/segmentio/kafka-go/sasl/plain"
	"github.com/segmentio/kafka-go/sasl/scram"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/firstseen/firstseen/consumer/consumertest"
	"github.com/firstseen/firstseen/consumer/internal/reach"
	"github.com/firstseen/firstseen/consumer/oauthbearer"
	"github.com/firstseen/firstseen/dedup/deduptest"
)

func TestMain(m *testing.M) { os.Exit(deduptest.Main(consumertest.Wrap(m))) }

// certificate is one for 127.0.0.1, and what trusts it.
func certificate(t *testing.T) (tls.Certificate, *tls.Config) {
	t.Helper()
	server := httptest.NewTLSServer(nil)
	t.Cleanup(server.Close)
	roots := x509.NewCertPool()
	roots.AddCert(server.Certificate())
	return server.TLS.Certificates[0], &tls.Config{RootCAs: roots}
}

// silent is the address of somebody who accepts and says nothing, or what he is to say.
func silent(t *testing.T, says string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Write([]byte(says))
		}
	}()
	return l.Addr().String()
}

func TestWhatKeepsAClientFromAClusterIsNamedWithWhatToSet(t *testing.T) {
	t.Parallel()
	cert, trust := certificate(t)
	over := kfake.TLS(&tls.Config{Certificates: []tls.Certificate{cert}})
	wantsOurs := kfake.TLS(&tls.Config{Certificates: []tls.Certificate{cert}, ClientAuth: tls.RequireAnyClientCert})
	users := []kfake.Opt{kfake.EnableSASL(), kfake.Superuser("SCRAM-SHA-256", "eve", "secret")}
	scrammed, err := scram.Mechanism(scram.SHA256, "eve", "another")
	require.NoError(t, err)
	broker := func(opts ...kfake.Opt) []string {
		return []string{consumertest.NewFake(t, append(opts, kfake.NumBrokers(1))...).Addr}
	}
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, closed.Close())

	for name, c := range map[string]struct {
		cluster reach.Cluster
		wants   []string
	}{
		"TLS": {reach.Cluster{Brokers: broker(over)}, []string{"speaks TLS", "kafka.tls.enabled is false: set it to true"}},
		"TLS with certificates of clients": {reach.Cluster{Brokers: broker(wantsOurs)},
			[]string{"speaks TLS", "kafka.tls.enabled is false"}},
		"no TLS": {reach.Cluster{Brokers: broker(), TLS: trust},
			[]string{"speaks Kafka without TLS", "kafka.tls.enabled is true: set it to false"}},
		"unknown authority": {reach.Cluster{Brokers: broker(over), TLS: &tls.Config{RootCAs: x509.NewCertPool()}},
			[]string{"no authority that is known here", "kafka.tls.ca_file"}},
		"another name": {reach.Cluster{Brokers: broker(over),
			TLS: &tls.Config{RootCAs: trust.RootCAs, ServerName: "kafka.other"}},
			[]string{"kafka.other", "kafka.tls.server_name"}},
		"certificate of ours": {reach.Cluster{Brokers: broker(wantsOurs), TLS: trust},
			[]string{"wants a certificate of the client", "kafka.tls.cert_file"}},
		"SASL": {reach.Cluster{Brokers: broker(users...)},
			[]string{"lets nobody in without SASL", "kafka.sasl.mechanism", "scram-sha-256"}},
		"SASL over TLS": {reach.Cluster{Brokers: broker(append(users, over)...), TLS: trust},
			[]string{"lets nobody in without SASL"}},
		"wrong password": {reach.Cluster{Brokers: broker(users...), SASL: scrammed},
			[]string{"refuses the login", "kafka.sasl.username and password"}},
		"HTTP": {reach.Cluster{Brokers: []string{silent(t, "HTTP/1.1 400 Bad Request\r\n")}},
			[]string{"is no Kafka: it speaks HTTP"}},
		"SSH":      {reach.Cluster{Brokers: []string{silent(t, "SSH-2.0-OpenSSH_9.9\r\n")}}, []string{"it speaks SSH"}},
		"Postgres": {reach.Cluster{Brokers: []string{postgres(t)}}, []string{"it seems to be a Postgres"}},
		"silence":  {reach.Cluster{Brokers: []string{silent(t, "")}}, []string{"accepts a connection and does not answer", "no Kafka"}},
		"silence for TLS": {reach.Cluster{Brokers: []string{silent(t, "")}, TLS: trust},
			[]string{"accepts a connection and does not answer", "no Kafka"}},
		"nobody":  {reach.Cluster{Brokers: []string{closed.Addr().String()}}, []string{"nobody listens at", "kafka.brokers"}},
		"no host": {reach.Cluster{Brokers: []string{"kafka.invalid:9092"}}, []string{"kafka.invalid", "kafka.brokers"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			began := time.Now()
			err := reach.Why(t.Context(), c.cluster)
			t.Log(time.Since(began), err)
			for _, want := range c.wants {
				require.ErrorContains(t, err, want)
			}
		})
	}
}

func postgres(t *testing.T) string {
	t.Helper()
	cfg := deduptest.OpenPool(t, deduptest.NewDatabase(t), nil).Config().ConnConfig
	return net.JoinHostPort(cfg.Host, strconv.Itoa(int(cfg.Port)))
}

func TestNothingIsFoundWhereAnAddressIsWell(t *testing.T) {
	t.Parallel()
	cert, trust := certificate(t)
	login := plain.Mechanism{Username: "eve", Password: "secret"}
	fake := consumertest.NewFake(t, kfake.EnableSASL(), kfake.Superuser("PLAIN", "eve", "secret"),
		kfake.TLS(&tls.Config{Certificates: []tls.Certificate{cert}}))
	require.NoError(t, reach.Why(t.Context(), reach.Cluster{Brokers: []string{"127.0.0.1:1", fake.Addr}, TLS: trust,
		SASL: login}))
	require.NoError(t, reach.Why(t.Context(), reach.Cluster{Brokers: []string{consumertest.NewFake(t).Addr}}))
}

// Amazon MSK says so to whose role lacks kafka-cluster:Connect.
func TestBrokersWordsAgainstATokenAreGiven(t *testing.T) {
	t.Parallel()
	fake := consumertest.NewFake(t, kfake.NumBrokers(1))
	fake.Cluster.ControlKey(int16(kmsg.SASLHandshake), func(r kmsg.Request) (kmsg.Response, error, bool) {
		fake.Cluster.KeepControl()
		return r.ResponseKind(), nil, true
	})
	fake.Cluster.ControlKey(int16(kmsg.SASLAuthenticate), func(r kmsg.Request) (kmsg.Response, error, bool) {
		fake.Cluster.KeepControl()
		answer := r.ResponseKind().(*kmsg.SASLAuthenticateResponse)
		answer.ErrorCode, answer.ErrorMessage = kerr.SaslAuthenticationFailed.Code, kmsg.StringPtr("Access denied")
		return answer, nil, true
	})
	shown, err := oauthbearer.New(oauthbearer.Config{Source: oauthbearer.Static("signed")})
	require.NoError(t, err)
	err = reach.Why(t.Context(), reach.Cluster{Brokers: []string{fake.Addr}, SASL: shown})
	require.ErrorContains(t, err, "refuses the token that kafka.sasl logs in by: it is refused; it is no JWT")
	require.ErrorContains(t, err, "(Access denied)")
}

func TestAdvertisedAddressThatCantBeReachedIsNamed(t *testing.T) {
	t.Parallel()
	fake := consumertest.NewFake(t, kfake.NumBrokers(1))
	fake.Cluster.ControlKey(int16(kmsg.Metadata), func(r kmsg.Request) (kmsg.Response, error, bool) {
		fake.Cluster.KeepControl()
		answer := r.ResponseKind().(*kmsg.MetadataResponse)
		answer.Brokers = []kmsg.MetadataResponseBroker{{NodeID: 7, Host: "kafka.invalid", Port: 9092}}
		return answer, nil, true
	})
	err := reach.Why(t.Context(), reach.Cluster{Brokers: []string{fake.Addr}})
	require.ErrorContains(t, err, "has broker 7 at kafka.invalid:9092")
	require.ErrorContains(t, err, "advertised.listeners")
}

func TestRealKafkaIsToldToo(t *testing.T) {
	t.Parallel()
	brokers := []string{consumertest.Kafka(t)}
	require.NoError(t, reach.Why(t.Context(), reach.Cluster{Brokers: brokers}))
	err := reach.Why(t.Context(), reach.Cluster{Brokers: brokers, SASL: plain.Mechanism{Username: "eve", Password: "x"}})
	require.ErrorContains(t, err, "asks for no SASL")
	err = reach.Why(t.Context(), reach.Cluster{Brokers: brokers, TLS: &tls.Config{}}) //nolint:gosec // it is refused
	require.ErrorContains(t, err, "speaks Kafka without TLS")
}
