package identity

import (
	"bytes"
	"crypto/sha256"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestFingerprintModeIsValidated(t *testing.T) {
	for _, mode := range []FingerprintMode{"", "bytes", "json"} {
		require.NoError(t, mode.Validate())
	}
	require.ErrorContains(t, FingerprintMode("JSON").Validate(), `fingerprint "JSON"`)
	assert.Nil(t, FingerprintMode("JSON").Of([]byte("x")))
}

func TestFingerprintNoneIsNil(t *testing.T) {
	assert.Nil(t, FingerprintNone.Of(nil))
	assert.Nil(t, FingerprintNone.Of([]byte("x")))
}

func TestFingerprintBytesIsPlainSHA256(t *testing.T) {
	sum := sha256.Sum256([]byte("payload"))
	assert.Equal(t, sum[:], FingerprintBytes.Of([]byte("payload")))
	assert.NotEqual(t, FingerprintBytes.Of([]byte(`{"a":1}`)), FingerprintBytes.Of([]byte(`{"a": 1}`)))
}

func TestFingerprintTellsNullEmptyAndJSONNullApart(t *testing.T) {
	for _, mode := range []FingerprintMode{FingerprintBytes, FingerprintJSON} {
		null, empty, text := mode.Of(nil), mode.Of([]byte{}), mode.Of([]byte("null"))
		for _, sum := range [][]byte{null, empty, text} {
			assert.Len(t, sum, sha256.Size)
		}
		assert.NotEqual(t, null, empty)
		assert.NotEqual(t, null, text)
		assert.NotEqual(t, empty, text)
	}
}

func TestFingerprintJSONSeesValuesAndNotSpelling(t *testing.T) {
	of := func(s string) string { return string(FingerprintJSON.Of([]byte(s))) }
	assert.Equal(t, of(`{"a":1,"b":["x"]}`), of(" {\"b\" : [\"\\u0078\"],\n\"a\":1.0} "))
	assert.Equal(t, of("1"), of("1e0"))
	assert.NotEqual(t, of("9007199254740993"), of("9007199254740992"))
	assert.NotEqual(t, of("0.1"), of("0.1000000000000000055511151231257827"))
	assert.NotEqual(t, of("1"), of(`"1"`))
	assert.NotEqual(t, of("[1,2]"), of("[2,1]"))
	assert.NotEqual(t, of(`{"a":1,"a":2}`), of(`{"a":2,"a":1}`))
	assert.NotEqual(t, of(`"\ud800"`), of(`"\ufffd"`))
	assert.NotEqual(t, of("1e"+strings.Repeat("9", 30)), of("1e"+strings.Repeat("9", 31)))
}

func TestFingerprintJSONOfOtherBytesCountsThem(t *testing.T) {
	of := func(s string) string { return string(FingerprintJSON.Of([]byte(s))) }
	assert.NotEqual(t, of("{"), of("{ "))
	assert.NotEqual(t, of("\"\xff\""), of("\"\xfe\""), "invalid UTF-8 is not JSON")
	deep := strings.Repeat("[", maxJSONDepth+1)
	assert.NotEqual(t, of(deep+strings.Repeat("]", maxJSONDepth+1)), of(deep+" "+strings.Repeat("]", maxJSONDepth+1)))
	assert.NotEqual(t, of("{"), string(FingerprintBytes.Of([]byte("{"))))
	assert.Len(t, of(strings.Repeat("[", 1<<20)), sha256.Size)
}

func TestFingerprintOfDeepObjectsStaysQuick(t *testing.T) {
	// Out of order at every level, so that each level is put into order again.
	value := strings.Repeat(`{"b":0,"a":`, maxJSONDepth-1) + `"` + strings.Repeat("x",
		1<<16) + `"` + strings.Repeat("}", maxJSONDepth-1)
	assert.Less(t, testing.AllocsPerRun(1, func() { FingerprintJSON.Of([]byte(value)) }), 10_000.0)
}

func FuzzFingerprint(f *testing.F) {
	f.Fuzz(func(t *testing.T, a, b []byte) {
		for _, mode := range []FingerprintMode{FingerprintBytes, FingerprintJSON} {
			x, y := mode.Of(a), mode.Of(b)
			require.Len(t, x, sha256.Size)
			require.Equal(t, x, mode.Of(bytes.Clone(a)))
			if bytes.Equal(a, b) && (a == nil) == (b == nil) {
				require.Equal(t, x, y)
			} else if mode == FingerprintBytes {
				require.NotEqual(t, x, y)
			}
		}
	})
}
