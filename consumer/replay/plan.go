package replay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/firstseen/firstseen/consumer"
	"github.com/firstseen/firstseen/consumer/internal/wire"
	"github.com/firstseen/firstseen/dedup/operate"
	"github.com/firstseen/firstseen/handlers"
)

// prepare fills in the defaults and reports every fault of what is asked for.
func (c *Config) prepare(p *handlers.Processor) error {
	var faults []error
	var err error
	if c.Topic, err = c.Topic.Checked(); err != nil {
		faults = append(faults, err)
	} else if len(c.handlers(p)) == 0 {
		faults = append(faults, fmt.Errorf("topic %s: %s is registered for it", c.Topic.Name,
			strings.TrimRight("no handler "+c.Handler, " ")))
	}
	if c.Group == "" {
		faults = append(faults, errors.New("group: a name is required"))
	}
	c.Name, c.MaxParked = cmp.Or(c.Name, c.Topic.Name), cmp.Or(max(0, c.MaxParked), defaultMaxParked)
	c.From, c.To = cmp.Or(c.From, EarliestPlace()), cmp.Or(c.To, LatestPlace())
	if c.From.isOffset() && c.To.isOffset() && c.From.offset > c.To.offset {
		faults = append(faults, fmt.Errorf("from %s to %s is no range", c.From, c.To))
	}
	c.Partitions = slices.Compact(slices.Sorted(slices.Values(c.Partitions)))
	return errors.Join(faults...)
}

var defaultMaxParked = consumer.Config{}.WithDefaults().MaxParked

// beginReplay gives the replay of that name where there is one, and else sets a new one down.
func (r *Reader) beginReplay(ctx context.Context, p *handlers.Processor, cfg *Config) (state *operate.Replay,
	resumed bool, err error) {
	state, resumed, err = r.findReplay(ctx, p, cfg)
	if err != nil || resumed || len(state.Ranges) == 0 {
		return state, resumed, err
	}
	begun, err := operate.Of(p.Store()).BeginReplay(ctx, state, cfg.Fresh)
	if err != nil {
		return nil, false, err
	}
	if begun {
		state.BegunAt = time.Now()
		return state, false, nil
	}
	return r.findReplay(ctx, p, cfg) // somebody was faster
}

// findReplay gives the replay of that name where there is one, and else what a new one would be. It changes nothing.
func (r *Reader) findReplay(ctx context.Context, p *handlers.Processor, cfg *Config) (state *operate.Replay,
	resumed bool, err error) {
	if err := cfg.prepare(p); err != nil {
		return nil, false, err
	}
	if err := p.Store().CheckHome(ctx, cfg.Group, cfg.Home); err != nil {
		return nil, false, err
	}
	topic, ends, err := r.lookUp(ctx, cfg.Topic.Name, nil, wire.LatestOffset)
	if err != nil {
		return nil, false, err
	}
	if !cfg.Fresh {
		state, err = operate.Of(p.Store()).Replay(ctx, operate.ReplayConsumer(cfg.Group, cfg.Name), cfg.Topic.Name)
		if err != nil || state != nil {
			return state, true, errors.Join(err, cfg.goesOn(p, state, topic.ID))
		}
	}
	state, err = r.planReplay(ctx, p, cfg, topic, ends)
	return state, false, err
}

// goesOn says why a replay that was begun can't go on as it is asked for now.
func (c *Config) goesOn(p *handlers.Processor, state *operate.Replay, topicID uuid.UUID) error {
	asked := c.asked(p)
	switch {
	case state == nil:
		return nil
	case !sameAsked(state.Asked, asked):
		return &DiffersError{c.Name, state.BegunAt, state.Asked, asked}
	case state.Left() > 0 && state.TopicID != uuid.Nil && topicID != uuid.Nil && state.TopicID != topicID:
		return errors.New("it was deleted and created again since the replay began: begin anew (fresh)")
	}
	return nil
}

// DiffersError says that there is a replay of that name already which was asked for otherwise: in other places or
// partitions, or for other handlers.
type DiffersError struct {
	Name       string
	BegunAt    time.Time
	Asked, Now string
}

func (e *DiffersError) Error() string {
	return fmt.Sprintf("there is a replay %q of it already, which was begun %s (%s), and now is asked for %s: "+
		"ask as before to go on, begin anew (fresh), or give this one another name",
		e.Name, e.BegunAt.UTC().Format("2006-01-02 15:04:05"), e.Asked, e.Now)
}

// sameAsked says that two replays are asked for alike: the order of their handlers says nothing.
func sameAsked(a, b string) bool {
	whatA, handlersA, _ := strings.Cut(a, askedHandlers)
	whatB, handlersB, _ := strings.Cut(b, askedHandlers)
	sorted := func(list string) []string { return slices.Sorted(strings.SplitSeq(list, ",")) }
	return whatA == whatB && slices.Equal(sorted(handlersA), sorted(handlersB))
}

// planReplay resolves the places.
func (r *Reader) planReplay(ctx context.Context, p *handlers.Processor, cfg *Config, topic wire.Topic,
	ends map[int32]int64) (*operate.Replay, error) {
	earliest, err := r.Earliest(ctx, topic.Name)
	if err != nil {
		return nil, err
	}
	from, err := r.Find(ctx, topic.Name, cfg.From)
	if err != nil {
		return nil, err
	}
	to, err := r.Find(ctx, topic.Name, cfg.To)
	if err != nil {
		return nil, err
	}
	stands, stale, err := operate.Of(p.Store()).PositionsIn(ctx, cfg.Group, topic.Name, topic.ID)
	if err != nil {
		return nil, err
	}
	if stale {
		return nil, fmt.Errorf("it was deleted and created again, and group %s has not begun in the new one: "+
			"have it begin there first, by on_reset or firstseen offsets reset", cfg.Group)
	}
	state := &operate.Replay{Consumer: operate.ReplayConsumer(cfg.Group, cfg.Name), Topic: topic.Name,
		TopicID: topic.ID, Asked: cfg.asked(p)}
	var faults []error
	partitions := cfg.Partitions
	if partitions == nil {
		partitions = slices.Sorted(maps.Keys(ends))
	}
	for _, id := range partitions {
		if !cfg.Home.Has(id) {
			continue
		}
		if _, there := ends[id]; !there {
			faults = append(faults, fmt.Errorf("partition %d %w", id, errMissing))
			continue
		}
		first, end := from[id], min(to[id], ends[id])
		if next, ok := stands[id]; ok {
			end = min(end, next)
		}
		if end = max(end, 0); first < min(end, earliest[id]) {
			faults = append(faults, r.lost(topic.Name, id, first, min(end, earliest[id])))
			first = earliest[id]
		}
		first = min(first, end)
		state.Ranges = append(state.Ranges, operate.ReplayRange{Partition: id, From: first, To: end, Next: first})
	}
	return state, errors.Join(faults...)
}

// lost logs messages that are not there any more, or returns the error that ends the replay, by OnLoss.
func (r *Reader) lost(topic string, partition int32, from, to int64) error {
	if r.cfg.OnLoss == consumer.Continue {
		r.cfg.Logger.Error("messages were deleted before they were read: LOST", "partition",
			wire.TopicPartition{Topic: topic, Partition: partition}.String(),
			"from", from, "to", to-1, "count", to-from)
		return nil
	}
	return fmt.Errorf("messages %d to %d of partition %d are not in Kafka any more: begin at %d or at earliest, or "+
		"continue on loss", from, to-1, partition, to)
}
