// Package shards says on which of several Postgres servers a partition is at home. A [Map] is what an operator decides:
// it gives each number that a partition may have to one shard, that of every topic. A [Home] is one shard of it. Both
// are text and numbers; what a database remembers of them is package dedup's.
package shards

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Map gives each partition's number to a shard.
type Map []Shard

// Shard is one of several Postgres servers, and the partitions that are at home there.
type Shard struct {
	// Name is its name for ever: 1 to 63 lower-case letters, digits, _ and -.
	Name       string
	Partitions Partitions
}

// Home is one shard of a Map. The zero value is a server that stands alone, where all partitions are at home.
type Home struct {
	Shard string
	Map   Map
}

// Alone says that the server is the only one.
func (h Home) Alone() bool { return h.Shard == "" && len(h.Map) == 0 }

// Has says whether a partition is at home there.
func (h Home) Has(partition int32) bool { return h.Alone() || h.Map.Of(partition) == h.Shard }

// Partitions are those that are at home there; none where the server stands alone.
func (h Home) Partitions() Partitions {
	if i := slices.IndexFunc(h.Map, func(s Shard) bool { return s.Name == h.Shard }); i >= 0 {
		return h.Map[i].Partitions
	}
	return nil
}

// Check reports every fault of the map at once, and a shard that it does not have.
func (h Home) Check() error {
	switch {
	case h.Alone():
		return nil
	case h.Partitions() == nil:
		return errors.Join(h.Map.Check(), fmt.Errorf("shard %q is none of %s", h.Shard, strings.Join(h.Map.Names(), ", ")))
	}
	return h.Map.Check()
}

// Of names the shard that a partition is at home in; empty where the map has faults and none has it.
func (m Map) Of(partition int32) string {
	for _, s := range m {
		if s.Partitions.Has(partition) {
			return s.Name
		}
	}
	return ""
}

// Names are those of the shards, in the map's order.
func (m Map) Names() []string {
	names := make([]string, len(m))
	for i, s := range m {
		names[i] = s.Name
	}
	return names
}

// String is the same for every way to write a map: "a: 0-7; b: 8-".
func (m Map) String() string {
	texts := make([]string, len(m))
	for i, s := range m {
		texts[i] = s.Name + ": " + s.Partitions.String()
	}
	slices.Sort(texts)
	return strings.Join(texts, "; ")
}

var shardName = regexp.MustCompile(`^[a-z0-9_-]{1,63}$`)

// Check reports every fault at once: each partition there may ever be must have one home.
func (m Map) Check() error {
	var faults []error
	type part struct {
		Range
		shard string
	}
	var parts []part
	seen := map[string]bool{}
	for _, s := range m {
		switch {
		case !shardName.MatchString(s.Name):
			faults = append(faults, fmt.Errorf("a shard's name has 1 to 63 lower-case letters, digits, _ and -, and %q has not",
				s.Name))
		case seen[s.Name]:
			faults = append(faults, fmt.Errorf("shard %s is there twice", s.Name))
		}
		seen[s.Name] = true
		for _, r := range s.Partitions {
			parts = append(parts, part{r, s.Name})
		}
	}
	slices.SortFunc(parts, func(a, b part) int { return cmp.Compare(a.From, b.From) })
	next, last := int64(0), part{}
	for _, p := range parts {
		switch {
		case int64(p.From) > next:
			faults = append(faults, fmt.Errorf("partitions %s are at home in no shard", Range{int32(next), p.From - 1}))
		case int64(p.From) < next:
			faults = append(faults, fmt.Errorf("partition %d is at home in %s and in %s", p.From, last.shard, p.shard))
		}
		if int64(p.To) >= next {
			next, last = int64(p.To)+1, p
		}
	}
	if next <= NoEnd {
		faults = append(faults, fmt.Errorf("partitions %s are at home in no shard: one shard has to take those that are "+
			"added, like 8-", Range{int32(next), NoEnd}))
	}
	return errors.Join(faults...)
}

// NoEnd is the To of a range that has no end.
const NoEnd = math.MaxInt32

// Range is a range of partitions, To included.
type Range struct{ From, To int32 }

func (r Range) String() string {
	switch from := strconv.Itoa(int(r.From)); r.To {
	case r.From:
		return from
	case NoEnd:
		return from + "-"
	default:
		return from + "-" + strconv.Itoa(int(r.To))
	}
}

// Partitions are ranges of them, in order and apart.
type Partitions []Range

// Has says whether a partition is among them.
func (p Partitions) Has(partition int32) bool {
	return slices.ContainsFunc(p, func(r Range) bool { return r.From <= partition && partition <= r.To })
}

// String is the text that ParsePartitions reads.
func (p Partitions) String() string {
	texts := make([]string, len(p))
	for i, r := range p {
		texts[i] = r.String()
	}
	return strings.Join(texts, ",")
}

// Multirange is their text as a value of Postgres' type int4multirange.
func (p Partitions) Multirange() string {
	texts := make([]string, len(p))
	for i, r := range p {
		texts[i] = fmt.Sprintf("[%d,%d]", r.From, r.To)
		if r.To == NoEnd {
			texts[i] = fmt.Sprintf("[%d,)", r.From)
		}
	}
	return "{" + strings.Join(texts, ",") + "}"
}

var rangeForm = regexp.MustCompile(`^(\d{1,9})(-(\d{1,9})?)?$`)

// ParsePartitions reads ranges like 0-7,16,24-, of which the last has no end.
func ParsePartitions(text string) (Partitions, error) {
	var parts Partitions
	for one := range strings.SplitSeq(text, ",") {
		form := rangeForm.FindStringSubmatch(strings.TrimSpace(one))
		if form == nil {
			return nil, errors.New("is no list of partitions; write numbers and ranges of them, like 0-7,16 or 8-")
		}
		r := Range{From: number(form[1]), To: NoEnd}
		switch {
		case form[2] == "":
			r.To = r.From
		case form[3] != "":
			r.To = number(form[3])
		}
		if r.To < r.From {
			return nil, fmt.Errorf("has the range %s, which ends before it begins", r)
		}
		parts = append(parts, r)
	}
	return parts.joined()
}

func number(digits string) int32 {
	n, _ := strconv.ParseInt(digits, 10, 32) // it has nine at most
	return int32(n)
}

// joined puts ranges in order, and those together that touch.
func (p Partitions) joined() (all Partitions, err error) {
	slices.SortFunc(p, func(a, b Range) int { return cmp.Compare(a.From, b.From) })
	for _, r := range p {
		switch n := len(all); {
		case n > 0 && r.From <= all[n-1].To:
			return nil, fmt.Errorf("has partition %d twice", r.From)
		case n > 0 && r.From == all[n-1].To+1:
			all[n-1].To = r.To
		default:
			all = append(all, r)
		}
	}
	return all, nil
}
