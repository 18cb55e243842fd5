package consumer_test

import (
	"errors"
	"log/slog"
	"strconv"
	"testing"
	"time"

	"github.com/segmentio/kafka-go/sasl"
	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/consumer"
	"github.com/firstseen/firstseen/consumer/consumertest"
	"github.com/firstseen/firstseen/consumer/consumertest/authority"
	"github.com/firstseen/firstseen/consumer/consumertest/kafkaserver"
	"github.com/firstseen/firstseen/consumer/internal/reach"
	"github.com/firstseen/firstseen/consumer/oauthbearer"
)

// session is how long a broker lets a client be logged in.
const session = 3 * time.Second

// startOAuthKafka starts a broker with one more listener that holds tokens against an authority's key.
func startOAuthKafka(t *testing.T, by *authority.Authority) *consumertest.Broker {
	t.Helper()
	const listener = "listener.name.secured."
	const oauth, module = listener + "oauthbearer.", "org.apache.kafka.common.security.oauthbearer."
	return consumertest.StartKafkaAs(t, kafkaserver.Config{Secured: "SASL_PLAINTEXT",
		Flags: []string{"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls=" + by.KeysURL()},
		Settings: map[string]string{
			listener + "sasl.enabled.mechanisms":          oauthbearer.Name,
			oauth + "sasl.jaas.config":                    module + "OAuthBearerLoginModule required ;",
			oauth + "sasl.server.callback.handler.class":  module + "OAuthBearerValidatorCallbackHandler",
			oauth + "sasl.oauthbearer.jwks.endpoint.url":  by.KeysURL(),
			oauth + "sasl.oauthbearer.expected.issuer":    authority.Issuer,
			oauth + "sasl.oauthbearer.expected.audience":  authority.Audience,
			oauth + "sasl.oauthbearer.clock.skew.seconds": "0",
			oauth + "connections.max.reauth.ms":           strconv.FormatInt(session.Milliseconds(), 10),
		}}).Brokers[0]
}

// showing logs in by what a source gives.
func showing(t *testing.T, source oauthbearer.Source) sasl.Mechanism {
	t.Helper()
	m, err := oauthbearer.New(oauthbearer.Config{Source: source})
	require.NoError(t, err)
	return m
}

func TestConsumerLogsInByTokensAndOutlivesItsSessions(t *testing.T) {
	t.Parallel()
	by := authority.New(t, 4*session)
	broker := startOAuthKafka(t, by)
	refuseTokens(t, by, broker)
	by.Asked.Store(0)
	s := newStage(t, broker.Addr, 1)
	s.fill(10)

	by.Stop()
	book, stop := s.run(settings(func(c *consumer.Config) {
		c.Brokers, c.SASL = []string{broker.Secured}, showing(t, asking(t, by, authority.Secret))
	}))
	s.logged(book, slog.LevelError, "Kafka does not answer",
		"reason", "the token endpoint "+by.TokenURL()+" does not answer")
	require.Zero(t, s.count(`select count(*) from effects`))
	by.Start()
	s.effects(10)
	s.logged(book, slog.LevelInfo, "goes on again", "hold", "kafka")
	require.Equal(t, 1, book.Times(slog.LevelError, "Kafka does not answer"), "an outage is said once")

	// at least three sessions, and until a token has been renewed
	for began, n := time.Now(), 10; time.Since(began) < 3*session || by.Asked.Load() < 2; {
		n += 10
		s.fill(10)
		s.effects(n)
	}
	require.Equal(t, 1, book.Times(slog.LevelInfo, "partitions assigned"), "a login that ends is no rebalance")
	require.Zero(t, book.Times(slog.LevelWarn, ""))
	s.caughtUp()
	stop()
	s.requireOnce(s.count(`select count(*) from effects`))
}

// refuseTokens has the broker refuse tokens of all kinds, and the authority a client.
func refuseTokens(t *testing.T, by *authority.Authority, broker *consumertest.Broker) {
	t.Helper()
	unreached := func(source oauthbearer.Source) error {
		c := consumer.Connection{Brokers: []string{broker.Secured}, SASL: showing(t, source)}
		why, _ := c.Unreached(t.Context())
		return why
	}
	good := by.Token(time.Now().Add(time.Hour), authority.Audience)
	require.NoError(t, unreached(oauthbearer.Static(good)))
	for want, token := range map[string]string{
		"and ended 1":    by.Token(time.Now().Add(-100*time.Second), authority.Audience),
		`["elsewhere"]`:  by.Token(time.Now().Add(time.Hour), "elsewhere"),
		"it is no JWT":   "opaque",
		"invalid_token;": good[:len(good)-8] + "AAAAAAAA",
	} {
		var err error
		require.Eventually(t, func() bool { // a broker may take its time for its first logins, and is given a second
			err = unreached(oauthbearer.Static(token))
			return err != nil && !errors.As(err, new(*reach.Silence))
		}, waitLimit, 10*time.Millisecond)
		require.ErrorContains(t, err, "refuses the token that kafka.sasl logs in by: ")
		require.ErrorContains(t, err, want)
		require.NotContains(t, err.Error(), token)
	}
	require.ErrorContains(t, unreached(asking(t, by, "wrong")), `refuses client "billing": invalid_client "who are you?"`)
}

// asking asks the authority for tokens.
func asking(t *testing.T, by *authority.Authority, secret string) oauthbearer.Source {
	t.Helper()
	source, err := oauthbearer.ClientCredentials{TokenURL: by.TokenURL(), ClientID: authority.ClientID,
		ClientSecret: secret}.Source()
	require.NoError(t, err)
	return source
}
