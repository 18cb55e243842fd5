package config

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Secret is a value that no log, error or print shows. Reveal gives it.
type Secret string

const hidden = "***"

// Reveal is the value itself.
func (s Secret) Reveal() string { return string(s) }

// String hides the value.
func (s Secret) String() string { return hidden }

// Format hides the value from every verb of fmt.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(hidden)) }

// LogValue hides the value from slog.
func (s Secret) LogValue() slog.Value { return slog.StringValue(hidden) }

// MarshalText hides the value from encoders.
func (s Secret) MarshalText() ([]byte, error) { return []byte(hidden), nil }

// List is a list of texts; in one text they are separated by commas.
type List []string

// Sources is a list of texts, or one text alone.
type Sources []string

// Ages are durations by name, of which 0 is for ever.
type Ages map[string]time.Duration

// Names are texts by name.
type Names map[string]string

// Size is a number of bytes.
type Size int64

// String is the size in the largest unit that it is a whole number of.
func (s Size) String() string {
	for _, u := range []int{2, 1, 0} { // GiB, MiB, KiB
		if n := int64(s); n != 0 && n%units[u].bytes == 0 {
			return strconv.FormatInt(n/units[u].bytes, 10) + units[u].suffix
		}
	}
	return strconv.FormatInt(int64(s), 10) + "B"
}

var units = []struct {
	suffix string
	bytes  int64
}{
	{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30},
	{"kB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"B", 1},
}

var errSize = errors.New("is not a size; write a number with its unit, B, KiB, MiB or GiB, like 4MiB")

func parseSize(text string) (Size, error) {
	for _, u := range units {
		digits, ok := strings.CutSuffix(text, u.suffix)
		if !ok {
			continue
		}
		n, err := strconv.ParseInt(strings.TrimSpace(digits), 10, 64)
		if err != nil || n > math.MaxInt64/u.bytes {
			return 0, errSize
		}
		return Size(n * u.bytes), nil
	}
	return 0, errSize
}

const day = 24 * time.Hour

var errDuration = errors.New("is not a duration; write a number with its unit, like 500ms, 15s, 2m or 90d")

// daysFirst is a whole number of days with anything after it.
var daysFirst = regexp.MustCompile(`^(-?)(\d{1,6})d(.*)$`)

// ParseDuration reads Go's durations, which may begin with days: 90d, 1d12h.
func ParseDuration(text string) (time.Duration, error) {
	parts := daysFirst.FindStringSubmatch(text)
	if parts == nil {
		d, err := time.ParseDuration(text)
		if err != nil {
			return 0, errDuration
		}
		return d, nil
	}
	sign, rest := parts[1], time.Duration(0)
	if parts[3] != "" {
		var err error
		if rest, err = time.ParseDuration(sign + parts[3]); err != nil || strings.ContainsAny(parts[3][:1], "+-") {
			return 0, errDuration
		}
	}
	days, _ := strconv.ParseInt(sign+parts[2], 10, 64)
	if total := float64(days)*float64(day) + float64(rest); math.Abs(total) >= math.MaxInt64 {
		return 0, errDuration
	}
	return time.Duration(days)*day + rest, nil
}

// formatDuration is the shortest text that parseDuration reads as d.
func formatDuration(d time.Duration) string {
	if d < 0 || d < day {
		return trimUnits(d.String())
	}
	text := strconv.FormatInt(int64(d/day), 10) + "d"
	if d%day != 0 {
		text += trimUnits((d % day).String())
	}
	return text
}

var zeroUnits = regexp.MustCompile(`([hm])0[ms](?:0s)?$`)

func trimUnits(text string) string { return zeroUnits.ReplaceAllString(text, "$1") }
