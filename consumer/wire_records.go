package consumer

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"unsafe"

	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/firstseen/firstseen/dedup"
)

const (
	// maxBatchBytes bounds one record batch, on its way and decompressed. A topic's max.message.bytes
	// is 1 MiB where nobody raised it.
	maxBatchBytes = 64 << 20
	// maxDecodedBytes bounds what one fetch response grows to in memory.
	maxDecodedBytes = 256 << 20
)

// What a record and a header cost on top of their bytes, with the message that a record becomes. A record of 7 bytes,
// the least that there is, costs 44 times as much, so its bytes alone bound nothing.
const (
	recordCost  = int(unsafe.Sizeof(fetchedRecord{}) + unsafe.Sizeof((*fetchedRecord)(nil)) + unsafe.Sizeof(dedup.Message{}))
	headerCost  = int(unsafe.Sizeof(dedup.Header{}))
	leastRecord = 7 // length, attributes, two deltas, key, value and header count: a byte each
	leastHeader = 2
)

// decodeLimits bounds the memory that decoding takes.
type decodeLimits struct {
	batchBytes int // of one batch, decompressed
	memory     int // of a response: batches, records and headers
}

// errNoRoom says that a batch did not fit beside the ones before it; a later fetch begins with it.
var errNoRoom = errors.New("no room left for a batch")

// budget is the memory that one response may grow to. A batch claims what it needs before allocating.
type budget struct {
	limits decodeLimits
	most   int // of the response, once there is a batch in it
	used   int
	batch  int // claimed by the batch at hand
}

func (b *budget) begin() { b.batch = 0 }

// claim tells a batch that is too large by itself from one that comes too late in the response. The first
// batch has all of the limit, so that a small budget slows a fetch down and never stops it.
func (b *budget) claim(n int) error {
	b.batch += n
	switch {
	case b.batch > b.limits.memory:
		return fmt.Errorf("%w: more than %d bytes in memory", errTooLarge, b.limits.memory)
	case b.used > 0 && b.used+b.batch > b.most:
		return errNoRoom
	}
	return nil
}

// keep charges the batch at hand and returns what it costs.
func (b *budget) keep() int {
	b.used += b.batch
	return b.batch
}

// recordDecoder decodes the record set of one partition. It takes a batch as a whole or not at all:
// kgo.ProcessFetchPartition stops at a record that it cannot read and goes on with the next batch,
// which loses the records between in silence.
type recordDecoder struct {
	topicPartition
	from    int64 // the offset asked for
	aborts  *aborts
	inflate *decompressor
	budget  *budget
	copies  bool // records are copied out of the response, most of which is not theirs

	records []*fetchedRecord
	epochs  []epochStart
	next    int64
	bytes   int
	names   []dedup.Header // headers of the last record, whose names mostly come again
}

// decode takes batches until the set ends or one is at fault. A fault behind progress is left for the
// next fetch, which begins at it: the caller gets either records or an error.
func (d *recordDecoder) decode(set []byte) error {
	for len(set) > 0 {
		b, rest, err := readBatch(set)
		if err == nil {
			err = d.take(&b)
		}
		switch {
		case errors.Is(err, errNoRoom), err != nil && d.next > d.from:
			return nil
		case errors.Is(err, errPartial):
			// From version 3 on a broker sends no part of a batch where there is nothing before it
			// (KIP-74), so waiting for the rest would be waiting for ever.
			return corrupt("a record set of %d bytes without a whole batch", len(set))
		case err != nil:
			return err
		}
		set = rest
	}
	return nil
}

// take adds the records of a batch and moves next past it, also where it has none left to deliver:
// aborted data, control records, records that compaction removed.
func (d *recordDecoder) take(b *batch) error {
	if b.last < d.next {
		return nil
	}
	if !d.aborts.covers(b) && len(b.payload) > 0 {
		records, err := d.read(b)
		if err != nil {
			return err
		}
		d.keep(b, records)
	}
	d.epochs = noteEpoch(d.epochs, max(b.first, d.next)+1, b.leaderEpoch)
	d.next = b.last + 1
	return nil
}

// read decompresses and decodes a batch within the budget.
func (d *recordDecoder) read(b *batch) ([]fetchedRecord, error) {
	d.budget.begin()
	if err := d.budget.claim(len(b.payload)); err != nil {
		return nil, err
	}
	raw, err := d.inflate.Decompress(b.payload, b.codec())
	switch {
	case errors.Is(err, errTooLarge):
		return nil, err
	case err != nil:
		return nil, corrupt("decompress the batch at offset %d: %v", b.first, err)
	case int(b.count) > len(raw)/leastRecord:
		return nil, corrupt("%d records in %d bytes", b.count, len(raw))
	}
	if err := d.budget.claim(len(raw) - len(b.payload) + int(b.count)*recordCost); err != nil {
		return nil, err
	}
	if d.copies && b.codec() == kgo.CodecNone {
		raw = bytes.Clone(raw)
	}
	r := recordReader{Reader: kbin.Reader{Src: raw}, batch: *b, budget: d.budget, names: d.names}
	records, err := r.all()
	d.names = r.names
	return records, err
}

// keep delivers the records from next on, and lets a control record end its producer's transaction.
func (d *recordDecoder) keep(b *batch, records []fetchedRecord) {
	if b.has(controlFlag) {
		if len(records) > 0 && isAbort(records[0].key) {
			d.aborts.end(b.producerID)
		}
		return
	}
	d.records = slices.Grow(d.records, len(records))
	for i := range records {
		if records[i].offset >= d.next {
			d.records = append(d.records, &records[i])
		}
	}
	d.bytes += d.budget.keep()
}

// isAbort reads the key of a control record: a version, then the type, 0 for abort (KIP-98).
func isAbort(key []byte) bool { return len(key) >= 4 && key[2] == 0 && key[3] == 0 }
