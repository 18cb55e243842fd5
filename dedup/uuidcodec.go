package dedup

import (
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgtype"
)

// registerUUID has a connection send and receive a uuid.UUID as its 16 bytes. pgx alone knows it as a driver.Valuer
// and a Scanner only, and goes by its text, which costs handlers more than the rest of a small INSERT's parameters.
func registerUUID(m *pgtype.Map) {
	t, _ := m.TypeForOID(pgtype.UUIDOID)
	m.RegisterType(&pgtype.Type{Name: t.Name, OID: t.OID, Codec: uuidCodec{t.Codec}})
}

// uuidCodec is pgx's codec of uuid that knows uuid.UUID.
type uuidCodec struct{ pgtype.Codec }

func (c uuidCodec) PlanEncode(m *pgtype.Map, oid uint32, format int16, value any) pgtype.EncodePlan {
	if _, ok := value.(uuid.UUID); ok && format == pgtype.BinaryFormatCode {
		return uuidPlan{}
	}
	return c.Codec.PlanEncode(m, oid, format, value)
}

func (c uuidCodec) PlanScan(m *pgtype.Map, oid uint32, format int16, target any) pgtype.ScanPlan {
	if _, ok := target.(*uuid.UUID); ok && format == pgtype.BinaryFormatCode {
		return uuidPlan{}
	}
	return c.Codec.PlanScan(m, oid, format, target)
}

type uuidPlan struct{}

func (uuidPlan) Encode(value any, buf []byte) ([]byte, error) {
	id := value.(uuid.UUID)
	return append(buf, id[:]...), nil
}

// Scan leaves the target alone where the value is null, as uuid.UUID's own Scan does.
func (uuidPlan) Scan(src []byte, target any) error {
	switch id := target.(*uuid.UUID); len(src) {
	case 0:
		return nil
	case len(id):
		copy(id[:], src)
		return nil
	}
	return fmt.Errorf("a uuid of %d bytes", len(src))
}
