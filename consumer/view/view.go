// Package view is how the command line and the admin API show what they found: the types that they encode as JSON,
// made of what dedup/operate gives, and how a time is written. A client of the API in Go decodes its answers into
// them. The comments of the fields are in the API's OpenAPI document.
//
// Files in reading order: view.go (times and lists), content.go, message.go (messages and conflicts), explain.go,
// inbox.go (what waits and is paused), outbox.go (what is sent), process.go and history.go (one process), change.go (what
// is done by hand), jobs.go, offsets.go, replay.go, retention.go, size.go. testdata has one file for each view, as `--json`
// prints it.
package view

import (
	"strconv"
	"time"

	"github.com/firstseen/firstseen/dedup"
)

// Timestamp is when a message was produced, in words: a time, or the number that came and what it may mean. Empty:
// none.
func Timestamp(m *dedup.Message) string {
	number := m.RawTimestamp
	if number == 0 {
		return Clock(m.Timestamp)
	}
	text := strconv.FormatInt(number, 10) + ", no time of the years 1 to 9999 in milliseconds"
	for unit, at := range map[string]time.Time{"micro": time.UnixMicro(number), "nano": time.Unix(0, number)} {
		if year := at.UTC().Year(); year >= 1990 && year < 2100 {
			text += "; in " + unit + "seconds " + Clock(at)
		}
	}
	return text
}

// Clock is a time in UTC, and nothing for the zero time.
func Clock(at time.Time) string {
	if at.IsZero() {
		return ""
	}
	return at.UTC().Format("2006-01-02 15:04:05.000 MST")
}

// List gives a list that is never null.
func List[T, U any](list []T, f func(*T) U) []U {
	out := make([]U, len(list))
	for i := range list {
		out[i] = f(&list[i])
	}
	return out
}

// OrNull is null where there is nothing.
func OrNull[T comparable](v T) *T {
	var zero T
	if v == zero {
		return nil
	}
	return &v
}

// Moment is a time in UTC, and null for none.
func Moment(at time.Time) *time.Time {
	if at.IsZero() {
		return nil
	}
	at = at.UTC()
	return &at
}

// offset is null where it is below 0.
func offset(n int64) *int64 {
	if n < 0 {
		return nil
	}
	return &n
}

// day is a date, and null for none.
func day(at time.Time) *string {
	if at.IsZero() {
		return nil
	}
	text := at.Format(time.DateOnly)
	return &text
}
