package consumer_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	kafkasasl "github.com/segmentio/kafka-go/sasl"
	kafkaplain "github.com/segmentio/kafka-go/sasl/plain"
	kafkascram "github.com/segmentio/kafka-go/sasl/scram"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/firstseen/firstseen/consumer"
	"github.com/firstseen/firstseen/consumer/consumertest"
	"github.com/firstseen/firstseen/dedup/deduptest"
	"github.com/firstseen/firstseen/dedup/holds"
)

const user, password = "firstseen", "correct horse"

// certificate is one for 127.0.0.1, and who vouches for it.
func certificate() (tls.Certificate, *x509.CertPool) {
	server := httptest.NewTLSServer(nil)
	defer server.Close()
	roots := x509.NewCertPool()
	roots.AddCert(server.Certificate())
	return server.TLS.Certificates[0], roots
}

// mechanism is one way to authenticate, for the consumer and for the test's own client.
type mechanism struct {
	name     string
	consumer func(password string) kafkasasl.Mechanism
	client   sasl.Mechanism
}

func mechanisms(t *testing.T) []mechanism {
	scrammed := func(a kafkascram.Algorithm) func(string) kafkasasl.Mechanism {
		return func(password string) kafkasasl.Mechanism {
			m, err := kafkascram.Mechanism(a, user, password)
			require.NoError(t, err)
			return m
		}
	}
	auth := scram.Auth{User: user, Pass: password}
	return []mechanism{
		{"PLAIN", func(password string) kafkasasl.Mechanism {
			return kafkaplain.Mechanism{Username: user, Password: password}
		}, plain.Auth{User: user, Pass: password}.AsMechanism()},
		{"SCRAM-SHA-256", scrammed(kafkascram.SHA256), auth.AsSha256Mechanism()},
		{"SCRAM-SHA-512", scrammed(kafkascram.SHA512), auth.AsSha512Mechanism()},
	}
}

// newSecureStage is a stage on a fake broker that only a client of these options can use, with ten messages.
func newSecureStage(t *testing.T, broker []kfake.Opt, client ...kgo.Opt) *stage {
	t.Helper()
	db := deduptest.New(t)
	topic := consumertest.Name(t)
	fake := consumertest.NewFake(t, append(broker, kfake.SeedTopics(1, topic))...)
	s := &stage{t: t, addr: fake.Addr, partitions: 1, topic: topic, group: consumertest.Name(t),
		dsn: db.DSN, pool: db.Pool}
	s.exec(effectsTable)
	producer, err := kgo.NewClient(append(client, kgo.SeedBrokers(s.addr))...)
	require.NoError(t, err)
	t.Cleanup(producer.Close)
	require.NoError(t, producer.ProduceSync(t.Context(), s.records(10, 5)...).FirstErr())
	t.Cleanup(func() { // the group's connection reached the broker as well
		if !t.Failed() {
			committed, err := kadm.NewClient(producer).FetchOffsets(context.Background(), s.group)
			require.NoError(t, err)
			at, _ := committed.Lookup(s.topic, 0)
			require.EqualValues(t, 10, at.At)
		}
	})
	return s
}

func TestBrokerIsReachedOverTLS(t *testing.T) {
	t.Parallel()
	cert, roots := certificate()
	trust := &tls.Config{RootCAs: roots}
	s := newSecureStage(t,
		[]kfake.Opt{kfake.TLS(&tls.Config{Certificates: []tls.Certificate{cert}})}, kgo.DialTLSConfig(trust))

	book, stop := s.run(settings(func(c *consumer.Config) { c.TLS = &tls.Config{} })) // trusts nobody
	s.logged(book, slog.LevelError, "Kafka does not answer", "reason", "certificate")
	stop()
	s.start(s.consumer(settings(func(c *consumer.Config) { // what is asked for at each connection counts
		c.TLS, c.FreshTLS = &tls.Config{}, func() *tls.Config { return trust }
	})))
	s.effects(10)
}

func TestBrokerAuthenticatesTheConsumer(t *testing.T) {
	t.Parallel()
	cert, roots := certificate()
	trust := &tls.Config{RootCAs: roots}
	for _, m := range mechanisms(t) {
		for name, encrypted := range map[string]bool{"": false, " over TLS": true} {
			t.Run(m.name+name, func(t *testing.T) {
				broker := []kfake.Opt{kfake.EnableSASL(), kfake.Superuser(m.name, user, password)}
				client := []kgo.Opt{kgo.SASL(m.client)}
				if encrypted {
					broker = append(broker, kfake.TLS(&tls.Config{Certificates: []tls.Certificate{cert}}))
					client = append(client, kgo.DialTLSConfig(trust))
				}
				s := newSecureStage(t, broker, client...)
				with := func(password string) (*consumertest.Log, func()) {
					return s.run(settings(func(c *consumer.Config) {
						c.SASL = m.consumer(password)
						if encrypted {
							c.TLS = trust
						}
					}))
				}
				book, stop := with("wrong")
				s.logged(book, slog.LevelError, "Kafka does not answer")
				s.eventually(func() bool {
					return slices.ContainsFunc(s.latest.Status().Holds, func(h holds.Hold) bool {
						return strings.Contains(h.Reason, "EOF")
					})
				}, "kfake says no by hanging up")
				began := time.Now()
				stop()
				require.Less(t, time.Since(began), time.Minute)
				require.Zero(t, s.count(`select count(*) from effects`))

				_, stop = with(password)
				s.effects(10)
				stop()
			})
		}
	}
}

// Kafka says what is wrong, and the operator is to hear it.
func TestRefusedPasswordIsReported(t *testing.T) {
	t.Parallel()
	fake := consumertest.NewFake(t, kfake.EnableSASL(), kfake.Superuser("PLAIN", user, password))
	fake.Cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.SASLAuthenticate}, TopLevel: true,
		Err: kerr.SaslAuthenticationFailed, Count: -1})
	db := deduptest.New(t)
	s := &stage{t: t, addr: fake.Addr, topic: consumertest.Name(t), group: consumertest.Name(t),
		dsn: db.DSN, pool: db.Pool}
	book, _ := s.run(settings(func(c *consumer.Config) { c.SASL = mechanisms(t)[0].consumer("wrong") }))
	s.logged(book, slog.LevelError, "Kafka does not answer", "reason", "SASL Authentication failed")
	require.False(t, book.Has(slog.LevelError, "", "error", "wrong"))
}
