package consumer

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// zstdWindow is the largest window that a producer's zstd level can ask for (level 22, KIP-390). A
// decoder with less memory than that refuses such a batch however small it is.
const zstdWindow = 128 << 20

// keptBuffer is the size above which a scratch buffer is left to the garbage collector.
const keptBuffer = 4 << 20

// xerial is how a stream of Kafka's Java snappy starts, before two version numbers of 4 bytes.
var xerial = []byte{0x82, 'S', 'N', 'A', 'P', 'P', 'Y', 0}

// errTooLarge says that a batch grows beyond the limit. It wraps Kafka's own error for that.
var errTooLarge = fmt.Errorf("%w: the batch is larger than the consumer takes", kerr.MessageTooLarge)

// decompressor undoes the compression of record batches and refuses those that grow beyond limit:
// before allocating where the format tells its size, else as soon as the output passes it. It
// implements kgo.Decompressor, whose default takes up to 2 GiB. Safe for concurrent use.
type decompressor struct {
	limit   int
	gzips   sync.Pool
	lz4s    sync.Pool
	zstds   sync.Pool
	scratch sync.Pool
}

var _ kgo.Decompressor = (*decompressor)(nil)

func newDecompressor(limit int) *decompressor {
	return &decompressor{
		limit: limit,
		gzips: sync.Pool{New: func() any { return new(gzip.Reader) }},
		lz4s:  sync.Pool{New: func() any { return lz4.NewReader(nil) }},
		zstds: sync.Pool{New: func() any {
			decoder, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
				zstd.WithDecoderMaxMemory(uint64(max(limit, zstdWindow))))
			if err != nil {
				return err
			}
			return decoder
		}},
		scratch: sync.Pool{New: func() any { return new(scratch) }},
	}
}

// Decompress returns src without its compression; the result shares no memory with src unless there
// was none.
func (d *decompressor) Decompress(src []byte, codec kgo.CompressionCodecType) ([]byte, error) {
	switch codec {
	case kgo.CodecNone:
		return src, nil
	case kgo.CodecGzip:
		return d.gzip(src)
	case kgo.CodecSnappy:
		return d.snappy(src)
	case kgo.CodecLz4:
		return d.lz4(src)
	case kgo.CodecZstd:
		return d.zstd(src)
	}
	return nil, fmt.Errorf("unknown compression codec %d", codec)
}

func (d *decompressor) gzip(src []byte) ([]byte, error) {
	s := d.scratch.Get().(*scratch)
	defer d.release(s)
	r := d.gzips.Get().(*gzip.Reader)
	defer d.gzips.Put(r)
	s.in.Reset(src)
	if err := r.Reset(&s.in); err != nil {
		return nil, fmt.Errorf("gzip: %w", err)
	}
	return d.drain("gzip", r, s)
}

func (d *decompressor) lz4(src []byte) ([]byte, error) {
	s := d.scratch.Get().(*scratch)
	defer d.release(s)
	r := d.lz4s.Get().(*lz4.Reader)
	defer d.lz4s.Put(r)
	s.in.Reset(src)
	r.Reset(&s.in)
	return d.drain("lz4", r, s)
}

// scratch is what reading a stream to its end takes.
type scratch struct {
	in      bytes.Reader
	limited io.LimitedReader
	out     bytes.Buffer
}

// release keeps a scratch for the next batch, but not what was read.
func (d *decompressor) release(s *scratch) {
	s.in.Reset(nil)
	s.limited.R = nil
	s.out.Reset()
	if s.out.Cap() <= keptBuffer {
		d.scratch.Put(s)
	}
}

// drain reads a stream up to the limit.
func (d *decompressor) drain(codec string, r io.Reader, s *scratch) ([]byte, error) {
	s.limited = io.LimitedReader{R: r, N: int64(d.limit) + 1}
	n, err := s.out.ReadFrom(&s.limited)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s: %w", codec, err)
	case n > int64(d.limit):
		return nil, d.tooLarge(codec)
	}
	return bytes.Clone(s.out.Bytes()), nil
}

func (d *decompressor) zstd(src []byte) ([]byte, error) {
	var header zstd.Header
	if err := header.Decode(src); err != nil {
		return nil, fmt.Errorf("zstd: %w", err)
	}
	if header.HasFCS && header.FrameContentSize > uint64(d.limit) {
		return nil, d.tooLarge("zstd")
	}
	pooled := d.zstds.Get()
	decoder, ok := pooled.(*zstd.Decoder)
	if !ok {
		return nil, fmt.Errorf("zstd: %w", pooled.(error))
	}
	defer d.zstds.Put(decoder)
	out, err := decoder.DecodeAll(src, nil)
	switch {
	case errors.Is(err, zstd.ErrDecoderSizeExceeded), err == nil && len(out) > d.limit:
		return nil, d.tooLarge("zstd")
	case err != nil:
		return nil, fmt.Errorf("zstd: %w", err)
	}
	return out, nil
}

// snappy reads one raw block, as librdkafka and Go clients write it, or the framing of the Java client.
// It adds up the sizes that the blocks announce before it allocates their sum.
func (d *decompressor) snappy(src []byte) ([]byte, error) {
	next := rawBlock
	if len(src) >= 16 && bytes.HasPrefix(src, xerial) {
		next, src = xerialBlock, src[16:]
	}
	total := 0
	for left := src; len(left) > 0; {
		block, rest, err := next(left)
		if err != nil {
			return nil, err
		}
		left = rest
		n, err := s2.DecodedLen(block)
		if err != nil {
			return nil, fmt.Errorf("snappy: %w", err)
		}
		if total += n; total > d.limit {
			return nil, d.tooLarge("snappy")
		}
	}
	return decodeBlocks(src, next, total)
}

func rawBlock(src []byte) (block, rest []byte, err error) { return src, nil, nil }

// xerialBlock cuts one block off a Java snappy stream: a big-endian length, then a raw block.
func xerialBlock(src []byte) (block, rest []byte, err error) {
	if len(src) < 4 {
		return nil, nil, errors.New("snappy: a block's length is cut short")
	}
	size := int64(binary.BigEndian.Uint32(src))
	if src = src[4:]; size > int64(len(src)) {
		return nil, nil, fmt.Errorf("snappy: a block of %d bytes where %d are left", size, len(src))
	}
	return src[:size], src[size:], nil
}

// decodeBlocks decodes snappy blocks whose announced sizes add up to total.
func decodeBlocks(src []byte, next func([]byte) (block, rest []byte, err error), total int) ([]byte, error) {
	out := make([]byte, total)
	at := 0
	for len(src) > 0 {
		block, rest, err := next(src)
		if err != nil {
			return nil, err
		}
		decoded, err := s2.Decode(out[at:], block)
		if err != nil {
			return nil, fmt.Errorf("snappy: %w", err)
		}
		at += len(decoded)
		src = rest
	}
	return out, nil
}

func (d *decompressor) tooLarge(codec string) error {
	return fmt.Errorf("%w: more than %d bytes out of %s", errTooLarge, d.limit, codec)
}
