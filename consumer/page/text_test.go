package page

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	apiview "github.com/firstseen/firstseen/consumer/view"
)

func TestWhatCantBeSeenIsWrittenByItsNumber(t *testing.T) {
	for text, want := range map[string]string{
		"plain ünï ☃":        "plain ünï ☃",
		"a\nb\tc":            "a⟨U+000A⟩b⟨U+0009⟩c",
		"\u202eright":        "⟨U+202E⟩right",
		"a\u00a0b\u3000":     "a⟨U+00A0⟩b⟨U+3000⟩",
		"\xff\xfea":          "⟨FF⟩⟨FE⟩a",
		"\ufffd":             "\ufffd",
		"\u3164\u2800\u2066": "⟨U+3164⟩⟨U+2800⟩⟨U+2066⟩",
		"שלום":               "שלום",
	} {
		require.Equal(t, want, visible(text))
	}
	require.Equal(t, "a\n\tb⟨U+000D⟩", block("a\n\tb\r"))
	require.Equal(t, "éé… (3 more)", cut(2, "ééééé"))
	require.Equal(t, "éé", cut(2, "éé"))
}

func TestNumbersAndTimesAreWrittenForPeople(t *testing.T) {
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1\u202f000", 9007199254740993: "9\u202f007\u202f199\u202f254\u202f740\u202f993",
		-1234: "−1\u202f234"} {
		require.Equal(t, want, count(n))
	}
	for d, want := range map[time.Duration]string{0: "0 s", 5 * time.Millisecond: "5 ms", 90 * time.Second: "1 min 30 s",
		time.Hour: "1 h", 26 * time.Hour: "1 d 2 h", 11 * time.Minute: "11 min", 12*time.Hour + time.Minute: "12 h"} {
		require.Equal(t, want, spoken(d))
	}
	require.Equal(t, "1.5 KiB", size(1536))
	require.Equal(t, "2026-03-01 04:05:06 UTC", momentOf(time.Date(2026, 3, 1, 5, 5, 6, 0, time.FixedZone("CET", 3600))).Text)
	require.Nil(t, momentOf((*time.Time)(nil)))
}

// Each side of a diff is what it was made of.
func TestDiffHasBothSidesWhole(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		some := rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "c", "d"}), 0, 12)
		a, b := some.Draw(t, "a"), some.Draw(t, "b")
		var first, second []string
		both := 0
		for _, l := range diff(a, b) {
			if l.Mark != "+" {
				first = append(first, l.Text)
			}
			if l.Mark != "-" {
				second = append(second, l.Text)
			}
			if l.Mark == " " {
				both++
			}
		}
		if strings.Join(first, "") != strings.Join(a, "") || strings.Join(second, "") != strings.Join(b, "") {
			t.Fatalf("%v and %v: %v and %v", a, b, first, second)
		}
		if strings.Join(a, "") == strings.Join(b, "") && both != len(a) {
			t.Fatal("the same is told apart")
		}
	})
	require.Len(t, diff(make([]string, 3000), []string{"x"}), 3001, "too long to look for what is common")
}

func TestNumbersOfJSONKeepTheirDigits(t *testing.T) {
	text := `{"a":9007199254740993,"b":1e400,"c":0.10}`
	require.Equal(t, []string{"{", `  "a": 9007199254740993,`, `  "b": 1e400,`, `  "c": 0.10`, "}"}, lines([]byte(text)))
	require.True(t, json.Valid([]byte(text)))
}

// A line is broken where nobody took samples, and a counter that begins anew is no rate.
func TestPlotsAreHonestAboutGaps(t *testing.T) {
	now := time.Date(2026, 3, 1, 5, 0, 0, 0, time.UTC)
	h := &apiview.History{Every: 10}
	add := func(ago time.Duration, handled int64) {
		h.Samples = append(h.Samples, apiview.Sample{At: now.Add(-ago), Totals: apiview.Totals{Handled: handled}})
	}
	for i := range 60 {
		add(50*time.Minute-time.Duration(i)*10*time.Second, int64(i)*100)
	}
	for i := range 60 {
		add(20*time.Minute-time.Duration(i)*10*time.Second, int64(i)*200) // after a restart
	}
	p := draw("Handled", "", now, spanOf(2*time.Hour), rates(h, func(t *apiview.Totals) int64 { return t.Handled }), perSecond)
	require.Len(t, p.Lines, 2)
	require.Len(t, p.Gaps, 3)
	require.Equal(t, "20/s", p.Most)
	require.Equal(t, gap{"198.3", "203.3"}, p.Gaps[1])
	require.Equal(t, "not known", draw("", "", now, spanOf(0), nil, perSecond).Now)
}
