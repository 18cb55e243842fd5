package handlers_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/handlers"
)

// upper is a format whose values begin with "u:".
type upper struct{ away bool }

func (u upper) JSON(_ context.Context, m *dedup.Message) ([]byte, error) {
	switch {
	case u.away:
		return nil, handlers.Unavailable(errors.New("away"))
	case len(m.Value) < 2 || string(m.Value[:2]) != "u:":
		return nil, nil
	case len(m.Value) == 2:
		return nil, handlers.Undecodable(errors.New("nothing is there"))
	}
	return m.Value[2:], nil
}

func TestDecodeBySetsTheBodyAndLeavesTheValue(t *testing.T) {
	m := dedup.Message{Value: []byte(`u:{"a":1}`)}
	require.NoError(t, handlers.DecodeBy(t.Context(), upper{}, &m))
	body, err := m.Body()
	require.NoError(t, err)
	require.Equal(t, `{"a":1}`, string(body))
	require.Equal(t, `u:{"a":1}`, string(m.Value))
	v, err := handlers.Decode(handlers.JSONDecoder[map[string]int]{}, m)
	require.NoError(t, err)
	require.Equal(t, map[string]int{"a": 1}, v)

	m = dedup.Message{Value: []byte(`u:`)}
	require.NoError(t, handlers.DecodeBy(t.Context(), upper{}, &m))
	_, err = handlers.Decode(handlers.JSONDecoder[int]{}, m)
	require.ErrorContains(t, err, "nothing is there")
	require.Equal(t, "undecodable", handlers.ReasonOf(err))

	for _, value := range []string{`{"a":1}`, ""} {
		m = dedup.Message{Value: []byte(value)}
		require.NoError(t, handlers.DecodeBy(t.Context(), upper{}, &m))
		require.Nil(t, m.Decoded)
	}
	m = dedup.Message{}
	require.NoError(t, handlers.DecodeBy(t.Context(), upper{away: true}, &m), "a tombstone needs nothing")
	m.Value = []byte("x")
	require.Equal(t, "unavailable", handlers.ReasonOf(handlers.DecodeBy(t.Context(), upper{away: true}, &m)))
}

func TestFunctionIsGivenWhatWasDecodedAndTheInboxKeepsTheBytes(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.exec(`create table booked (body jsonb, payload bytea)`)
	s.exec(`create function book(batch firstseen.message[]) returns void language sql as
		'insert into booked select firstseen.body(m), m.payload from unnest(batch) m'`)
	s.registerSQL("book")
	p := s.position("orders")
	ms := messages(p, newIDs(4)...)
	for i, value := range []string{`u:{"a":1}`, `{"b":2}`, `u:`, `u:3`} {
		ms[i].Value = []byte(value)
		require.NoError(t, handlers.DecodeBy(t.Context(), upper{}, &ms[i]))
	}
	s.requireResult(handlers.Result{New: 3, Dead: 1}, p, ms...)
	require.Equal(t, 1, s.count(`select count(*) from booked where body = '{"a": 1}' and payload = '{"a":1}'`))
	require.Equal(t, 1, s.count(`select count(*) from booked where body = '{"b": 2}'`))
	require.Equal(t, 1, s.count(`select count(*) from firstseen.inbox where payload = 'u:{"a":1}'`))
	require.Equal(t, 1, s.count(`select count(*) from firstseen.dead_letters where reason = 'undecodable'
		and error = 'handler sql: message orders/0@2: nothing is there'`))
}

func TestFunctionThatTakesAFramedPayloadForTextSaysThatThereIsNoRegistry(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.exec(`create function book(m firstseen.message) returns void language plpgsql as
		$$ begin perform firstseen.body(m) ->> 'a'; end $$`)
	s.registerSQL("book")
	p := s.position("orders")
	ms := messages(p, newIDs(2)...)
	ms[0].Value, ms[1].Value = []byte("\x00\x00\x00\x00\x07avro"), []byte(`{}`)
	s.requireResult(handlers.Result{New: 1, Dead: 1}, p, ms...)
	require.Equal(t, 1, s.count(`select count(*) from firstseen.dead_letters where reason = 'undecodable'
		and error like '%it starts as Confluent framing does, schema ID 7, and no registry is configured for it'`))
}
