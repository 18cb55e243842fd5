package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/memory"
)

// Record is one record of a partition. Its bytes lie with those of the records around it.
type Record struct {
	Offset     int64
	Timestamp  int64  // milliseconds since 1970
	Key, Value []byte // nil where they are null
	Headers    []dedup.Header
}

// Size is the record's part of a batch's limit in bytes.
func (r *Record) Size() int {
	n := len(r.Key) + len(r.Value)
	for i := range r.Headers {
		n += len(r.Headers[i].Key) + len(r.Headers[i].Value)
	}
	return n
}

const (
	// slabBytes is the size of a slab, which holds the records to come; a larger record has a slab of its own.
	slabBytes = 256 << 10
	// slabRecords and slabHeaders bound what is allocated before it is there.
	slabRecords = 512
	slabHeaders = 256
)

// recordReader reads the records of one batch into the decoder, as far as there is room.
// It checks what Kafka's DefaultRecord checks, and that offsets rise within the batch's bounds.
type recordReader struct {
	d     *recordDecoder
	in    *source
	batch *batch
	known int // records of the batches before

	left    int // records to come, the one at hand among them
	slab    []byte
	records []Record       // allocated, for the records to come
	headers []dedup.Header // likewise
	costs   Costs
}

// all reads as many records as the batch claims to hold.
func (r *recordReader) all() error {
	after := r.batch.first - 1
	for r.left = int(r.batch.count); r.left > 0; r.left-- {
		offset, err := r.one()
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return corrupt("%d records are missing in the batch at offset %d", r.left, r.batch.first)
		}
		if err != nil {
			return err
		}
		if offset <= after || offset > r.batch.last {
			return corrupt("offset %d behind %d in the batch from %d to %d",
				offset, after, r.batch.first, r.batch.last)
		}
		after = offset
	}
	switch n, err := r.in.rest(); {
	case err != nil:
		return err
	case n > 0:
		return corrupt("%d bytes behind the records of the batch at offset %d", n, r.batch.first)
	}
	return nil
}

// one reads a record, or moves over one that lies before the offset that was asked for.
func (r *recordReader) one() (offset int64, err error) {
	size, err := r.in.varint()
	if err != nil {
		return 0, err
	}
	if size < leastRecord-1 {
		return 0, corrupt("a record of %d bytes in the batch at offset %d", size, r.batch.first)
	}
	if offset, err = r.offset(size); err != nil {
		return 0, err
	}
	if offset < r.d.next {
		return offset, r.in.skip(size)
	}
	body, err := r.body(size)
	if err != nil {
		return 0, err
	}
	to, err := r.record()
	if err != nil {
		return 0, err
	}
	if err := r.parse(body, to); err != nil {
		return 0, err
	}
	r.d.records = append(r.d.records, to)
	r.costs[len(r.costs)-1].Next = to.Offset + 1
	return to.Offset, nil
}

// offset looks at the offset of a record that begins here.
func (r *recordReader) offset(size int) (int64, error) {
	head, err := r.in.peek(min(size, 1+binary.MaxVarintLen64+binary.MaxVarintLen32))
	if err != nil {
		return 0, err
	}
	in := kbin.Reader{Src: head}
	in.Int8()
	in.Varlong()
	offset := r.batch.first + int64(in.Varint())
	if !in.Ok() {
		return 0, io.ErrUnexpectedEOF
	}
	return offset, nil
}

// body reads the bytes of a record, of which there are size.
func (r *recordReader) body(size int) ([]byte, error) {
	if err := r.in.has(size); err != nil {
		return nil, err
	}
	if r.batch.codec() == kgo.CodecNone && size > r.d.body/2 { // it keeps the whole answer instead of being copied
		if bytes := r.d.room.keepBody(); bytes > 0 {
			r.charge(bytes, true)
			body := r.in.data[:size:size]
			return body, r.in.skip(size)
		}
	}
	if size > len(r.slab) {
		if err := r.newSlab(size); err != nil {
			return nil, err
		}
	}
	body := r.slab[:size:size]
	r.slab = r.slab[size:]
	return body, r.in.read(body)
}

// newSlab allocates room for a record, and for those to come where they are as large.
func (r *recordReader) newSlab(size int) error {
	n := max(size, min(size*r.left, slabBytes))
	if !r.in.streams {
		n = max(size, min(n, len(r.in.data)))
	}
	if !r.d.room.claim(n) {
		if n = size; !r.d.room.claim(n) {
			return r.d.room.lack(n + recordCost)
		}
	}
	r.charge(n, true)
	r.slab = memory.Bytes(n)
	return nil
}

// charge notes what was claimed: with what goes before, or as something that is given back by itself.
func (r *recordReader) charge(n int, anew bool) {
	if last := len(r.costs) - 1; last >= 0 && (!anew || r.costs[last].Bytes < costStep) {
		r.costs[last].Bytes += n
		return
	}
	r.costs = append(r.costs, Cost{Bytes: n})
}

// record gives one of a slab of records.
func (r *recordReader) record() (*Record, error) {
	if len(r.records) == 0 {
		n := min(r.left, slabRecords)
		if !r.d.room.claim(n * recordCost) {
			if n = 1; !r.d.room.claim(recordCost) {
				return nil, r.d.room.lack(recordCost)
			}
		}
		r.charge(n*recordCost, false)
		r.records = make([]Record, n)
	}
	to := &r.records[0]
	r.records = r.records[1:]
	return to, nil
}

// parse reads a record: attributes (unused), timestamp and offset delta, key, value, headers.
func (r *recordReader) parse(body []byte, to *Record) error {
	in := kbin.Reader{Src: body}
	in.Int8()
	timestamp := r.batch.firstTimestamp + in.Varlong()
	if r.batch.has(appendTimeFlag) {
		timestamp = r.batch.maxTimestamp
	}
	offset := r.batch.first + int64(in.Varint())
	key, value := in.VarintBytes(), in.VarintBytes()
	headers, err := r.readHeaders(&in)
	switch {
	case err != nil:
		return err
	case !in.Ok() || len(in.Src) > 0:
		return corrupt("a malformed record in the batch at offset %d", r.batch.first)
	}
	*to = Record{Offset: offset, Timestamp: timestamp, Key: key, Value: value, Headers: headers}
	return nil
}

func (r *recordReader) readHeaders(in *kbin.Reader) ([]dedup.Header, error) {
	n := int(in.Varint())
	if n < 0 || n > len(in.Src)/leastHeader {
		return nil, corrupt("%d headers in %d bytes", n, len(in.Src))
	}
	if n == 0 {
		return nil, nil
	}
	headers, err := r.cut(n)
	if err != nil {
		return nil, err
	}
	for i := range headers {
		name := in.VarintBytes()
		if name == nil {
			return nil, corrupt("a header without a name in the batch at offset %d", r.batch.first)
		}
		if err := r.name(&headers[i], i, name); err != nil {
			return nil, err
		}
		headers[i].Value = in.VarintBytes()
	}
	r.d.names = headers
	return headers, nil
}

// cut gives n headers of a slab, which holds those of the records to come too where they have as many.
func (r *recordReader) cut(n int) ([]dedup.Header, error) {
	if most := r.d.limits.record; n*headerCost > most {
		return nil, fmt.Errorf("%w: a record with %d headers, which take more than %d bytes", errTooLarge, n, most)
	}
	if n > len(r.headers) {
		size := max(n, min(n*r.left, slabHeaders))
		if !r.d.room.claim(size * headerCost) {
			return nil, r.d.room.lack(size * headerCost)
		}
		r.charge(size*headerCost, false)
		r.headers = make([]dedup.Header, size)
	}
	headers := r.headers[:n:n]
	r.headers = r.headers[n:]
	return headers, nil
}

// name sets a header's name, without a copy where the record before has the same at its place.
func (r *recordReader) name(to *dedup.Header, i int, name []byte) error {
	if i < len(r.d.names) && r.d.names[i].Key == string(name) {
		to.Key = r.d.names[i].Key
		return nil
	}
	if !r.d.room.claim(len(name)) {
		return r.d.room.lack(len(name))
	}
	r.charge(len(name), false)
	to.Key = string(name)
	return nil
}

// keep hands the costs of what was read over to the decoder.
func (r *recordReader) keep() {
	for _, c := range r.costs {
		if last := len(r.d.costs) - 1; last >= 0 && r.d.costs[last].Bytes+c.Bytes <= costStep {
			c.Bytes += r.d.costs[last].Bytes
			r.d.costs[last] = c
		} else {
			r.d.costs = append(r.d.costs, c)
		}
	}
}

// undo takes the batch's records back, and what they cost.
func (r *recordReader) undo() {
	clear(r.d.records[r.known:])
	r.d.records = r.d.records[:r.known]
	r.d.room.Release(r.costs.Total())
}
