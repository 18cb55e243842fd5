package identity

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/firstseen/firstseen/dedup/internal/uuid8"
)

var testTopicID = uuid.MustParse("7f3d2c1b-0a99-4e88-b777-665544332211")

func newRule(t testing.TB, texts ...string) *Rule {
	t.Helper()
	sources := make([]Source, len(texts))
	for i, text := range texts {
		require.NoError(t, sources[i].UnmarshalText([]byte(text)))
	}
	id, err := NewRule(sources...)
	require.NoError(t, err)
	return id
}

func identify(t testing.TB, m Record, texts ...string) Found {
	t.Helper()
	return newRule(t, texts...).Find(&m, testTopicID)
}

func positionID(t testing.TB, m Record) uuid.UUID {
	return identify(t, m, "position").ID
}

func requireReason(t testing.TB, want Reason, m Record, texts ...string) {
	t.Helper()
	got := identify(t, m, texts...)
	require.Equal(t, want, got.Reason)
	require.Empty(t, got.RawID)
	require.Equal(t, positionID(t, m), got.ID, "a dead letter has its position's ID")
}

func withHeaders(keysAndValues ...string) Record {
	m := Record{Topic: "orders", Partition: 3, Offset: 1200}
	for i := 0; i < len(keysAndValues); i += 2 {
		m.Headers = append(m.Headers, Header{Key: keysAndValues[i], Value: []byte(keysAndValues[i+1])})
	}
	return m
}

func withValue(value string) Record {
	return Record{Topic: "orders", Partition: 3, Offset: 1200, Value: []byte(value)}
}

func withKey(key string) Record {
	return Record{Topic: "orders", Partition: 3, Offset: 1200, Key: []byte(key)}
}

func TestIdentityDefaultIsMessageIDThenID(t *testing.T) {
	other := strings.Replace(canonicalID, "0190", "0191", 1)
	assert.Equal(t, canonicalID, identify(t, withHeaders("id", other, "message-id", canonicalID)).ID.String())
	assert.Equal(t, other, identify(t, withHeaders("id", other, "Message-Id", canonicalID)).ID.String())
	requireReason(t, ReasonMissingID, withHeaders("trace", "x"))
	requireReason(t, ReasonMissingID, Record{})
}

func TestIdentityTakesEverySpellingOfAUUID(t *testing.T) {
	for _, text := range uuidSpellings(canonicalID) {
		for _, m := range []Found{
			identify(t, withHeaders("message-id", " \t"+text+"\r\n")),
			identify(t, withKey(text+"\n"), "key"),
			identify(t, withValue(`{"id":" `+text+` "}`), "json:/id"),
		} {
			assert.Equal(t, canonicalID, m.ID.String(), text)
			assert.Empty(t, m.RawID)
			assert.Empty(t, m.Reason)
		}
	}
}

func TestIdentityHashesOtherTextsAndKeepsThem(t *testing.T) {
	m := identify(t, withHeaders("message-id", "  order 17/é\n"))
	assert.Equal(t, "order 17/é", m.RawID)
	assert.EqualValues(t, 8, m.ID.Version())
	assert.Equal(t, m.ID, identify(t, withHeaders("message-id", "order 17/é")).ID)
	assert.Equal(t, m.ID, identify(t, withValue(`{"id":"order 17\/\u00e9"}`), "json:/id").ID,
		"a text is one ID wherever it is")
	assert.NotEqual(t, m.ID, identify(t, withHeaders("message-id", "Order 17/é")).ID)
}

// IDs are in message_dedup for ever: none of these may change.
func TestIdentityGoldenIDs(t *testing.T) {
	m := withHeaders("message-id", "m1", "ce_source", "a", "ce_id", "bc")
	m.Key, m.Value = []byte("k1"), []byte(`{"a":1,"b":"x"}`)
	for source, want := range map[string]string{
		"header:message-id": "66676b90-1ff2-856a-9b47-9a47e39c800d",
		"cloudevents":       "b29ee238-cae7-8a03-b2d6-f395ce5f1d10",
		"json:/b":           "c57d7ba4-569f-8482-9a67-948506631a5c",
		"key":               "f7e5a338-2744-8737-8b3b-28e8704c5c90",
		"position":          "de0d057c-7db1-857a-ac06-6682fd8deacb",
		"hash":              "d7e77615-bc43-819e-84e7-242ff34526ed",
		"hash:/a,/b,/c":     "a9f941fc-fae5-8759-99b0-d4178bbd3ffc",
	} {
		assert.Equal(t, want, identify(t, m, source).ID.String(), source)
	}
	byName := newRule(t, "position").Find(&m, uuid.Nil)
	assert.Equal(t, "fdc1ed07-bdb2-8b57-be3e-fb1ef07340b0", byName.ID.String())
}

func TestIdentityKeepsTextsThatPostgresCannotStoreAsHex(t *testing.T) {
	assert.Equal(t, `\x6100ff`, identify(t, withHeaders("message-id", "a\x00\xff")).RawID)
	assert.Equal(t, `\x6100`, identify(t, withValue(`{"id":"a\u0000"}`), "json:/id").RawID)
	assert.Equal(t, `\xeda080`, identify(t, withValue(`{"id":"\ud800"}`), "json:/id").RawID)
	assert.Equal(t, `\x0000000a`, identify(t, withKey("\x00\x00\x00\x0a"), "key").RawID)
}

func TestIdentityKeepsBinaryValuesApart(t *testing.T) {
	for _, pair := range [][2]string{
		{"\x00\x00\x00\x0a", "\x00\x00\x00\x20"}, {"\x01\x20", "\x01"}, {"\xff ", "\xff"}, {"\x7f\n", "\x7f"},
	} {
		a, b := withHeaders("message-id", pair[0]), withHeaders("message-id", pair[1])
		assert.NotEqual(t, identify(t, a).ID, identify(t, b).ID, "%q", pair)
	}
	assert.NotEqual(t, identify(t, withKey("AAA\x09"), "key").ID, identify(t, withKey("AAA\x20"), "key").ID,
		"two int32 keys that happen to look like text")
}

func TestIdentityEmptyIsMissingAndPassesOn(t *testing.T) {
	for _, empty := range []string{"", " ", "\r\n\t"} {
		requireReason(t, ReasonMissingID, withHeaders("message-id", empty))
		assert.Equal(t, "m2", identify(t, withHeaders("message-id", empty, "id", "m2")).RawID)
	}
	m := Record{Headers: []Header{{Key: "message-id"}, {Key: "id", Value: []byte("m2")}}}
	assert.Equal(t, "m2", identify(t, m).RawID, "null")
	requireReason(t, ReasonMissingID, Record{}, "key")
	requireReason(t, ReasonMissingID, withKey(""), "key")
}

func TestIdentityOfRepeatedHeaderIsAmbiguousUnlessEqual(t *testing.T) {
	requireReason(t, ReasonAmbiguousID, withHeaders("message-id", "m1", "trace", "a", "message-id", "m2", "id", "m3"))
	assert.Equal(t, "m1", identify(t, withHeaders("message-id", "m1", "message-id", " m1 ")).RawID)
	assert.Equal(t, "m1", identify(t, withHeaders("message-id", "", "message-id", "m1", "message-id", " ")).RawID)
	same := identify(t, withHeaders("message-id", canonicalID, "message-id", strings.ToUpper(canonicalID)))
	assert.Equal(t, canonicalID, same.ID.String())
}

func TestIdentityLengthLimitCountsTrimmedBytes(t *testing.T) {
	long := strings.Repeat("a", MaxIDBytes)
	for _, m := range []Found{
		identify(t, withHeaders("message-id", " "+long+" ")),
		identify(t, withKey(long), "key"),
		identify(t, withValue(`{"id":"`+strings.Repeat(`\u0061`, MaxIDBytes)+`"}`), "json:/id"),
	} {
		assert.Equal(t, long, m.RawID)
	}
	requireReason(t, ReasonIDTooLong, withHeaders("message-id", long+"a", "id", "m2"))
	requireReason(t, ReasonIDTooLong, withKey(long+"\n"), "key", "position")
	requireReason(t, ReasonIDTooLong, withValue(`{"id":`+strings.Repeat("1", MaxIDBytes+1)+`}`), "json:/id")
}

func TestIdentityOfLongTextsThatDifferAtTheEndDiffers(t *testing.T) {
	long := strings.Repeat("a", 299)
	assert.NotEqual(t, identify(t, withHeaders("id", long+"b")).ID, identify(t, withHeaders("id", long+"c")).ID)
}

func TestIdentityRefusesNilAndMaxUUID(t *testing.T) {
	for _, reserved := range []uuid.UUID{uuid.Nil, uuid.Max} {
		for _, text := range uuidSpellings(reserved.String()) {
			requireReason(t, ReasonNilID, withHeaders("message-id", text, "id", "m2"))
			requireReason(t, ReasonNilID, withHeaders("ce_source", "/s", "ce_id", text), "cloudevents", "position")
		}
	}
}

func TestIdentityFallsBackToPositionWhereConfigured(t *testing.T) {
	m := withValue("no json")
	got := identify(t, m, "json:/id", "position")
	assert.Empty(t, got.Reason)
	assert.Equal(t, positionID(t, m), got.ID)
}

func TestIdentityPositionsDifferInEveryPart(t *testing.T) {
	base := Record{Topic: "t", Partition: 1, Offset: 2}
	ids := map[uuid.UUID]bool{}
	for _, topicID := range []uuid.UUID{uuid.Nil, testTopicID, uuid.Max} {
		for _, topic := range []string{"t", "t2"} {
			for _, partition := range []int32{1, 2} {
				for _, offset := range []int64{1, 2, 1 << 40} {
					m := base
					m.Topic, m.Partition, m.Offset = topic, partition, offset
					ids[newRule(t, "position").Find(&m, topicID).ID] = true
				}
			}
		}
	}
	assert.Len(t, ids, 4*2*3, "a topic's ID replaces its name")
}

func TestIdentityPayloadHashTellsPayloadsApartAndNeedsOne(t *testing.T) {
	a, b := identify(t, withValue("a"), "hash"), identify(t, withValue("b"), "hash")
	assert.NotEqual(t, a.ID, b.ID)
	assert.Equal(t, a.ID, identify(t, withValue("a"), "hash").ID)
	assert.Empty(t, a.RawID)
	requireReason(t, ReasonMissingID, withValue(""), "hash")
	requireReason(t, ReasonMissingID, Record{}, "hash")
}

func TestIdentityHashesOfDifferentKindsNeverMeet(t *testing.T) {
	m := withHeaders("h", "x", "ce_source", "x", "ce_id", "x")
	m.Value = []byte(`"x"`)
	ids := map[uuid.UUID]bool{
		identify(t, m, "header:h").ID: true, identify(t, m, "cloudevents").ID: true, identify(t, m,
			"position").ID: true,
		identify(t, m, "hash").ID: true, KeyOf("x", "", "", "", 0): true,
	}
	assert.Len(t, ids, 5)
}

func TestIdentityReportsEveryFaultOfItsSources(t *testing.T) {
	key, position := Source{kind: fromKey}, Source{kind: fromPosition}
	_, err := NewRule(key, Source{}, key, position, Source{kind: fromHash})
	require.ErrorContains(t, err, "source 2 is empty")
	require.ErrorContains(t, err, `source 3: "key" is there twice`)
	require.ErrorContains(t, err, `source 5: "hash" is never asked`)
}

func TestIdentityIsSafeForConcurrentUse(t *testing.T) {
	id := newRule(t, "header:h", "json:/id", "hash:/a", "key")
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 100 {
				m := withValue(`{"id":"m1"}`)
				assert.Equal(t, "m1", id.Find(&m, testTopicID).RawID)
			}
		})
	}
	wg.Wait()
}

func TestIdentityOfUUIDHeaderAllocatesNothing(t *testing.T) {
	id, m := newRule(t), withHeaders("trace", "x", "message-id", canonicalID)
	assert.Zero(t, testing.AllocsPerRun(100, func() { id.Find(&m, testTopicID) }))
}

func TestIdentityLeavesTheMessageItselfAlone(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		bytesOrNil := rapid.OneOf(rapid.Just([]byte(nil)), rapid.SliceOf(rapid.Byte()))
		m := Record{Key: bytesOrNil.Draw(rt, "key"), Value: bytesOrNil.Draw(rt, "value")}
		m.Headers = []Header{{Key: "id", Value: bytesOrNil.Draw(rt, "header")}}
		key, value, header := bytes.Clone(m.Key), bytes.Clone(m.Value), bytes.Clone(m.Headers[0].Value)
		newRule(t, "header:id", "json:/id", "hash:/a", "hash", "key").Find(&m, testTopicID)
		assert.Equal(rt, []any{key, value, header}, []any{m.Key, m.Value, m.Headers[0].Value})
	})
}

func TestIdentityTakesAUUIDWithWhatSerializersPutAroundIt(t *testing.T) {
	for _, text := range uuidSpellings(canonicalID) {
		for _, around := range []string{`"%"`, ` "%" `, "\" %\r\n\"", "\u00a0%\u200b", "\ufeff%", `""%""`,
			"%\x00", "\u2028\"%\"\u3000"} {
			text := strings.Replace(around, "%", text, 1)
			for _, m := range []Found{identify(t, withHeaders("message-id", text)), identify(t, withKey(text), "key"),
				identify(t, withHeaders("message-id", text, "message-id", canonicalID))} {
				assert.Equal(t, canonicalID, m.ID.String(), "%q", text)
				assert.Empty(t, m.RawID)
			}
		}
	}
	quoted, err := json.Marshal(`"` + canonicalID + `"`)
	require.NoError(t, err)
	assert.Equal(t, canonicalID, identify(t, withValue(`{"id":`+string(quoted)+`}`), "json:/id").ID.String())
	requireReason(t, ReasonNilID, withHeaders("message-id", `"`+uuid.Nil.String()+`"`))
}

// Their IDs are stored: they keep what they have.
func TestIdentityKeepsTheQuotesOfOtherTexts(t *testing.T) {
	for _, text := range []string{`"order-17"`, `"`, `'null'`, `"a" "b"`, `nullable`, `none-1`, `0`, `-`, `false`} {
		m := identify(t, withHeaders("message-id", text))
		assert.Equal(t, text, m.RawID)
		assert.Equal(t, uuid8.New(uuid8.Text, []byte(text)), m.ID)
		assert.Equal(t, m.ID, identify(t, withKey(text), "key").ID)
	}
}

func TestIdentityTextsThatAreNoIDInPracticeAreMissing(t *testing.T) {
	texts := append([]string{`""`, `"null"`, ` "  " `, "NULL", "Undefined", "None", "\u00a0", "\u200b\ufeff",
		"\u2003", "\"\u00a0\""}, NoIDs...)
	for _, text := range texts {
		requireReason(t, ReasonMissingID, withHeaders("message-id", text))
		requireReason(t, ReasonMissingID, withKey(text), "key")
		requireReason(t, ReasonMissingID, withHeaders("ce_source", "/s", "ce_id", text), "cloudevents")
		quoted, err := json.Marshal(text)
		require.NoError(t, err)
		requireReason(t, ReasonMissingID, withValue(`{"id":`+string(quoted)+`}`), "json:/id")
		requireReason(t, ReasonMissingID, withValue(`{"id":`+string(quoted)+`,"other":null}`),
			"hash:/id,/other,/absent")
		assert.Equal(t, "m2", identify(t, withHeaders("message-id", text, "id", "m2")).RawID,
			"the next source is asked")
		assert.Equal(t, "m2", identify(t, withHeaders("message-id", text, "message-id", "m2")).RawID)
	}
	requireReason(t, ReasonMissingID, withHeaders("message-id", "\x00\x00"))
	assert.Equal(t, `\x00000000`, identify(t, withKey("\x00\x00\x00\x00"), "key").RawID, "a key that is the number 0")
	assert.Empty(t, identify(t, withHeaders("ce_source", "none", "ce_id", "1"), "cloudevents").Reason)
	assert.Empty(t, identify(t, withValue(`{"id":"","line":7}`), "hash:/id,/line").Reason)
}

func TestIdentityTakesOtherTextsForNoID(t *testing.T) {
	id := newRule(t).WithNoIDs("N/A", "-")
	for text, want := range map[string]Reason{"n/a": ReasonMissingID, `"-"`: ReasonMissingID,
		"null": "", "": ReasonMissingID} {
		m := withHeaders("message-id", text)
		assert.Equal(t, want, id.Find(&m, testTopicID).Reason, text)
	}
	m := withHeaders("message-id", "null")
	assert.Empty(t, newRule(t).WithNoIDs().Find(&m, testTopicID).Reason)
}

func TestIdentitySaysWhereJSONHasAnEnvelope(t *testing.T) {
	framed := "\x00\x00\x00\x00\x07" + `{"id":"m1"}`
	requireReason(t, ReasonFramed, withValue(framed), "json:/id")
	requireReason(t, ReasonFramed, withValue(framed), "hash:/id")
	requireReason(t, ReasonNotJSON, withValue("\x00\x00\x00\x00\x07"), "json:/id")
	m := withValue(framed)
	found := newRule(t, "json:/id").Find(&m, testTopicID)
	assert.Equal(t, "payload_has_schema_id by json:/id, of json:/id; it starts as Confluent framing does, schema ID 7, "+
		"and no registry is configured for it", found.Sought)
	m.Key = []byte("m2")
	assert.Equal(t, "m2", identify(t, m, "json:/id", "key").RawID)
}

func TestPointersLeadIntoWhatAValueWasDecodedTo(t *testing.T) {
	m := withValue("\x00\x00\x00\x00\x07avro")
	bytes := identify(t, m, "hash")
	m.JSON = []byte(`{"id":"m1"}`)
	assert.Equal(t, "m1", identify(t, m, "json:/id").RawID)
	assert.Equal(t, bytes.ID, identify(t, m, "hash").ID, "a hash of the value is one of the bytes that came")
	plain := withValue(`{"id":"m1"}`)
	assert.Equal(t, identify(t, plain, "hash:/id").ID, identify(t, m, "hash:/id").ID)

	m.JSON, m.Undecoded = nil, errors.New("the registry does not know it")
	found := newRule(t, "json:/id").Find(&m, testTopicID)
	assert.Equal(t, ReasonFramed, found.Reason)
	assert.Contains(t, found.Sought, "; the registry does not know it")
	m.Value = []byte(`{"id":"m1"}`)
	requireReason(t, ReasonNotJSON, m, "json:/id")
}

func BenchmarkIdentify(b *testing.B) {
	for name, header := range map[string]string{"uuid": canonicalID, "text": "order-17"} {
		b.Run(name, func(b *testing.B) {
			id, m := newRule(b), withHeaders("trace", "x", "message-id", header)
			b.ReportAllocs()
			for b.Loop() {
				id.Find(&m, testTopicID)
			}
		})
	}
}

func FuzzIdentify(f *testing.F) {
	sources := []string{"cloudevents", "header:message-id", "json:/a/0/id", "json:/id", "hash:/a,/id", "key"}
	f.Fuzz(func(t *testing.T, contentType, header, key, value []byte) {
		m := Record{Topic: "t", Key: key, Value: value}
		m.Headers = []Header{{Key: "content-type", Value: contentType}, {Key: "message-id", Value: header}}
		got := identify(t, m, sources...)
		require.NotEqual(t, uuid.Nil, got.ID)
		require.NotContains(t, got.RawID, "\x00")
		require.LessOrEqual(t, len(got.RawID), 2+2*(MaxIDBytes+1))
		require.Equal(t, strings.ToValidUTF8(got.RawID, "?"), got.RawID)
		require.Equal(t, got.Reason != "", got.ID == positionID(t, m))
		require.Equal(t, got, identify(t, m, sources...))
	})
}

// Whatever is put around a UUID that can't be seen, or is JSON's quotes, it stays that UUID; and any other text
// keeps the ID of the first release.
func FuzzTextID(f *testing.F) {
	for _, text := range append(uuidSpellings(canonicalID),
		append(NoIDs, "order-17", `"order-17"`, "\u00a0", "\x00", "")...) {
		f.Add([]byte(text), []byte(" \u00a0\""), uint8(3))
	}
	f.Fuzz(func(t *testing.T, text, around []byte, n uint8) {
		m := Record{Headers: []Header{{Key: "id", Value: text}}}
		got := identify(t, m)
		if id, ok := parseUUID(trimASCII(text)); ok && !isNil(id) {
			require.Equal(t, id, got.ID)
		} else if got.Reason == "" && got.RawID != "" {
			require.Equal(t, uuid8.New(uuid8.Text, trimText(text)), got.ID)
		}
		decorated := []byte(canonicalID)
		for _, r := range string(around[:min(len(around), int(n))]) {
			if r == '"' || isUnseen(r) {
				decorated = []byte(string(r) + string(decorated) + string(r))
			}
		}
		require.Equal(t, canonicalID, identify(t, Record{Headers: []Header{{Key: "id",
			Value: decorated}}}).ID.String())
		require.Equal(t, canonicalID, identify(t, Record{Key: decorated}, "key").ID.String())
		if got.Reason == ReasonMissingID {
			return
		}
		ids, err := ParseIDs(string(text))
		if utf8.Valid(text) && got.Reason == "" {
			require.NoError(t, err)
			require.Contains(t, ids, got.ID, "what a message has, its text finds")
		}
	})
}
