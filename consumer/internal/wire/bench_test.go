package wire

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/firstseen/firstseen/consumer/internal/wire/wiretest"
)

// BenchmarkFetch fetches and decodes batches of 1,000 records of 300 bytes from a kfake in this process,
// which shares the processors.
func BenchmarkFetch(b *testing.B) {
	for _, codec := range []string{"none", "snappy", "lz4", "zstd"} {
		b.Run(codec, func(b *testing.B) {
			w := newFakeWire(b, kfake.NumBrokers(1), kfake.SeedTopics(1, "orders"),
				kfake.SyntheticFetch(kfake.SyntheticBatch{
					Records: 1000, RecordBytes: 300, RandomFrac: .3, Compression: wiretest.Codecs[codec],
				}))
			leader, part := w.at(b, "orders", 0)
			opts := FetchOptions{MaxWait: time.Second, MinBytes: 1, MaxBytes: 4 << 20}
			part.MaxBytes = opts.MaxBytes
			records := 0
			b.ReportAllocs()
			for b.Loop() {
				got, err := w.one(b.Context(), leader, part, opts)
				if err != nil {
					b.Fatal(err)
				}
				records += len(got.Records)
				part.Offset = got.Next
			}
			b.ReportMetric(float64(records)/b.Elapsed().Seconds(), "records/s")
		})
	}
}

// BenchmarkDecode is the decoder alone, on a record set of 1,000 records of 300 bytes.
func BenchmarkDecode(b *testing.B) {
	value := make([]byte, 300)
	vs := make([]string, 1000)
	for i := range vs {
		vs[i] = string(value)
	}
	set := wiretest.RecordSet(wiretest.PlainBatch(0, vs...))
	var last []*Record
	b.ReportAllocs()
	for b.Loop() {
		d, err := decodeSet(set, 0)
		if err != nil {
			b.Fatal(err)
		}
		last = d.records
	}
	b.ReportMetric(float64(len(last)*b.N)/b.Elapsed().Seconds(), "records/s")
}
