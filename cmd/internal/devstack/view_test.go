package devstack

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the golden files anew")

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		require.NoError(t, os.WriteFile(path, got, 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(want), string(got))
}

// moments are figures as a run would have them, one after the other.
func moments() []figures {
	return []figures{
		{PID: 4711, Known: true},
		{
			Elapsed: 300 * time.Millisecond, Produced: 600, Total: tally{420, 99}, PID: 4711, Known: true, Lag: 600,
		},
		{
			Elapsed: 1100 * time.Millisecond, Produced: 2200, Total: tally{1540, 150_123},
			PID: 4711, Lag: 17, Rate: 1998.6,
			booked:   booked{Effects: 1529, Balance: 149_990, New: 1529, Received: 2183},
			Expected: tally{1529, 149_990}, Known: true,
		},
		{
			Elapsed: 2 * time.Second, Produced: 4000, Total: tally{2800, 280_000}, PID: 4720, Crashes: 1, Rate: 2000,
			booked: booked{Effects: 2800, Balance: 280_000, New: 2800, Received: 4400}, // the ledger is late
		},
		{
			Elapsed: 3 * time.Second, Produced: 4000, Total: tally{2800, 280_000}, PID: 4720, Crashes: 1, Lag: 1,
			booked:   booked{Effects: 2801, Balance: 280_007, New: 2800, Received: 4400},
			Expected: tally{2800, 280_000}, Known: true,
		},
		{
			Elapsed: 4 * time.Second, Produced: 4000, Total: tally{2800, 280_000}, PID: 4720, Crashes: 1,
			booked:   booked{Effects: 2801, Balance: 280_000, New: 2800, Received: 4400},
			Expected: tally{2800, 280_000}, Known: true,
		},
		{
			Elapsed: 4200 * time.Millisecond, Produced: 1_234_567,
			Total: tally{1_000_000, -1_280_000}, PID: 4720, Crashes: 1,
			booked:   booked{Effects: 1_000_000, Balance: -1_280_000, New: 1_000_000, Received: 2_234_567},
			Expected: tally{1_000_000, -1_280_000}, Known: true,
		},
	}
}

func TestLinesComeOnceASecondAndOnceAtTheEnd(t *testing.T) {
	var out bytes.Buffer
	l := &lines{out: &out}
	for i, f := range moments() {
		l.show(&f)
		if i == 3 {
			l.event("crash 1: the consumer with pid 4711 was killed; pid 4720 took over within 0.4 s")
		}
	}
	l.close()
	golden(t, "lines.golden", out.Bytes())
}

func TestScreenIsRedrawnInPlace(t *testing.T) {
	var out bytes.Buffer
	s := &screen{out: &out, color: true, keyed: true, width: func() int { return 60 }}
	for i, f := range moments() {
		s.show(&f)
		if i == 3 {
			s.event("crash 1")
		}
	}
	s.close()
	golden(t, "screen.golden", []byte(strings.ReplaceAll(strings.ReplaceAll(out.String(), "\r\n", "\n"), "\x1b", "^")))
}

func TestNoLineIsWiderThanTheTerminal(t *testing.T) {
	for _, line := range []string{"", "short", "exactly 10", "longer than that", red + "longer" + plain + " than that",
		"ébène-çà-là-bas"} {
		got := clip(line, 10)
		visible := strings.NewReplacer(red, "", plain, "").Replace(got)
		require.LessOrEqual(t, utf8.RuneCountInString(visible), 10, line)
		require.True(t, strings.HasPrefix(strings.NewReplacer(red, "", plain, "").Replace(line), visible))
	}
	require.Equal(t, "exactly 10", clip("exactly 10", 10))
	require.Equal(t, "longer tha"+plain, clip("longer than that", 10))
}

func TestNumbersAreGrouped(t *testing.T) {
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000",
		123456: "123,456", -1234567: "-1,234,567"} {
		require.Equal(t, want, commas(n))
	}
}
