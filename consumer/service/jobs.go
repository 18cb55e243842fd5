package service

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/failure"
	"github.com/firstseen/firstseen/dedup/wait"
)

// How often jobs are looked for, and old ones forgotten.
const jobsEvery, sweepEvery = 2 * time.Second, time.Hour

// jobs works on what operators have asked for, beside the consumer.
type jobs struct {
	*Service
	inbox *attached
	swept time.Time
}

// run works until ctx ends.
func (j *jobs) run(ctx context.Context) { j.again(ctx, "jobs on dead letters", j.once) }

// again does once every now and then until ctx ends. What keeps it from that is logged once, as what does not go on, and
// tried again.
func (s *Service) again(ctx context.Context, what string, once func(context.Context) error) {
	told := "" // the last error
	for wait.Sleep(ctx, jobsEvery) {
		err := once(ctx)
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			told = ""
			continue
		}
		if text := failure.Code(err) + failure.Of(err).String(); text != told {
			s.log.Warn(what+" do not go on, which is tried again", "error", err)
			told = text
		}
	}
}

// once looks for jobs, and works on them until none is left, over a connection of its own.
func (j *jobs) once(ctx context.Context) error {
	if time.Since(j.swept) > sweepEvery {
		if _, err := j.inbox.Inbox.SweepJobs(ctx); err != nil {
			return err
		}
		j.swept = time.Now()
	}
	has, err := j.inbox.Inbox.HasJobs(ctx)
	if err != nil || !has {
		return err
	}
	conf := j.cfg.Pool.Config()
	conf.MinConns, conf.MinIdleConns, conf.MaxConns = 0, 0, 1
	pool, err := pgxpool.NewWithConfig(ctx, conf)
	if err != nil {
		return err
	}
	defer dedup.ClosePool(pool)
	return j.inbox.Inbox.On(pool).WorkJobs(ctx, j.cfg.Actor)
}
