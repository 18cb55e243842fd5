package config

import (
	"errors"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"
)

const day = 24 * time.Hour

var errDuration = errors.New("is not a duration; write a number with its unit, like 500ms, 15s, 2m or 90d")

// daysFirst is a whole number of days with anything after it.
var daysFirst = regexp.MustCompile(`^(-?)(\d{1,6})d(.*)$`)

// parseDuration reads Go's durations, which may begin with days: 90d, 1d12h.
func parseDuration(text string) (time.Duration, error) {
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
