package crashtest

import (
	"cmp"
	"hash/fnv"
	"math/rand/v2"
	"slices"
)

// kind is one of the faults.
type kind string

const (
	killBefore kind = "killed before COMMIT arrived"
	killAfter  kind = "killed after COMMIT, before its answer"
	crash      kind = "Postgres crashed"
	backends   kind = "sessions ended by pg_terminate_backend"
	lose       kind = "the answer to COMMIT was lost"
	cut        kind = "connection cut before COMMIT arrived"
	stop       kind = "stopped, with another in its place, and let go on"
	rebalance  kind = "rebalanced to a second member"
	kill       kind = "killed"
	killCalled kind = "killed before a webhook's answer" // only where there are webhooks
)

// kinds are all but killCalled, those first that find most.
var kinds = []kind{killBefore, killAfter, crash, lose, backends, kill, cut, stop, rebalance}

// mostFaults is the most of one run.
const mostFaults = 10

// planned is what one run is to be.
type planned struct {
	number int // from 1
	name   string
	seed   uint64
	quiet  bool // one of those without faults
	ahead  bool // sequences stand elsewhere than in the first of them

	copies   bool
	shuffled bool // across partitions
	fail     bool
	refuse   bool // webhooks' receivers fail now and then
	batch    int
	faults   []kind
}

func newSeed() uint64 { return 1 + rand.Uint64N(1_000_000_000) }

// plan makes all runs of a seed: first those in which nothing breaks and messages only come otherwise, then those
// with one kind of fault, then those with all of them.
func plan(c *Config) (plans []planned) {
	dice := rand.New(rand.NewPCG(c.Seed, 0))
	add := func(p planned) {
		p.number, p.seed = len(plans)+1, dice.Uint64()
		plans = append(plans, p)
	}
	add(planned{name: "copies", copies: true})
	if c.Partitions > 1 {
		add(planned{name: "another order across keys", shuffled: true})
	}
	add(planned{name: "batches of one message", batch: 1})
	add(planned{name: "handlers that fail now and then", fail: true})
	hooks, kinds := len(c.Webhooks) > 0, c.kinds()
	if hooks {
		add(planned{name: "receivers that fail now and then", refuse: true})
	}
	most := min(mostFaults, max(1, len(c.Messages)/2))
	left := c.Faults
	for i, k := range kinds {
		share := min(left, max(1, (c.Faults/2+len(kinds)-1-i)/len(kinds)))
		for left -= share; share > 0; share -= most {
			add(planned{name: string(k), faults: slices.Repeat([]kind{k}, min(share, most))})
		}
	}
	for ; left > 0; left -= most {
		add(planned{name: "all together", faults: mixed(dice, kinds, min(left, most)), copies: true, fail: true,
			refuse: hooks, shuffled: c.Partitions > 1})
	}
	return plans
}

// kinds are those that can come.
func (c *Config) kinds() []kind {
	if len(c.Webhooks) == 0 {
		return kinds
	}
	return slices.Insert(slices.Clone(kinds), 0, killCalled)
}

func mixed(dice *rand.Rand, kinds []kind, n int) (list []kind) {
	for len(list) < n {
		list = append(list, kinds[dice.IntN(len(kinds))])
	}
	return list
}

// sending is one record that is to be produced.
type sending struct {
	of        int // the message, by its place in the sample
	partition int32
	copy      bool
}

// log is all that is produced in a run, in order. Messages of a partition keep the order of the sample.
func (p *planned) log(c *Config, dice *rand.Rand) []sending {
	partitions := 1
	if p.shuffled {
		partitions = c.Partitions
	}
	var log []sending
	for i := range c.Messages {
		log = append(log, sending{of: i, partition: partitionOf(&c.Messages[i], i, partitions)})
	}
	if p.shuffled {
		log = shuffle(log, c.Messages, dice)
	}
	if p.copies {
		log = withCopies(log, c, dice)
	}
	return log
}

// partitionOf has a key in one partition, and messages without one in all.
func partitionOf(m *Message, i, partitions int) int32 {
	if m.Key == nil {
		return int32(i % partitions)
	}
	h := fnv.New32a()
	_, _ = h.Write(m.Key)
	return int32(h.Sum32() % uint32(partitions))
}

// shuffle mixes partitions, a few messages at a time from each.
func shuffle(log []sending, ms []Message, dice *rand.Rand) (mixed []sending) {
	const burst = 8
	queues := map[place][]sending{}
	var places []place
	for _, s := range log {
		at := place{ms[s.of].Topic, s.partition}
		if queues[at] == nil {
			places = append(places, at)
		}
		queues[at] = append(queues[at], s)
	}
	for len(places) > 0 {
		i := dice.IntN(len(places))
		queue := queues[places[i]]
		n := min(len(queue), 1+dice.IntN(burst))
		mixed, queues[places[i]] = append(mixed, queue[:n]...), queue[n:]
		if n == len(queue) {
			places = slices.Delete(places, i, i+1)
		}
	}
	return mixed
}

// withCopies adds a copy of every second message: right behind it, or some way on.
func withCopies(log []sending, c *Config, dice *rand.Rand) []sending {
	type placed struct {
		at float64
		sending
	}
	var all []placed
	for i, s := range log {
		all = append(all, placed{float64(i), s})
		if slices.Contains(c.Positions, c.Messages[s.of].Topic) || dice.IntN(2) == 0 {
			continue
		}
		after := 0.5
		if dice.IntN(2) == 0 {
			after += dice.Float64() * float64(len(log)-i)
		}
		s.copy = true
		all = append(all, placed{float64(i) + after, s})
	}
	slices.SortStableFunc(all, func(a, b placed) int { return cmp.Compare(a.at, b.at) })
	log = log[:0]
	for _, p := range all {
		log = append(log, p.sending)
	}
	return log
}
