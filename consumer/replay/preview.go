package replay

import (
	"context"
	"fmt"
	"time"

	"github.com/firstseen/firstseen/dedup/operate"
	"github.com/firstseen/firstseen/handlers"
)

// Plan tells which offsets Replay would read now, and reads nothing. It changes nothing.
func (r *Reader) Plan(ctx context.Context, p *handlers.Processor, cfg Config) (Result, error) {
	started := time.Now()
	state, resumed, err := r.findReplay(ctx, p, &cfg)
	if err != nil {
		return Result{}, fmt.Errorf("plan replay of topic %s: %w", cfg.Topic.Name, err)
	}
	j := newJob(ctx, r, p, cfg, state, resumed, started)
	defer j.abandon()
	return j.result(), nil
}

// Preview reads what Replay would read now, and tells what would become of it. It changes nothing. Whether handlers
// would fail on messages, or find earlier ones of a key unfinished, is not known: those are New. Dead are the messages
// without a usable ID.
func (r *Reader) Preview(ctx context.Context, p *handlers.Processor, cfg Config) (Result, error) {
	started := time.Now()
	state, resumed, err := r.findReplay(ctx, p, &cfg)
	if err != nil {
		return Result{}, fmt.Errorf("preview replay of topic %s: %w", cfg.Topic.Name, err)
	}
	j := newJob(ctx, r, p, cfg, state, resumed, started)
	defer j.abandon()
	ranges := map[int32]*operate.ReplayRange{}
	for i := range state.Ranges {
		ranges[state.Ranges[i].Partition] = &state.Ranges[i]
	}
	preview := p.Preview(cfg.Handler)
	err = r.Read(ctx, cfg.Topic, left(state), func(ctx context.Context, page Page) error {
		found, err := preview.Add(ctx, page.Messages)
		if err == nil {
			j.done(ranges[page.Partition], page.Next, len(page.Messages), found)
		}
		return err
	})
	if err != nil {
		err = fmt.Errorf("preview replay of topic %s: %w", cfg.Topic.Name, err)
	}
	result := j.result()
	result.Guessed = preview.Full()
	return result, err
}
