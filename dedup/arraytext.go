package dedup

import (
	"encoding/binary"
	"encoding/hex"
	"strconv"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgtype"
)

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
