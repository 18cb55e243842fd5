// Package wiretest builds what brokers send, also what no producer of good faith would: damaged batches, and bombs.
package wiretest

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"runtime/debug"
	"runtime/metrics"
	"slices"
	"testing"

	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Codecs are producers' compressions, by name.
var Codecs = map[string]kgo.CompressionCodec{
	"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
	"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
}

// CodecTypes are the same in a batch's attributes.
var CodecTypes = map[string]kgo.CompressionCodecType{
	"none": kgo.CodecNone, "gzip": kgo.CodecGzip, "snappy": kgo.CodecSnappy,
	"lz4": kgo.CodecLz4, "zstd": kgo.CodecZstd,
}

// EncodeBatch seals a batch as a broker would: length and checksum are right whatever it holds.
func EncodeBatch(b kmsg.RecordBatch) []byte {
	b.Magic = 2
	b.Length = int32(49 + len(b.Records))
	out := b.AppendTo(nil)
	return Seal(out)
}

// Seal gives a batch the checksum of what it holds.
func Seal(batch []byte) []byte {
	binary.BigEndian.PutUint32(batch[17:], crc32.Checksum(batch[21:], crc32.MakeTable(crc32.Castagnoli)))
	return batch
}

// PlainBatch holds one record per value, from an offset on.
func PlainBatch(first int64, vs ...string) kmsg.RecordBatch {
	b := kmsg.RecordBatch{FirstOffset: first, ProducerID: -1, ProducerEpoch: -1, FirstSequence: -1}
	for i, v := range vs {
		b.Records = append(b.Records, KeyValue(i, nil, []byte(v))...)
	}
	b.NumRecords, b.LastOffsetDelta = int32(len(vs)), int32(len(vs)-1)
	return b
}

// KeyValue is a record with its length before it, as a batch holds it.
func KeyValue(delta int, key, value []byte) []byte {
	return EncodeRecord(&kmsg.Record{OffsetDelta: int32(delta), Key: key, Value: value})
}

// EncodeRecord is a record with its length before it, as a batch holds it.
func EncodeRecord(r *kmsg.Record) []byte {
	body := r.AppendTo(nil)[1:] // without its length
	return append(kbin.AppendVarint(nil, int32(len(body))), body...)
}

// Transactional marks a batch as part of a producer's transaction.
func Transactional(b kmsg.RecordBatch, producer int64) kmsg.RecordBatch {
	b.ProducerID, b.Attributes = producer, b.Attributes|0x10
	return b
}

// Marker is the control record that ends a transaction: kind 0 aborts, 1 commits.
func Marker(first, producer int64, kind byte) kmsg.RecordBatch {
	b := Transactional(kmsg.RecordBatch{FirstOffset: first, NumRecords: 1}, producer)
	b.Attributes |= 0x20
	b.Records = KeyValue(0, []byte{0, 0, 0, kind}, []byte{0, 0, 0, 0, 0, 0})
	return b
}

// RecordSet joins batches, as a fetch brings them of a partition.
func RecordSet(batches ...kmsg.RecordBatch) []byte {
	var set []byte
	for _, b := range batches {
		set = append(set, EncodeBatch(b)...)
	}
	return set
}

// BatchOf packs records into one batch, from an offset on.
func BatchOf(t testing.TB, codec string, first int64, records ...kmsg.Record) []byte {
	t.Helper()
	b := PlainBatch(first)
	for i, r := range records {
		r.OffsetDelta = int32(i)
		body := r.AppendTo(nil)[1:]
		b.Records = append(append(b.Records, kbin.AppendVarint(nil, int32(len(body)))...), body...)
	}
	b.NumRecords, b.LastOffsetDelta = int32(len(records)), int32(len(records)-1)
	if codec != "none" {
		b.Records, b.Attributes = Compress(t, Codecs[codec], b.Records), int16(CodecTypes[codec])
	}
	return RecordSet(b)
}

// Bomb is a batch of so many records of 1 MiB of zeros.
func Bomb(t testing.TB, codec string, mebibytes int) []byte {
	t.Helper()
	bomb := make([]kmsg.Record, mebibytes)
	for i := range bomb {
		bomb[i].Value = make([]byte, 1<<20)
	}
	return BatchOf(t, codec, 0, bomb...)
}

// Usual are records as most producers send them: a key, 300 bytes, and a UUID's text as message ID.
func Usual(n int) []kmsg.Record {
	rs := make([]kmsg.Record, n)
	for i := range rs {
		rs[i] = kmsg.Record{Key: fmt.Append(nil, "key-", i), Value: bytes.Repeat([]byte{byte(i)}, 300),
			Headers: []kmsg.Header{{Key: "message-id", Value: []byte(uuid.NewString())}}}
	}
	return rs
}

// Under is a batch that a leader of an epoch took in.
func Under(epoch int32, b kmsg.RecordBatch) kmsg.RecordBatch {
	b.PartitionLeaderEpoch = epoch
	return b
}

// Compress compresses as producers do.
func Compress(t testing.TB, codec kgo.CompressionCodec, raw []byte) []byte {
	t.Helper()
	c, err := kgo.DefaultCompressor(codec)
	if err != nil {
		t.Fatal(err)
	}
	out, _ := c.Compress(new(bytes.Buffer), raw)
	return bytes.Clone(out)
}

// Allocated counts the bytes that a function allocates, with whatever else runs meanwhile.
func Allocated(do func()) int {
	sample := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(sample)
	before := sample[0].Value.Uint64()
	do()
	metrics.Read(sample)
	return int(sample[0].Value.Uint64() - before)
}

// SkipUnderRace skips tests of what is allocated: the race detector allocates too, and has pools forget.
func SkipUnderRace(t *testing.T) {
	t.Helper()
	info, ok := debug.ReadBuildInfo()
	if ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"}) {
		t.Skip("the race detector is on")
	}
}
