package config

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/consumer/consumertest/authority"
)

// shown is what a client sends first that logs in as the config says.
func shown(t *testing.T, sasl string, environ ...string) (name, message string) {
	t.Helper()
	c, err := loadText(t, withSASL(sasl), environ...)
	require.NoError(t, err)
	m, err := c.Kafka.SASL.config()
	require.NoError(t, err)
	_, first, err := m.Start(context.Background())
	require.NoError(t, err)
	return m.Name(), string(first)
}

func withSASL(sasl string) string {
	return `
postgres: {dsn: "postgres://app@db/shop"}
kafka: {brokers: [kafka-1:9092], sasl: {` + sasl + `}}
group: billing
topics: [{name: orders, handlers: [{name: book, function: book_order}]}]
`
}

func TestLoginByOAuthIsAsTheConfigSays(t *testing.T) {
	name, message := shown(t, `mechanism: oauthbearer, oauth: {token: "${TOKEN}", extensions: {logicalCluster: lkc-1}}`,
		"TOKEN=abc.def")
	require.Equal(t, "OAUTHBEARER", name)
	require.Equal(t, "n,,\x01auth=Bearer abc.def\x01logicalCluster=lkc-1\x01\x01", message)

	file := write(t, "token", "of-a-file\n")
	_, message = shown(t, "mechanism: oauthbearer, oauth: {token_file: "+file+"}")
	require.Equal(t, "n,,\x01auth=Bearer of-a-file\x01\x01", message)

	by := authority.New(t, time.Hour)
	secret := write(t, "secret", authority.Secret+"\n")
	_, message = shown(t, "mechanism: oauthbearer, oauth: {token_url: '"+by.TokenURL()+"', client_id: "+authority.ClientID+
		", client_secret_file: "+secret+"}")
	require.Contains(t, message, "n,,\x01auth=Bearer ey")
	require.EqualValues(t, 1, by.Asked.Load())
}

func TestTokenFileIsReadAgainWithoutARestart(t *testing.T) {
	file := write(t, "token", "first")
	c, err := loadText(t, withSASL("mechanism: oauthbearer, oauth: {token_file: "+file+"}"))
	require.NoError(t, err)
	m, err := c.Kafka.SASL.config()
	require.NoError(t, err)
	for _, token := range []string{"first", "second"} {
		require.NoError(t, os.WriteFile(file, []byte(token), 0o600))
		_, message, err := m.Start(t.Context())
		require.NoError(t, err)
		require.Contains(t, string(message), "Bearer "+token)
	}
}

func TestLoginToAmazonMSKIsSignedByAWSCredentials(t *testing.T) {
	t.Setenv("AWS_ACCESS_KEY_ID", "AKIAIOSFODNN7EXAMPLE")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	name, message := shown(t, "mechanism: aws-msk-iam, region: eu-west-1")
	require.Equal(t, "OAUTHBEARER", name)
	require.Contains(t, message, "n,,\x01auth=Bearer aHR0cHM6Ly9rYWZrYS5ldS13ZXN0LTEu") // https://kafka.eu-west-1.
}

func TestFaultsOfALogin(t *testing.T) {
	for sasl, want := range map[string][]string{
		"mechanism: oauthbearer": {"kafka.sasl.oauth: needs one of token, token_file and token_url, and has 0"},
		"mechanism: oauthbearer, oauth: {token: a, token_file: b}": {
			"kafka.sasl.oauth: needs one of token, token_file and token_url, and has 2"},
		"mechanism: oauthbearer, oauth: {token_file: /none}": {
			"kafka.sasl.oauth.token_file: open /none: no such file or directory"},
		"mechanism: oauthbearer, username: u, oauth: {token: a}": {
			"kafka.sasl.username: has no effect for oauthbearer; take it out, or set kafka.sasl.mechanism"},
		"mechanism: oauthbearer, oauth: {token: a, client_id: b, extensions: {auth: x}}": {
			"kafka.sasl.oauth.client_id: has no effect without kafka.sasl.oauth.token_url",
			`kafka.sasl.oauth.extensions: extension "auth": a name is of letters only, and not auth`},
		"mechanism: oauthbearer, oauth: {token_url: 'https://u:p@issuer/', ca_file: /none}": {
			"kafka.sasl.oauth.client_id: is required; the token endpoint knows the client by it",
			"kafka.sasl.oauth.client_secret: is required; give it as ${NAME} or by kafka.sasl.oauth.client_secret_file, " +
				"not in the file itself",
			"kafka.sasl.oauth.ca_file: open /none: no such file or directory",
			"kafka.sasl.oauth.token_url: the token URL has credentials in it"},
		"mechanism: aws-msk-iam": {"kafka.sasl.region: is required; write the region of the cluster, like eu-west-1"},
		"region: eu-west-1": {"kafka.sasl.mechanism: is required; write one of plain, scram-sha-256, scram-sha-512, " +
			"oauthbearer, aws-msk-iam, or take the other keys out"},
		"mechanism: kerberos": {`kafka.sasl.mechanism: "kerberos" is none of plain, scram-sha-256, scram-sha-512, ` +
			"oauthbearer, aws-msk-iam"},
	} {
		_, err := loadText(t, withSASL(sasl))
		require.Equal(t, want, faults(t, err), sasl)
	}
}

func TestWhatOfALoginCrossesTheNetwork(t *testing.T) {
	for mechanism, want := range map[string]string{"": "", "plain": "the password", "scram-sha-256": "",
		"oauthbearer": "the token", "aws-msk-iam": "the token"} {
		require.Equal(t, want, Kafka{SASL: SASL{Mechanism: mechanism}}.LoginInClear())
		require.Empty(t, Kafka{SASL: SASL{Mechanism: mechanism}, TLS: TLS{Enabled: true}}.LoginInClear())
	}
}
