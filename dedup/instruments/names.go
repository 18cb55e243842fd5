package instruments

import (
	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
)

// The attributes of metrics and spans.
const (
	System    = semconv.MessagingSystemKey
	Operation = semconv.MessagingOperationNameKey
	Type      = semconv.MessagingOperationTypeKey
	Group     = semconv.MessagingConsumerGroupNameKey
	Topic     = semconv.MessagingDestinationNameKey
	Partition = semconv.MessagingDestinationPartitionIDKey
	Offset    = semconv.MessagingKafkaOffsetKey
	Messages  = semconv.MessagingBatchMessageCountKey
	Broker    = attribute.Key("messaging.kafka.broker.id") // no name in the conventions
	ErrorType = semconv.ErrorTypeKey
	Route     = semconv.HTTPRouteKey
	Status    = semconv.HTTPResponseStatusCodeKey

	Handler = attribute.Key("firstseen.handler")
	Outcome = attribute.Key("firstseen.outcome")
	Reason  = attribute.Key("firstseen.reason")
	State   = attribute.Key("firstseen.state")
	Subject = attribute.Key("firstseen.subject")
	Table   = attribute.Key("firstseen.table")
	Figure  = attribute.Key("firstseen.figure")
	Failed  = attribute.Key("firstseen.failed") // of a span: messages that the handler failed on
)

// Those of a build have the names that Prometheus' own programs give them.
const (
	Version   = attribute.Key("version")
	Revision  = attribute.Key("revision")
	GoVersion = attribute.Key("goversion")
)

// Shard is the one of several Postgres servers that the process works on. Where there is one server it is not there.
const Shard = attribute.Key("firstseen.shard")

// Kafka is the attribute of all that is about it.
var Kafka = semconv.MessagingSystemKafka

// The parts of the catalogue.
const (
	ofProcess  = "The process"
	fromKafka  = "From Kafka to a batch"
	ofMessages = "What becomes of messages"
	overHTTP   = "HTTP requests with a key"
	inPostgres = "In Postgres, and lately"
	ofOutbox   = "Out of the outbox"
)

// seconds are the bounds of times: those that the conventions advise, and some for what takes long.
var seconds = []float64{0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 30, 60, 300}

// The process. Package consumer/service makes this.
var BuildInfo = define(ofProcess, Instrument{
	Name: "firstseen.build.info", Kind: Gauge, Unit: "{build}", Attributes: keys(Version, Revision, GoVersion, Shard),
	About: "1; its labels say which build this is and, where there are several, which shard it works on. There from " +
		"before Postgres or Kafka is reached.",
})

// Kafka's side. Package consumer makes these.
var (
	Consumed = define(fromKafka, Instrument{
		Name: "messaging.client.consumed.messages", Kind: Counter, Unit: "{message}",
		Attributes: keys(System, Operation, Group, Topic),
		About: "Messages that were taken from a fetch to be processed. What is not committed " +
			"when partitions move is received again.",
	})
	ClientDuration = define(fromKafka, Instrument{
		Name: "messaging.client.operation.duration", Kind: Histogram, Unit: "s", Buckets: seconds,
		Attributes: keys(System, Operation, Type, Group, ErrorType),
		About: "How long a request to a broker took: poll is a fetch, " +
			"and includes the broker's wait for messages.",
	})
	FetchBytes = define(fromKafka, Instrument{
		Name: "firstseen.fetch.size", Kind: Counter, Unit: "By", Attributes: keys(Group),
		About: "Records that were fetched, decompressed, as they count for fetch.buffer.",
	})
	ProcessDuration = define(fromKafka, Instrument{
		Name: "messaging.process.duration", Kind: Histogram, Unit: "s", Buckets: seconds,
		Attributes: keys(System, Operation, Group, Topic, ErrorType),
		About: "How long a batch took, its transaction with all handlers in " +
			"it. Those that failed have an error.type.",
	})
	BatchSize = define(fromKafka, Instrument{
		Name: "firstseen.batch.size", Kind: Histogram, Unit: "{message}", Attributes: keys(Group, Topic),
		Buckets: []float64{0, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000},
		About:   "Messages in a batch. 0: it only moved the position.",
	})
	BatchFailures = define(fromKafka, Instrument{
		Name: "firstseen.batch.failures", Kind: Counter, Unit: "{batch}", Attributes: keys(Group, Topic, Reason),
		About: "Batches that had to be taken back. postgres and handler are tried again until they go through; " +
			"fenced and moved show another owner of the partition; abandoned did not end " +
			"in time when partitions were given up.",
	})
	Rebalances = define(fromKafka, Instrument{
		Name: "firstseen.rebalances", Kind: Counter, Unit: "{rebalance}", Attributes: keys(Group),
		About: "Assignments of partitions by the group, the first one included.",
	})
	Fences = define(fromKafka, Instrument{
		Name: "firstseen.fences", Kind: Counter, Unit: "{fence}", Attributes: keys(Group, Topic),
		About: "Transactions that Postgres refused because another owner has the partition, " +
			"as after a pause of this process.",
	})
	Lost = define(fromKafka, Instrument{
		Name: "firstseen.messages.lost", Kind: Counter, Unit: "{message}", Attributes: keys(Group, Topic),
		About: "Offsets that were deleted in Kafka before they were read, and skipped as on_loss says.",
	})
	Lag = define(fromKafka, Instrument{
		Name: "firstseen.lag", Kind: Gauge, Unit: "{message}", Attributes: keys(Group, Topic, Partition),
		About: "Offsets between the next to process and the partition's last stable one.",
	})
	LagTime = define(fromKafka, Instrument{
		Name: "firstseen.lag.age", Kind: Gauge, Unit: "s", Attributes: keys(Group, Topic, Partition),
		About: "How old the next message is, where one waits; else 0.",
	})
	Assigned = define(fromKafka, Instrument{
		Name: "firstseen.partitions.assigned", Kind: Gauge, Unit: "{partition}", Attributes: keys(Group),
		About: "Partitions that the group has assigned to this process.",
	})
	Held = define(fromKafka, Instrument{
		Name: "firstseen.partitions.held", Kind: Gauge, Unit: "{partition}", Attributes: keys(Group, Topic, Reason),
		About: "Partitions that wait, by why; see held partitions in OPERATIONS.",
	})
	Holds = define(fromKafka, Instrument{
		Name: "firstseen.holds", Kind: Gauge, Unit: "{hold}", Attributes: keys(Group, Subject, Reason),
		About: "What waits in this process, by what it is (partition, topic, handler, group, broker, inbox, " +
			"dead_topic) and by why; see held partitions in OPERATIONS. There only while something does.",
	})
	HoldAge = define(fromKafka, Instrument{
		Name: "firstseen.holds.age", Kind: Gauge, Unit: "s", Attributes: keys(Group, Subject, Reason),
		About: "How long the one has waited that has waited longest.",
	})
	Readable = define(fromKafka, Instrument{
		Name: "firstseen.topic.readable", Kind: Gauge, Unit: "{topic}", Attributes: keys(Group, Topic),
		About: "1 for a topic of the config that can be read, 0 for one that is missing, " +
			"denied, or can't be read now.",
	})
	Paused = define(fromKafka, Instrument{
		Name: "firstseen.partitions.paused", Kind: Gauge, Unit: "{partition}", Attributes: keys(Group, Topic),
		About: "Assigned partitions that an operator has paused.",
	})
	OpenTransaction = define(fromKafka, Instrument{
		Name: "firstseen.open_transaction.age", Kind: Gauge, Unit: "s", Attributes: keys(Group, Topic, Partition),
		About: "How long a producer's open transaction is known to hold the partition back. " +
			"There only while one does.",
	})
	BufferUsed = define(fromKafka, Instrument{
		Name: "firstseen.buffer.usage", Kind: Gauge, Unit: "By", Attributes: keys(Group),
		About: "What the process holds of messages: answers of brokers, decompressed, " +
			"read ahead, in hand, loaded of parked ones.",
	})
	BufferLimit = define(fromKafka, Instrument{
		Name: "firstseen.buffer.limit", Kind: Gauge, Unit: "By", Attributes: keys(Group),
		About: "What fetch.buffer allows for it. One large message may exceed it.",
	})
	BufferWait = define(fromKafka, Instrument{
		Name: "firstseen.buffer.wait", Kind: Counter, Unit: "s", Attributes: keys(Group),
		About: "How long fetches and lane workers have waited for memory, " +
			"all together. In a backlog that is as it should be.",
	})
	ConsumerState = define(fromKafka, Instrument{
		Name: "firstseen.consumer.state", Kind: Gauge, Unit: "{state}", Attributes: keys(Group, State),
		About: "1 for the state that the consumer is in, 0 for all others: " +
			"starting, joining, consuming, draining, ended.",
	})
)

// What becomes of messages. Package handlers makes these.
var (
	Outcomes = define(ofMessages, Instrument{
		Name: "firstseen.messages", Kind: Counter, Unit: "{message}", Attributes: keys(Topic, Handler, Outcome),
		About: "Messages of committed batches, each once for every handler of its topic: new ones took effect; " +
			"duplicate and buried ones are copies, of a message and of a dead letter; " +
			"a conflict is one with another content; parked ones wait for a later attempt or for a detached " +
			"handler; dead ones went to the dead letters.",
	})
	LaneOutcomes = define(ofMessages, Instrument{
		Name: "firstseen.lane.messages", Kind: Counter, Unit: "{message}", Attributes: keys(Handler, Outcome),
		About: "Parked messages that were brought to their end: handled, or dead.",
	})
	Failures = define(ofMessages, Instrument{
		Name: "firstseen.handler.failures", Kind: Counter, Unit: "{attempt}", Attributes: keys(Handler, Reason),
		About: "Tries of a message that its handler failed on: failed ones are made again; " +
			"unavailable ones too, and count no attempt; permanent, attempts_exhausted, too_old and ended_session " +
			"ended in the dead letters.",
	})
	DeadLetters = define(ofMessages, Instrument{
		Name: "firstseen.dead_letters", Kind: Counter, Unit: "{message}", Attributes: keys(Handler, Reason),
		About: "Messages that went to the dead letters, by why.",
	})
	HandlerDuration = define(ofMessages, Instrument{
		Name: "firstseen.handler.duration", Kind: Histogram, Unit: "s",
		Attributes: keys(Handler, Outcome), Buckets: seconds,
		About: "How long a call of a handler took, of however many messages: ok, or failed.",
	})
)

// Requests with an idempotency key. Packages idempotency and ingress make these.
var (
	IdempotentRequests = define(overHTTP, Instrument{
		Name: "firstseen.idempotency.requests", Kind: Counter, Unit: "{request}", Attributes: keys(Route, Outcome),
		About: "Requests, and messages by HTTP, with an idempotency key: a miss runs its handler; a hit was given the " +
			"answer that is there; a conflict is another one with the same key; in_progress ones were told to come again, " +
			"as a twin was being worked on; so were unavailable ones, as the store could not be asked, and busy ones, " +
			"as too many were at work, which may have had no key.",
	})
	IngressRequests = define(overHTTP, Instrument{
		Name: "firstseen.ingress.requests", Kind: Counter, Unit: "{request}", Attributes: keys(Topic, Status, Reason),
		About: "Requests to the ingress, with a key or not, by their answer's status, and by the code of its problem " +
			"where it has one: busy ones came when too many were worked on, backlog_full ones when too many messages were " +
			"parked, unavailable ones when Postgres could not be asked; failed ones met a fault of the service. Without " +
			"a topic, where none of the ingress' was asked for.",
	})
)

// What lies in Postgres, and the window that health looks at. Package consumer/service makes these.
var (
	Pending = define(inPostgres, Instrument{
		Name: "firstseen.backlog", Kind: Gauge, Unit: "{message}", Attributes: keys(Handler, State),
		About: "Parked messages in Postgres, of all processes: pending ones that no attempt has failed on, " +
			"and failed ones. Counted up to 100,001.",
	})
	OldestAge = define(inPostgres, Instrument{
		Name: "firstseen.backlog.age", Kind: Gauge, Unit: "s", Attributes: keys(Handler),
		About: "How long the parked message has waited that has waited longest; 0 where none is parked.",
	})
	Dead = define(inPostgres, Instrument{
		Name: "firstseen.dead_letters.unresolved", Kind: Gauge, Unit: "{message}", Attributes: keys(Handler),
		About: "Dead letters in Postgres that were neither redriven nor discarded. Counted up to 100,001.",
	})
	Rows = define(inPostgres, Instrument{
		Name: "firstseen.table.rows", Kind: Gauge, Unit: "{row}", Attributes: keys(Table),
		About: "Rows of firstseen's tables, as Postgres' statistics estimate them.",
	})
	Bytes = define(inPostgres, Instrument{
		Name: "firstseen.table.size", Kind: Gauge, Unit: "By", Attributes: keys(Table),
		About: "What firstseen's tables take on disk, with their indexes.",
	})
	DiskUsed = define(inPostgres, Instrument{
		Name: "firstseen.disk.usage", Kind: Gauge, Unit: "By",
		About: "What all databases of the Postgres server take, without its WAL.",
	})
	Growth = define(inPostgres, Instrument{
		Name: "firstseen.disk.growth", Kind: Gauge, Unit: "By/d", Attributes: keys(Table),
		About: "What a day adds to message_dedup and inbox, by the mean of the last days. There once that is known.",
	})
	DaysLeft = define(inPostgres, Instrument{
		Name: "firstseen.disk.days_left", Kind: Gauge, Unit: "d",
		About: "Days until postgres.capacity is full, if it goes on growing so. " +
			"There only with a capacity and growth.",
	})
	PollAge = define(inPostgres, Instrument{
		Name: "firstseen.figures.age", Kind: Gauge, Unit: "s", Attributes: keys(Figure),
		About: "How old the figures from Postgres are: backlog and outbox are asked for every 15 seconds, size (of " +
			"tables and disk) every 5 minutes. Those that are five times as old are left out.",
	})
	Throughput = define(inPostgres, Instrument{
		Name: "firstseen.throughput", Kind: Gauge, Unit: "{message}/s",
		About: "Messages that took effect in this process, a second, over health.window.",
	})
	FailureRatio = define(inPostgres, Instrument{
		Name: "firstseen.failure_ratio", Kind: Gauge, Unit: "1",
		About: "Share of failed attempts among all in this process, over health.window.",
	})
)

// What waits in the outbox and is sent out of it, where this process has a relay. Package consumer/service makes these.
var (
	OutboxBacklog = define(ofOutbox, Instrument{
		Name: "firstseen.outbox.backlog", Kind: Gauge, Unit: "{message}", Attributes: keys(Topic, State),
		About: "Messages of the outbox that are to be sent, by all processes: pending ones that no attempt has failed " +
			"on, and failed ones. Counted up to 100,001.",
	})
	OutboxDelayed = define(ofOutbox, Instrument{
		Name: "firstseen.outbox.delayed", Kind: Gauge, Unit: "{message}", Attributes: keys(Topic),
		About: "Messages of the outbox that are not to be sent before a time. Counted up to 100,001.",
	})
	OutboxAge = define(ofOutbox, Instrument{
		Name: "firstseen.outbox.backlog.age", Kind: Gauge, Unit: "s", Attributes: keys(Topic),
		About: "How long the message has waited that has waited longest, of those that are to be sent; 0 where none is.",
	})
	OutboxDead = define(ofOutbox, Instrument{
		Name: "firstseen.outbox.dead_letters.unresolved", Kind: Gauge, Unit: "{message}", Attributes: keys(Topic),
		About: "Messages of the outbox that were given up, and neither redriven nor discarded. Counted up to 100,001.",
	})
	OutboxThroughput = define(ofOutbox, Instrument{
		Name: "firstseen.outbox.throughput", Kind: Gauge, Unit: "{message}/s",
		About: "Messages that this process has sent, a second, over health.window.",
	})
	OutboxFailureRatio = define(ofOutbox, Instrument{
		Name: "firstseen.outbox.failure_ratio", Kind: Gauge, Unit: "1",
		About: "Share of failed attempts to send among all in this process, over health.window.",
	})
)

func keys(ks ...attribute.Key) []attribute.Key { return ks }
