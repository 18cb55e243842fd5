package wire

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// batchHeader is the size of a record batch before its records.
const batchHeader = 61

// Attributes of a record batch (KIP-98). The lowest three bits name the codec.
const (
	codecMask       = 0x07
	appendTimeFlag  = 0x08
	transactionFlag = 0x10
	controlFlag     = 0x20
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// errPartial says that a record set ends within a batch: a broker cuts it at the size asked for.
var errPartial = errors.New("the record set ends within a batch")

// batch is a record batch in the message format 2, the only one since Kafka 0.11 (KIP-98).
type batch struct {
	first, last    int64 // offsets; last outlives the record that it belonged to (KAFKA-5443)
	leaderEpoch    int32 // of the leader that took it in; -1 where that knew none
	attributes     int16
	firstTimestamp int64
	maxTimestamp   int64
	producerID     int64
	count          int32
	payload        []byte // the records, compressed or not
	crc            uint32
	checksummed    []byte
}

func (b *batch) has(flag int16) bool { return b.attributes&flag != 0 }
func (b *batch) codec() kgo.CompressionCodecType {
	return kgo.CompressionCodecType(b.attributes & codecMask)
}

// readBatch cuts the first batch off a record set and checks all of it but its records.
func readBatch(set []byte) (b batch, rest []byte, err error) {
	if len(set) < 17 {
		return b, nil, errPartial
	}
	if magic := set[16]; magic < 2 {
		return b, nil, fmt.Errorf("%w: message format %d, from before Kafka 0.11, has no headers",
			kerr.UnsupportedForMessageFormat, magic)
	} else if magic > 2 {
		return b, nil, corrupt("unknown message format %d", magic)
	}
	size := 12 + int64(int32(binary.BigEndian.Uint32(set[8:])))
	switch {
	case size < batchHeader:
		return b, nil, corrupt("a batch of %d bytes", size)
	case size > int64(len(set)):
		return b, nil, errPartial
	}
	b = parseBatch(set[:size])
	return b, set[size:], b.check()
}

func parseBatch(in []byte) batch {
	be := binary.BigEndian
	first := int64(be.Uint64(in))
	return batch{
		first:          first,
		leaderEpoch:    int32(be.Uint32(in[12:])),
		crc:            be.Uint32(in[17:]),
		attributes:     int16(be.Uint16(in[21:])),
		last:           first + int64(int32(be.Uint32(in[23:]))),
		firstTimestamp: int64(be.Uint64(in[27:])),
		maxTimestamp:   int64(be.Uint64(in[35:])),
		producerID:     int64(be.Uint64(in[43:])),
		count:          int32(be.Uint32(in[57:])),
		payload:        in[batchHeader:],
		checksummed:    in[21:],
	}
}

// check reports damage. The checksum covers everything from the attributes on.
func (b *batch) check() error {
	switch crc := crc32.Checksum(b.checksummed, castagnoli); {
	case crc != b.crc:
		return corrupt("the checksum of the batch at offset %d is %08x, not %08x", b.first, crc, b.crc)
	case b.first < 0 || b.last < b.first:
		return corrupt("a batch from offset %d to %d", b.first, b.last)
	case b.count < 0 || b.count > 0 && len(b.payload) == 0:
		return corrupt("%d records in a payload of %d bytes", b.count, len(b.payload))
	}
	return nil
}

func corrupt(format string, args ...any) error {
	return fmt.Errorf("%w: %s", kerr.CorruptMessage, fmt.Sprintf(format, args...))
}

// aborts tells which batches of a partition belong to aborted transactions, as the batches go by in
// the order of their offsets. The rules are those of Kafka's Java consumer (CompletedFetch).
type aborts struct {
	pending []abortedTransaction // that begin at a later offset
	open    map[int64]bool       // producers within an aborted transaction
}

func newAborts(transactions []abortedTransaction) *aborts {
	// Kafka sends them in the order of their ends, Redpanda in no order.
	slices.SortFunc(transactions, func(x, y abortedTransaction) int {
		return cmp.Compare(x.firstOffset, y.firstOffset)
	})
	return &aborts{pending: transactions, open: make(map[int64]bool)}
}

// covers reports whether a batch is data of an aborted transaction.
func (a *aborts) covers(b *batch) bool {
	for len(a.pending) > 0 && a.pending[0].firstOffset <= b.last {
		a.open[a.pending[0].producerID] = true
		a.pending = a.pending[1:]
	}
	return b.has(transactionFlag) && !b.has(controlFlag) && a.open[b.producerID]
}

// end closes the aborted transaction of a producer.
func (a *aborts) end(producerID int64) { delete(a.open, producerID) }
