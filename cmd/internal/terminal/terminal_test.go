package terminal

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestDeeplyNestedJSONIsNotIndented(t *testing.T) {
	deep := func(n int) []byte { return []byte(strings.Repeat("[", n) + "1" + strings.Repeat("]", n)) }
	text, kind := Value(deep(9_999))
	require.Equal(t, string(deep(9_999))+"\n", text)
	require.Equal(t, "19999 bytes, text", kind)
	_, ok := sortedJSON(deep(9_999))
	require.False(t, ok)
	text, _ = Value(deep(20))
	require.Contains(t, text, "\n    [")
	brackets := []byte(`{"a\\\"[":"` + strings.Repeat("[", 100_000) + `","b":[1,2]}`)
	text, _ = Value(brackets)
	require.Contains(t, text, "\n    1,\n", "brackets in a text are none")
}

func sides(t *testing.T, a, b string) []string {
	t.Helper()
	var out bytes.Buffer
	require.NoError(t, Sides(&out, []byte(a), []byte(b)))
	return strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
}

func TestSidesMarkOnlyWhatDiffers(t *testing.T) {
	marks := func(rows []sideRow) (m string) {
		for _, r := range rows {
			m += string(r.mark)
		}
		return m
	}
	for _, test := range []struct{ a, b, want string }{
		{"a b c", "a b c", "   "}, {"a b c", "a c", " < "}, {"a c", "a b c", " > "}, {"a b c", "a x c", " | "},
		{"a", "x y", "|>"}, {"", "x", ">"}, {"a b x y c", "x y", "<<  <"},
	} {
		require.Equal(t, test.want, marks(align(strings.Fields(test.a), strings.Fields(test.b))),
			"%q %q", test.a, test.b)
	}
	rows := sides(t, `{"a":1,"b":2}`, `{"b": 2, "a": 1}`)
	require.Equal(t, "Both are the same JSON, written in two ways:", rows[0])
	require.Contains(t, sides(t, "\x00", "\x01")[1], "|")
}

func TestDifferenceFarOutInALongLineIsShown(t *testing.T) {
	long := strings.Repeat("x", 500)
	rows := sides(t, long+"LEFT", long+"RIGHT")
	require.Contains(t, rows[1], "LEFT")
	require.Contains(t, rows[1], "RIGHT")
}

func TestNumbersOfBytesAreForPeople(t *testing.T) {
	for n, want := range map[int64]string{0: "0 B", 1023: "1023 B", 1536: "1.5 KiB", 1 << 20: "1.0 MiB",
		300 << 30: "300 GiB", 5 << 50: "5.0 PiB", 5 << 60: "5120 PiB"} {
		require.Equal(t, want, Bytes(n))
	}
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1 000", 1234567: "1 234 567", -1234: "-1 234"} {
		require.Equal(t, want, Grouped(n))
	}
}

func TestProgressIsALineWithRateAndTimeLeft(t *testing.T) {
	require.Equal(t, "orders: "+Grouped(1500)+" of "+Grouped(6000)+" offsets (25%), 500/s, 9s left",
		progressLine("orders", 1500, 6000, 3*time.Second))
	require.Equal(t, "orders: 0 of 0 offsets (0%), 0/s", progressLine("orders", 0, 0, 0))
}
