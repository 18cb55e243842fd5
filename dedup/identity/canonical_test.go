package identity

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/big"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestCanonicalJSONText(t *testing.T) {
	for in, want := range map[string]string{
		" [ ] ": "[]", "{ }": "{}", "[[],[[1 , 2]],{}]": "[[],[[1,2]],{}]", " null": "null", "true ": "true",
		`{"b":1, "a":{"d":[],"c":null}}`: `{"a":{"c":null,"d":[]},"b":1}`,
		`"\u0041\/\u00e9\ud83d\ude00é"`:  `"A/é😀é"`,
		`"\b\t\n\f\r\"\\\u0008\u001F"`:   `"\b\t\n\f\r\"\\\b\u001f"`,
		`"\uD800\ud800x\uDFFF"`:          `"\ud800\ud800x\udfff"`,
		`{"a":2,"b":0,"a":1}`:            `{"a":2,"a":1,"b":0}`,
		`{"\u0061":2,"A":0,"a":1}`:       `{"A":0,"a":2,"a":1}`,
	} {
		assert.Equal(t, want, string(canonicalJSON([]byte(in))), in)
	}
}

func TestCanonicalJSONKeepsTheOrderOfRepeatedKeys(t *testing.T) {
	var mixed, a, b []string
	for i := 1; i < 200; i += 2 {
		a = append(a, fmt.Sprintf(`"a":%d1`, i))
		b = append(b, fmt.Sprintf(`"b":%d1`, i))
		mixed = append(mixed, b[len(b)-1], a[len(a)-1])
	}
	want := "{" + strings.Join(a, ",") + "," + strings.Join(b, ",") + "}"
	assert.Equal(t, want, string(canonicalJSON([]byte("{"+strings.Join(mixed, ",")+"}"))))
}

// The example of RFC 8785, section 3.2.3.
func TestCanonicalJSONSortsKeysByUTF16(t *testing.T) {
	in := `{"\u20ac":"Euro Sign","\r":"Carriage Return","\ufb33":"Hebrew Letter Dalet With Dagesh","1":"One",
		"\ud83d\ude00":"Emoji: Grinning Face","\u0080":"Control","\u00f6":"Latin Small Letter O With Diaeresis"}`
	want := `{"\r":"Carriage Return","1":"One","` + "\u0080" +
		`":"Control","ö":"Latin Small Letter O With Diaeresis",` + `"€":"Euro Sign","😀":"Emoji: Grinning Face","` +
		"\ufb33" + `":"Hebrew Letter Dalet With Dagesh"}`
	assert.Equal(t, want, string(canonicalJSON([]byte(in))))
}

func TestCanonicalNumberText(t *testing.T) {
	for want, spellings := range map[string][]string{
		"0":                     {"0", "-0", "0.000", "0e5", "-0.0E-7", "0e99999999999999999999999"},
		"1":                     {"1", "1.0", "1e0", "10e-1", "0.1E+1", "1.000e-0", "0.001e03"},
		"-12e-1":                {"-1.2", "-12e-1", "-120E-2"},
		"1e2":                   {"100", "1e2", "1E+2", "100.00", "1e0000000000000000000000002"},
		"5e-2":                  {"0.05", "5e-2", "0.5e-1"},
		"9007199254740993":      {"9007199254740993", "9007199254740993.0"},
		"9007199254740992":      {"9007199254740992"},
		"1e999999999999999999":  {"1e999999999999999999", "10e999999999999999998"},
		"1E1000000000000000000": {"1E1000000000000000000"},
	} {
		for _, s := range spellings {
			assert.Equal(t, want, string(canonicalJSON([]byte(s))), s)
		}
	}
}

func TestCanonicalNumberKeepsItsValue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		number := rapid.StringMatching(`-?(0|[1-9][0-9]{0,25})(\.[0-9]{1,25})?([eE][+-]?[0-9]{1,2})?`)
		x, y := number.Draw(t, "x"), number.Draw(t, "y")
		cx, cy := canonicalJSON([]byte(x)), canonicalJSON([]byte(y))
		assert.Zero(t, rational(t, x).Cmp(rational(t, string(cx))))
		assert.Equal(t, rational(t, x).Cmp(rational(t, y)) == 0, string(cx) == string(cy))
	})
}

func rational(t require.TestingT, text string) *big.Rat {
	r, ok := new(big.Rat).SetString(text)
	require.True(t, ok, text)
	return r
}

func TestCanonicalNumberWithHugeExponentStaysSmall(t *testing.T) {
	for _, number := range []string{"1e" + strings.Repeat("9", 1000), "1e999999999999999999",
		"-1.5e-999999999999999999"} {
		assert.LessOrEqual(t, len(canonicalJSON([]byte(number))), len(number)+2)
	}
}

func TestCanonicalJSONIgnoresSpaceAndOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		members := rapid.MapOfN(rapid.String(), rapid.Int64(), 0, 20).Draw(t, "members")
		compact, err := json.Marshal(members)
		require.NoError(t, err)
		var b bytes.Buffer
		b.WriteString("{ ")
		n := 0
		for k, v := range members { // in random order
			if n++; n > 1 {
				b.WriteString(" ,\n")
			}
			key, _ := json.Marshal(k)
			value, _ := json.Marshal(v)
			b.WriteString(string(key) + " : " + string(value))
		}
		b.WriteString("}\n")
		assert.Equal(t, string(canonicalJSON(compact)), string(canonicalJSON(b.Bytes())))
	})
}
