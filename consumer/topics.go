package consumer

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/firstseen/firstseen/consumer/internal/wire"
	"github.com/firstseen/firstseen/dedup/holds"
)

// topics are those that a Consumer reads: all that its config names, and those that its patterns have found.
type topics struct {
	mu     sync.Mutex                           // of who changes them
	known  atomic.Pointer[map[string]*oneTopic] // by name; nobody changes the map
	listed time.Time                            // when all topics of the cluster were asked for last; zero: they have to be
	told   bool                                 // which patterns match nothing was logged
}

// oneTopic is a topic that is to be read.
type oneTopic struct {
	place   *holds.Place
	pattern string // that has found it; empty: the config names it
	looks   int    // at it
	seen    bool   // it could be read
}

func (t *topics) names() []string { return slices.Sorted(maps.Keys(*t.known.Load())) }

// change replaces the map. Only who holds mu does.
func (t *topics) change(do func(map[string]*oneTopic)) {
	known := map[string]*oneTopic{}
	if before := t.known.Load(); before != nil {
		known = maps.Clone(*before)
	}
	do(known)
	t.known.Store(&known)
}

// due says that all topics of the cluster are to be asked for, as that was done so long ago, and notes that it is done.
func (t *topics) due(every time.Duration) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if time.Since(t.listed) < every {
		return false
	}
	t.listed = time.Now()
	return true
}

// notListed has it be due at the next look.
func (t *topics) notListed() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.listed = time.Time{}
}

// prepareTopics takes in the topics that the config names.
func (c *Consumer) prepareTopics() {
	c.topics.change(func(known map[string]*oneTopic) {
		for _, t := range c.cfg.Topics {
			if !t.byPattern() {
				known[t.Name] = &oneTopic{place: c.holds.Place(holds.TopicKind, t.Name)}
			}
		}
	})
}

// ask finds out how the topics are that are to be read; and which ones the patterns match, where that was found out so
// long ago. A look for patterns that fails keeps nobody from the topics that are known.
func (c *Consumer) ask(ctx context.Context, every time.Duration) (map[string]wire.Topic, error) {
	unlisted := c.discover(ctx, every)
	names := c.topics.names()
	if len(names) == 0 {
		return nil, unlisted
	}
	found, err := c.wire.Metadata(ctx, names)
	switch {
	case err != nil:
		return nil, err
	case unlisted == nil:
		c.listing.End()
	case ctx.Err() == nil:
		c.listing.Wait(holds.Kafka, unlisted)
	}
	c.look(found)
	return found, nil
}

// discover asks for all topics of the cluster where a pattern may match some of them, and takes in those that it does.
func (c *Consumer) discover(ctx context.Context, every time.Duration) error {
	if !slices.ContainsFunc(c.cfg.Topics, Topic.byPattern) || !c.topics.due(every) {
		return nil
	}
	names, err := c.wire.TopicNames(ctx)
	if err != nil {
		c.topics.notListed()
		return err
	}
	c.topics.mu.Lock()
	defer c.topics.mu.Unlock()
	c.topics.change(func(known map[string]*oneTopic) {
		for name, t := range known {
			if t.pattern != "" && !t.seen && !slices.Contains(names, name) {
				delete(known, name) // it was gone before it could be read
				t.place.Leave()
			}
		}
		for _, name := range names {
			if entry := c.cfg.entry(name); entry != nil && known[name] == nil {
				known[name] = c.found(name, entry.Pattern)
			}
		}
	})
	c.sayUnmatched()
	return nil
}

// found begins a topic that a pattern has found.
func (c *Consumer) found(name, pattern string) *oneTopic {
	c.log.Info("a pattern matches a topic: it is read", "topic", name, "pattern", pattern)
	c.telemetry.beginTopic(name)
	c.processor.Awaits(name)
	return &oneTopic{place: c.holds.Place(holds.TopicKind, name), pattern: pattern}
}

// sayUnmatched logs once which patterns match nothing: one may be misspelt. Only who holds the topics' mu does.
func (c *Consumer) sayUnmatched() {
	if c.topics.told {
		return
	}
	c.topics.told = true
	matched := map[string]bool{}
	for _, t := range *c.topics.known.Load() {
		matched[t.pattern] = true
	}
	for _, t := range c.cfg.Topics {
		if t.byPattern() && !matched[t.Pattern] {
			c.log.Warn("no topic matches a pattern, which is looked for again and again", "pattern", t.Pattern,
				"every", c.cfg.PatternInterval)
		}
	}
}

// look begins and ends the holds of topics, by what the cluster says of them, and lets go of those that a pattern had
// found and that are gone.
func (c *Consumer) look(found map[string]wire.Topic) {
	c.topics.mu.Lock()
	defer c.topics.mu.Unlock()
	known := *c.topics.known.Load()
	for name, now := range found {
		t := known[name]
		if t == nil {
			continue
		}
		t.looks++
		switch {
		case now.Readable():
			t.seen = true
			t.place.End()
		case t.pattern != "" && wire.IsGone(now.Err):
			c.letGo(name, t)
		case t.pattern != "" && t.looks == 1: // a new topic has its leaders in a moment
		default:
			t.wait(now.Err)
		}
	}
}

// letGo forgets a topic that a pattern had found. One that was never seen may be known to some brokers only.
func (c *Consumer) letGo(name string, t *oneTopic) {
	if t.seen {
		c.log.Info("a topic that a pattern matched is gone: it is let go", "topic", name, "pattern", t.pattern)
		c.topics.change(func(known map[string]*oneTopic) { delete(known, name) })
		t.place.Leave()
	}
}

// wait holds a topic that can't be read.
func (t *oneTopic) wait(why error) {
	switch {
	case wire.IsGone(why):
		t.place.Wait(holds.Missing, why)
	case errors.Is(why, kerr.TopicAuthorizationFailed):
		t.place.Wait(holds.Denied, why)
	default:
		t.place.Wait(holds.Unreadable, cmp.Or(why, error(kerr.LeaderNotAvailable)))
	}
}
