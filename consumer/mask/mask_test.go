package mask_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/firstseen/firstseen/consumer/mask"
	"github.com/firstseen/firstseen/dedup"
)

func rules(t *testing.T, c mask.Config) *mask.Rules {
	t.Helper()
	r, err := mask.New(c)
	require.NoError(t, err)
	return r
}

func TestFieldsAreHiddenAndTheRestStaysByteForByte(t *testing.T) {
	for _, test := range []struct{ path, value, want string }{
		{"/iban", `{"iban":"DE89", "n": 9007199254740993,"f":1.10}`, `{"iban":"***", "n": 9007199254740993,"f":1.10}`},
		{"/customer/iban", ` {"a":[1,2], "customer" : { "x":1,"iban" : {"deep":[1]} } } `, ` {"a":[1,2], "customer" : { "x":1,"iban" : "***" } } `},
		{"/iban", `{"IBAN":1,"iban":2,"\u0069ban":null,"xiban":4}`, `{"IBAN":"***","iban":"***","\u0069ban":"***","xiban":4}`},
		{"/*/name", `{"a":{"name":"x"},"b":{"name":true,"c":""},"d":null}`, `{"a":{"name":"***"},"b":{"name":"***","c":""},"d":null}`},
		{"/list/*/name", `{"list":[{"name":"x"},{"other":"]}"}]}`, `{"list":[{"name":"***"},{"other":"]}"}]}`},
		{"/list/name", `{"list":[[{"name":"x"}],{"name":"y\"}"}]}`, `{"list":[[{"name":"***"}],{"name":"***"}]}`},
		{"/list/1", `{"list":["a","b","c"]}`, `{"list":["a","***","c"]}`},
		{"/a~1b/c~0d", `{"a/b":{"c~d":1}}`, `{"a/b":{"c~d":"***"}}`},
		{"/customer/iban", `{"customer":"{\"iban\":1}","x":0}`, `{"customer":"***","x":0}`},
		{"/customer/iban", `{"customer":-4711e3}`, `{"customer":"***"}`},
		{"/customer/iban", `{"customer":null,"x":[]}`, `{"customer":null,"x":[]}`},
		{"/iban", `"DE89"`, `"***"`},
		{"/iban", `{"iban":1`, `***`},
		{"/iban", `{"iban":1} {"iban":2}`, `***`},
		{"/iban", "\x00\x01binary", `***`},
		{"/iban", ``, `***`},
		{"/", ` {"a":1}`, `***`},
		{"orders:", `{"a":1}`, `***`},
		{"", `{"a":1}`, `***`},
		{"orders:/a", `{"a":1,"b":2}`, `{"a":"***","b":2}`},
		{"refunds:/a", `{"a":1`, `{"a":1`},
	} {
		m := dedup.Message{Topic: "orders", Value: []byte(test.value)}
		given := append([]byte{}, m.Value...)
		before := m.Value
		hidden := rules(t, mask.Config{Values: []string{test.path}}).Apply(&m)
		require.Equal(t, test.want, string(m.Value), test.path)
		require.Equal(t, test.want != test.value, hidden, test.path)
		require.Equal(t, string(given), string(before), "the message's own is not written to")
	}
}

func TestNullIsNull(t *testing.T) {
	m := dedup.Message{Headers: []dedup.Header{{Key: "a"}}}
	require.False(t, rules(t, mask.Config{Values: []string{"/"}, Headers: []string{"*"}, Keys: []string{"*"}}).Apply(&m))
	require.Nil(t, m.Value)
	require.False(t, (*mask.Rules)(nil).Apply(&m))
	require.False(t, (*mask.Rules)(nil).Hides("orders"))
}

func TestDecodedValuesAreHiddenByFieldsAndWhatTheyWereDecodedFromAsAWhole(t *testing.T) {
	m := dedup.Message{Topic: "orders", Value: []byte{0, 0, 0, 0, 1, 8}, Decoded: &dedup.Decoded{JSON: []byte(`{"iban":"DE","n":1}`)}}
	require.True(t, rules(t, mask.Config{Values: []string{"/iban"}}).Apply(&m))
	require.Equal(t, `{"iban":"***","n":1}`, string(m.JSON()))
	require.Equal(t, "***", string(m.Value))
	m = dedup.Message{Value: []byte(`{}`), Decoded: &dedup.Decoded{Err: errors.New("no schema 5")}}
	require.False(t, rules(t, mask.Config{Values: []string{"/iban"}}).Apply(&m))
	require.ErrorContains(t, m.Decoded.Err, "no schema 5")
}

func TestHeadersAndKeysAreHidden(t *testing.T) {
	r := rules(t, mask.Config{Headers: []string{"X-Patient"}, Keys: []string{"orders"}})
	m := dedup.Message{Topic: "orders", Key: []byte("4711"), Value: []byte("plain"), Headers: []dedup.Header{
		{Key: "x-patient", Value: []byte("Ann")}, {Key: "trace", Value: []byte("1")}}}
	headers := m.Headers
	require.True(t, r.Apply(&m))
	require.Equal(t, "***", string(m.Key))
	require.Equal(t, "plain", string(m.Value))
	require.Equal(t, "***", string(m.Headers[0].Value))
	require.Equal(t, "1", string(m.Headers[1].Value))
	require.Equal(t, "Ann", string(headers[0].Value))
	other := dedup.Message{Topic: "refunds", Key: []byte("4711")}
	require.False(t, r.Apply(&other))
	require.True(t, r.HidesKey("orders"))
	require.True(t, r.HidesKey(""), "it may be of any topic")
	require.False(t, r.HidesKey("refunds"))
}

func TestErrorsAreHiddenWhereSomethingIsUnlessTheConfigSaysOtherwise(t *testing.T) {
	c := mask.Config{Values: []string{"orders:/iban"}}
	require.Equal(t, "***", rules(t, c).Error("orders", "no account DE89"))
	require.Equal(t, "***", rules(t, c).Error("", "of any topic"))
	require.Equal(t, "timeout", rules(t, c).Error("refunds", "timeout"))
	require.Empty(t, rules(t, c).Error("orders", ""))
	c.ShowErrors = true
	require.Equal(t, "no account", rules(t, c).Error("orders", "no account"))
}

func TestTwoMessagesSaySoWhereWhatIsHiddenDiffers(t *testing.T) {
	r := rules(t, mask.Config{Values: []string{"/iban", "/list/*"}, Headers: []string{"h"}, Keys: []string{"*"}})
	a := dedup.Message{Topic: "orders", Key: []byte("a"), Value: []byte(`{"iban":{"x": 1},"list":[1,2],"n":1}`),
		Headers: []dedup.Header{{Key: "h", Value: []byte("1")}, {Key: "H", Value: []byte("2")}}}
	b := dedup.Message{Topic: "orders", Key: []byte("b"), Value: []byte(`{"iban":{"x":1},"list":[1,3,4],"n":2}`),
		Headers: []dedup.Header{{Key: "h", Value: []byte("1")}, {Key: "H", Value: []byte("3")}}}
	hiddenOfA, hiddenOfB := r.ApplyBoth(&a, &b)
	require.True(t, hiddenOfA && hiddenOfB)
	require.JSONEq(t, `{"iban":"***","list":["***","*** differs"],"n":1}`, string(a.Value))
	require.JSONEq(t, `{"iban":"***","list":["***","*** differs","*** differs"],"n":2}`, string(b.Value))
	require.Equal(t, "*** differs", string(a.Key))
	require.Equal(t, "***", string(a.Headers[0].Value))
	require.Equal(t, "*** differs", string(b.Headers[1].Value))
	broken, whole := dedup.Message{Value: []byte(`{"iban":1`)}, dedup.Message{Value: []byte(`{"iban":1}`)}
	r.ApplyBoth(&broken, &whole)
	require.Equal(t, `*** differs`, string(broken.Value))
	require.Equal(t, `{"iban":"*** differs"}`, string(whole.Value))
}

func TestFaultsNameTheListAndWhatIsWrong(t *testing.T) {
	_, err := mask.New(mask.Config{Values: []string{"/a", "iban", "/a~2", "orders:iban"}, Headers: []string{" "}, Keys: []string{""}})
	for _, want := range []string{`values: "iban" is no place`, `values: "/a~2" is no JSON pointer`, `values: "orders:iban" is no place`,
		"headers: has an empty name", "keys: has an empty name"} {
		require.ErrorContains(t, err, want)
	}
}

// Whatever the JSON is, no text that lies at a hidden place is shown, and the rest says what it said.
func TestNothingHiddenIsShownWhateverTheValue(t *testing.T) {
	const secret = "S3CRET"
	rapid.Check(t, func(r *rapid.T) {
		value := rapid.Custom(func(r *rapid.T) any { return anyJSON(r, 4) }).Draw(r, "value")
		text, err := json.Marshal(plant(value, secret))
		require.NoError(r, err)
		m := dedup.Message{Value: text}
		rules, err := mask.New(mask.Config{Values: []string{"/secret", "/*/secret", "/*/*/secret", "/*/*/*/secret", "/*/*/*/*/secret"}})
		require.NoError(r, err)
		rules.Apply(&m)
		require.NotContains(r, string(m.Value), secret)
		require.True(r, json.Valid(m.Value), "%s", m.Value)
	})
}

func anyJSON(r *rapid.T, depth int) any {
	kinds := []string{"object", "list", "text", "number", "null"}
	if depth == 0 {
		kinds = kinds[2:]
	}
	switch rapid.SampledFrom(kinds).Draw(r, "kind") {
	case "object":
		out := map[string]any{}
		for range rapid.IntRange(0, 3).Draw(r, "fields") {
			out[rapid.SampledFrom([]string{"a", "secret", "Secret", `q"]}`, ""}).Draw(r, "name")] = anyJSON(r, depth-1)
		}
		return out
	case "list":
		out := []any{}
		for range rapid.IntRange(0, 3).Draw(r, "elements") {
			out = append(out, anyJSON(r, depth-1))
		}
		return out
	case "text":
		return rapid.SampledFrom([]string{"", "x", `"`, `\`, "{[", "é"}).Draw(r, "text")
	case "number":
		return rapid.Float64Range(-1e9, 1e9).Draw(r, "number")
	}
	return nil
}

// plant puts the secret in all fields of that name.
func plant(value any, secret string) any {
	switch v := value.(type) {
	case map[string]any:
		for name, field := range v {
			if strings.EqualFold(name, "secret") {
				v[name] = []any{secret, field}
			} else {
				v[name] = plant(field, secret)
			}
		}
	case []any:
		for i := range v {
			v[i] = plant(v[i], secret)
		}
	}
	return value
}
