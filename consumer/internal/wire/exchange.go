package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/segmentio/kafka-go/protocol"
	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kerr"
)

// errNoBrokers is what a request for a broker meets while the transport's own looks at the cluster have all failed.
var errNoBrokers = fmt.Errorf("%w: the cluster's metadata has not been seen yet", kerr.BrokerNotAvailable)

// exchange is one encoded request for one connection of the transport (protocol.RawExchanger).
type exchange struct {
	key         protocol.ApiKey
	broker      int32
	payload     []byte
	correlation int32
	flexible    bool
	limit       int
	allocate    func(size int) ([]byte, error)
}

// exchanged is the body of the answer to an exchange.
type exchanged struct {
	key  protocol.ApiKey
	body []byte
}

// ApiKey makes a protocol.Message of an exchange.
func (e *exchange) ApiKey() protocol.ApiKey { return e.key } //nolint:revive // kafka-go's name

// ApiKey makes a protocol.Message of an answer.
func (e *exchanged) ApiKey() protocol.ApiKey { return e.key } //nolint:revive // kafka-go's name

// Required says that the exchange reads and writes the connection itself, whatever kafka-go can encode.
func (e *exchange) Required(map[protocol.ApiKey]int16) bool { return true }

// Broker routes the exchange. The transport learns of brokers by asking for metadata every
// MetadataTTL, so a new one may be unknown for that long.
func (e *exchange) Broker(cluster protocol.Cluster) (protocol.Broker, error) {
	if e.broker == AnyBroker {
		return protocol.Broker{ID: AnyBroker}, nil
	}
	if len(cluster.Brokers) == 0 {
		return protocol.Broker{}, errNoBrokers
	}
	broker, ok := cluster.Brokers[e.broker]
	if !ok {
		return broker, fmt.Errorf("%w: broker %d is not among the %d that the cluster's metadata names",
			kerr.BrokerNotAvailable, e.broker, len(cluster.Brokers))
	}
	return broker, nil
}

// RawExchange writes the request and reads the answer's body; the connection is closed on an error.
func (e *exchange) RawExchange(rw io.ReadWriter) (protocol.Message, error) {
	if _, err := rw.Write(e.payload); err != nil {
		return nil, err
	}
	size, err := e.readHeader(rw)
	if err != nil {
		return nil, err
	}
	body, err := e.allocate(size)
	if err != nil {
		return nil, err
	}
	if _, err := io.ReadFull(rw, body); err != nil {
		return nil, fmt.Errorf("read an answer of %d bytes: %w", size, err)
	}
	if e.flexible {
		r := kbin.Reader{Src: body}
		skipTags(&r)
		if body = r.Src; !r.Ok() {
			return nil, errors.New("the answer's header is cut short")
		}
	}
	return &exchanged{key: e.key, body: body}, nil
}

// readHeader reads the answer's size and correlation ID, and checks both before anything is allocated.
func (e *exchange) readHeader(r io.Reader) (int, error) {
	var head [8]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, err
	}
	size := int64(int32(binary.BigEndian.Uint32(head[:]))) - 4
	id := int32(binary.BigEndian.Uint32(head[4:]))
	switch {
	case size < 0 || size > int64(e.limit):
		return 0, fmt.Errorf("the broker announces an answer of %d bytes, the limit is %d", size, e.limit)
	case id != e.correlation:
		return 0, fmt.Errorf("the broker answers request %d instead of %d", id, e.correlation)
	}
	return int(size), nil
}

// skipTags reads past the tagged fields that end every structure of a flexible version (KIP-482).
func skipTags(r *kbin.Reader) {
	for n := r.Uvarint(); n > 0 && r.Ok(); n-- {
		r.Uvarint()
		r.Span(int(r.Uvarint()))
	}
}
