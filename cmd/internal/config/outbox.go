package config

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/handlers"
	"github.com/firstseen/firstseen/handlers/outbox"
)

func (l *loader) checkOutbox(c *Config) {
	l.checkLongest("outbox.send_timeout", c.Outbox.SendTimeout)
	names, topics := map[string]int{}, map[string]int{}
	for i, d := range c.Outbox.Destinations {
		at := fmt.Sprintf("outbox.destinations[%d]", i)
		if l.require(at+".name", d.Name, "name it: what was sent is kept under the name") {
			l.checkStored(at+".name", d.Name)
			l.checkOnce(at+".name", names, d.Name, i, "is the name of outbox.destinations[%d] too; give each its own")
		}
		l.checkDestination(at, d, topics, i)
	}
	if len(c.Outbox.Destinations) > 0 && c.Inbox == dedup.OutboxInbox {
		path := "group"
		if l.given("inbox") {
			path = "inbox"
		}
		l.fault(path, "is the name of the outbox's own inbox, where the messages that were sent lie; "+
			"set inbox to another one")
	}
}

func (l *loader) checkDestination(at string, d Destination, topics map[string]int, i int) {
	if len(d.Topics) == 0 {
		l.require(at+".topics", "", "list the topics whose messages it sends")
	}
	for j, topic := range d.Topics {
		path := at + ".topics" + index(j)
		if err := dedup.CheckName(topic); err != nil {
			l.fault(path, "can't be the topic of a message: %v", err)
		} else if d.isKafka() {
			l.checkName(path, topic)
		}
		l.checkOnce(path, topics, topic, i, "has outbox.destinations[%d] too; a message is sent to one of them")
	}
	if d.Webhook.given() {
		l.checkWebhook(at+".webhook", d.Webhook)
		if d.Log {
			l.fault(at+".log", "is given beside webhook; keep one of the two")
		}
	}
	l.checkRetry(at+".retry", Retry(d.Retry))
}

// checkOnce notes that an item has a name, and finds one that has it already.
func (l *loader) checkOnce(path string, seen map[string]int, name string, item int, fault string) {
	if other, twice := seen[name]; twice {
		l.fault(path, fault, other)
		return
	}
	seen[name] = item
}

func (d *Destination) fillIn() {
	full := d.destination().WithDefaults()
	d.Workers, d.MaxParked, d.Retry = full.Workers, full.MaxParked, SendRetry(full.Retry)
	if d.Webhook.given() {
		d.Webhook.fillIn()
	}
}

// destination makes the relay's, but for its sender.
func (d *Destination) destination() outbox.Destination {
	return outbox.Destination{Name: d.Name, Topics: d.Topics, Concurrency: d.Webhook.Concurrency, Workers: d.Workers,
		MaxParked: d.MaxParked, Retry: handlers.Retry(d.Retry)}
}

// isKafka says that messages are sent to Kafka.
func (d *Destination) isKafka() bool { return !d.Log && !d.Webhook.given() }

// connections are those that the relay takes.
func (o *Outbox) connections() (n int) {
	if len(o.Destinations) > 0 {
		n = 4 // for what has failed, and what is asked in between
	}
	for _, d := range o.Destinations {
		n += 2 * d.Workers
		if d.Webhook.given() {
			n++
		}
	}
	return n
}

// ForOutbox makes the relay's config, but for its pool. kafka makes the sender to Kafka, where that is needed; log
// gets the messages that are sent to the log.
func (c Config) ForOutbox(kafka func() (handlers.Sender, error), log *slog.Logger) (outbox.Config, error) {
	store := c.Store()
	store.Inbox, store.IdleAfter = dedup.OutboxInbox, c.Outbox.SendTimeout+c.Timeouts.Postgres
	relay := outbox.Config{Store: store, Batch: c.Outbox.Batch, IdlePoll: c.Outbox.Poll, Listen: c.Outbox.Listen,
		SendTimeout: c.Outbox.SendTimeout, DrainTimeout: c.Timeouts.Drain, Logger: log}
	var sender handlers.Sender
	for _, d := range c.Outbox.Destinations {
		to := d.destination()
		var err error
		switch {
		case d.Webhook.given():
			to.Detached, err = handlers.NewWebhook(d.Webhook.config())
		case d.Log:
			to.Sender = outbox.Log(log)
		default:
			if sender == nil {
				sender, err = kafka()
			}
			to.Sender = sender
		}
		if err != nil {
			return relay, fmt.Errorf("destination %s of the outbox: %w", d.Name, err)
		}
		relay.Destinations = append(relay.Destinations, to)
	}
	return relay, nil
}

// summary says in one line what is sent; empty: nothing is.
func (o *Outbox) summary() string {
	var topics []string
	for _, d := range o.Destinations {
		topics = append(topics, d.Topics...)
	}
	if len(topics) == 0 {
		return ""
	}
	slices.Sort(topics)
	return fmt.Sprintf("; sends the outbox's messages of %s (%s) to %s", counted(len(topics), "topic"),
		strings.Join(topics, ", "), counted(len(o.Destinations), "destination"))
}

// Destined are destinations by their names and topics, and nothing to send with.
func Destined(list []Destination) []outbox.Destination {
	out := make([]outbox.Destination, len(list))
	for i, d := range list {
		out[i] = outbox.Destination{Name: d.Name, Topics: d.Topics}
	}
	return out
}
