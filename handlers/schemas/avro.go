package schemas

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/twmb/avro"
)

// avroSchema writes values in Avro's binary encoding as JSON, straight from the bytes: what is made of them is bounded
// while it is written, which no tree of Go values would be. An Avro library reads the schema.
type avroSchema struct{ root *avroNode }

// avroNode is a type of a schema. Named types are one node each, however often they are named.
type avroNode struct {
	kind     avroKind
	names    []string    // of a record's fields and an enum's symbols
	quoted   []string    // the same as JSON, a field's with the colon
	children []*avroNode // of a record, the branches of a union; the only one of an array and a map
	size     int         // of a fixed
	scale    int         // of a decimal
}

type avroKind int

const (
	avroNull avroKind = iota
	avroBoolean
	avroInt
	avroLong
	avroFloat
	avroDouble
	avroBytes
	avroString
	avroFixed
	avroEnum
	avroArray
	avroMap
	avroRecord
	avroUnion
	// What a logical type makes of them.
	avroDate
	avroTimeMillis
	avroTimeMicros
	avroMillis
	avroMicros
	avroNanos
	avroLocalMillis
	avroLocalMicros
	avroLocalNanos
	avroDecimal      // of bytes
	avroFixedDecimal // of a fixed
	avroUUID         // of a fixed; of a string it is that string
	avroDuration     // of a fixed
)

// avroKinds are the types by their names; with a logical type behind a slash, those that it makes another kind. A
// logical type that is not here is let pass: its value is what its type says.
var avroKinds = map[string]avroKind{
	"null": avroNull, "boolean": avroBoolean, "int": avroInt, "long": avroLong, "float": avroFloat,
	"double": avroDouble, "bytes": avroBytes, "string": avroString, "fixed": avroFixed, "enum": avroEnum,
	"array": avroArray, "map": avroMap, "record": avroRecord, "error": avroRecord, "union": avroUnion,
	"int/date": avroDate, "int/time-millis": avroTimeMillis, "long/time-micros": avroTimeMicros,
	"long/timestamp-millis": avroMillis, "long/timestamp-micros": avroMicros, "long/timestamp-nanos": avroNanos,
	"long/local-timestamp-millis": avroLocalMillis, "long/local-timestamp-micros": avroLocalMicros,
	"long/local-timestamp-nanos": avroLocalNanos,
	"bytes/decimal":              avroDecimal, "fixed/decimal": avroFixedDecimal,
	"fixed/uuid": avroUUID, "fixed/duration": avroDuration,
}

// lax takes names that Avro does not allow: a registry that has them has taken them too.
var lax = avro.WithLaxNames(nil)

// newAvro reads a schema. refs are the texts of those that it refers to, each behind those that it refers to itself.
func newAvro(text string, refs []reference) (*avroSchema, error) {
	var cache avro.SchemaCache
	for _, r := range refs {
		if _, err := cache.Parse(r.text, lax); err != nil {
			return nil, fmt.Errorf("read its reference %s: %w", r.name, err)
		}
	}
	s, err := cache.Parse(text, lax)
	if err != nil {
		return nil, err
	}
	root := s.Root()
	b := avroBuilder{named: map[string]*avroNode{}}
	b.define(root)
	node := b.node(root, "")
	return &avroSchema{node}, b.fault
}

// avroBuilder makes nodes of a schema's tree.
type avroBuilder struct {
	named map[string]*avroNode // by full names
	fault error
}

func avroFullName(n *avro.SchemaNode) string {
	if n.Namespace == "" || strings.Contains(n.Name, ".") {
		return n.Name
	}
	return n.Namespace + "." + n.Name
}

// define makes room for the named types, which may be referred to before they come.
func (b *avroBuilder) define(n *avro.SchemaNode) {
	switch n.Type {
	case "record", "error", "enum", "fixed":
		b.named[avroFullName(n)] = &avroNode{kind: -1}
	}
	for _, child := range avroChildren(n) {
		b.define(child)
	}
}

func avroChildren(n *avro.SchemaNode) (children []*avro.SchemaNode) {
	switch n.Type {
	case "record", "error":
		for i := range n.Fields {
			children = append(children, &n.Fields[i].Type)
		}
	case "union":
		for i := range n.Branches {
			children = append(children, &n.Branches[i])
		}
	case "array":
		children = append(children, n.Items)
	case "map":
		children = append(children, n.Values)
	}
	return children
}

// node makes a node of a type that stands in a namespace.
func (b *avroBuilder) node(n *avro.SchemaNode, namespace string) *avroNode {
	kind, ok := avroKinds[n.Type]
	if !ok {
		return b.refer(n.Type, namespace)
	}
	if logical, ok := avroKinds[n.Type+"/"+n.LogicalType]; ok {
		kind = logical
	}
	node := &avroNode{}
	switch n.Type {
	case "record", "error", "enum", "fixed":
		name := avroFullName(n)
		node = b.named[name]
		namespace = name[:max(0, strings.LastIndexByte(name, '.'))]
	}
	*node = avroNode{kind: kind, size: n.Size, scale: n.Scale}
	for i := range n.Fields {
		node.add(n.Fields[i].Name, ":")
	}
	for _, symbol := range n.Symbols {
		node.add(symbol, "")
	}
	for _, child := range avroChildren(n) {
		node.children = append(node.children, b.node(child, namespace))
	}
	return node
}

func (n *avroNode) add(name, behind string) {
	n.names = append(n.names, name)
	n.quoted = append(n.quoted, string(appendString(nil, []byte(name)))+behind)
}

// refer finds a named type, which is named by its full name or by that in its namespace.
func (b *avroBuilder) refer(name, namespace string) *avroNode {
	if namespace != "" {
		if node := b.named[namespace+"."+name]; node != nil {
			return node
		}
	}
	if node := b.named[name]; node != nil {
		return node
	}
	b.fault = fmt.Errorf("it names a type %q that it does not have", name)
	return &avroNode{}
}

func (s *avroSchema) json(value []byte, _ place, most int) ([]byte, error) {
	r := avroReader{in: value, most: most}
	err := r.value(s.root, 0)
	if err == nil && r.at < len(value) {
		err = r.fault("goes on behind its end")
	}
	if err != nil {
		return nil, fmt.Errorf("read Avro: %w", err)
	}
	return r.out, nil
}

// avroReader goes through a value, and writes as it goes.
type avroReader struct {
	in   []byte
	at   int
	out  []byte
	most int // bytes of out
}

// avroFault is a fault of a value: what, at which byte, and in which field; never what is there.
type avroFault struct {
	what string
	at   int
	path []string // from the inside
}

func (f *avroFault) Error() string {
	var where strings.Builder
	for i := len(f.path) - 1; i >= 0; i-- {
		if where.Len() > 0 && f.path[i][0] != '[' {
			where.WriteByte('.')
		}
		where.WriteString(f.path[i])
	}
	if where.Len() == 0 {
		return fmt.Sprintf("it %s at byte %d", f.what, f.at)
	}
	return fmt.Sprintf("it %s at byte %d, in field %s", f.what, f.at, where.String())
}

// maxPath caps the names in a fault.
const maxPath = 16

func within(name string, err error) error {
	var f *avroFault
	if errors.As(err, &f) && len(f.path) < maxPath {
		f.path = append(f.path, name)
	}
	return err
}

func (r *avroReader) fault(what string) error { return &avroFault{what: what, at: r.at} }

// maxDepth is how deep JSON may be nested where IDs are looked for in it.
const maxDepth = 512

func (r *avroReader) value(n *avroNode, depth int) error {
	if depth > maxDepth {
		return r.fault("is nested too deep")
	}
	if len(r.out) > r.most {
		return r.fault("is too large as JSON")
	}
	switch n.kind {
	case avroRecord:
		return r.record(n, depth)
	case avroUnion:
		return r.union(n, depth)
	case avroArray, avroMap:
		return r.blocks(n, depth)
	case avroNull:
		r.out = append(r.out, "null"...)
		return nil
	case avroBoolean:
		return r.boolean()
	case avroFloat, avroDouble:
		return r.float(n.kind)
	case avroBytes, avroString, avroDecimal:
		return r.sized(n)
	case avroFixed, avroFixedDecimal, avroUUID, avroDuration:
		return r.fixed(n)
	}
	return r.number(n)
}

func (r *avroReader) record(n *avroNode, depth int) error {
	r.out = append(r.out, '{')
	for i, child := range n.children {
		if i > 0 {
			r.out = append(r.out, ',')
		}
		r.out = append(r.out, n.quoted[i]...)
		if err := r.value(child, depth+1); err != nil {
			return within(n.names[i], err)
		}
	}
	r.out = append(r.out, '}')
	return nil
}

// union writes the value of the branch, without saying which it is.
func (r *avroReader) union(n *avroNode, depth int) error {
	began := r.at
	i, err := r.varint(math.MaxInt32)
	switch {
	case err != nil:
		return err
	case i < 0 || i >= int64(len(n.children)):
		r.at = began
		return r.fault("has a branch that the schema does not have")
	}
	return r.value(n.children[i], depth+1)
}

// blocks writes an array or a map: blocks of items, each behind their number, which is negative where the block's size
// comes too.
func (r *avroReader) blocks(n *avroNode, depth int) error {
	shut := byte(']')
	if n.kind == avroMap {
		r.out, shut = append(r.out, '{'), '}'
	} else {
		r.out = append(r.out, '[')
	}
	for done := int64(0); ; {
		count, err := r.count()
		if err != nil {
			return err
		}
		if count == 0 {
			break
		}
		for ; count > 0; count-- {
			if done > 0 {
				r.out = append(r.out, ',')
			}
			if err := r.item(n, depth); err != nil {
				return within("["+strconv.FormatInt(done, 10)+"]", err)
			}
			done++
		}
	}
	r.out = append(r.out, shut)
	return nil
}

func (r *avroReader) count() (int64, error) {
	count, err := r.varint(math.MaxInt64)
	if err != nil || count >= 0 {
		return count, err
	}
	if count == math.MinInt64 {
		return 0, r.fault("has a block of impossible length")
	}
	_, err = r.varint(math.MaxInt64)
	return -count, err
}

func (r *avroReader) item(n *avroNode, depth int) error {
	if n.kind == avroMap {
		if err := r.text(); err != nil {
			return err
		}
		r.out = append(r.out, ':')
	}
	return r.value(n.children[0], depth+1)
}

func (r *avroReader) boolean() error {
	b, err := r.take(1)
	switch {
	case err != nil:
		return err
	case b[0] > 1:
		r.at--
		return r.fault("has neither true nor false")
	}
	r.out = strconv.AppendBool(r.out, b[0] == 1)
	return nil
}

func (r *avroReader) float(kind avroKind) error {
	if kind == avroFloat {
		b, err := r.take(4)
		if err == nil {
			r.out = appendFloat(r.out, float64(math.Float32frombits(binary.LittleEndian.Uint32(b))), 32)
		}
		return err
	}
	b, err := r.take(8)
	if err == nil {
		r.out = appendFloat(r.out, math.Float64frombits(binary.LittleEndian.Uint64(b)), 64)
	}
	return err
}

// appendFloat writes the shortest number that is the same one. What JSON has no number for is a text, as Protobuf has
// it.
func appendFloat(out []byte, f float64, bits int) []byte {
	switch {
	case math.IsNaN(f):
		return append(out, `"NaN"`...)
	case math.IsInf(f, 1):
		return append(out, `"Infinity"`...)
	case math.IsInf(f, -1):
		return append(out, `"-Infinity"`...)
	}
	return strconv.AppendFloat(out, f, 'g', -1, bits)
}

// sized writes what comes behind its length.
func (r *avroReader) sized(n *avroNode) error {
	if n.kind == avroString {
		return r.text()
	}
	b, err := r.bytes()
	if err != nil {
		return err
	}
	if n.kind == avroDecimal {
		return r.decimal(b, n.scale)
	}
	r.base64(b)
	return nil
}

func (r *avroReader) text() error {
	began := r.at
	b, err := r.bytes()
	if err != nil {
		return err
	}
	if !utf8.Valid(b) {
		r.at = began
		return r.fault("has a text that is not UTF-8")
	}
	r.out = appendString(r.out, b)
	return nil
}

func (r *avroReader) fixed(n *avroNode) error {
	b, err := r.take(n.size)
	if err != nil {
		return err
	}
	switch {
	case n.kind == avroFixedDecimal:
		return r.decimal(b, n.scale)
	case n.kind == avroUUID && len(b) == 16:
		h := hex.EncodeToString(b)
		r.out = append(r.out, `"`+h[:8]+"-"+h[8:12]+"-"+h[12:16]+"-"+h[16:20]+"-"+h[20:]+`"`...)
	case n.kind == avroDuration && len(b) == 12:
		r.duration(b)
	default:
		r.base64(b)
	}
	return nil
}

func (r *avroReader) base64(b []byte) {
	r.out = append(r.out, '"')
	r.out = base64.StdEncoding.AppendEncode(r.out, b)
	r.out = append(r.out, '"')
}

// duration writes months, days and milliseconds as ISO 8601 has them.
func (r *avroReader) duration(b []byte) {
	months, days, millis := binary.LittleEndian.Uint32(b), binary.LittleEndian.Uint32(b[4:]), binary.LittleEndian.Uint32(b[8:])
	r.out = fmt.Appendf(r.out, `"P%dM%dDT%d.%03dS"`, months, days, millis/1000, millis%1000)
}

// maxDecimal caps the bytes of a decimal: its digits take time that grows with their square.
const maxDecimal = 1 << 10

// decimal writes a number with all of its digits behind the point: 12.30.
func (r *avroReader) decimal(b []byte, scale int) error {
	if len(b) > maxDecimal || scale > maxDecimal {
		return r.fault("has a decimal of too many digits")
	}
	n := new(big.Int).SetBytes(b)
	if len(b) > 0 && b[0] >= 0x80 { // two's complement
		n.Sub(n, new(big.Int).Lsh(big.NewInt(1), uint(8*len(b))))
	}
	digits := new(big.Int).Abs(n).String()
	if len(digits) <= scale {
		digits = strings.Repeat("0", scale+1-len(digits)) + digits
	}
	if n.Sign() < 0 {
		r.out = append(r.out, '-')
	}
	r.out = append(r.out, digits[:len(digits)-scale]...)
	if scale > 0 {
		r.out = append(append(r.out, '.'), digits[len(digits)-scale:]...)
	}
	return nil
}

// number writes what is a whole number in Avro.
func (r *avroReader) number(n *avroNode) error {
	began, limit := r.at, int64(math.MaxInt64)
	switch n.kind {
	case avroInt, avroEnum, avroDate, avroTimeMillis:
		limit = math.MaxInt32
	}
	v, err := r.varint(limit)
	switch {
	case err != nil:
		return err
	case n.kind == avroInt, n.kind == avroLong:
		r.out = strconv.AppendInt(r.out, v, 10)
	case n.kind == avroEnum && v >= 0 && v < int64(len(n.quoted)):
		r.out = append(r.out, n.quoted[v]...)
	case n.kind == avroEnum:
		r.at = began
		return r.fault("has a symbol that the schema does not have")
	default:
		r.moment(n.kind, v)
	}
	return nil
}

const (
	localLayout = "2006-01-02T15:04:05.999999999"
	timeLayout  = "15:04:05.999999999"
)

// moment writes a date or a time as ISO 8601 has it; a time of the day that is none is its number.
func (r *avroReader) moment(kind avroKind, v int64) {
	var t time.Time
	layout := time.RFC3339Nano
	switch kind {
	case avroDate:
		t, layout = time.Unix(v*24*60*60, 0), time.DateOnly
	case avroTimeMillis, avroTimeMicros:
		unit := map[avroKind]int64{avroTimeMillis: 1000, avroTimeMicros: 1e6}[kind]
		if v < 0 || v >= 24*60*60*unit {
			r.out = strconv.AppendInt(r.out, v, 10)
			return
		}
		t, layout = time.Unix(v/unit, v%unit*(1e9/unit)), timeLayout
	case avroMillis, avroLocalMillis:
		t = time.UnixMilli(v)
	case avroMicros, avroLocalMicros:
		t = time.UnixMicro(v)
	default:
		t = time.Unix(0, v)
	}
	switch kind {
	case avroLocalMillis, avroLocalMicros, avroLocalNanos:
		layout = localLayout
	}
	r.out = append(r.out, '"')
	r.out = t.UTC().AppendFormat(r.out, layout)
	r.out = append(r.out, '"')
}

// varint reads a number of up to most, or down to -most-1.
func (r *avroReader) varint(most int64) (int64, error) {
	v, n := binary.Varint(r.in[r.at:])
	switch {
	case n == 0:
		return 0, r.short()
	case n < 0, v > most, v < -most-1:
		return 0, r.fault("has a number that is too large")
	}
	r.at += n
	return v, nil
}

func (r *avroReader) bytes() ([]byte, error) {
	began := r.at
	n, err := r.varint(math.MaxInt64)
	switch {
	case err != nil:
		return nil, err
	case n < 0:
		r.at = began
		return nil, r.fault("has a negative length")
	case n > int64(len(r.in)-r.at):
		return nil, r.short()
	}
	return r.take(int(n))
}

func (r *avroReader) take(n int) ([]byte, error) {
	if n > len(r.in)-r.at {
		return nil, r.short()
	}
	b := r.in[r.at : r.at+n]
	r.at += n
	return b, nil
}

func (r *avroReader) short() error {
	return &avroFault{what: "ends too early,", at: len(r.in)}
}

// appendString writes a text in UTF-8 as JSON.
func appendString(out, text []byte) []byte {
	plain := true
	for _, c := range text {
		plain = plain && c >= ' ' && c != '"' && c != '\\'
	}
	if plain {
		return append(append(append(out, '"'), text...), '"')
	}
	quoted, _ := json.Marshal(string(text)) // a string can always be
	return append(out, quoted...)
}
