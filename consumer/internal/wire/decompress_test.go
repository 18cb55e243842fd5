package wire

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/firstseen/firstseen/consumer/internal/wire/wiretest"
)

// drain reads all that comes out of a payload, as what is behind the last record that had room.
func (d *decompressor) drain(payload []byte, codec kgo.CompressionCodecType) (int, error) {
	s, err := d.open(payload, codec, &Room{free: 1 << 30})
	if err != nil {
		return 0, err
	}
	defer s.close()
	return s.rest()
}

func (d *decompressor) decompress(payload []byte, codec kgo.CompressionCodecType) (out []byte, err error) {
	s, err := d.open(payload, codec, &Room{free: 1 << 30})
	if err != nil {
		return nil, err
	}
	defer s.close()
	for {
		at, err := s.peek(1)
		if err != nil || len(at) == 0 {
			return out, err
		}
		if err := s.skip(1); err != nil {
			return nil, err
		}
		out = append(out, at[0])
	}
}

// Decompress makes a kgo.Decompressor of it.
func (d *decompressor) Decompress(payload []byte, codec kgo.CompressionCodecType) ([]byte, error) {
	return d.decompress(payload, codec)
}

func TestDecompressRefusesABomb(t *testing.T) {
	const limit = 1 << 20
	bomb := make([]byte, 256<<20)
	for name, codec := range wiretest.Codecs {
		if name == "none" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			packed := wiretest.Compress(t, codec, bomb)
			d := newDecompressor(limit)
			var err error
			grown := wiretest.Allocated(func() { _, err = d.drain(packed, wiretest.CodecTypes[name]) })
			require.ErrorIs(t, err, kerr.MessageTooLarge)
			require.ErrorContains(t, err, name)
			require.Less(t, grown, 16<<20)
		})
	}
}

func TestDecompressTakesExactlyTheLimit(t *testing.T) {
	const limit = 100_000
	raw := bytes.Repeat([]byte("0123456789"), limit/10)
	for name, codec := range wiretest.Codecs {
		if name == "none" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			got, err := newDecompressor(limit).Decompress(wiretest.Compress(t, codec, raw), wiretest.CodecTypes[name])
			require.NoError(t, err)
			require.Equal(t, raw, got)
			_, err = newDecompressor(limit-1).Decompress(wiretest.Compress(t, codec, raw), wiretest.CodecTypes[name])
			require.ErrorIs(t, err, kerr.MessageTooLarge)
		})
	}
}

// A producer at zstd level 22 asks for a window of 128 MiB and need not tell the content's size.
func TestDecompressTakesTheWidestZstdWindow(t *testing.T) {
	var packed bytes.Buffer
	w, err := zstd.NewWriter(&packed, zstd.WithWindowSize(zstdWindow), zstd.WithEncoderConcurrency(1))
	require.NoError(t, err)
	_, err = w.Write(bytes.Repeat([]byte("abc"), 100_000))
	require.NoError(t, err)
	require.NoError(t, w.Flush())
	require.NoError(t, w.Close())
	got, err := newDecompressor(1<<20).Decompress(packed.Bytes(), kgo.CodecZstd)
	require.NoError(t, err)
	require.Len(t, got, 300_000)
	_, err = newDecompressor(299_999).Decompress(packed.Bytes(), kgo.CodecZstd)
	require.ErrorIs(t, err, kerr.MessageTooLarge)
}

// frame writes blocks as the SnappyOutputStream of Kafka's Java producer does.
func frame(blocks ...[]byte) []byte {
	out := append(bytes.Clone(xerial), 0, 0, 0, 1, 0, 0, 0, 1)
	for _, block := range blocks {
		packed := s2.EncodeSnappy(nil, block)
		out = binary.BigEndian.AppendUint32(out, uint32(len(packed)))
		out = append(out, packed...)
	}
	return out
}

func TestDecompressReadsTheFramingOfJavaSnappy(t *testing.T) {
	d := newDecompressor(1 << 20)
	for want, packed := range map[string][]byte{
		"":       frame(),
		"one":    frame([]byte("one")),
		"onetwo": frame([]byte("one"), nil, []byte("two")),
	} {
		got, err := d.Decompress(packed, kgo.CodecSnappy)
		require.NoError(t, err)
		require.Equal(t, want, string(got))
	}
	whole := frame([]byte("one"), []byte("two"))
	for cut := 17; cut < len(whole); cut++ {
		got, err := d.Decompress(whole[:cut], kgo.CodecSnappy)
		if err == nil {
			require.Equal(t, "one", string(got), "a cut between two blocks is for the record decoder to see")
		}
	}
	many := make([][]byte, 40)
	for i := range many {
		many[i] = make([]byte, 32<<10)
	}
	_, err := d.Decompress(frame(many...), kgo.CodecSnappy)
	require.ErrorIs(t, err, kerr.MessageTooLarge)
}
