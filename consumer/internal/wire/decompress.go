package wire

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"runtime"
	"sync"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/firstseen/firstseen/dedup/memory"
)

const (
	// zstdWindow is the largest window that a producer's zstd level can ask for (level 22, KIP-390). A
	// decoder with less memory than that refuses such a batch however small it is.
	zstdWindow = 128 << 20
	// streamedWindow is the largest window that zstd is read with as a stream. All but the levels above 19 ask for
	// less.
	streamedWindow = 8 << 20
	// blockBytes is the size of a block that is decompressed as a whole; larger ones are read as streams where their
	// format allows.
	blockBytes = 1 << 20
	// streamBytes is the size of a stream's read buffer.
	streamBytes = 32 << 10
	// keptBuffer caps the spare room of a buffer that is kept.
	keptBuffer = 4 << 20
)

// xerial begins a stream of Kafka's Java snappy, before two version numbers of 4 bytes.
var xerial = []byte{0x82, 'S', 'N', 'A', 'P', 'P', 'Y', 0}

// errTooLarge says that a batch grows beyond the limit. It wraps Kafka's own error for that.
var errTooLarge = fmt.Errorf("%w: the batch is larger than the consumer takes", kerr.MessageTooLarge)

// decompressor undoes the compression of record batches, piece by piece, and refuses those that grow beyond limit:
// before anything is allocated where the format tells its size, else as soon as the output passes it. What it needs
// itself is a MiB or two for each processor, two blocks of 4 MiB where lz4 has such; what needs more claims it. Safe
// for concurrent use.
type decompressor struct {
	limit   int
	turns   chan struct{} // one for each batch that is being decompressed
	sources sync.Pool
}

func newDecompressor(limit int) *decompressor {
	return &decompressor{
		limit:   limit,
		turns:   make(chan struct{}, runtime.GOMAXPROCS(0)),
		sources: sync.Pool{New: func() any { return &source{stream: bufio.NewReaderSize(nil, streamBytes)} }},
	}
}

// source is one batch, decompressed as it is read. Codecs that have read one are kept for the next.
type source struct {
	d       *decompressor
	room    *Room
	codec   string
	data    []byte // what is left, where all of it is in memory
	left    int    // so much may come out of stream
	streams bool   // it comes out of stream
	claimed int    // of room, until the end

	in     bytes.Reader
	stream *bufio.Reader
	block  []byte
	gzips  *gzip.Reader
	lz4s   *lz4.Reader
	whole  *zstd.Decoder // for what is decompressed at once
	parts  *zstd.Decoder // for streams
	framed xerialReader
}

// open begins to undo the compression of a payload. The source has to be closed.
func (d *decompressor) open(payload []byte, codec kgo.CompressionCodecType, room *Room) (*source, error) {
	d.turns <- struct{}{}
	s := d.sources.Get().(*source)
	s.d, s.room, s.left = d, room, d.limit
	s.in.Reset(payload)
	if err := s.begin(payload, codec); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func (s *source) begin(payload []byte, codec kgo.CompressionCodecType) error {
	switch codec {
	case kgo.CodecNone:
		s.codec, s.data = "none", payload
		return nil
	case kgo.CodecGzip:
		s.codec = "gzip"
		return s.gzip()
	case kgo.CodecSnappy:
		s.codec = "snappy"
		return s.snappy(payload)
	case kgo.CodecLz4:
		s.codec = "lz4"
		s.lz4()
		return nil
	case kgo.CodecZstd:
		s.codec = "zstd"
		return s.zstd(payload)
	}
	return fmt.Errorf("unknown compression codec %d", codec)
}

// close gives back what the source has claimed. What came out of it in place is not to be used any more.
func (s *source) close() {
	d := s.d
	s.room.Release(s.claimed)
	s.in.Reset(nil)
	s.stream.Reset(nil)
	s.room, s.data, s.streams, s.claimed, s.framed = nil, nil, false, 0, xerialReader{}
	d.sources.Put(s)
	<-d.turns
}

// claim has room for n bytes until the source is closed.
func (s *source) claim(n int) error {
	if !s.room.claim(n) {
		return s.room.lack(n)
	}
	s.claimed += n
	return nil
}

func (s *source) from(r io.Reader) {
	s.streams = true
	s.stream.Reset(r)
}

func (s *source) gzip() (err error) {
	if s.gzips == nil {
		s.gzips = new(gzip.Reader)
	}
	if err = s.gzips.Reset(&s.in); err != nil {
		return s.fault(err)
	}
	s.from(s.gzips)
	return nil
}

func (s *source) lz4() {
	if s.lz4s == nil {
		s.lz4s = lz4.NewReader(nil)
	}
	s.lz4s.Reset(&s.in)
	s.from(s.lz4s)
}

// zstd decompresses at once what is small, and what asks for a window so large that the output itself is smaller.
func (s *source) zstd(payload []byte) error {
	var header zstd.Header
	if err := header.Decode(payload); err != nil {
		return s.fault(err)
	}
	size := s.d.limit
	if header.HasFCS {
		if header.FrameContentSize > uint64(s.d.limit) {
			return s.tooLarge()
		}
		size = int(header.FrameContentSize)
	}
	if !header.HasFCS || size <= blockBytes {
		err := s.zstdWhole(payload, s.blockOf(min(size, blockBytes)))
		if !errors.Is(err, zstd.ErrDecoderSizeExceeded) {
			return err
		}
	}
	if !header.SingleSegment && header.WindowSize <= streamedWindow {
		return s.zstdParts(int(header.WindowSize))
	}
	if err := s.claim(size + blockBytes); err != nil {
		return err
	}
	err := s.zstdWhole(payload, memory.Bytes(size + blockBytes)[:0])
	if errors.Is(err, zstd.ErrDecoderSizeExceeded) {
		return s.tooLarge()
	}
	return err
}

// blockOf is a buffer for n bytes, which is kept.
func (s *source) blockOf(n int) []byte {
	if cap(s.block) < n {
		s.block = make([]byte, n+streamBytes)
	}
	return s.block[:0]
}

func (s *source) zstdWhole(payload, to []byte) (err error) {
	if s.whole == nil {
		s.whole, err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
			zstd.WithDecodeAllCapLimit(true), zstd.WithDecoderMaxMemory(uint64(max(s.d.limit, zstdWindow))))
		if err != nil {
			return s.fault(err)
		}
	}
	out, err := s.whole.DecodeAll(payload, to)
	switch {
	case errors.Is(err, zstd.ErrDecoderSizeExceeded):
		return err
	case err != nil:
		return s.fault(err)
	case len(out) > s.d.limit:
		return s.tooLarge()
	}
	s.data = out
	return nil
}

func (s *source) zstdParts(window int) (err error) {
	if err := s.claim(window + blockBytes); err != nil {
		return err
	}
	if s.parts == nil {
		s.parts, err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
			zstd.WithDecoderMaxWindow(streamedWindow))
		if err != nil {
			return s.fault(err)
		}
	}
	if err := s.parts.Reset(&s.in); err != nil {
		return s.fault(err)
	}
	s.from(s.parts)
	return nil
}

// snappy reads one raw block, as librdkafka and Go clients write it, or the framing of the Java client.
// It adds up the sizes that the blocks announce before it allocates anything.
func (s *source) snappy(payload []byte) error {
	if len(payload) < 16 || !bytes.HasPrefix(payload, xerial) {
		n, err := s2.DecodedLen(payload)
		switch {
		case err != nil:
			return s.fault(err)
		case n > s.d.limit:
			return s.tooLarge()
		}
		if s.data, err = s.decodeBlock(payload, n); err != nil {
			return err
		}
		return nil
	}
	s.framed = xerialReader{source: s, left: payload[16:]}
	if total, err := announced(payload[16:]); err != nil {
		return s.fault(err)
	} else if total > s.d.limit {
		return s.tooLarge()
	}
	s.from(&s.framed)
	return nil
}

// decodeBlock decodes a raw block that announces n bytes. The block before it is not to be used any more.
func (s *source) decodeBlock(block []byte, n int) ([]byte, error) {
	if cap(s.block) < n && n > blockBytes {
		if err := s.claim(n); err != nil {
			return nil, err
		}
		out, err := s2.Decode(memory.Bytes(n), block)
		return out, s.fault(err)
	}
	out, err := s2.Decode(s.blockOf(n)[:n], block)
	return out, s.fault(err)
}

// xerialReader reads blocks that each have a big-endian length before them, as the Java client writes snappy.
type xerialReader struct {
	source *source
	left   []byte
	out    []byte // of a block, not read yet
}

// next cuts the next block off, which announces n bytes.
func (x *xerialReader) next() (block []byte, n int, err error) {
	if len(x.left) < 4 {
		return nil, 0, errors.New("a block's length is cut short")
	}
	size := int64(binary.BigEndian.Uint32(x.left))
	if x.left = x.left[4:]; size > int64(len(x.left)) {
		return nil, 0, fmt.Errorf("a block of %d bytes where %d are left", size, len(x.left))
	}
	block, x.left = x.left[:size], x.left[size:]
	n, err = s2.DecodedLen(block)
	return block, n, err
}

// announced adds up what the blocks of a framed payload announce.
func announced(payload []byte) (total int, err error) {
	for x := (&xerialReader{left: payload}); len(x.left) > 0; {
		_, n, err := x.next()
		if err != nil {
			return 0, err
		}
		total += n
	}
	return total, nil
}

// Read reads what is left of a block, or of the next one.
func (x *xerialReader) Read(p []byte) (int, error) {
	for len(x.out) == 0 {
		if len(x.left) == 0 {
			return 0, io.EOF
		}
		block, n, err := x.next()
		if err != nil {
			return 0, err
		}
		if x.out, err = x.source.decodeBlock(block, n); err != nil {
			return 0, err
		}
	}
	n := copy(p, x.out)
	x.out = x.out[n:]
	return n, nil
}

// varint reads a length as records have it: zigzag, 32 bits.
func (s *source) varint() (int, error) {
	at, err := s.peek(binary.MaxVarintLen32)
	if err != nil {
		return 0, err
	}
	v, n := binary.Varint(at)
	if n <= 0 || v != int64(int32(v)) {
		return 0, io.ErrUnexpectedEOF
	}
	return int(v), s.skip(n)
}

// peek gives the next n bytes, or fewer where there are no more.
func (s *source) peek(n int) ([]byte, error) {
	if !s.streams {
		return s.data[:min(n, len(s.data))], nil
	}
	at, err := s.stream.Peek(min(n, s.left+1))
	if err == io.EOF {
		err = nil
	}
	return at, s.fault(err)
}

// skip moves over n bytes.
func (s *source) skip(n int) error {
	if err := s.has(n); err != nil {
		return err
	}
	if !s.streams {
		s.data = s.data[n:]
		return nil
	}
	s.left -= n
	_, err := s.stream.Discard(n)
	return s.fault(err)
}

// read fills to.
func (s *source) read(to []byte) error {
	if err := s.has(len(to)); err != nil {
		return err
	}
	if !s.streams {
		s.data = s.data[copy(to, s.data):]
		return nil
	}
	s.left -= len(to)
	_, err := io.ReadFull(s.stream, to)
	return s.fault(err)
}

// has says whether n bytes more may come.
func (s *source) has(n int) error {
	switch {
	case n < 0, !s.streams && n > len(s.data):
		return io.ErrUnexpectedEOF
	case s.streams && n > s.left:
		return s.tooLarge()
	}
	return nil
}

// rest reads to the end, and says how much that was. More than the limit is an error.
func (s *source) rest() (int, error) {
	if !s.streams {
		return len(s.data), nil
	}
	n, err := io.CopyN(io.Discard, s.stream, int64(s.left)+1)
	switch {
	case err == nil:
		return 0, s.tooLarge()
	case !errors.Is(err, io.EOF):
		return 0, s.fault(err)
	}
	return int(n), nil
}

func (s *source) fault(err error) error {
	if err == nil || errors.Is(err, errNoRoom) {
		return err
	}
	return fmt.Errorf("%s: %w", s.codec, err)
}

func (s *source) tooLarge() error {
	return fmt.Errorf("%w: more than %d bytes out of %s", errTooLarge, s.d.limit, s.codec)
}
