package wire

import (
	"errors"
	"unsafe"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/firstseen/firstseen/dedup"
)

const (
	// maxBatchBytes bounds one record batch, on its way and decompressed. A topic's max.message.bytes
	// is 1 MiB where nobody raised it.
	maxBatchBytes = 64 << 20
	// maxRecordBytes bounds what one record costs in memory, with its headers.
	maxRecordBytes = 128 << 20
)

// What a record and a header cost on top of their bytes, with the message that a record becomes. A record of 7 bytes,
// the least that there is, costs 44 times as much, so its bytes alone bound nothing.
const (
	recordCost  = int(unsafe.Sizeof(Record{}) + unsafe.Sizeof((*Record)(nil)) + unsafe.Sizeof(dedup.Message{}))
	headerCost  = int(unsafe.Sizeof(dedup.Header{}))
	leastRecord = 7 // length, attributes, two deltas, key, value and header count: a byte each
	leastHeader = 2
)

// decodeLimits bounds what decoding takes, whatever memory there is.
type decodeLimits struct {
	batchBytes int // of one batch, decompressed
	record     int // of one record in memory
}

// errNoRoom says that records did not fit beside the ones before them; a later fetch begins with them.
var errNoRoom = errors.New("no room left for a record")

// Cost is the memory of some records, until the last of them, before the offset next, is done.
type Cost struct {
	Next  int64
	Bytes int
}

// costStep is the least that is given back at once.
const costStep = 64 << 10

// Costs are in the order of the records.
type Costs []Cost

func (cs Costs) Total() (bytes int) {
	for _, c := range cs {
		bytes += c.Bytes
	}
	return bytes
}

// recordDecoder decodes the record set of one partition. It takes a batch as a whole or, where there is no room for
// that, its first records, and the next fetch begins in its midst. Of a batch that is at fault it takes nothing that
// it has not seen to be right: kgo.ProcessFetchPartition stops at a record that it cannot read and goes on with the
// next batch, which loses the records between in silence.
type recordDecoder struct {
	TopicPartition
	from    int64 // the offset asked for
	aborts  *aborts
	inflate *decompressor
	limits  decodeLimits
	room    *Room
	body    int // bytes of the answer that the set is part of

	records []*Record
	costs   Costs
	epochs  Epochs
	next    int64
	names   []dedup.Header // headers of the last record, whose names mostly come again
	fresh   Costs          // of the batch at hand
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
		if err := d.read(b); err != nil {
			return err
		}
	}
	d.moveTo(b, b.last+1)
	return nil
}

// moveTo moves next to an offset in a batch, or past it.
func (d *recordDecoder) moveTo(b *batch, next int64) {
	d.epochs.note(max(b.first, d.next)+1, b.leaderEpoch)
	d.next = next
	d.room.decoded += batchHeader + len(b.payload)
}

// read decompresses and decodes a batch.
func (d *recordDecoder) read(b *batch) error {
	in, err := d.inflate.open(b.payload, b.codec(), d.room)
	if err != nil {
		return faultOf(b, err)
	}
	defer in.close()
	r := recordReader{d: d, in: in, batch: b, known: len(d.records), costs: d.fresh[:0]}
	err = r.all()
	d.fresh = r.costs
	switch {
	case errors.Is(err, errNoRoom) && !b.has(controlFlag) && len(d.records) > r.known:
		if _, tooLarge := in.rest(); tooLarge != nil {
			r.undo()
			return faultOf(b, tooLarge)
		}
		d.moveTo(b, d.records[len(d.records)-1].Offset+1)
		r.keep()
		return err
	case err != nil:
		r.undo()
		return faultOf(b, err)
	case b.has(controlFlag): // its record ends its producer's transaction
		if len(d.records) > r.known && isAbort(d.records[r.known].Key) {
			d.aborts.end(b.producerID)
		}
		r.undo()
		return nil
	}
	r.keep()
	return nil
}

func faultOf(b *batch, err error) error {
	for _, known := range []error{errNoRoom, errTooLarge, kerr.CorruptMessage} {
		if errors.Is(err, known) {
			return err
		}
	}
	return corrupt("decompress and read the batch at offset %d: %v", b.first, err)
}

// isAbort reads the key of a control record: a version, then the type, 0 for abort (KIP-98).
func isAbort(key []byte) bool { return len(key) >= 4 && key[2] == 0 && key[3] == 0 }
