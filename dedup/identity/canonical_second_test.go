package identity

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/gowebpki/jcs"
	"github.com/stretchr/testify/require"
)

// This is the rule of [FingerprintMode.Of] for JSON once more, written from its words and by other means:
// encoding/json says where a token ends, a string is a list of UTF-16 code units, a number two integers of math/big.

// node is a JSON value.
type node struct {
	kind   byte       // the first of its text: { [ " t f n, or 0 for a number
	units  []uint16   // of a string
	number string     // its canonical text
	keys   [][]uint16 // of an object, in order
	items  []node     // of an object or an array
}

// secondParse reads a document that counts as JSON.
func secondParse(doc []byte) (node, bool) {
	r := &reader{doc: doc, tokens: json.NewDecoder(bytes.NewReader(doc))}
	r.tokens.UseNumber()
	v, err := r.value(0)
	if _, end := r.tokens.Token(); !utf8.Valid(doc) || err != nil || !errors.Is(end, io.EOF) {
		return node{}, false
	}
	return v, true
}

type reader struct {
	doc    []byte
	tokens *json.Decoder
}

var errTooDeep = errors.New("nested deeper than 512")

func (r *reader) value(depth int) (node, error) {
	before := r.tokens.InputOffset()
	token, err := r.tokens.Token()
	if err != nil {
		return node{}, err
	}
	text := bytes.TrimLeft(r.doc[before:r.tokens.InputOffset()], " \t\r\n:,")
	switch token := token.(type) {
	case json.Delim:
		return r.nested(node{kind: byte(token)}, depth+1)
	case string:
		return node{kind: '"', units: unitsOf(string(text))}, nil
	case json.Number:
		return node{number: numberOf(string(token))}, nil
	}
	return node{kind: text[0]}, nil // true, false, null
}

func (r *reader) nested(v node, depth int) (node, error) {
	if depth > 512 {
		return v, errTooDeep
	}
	for r.tokens.More() {
		if v.kind == '{' {
			key, err := r.value(depth)
			if err != nil {
				return v, err
			}
			v.keys = append(v.keys, key.units)
		}
		item, err := r.value(depth)
		if err != nil {
			return v, err
		}
		v.items = append(v.items, item)
	}
	_, err := r.tokens.Token() // its end
	v.sort()
	return v, err
}

// sort puts members in the order of their keys' code units; those of one key stay in theirs.
func (v *node) sort() {
	at := make([]int, len(v.keys))
	for i := range at {
		at[i] = i
	}
	slices.SortStableFunc(at, func(a, b int) int { return slices.Compare(v.keys[a], v.keys[b]) })
	keys, items := v.keys, v.items
	if v.keys == nil {
		return
	}
	v.keys, v.items = nil, nil
	for _, i := range at {
		v.keys, v.items = append(v.keys, keys[i]), append(v.items, items[i])
	}
}

// unitsOf is a string as it was before it was quoted. An escape is one unit, whatever that is: what makes a pair with
// its neighbour does so by standing beside it.
func unitsOf(quoted string) []uint16 {
	units := []uint16{}
	for s := quoted[1 : len(quoted)-1]; s != ""; {
		switch {
		case strings.HasPrefix(s, `\u`):
			unit, _ := strconv.ParseUint(s[2:6], 16, 16)
			units, s = append(units, uint16(unit)), s[6:]
		case s[0] == '\\':
			units, s = append(units, uint16(escapes[s[1]])), s[2:]
		default:
			plain, _, _ := strings.Cut(s, `\`)
			units, s = append(units, utf16.Encode([]rune(plain))...), s[len(plain):]
		}
	}
	return units
}

var escapes = map[byte]rune{'"': '"', '\\': '\\', '/': '/', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t'}

// numberOf is a number's canonical text. Its digits are an integer once the point is taken out.
func numberOf(text string) string {
	mantissa, power, _ := strings.Cut(strings.ToLower(text), "e")
	_, fraction, _ := strings.Cut(mantissa, ".")
	digits, _ := new(big.Int).SetString(strings.Replace(mantissa, ".", "", 1), 10)
	exponent, ok := new(big.Int).SetString(power, 10)
	if !ok {
		exponent = new(big.Int) // there is none
	}
	switch {
	case digits.Sign() == 0:
		return "0"
	case isLong(exponent):
		return text
	}
	exponent.Sub(exponent, big.NewInt(int64(len(fraction))))
	for {
		shorter, rest := new(big.Int).QuoRem(digits, big.NewInt(10), new(big.Int))
		if rest.Sign() != 0 {
			break
		}
		digits = shorter
		exponent.Add(exponent, big.NewInt(1))
	}
	if exponent.Sign() == 0 {
		return digits.String()
	}
	return digits.String() + "e" + exponent.String()
}

func isLong(exponent *big.Int) bool { return len(new(big.Int).Abs(exponent).String()) > 18 }

// String is the canonical text: RFC 8785's, but for numbers.
func (v node) String() string {
	var parts []string
	for i, item := range v.items {
		text := item.String()
		if v.kind == '{' {
			text = quote(v.keys[i]) + ":" + text
		}
		parts = append(parts, text)
	}
	switch v.kind {
	case '{':
		return "{" + strings.Join(parts, ",") + "}"
	case '[':
		return "[" + strings.Join(parts, ",") + "]"
	case '"':
		return quote(v.units)
	case 0:
		return v.number
	}
	return map[byte]string{'t': "true", 'f': "false", 'n': "null"}[v.kind]
}

func quote(units []uint16) string {
	var b strings.Builder
	for i := 0; i < len(units); i++ {
		switch r := rune(units[i]); {
		case i+1 < len(units) && utf16.DecodeRune(r, rune(units[i+1])) != utf8.RuneError:
			b.WriteRune(utf16.DecodeRune(r, rune(units[i+1])))
			i++
		case strings.ContainsRune("\"\\\b\t\n\f\r", r):
			b.WriteString(`\` + string(`"\btnfr`[strings.IndexRune("\"\\\b\t\n\f\r", r)]))
		case r < ' ', utf16.IsSurrogate(r):
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteRune(r)
		}
	}
	return `"` + b.String() + `"`
}

// respelled is the same value in another spelling.
func (v node) respelled(rnd *rand.Rand) string {
	space := func() string { return []string{"", "", " ", "\n\t", "\r"}[rnd.IntN(5)] }
	var parts []string
	for _, i := range v.shuffled(rnd) {
		text := v.items[i].respelled(rnd)
		if v.kind == '{' {
			text = respelledString(v.keys[i], rnd) + space() + ":" + text
		}
		parts = append(parts, text)
	}
	inside := strings.Join(parts, ",")
	switch v.kind {
	case '{':
		return space() + "{" + space() + inside + "}" + space()
	case '[':
		return space() + "[" + space() + inside + "]" + space()
	case '"':
		return space() + respelledString(v.units, rnd) + space()
	case 0:
		return space() + respelledNumber(v.number, rnd) + space()
	}
	return space() + v.String() + space()
}

// shuffled is an order of an object's members that keeps those of one key in theirs; an array has only one.
func (v node) shuffled(rnd *rand.Rand) []int {
	order := rnd.Perm(len(v.items))
	if v.kind == '[' {
		slices.Sort(order)
		return order
	}
	places := map[string][]int{} // where members of a key stand
	for place, i := range order {
		key := fmt.Sprint(v.keys[i])
		places[key] = append(places[key], place)
	}
	for _, at := range places {
		of := make([]int, len(at))
		for n, place := range at {
			of[n] = order[place]
		}
		slices.Sort(of)
		for n, place := range at {
			order[place] = of[n]
		}
	}
	return order
}

func respelledString(units []uint16, rnd *rand.Rand) string {
	var b strings.Builder
	for _, r := range utf16Runes(units) {
		pair := utf16.AppendRune(nil, r)
		switch plain := r >= ' ' && r != '"' && r != '\\' && !utf16.IsSurrogate(r); {
		case plain && rnd.IntN(2) == 0:
			b.WriteRune(r)
		case utf16.IsSurrogate(r):
			fmt.Fprintf(&b, `\u%04X`, r)
		default:
			for _, unit := range pair {
				fmt.Fprintf(&b, `\u%04X`, unit)
			}
		}
	}
	return `"` + b.String() + `"`
}

// utf16Runes are the characters of a string, a lone surrogate being one.
func utf16Runes(units []uint16) (runes []rune) {
	for i := 0; i < len(units); i++ {
		r := rune(units[i])
		if i+1 < len(units) && utf16.DecodeRune(r, rune(units[i+1])) != utf8.RuneError {
			r = utf16.DecodeRune(r, rune(units[i+1]))
			i++
		}
		runes = append(runes, r)
	}
	return runes
}

func respelledNumber(canonical string, rnd *rand.Rand) string {
	if canonical == "0" {
		return []string{"0", "-0", "0.0", "0e5", "-0.00E-99999999999999999999"}[rnd.IntN(5)]
	}
	digits, power, _ := strings.Cut(canonical, "e")
	exponent, ok := new(big.Int).SetString(power, 10)
	if !ok {
		exponent = new(big.Int)
	}
	digits, negative := strings.CutPrefix(digits, "-")
	zeros := rnd.IntN(4)
	digits += strings.Repeat("0", zeros)
	point := rnd.IntN(len(digits) + 1)
	exponent.Add(exponent, big.NewInt(int64(len(digits)-point-zeros)))
	if strings.Contains(canonical, "E") || isLong(exponent) {
		return canonical // another exponent would be a text of its own
	}
	text := digits
	switch point {
	case 0:
		text = "0." + digits
	case len(digits):
	default:
		text = digits[:point] + "." + digits[point:]
	}
	if negative {
		text = "-" + text
	}
	if exponent.Sign() == 0 && rnd.IntN(2) == 0 {
		return text
	}
	power = fmt.Sprintf("%+d", exponent)
	return text + []string{"e", "E"}[rnd.IntN(2)] + power[:1] + strings.Repeat("0", rnd.IntN(25)) + power[1:]
}

// seeds are two documents each, of what JSON's implementations differ in.
var seeds = map[string][2]string{
	"spelling of numbers":  {`[1,1.0,10e-1,0.1E+1,100,1e2,0.05]`, `[1.0,1,1,1,1e2,100,5e-2]`},
	"minus zero":           {`[0,-0,-0.0,0e9]`, `[-0E-7,0.00,0,0]`},
	"beyond float64":       {`[9007199254740993,0.1,1e400,1e-400]`, `[9007199254740992,0.1000000000000000055,1e401,0]`},
	"exponent's 18 digits": {`[1e999999999999999999]`, `[10e999999999999999998]`},
	"exponent's 19 digits": {`[1E1000000000000000000]`, `[1e1000000000000000000]`},
	"beyond the 18 digits": {`10e999999999999999999`, `1e1000000000000000000`},
	"zero's exponent":      {`0e99999999999999999999`, `-0E1`},
	"escapes":              {`"\u0041\/\b\u000A\u001f\"\u00e9"`, `"A/\u0008\n\u001F\u0022é"`},
	"pair of surrogates":   {`"\ud83d\ude00"`, `"😀"`},
	"lone surrogates":      {`["\ud800","\udfff\ud800","\ud800\ud800\udc00"]`, `["\uFFFD","\uDFFF\uD800","\ud800𐀀"]`},
	"repeated keys":        {`{"a":2,"b":0,"a":1}`, `{"a":1,"a":2,"b":0}`},
	"keys by UTF-16":       {`{"\ufb33":1,"😀":2,"\ud83d":3}`, `{"\ud83d":3,"\ud83d\ude00":2,"דּ":1}`},
	"a key's escapes":      {`{"\u0061":2,"A":0,"a":1}`, `{"a":2,"a":1,"A":0}`},
	"order within":         {`{"b":[1,{"d":2,"c":3}],"a":null}`, `{"a":null,"b":[1,{"c":3,"d":2}]}`},
	"invalid UTF-8":        {"\"\xff\"", "\"\xed\xa0\x80\""},
	"no JSON":              {`{"a":1,}`, `[1 2]`},
	"two values":           {`1 2`, `1`},
	"nothing":              {``, ` `},
	"as deep as may be":    {nested("[", 512), nested(" [", 512)},
	"too deep":             {nested("[", 513), nested(" [", 513)},
}

func nested(begin string, levels int) string {
	return strings.Repeat(begin, levels) + strings.Repeat("]", levels)
}

// What the rule says of two documents both ways say, and of one they give the same text.
func FuzzCanonicalJSON(f *testing.F) {
	for _, documents := range seeds {
		f.Add([]byte(documents[0]), []byte(documents[1]), uint64(1))
	}
	f.Fuzz(func(t *testing.T, a, b []byte, seed uint64) {
		if len(a)+len(b) > 1<<12 {
			return
		}
		requireAlike(t, a, b)
		rnd := rand.New(rand.NewPCG(seed, 0))
		v, isJSON := requireSameText(t, a)
		if !isJSON {
			v = randomNode(rnd, 4)
		}
		x, y := []byte(v.respelled(rnd)), []byte(v.respelled(rnd))
		again, _ := requireSameText(t, x)
		require.Equal(t, v, again, "respelled as %q", x)
		requireAlike(t, x, y)
		requireAlike(t, x, changed(x, rnd))
	})
}

var (
	someNumbers = []string{"0", "1", "-1", "1e1", "5e-2", "9007199254740993", "12345678901234567890123456789e-399",
		"1e999999999999999999", "-15e-999999999999999999", "1E1000000000000000000", "1e-99999999999999999999"}
	someUnits = utf16.Encode([]rune("ab\"\\/\x00\n\u001f\u007fé\u2028\ufb33\ufffd😀"))
)

// randomNode is a value with at most so many levels, of what implementations differ in.
func randomNode(rnd *rand.Rand, levels int) node {
	if levels == 0 || rnd.IntN(3) == 0 {
		return []node{{kind: 't'}, {kind: 'f'}, {kind: 'n'}, {kind: '"', units: randomUnits(rnd)},
			{number: someNumbers[rnd.IntN(len(someNumbers))]}}[rnd.IntN(5)]
	}
	v := node{kind: "{["[rnd.IntN(2)]}
	most := 4
	if levels == 1 {
		most = 40 // slices.SortFunc keeps the order of few
	}
	for range rnd.IntN(most + 1) {
		v.items = append(v.items, randomNode(rnd, levels-1))
		if v.kind == '{' {
			v.keys = append(v.keys, randomUnits(rnd))
		}
	}
	v.sort()
	return v
}

// randomUnits is a short string, often the same one, and often with half of a pair.
func randomUnits(rnd *rand.Rand) []uint16 {
	units := []uint16{}
	for range rnd.IntN(3) {
		units = append(units, someUnits[rnd.IntN(len(someUnits))])
	}
	return units
}

// requireSameText requires that both ways take doc for JSON, or neither, and give it the same canonical text.
func requireSameText(t *testing.T, doc []byte) (v node, ok bool) {
	before := bytes.Clone(doc)
	defer func() { require.Equal(t, before, doc) }()
	v, ok = secondParse(doc)
	require.Equal(t, ok, utf8.Valid(doc) && isJSON(doc), "is it JSON? %q", doc)
	if ok {
		canonical := canonicalJSON(doc)
		require.Equal(t, v.String(), string(canonical), "%q", doc)
		require.Equal(t, string(canonical), string(canonicalJSON(canonical)))
		requireAsJCS(t, v, doc)
	}
	return v, ok
}

// requireAlike requires that both ways take two documents for equal, or neither does.
func requireAlike(t *testing.T, a, b []byte) {
	x, isX := secondParse(a)
	y, isY := secondParse(b)
	equal := isX && isY && reflect.DeepEqual(x, y) || !isX && !isY && bytes.Equal(a, b)
	require.Equal(t, equal, bytes.Equal(FingerprintJSON.Of(a), FingerprintJSON.Of(b)), "%q and %q", a, b)
}

// changed is doc with a byte put in, taken out or turned into another: of those that JSON's texts are made of.
func changed(doc []byte, rnd *rand.Rand) []byte {
	const of = `{}[]",:0123456789+-.eE\utrfalsn dD8cC`
	at, c := rnd.IntN(len(doc)), of[rnd.IntN(len(of))]
	switch rnd.IntN(3) {
	case 0:
		return slices.Insert(bytes.Clone(doc), at, c)
	case 1:
		return slices.Delete(bytes.Clone(doc), at, at+1)
	}
	other := bytes.Clone(doc)
	other[at] = c
	return other
}

// requireAsJCS holds a document against an implementation of RFC 8785, where it says what ours does: it knows no
// repeated keys and no lone surrogates, and its numbers are float64.
func requireAsJCS(t *testing.T, v node, doc []byte) {
	if !v.isIJSON() {
		return
	}
	text, err := jcs.Transform(doc)
	require.NoError(t, err, "%q", doc)
	require.Equal(t, string(canonicalJSON(doc)), string(canonicalJSON(text)), "%q", doc)
	ours, err := jcs.Transform(canonicalJSON(doc))
	require.NoError(t, err)
	require.Equal(t, string(text), string(ours), "%q", doc)
	if !v.hasNumber() {
		require.Equal(t, string(text), string(canonicalJSON(doc)))
	}
}

// isIJSON says that a value is what RFC 7493 has: nothing in it changes as RFC 8785 writes it.
func (v node) isIJSON() bool {
	for i, key := range v.keys {
		if hasLoneSurrogate(key) || i > 0 && slices.Equal(key, v.keys[i-1]) {
			return false
		}
	}
	if hasLoneSurrogate(v.units) || v.kind == 0 && !isFloat64(v.number) {
		return false
	}
	return !slices.ContainsFunc(v.items, func(item node) bool { return !item.isIJSON() })
}

func hasLoneSurrogate(units []uint16) bool {
	return slices.ContainsFunc(utf16Runes(units), utf16.IsSurrogate)
}

// isFloat64 says that the shortest text of the nearest float64, which RFC 8785 writes, is of the same value.
func isFloat64(number string) bool {
	f, err := strconv.ParseFloat(number, 64)
	return err == nil && numberOf(strconv.FormatFloat(f, 'e', -1, 64)) == number
}

func (v node) hasNumber() bool { return v.kind == 0 || slices.ContainsFunc(v.items, node.hasNumber) }
