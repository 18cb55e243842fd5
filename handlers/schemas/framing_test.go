package schemas

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/dedup"
)

func TestFramesOfApicurio(t *testing.T) {
	long := []byte("\x00\x00\x00\x00\x00\x00\x00\x00\x07rest")
	for _, how := range []Framing{Auto, Apicurio} {
		f, found, err := how.frameOf(&dedup.Message{Value: long}, false)
		require.NoError(t, err)
		require.True(t, found)
		require.Equal(t, "schema global ID 7", f.id.String())
		require.Equal(t, "rest", string(f.rest))
	}
	short := &dedup.Message{Value: []byte("\x00\x00\x00\x00\x07rest")}
	for how, native := range map[Framing]bool{Auto: true, Apicurio: false} {
		f, _, _ := how.frameOf(short, native)
		require.Equal(t, "schema content ID 7", f.id.String())
		require.True(t, f.apicurio)
	}
	f, _, _ := Auto.frameOf(short, false)
	require.Equal(t, "schema ID 7", f.id.String())

	f, found, err := Auto.frameOf(&dedup.Message{Value: []byte("value"), Headers: []dedup.Header{
		{Key: contentHeader, Value: long[1:9]}, {Key: typeHeader, Value: []byte("Payment")}}}, false)
	require.NoError(t, err)
	require.True(t, found)
	require.Equal(t, "schema content ID 7", f.id.String())
	at, value, err := f.place()
	require.NoError(t, err)
	require.Equal(t, "Payment", at.name)
	require.Equal(t, "value", string(value))
}

func TestAPlaceOfApicurio(t *testing.T) {
	name, rest := readRef([]byte("\x09\x0a\x07Paymentrest"))
	require.Equal(t, "Payment", name)
	require.Equal(t, "rest", string(rest))
	name, rest = readRef([]byte("\x08\x2a"))
	require.Empty(t, name)
	require.Equal(t, "\x08\x2a", string(rest))
}

func TestAFrameOfAGUID(t *testing.T) {
	header := append([]byte{1}, "0123456789abcdef\x02\x04"...)
	f, found, err := Confluent.frameOf(&dedup.Message{Value: []byte("value"),
		Headers: []dedup.Header{{Key: guidHeader, Value: header}}}, false)
	require.NoError(t, err)
	require.True(t, found)
	require.Equal(t, "schema GUID 30313233-3435-3637-3839-616263646566", f.id.String())
	at, value, err := f.place()
	require.NoError(t, err)
	require.Equal(t, []int{2}, at.indexes)
	require.Equal(t, "value", string(value))
}

func FuzzFramesAreTakenApart(f *testing.F) {
	f.Add([]byte("\x00\x00\x00\x00\x07\x02\x02rest"), []byte("0123456789abcdefg"))
	f.Add([]byte("\x00\x00\x00\x00\x00\x00\x00\x00\x07\x09\x0a\x07Payment"), []byte("01234567"))
	f.Fuzz(func(t *testing.T, value, header []byte) {
		for _, how := range []Framing{Auto, Confluent, Apicurio} {
			for _, name := range []string{guidHeader, globalHeader, "other"} {
				m := &dedup.Message{Value: value, Headers: []dedup.Header{{Key: name, Value: header}}}
				frame, found, err := how.frameOf(m, false)
				if found && err == nil {
					_, rest, _ := frame.place()
					require.LessOrEqual(t, len(rest), len(value))
				}
			}
		}
	})
}
