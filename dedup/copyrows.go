package dedup

import (
	"bytes"
	"encoding/binary"
	"io"
	"time"
)

// copyRows builds inbox rows in COPY's binary format (Postgres manual, "COPY", File Formats): the cheapest way
// there is to bring rows to Postgres, and byte for byte.
type copyRows struct {
	pieces
	n int
}

const copyHeader = "PGCOPY\n\xff\r\n\x00" + "\x00\x00\x00\x00" + "\x00\x00\x00\x00"

func (c *copyRows) reset() {
	c.n = 0
	c.pieces.reset(copyHeader)
}

// reader gives the finished stream; the rows stay valid until the next reset.
func (c *copyRows) reader() io.Reader {
	c.buf = append(c.buf, 0xff, 0xff)
	if c.large == nil {
		return bytes.NewReader(c.buf)
	}
	var parts []io.Reader
	for part := range c.all {
		parts = append(parts, bytes.NewReader(part))
	}
	return io.MultiReader(parts...)
}

// inboxColumns is the number of columns in the store's COPY statement, which add must match.
const inboxColumns = 12

// add appends the message, under its number.
func (c *copyRows) add(e *Entry, seq int64) {
	m := e.Message
	c.n++
	c.buf = binary.BigEndian.AppendUint16(c.buf, inboxColumns)
	c.int64(seq)
	c.int32(e.Scope)
	c.sized(m.ID[:])
	c.text(m.RawID)
	c.string(m.Topic)
	c.int32(m.Partition)
	c.int64(m.Offset)
	c.timestamp(m)
	c.sized(m.Key)
	c.headers(m.Headers)
	c.sized(m.Value)
}

func (c *copyRows) int32(v int32) {
	c.buf = binary.BigEndian.AppendUint32(append(c.buf, 0, 0, 0, 4), uint32(v))
}

func (c *copyRows) int64(v int64) {
	c.buf = binary.BigEndian.AppendUint64(append(c.buf, 0, 0, 0, 8), uint64(v))
}

// text writes an empty string as null.
func (c *copyRows) text(v string) {
	if v == "" {
		c.null()
		return
	}
	c.string(v)
}

func (c *copyRows) string(v string) {
	c.buf = append(binary.BigEndian.AppendUint32(c.buf, uint32(len(v))), v...)
}

// timestamp writes the message's time and its number, each as null where it is none.
func (c *copyRows) timestamp(m *Message) {
	at, number := m.stored()
	if at.IsZero() {
		c.null()
	} else {
		c.int64(postgresMicros(at))
	}
	if number == 0 {
		c.null()
		return
	}
	c.int64(number)
}

var postgresEpoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// postgresMicros is a time as Postgres sends and receives it.
func postgresMicros(t time.Time) int64 { return t.UnixMicro() - postgresEpoch.UnixMicro() }
