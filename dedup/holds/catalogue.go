package holds

import (
	"log/slog"
	"slices"

	"github.com/firstseen/firstseen/dedup/failure"
)

// Why something waits: the code of a [Hold], as it is in the log's attribute "hold", in status, health, metrics and
// doctor.
const (
	Postgres    = "postgres"
	ReadOnly    = "read_only"
	Locked      = "position_locked"
	Kafka       = "kafka"
	Broker      = "broker"
	Throttled   = "throttled"
	Handler     = "handler"
	MaxParked   = "max_parked"
	Undecodable = "undecodable"
	Memory      = "memory"
	OpenTx      = "open_transaction"
	TopicReset  = "topic_reset"
	CutOff      = "cut_off"
	Lost        = "messages_lost"
	Missing     = "topic_missing"
	Denied      = "topic_denied"
	Unreadable  = "topic_unreadable"
	Away        = "receiver_away"
	Deployment  = "deployment"
	Pool        = "pool"
	Suspected   = "suspected"
	Alone       = "alone"
	DeadTopic   = "dead_topic"
	NoSender    = "no_sender"
	Paused      = "paused"
	Schemas     = "schema_registry"
	NotHome     = "not_home"
)

// Entry explains a code, whatever waits because of it.
type Entry struct {
	Code string
	// Means says what has happened, and Do what an operator is to do about it.
	Means, Do string
	// Decision says that it ends only by a person's decision: the subject is not tried again by itself.
	Decision bool
	// Level is that of its lines in the log; the zero value stands for an error.
	Level slog.Level
}

// catalogue has every code. The page OPERATIONS has the same ones.
var catalogue = []Entry{
	{Code: Postgres, Means: "Postgres does not answer, or a transaction failed",
		Do: "bring Postgres back, or see the reason; " +
			"what failed is tried again until it goes, and no attempt is spent"},
	{Code: ReadOnly, Means: "Postgres takes no writes: it is a standby, or default_transaction_read_only is on",
		Do: "point the address at the primary; " +
			"or see who has pulled that brake and why (a full disk?), and reset it: it goes on by itself"},
	{Code: Locked, Means: "somebody's transaction has locked the partition's position",
		Do: "end the session that the reason names, select pg_terminate_backend(PID); " +
			"it is tried again until that is gone"},
	{Code: NotHome, Means: "the partition is at home in another Postgres server, or this is not the shard it is taken for",
		Do: "see the reason, and give all processes the same postgres.shards; nothing was begun or handled here"},
	{Code: Kafka, Means: "Kafka does not answer what has to be known",
		Do: "bring the brokers back, or see the reason; they are asked again until they answer"},
	{Code: Broker, Means: "fetches from a broker fail", Level: slog.LevelWarn,
		Do: "nothing, where a leader is moving; else see the reason and whether the broker is up"},
	{Code: Handler, Means: "a handler ran out of time with a whole batch",
		Do: "see what the handler waits for; smaller batches are tried until one goes through"},
	{Code: MaxParked, Means: "too many of the partition's messages are parked",
		Do: "see why their handler fails, or resume it; the partition goes on by itself"},
	{Code: Undecodable, Means: "the next records can't be decoded",
		Do: "repair or delete the batch on the broker, or raise fetch.buffer where it is too small for it; " +
			"they are fetched again"},
	{Code: Memory, Means: "nothing can be fetched: all memory that fetch.buffer allows is in use",
		Level: slog.LevelWarn,
		Do:    "see why handlers take long, or raise fetch.buffer; the partition goes on when some of it is given back"},
	{Code: OpenTx, Means: "a producer's open transaction holds the partition back", Level: slog.LevelWarn,
		Do: "see whether the producer lives; else end its transaction with kafka-transactions.sh"},
	{Code: TopicReset, Means: "the topic was deleted and created again", Decision: true,
		Do: "to read the new topic from its first message set on_reset: restart and restart; " +
			"what was seen is a duplicate"},
	{Code: CutOff, Means: "the partition's log is not the one that was read: Kafka lost messages", Decision: true,
		Do: "to read it again from where the logs part set on_reset: restart and restart; " +
			"what was seen is a duplicate"},
	{Code: Lost, Means: "messages were deleted before they were read", Decision: true,
		Do: "to go on with what is left set on_loss: continue and restart"},
	{Code: Missing, Means: "the topic does not exist",
		Do: "create it, or take it out of the config; the other topics go on"},
	{Code: Denied, Means: "the brokers deny the topic to this client",
		Do: "allow Read and Describe on the topic by an ACL; the other topics go on"},
	{Code: Unreadable, Means: "the topic can't be read now",
		Do: "see the reason; the other topics go on"},
	{Code: Away, Means: "calls fail as if the receiver was away",
		Do: "bring the receiver back; one call at a time finds out when it is, and no attempt is spent"},
	{Code: Deployment, Means: "a handler meets what is not there in Postgres, or what it has no right to",
		Do: "grant what the reason names to the consumer's login, put it back, or deploy the handler that goes " +
			"with the database; one message at a time finds out when it is well, and no attempt is spent"},
	{Code: Pool, Means: "a handler waited in vain for another connection of the consumer's own pool",
		Do: "make the pool larger (pool_max_conns), and say in Registration.Connections how many a call takes; " +
			"no attempt is spent"},
	{Code: Suspected, Means: "a message fails by itself as in an outage, and nothing proves that it is its doing",
		Level: slog.LevelWarn,
		Do: "see the reason, and mend what it names; the message is tried every few seconds, and the attempts count " +
			"once others of its handler get through, or after an hour without any; its key waits, all else goes on"},
	{Code: Alone, Means: "a message is to be tried with nobody else at work in the process", Level: slog.LevelWarn,
		Do: "nothing, unless it lasts: what is at work ends within its handler's time limit, " +
			"and nothing new is begun before the message was tried; see then which handler hangs"},
	{Code: DeadTopic, Means: "dead letters can't be published to their topic",
		Do: "create the topic, or allow Write on it; dead letters wait in Postgres, and all else goes on"},
	{Code: NoSender, Means: "messages of the outbox lie there that no destination of this process sends",
		Level: slog.LevelWarn,
		Do: "add the topic to a destination, or run the relay that has it; or delete them from the table outbox; " +
			"all else goes on"},
	{Code: Schemas, Means: "the schema registry does not answer what the next message is to be read by",
		Do: "bring the registry back, or see the reason: its address, its login; it is asked again until it answers, " +
			"and nothing is skipped"},
	{Code: Paused, Means: "an operator has paused it: its messages stay in the outbox", Level: slog.LevelInfo,
		Do: "resume it when what it was paused for is done"},
	{Code: Throttled, Means: "a broker answers no fetch, to slow this client down", Level: slog.LevelWarn,
		Do: "raise the quota consumer_byte_rate of its user or client ID (kafka-configs.sh): " +
			"it is too small for one fetch"},
}

// Catalogue lists all codes.
func Catalogue() []Entry { return slices.Clone(catalogue) }

// OfPostgres is the code of an error that comes from Postgres, or from the way to it.
func OfPostgres(err error) string {
	if failure.Of(err) == failure.ReadOnly {
		return ReadOnly
	}
	return Postgres
}

// EntryOf returns a code's entry in the catalogue. An unknown code stands as its own meaning.
func EntryOf(code string) Entry {
	if i := slices.IndexFunc(catalogue, func(e Entry) bool { return e.Code == code }); i >= 0 {
		return catalogue[i]
	}
	return Entry{Code: code, Means: code}
}
