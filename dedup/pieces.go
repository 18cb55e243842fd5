package dedup

import (
	"encoding/binary"
	"io"
)

// pieces are bytes for Postgres of which large values are no copies: they stay where they are until they are sent.
type pieces struct {
	buf     []byte
	large   []largeValue
	outside int  // bytes of the large values
	copied  bool // large values are copied like others
}

// largeValue stands before what is at an offset of buf.
type largeValue struct {
	at    int
	value []byte
}

// largeBytes is from where on a value is not copied.
const largeBytes = 64 << 10

func (p *pieces) size() int { return len(p.buf) + p.outside }

// reset lets go of all but a start.
func (p *pieces) reset(start string) {
	p.buf, p.large, p.outside = append(p.buf[:0], start...), nil, 0
}

func (p *pieces) all(yield func([]byte) bool) {
	at := 0
	for _, l := range p.large {
		if !yield(p.buf[at:l.at]) || !yield(l.value) {
			return
		}
		at = l.at
	}
	yield(p.buf[at:])
}

// whole gives them in one; it stays valid until the next change.
func (p *pieces) whole() []byte {
	if p.large == nil {
		return p.buf
	}
	b := make([]byte, 0, p.size())
	for part := range p.all {
		b = append(b, part...)
	}
	return b
}

func (p *pieces) writeTo(w io.Writer) error {
	for part := range p.all {
		if _, err := w.Write(part); err != nil {
			return err
		}
	}
	return nil
}

func (p *pieces) value(v []byte) {
	if len(v) >= largeBytes && !p.copied {
		p.large, p.outside = append(p.large, largeValue{len(p.buf), v}), p.outside+len(v)
		return
	}
	p.buf = append(p.buf, v...)
}

func (p *pieces) null() { p.buf = binary.BigEndian.AppendUint32(p.buf, nullLength) }

// sized appends a value behind its length; nil is a null.
func (p *pieces) sized(v []byte) {
	if v == nil {
		p.null()
		return
	}
	p.buf = binary.BigEndian.AppendUint32(p.buf, uint32(len(v)))
	p.value(v)
}

// headers appends headers as AppendHeaders encodes them, behind their length; none are a null.
func (p *pieces) headers(hs []Header) {
	if len(hs) == 0 {
		p.null()
		return
	}
	at := len(p.buf)
	p.buf = append(p.buf, 0, 0, 0, 0)
	before := p.size()
	p.list(hs)
	binary.BigEndian.PutUint32(p.buf[at:], uint32(p.size()-before))
}

func (p *pieces) list(hs []Header) {
	for i := range hs {
		p.buf = binary.BigEndian.AppendUint32(p.buf, uint32(len(hs[i].Key)))
		p.buf = append(p.buf, hs[i].Key...)
		p.sized(hs[i].Value)
	}
}
