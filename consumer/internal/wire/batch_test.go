package wire

import (
	"bytes"
	"encoding/binary"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/firstseen/firstseen/consumer/internal/wire/wiretest"
)

var testLimits = decodeLimits{batchBytes: 1 << 20, record: 4 << 20}

func decodeSet(set []byte, from int64, aborted ...abortedTransaction) (*recordDecoder, error) {
	d := &recordDecoder{
		TopicPartition: TopicPartition{"orders", 3},
		from:           from, next: from,
		aborts:  newAborts(aborted),
		inflate: newDecompressor(testLimits.batchBytes),
		limits:  testLimits,
		room:    &Room{free: testLimits.record},
	}
	return d, d.decode(set)
}

func TestDecodeLeavesAPartialLastBatchForLater(t *testing.T) {
	first, whole := len(wiretest.RecordSet(wiretest.PlainBatch(5, "a", "b"))),
		wiretest.RecordSet(wiretest.PlainBatch(5, "a", "b"), wiretest.PlainBatch(7, "c"))
	for cut := first; cut < len(whole); cut++ {
		d, err := decodeSet(whole[:cut], 5)
		require.NoError(t, err)
		require.Equal(t, []string{"a", "b"}, valuesOf(d.records))
		require.EqualValues(t, 7, d.next)
	}
}

func TestDecodeOfNoWholeBatchIsAnErrorAndNoStandstill(t *testing.T) {
	whole := wiretest.RecordSet(wiretest.PlainBatch(5, "a", "b"))
	for cut := 1; cut < len(whole); cut++ {
		d, err := decodeSet(whole[:cut], 5)
		require.ErrorIs(t, err, kerr.CorruptMessage)
		require.EqualValues(t, 5, d.next)
	}
	_, err := decodeSet(nil, 5)
	require.NoError(t, err)
}

func TestDecodeNeverSkipsADamagedBatch(t *testing.T) {
	good, after := wiretest.RecordSet(wiretest.PlainBatch(0, "a", "b")),
		wiretest.RecordSet(wiretest.PlainBatch(3, "d"))
	damages := map[string]func(b []byte) []byte{
		"checksum":        func(b []byte) []byte { b[len(b)-2] ^= 1; return b },
		"unknown format":  func(b []byte) []byte { b[16] = 3; return b },
		"old format":      func(b []byte) []byte { b[16] = 1; return b },
		"short length":    func(b []byte) []byte { binary.BigEndian.PutUint32(b[8:], 48); return b },
		"negative length": func(b []byte) []byte { binary.BigEndian.PutUint32(b[8:], 1<<31); return b },
		"huge length":     func(b []byte) []byte { binary.BigEndian.PutUint32(b[8:], 1<<31-1); return b },
		"negative count": func(b []byte) []byte {
			binary.BigEndian.PutUint32(b[57:], 1<<31)
			return wiretest.Seal(b)
		},
		"high count": func(b []byte) []byte {
			binary.BigEndian.PutUint32(b[57:], 1<<31-1)
			return wiretest.Seal(b)
		},
		"count below":     func(b []byte) []byte { binary.BigEndian.PutUint32(b[57:], 1); return wiretest.Seal(b) },
		"count above":     func(b []byte) []byte { binary.BigEndian.PutUint32(b[57:], 3); return wiretest.Seal(b) },
		"count none":      func(b []byte) []byte { binary.BigEndian.PutUint32(b[57:], 0); return wiretest.Seal(b) },
		"last below":      func(b []byte) []byte { binary.BigEndian.PutUint32(b[23:], 0); return wiretest.Seal(b) },
		"negative first":  func(b []byte) []byte { b[0] = 0x80; return b },
		"unknown codec":   func(b []byte) []byte { b[22] |= 7; return wiretest.Seal(b) },
		"not gzip":        func(b []byte) []byte { b[22] |= 1; return wiretest.Seal(b) },
		"not snappy":      func(b []byte) []byte { b[22] |= 2; return wiretest.Seal(b) },
		"not lz4":         func(b []byte) []byte { b[22] |= 3; return wiretest.Seal(b) },
		"not zstd":        func(b []byte) []byte { b[22] |= 4; return wiretest.Seal(b) },
		"record length":   func(b []byte) []byte { b[61] = 0x7e; return wiretest.Seal(b) },
		"negative record": func(b []byte) []byte { b[61] = 1; return wiretest.Seal(b) },
		"value length":    func(b []byte) []byte { b[66] = 0x7e; return wiretest.Seal(b) },
		"many headers":    func(b []byte) []byte { b[69] = 0x7e; return wiretest.Seal(b) },
		"minus 1 headers": func(b []byte) []byte { b[69] = 1; return wiretest.Seal(b) },
	}
	for name, damage := range damages {
		t.Run(name, func(t *testing.T) {
			bad := damage(wiretest.RecordSet(wiretest.PlainBatch(2, "x", "yy")))
			d, err := decodeSet(slices.Concat(good, bad, after), 0)
			require.NoError(t, err, "what is good comes first")
			require.Equal(t, []string{"a", "b"}, valuesOf(d.records))
			require.EqualValues(t, 2, d.next)

			d, err = decodeSet(slices.Concat(bad, after), 2)
			require.Error(t, err)
			require.Empty(t, d.records)
			require.EqualValues(t, 2, d.next)
		})
	}
}

// This is why the records are not decoded by kgo: the records at 2 and 3 are lost without an error.
func TestKgoSkipsARecordThatItCannotRead(t *testing.T) {
	bad := wiretest.RecordSet(wiretest.PlainBatch(2, "x", "yy"))
	bad[66] = 0x7e // the value's length
	set := slices.Concat(wiretest.RecordSet(wiretest.PlainBatch(0, "a", "b")), wiretest.Seal(bad),
		wiretest.RecordSet(wiretest.PlainBatch(4, "d")))
	got, next := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{IsolationLevel: kgo.ReadCommitted()},
		&kmsg.FetchResponseTopicPartition{RecordBatches: set}, kgo.DefaultDecompressor(), nil)
	require.NoError(t, got.Err)
	require.Equal(t, []string{"a", "b", "d"}, valuesOf(fetchedOf(got.Records)))
	require.EqualValues(t, 5, next)
}

func TestDecodeHidesAbortedTransactionsOnly(t *testing.T) {
	set := wiretest.RecordSet(
		wiretest.Transactional(wiretest.PlainBatch(0, "aborted of 7"), 7),
		wiretest.Transactional(wiretest.PlainBatch(1, "committed of 8"), 8),
		wiretest.PlainBatch(2, "plain of 7"),
		wiretest.Marker(3, 7, 0), wiretest.Marker(4, 8, 1),
		wiretest.Transactional(wiretest.PlainBatch(5, "committed of 7"), 7), wiretest.Marker(6, 7, 1),
		wiretest.Transactional(wiretest.PlainBatch(7, "aborted of 7 again"), 7), wiretest.Marker(8, 7, 0),
	)
	// In the order of Redpanda, which is none.
	d, err := decodeSet(set, 0, abortedTransaction{7, 7}, abortedTransaction{7, 0})
	require.NoError(t, err)
	require.Equal(t, []string{"committed of 8", "plain of 7", "committed of 7"}, valuesOf(d.records))
	require.EqualValues(t, 9, d.next)
}

func TestDecodeMovesOnWithoutRecords(t *testing.T) {
	emptied := wiretest.PlainBatch(4)
	emptied.LastOffsetDelta = 9
	for name, set := range map[string][]byte{
		"emptied by compaction": wiretest.RecordSet(emptied),
		"tail removed": wiretest.RecordSet(func() kmsg.RecordBatch {
			b := wiretest.PlainBatch(0,
				"a")
			b.LastOffsetDelta = 13
			return b
		}()),
		"control": wiretest.RecordSet(wiretest.Marker(13, 1, 1)),
	} {
		t.Run(name, func(t *testing.T) {
			d, err := decodeSet(set, 8)
			require.NoError(t, err)
			require.Empty(t, d.records)
			require.EqualValues(t, 14, d.next)
		})
	}
}

func TestDecodeUsesTheBrokersTimeWhereTheTopicDoes(t *testing.T) {
	b := wiretest.PlainBatch(0, "a")
	b.FirstTimestamp, b.MaxTimestamp = 1000, 5000
	d, err := decodeSet(wiretest.RecordSet(b), 0)
	require.NoError(t, err)
	require.EqualValues(t, 1000, d.records[0].Timestamp)
	b.Attributes |= appendTimeFlag
	d, err = decodeSet(wiretest.RecordSet(b), 0)
	require.NoError(t, err)
	require.EqualValues(t, 5000, d.records[0].Timestamp)
}

// The least record takes 7 bytes, and 44 times that as an object and the message that it becomes.
func TestDecodeTakesTinyRecordsInParts(t *testing.T) {
	const n, each = 40_000, 50 // a batch's offset deltas have one byte
	var set []byte
	for first := 0; first < n; first += each {
		b := kmsg.RecordBatch{FirstOffset: int64(first), Attributes: 4, NumRecords: each, LastOffsetDelta: each - 1}
		var tiny []byte
		for i := range byte(each) {
			tiny = append(tiny, 12, 0, 0, 2*i, 1, 1, 0)
		}
		b.Records = wiretest.Compress(t, kgo.ZstdCompression(), tiny)
		set = append(set, wiretest.RecordSet(b)...)
	}
	next, parts := int64(0), 0
	for ; next < n; parts++ {
		var d *recordDecoder
		var err error
		grown := wiretest.Allocated(func() { d, err = decodeSet(set, next) })
		require.NoError(t, err)
		require.Less(t, grown, 16<<20)
		require.LessOrEqual(t, d.costs.Total(), testLimits.record)
		require.Equal(t, next, d.records[0].Offset)
		next = d.records[len(d.records)-1].Offset + 1
	}
	require.Greater(t, parts, 2)
}

func TestDecodeTakesALargeBatchInParts(t *testing.T) {
	for name := range wiretest.Codecs {
		t.Run(name, func(t *testing.T) {
			const n = 900
			rs := make([]kmsg.Record, n)
			for i := range rs {
				rs[i].Value = bytes.Repeat([]byte{byte(i)}, 500+i)
			}
			set := wiretest.BatchOf(t, name, 5, rs...)
			next, parts := int64(5), 0
			for ; next < n+5; parts++ {
				d := &recordDecoder{from: next, next: next, aborts: newAborts(nil), inflate: newDecompressor(2 << 20),
					limits: testLimits, room: &Room{free: 250_000}}
				require.NoError(t, d.decode(set))
				for i, r := range d.records {
					require.EqualValues(t, next+int64(i), r.Offset)
					require.Equal(t, rs[r.Offset-5].Value, r.Value)
				}
				require.NotEmpty(t, d.records)
				next += int64(len(d.records))
				require.Equal(t, next, d.next)
			}
			require.GreaterOrEqual(t, parts, 4)
		})
	}
}

// What can't be known of a batch that is taken in parts is found out before the first of them.
func TestDecodeTakesNoPartOfABatchThatIsTooLarge(t *testing.T) {
	bomb := make([]kmsg.Record, 100)
	for i := range bomb {
		bomb[i].Value = make([]byte, 1<<20)
	}
	for name := range wiretest.Codecs {
		if name == "none" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			set := wiretest.BatchOf(t, name, 0, bomb...)
			d := &recordDecoder{aborts: newAborts(nil), inflate: newDecompressor(64 << 20), limits: testLimits,
				room: &Room{free: 12 << 20}}
			var err error
			grown := wiretest.Allocated(func() { err = d.decode(set) })
			require.ErrorIs(t, err, kerr.MessageTooLarge)
			require.Empty(t, d.records)
			require.Zero(t, d.next)
			require.Equal(t, 12<<20, d.room.free, "all is given back")
			require.Less(t, grown, 40<<20)
		})
	}
}

func TestDecodeRefusesARecordThatOutgrowsTheMemory(t *testing.T) {
	var err error
	headers := append([]byte{0, 0, 0, 1, 1}, kbin.AppendVarint(nil, 200_000)...)
	headers = append(headers, bytes.Repeat([]byte{0, 1}, 200_000)...)
	b := kmsg.RecordBatch{NumRecords: 1, Records: append(kbin.AppendVarint(nil, int32(len(headers))), headers...)}
	grown := wiretest.Allocated(func() { _, err = decodeSet(wiretest.RecordSet(b), 0) })
	require.ErrorIs(t, err, kerr.MessageTooLarge)
	require.Less(t, grown, 4<<20)
}
