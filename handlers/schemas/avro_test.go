package schemas

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/avro"
)

// What a value looks like never changes: IDs are found in it.
func TestWhatAvroLooksLikeAsJSON(t *testing.T) {
	for _, c := range []struct{ schema, value, want string }{
		{`"null"`, "", `null`},
		{`"boolean"`, "\x01", `true`},
		{`"int"`, "\x01", `-1`},
		{`"long"`, "\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01", `9223372036854775807`},
		{`"float"`, "\xcd\xcc\xcc\x3d", `0.1`},
		{`"double"`, "\x9a\x99\x99\x99\x99\x99\xb9\x3f", `0.1`},
		{`"double"`, "\x00\x00\x00\x00\x00\x00\xf8\x7f", `"NaN"`},
		{`"double"`, "\x00\x00\x00\x00\x00\x00\xf0\xff", `"-Infinity"`},
		{`"bytes"`, "\x04\x00\xff", `"AP8="`},
		{`"string"`, "\x06\"\n\\", `"\"\n\\"`},
		{`{"type": "fixed", "name": "F", "size": 2}`, "\x00\xff", `"AP8="`},
		{`{"type": "enum", "name": "E", "symbols": ["A", "B"]}`, "\x02", `"B"`},
		{`{"type": "array", "items": "int"}`, "\x04\x02\x04\x00", `[1,2]`},
		{`{"type": "array", "items": "int"}`, "\x03\x04\x02\x04\x02\x06\x00", `[1,2,3]`},
		{`{"type": "map", "values": "int"}`, "\x02\x02a\x02\x00", `{"a":1}`},
		{`["null", "int"]`, "\x00", `null`},
		{`["null", "int"]`, "\x02\x02", `1`},
		{`{"type": "int", "logicalType": "date"}`, "\x01", `"1969-12-31"`},
		{`{"type": "int", "logicalType": "time-millis"}`, "\xae\x16", `"00:00:01.431"`},
		{`{"type": "long", "logicalType": "time-micros"}`, "\x02", `"00:00:00.000001"`},
		{`{"type": "long", "logicalType": "timestamp-millis"}`, "\xae\x16", `"1970-01-01T00:00:01.431Z"`},
		{`{"type": "long", "logicalType": "timestamp-micros"}`, "\x00", `"1970-01-01T00:00:00Z"`},
		{`{"type": "long", "logicalType": "local-timestamp-millis"}`, "\xae\x16", `"1970-01-01T00:00:01.431"`},
		{`{"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}`, "\x04\x04\xce", `12.30`},
		{`{"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}`, "\x02\xff", `-0.01`},
		{`{"type": "bytes", "logicalType": "decimal", "precision": 4}`, "\x00", `0`},
		{`{"type": "fixed", "name": "D", "size": 2, "logicalType": "decimal", "precision": 4, "scale": 1}`, "\xff\xf6", `-1.0`},
		{`{"type": "string", "logicalType": "uuid"}`, "\x02x", `"x"`},
		{`{"type": "fixed", "name": "U", "size": 16, "logicalType": "uuid"}`, "0123456789abcdef",
			`"30313233-3435-3637-3839-616263646566"`},
		{`{"type": "fixed", "name": "P", "size": 12, "logicalType": "duration"}`,
			"\x01\x00\x00\x00\x02\x00\x00\x00\xec\x0b\x00\x00", `"P1M2DT3.052S"`},
		{`{"type": "record", "name": "a.L", "fields": [{"name": "n", "type": ["null", "L"]}, {"name": "é-1", "type": "int"}]}`,
			"\x02\x00\x02\x04", `{"n":{"n":null,"é-1":1},"é-1":2}`},
	} {
		s, err := newAvro(c.schema, nil)
		require.NoError(t, err, c.schema)
		got, err := s.json([]byte(c.value), place{}, 1<<20)
		require.NoError(t, err, c.schema)
		require.Equal(t, c.want, string(got), c.schema)
		require.True(t, json.Valid(got))
	}
}

// A few bytes can say that there is very much of nothing.
func TestWhatAvroComesToIsBounded(t *testing.T) {
	s, err := newAvro(`{"type": "array", "items": "null"}`, nil)
	require.NoError(t, err)
	_, err = s.json([]byte("\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01"), place{}, 1<<10)
	require.ErrorContains(t, err, "it is too large as JSON at byte 10")
	s, err = newAvro(`{"type": "record", "name": "L", "fields": [{"name": "n", "type": ["null", "L"]}]}`, nil)
	require.NoError(t, err)
	_, err = s.json([]byte(strings.Repeat("\x02", 1<<16)), place{}, 1<<20)
	require.ErrorContains(t, err, "nested too deep")
}

// everything has each kind of type.
const everything = `{"type": "record", "name": "All", "namespace": "n", "fields": [
	{"name": "b", "type": "boolean"}, {"name": "i", "type": "int"}, {"name": "l", "type": "long"},
	{"name": "f", "type": "float"}, {"name": "d", "type": "double"}, {"name": "y", "type": "bytes"}, {"name": "s", "type": "string"},
	{"name": "x", "type": {"type": "fixed", "name": "X", "size": 3}},
	{"name": "e", "type": {"type": "enum", "name": "E", "symbols": ["A", "B"]}},
	{"name": "a", "type": {"type": "array", "items": ["null", "E", "string"]}},
	{"name": "m", "type": {"type": "map", "values": {"type": "array", "items": "X"}}},
	{"name": "r", "type": ["null", "All"]}]}`

// The library is the judge of what can be read.
func FuzzAvroIsReadWhereTheLibraryReadsIt(f *testing.F) {
	schema := avro.MustParse(everything)
	value, err := schema.Encode(map[string]any{"b": true, "i": 1, "l": 2, "f": 3.5, "d": 4.5, "y": []byte{5}, "s": "six",
		"x": []byte{7, 8, 9}, "e": "B", "a": []any{nil, "A", "text"}, "m": map[string]any{"k": []any{[]byte{1, 2, 3}}},
		"r": nil})
	require.NoError(f, err)
	f.Add(value)
	f.Add(value[:7])
	mine, err := newAvro(everything, nil)
	require.NoError(f, err)
	f.Fuzz(func(t *testing.T, value []byte) {
		var v any
		rest, err := schema.Decode(value, &v)
		got, mineErr := mine.json(value, place{}, 1<<20)
		if mineErr == nil {
			require.True(t, json.Valid(got), "%q", got)
			require.NoError(t, err, "%q", got)
			require.Empty(t, rest)
			return
		}
		require.Contains(t, mineErr.Error(), "read Avro: it ")
	})
}

func FuzzProtobufIsReadOrRefused(f *testing.F) {
	s, err := newProtobuf(f.Context(), `syntax = "proto3"; package n; import "google/protobuf/any.proto";
		message All { int64 i = 1; string s = 2; repeated All r = 3; map<string, double> m = 4; google.protobuf.Any a = 5;
			oneof o { bytes b = 6; sint32 z = 7; } enum E { A = 0; } repeated E e = 8; }`, nil)
	require.NoError(f, err)
	f.Add([]byte("\x08\x01\x12\x02hi\x1a\x02\x08\x02\x42\x02\x00\x05"))
	f.Add([]byte("\x2a\x10\x0a\x0ex/n.All\x12\x02\x08\x02"))
	f.Fuzz(func(t *testing.T, value []byte) {
		got, err := s.json(value, place{}, 1<<20)
		if err == nil {
			require.True(t, json.Valid(got), "%q", got)
		}
	})
}

func TestProtobufOfVeryManyFieldsIsRefused(t *testing.T) {
	s, err := newProtobuf(t.Context(), `syntax = "proto3"; message L { repeated L l = 1; }`, nil)
	require.NoError(t, err)
	_, err = s.json([]byte(strings.Repeat("\x0a\x00", maxFields+1)), place{}, 1<<30)
	require.ErrorContains(t, err, "more than 131072 fields")
}
