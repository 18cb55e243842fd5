package wire

import (
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/segmentio/kafka-go"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/firstseen/firstseen/consumer/consumertest"
	"github.com/firstseen/firstseen/consumer/internal/wire/wiretest"
)

// writeSeeds fetches topics of the broker that FIRSTSEEN_TEST_KAFKA names and keeps the raw responses as
// seeds. The java-* ones were written with Kafka's own console producer:
//
//	seq 1 200 | sed 's/.*/key-&\tvalue-&.../' | kafka-console-producer --topic java-zstd --compression-codec zstd
var writeSeeds = flag.String("write-seeds", "", "topics, with commas between, to write as fuzz seeds")

// inflexible is the last version before the flexible encoding.
const inflexible = 11

const seedFolder = "testdata/fuzz/FuzzFetchResponse"

func TestWriteFuzzSeeds(t *testing.T) {
	if *writeSeeds == "" {
		t.Skip("no -write-seeds")
	}
	w := newTestWire(t, consumertest.Kafka(t), &kafka.Transport{})
	require.NoError(t, os.MkdirAll(seedFolder, 0o755))
	for topic := range strings.SplitSeq(*writeSeeds, ",") {
		leader, part := w.at(t, topic, 0)
		for _, latest := range []int16{inflexible, fetchByID} {
			body, err := w.do(t.Context(), Call{
				Broker: leader, Request: fetchRequest([]FetchPartition{part}, eager), Min: latest, Max: latest,
				limit: 1 << 20, wait: time.Second,
			})
			require.NoError(t, err)
			seed := fmt.Sprintf("go test fuzz v1\nint16(%d)\n[]byte(%q)\n", latest, body)
			name := fmt.Sprintf("%s-v%d", topic, latest)
			require.NoError(t, os.WriteFile(filepath.Join(seedFolder, name), []byte(seed), 0o644))
		}
	}
}

// readSeed reads what TestWriteFuzzSeeds wrote.
func readSeed(t testing.TB, name string) (version int16, body []byte) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(seedFolder, name))
	require.NoError(t, err)
	_, err = fmt.Sscanf(string(text), "go test fuzz v1\nint16(%d)\n[]byte(%q)\n", &version, &body)
	require.NoError(t, err)
	return version, body
}

func TestDecodeReadsWhatTheJavaProducerWrote(t *testing.T) {
	for codec := range wiretest.Codecs {
		for _, version := range []int16{inflexible, fetchByID} {
			name := fmt.Sprintf("java-%s-v%d", codec, version)
			t.Run(name, func(t *testing.T) {
				version, body := readSeed(t, name)
				answer, err := readFetchResponse(body, version)
				require.NoError(t, err)
				d, err := decodeSet(answer.partitions[0].records, 0)
				require.NoError(t, err)
				require.Len(t, d.records, 200)
				for i, r := range d.records {
					require.EqualValues(t, i, r.Offset)
					require.Equal(t, fmt.Sprint("key-", i+1), string(r.Key))
					require.True(t, strings.HasPrefix(string(r.Value), fmt.Sprintf("value-%d-abc", i+1)))
				}
			})
		}
	}
}

// fuzzMemory is what decoding may allocate with testLimits: buffers that double, wiretest.Codecs' own tables, and
// zstd up to its widest window.
const fuzzMemory = 2*zstdWindow + 32<<20

func FuzzFetchResponse(f *testing.F) {
	w := New(nil, nil, "", 0)
	w.limits, w.inflate = testLimits, newDecompressor(testLimits.batchBytes)
	f.Fuzz(func(t *testing.T, version int16, body []byte) {
		version = max(fetchOldest, min(version, fetchByID))
		var got []Fetched
		var err error
		grown := wiretest.Allocated(func() { got, err = w.decodeAnswer(body, version) })
		if limit := fuzzMemory + 16*len(body); grown > limit {
			t.Fatalf("decoding %d bytes allocated %d, more than %d", len(body), grown, limit)
		}
		if err == nil {
			checkFetched(t, got[0], 3)
		}
	})
}

// decodeAnswer decodes a body as the answer for its own first partition, from offset 3 on.
func (w *Client) decodeAnswer(body []byte, version int16) ([]Fetched, error) {
	answer, err := readFetchResponse(body, version)
	if err != nil {
		return nil, err
	}
	part := FetchPartition{Topic: "orders", TopicID: uuid.UUID{1}, Offset: 3}
	if len(answer.partitions) > 0 {
		first := answer.partitions[0]
		part.Topic, part.TopicID, part.Partition = first.topic, first.topicID, first.partition
	}
	return w.decode([]FetchPartition{part}, answer, &Room{free: 4 << 20}, len(body)), nil
}

// checkFetched checks what a caller relies on, whatever the broker sent.
func checkFetched(t *testing.T, got Fetched, from int64) {
	t.Helper()
	last := from - 1
	for _, r := range got.Records {
		if r.Offset <= last {
			t.Fatalf("offset %d behind %d", r.Offset, last)
		}
		last = r.Offset
	}
	switch {
	case got.Next <= last || got.Next < from:
		t.Fatalf("next is %d, from %d, last %d", got.Next, from, last)
	case got.Err != nil && (len(got.Records) > 0 || got.Next != from):
		t.Fatalf("%d records, next %d from %d, and an error: %v", len(got.Records), got.Next, from, got.Err)
	}
}

// FuzzRecordBatch reaches past the checksum: it seals whatever payload it is given, between two good
// batches, and compares with what kgo makes of the same bytes.
func FuzzRecordBatch(f *testing.F) {
	for _, codec := range []string{"none", "gzip", "snappy", "lz4", "zstd"} {
		packed := wiretest.PlainBatch(0, "a", "b", "").Records
		if codec != "none" {
			packed = wiretest.Compress(f, wiretest.Codecs[codec], packed)
		}
		f.Add(int16(wiretest.CodecTypes[codec]), int32(3), int32(2), packed)
	}
	f.Add(int16(transactionFlag|controlFlag), int32(1), int32(0), wiretest.Marker(0, 7, 0).Records)
	f.Add(int16(0), int32(0), int32(5), []byte{})
	f.Fuzz(func(t *testing.T, attributes int16, count, delta int32, payload []byte) {
		attributes &^= 0x80 // reserved, and kgo's own mark of a record without a timestamp
		middle := kmsg.RecordBatch{FirstOffset: 2, Attributes: attributes, NumRecords: count, LastOffsetDelta: delta,
			ProducerID: 7, Records: payload}
		behind := 3 + int64(max(0, delta))
		set := wiretest.RecordSet(wiretest.PlainBatch(0, "x", "y"), middle, wiretest.PlainBatch(behind, "z"))
		var d *recordDecoder
		var err error
		grown := wiretest.Allocated(func() { d, err = decodeSet(set, 1) })
		if grown > fuzzMemory {
			t.Fatalf("allocated %d bytes", grown)
		}
		require.NoError(t, err, "a fault in the middle leaves what is before it")
		checkFetched(t, Fetched{Records: d.records, Next: d.next}, 1)
		switch d.next {
		case 2: // the middle is at fault, and the next fetch says so
			again, err := decodeSet(set[len(wiretest.RecordSet(wiretest.PlainBatch(0, "x", "y"))):], 2)
			if err == nil || len(again.records) > 0 || again.next != 2 {
				t.Fatalf("a fault is passed over: next %d, error %v", again.next, err)
			}
		case behind + 1:
			if len(payload) > 0 { // where there is none kgo looks for a codec all the same
				requireAsKgo(t, set, d)
			}
		default:
			t.Fatalf("next is %d", d.next)
		}
	})
}

// requireAsKgo compares with kgo, which takes all that is taken here, and more.
func requireAsKgo(t *testing.T, set []byte, d *recordDecoder) {
	t.Helper()
	want, next := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{
		Offset: 1, Topic: d.Topic, Partition: d.Partition, IsolationLevel: kgo.ReadCommitted(),
	}, &kmsg.FetchResponseTopicPartition{Partition: d.Partition, RecordBatches: slices.Clone(set)}, d.inflate, nil)
	require.NoError(t, want.Err)
	require.Equal(t, next, d.next)
	records := fetchedOf(want.Records)
	require.Len(t, d.records, len(records))
	for i, r := range d.records {
		if r.Timestamp > math.MaxInt64/1_000_000 || r.Timestamp < math.MinInt64/1_000_000 {
			records[i].Timestamp = r.Timestamp // kgo counts in nanoseconds
		}
	}
	require.Equal(t, records, d.records)
}

func TestErrorsOfTheDecoderAreKafkasOwn(t *testing.T) {
	require.ErrorIs(t, corrupt("x"), kerr.CorruptMessage)
	require.ErrorIs(t, errTooLarge, kerr.MessageTooLarge)
}
