package replay

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/firstseen/firstseen/consumer"
)

// Place is a place in all partitions of a topic: the earliest or the latest one, an offset, or the first message of a
// time. Make it with EarliestPlace, LatestPlace, OffsetPlace or ParsePlace; the zero Place is no place.
type Place struct {
	text   string
	start  consumer.StartAt // empty: none
	time   time.Time
	offset int64
}

// EarliestPlace is the first message that is left in each partition.
func EarliestPlace() Place { return Place{text: string(consumer.Earliest), start: consumer.Earliest} }

// LatestPlace is each partition's end: its last stable offset.
func LatestPlace() Place { return Place{text: string(consumer.Latest), start: consumer.Latest} }

// OffsetPlace is one offset in every partition.
func OffsetPlace(offset int64) Place {
	return Place{text: strconv.FormatInt(offset, 10), offset: offset}
}

// ParsePlace reads "earliest", "latest", an offset, a duration before now ("2h" or "2h-ago"), or a time
// ("2026-03-01" or "2026-03-01T04:05:06Z", by UTC where no zone is said, from 1970 on). A time is the place of the first message
// whose timestamp is at or after it, or where there is none that late, of the end. The Place's String is the text.
func ParsePlace(text string, now time.Time) (Place, error) {
	switch {
	case text == string(consumer.Earliest):
		return EarliestPlace(), nil
	case text == string(consumer.Latest):
		return LatestPlace(), nil
	}
	if offset, err := strconv.ParseInt(text, 10, 64); err == nil && offset >= 0 {
		return OffsetPlace(offset), nil
	}
	if ago, err := time.ParseDuration(strings.TrimSuffix(text, "-ago")); err == nil && ago >= 0 {
		return Place{text: text, time: now.Add(-ago)}, nil
	}
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04:05", "2006-01-02 15:04:05",
		"2006-01-02 15:04", time.DateOnly} {
		if at, err := time.Parse(layout, text); err == nil && 1970 <= at.UTC().Year() && at.UTC().Year() <= 9999 {
			return Place{text: text, time: at}, nil
		}
	}
	return Place{}, fmt.Errorf("%q is neither earliest nor latest, an offset, a duration like 2h, or a time like "+
		"2026-03-01T04:05:06Z", text)
}

// Fixed is the same place in words that say no time before now.
func (p Place) Fixed() Place {
	if !p.time.IsZero() {
		p.text = p.time.UTC().Format(time.RFC3339Nano)
	}
	return p
}

func (p Place) String() string { return p.text }

func (p Place) isOffset() bool { return p.text != "" && p.start == "" && p.time.IsZero() }

// Find finds a place in each of a topic's partitions. An offset is given back for each as it is, whether it is there
// or not. Waits and errors are those of Earliest.
func (r *Reader) Find(ctx context.Context, topic string, place Place) (map[int32]int64, error) {
	switch {
	case place.start == consumer.Earliest:
		return r.Earliest(ctx, topic)
	case place.start == consumer.Latest:
		return r.Latest(ctx, topic)
	case !place.time.IsZero():
		return r.At(ctx, topic, place.time)
	case place.text == "":
		return nil, fmt.Errorf("offsets of topic %s: no place given", topic)
	}
	offsets, err := r.Earliest(ctx, topic)
	for _, partition := range slices.Collect(maps.Keys(offsets)) {
		offsets[partition] = place.offset
	}
	return offsets, err
}
