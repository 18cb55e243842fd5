package dedup

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strconv"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// array builds a one-dimensional Postgres array in its binary format (array_send in the Postgres source), so
// that a batch costs one buffer a column and no allocation a row.
type array struct {
	pieces
	element uint32 // type
	n       int
	nulls   int
}

const (
	arrayHeader = 20 // dimensions, null flag, element type, length, lower bound
	emptyArray  = "\x00\x00\x00\x01" + "\x00\x00\x00\x00" + "\x00\x00\x00\x00" +
		"\x00\x00\x00\x00" + "\x00\x00\x00\x01"
)

func (a *array) reset(element uint32) {
	a.element, a.n, a.nulls = element, 0, 0
	a.pieces.reset(emptyArray)
	binary.BigEndian.PutUint32(a.buf[8:], element)
}

// finish completes the array; it stays valid until the next reset.
func (a *array) finish() *pieces {
	if a.nulls > 0 {
		binary.BigEndian.PutUint32(a.buf[4:], 1)
	}
	binary.BigEndian.PutUint32(a.buf[12:], uint32(a.n))
	return &a.pieces
}

// bytes is the finished array in one.
func (a *array) bytes() []byte { return a.finish().whole() }

func (a *array) length(n int) {
	a.n++
	a.buf = binary.BigEndian.AppendUint32(a.buf, uint32(n))
}

func (a *array) null() {
	a.n++
	a.nulls++
	a.pieces.null()
}

func (a *array) int32(v int32) {
	a.length(4)
	a.buf = binary.BigEndian.AppendUint32(a.buf, uint32(v))
}

func (a *array) int64(v int64) {
	a.length(8)
	a.buf = binary.BigEndian.AppendUint64(a.buf, uint64(v))
}

func (a *array) uuid(v uuid.UUID) {
	a.length(16)
	a.buf = append(a.buf, v[:]...)
}

// bytea keeps nil (null) and empty apart.
func (a *array) bytea(v []byte) {
	if v == nil {
		a.null()
		return
	}
	a.n++
	a.sized(v)
}

// text writes an empty string as null.
func (a *array) text(v string) {
	if v == "" {
		a.null()
		return
	}
	a.string(v)
}

func (a *array) string(v string) {
	a.length(len(v))
	a.buf = append(a.buf, v...)
}

// headers writes a message's headers as AppendHeaders encodes them, and none as null.
func (a *array) headers(hs []Header) {
	if len(hs) == 0 {
		a.null()
		return
	}
	a.n++
	a.pieces.headers(hs)
}

// timestamp writes the message's time, and none as null.
func (a *array) timestamp(m *Message) {
	at, _ := m.stored()
	if at.IsZero() {
		a.null()
		return
	}
	a.int64(postgresMicros(at))
}

// number writes the message's timestamp where it is no time, and else null.
func (a *array) number(m *Message) {
	_, number := m.stored()
	if number == 0 {
		a.null()
		return
	}
	a.int64(number)
}

// Finished arrays as pgx parameters: one Go type a Postgres type, so that they also work in the query modes
// that never ask the server for a statement's parameter types.
type (
	int32Array     []byte
	int64Array     []byte
	uuidArray      []byte
	textArray      []byte
	byteaArray     []byte
	timestampArray []byte
)

var arrayTypes = []struct {
	name      string
	element   uint32
	oid       uint32
	parameter func(finished []byte) any // of pgx
}{
	{"_int4", pgtype.Int4OID, pgtype.Int4ArrayOID, func(b []byte) any { return int32Array(b) }},
	{"_int8", pgtype.Int8OID, pgtype.Int8ArrayOID, func(b []byte) any { return int64Array(b) }},
	{"_uuid", pgtype.UUIDOID, pgtype.UUIDArrayOID, func(b []byte) any { return uuidArray(b) }},
	{"_text", pgtype.TextOID, pgtype.TextArrayOID, func(b []byte) any { return textArray(b) }},
	{"_bytea", pgtype.ByteaOID, pgtype.ByteaArrayOID, func(b []byte) any { return byteaArray(b) }},
	{"_timestamptz", pgtype.TimestamptzOID, pgtype.TimestamptzArrayOID,
		func(b []byte) any { return timestampArray(b) }},
}

func (a *array) kind() int {
	for i := range arrayTypes {
		if arrayTypes[i].element == a.element {
			return i
		}
	}
	panic(fmt.Sprintf("dedup: an array of type %d", a.element))
}

func (a *array) oid() uint32 { return arrayTypes[a.kind()].oid }

func (a *array) parameter() any { return arrayTypes[a.kind()].parameter(a.bytes()) }

// registerTypes teaches a connection the array parameters, and UUIDs, once.
func registerTypes(conn *pgx.Conn) {
	m := conn.TypeMap()
	if t, ok := m.TypeForOID(pgtype.UUIDArrayOID); ok {
		if _, done := t.Codec.(arrayCodec); done {
			return
		}
	}
	for _, a := range arrayTypes {
		t, _ := m.TypeForOID(a.oid)
		m.RegisterType(&pgtype.Type{Name: a.name, OID: a.oid, Codec: arrayCodec{t.Codec}})
		m.RegisterDefaultPgType(a.parameter(nil), a.name)
	}
	registerUUID(m)
}

// arrayCodec is pgx's codec of an array type that also takes the finished arrays above.
type arrayCodec struct{ pgtype.Codec }

func (c arrayCodec) PlanEncode(m *pgtype.Map, oid uint32, format int16, value any) pgtype.EncodePlan {
	switch {
	case finished(value) == nil:
		return c.Codec.PlanEncode(m, oid, format, value)
	case format == pgtype.BinaryFormatCode:
		return finishedPlan{}
	}
	return textPlan{}
}

type finishedPlan struct{}

func (finishedPlan) Encode(value any, buf []byte) ([]byte, error) {
	return append(buf, finished(value)...), nil
}

func finished(value any) []byte {
	switch v := value.(type) {
	case int32Array:
		return v
	case int64Array:
		return v
	case uuidArray:
		return v
	case textArray:
		return v
	case byteaArray:
		return v
	case timestampArray:
		return v
	}
	return nil
}

// textPlan spells a finished array as text (Postgres manual, "Arrays", Array Input and Output Syntax). The query
// modes that never ask the server for a parameter's type, exec and the simple protocol, send nothing else.
type textPlan struct{}

func (textPlan) Encode(value any, buf []byte) ([]byte, error) {
	b := finished(value)
	element, b := binary.BigEndian.Uint32(b[8:]), b[arrayHeader:]
	buf = append(buf, '{')
	for first := true; len(b) > 0; first = false {
		if !first {
			buf = append(buf, ',')
		}
		var v []byte
		if v, b, _ = cutSized(b); v == nil {
			buf = append(buf, "NULL"...)
			continue
		}
		buf = appendElement(buf, element, v)
	}
	return append(buf, '}'), nil
}

func appendElement(buf []byte, element uint32, v []byte) []byte {
	switch element {
	case pgtype.Int4OID:
		return strconv.AppendInt(buf, int64(int32(binary.BigEndian.Uint32(v))), 10)
	case pgtype.Int8OID:
		return strconv.AppendInt(buf, int64(binary.BigEndian.Uint64(v)), 10)
	case pgtype.UUIDOID:
		return append(buf, uuid.UUID(v).String()...)
	case pgtype.TimestamptzOID:
		return appendTimestamp(buf, int64(binary.BigEndian.Uint64(v)))
	case pgtype.ByteaOID:
		return append(hex.AppendEncode(append(buf, `"\\x`...), v), '"')
	}
	buf = append(buf, '"')
	for _, c := range v {
		if c == '"' || c == '\\' {
			buf = append(buf, '\\')
		}
		buf = append(buf, c)
	}
	return append(buf, '"')
}

func appendTimestamp(buf []byte, micros int64) []byte {
	t := time.Unix(postgresEpoch.Unix()+micros/1e6, micros%1e6*1e3).UTC()
	return t.AppendFormat(buf, `"2006-01-02 15:04:05.999999Z07:00"`)
}
