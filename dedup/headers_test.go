package dedup

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestHeadersGoldenBytes(t *testing.T) {
	got := AppendHeaders([]byte("x"), []Header{{Key: "k", Value: []byte{0, 0xff}}, {Key: "", Value: []byte{}},
		{Key: "é"}})
	assert.Equal(t, "x"+
		"\x00\x00\x00\x01k\x00\x00\x00\x02\x00\xff"+
		"\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02é\xff\xff\xff\xff", string(got))
}

func TestHeadersOfNoneAreNoBytes(t *testing.T) {
	assert.Empty(t, AppendHeaders(nil, nil))
	for _, b := range [][]byte{nil, {}} {
		hs, err := DecodeHeaders(b)
		require.NoError(t, err)
		assert.Nil(t, hs)
	}
}

func TestHeadersRoundTripWithNullEmptyAndRepeated(t *testing.T) {
	value := rapid.OneOf(rapid.Just([]byte(nil)), rapid.Just([]byte{}), rapid.SliceOf(rapid.Byte()))
	header := rapid.Custom(func(t *rapid.T) Header {
		key := rapid.OneOf(rapid.SampledFrom([]string{"", "a", "a"}), rapid.String()).Draw(t, "key")
		return Header{Key: key, Value: value.Draw(t, "value")}
	})
	rapid.Check(t, func(t *rapid.T) {
		hs := rapid.SliceOf(header).Draw(t, "headers")
		got, err := DecodeHeaders(AppendHeaders(nil, hs))
		require.NoError(t, err)
		require.Len(t, got, len(hs))
		for i := range hs {
			require.Equal(t, hs[i], got[i])
		}
	})
}

func TestHeadersThatAreCutOrOverlongAreRefused(t *testing.T) {
	whole := AppendHeaders(nil, []Header{{Key: "key", Value: []byte("value")}})
	for n := 1; n < len(whole); n++ {
		_, err := DecodeHeaders(whole[:n])
		require.ErrorContains(t, err, "decode header 1 at byte 0", n)
	}
	for _, b := range []string{"\xff\xff\xff\xff\x00\x00\x00\x00", "\xff\xff\xff\xfe\x00\x00\x00\x00",
		"\x00\x00\x00\x00\x7f\xff\xff\xff"} {
		_, err := DecodeHeaders([]byte(b))
		require.Error(t, err)
	}
	_, err := DecodeHeaders(append(whole, 0))
	require.ErrorContains(t, err, "decode header 2 at byte 16 of 17")
}

func TestHeadersDecodedDoNotReachIntoEachOther(t *testing.T) {
	hs, err := DecodeHeaders(AppendHeaders(nil, []Header{{Key: "a", Value: []byte("1")},
		{Key: "b", Value: []byte("2")}}))
	require.NoError(t, err)
	_ = append(hs[0].Value, "overwritten"...)
	assert.Equal(t, Header{Key: "b", Value: []byte("2")}, hs[1])
}

func FuzzDecodeHeaders(f *testing.F) {
	f.Fuzz(func(t *testing.T, b []byte) {
		hs, err := DecodeHeaders(b)
		if err != nil {
			require.Nil(t, hs)
			return
		}
		require.True(t, bytes.Equal(b, AppendHeaders(nil, hs)), "every list has one encoding")
	})
}
