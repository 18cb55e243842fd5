// Package wire is the Kafka protocol as far as it is ours: what kafka-go encodes too narrowly, or whose errors it
// loses. Requests go out over the connections of a kafka.Transport; records come in, decoded as far as there is memory
// for them, with what they cost. It knows nothing of groups' members, of buffers, nor of Postgres.
//
// In reading order:
//
//	client.go        a call: versions, the round trip, one more try where a connection was lost
//	exchange.go      its bytes on the connection
//	reachability.go  when a broker last answered
//	metadata.go      topics, their partitions and leaders
//	offsets.go       offsets by time
//	group.go         a group's committed offsets, and leaving it
//	fetch.go         records of many partitions of a leader
//	response.go      the answer, without its records
//	records.go       a partition's records: batches, whole or in parts
//	batch.go         one batch: its head, its checksum, aborted transactions
//	record.go        one batch's records
//	decompress.go    what comes out of a batch, piece by piece
//	room.go          the memory of a fetch
//	epochs.go        whether a log still is the one that was read
package wire

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// AnyBroker addresses a request to whichever broker the bootstrap list leads to.
const AnyBroker = -1

// maxAnswer bounds every answer but a fetch's: metadata of 100,000 partitions takes about 8 MiB.
const maxAnswer = 16 << 20

// maxTries limits the tries of a call that meets nothing but lost connections.
const maxTries = 4

// TopicPartition names one partition of a topic.
type TopicPartition struct {
	Topic     string
	Partition int32
}

func (tp TopicPartition) String() string { return fmt.Sprintf("%s/%d", tp.Topic, tp.Partition) }

// Client speaks the Kafka protocol over the connections of a kafka.Transport, for the requests that
// kafka-go itself encodes too narrowly or whose errors it loses. All of its requests are idempotent.
// It is safe for concurrent use; nothing needs closing but the transport, which its owner closes.
type Client struct {
	transport *kafka.Transport
	bootstrap net.Addr
	clientID  string
	timeout   time.Duration
	limits    decodeLimits
	inflate   *decompressor

	correlation atomic.Int32
	reached     reachability

	mutex    sync.Mutex
	versions map[int32]apiVersions // by broker
}

// apiVersions holds the lowest and highest version of each API, by its key, that a broker speaks.
type apiVersions map[int16][2]int16

// New returns a Client. timeout is the time that a broker has for one answer, on
// top of the time that a fetch asks it to wait for new records.
func New(transport *kafka.Transport, bootstrap []string, clientID string, timeout time.Duration) *Client {
	limits := decodeLimits{batchBytes: maxBatchBytes, record: maxRecordBytes}
	return &Client{
		transport: transport,
		bootstrap: kafka.TCP(bootstrap...),
		clientID:  clientID,
		timeout:   timeout,
		limits:    limits,
		inflate:   newDecompressor(limits.batchBytes),
		versions:  make(map[int32]apiVersions),
		reached:   reachability{last: time.Now()},
	}
}

// Call is a request on its way to one broker.
type Call struct {
	Broker  int32 // a broker's ID, or AnyBroker
	Request kmsg.Request
	// Min and max are the request's versions that the caller can encode and decode.
	Min, Max int16
	// wait is the time that the broker may hold the request before it answers.
	wait time.Duration
	// limit bounds the answer's bytes. Default maxAnswer.
	limit int
	// allocate gives the buffer that the answer is read to. Default a new one.
	allocate func(size int) ([]byte, error)
}

func newBuffer(size int) ([]byte, error) { return make([]byte, size), nil }

// do sends a call and returns the answer's body; the request carries the version that was used.
// A call that meets a lost connection is sent again at once: the pool hands out connections that the
// broker has long closed, and finds out only by using them. It may hold some of them, for it dials anew
// where a request comes before the last one's connection is back.
// A transport whose first look at the cluster failed knows no broker until it looks again, which may take MetadataTTL:
// one that is begun anew looks at once, and there is no connection to a broker that it could lose.
func (w *Client) do(ctx context.Context, c Call) (body []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, c.wait+w.timeout)
	defer cancel()
	anew := false
	for range maxTries {
		body, err = w.attempt(ctx, c)
		switch {
		case errors.Is(err, errNoBrokers) && !anew:
			w.transport.CloseIdleConnections()
			anew = true
		case !connectionLost(err):
			return body, err
		}
	}
	return body, err
}

// Ask sends a call and decodes its answer.
func (w *Client) Ask(ctx context.Context, c Call, answer kmsg.Response) error {
	body, err := w.do(ctx, c)
	if err != nil {
		return err
	}
	answer.SetVersion(c.Request.GetVersion())
	if err := answer.ReadFrom(body); err != nil {
		return fmt.Errorf("decode the answer, version %d: %w", answer.GetVersion(), err)
	}
	return nil
}

// attempt sends a call once. A lost connection may mean that the broker was replaced by one of
// another release, or refused the version (brokers close the connection on that): ask again.
func (w *Client) attempt(ctx context.Context, c Call) ([]byte, error) {
	version, err := w.version(ctx, c)
	if err != nil {
		return nil, err
	}
	c.Request.SetVersion(version)
	body, err := w.roundTrip(ctx, c)
	if connectionLost(err) {
		w.forget(c.Broker)
	}
	return body, err
}

// version picks the highest version of the call's API that both sides speak. kafka-go negotiates
// too, but tells only what it can encode itself (Fetch 11, Metadata 8).
func (w *Client) version(ctx context.Context, c Call) (int16, error) {
	spoken, err := w.spoken(ctx, c.Broker)
	if err != nil {
		return 0, err
	}
	key := c.Request.Key()
	its, ok := spoken[key]
	version := min(c.Max, its[1])
	if !ok || version < max(c.Min, its[0]) {
		return 0, fmt.Errorf("%w: broker %d speaks %s %d to %d, this client %d to %d", kerr.UnsupportedVersion,
			c.Broker, kmsg.NameForKey(key), its[0], its[1], c.Min, c.Max)
	}
	return version, nil
}

func (w *Client) spoken(ctx context.Context, broker int32) (apiVersions, error) {
	w.mutex.Lock()
	known := w.versions[broker]
	w.mutex.Unlock()
	if known != nil {
		return known, nil
	}
	found, err := w.askVersions(ctx, broker)
	if err != nil {
		return nil, fmt.Errorf("ask for API versions: %w", err)
	}
	w.mutex.Lock()
	defer w.mutex.Unlock()
	w.versions[broker] = found
	return found, nil
}

// askVersions is Versions, by the APIs' keys.
func (w *Client) askVersions(ctx context.Context, broker int32) (apiVersions, error) {
	answer, err := w.Versions(ctx, broker)
	if err != nil {
		return nil, err
	}
	versions := make(apiVersions, len(answer.ApiKeys))
	for _, k := range answer.ApiKeys {
		versions[k.ApiKey] = [2]int16{k.MinVersion, k.MaxVersion}
	}
	return versions, nil
}

// Versions sends ApiVersions version 0, which every broker speaks (KIP-35, KIP-896).
func (w *Client) Versions(ctx context.Context, broker int32) (*kmsg.ApiVersionsResponse, error) {
	body, err := w.roundTrip(ctx, Call{Broker: broker, Request: kmsg.NewPtrApiVersionsRequest()})
	if err != nil {
		return nil, err
	}
	answer := kmsg.NewPtrApiVersionsResponse()
	if err := answer.ReadFrom(body); err != nil {
		return nil, err
	}
	return answer, kerr.ErrorForCode(answer.ErrorCode)
}

func (w *Client) forget(broker int32) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	delete(w.versions, broker)
}

// roundTrip encodes the request and exchanges it for the answer's body. The transport lets go of a
// request whose ctx ends, but its connection works on until the deadline: hence the encoded copy.
func (w *Client) roundTrip(ctx context.Context, c Call) ([]byte, error) {
	id := w.correlation.Add(1)
	format := kmsg.NewRequestFormatter(kmsg.FormatterClientID(w.clientID))
	if c.allocate == nil {
		c.allocate = newBuffer
	}
	answer, err := w.transport.RoundTrip(ctx, w.bootstrap, &exchange{
		key:         protocol.ApiKey(c.Request.Key()),
		broker:      c.Broker,
		payload:     format.AppendRequest(nil, c.Request, id),
		correlation: id,
		flexible:    c.Request.IsFlexible(),
		limit:       cmp.Or(c.limit, maxAnswer),
		allocate:    c.allocate,
	})
	w.reached.note(ctx, err)
	if errors.Is(err, os.ErrDeadlineExceeded) { // the connection noticed before the context did
		err = fmt.Errorf("%w: %w", context.DeadlineExceeded, err)
	}
	if err != nil {
		return nil, err
	}
	return answer.(*exchanged).body, nil
}

// connectionLost reports errors of a connection that broke, whatever the request was.
func connectionLost(err error) bool {
	return slices.ContainsFunc([]error{io.EOF, io.ErrUnexpectedEOF, syscall.ECONNRESET, syscall.EPIPE},
		func(lost error) bool { return errors.Is(err, lost) })
}
