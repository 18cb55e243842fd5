package consumer

import (
	"context"
	"fmt"
	"time"

	"github.com/firstseen/firstseen/dedup/operate"
	"github.com/firstseen/firstseen/handlers"
)

// PreviewReplay reads what Replay would read now, and tells what would become of it. It changes nothing. Whether handlers
// would fail on messages, or find earlier ones of a key unfinished, is not known: those are New. Dead are the messages
// without a usable ID.
func (r *Reader) PreviewReplay(ctx context.Context, p *handlers.Processor, cfg Replay) (ReplayResult, error) {
	started := time.Now()
	state, resumed, err := r.findReplay(ctx, p, &cfg)
	if err != nil {
		return ReplayResult{}, fmt.Errorf("preview replay of topic %s: %w", cfg.Topic.Name, err)
	}
	run := newReplayRun(ctx, r, p, cfg, state, resumed, started)
	defer run.abandon()
	ranges := map[int32]*operate.ReplayRange{}
	for i := range state.Ranges {
		ranges[state.Ranges[i].Partition] = &state.Ranges[i]
	}
	preview := p.Preview()
	err = r.Read(ctx, cfg.Topic, left(state), func(ctx context.Context, page Page) error {
		found, err := preview.Add(ctx, page.Messages)
		if err == nil {
			run.done(ranges[page.Partition], page.Next, len(page.Messages), found)
		}
		return err
	})
	if err != nil {
		err = fmt.Errorf("preview replay of topic %s: %w", cfg.Topic.Name, err)
	}
	result := run.result()
	result.Guessed = preview.Full()
	return result, err
}
