// Package devstack is `firstseen dev`: everything that a first look at firstseen needs, in one process and its
// children, and a check of its own result.
//
// A producer sends account movements, many of them twice. A consumer in a child process books them: it may be
// killed at any moment, and is started again. In come [Options]; what leaves are lines or a live view for a person,
// and a [Summary] with the verdict. Nothing in the verdict is the consumer's word: what was sent is in the producer's
// [ledger], what took effect is read from Postgres, and what is left to do from the broker.
//
// Files in reading order: devstack.go, run.go, interrupt.go, stack.go (what it stands on), bank.go (the handler and its
// tables), broker.go, producer.go, ledger.go, child.go and consume.go (the consumer's process, from outside and from
// within), faults.go (what may be done to a run), figures.go; then the views of the figures: view.go, screen.go,
// webpage.go and story.go (what the page says), with static embedded; and summary.go.
package devstack

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/firstseen/firstseen/dedup/httpjson"
)

// Options say what to run. The zero value starts everything, and runs until it is interrupted.
type Options struct {
	// For is the time to produce before the final check. Default: until interrupted.
	For time.Duration
	// Rate is the number of messages produced a second, copies included. Default 2000.
	Rate int
	// Duplicates is the share of produced messages that are copies, from 0 up to but not including 1.
	Duplicates float64
	// Partitions is the number of the topic's partitions. Default 4.
	Partitions int
	// Fail is the share of handler calls that fail, from 0 up to but not including 1. A message that fails is
	// tried again until it succeeds.
	Fail float64
	// Handler names the handler: HandlerPlain (default), or HandlerHang, which has one message in a thousand wait for
	// a second before it is booked.
	Handler string
	// Outbox has the handler add each message to an outbox instead, from where it is sent to a second topic, whose consumer
	// books it. All of that is in the process that crashes.
	Outbox bool
	// CrashEvery is the mean time between two kills of the consumer. Default never.
	CrashEvery time.Duration
	// Kafka is the address of a running broker. Default: an embedded one.
	Kafka string
	// Postgres is the connection string of a running server's database. Default: an embedded server.
	Postgres string
	// Data is the directory of the embedded Postgres' data, which is kept. Default a temporary one.
	Data string

	// Listen is the address, host:port, of a page that shows the run in a browser and has buttons that disturb it. The
	// host is this machine's loopback; with port 0 a free one is taken. The consumer has the operator's page then, at a
	// port of its own. Default: there is none.
	Listen string

	// Out gets the view: live where it is a terminal, else lines. Default standard error.
	Out *os.File
	// In gives the keys that are pressed, if it is a terminal and Out is one. Default none.
	In *os.File
	// Consumer are the arguments with which this program runs as the consumer, see [Consume]. Required.
	Consumer []string
}

// The handlers that Options.Handler names.
const (
	HandlerPlain = "plain"
	HandlerHang  = "hang"
)

// Validate reports every fault of the options at once.
func (o *Options) Validate() error {
	var faults []string
	fault := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	if o.Duplicates < 0 || o.Duplicates >= 1 {
		fault("duplicates: %v is not a share from 0 up to but not including 1", o.Duplicates)
	}
	if o.Fail < 0 || o.Fail >= 1 {
		fault("fail: %v is not a share from 0 up to but not including 1", o.Fail)
	}
	if o.Handler != "" && o.Handler != HandlerPlain && o.Handler != HandlerHang {
		fault("handler: %q is neither %s nor %s", o.Handler, HandlerPlain, HandlerHang)
	}
	if o.Rate < 0 || o.Rate > maxRate {
		fault("rate: %d is not between 1 and %d messages a second", o.Rate, maxRate)
	}
	if o.Partitions < 0 || o.Partitions > accounts {
		fault("partitions: %d is not between 1 and %d", o.Partitions, accounts)
	}
	if o.For < 0 || o.CrashEvery < 0 {
		fault("for and crash-every: a time can't be negative")
	}
	if o.Data != "" && o.Postgres != "" {
		fault("data and postgres: the directory is the embedded server's, which does not run beside another")
	}
	if o.Listen != "" && !httpjson.ThisHost(o.Listen) {
		fault("listen: %q is not host:port with a host of this machine's own, as 127.0.0.1:0 is: "+
			"the page has buttons, and asks nobody who they are", o.Listen)
	}
	if len(o.Consumer) == 0 {
		fault("consumer: arguments are required")
	}
	if len(faults) > 0 {
		return errors.New(strings.Join(faults, "; "))
	}
	return nil
}

func (o *Options) setDefaults() {
	if o.Rate == 0 {
		o.Rate = 2000
	}
	if o.Partitions == 0 {
		o.Partitions = 4
	}
	if o.Out == nil {
		o.Out = os.Stderr
	}
}

func say(w io.Writer, format string, args ...any) {
	_, _ = fmt.Fprintf(w, format+"\n", args...)
}
