package service

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// poll asks for something now and then, in bounded time, and keeps the last answer.
type poll[T any] struct {
	what         string
	every, limit time.Duration
	ask          func(context.Context) (T, error)
	log          *slog.Logger

	failing bool

	mu     sync.Mutex
	answer T
	at     time.Time
}

// run asks at once and then in its interval until ctx ends. Who shares a turn with others never asks beside one of
// them.
func (p *poll[T]) run(ctx context.Context, turn chan struct{}) {
	tick := time.NewTicker(p.every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case turn <- struct{}{}:
		}
		p.once(ctx)
		<-turn
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (p *poll[T]) once(ctx context.Context) {
	limited, cancel := context.WithTimeout(ctx, p.limit)
	defer cancel()
	answer, err := p.ask(limited)
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		if !p.failing {
			p.log.Warn("a figure for metrics is missing; asking again",
				"figure", p.what, "every", p.every, "error", err)
		}
		p.failing = true
		return
	}
	p.failing = false
	p.mu.Lock()
	defer p.mu.Unlock()
	p.answer, p.at = answer, time.Now()
}

// last is the last answer and when it came; zero: none yet.
func (p *poll[T]) last() (T, time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.answer, p.at
}
