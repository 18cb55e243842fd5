// Package config is what an operator says: one YAML file and the environment enter, a [Config] that has been
// checked to the last key leaves, or an [*Error] that lists every fault at once.
//
// The comments of the structs' fields are the reference of the keys: example.yaml and schema.json are written from
// them by go generate. A key's comment says "Required." or "Required, unless KEY is given.", or "Default VALUE" as it
// is written in the file, or "Default: " and in words what holds without a value. A test holds VALUE against what
// takes effect.
//
// Every key can be given by an environment variable instead, which wins over the file: FIRSTSEEN_ and the key in
// capitals, with _ for each dot. postgres.dsn is FIRSTSEEN_POSTGRES_DSN, kafka.brokers is FIRSTSEEN_KAFKA_BROKERS
// (a list is separated by commas), topics is FIRSTSEEN_TOPICS (as YAML or JSON). An empty variable does not count.
//
// In the file's values ${NAME} stands for an environment variable, which must be set; $${ is a plain ${.
// Durations are Go's ("500ms", "2m"), and may begin with days ("90d", "1d12h"); sizes have a unit ("512KiB", "4MiB")
// or are bytes.
//
// A [Live] follows the file while the program runs.
//
// Files in reading order: config.go (the keys), values.go (their types), keys.go (keys by their paths), load.go,
// document.go (the file), environ.go, files.go (of secrets), decode.go, defaults.go, validate.go with postgres.go, shards.go,
// topics.go, handlers.go, http.go, ingress.go, outbox.go, sasl.go and tls.go, faults.go, suggest.go (what a misspelt name may
// mean), build.go (what the program is made with), live.go, reread.go (certificates), and for `config print` tree.go and effective.go.
package config

import (
	_ "embed"
	"time"
)

// Both are written from the comments of this file; a test holds them against those.
//
//go:generate env FIRSTSEEN_UPDATE_GOLDEN=1 go test -count=1 -run ReferenceIsWritten .
var (
	//go:embed example.yaml
	example string
	//go:embed schema.json
	schema string
)

// Example is a complete file: every key with its default, its unit and its comment.
func Example() string { return example }

// Schema is the JSON Schema (2020-12) of the file, for editors and checks.
func Schema() string { return schema }

// Config is all that `firstseen run` can be told. Only postgres.dsn, kafka.brokers where Kafka is used, group,
// and topics or outbox.destinations are required.
type Config struct {
	// Postgres is the database that remembers the message IDs and that handlers work in.
	Postgres Postgres `key:"postgres"`
	// Kafka is the cluster that messages come from.
	Kafka Kafka `key:"kafka"`
	// Registry is the schema registry that framed values are decoded by.
	Registry Registry `key:"registry"`
	// Group is the Kafka consumer group, and the name of the positions in Postgres. Of a program that has no topics, and
	// only sends, it is the name alone. Required.
	Group string `key:"group"`
	// Inbox names the memory of message IDs: programs that share an inbox share what they have seen. Default: the
	// group. Renaming it forgets everything.
	Inbox string `key:"inbox"`
	// Topics are the topics to read and what is done with their messages, at least one. Required, unless outbox is given.
	Topics []Topic `key:"topics"`
	// DeadLetterTopic is a topic of the same cluster that dead letters are published to as well. It must exist, and
	// must not be one of the topics. Default: none, they are in Postgres only.
	DeadLetterTopic string `key:"dead_letter_topic"`

	// StartAt says where a partition begins that was never read: earliest or latest. Default earliest.
	StartAt string `key:"start_at"`
	// OnLoss applies where messages were deleted before they were read: continue with what is left, or hold the
	// partition. Default continue.
	OnLoss string `key:"on_loss"`
	// OnReset applies where a topic was deleted and created again, or lost messages that were read: hold the
	// partition, or restart it from where it is another one; what was seen is a duplicate. Default hold.
	OnReset string `key:"on_reset"`
	// OnPostgresBehind applies where Postgres is behind the committed offset, as after a restore: start from its
	// position, or trust what is committed and skip the messages between. Default position.
	OnPostgresBehind string `key:"on_postgres_behind"`
	// MaxParked caps a partition's messages that are parked, for a later attempt or for a webhook; beyond it the
	// partition is held. Default 100000.
	MaxParked int `key:"max_parked"`

	Batch    Batch    `key:"batch"`
	Fetch    Fetch    `key:"fetch"`
	Timeouts Timeouts `key:"timeouts"`
	Log      Log      `key:"log"`

	HTTP      HTTP      `key:"http"`
	Ingress   Ingress   `key:"ingress"`
	Outbox    Outbox    `key:"outbox"`
	Health    Health    `key:"health"`
	Retention Retention `key:"retention"`
}

// Postgres says how to reach the database.
type Postgres struct {
	// DSN is a connection string, postgres://USER:PASSWORD@HOST:5432/DATABASE?sslmode=verify-full or libpq's
	// host=... form. In the first, special characters of the password are percent-encoded. Without a password in
	// it PGPASSWORD or ~/.pgpass serves. Required, unless dsn_file is given.
	DSN Secret `key:"dsn"`
	// DSNFile is a file that holds the connection string. Default: none.
	DSNFile string `key:"dsn_file"`
	// Shards are several servers that the group's partitions are spread over, in place of dsn: the numbers of the
	// partitions that are at home there, of all topics, by the shards' names, as in {a: 0-7, b: 8-}. All together have each
	// number once; the last range has no end, for partitions that are added. The same for all processes. Default: none.
	Shards Names `key:"shards"`
	// ShardDSNs are the shards' connection strings, by their names. Default: none.
	ShardDSNs map[string]Secret `key:"shard_dsns"`
	// ShardDSNFiles are files that hold them, by the shards' names; a process reads that of its own. Default: none.
	ShardDSNFiles Names `key:"shard_dsn_files"`
	// Shard is the name of the one that this process works on; each needs one process at least. It is said by --shard too.
	// Default: none, there are no shards.
	Shard string `key:"shard"`
	// Schema is the schema that `firstseen migrate up` made. Default firstseen.
	Schema string `key:"schema"`
	// MaxConnections caps the connections of this process. At least batch.transactions + 3, one for each webhook, with
	// ingress.listen ingress.concurrency, and with outbox.destinations 4 and two for each of their workers. Default:
	// one more than that.
	MaxConnections int `key:"max_connections"`
	// PreparedStatements is whether statements are prepared once for each connection. Say false where a pooler in
	// transaction mode stands before Postgres that can't keep them: statements are then described once and sent whole
	// each time. Default true.
	PreparedStatements bool `key:"prepared_statements"`
	// Capacity is the size of the disk that Postgres writes to, for the forecast of when it is full. Default: unknown,
	// there is no forecast.
	Capacity Size `key:"capacity"`
}

// Kafka says how to reach the cluster.
type Kafka struct {
	// Brokers are addresses to find the cluster by, host:port; at least one. Required where anything is read from
	// Kafka or sent to it.
	Brokers List `key:"brokers"`
	// ClientID names this program in the brokers' logs. Default firstseen.
	ClientID string `key:"client_id"`
	TLS      TLS    `key:"tls"`
	SASL     SASL   `key:"sasl"`
}

// TLS encrypts the connections to the brokers. The files are read again for new connections: replace them, without a
// restart.
type TLS struct {
	// Enabled switches TLS on. Default false.
	Enabled bool `key:"enabled"`
	// CAFile holds the certificates, in PEM, that a broker's must be signed by. Default: the system's.
	CAFile string `key:"ca_file"`
	// CertFile and KeyFile are the certificate and key, in PEM, that this program shows to brokers. Default: none.
	CertFile string `key:"cert_file"`
	KeyFile  string `key:"key_file"`
	// ServerName is the name that the brokers' certificates must have. Default: the host of each address.
	ServerName string `key:"server_name"`
	// InsecureSkipVerify takes any certificate, and with it anyone who answers. Default false.
	InsecureSkipVerify bool `key:"insecure_skip_verify"`
}

// SASL authenticates the connections to the brokers.
type SASL struct {
	// Mechanism is plain, scram-sha-256, scram-sha-512, oauthbearer, or aws-msk-iam for Amazon MSK. Default: none, there
	// is no authentication.
	Mechanism string `key:"mechanism"`
	// Username logs in; plain and scram need one. Default: none.
	Username string `key:"username"`
	// Password is the username's; plain and scram need one, here or by password_file. Default: none.
	Password Secret `key:"password"`
	// PasswordFile is a file that holds the password; a line break at its end does not count. Default: none.
	PasswordFile string `key:"password_file"`
	// OAuth is where the token comes from that oauthbearer shows: one of token, token_file and token_url.
	OAuth OAuth `key:"oauth"`
	// Region is the AWS region of the cluster, which aws-msk-iam needs. The credentials are found as AWS' own programs
	// find them: in the environment, in the shared files, by the role of the pod, the task or the machine. Default: none.
	Region string `key:"region"`
}

// OAuth says where tokens come from.
type OAuth struct {
	// Token is the token itself. Default: none.
	Token Secret `key:"token"`
	// TokenFile is a file that holds the token. It is read for each new connection, as what writes it renews it.
	// Default: none.
	TokenFile string `key:"token_file"`
	// TokenURL is the token endpoint of an authorization server, http or https, that is asked for tokens as the client
	// (OAuth 2.0 client credentials): at the first connection, and when four fifths of a token's time have passed.
	// Default: none.
	TokenURL string `key:"token_url"`
	// ClientID is what the server knows the client by; token_url needs it. Default: none.
	ClientID string `key:"client_id"`
	// ClientSecret is the client's; token_url needs it, here or by client_secret_file. Default: none.
	ClientSecret Secret `key:"client_secret"`
	// ClientSecretFile is a file that holds the client_secret. Default: none.
	ClientSecretFile string `key:"client_secret_file"`
	// Scopes are asked for. Default: the server's own.
	Scopes List `key:"scopes"`
	// Parameters are sent to the server beside, as audience or resource where it wants one. Default: none.
	Parameters Names `key:"parameters"`
	// CAFile holds the certificates, in PEM, that the server's must be signed by. Default: the system's.
	CAFile string `key:"ca_file"`
	// Extensions are sent to the broker beside the token, as logicalCluster and identityPoolId of Confluent Cloud.
	// Default: none.
	Extensions Names `key:"extensions"`
}

// Registry says how to reach a schema registry: Confluent's, Apicurio, or what speaks the API of one of them.
type Registry struct {
	// URL is the base of Confluent's API, http or https, without credentials; Apicurio has it below /apis/ccompat/v7,
	// and its own at /apis/registry/v2 and v3. Default: none, values are what they are.
	URL string `key:"url"`
	// Username logs in. Default: nobody does.
	Username string `key:"username"`
	// Password is the username's. Default: none.
	Password Secret `key:"password"`
	// PasswordFile is a file that holds the password; a line break at its end does not count. Default: none.
	PasswordFile string `key:"password_file"`
	// Token is a bearer token, instead of a username. Default: none.
	Token Secret `key:"token"`
	// TokenFile is a file that holds the token. Default: none.
	TokenFile string      `key:"token_file"`
	TLS       RegistryTLS `key:"tls"`
	// Timeout bounds each request. Default 5s.
	Timeout time.Duration `key:"timeout"`
}

// RegistryTLS is for a URL that begins with https.
type RegistryTLS struct {
	// CAFile holds the certificates, in PEM, that the registry's must be signed by. Default: the system's.
	CAFile string `key:"ca_file"`
	// CertFile and KeyFile are the certificate and key, in PEM, that this program shows to it. Default: none.
	CertFile string `key:"cert_file"`
	KeyFile  string `key:"key_file"`
	// ServerName is the name that its certificate must have. Default: the host of the URL.
	ServerName string `key:"server_name"`
	// InsecureSkipVerify takes any certificate, and with it anyone who answers. Default false.
	InsecureSkipVerify bool `key:"insecure_skip_verify"`
}

// Topic is one topic, or all that match a pattern, and their handlers.
type Topic struct {
	// Name is the topic's. Required, unless pattern is given.
	Name string `key:"name"`
	// Pattern is a regular expression (RE2), best in single quotes, for all topics whose whole name it matches and that no
	// entry names, nor an earlier pattern matches; also those that appear later, each from its first message. It
	// matches no name that begins with __, nor dead_letter_topic. Default: none.
	Pattern string `key:"pattern"`
	// ID lists where a message's ID is looked for, first that has one: header:NAME, cloudevents, json:/POINTER,
	// key, position, hash, or hash:/POINTER,/POINTER. One may be written without a list. Default
	// [header:message-id, header:id].
	ID Sources `key:"id"`
	// NoID lists texts that are no ID though they stand where it is looked for, in any case, with or without JSON's
	// quotes; a list without any leaves those that are blank. Default ["null", "(null)", undefined, none, nil,
	// "<nil>", nan, "n/a"].
	NoID Sources `key:"no_id"`
	// TenantHeader names the header that holds a message's tenant: an ID is unique within its tenant. Default:
	// none.
	TenantHeader string `key:"tenant_header"`
	// Fingerprint compares the content of messages with the same ID: bytes, or json where white space, the order of
	// keys and the like make no difference. A copy with another content is kept as a conflict. Default: none, it is a
	// duplicate.
	Fingerprint string `key:"fingerprint"`
	// Format is how values say which schema of the registry they were written by: confluent and apicurio take no others;
	// auto takes either, and all else as it is; raw takes everything as it is. Functions are given what was decoded as
	// JSON, and IDs by json:/POINTER are found in it; stored are the bytes that came. Default auto.
	Format string `key:"format"`
	// Handlers get each new message, in this order; at least one. Required.
	Handlers []Handler `key:"handlers"`
}

// Handler takes messages: a Postgres function, or a webhook. One that several topics have is written the same in each.
type Handler struct {
	// Name is part of what an ID is unique within: renaming a handler makes every message new to it. Required.
	Name string `key:"name"`
	// Function is the function, name or schema.name. Required, unless webhook is given.
	Function string `key:"function"`
	// Webhook is called once a message or, after a crash or a lost answer, more often.
	Webhook Webhook `key:"webhook"`
	// Retry is for messages that it fails on.
	Retry Retry `key:"retry"`
	// Ordering says what waits for such a message: the later messages of its key, of its partition, or
	// none. Default key.
	Ordering string `key:"ordering"`
}

// Webhook posts each message's value to a URL.
type Webhook struct {
	// URL is the receiver's, http or https, without credentials. Required.
	URL string `key:"url"`
	// Secret signs the calls by Standard Webhooks: whsec_ and the base64 of 24 to 64 bytes. Default: they are not
	// signed.
	Secret Secret `key:"secret"`
	// SecretFile is a file that holds the secret; or several, one a line. Default: none.
	SecretFile string `key:"secret_file"`
	// Secrets are several, while one replaces the other: each call is signed with all of them. Default: none.
	Secrets []Secret `key:"secrets"`
	// Headers are sent with each call; their values are kept secret. Default: none.
	Headers map[string]Secret `key:"headers"`
	// Timeout bounds a call. Default 10s.
	Timeout time.Duration `key:"timeout"`
	// Concurrency caps the calls that are made at once, in this process. Default 8.
	Concurrency int `key:"concurrency"`
	// AllowPrivate lets it call loopback and private addresses. Default false.
	AllowPrivate bool `key:"allow_private"`
	// Proxy is the URL of an HTTP proxy to call through; it is not taken from HTTP_PROXY and the like. Default: none.
	Proxy Secret `key:"proxy"`
}

// Retry says how often, and how soon, a message is tried again.
type Retry struct {
	// Base is the first pause at most; it doubles with each attempt. Default 1s.
	Base time.Duration `key:"base"`
	// Cap is the longest pause. Default 5m.
	Cap time.Duration `key:"cap"`
	// MaxAttempts caps a message's attempts; after so many it goes to the dead letters. Default 10.
	MaxAttempts int `key:"max_attempts"`
	// MaxAge sends a message to the dead letters that still fails so long after its first failure. Default: no
	// limit.
	MaxAge time.Duration `key:"max_age"`
}

// Batch is the size of what one transaction takes in.
type Batch struct {
	// Messages caps a batch's messages. Default 5000.
	Messages int `key:"messages"`
	// Bytes caps a batch's keys, values and headers; a larger message is a batch of its own. Default 4MiB.
	Bytes Size `key:"bytes"`
	// Transactions caps the batches that are in a transaction at once. Default 4.
	Transactions int `key:"transactions"`
}

// Fetch bounds the reading ahead.
type Fetch struct {
	// Buffer bounds the messages that are in memory: read ahead, decompressed, being processed, loaded of the parked
	// ones. The process takes no more than that, the largest message and 64MiB. Default 64MiB.
	Buffer Size `key:"buffer"`
	// Wait bounds a broker's wait for new messages before it answers. Default 500ms.
	Wait time.Duration `key:"wait"`
	// Bytes caps one answer, compressed. Default 8MiB.
	Bytes Size `key:"bytes"`
}

// Timeouts are the limits and intervals.
type Timeouts struct {
	// Session bounds the group's wait for a heartbeat: a member that is silent for longer is out. Default 45s.
	Session time.Duration `key:"session"`
	// Rebalance bounds the group's wait for its members in a rebalance. Default 1m.
	Rebalance time.Duration `key:"rebalance"`
	// Heartbeat is the time between two signs of life. Default 2s.
	Heartbeat time.Duration `key:"heartbeat"`
	// JoinBackoff is the pause before joining the group again after a failure. Default 1s.
	JoinBackoff time.Duration `key:"join_backoff"`
	// Request bounds each request to a broker. Default 10s.
	Request time.Duration `key:"request"`
	// Drain bounds the time of open batches when partitions are given up, or on SIGTERM. Default 15s, or less where
	// session or rebalance leave less.
	Drain time.Duration `key:"drain"`
	// Postgres bounds the silence of Postgres, or of the network before it: a connection whose packets are not
	// acknowledged ends then, and so does each round trip that is no handler's. At least 1s. Default 30s.
	Postgres time.Duration `key:"postgres"`
	// Handler bounds one call of a handler, for a whole batch. Default 5m.
	Handler time.Duration `key:"handler"`
	// CommitInterval is the time between two commits of offsets to Kafka. Default 1s.
	CommitInterval time.Duration `key:"commit_interval"`
	// MetadataInterval is the time between two looks for new partitions and moved leaders. Default 5s.
	MetadataInterval time.Duration `key:"metadata_interval"`
	// PatternInterval is the time between two looks at all topics of the cluster, for those that a pattern matches. Default
	// 30s.
	PatternInterval time.Duration `key:"pattern_interval"`
}

// Log writes to standard error.
type Log struct {
	// Level is debug, info, warn or error. Default info.
	Level string `key:"level"`
	// Format is text or json. Default text.
	Format string `key:"format"`
}

// HTTP is the server for probes (/livez, /readyz, /healthz), metrics (/metrics) and the admin API (/api/v1). Probes
// and metrics are open to all who reach it. The API is for clients on the same host, unless a token or a client's
// certificate is asked for: then for whoever shows one.
type HTTP struct {
	// Listen is the address to listen at, host:port; without a host that is every address of this one. Default: none,
	// there is no server.
	Listen string `key:"listen"`
	// CertFile and KeyFile, in PEM, have it speak TLS. They are read again for new connections. Default: none, it does
	// not.
	CertFile string `key:"cert_file"`
	KeyFile  string `key:"key_file"`
	// ClientCAFile holds the certificates, in PEM, that those of the API's clients must be signed by. It needs
	// cert_file. Default: none, no certificates are asked for.
	ClientCAFile string `key:"client_ca_file"`
	// Writers are the common names of the certificates that may change something; all others may read.
	// Default: none.
	Writers List `key:"writers"`
	// ReadToken lets a client read that sends it as a bearer token. At least 16 characters. Default: none.
	ReadToken Secret `key:"read_token"`
	// ReadTokenFile is a file that holds the token. Default: none.
	ReadTokenFile string `key:"read_token_file"`
	// WriteToken lets a client read and change. At least 16 characters, and not the read_token. Default: none.
	WriteToken Secret `key:"write_token"`
	// WriteTokenFile is a file that holds the token. Default: none.
	WriteTokenFile string `key:"write_token_file"`
	// Rate caps the API's requests a second, all clients together, and by itself the visits of the page. Default 20.
	Rate int `key:"rate"`
	// Page has the operator's page at /ui/, for a person with a browser: who may use the API may use it, and nobody else.
	// Default false.
	Page bool `key:"page"`
	// Mask hides parts of messages from who looks at them by the API and the page. A writer may have a message shown, and
	// says why: that is in the audit.
	Mask Mask `key:"mask"`
}

// Mask hides parts of messages. Where something of a topic's messages is hidden, so are their sizes, and the errors of
// handlers, which may quote it. IDs and tenants are shown.
type Mask struct {
	// Values are places in values that are JSON: pointers in which * is any name or index, such as /customer/iban, or / for
	// the whole value; with a topic's name and a colon before it, of that topic only: patients:/name. A value that is no
	// JSON, or is not decoded to it, is hidden as a whole. Default: none.
	Values List `key:"values"`
	// Headers are names, in any case; * is all. Default: none.
	Headers List `key:"headers"`
	// Keys are the topics whose keys are hidden; * is all. Default: none.
	Keys List `key:"keys"`
	// ShowErrors has errors shown all the same. Default false.
	ShowErrors bool `key:"show_errors"`
}

// Ingress is the server that takes messages in by HTTP, POST /v1/topics/TOPIC/messages: each is handled as if it had
// come from Kafka, and takes effect once for its Idempotency-Key. It is closed unless listen, topics, and tokens or
// certificates are given.
type Ingress struct {
	// Listen is the address to listen at, host:port; without a host that is every address of this one. Default: none,
	// there is no server.
	Listen string `key:"listen"`
	// CertFile and KeyFile, in PEM, have it speak TLS. They are read again for new connections. Default: none, it does
	// not.
	CertFile string `key:"cert_file"`
	KeyFile  string `key:"key_file"`
	// ClientCAFile holds the certificates, in PEM, that those of clients must be signed by. It needs cert_file.
	// Default: none, no certificates are asked for.
	ClientCAFile string `key:"client_ca_file"`
	// Certificates are the common names of the certificates whose holders may post. Default: none.
	Certificates List `key:"certificates"`
	// Tokens let clients post that send one as a bearer token, by the clients' names, which are written down for each
	// message. At least 16 characters each. Default: none.
	Tokens map[string]Secret `key:"tokens"`
	// TokenFiles are files that hold tokens, by the clients' names. Default: none.
	TokenFiles Names `key:"token_files"`
	// Tenants are those that clients are of, by the clients' names. A topic with a tenant_header takes messages of such
	// clients only, and one without of none of them. Default: none.
	Tenants Names `key:"tenants"`
	// Topics are those of the topics that messages may be posted to. Default: none.
	Topics List `key:"topics"`
	// Queued are those of them whose messages are queued and not handled before the answer, which is 202. Default:
	// none.
	Queued List `key:"queued"`
	// Conflict applies to a key that was sent before with something else: answer it with the message that is there, or
	// refuse it, 409. Default answer.
	Conflict string `key:"conflict"`
	// BodyLimit bounds the body of a request. Default 1MiB.
	BodyLimit Size `key:"body_limit"`
	// MaxMessages bounds the messages that are posted at once, as an array. Default 100.
	MaxMessages int `key:"max_messages"`
	// Concurrency caps the requests that are worked on at once; others are told to come again, 503. Default 16.
	Concurrency int `key:"concurrency"`
	// BodyTimeout bounds the arrival of a request's body. Default 10s.
	BodyTimeout time.Duration `key:"body_timeout"`
	// WorkTimeout bounds a request's wait for its handlers; after that the message is queued, 202. Default 20s.
	WorkTimeout time.Duration `key:"work_timeout"`
}

// Outbox sends what transactions have added to the outbox of the schema, by package handlers/outbox or the SQL function
// send: at least once, in the order of each key. This program sends none while no destinations are given.
type Outbox struct {
	// Destinations are where messages are sent, by their topics. A message of a topic that none of them has stays in
	// the outbox. Default: none.
	Destinations []Destination `key:"destinations"`
	// Batch caps the messages that are sent together. Default 1000.
	Batch int `key:"batch"`
	// Poll is how often the outbox is looked at while nothing comes. While something does it is every 10ms. Default 5s.
	Poll time.Duration `key:"poll"`
	// Listen has programs that add with Writer.Notify wake this one. It is NOTIFY, for which Postgres has transactions
	// commit one after the other. Default false.
	Listen bool `key:"listen"`
	// SendTimeout bounds the sending of a batch. After twice that others may send what a process was at that is stopped
	// or cut off. Default 1m.
	SendTimeout time.Duration `key:"send_timeout"`
}

// Destination is where messages of topics are sent: to Kafka's topics of these names, or to a webhook.
type Destination struct {
	// Name is what operators know it by, and part of what a message that was sent is known by. No other has it.
	// Required.
	Name string `key:"name"`
	// Topics are those whose messages it sends. No other destination has them. Required.
	Topics List `key:"topics"`
	// Webhook is called for each message. Default: none, messages are sent to Kafka.
	Webhook Webhook `key:"webhook"`
	// Log has the program's log say of each message that it came, and nothing be sent: to try things. Default false.
	Log bool `key:"log"`
	// Workers is how many batches are sent at once, in this process. Default 2.
	Workers int `key:"workers"`
	// MaxParked is how many messages of a sixteenth of a topic's keys may be parked, for a later attempt or for the
	// webhook, before their others stay in the outbox. Default 1000.
	MaxParked int       `key:"max_parked"`
	Retry     SendRetry `key:"retry"`
}

// SendRetry is for messages that could not be sent. An outage of Kafka spends no attempt.
type SendRetry struct {
	// Base is the first pause at most; it doubles with each attempt. Default 10s.
	Base time.Duration `key:"base"`
	// Cap is the longest pause. Default 5m.
	Cap time.Duration `key:"cap"`
	// MaxAttempts is how many attempts a message has before it goes to the dead letters. Default 5.
	MaxAttempts int `key:"max_attempts"`
	// MaxAge sends a message to the dead letters that still fails so long after its first failure. Default: no limit.
	MaxAge time.Duration `key:"max_age"`
}

// Health says from where on /healthz calls the program degraded or unhealthy. What is sent out of the outbox is held
// against the same limits, by itself.
type Health struct {
	// Window is the time that the failure ratio and the throughput are taken over. Default 5m.
	Window    time.Duration `key:"window"`
	Degraded  Degraded      `key:"degraded"`
	Unhealthy Unhealthy     `key:"unhealthy"`
}

// Degraded are the limits beyond which somebody should look.
type Degraded struct {
	// Backlog counts the messages that wait, in Kafka or parked. Default 100000.
	Backlog int `key:"backlog"`
	// OldestAge is the time that the oldest message has waited. Default 5m.
	OldestAge time.Duration `key:"oldest_age"`
	// FailureRatio is the share of failed attempts among all, 0 to 1; with 0 one failure is beyond it. Default 0.05.
	FailureRatio float64 `key:"failure_ratio"`
	// DeadLetters counts the messages that went to the dead letters of the inbox within an hour. Default 10.
	DeadLetters int `key:"dead_letters"`
}

// Unhealthy are the limits beyond which somebody must act. By default there are none but the failure ratio's.
type Unhealthy struct {
	// Backlog is as for degraded, and not less. Default: no limit.
	Backlog int `key:"backlog"`
	// OldestAge is as for degraded, and not less. Default: no limit.
	OldestAge time.Duration `key:"oldest_age"`
	// FailureRatio is as for degraded, and not less; none is beyond 1. Default 0.5.
	FailureRatio float64 `key:"failure_ratio"`
	// DeadLetters is as for degraded, and not less. Default: no limit.
	DeadLetters int `key:"dead_letters"`
}

// Retention says how long what is done is kept. Without it everything is, for ever.
type Retention struct {
	// IDs is the time that a message's ID is kept after it was first seen: after that a copy takes effect again. It
	// must be longer than the topics can bring messages again. Default: for ever.
	IDs time.Duration `key:"ids"`
	// Handlers are ages for the IDs of single handlers, by name, instead of ids; 0 is for ever. Default: none.
	Handlers Ages `key:"handlers"`
	// Inbox is the time that processed messages are kept, in whole days, and with them those of the outbox that were sent.
	// Default: for ever.
	Inbox time.Duration `key:"inbox"`
	// OutboxKeys is the time that a message's idempotency key is kept, and its ID, after it was sent out of the outbox:
	// after that one of the same key is sent again. Default: for ever.
	OutboxKeys time.Duration `key:"outbox_keys"`
	// Interval is the time between two runs. Default 1h.
	Interval time.Duration `key:"interval"`
	// Force deletes IDs also where the topics may bring their messages again. Default false.
	Force bool `key:"force"`
}
