package dedup

import (
	"encoding/binary"
	"errors"
	"fmt"
	"unsafe"
)

// HeaderCausation is the header in which a message of an outbox has the ID of the message that it was added for.
const HeaderCausation = "causation-id"

// headerBytes is a Header's size in memory, without its key and value.
const headerBytes = int(unsafe.Sizeof(Header{}))

// nullLength stands for a null value's length. No real one is that long: Kafka's are below 2^31.
const nullLength = 0xFFFFFFFF

// AppendHeaders appends the headers to dst as the inbox keeps them in a bytea column, one after the
// other, in their order:
//
//	4 bytes   key length, big-endian
//	n bytes   key
//	4 bytes   value length, big-endian; 0xFFFFFFFF is a null value, and no value follows
//	n bytes   value
//
// There is no count and no end mark: the headers end where the bytes do, and no headers are no bytes.
// A list of headers has exactly one encoding. Keys and values are shorter than 2 GiB, as Kafka has it.
func AppendHeaders(dst []byte, hs []Header) []byte {
	p := pieces{buf: dst, copied: true}
	p.list(hs)
	return p.buf
}

// DecodeHeaders reads what AppendHeaders wrote. No bytes are no headers (nil). The values are slices of
// b. Bytes that AppendHeaders cannot have written give an error that names the header and the offset,
// and cost no more memory than right ones of their size.
func DecodeHeaders(b []byte) ([]Header, error) {
	count, err := countHeaders(b)
	if count == 0 || err != nil {
		return nil, err
	}
	hs := make([]Header, count)
	for i := range hs {
		var key []byte
		key, b, _ = cutSized(b)
		hs[i].Key = string(key)
		hs[i].Value, b, _ = cutSized(b)
	}
	return hs, nil
}

func countHeaders(b []byte) (count int, err error) {
	for rest := b; len(rest) > 0; count++ {
		at := len(b) - len(rest)
		key, r, err := cutSized(rest)
		if err == nil && key == nil {
			err = errors.New("null key")
		}
		if err == nil {
			_, r, err = cutSized(r)
		}
		if err != nil {
			return 0, fmt.Errorf("decode header %d at byte %d of %d: %w", count+1, at, len(b), err)
		}
		rest = r
	}
	return count, nil
}

// cutSized cuts a length and as many bytes off b. They are nil for a null, else never.
func cutSized(b []byte) (part, rest []byte, err error) {
	if len(b) < 4 {
		return nil, nil, fmt.Errorf("%d bytes left of a length's 4", len(b))
	}
	n, b := binary.BigEndian.Uint32(b), b[4:]
	if n == nullLength {
		return nil, b, nil
	}
	if uint64(n) > uint64(len(b)) {
		return nil, nil, fmt.Errorf("length %d with %d bytes left", n, len(b))
	}
	return b[:n:n], b[n:], nil
}
