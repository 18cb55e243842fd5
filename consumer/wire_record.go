package consumer

import (
	"time"

	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kgo"
)

// recordReader reads the records of one decompressed batch. Keys and values alias the batch.
// It checks what Kafka's DefaultRecord checks, and that offsets rise within the batch's bounds.
type recordReader struct {
	kbin.Reader
	topicPartition
	batch  *batch
	budget *budget
	names  []kgo.RecordHeader // headers of the record before, whose names mostly come again
}

// all reads as many records as the batch claims to hold, which its size allows.
func (r *recordReader) all() ([]kgo.Record, error) {
	records := make([]kgo.Record, r.batch.count)
	after := r.batch.first - 1
	for i := range records {
		if err := r.one(&records[i]); err != nil {
			return nil, err
		}
		if at := records[i].Offset; at <= after || at > r.batch.last {
			return nil, corrupt("offset %d behind %d in the batch from %d to %d", at, after, r.batch.first, r.batch.last)
		}
		after = records[i].Offset
	}
	if len(r.Src) > 0 {
		return nil, corrupt("%d bytes behind the records of the batch at offset %d", len(r.Src), r.batch.first)
	}
	return records, nil
}

// one reads a record: length, attributes (unused), timestamp and offset delta, key, value, headers.
func (r *recordReader) one(to *kgo.Record) error {
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
	*to = kgo.Record{
		Key:           key,
		Value:         value,
		Headers:       headers,
		Timestamp:     time.UnixMilli(timestamp),
		Topic:         r.topic,
		Partition:     r.partition,
		ProducerEpoch: r.batch.producerEpoch,
		ProducerID:    r.batch.producerID,
		LeaderEpoch:   r.batch.leaderEpoch,
		Offset:        offset,
	}
	return nil
}

func (r *recordReader) headers(in *kbin.Reader) ([]kgo.RecordHeader, error) {
	n := int(in.Varint())
	if n < 0 || n > len(in.Src)/leastHeader {
		return nil, corrupt("%d headers in %d bytes", n, len(in.Src))
	}
	if n == 0 {
		return nil, nil
	}
	if err := r.budget.claim(n * headerCost); err != nil {
		return nil, err
	}
	headers := make([]kgo.RecordHeader, n)
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

// name sets a header's name, without a copy where the record before has the same at its place.
func (r *recordReader) name(to *kgo.RecordHeader, i int, name []byte) error {
	if i < len(r.names) && r.names[i].Key == string(name) {
		to.Key = r.names[i].Key
		return nil
	}
	to.Key = string(name)
	return r.budget.claim(len(name))
}
