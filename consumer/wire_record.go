package consumer

import (
	"github.com/twmb/franz-go/pkg/kbin"

	"github.com/firstseen/firstseen/dedup"
)

// fetchedRecord is one record of a partition. Its bytes are those of the response, or of the batch where that was
// compressed.
type fetchedRecord struct {
	offset     int64
	timestamp  int64  // milliseconds since 1970
	key, value []byte // nil where they are null
	headers    []dedup.Header
}

// recordReader reads the records of one decompressed batch. Keys and values alias the batch.
// It checks what Kafka's DefaultRecord checks, and that offsets rise within the batch's bounds.
type recordReader struct {
	kbin.Reader
	batch  batch
	budget *budget
	names  []dedup.Header // headers of the record before, whose names mostly come again
	slab   []dedup.Header // for the records to come
	left   int            // records to come, the one at hand among them
}

// all reads as many records as the batch claims to hold, which its size allows.
func (r *recordReader) all() ([]fetchedRecord, error) {
	records := make([]fetchedRecord, r.batch.count)
	after := r.batch.first - 1
	for i := range records {
		r.left = len(records) - i
		if err := r.one(&records[i]); err != nil {
			return nil, err
		}
		if at := records[i].offset; at <= after || at > r.batch.last {
			return nil, corrupt("offset %d behind %d in the batch from %d to %d", at, after, r.batch.first, r.batch.last)
		}
		after = records[i].offset
	}
	if len(r.Src) > 0 {
		return nil, corrupt("%d bytes behind the records of the batch at offset %d", len(r.Src), r.batch.first)
	}
	return records, nil
}

// one reads a record: length, attributes (unused), timestamp and offset delta, key, value, headers.
func (r *recordReader) one(to *fetchedRecord) error {
	in := kbin.Reader{Src: r.Span(int(r.Varint()))}
	in.Int8()
	timestamp := r.batch.firstTimestamp + in.Varlong()
	if r.batch.has(appendTimeFlag) {
		timestamp = r.batch.maxTimestamp
	}
	offset := r.batch.first + int64(in.Varint())
	key, value := in.VarintBytes(), in.VarintBytes()
	headers, err := r.headers(&in)
	switch {
	case err != nil:
		return err
	case !r.Ok() || !in.Ok() || len(in.Src) > 0:
		return corrupt("a malformed record in the batch at offset %d", r.batch.first)
	}
	*to = fetchedRecord{offset: offset, timestamp: timestamp, key: key, value: value, headers: headers}
	return nil
}

func (r *recordReader) headers(in *kbin.Reader) ([]dedup.Header, error) {
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
	r.names = headers
	return headers, nil
}

// slabHeaders bounds the headers that are allocated before they are there.
const slabHeaders = 256

// cut gives n headers of a slab, which holds those of the records to come too where they have as many.
func (r *recordReader) cut(n int) ([]dedup.Header, error) {
	if n > len(r.slab) {
		size := max(n, min(n*r.left, slabHeaders))
		if err := r.budget.claim(size * headerCost); err != nil {
			return nil, err
		}
		r.slab = make([]dedup.Header, size)
	}
	headers := r.slab[:n:n]
	r.slab = r.slab[n:]
	return headers, nil
}

// name sets a header's name, without a copy where the record before has the same at its place.
func (r *recordReader) name(to *dedup.Header, i int, name []byte) error {
	if i < len(r.names) && r.names[i].Key == string(name) {
		to.Key = r.names[i].Key
		return nil
	}
	to.Key = string(name)
	return r.budget.claim(len(name))
}
