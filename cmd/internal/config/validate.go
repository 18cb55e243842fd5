package config

import (
	"maps"
	"math"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/firstseen/firstseen/consumer"
	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/identity"
	"github.com/firstseen/firstseen/handlers/schemas"
)

// validate checks what the types alone don't.
func (l *loader) validate(c *Config) {
	l.checkDSN(c.Postgres)
	l.checkSchema(c.Postgres)
	l.checkConnections(c)
	l.checkBrokers(c)
	_, faults := c.Kafka.TLS.config("kafka.tls")
	l.faults = append(l.faults, faults...)
	l.checkSASL(c.Kafka.SASL)
	l.checkNames(c)
	l.checkTopics(c)
	l.checkRegistry(c)
	l.checkDeadLetterTopic(c)
	l.checkChoices(c)
	l.checkSizes(c)
	l.checkTimeouts(c.Timeouts)
	l.checkHTTP(c.HTTP)
	l.checkIngress(c)
	l.checkOutbox(c)
	l.checkHealth(c.Health)
	l.checkRetention(c)
	l.checkSpread(c)
}

// require notes a key that has no value, unless it has been found faulty already.
func (l *loader) require(path, value, advice string) bool {
	if strings.TrimSpace(value) != "" {
		return true
	}
	if !l.has(path) {
		l.fault(path, "is required; %s", advice)
	}
	return false
}

// usesKafka is false where nothing is read, and what is sent goes elsewhere.
func (c *Config) usesKafka() bool {
	return len(c.Topics) > 0 || len(c.Outbox.Destinations) == 0 ||
		slices.ContainsFunc(c.Outbox.Destinations, func(d Destination) bool { return d.isKafka() })
}

func (l *loader) checkBrokers(c *Config) {
	brokers := c.Kafka.Brokers
	if len(brokers) == 0 && c.usesKafka() {
		l.require("kafka.brokers", "", "list at least one address, host:port")
	}
	for i, b := range brokers {
		host, port, err := net.SplitHostPort(b)
		n, errPort := strconv.Atoi(port)
		if err == nil && host != "" && errPort == nil && n > 0 && n <= math.MaxUint16 {
			continue
		}
		path := "kafka.brokers[" + strconv.Itoa(i) + "]"
		shown := ""
		if !l.unshown[path] && !l.unshown["kafka.brokers"] && !strings.Contains(b, "@") {
			shown = strconv.Quote(b) + " "
		}
		l.fault(path, "%sis not an address; write host:port, like kafka-1:9092", shown)
	}
}

func (l *loader) checkNames(c *Config) {
	if l.require("group", c.Group, "name the consumer group") {
		l.checkStored("group", c.Group)
	}
	if c.Inbox != "" &&
		l.require("inbox", c.Inbox, "or leave it out: it is the group's name then") && c.Inbox != c.Group {
		l.checkStored("inbox", c.Inbox)
	}
}

// checkStored checks a name that Postgres keeps.
func (l *loader) checkStored(path, name string) {
	if err := dedup.CheckName(name); err != nil {
		l.fault(path, "can't be kept: %v", err)
	}
}

// choices are the values of the keys that take one of a few.
var choices = map[string][]string{
	"start_at":           {string(consumer.Earliest), string(consumer.Latest)},
	"on_loss":            {string(consumer.Continue), string(consumer.Hold)},
	"on_reset":           {string(consumer.Hold), string(consumer.Restart)},
	"on_postgres_behind": {string(consumer.Position), string(consumer.Committed)},
	"log.level":          {"debug", "info", "warn", "error"},
	"log.format":         {"text", "json"},
	"ingress.conflict":   {conflictAnswer, conflictRefuse},

	"kafka.sasl.mechanism": mechanisms,
	"topics[].format":      {string(schemas.Auto), formatRaw, string(schemas.Confluent), string(schemas.Apicurio)},
	"topics[].fingerprint": {string(identity.FingerprintBytes), string(identity.FingerprintJSON)},
	"topics[].handlers[].ordering": {string(dedup.OrderByKey),
		string(dedup.OrderByPartition), string(dedup.Unordered)},
}

func (l *loader) choice(path, value string) {
	allowed := choices[pattern(path)]
	if value == "" || slices.Contains(allowed, value) {
		return
	}
	l.fault(path, "%sis none of %s", l.shown(path), strings.Join(allowed, ", "))
}

func (l *loader) checkChoices(c *Config) {
	l.choice("start_at", c.StartAt)
	if i := slices.IndexFunc(c.Topics, func(t Topic) bool { return t.Pattern != "" }); i >= 0 &&
		c.StartAt == string(consumer.Latest) {
		l.fault("start_at", "can't be latest beside topics[%d].pattern: messages that are written before such a topic is found "+
			"would be skipped; take it out, or name the topics", i)
	}
	l.choice("on_loss", c.OnLoss)
	l.choice("on_reset", c.OnReset)
	l.choice("on_postgres_behind", c.OnPostgresBehind)
	l.choice("log.level", c.Log.Level)
	l.choice("log.format", c.Log.Format)
}

// maxAnswer is the largest number in the field of a fetch request.
const maxAnswer = math.MaxInt32

func (l *loader) checkSizes(c *Config) {
	if c.Fetch.Bytes > maxAnswer {
		l.fault("fetch.bytes", "is too large; at most 2GiB less one byte fit a request, and a few MiB are enough")
	}
	l.checkLongest("fetch.wait", c.Fetch.Wait)
}

var schemaName = regexp.MustCompile(`^[a-z_][a-z0-9_]{0,62}$`)

func (l *loader) checkSchema(p Postgres) {
	if p.Schema != "" && (!schemaName.MatchString(p.Schema) || strings.HasPrefix(p.Schema, "pg_")) {
		l.fault("postgres.schema", "%smust be 1 to 63 lower-case letters, digits and underscores, "+
			"not starting with a digit or pg_", l.shown("postgres.schema"))
	}
}

// checkLongest checks a time that is sent to Kafka.
func (l *loader) checkLongest(path string, d time.Duration) {
	if d > consumer.MaxTimeout {
		l.fault(path, "%s is too long; Kafka's protocol has at most %s, "+
			"and brokers take session time-outs up to group.max.session.timeout.ms, 30m by default",
			formatDuration(d), formatDuration(consumer.MaxTimeout.Truncate(time.Second)))
	}
}

// cutOff is the consumer's reserve for a handler that ignores its end: a test holds it against the consumer's own
// check.
const cutOff = 7 * time.Second

func (l *loader) checkTimeouts(t Timeouts) {
	if t.Heartbeat*3 > t.Session {
		l.fault("timeouts.heartbeat", "%s is too long; make it at most a third of timeouts.session, which is %s",
			t.Heartbeat, t.Session)
	}
	if t.Postgres < time.Second {
		l.fault("timeouts.postgres", "%s is too short; make it at least 1s", t.Postgres)
	}
	l.checkLongest("timeouts.session", t.Session)
	l.checkLongest("timeouts.rebalance", t.Rebalance)
	limit := min(t.Session, t.Rebalance) - t.Heartbeat - t.Request - cutOff
	if limit < time.Second {
		l.fault("timeouts.session", "the shorter of session and rebalance leaves no time to drain; "+
			"make both at least %s, which is heartbeat, request and %s",
			t.Heartbeat+t.Request+cutOff+time.Second, cutOff+time.Second)
	} else if t.Drain > limit {
		l.fault("timeouts.drain", "%s is too long; with these session, rebalance, heartbeat and request "+
			"timeouts it can be %s at most", t.Drain, limit)
	}
}

func (l *loader) checkHealth(h Health) {
	d, u := h.Degraded, h.Unhealthy
	l.checkRatio("health.degraded.failure_ratio", d.FailureRatio)
	l.checkRatio("health.unhealthy.failure_ratio", u.FailureRatio)
	l.checkOrder("backlog", u.Backlog > 0 && u.Backlog < d.Backlog)
	l.checkOrder("dead_letters", u.DeadLetters > 0 && u.DeadLetters < d.DeadLetters)
	l.checkOrder("oldest_age", u.OldestAge > 0 && u.OldestAge < d.OldestAge)
	l.checkOrder("failure_ratio", u.FailureRatio < d.FailureRatio)
}

func (l *loader) checkRatio(path string, ratio float64) {
	if ratio > 1 {
		l.fault(path, "%v is not a share; write 0 to 1, like 0.05", ratio)
	}
}

// checkOrder wants what is unhealthy to be degraded too.
func (l *loader) checkOrder(name string, below bool) {
	if path := "health.unhealthy." + name; below && !l.has(path) && !l.has("health.degraded."+name) {
		l.fault(path, "is below health.degraded.%s; what is unhealthy must be degraded too", name)
	}
}

func (l *loader) checkRetention(c *Config) {
	if age := c.Retention.Inbox; age > 0 && age%day != 0 {
		l.fault("retention.inbox", "%sis not in whole days; write it like 90d", l.shown("retention.inbox"))
	}
	names := map[string]bool{}
	for _, t := range c.Topics {
		for _, h := range t.Handlers {
			names[h.Name] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.Retention.Handlers)) {
		if !names[name] && !l.elsewhere && !l.has("topics") {
			l.fault("retention.handlers["+name+"]", "no topic has a handler of that name; the handlers are %s",
				strings.Join(slices.Sorted(maps.Keys(names)), ", "))
		}
	}
}
