package config

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/dedup/identity"
	"github.com/firstseen/firstseen/handlers/ingress"
)

const posting = "ingress: {listen: '127.0.0.1:0', topics: [orders], tokens: {shop: a-token-for-the-shop}"

func TestFaultsOfIngress(t *testing.T) {
	cert, key := selfSigned(t)
	pair := ", cert_file: " + cert + ", key_file: " + key
	requireFaults(t, posting+"}\n")
	requireFaults(t, posting+", queued: orders, conflict: refuse, tenants: {shop: acme}"+pair+"}\n")
	requireFaults(t, "ingress: {listen: ':0', topics: orders, client_ca_file: "+cert+", certificates: ops"+pair+"}\n")
	requireFaults(t, "ingress: {listen: ':0', topics: orders}\n", "ingress.listen: would be closed to everybody")
	requireFaults(t, "ingress: {listen: ':0', topics: orders, client_ca_file: "+cert+pair+"}\n",
		"ingress.listen: would be closed to everybody")
	requireFaults(t, "ingress: {listen: ':0', tokens: {shop: a-token-for-the-shop}}\n", "ingress.listen: has no topic")
	requireFaults(t, strings.Replace(posting, "'127.0.0.1:0'", "here", 1)+"}\n", `ingress.listen: "here" is not an address`)
	requireFaults(t, "ingress: {certificates: ops}\n", "ingress.certificates: has no effect")
	requireFaults(t, "ingress: {client_ca_file: "+cert+"}\n", "ingress.client_ca_file: needs ingress.cert_file")
	requireFaults(t, "ingress: {topics: [refunds], queued: [orders]}\n", "ingress.topics[0]: is none of the topics",
		"ingress.queued[0]: is none of ingress.topics")
	requireFaults(t, "ingress: {conflict: maybe}\n", `ingress.conflict: "maybe" is none of answer, refuse`)
	requireFaults(t, "ingress: {tenants: {shop: acme}}\n", "ingress.tenants[shop]: no client has that name")
	requireFaults(t, "ingress: {tokens: {shop: short, other: one-and-the-same-1, third: one-and-the-same-1}}\n",
		"ingress.tokens[shop]: has 5 characters", "ingress.tokens[third]: is the token of other too")
	requireFaults(t, posting+", concurrency: 0}\n", "ingress.concurrency: must be above 0")
	requireFaults(t, posting+", token_files: {shop: x}}\n", "ingress.token_files[shop]: is given beside a token")
	requireFaults(t, "ingress: {token_files: {shop: /none}}\n", "ingress.token_files[shop]: open /none")
	requireFaults(t, "ingress: {listen: ':0', topics: orders, token_files: {shop: /none}}\n",
		"ingress.token_files[shop]: open /none")
	requireFaults(t, "ingress: {listen: ':0', topics: orders, token_files: 7}\n", "ingress.token_files: ")
	requireFaults(t, "ingress: {tokens: {shop: ''}}\n", "ingress.tokens[shop]: is empty")
	requireFaults(t, "ingress: {tokens: {shop: '${NONE}'}}\n", "ingress.tokens.shop: ${NONE} is not set")
	requireFaults(t, "ingress: {tokens: {"+strings.Repeat("n", 1001)+": a-token-for-the-shop}}\n", "ingress.tokens[")
	_, err := loadText(t, "postgres: {dsn: 'postgres://app@db/shop'}\nkafka: {brokers: [kafka-1:9092]}\ngroup: billing\n"+
		"topics: 7\n"+posting+"}\n")
	require.Len(t, faults(t, err), 1, "that of topics is told once: %s", err)
}

func TestTenantsAreThoseOfClientsAndCanBeKept(t *testing.T) {
	cert, key := selfSigned(t)
	requireFaults(t, "ingress: {client_ca_file: "+cert+", certificates: ops, tenants: {ops: acme}, cert_file: "+cert+
		", key_file: "+key+"}\n")
	for _, tenant := range []string{"' '", strings.Repeat("t", 256)} {
		requireFaults(t, posting+", tenants: {shop: "+tenant+"}}\n", "ingress.tenants[shop]: can't be kept")
	}
	requireFaults(t, posting+", tenants: {shop: "+strings.Repeat("t", 255)+"}}\n")
}

func TestTokensOfIngressComeFromFilesAndTheEnvironment(t *testing.T) {
	file := write(t, "token", "a-token-for-the-shop\n")
	c, err := loadText(t, minimal+"ingress: {token_files: {shop: "+file+"}, tokens: {till: '${TILL}'}}\n",
		"TILL=a-token-for-the-till", "FIRSTSEEN_INGRESS_TENANTS={till: acme}")
	require.NoError(t, err)
	require.Equal(t, map[string]Secret{"shop": "a-token-for-the-shop", "till": "a-token-for-the-till"}, c.Ingress.Tokens)
	require.Equal(t, Names{"till": "acme"}, c.Ingress.Tenants)
}

func TestIngressIsMadeAsTheConfigSays(t *testing.T) {
	text := strings.Replace(minimal, "name: orders,", "name: orders, tenant_header: tenant, fingerprint: json,", 1)
	c, err := loadText(t, text+posting+", queued: orders, conflict: refuse, body_limit: 2KiB, max_messages: 7, concurrency: 3, "+
		"body_timeout: 1s, work_timeout: 2s}\n")
	require.NoError(t, err)
	topics, err := c.topics()
	require.NoError(t, err)
	got, err := c.ForIngress()
	require.NoError(t, err)
	require.Equal(t, ingress.Config{MaxBytes: 2048, MaxMessages: 7, Concurrency: 3, ReadTime: time.Second,
		WorkTime: 2 * time.Second, MaxParked: 100_000, Topics: map[string]ingress.Topic{"orders": {Identity: topics[0].Identity, Queued: true,
			RefuseOther: true, TenantHeader: "tenant", Fingerprint: identity.FingerprintJSON}}}, got)
	require.Equal(t, c.Batch.Transactions+4+3, c.Postgres.MaxConnections)
}
