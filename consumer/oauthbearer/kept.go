package oauthbearer

import (
	"context"
	"time"
)

const (
	// renewLimit bounds the request for a token while the last one is good.
	renewLimit = 3 * time.Second
	// renewAgain is the time until the next one, where it has failed.
	renewAgain = 30 * time.Second
	// askAgain is the least time between two requests that fail.
	askAgain = time.Second
)

// Kept asks a source seldom: its token is given again until four fifths of its time have passed, and on until its end
// where no other is to be had. One that has no known end is not given again. One request is made at a time, and after
// one that failed none for a second.
func Kept(source Source) Source {
	k := &kept{source: source, turn: make(chan struct{}, 1)}
	return k.give
}

type kept struct {
	source Source
	turn   chan struct{} // is held by whoever looks at the rest

	token    Token
	renewAt  time.Time
	failure  error
	failedAt time.Time
}

func (k *kept) give(ctx context.Context) (Token, error) {
	select {
	case k.turn <- struct{}{}:
		defer func() { <-k.turn }()
	case <-ctx.Done():
		return Token{}, ctx.Err()
	}
	now := time.Now()
	switch {
	case now.Before(k.renewAt):
		return k.token, nil
	case now.Before(k.token.Expires):
		return k.renew(ctx), nil
	case k.failure != nil && now.Sub(k.failedAt) < askAgain:
		return Token{}, k.failure
	}
	return k.ask(ctx)
}

// renew gives another token, or the one that there is and that is good for a while.
func (k *kept) renew(ctx context.Context) Token {
	ctx, cancel := context.WithTimeout(ctx, renewLimit)
	defer cancel()
	last := k.token
	if next, err := k.ask(ctx); err == nil {
		return next
	}
	k.renewAt = time.Now().Add(renewAgain)
	if last.Expires.Before(k.renewAt) {
		k.renewAt = last.Expires
	}
	return last
}

func (k *kept) ask(ctx context.Context) (Token, error) {
	asked := time.Now()
	token, err := k.source(ctx)
	if err != nil {
		if ctx.Err() == nil { // else it may only have been too short a time
			k.failure, k.failedAt = err, time.Now()
		}
		return Token{}, err
	}
	k.token, k.failure, k.renewAt = token, nil, asked
	if life := token.Expires.Sub(asked); life > 0 {
		k.renewAt = asked.Add(life / 5 * 4)
	}
	return token, nil
}
