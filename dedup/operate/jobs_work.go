package operate

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/firstseen/firstseen/dedup/failure"
	"github.com/firstseen/firstseen/dedup/internal/db"
	"github.com/firstseen/firstseen/dedup/wait"
)

// jobLooks caps the dead letters that one part of a job looks at for those that it is of.
const jobLooks = 5000

// toDo are the jobs of the schema that are to go on. Replays go another way: see TakeReplay.
const toDo = `firstseen.jobs j where j.finished_at is null and j.state <> 'paused' and j.kind <> 'replay'`

const unfinishedSQL = `select j.job_id::text from ` + toDo + ` order by j.worked_at nulls first, j.created_at
	limit 100`

// HasJobs says whether there is a job in the schema that is to go on. It costs next to nothing.
func (in *Inbox) HasJobs(ctx context.Context) (has bool, err error) {
	err = in.db.LookOne(ctx, `select exists (select from `+toDo+`)`, nil, &has)
	return has, err
}

// WorkJobs works on the schema's jobs, a part of each in turn and with as long a pause after it, until none is left to
// be done that no other process is at. Any number of processes may call it at the same time. A part is one transaction,
// of one partition, with what is counted: who is killed in it has done nothing, and another one goes on from there.
// worker names the process. What kept jobs from going on is the error: their next part is tried again by the next call.
// The rights of firstseen_consumer are enough.
func (in *Inbox) WorkJobs(ctx context.Context, worker string) error {
	failed := map[uuid.UUID]error{}
	for ctx.Err() == nil {
		ids, err := db.LookAll(ctx, in.db, nil, scanJobID, unfinishedSQL)
		if err != nil {
			return fmt.Errorf("look for jobs: %w", err)
		}
		worked := false
		for _, id := range ids {
			if ctx.Err() != nil || failed[id] != nil {
				continue
			}
			mine, err := in.workJob(ctx, id, worker)
			if err != nil {
				failed[id] = fmt.Errorf("job %s: %w", id, err)
			}
			worked = worked || mine
		}
		if !worked {
			break
		}
	}
	var faults []error
	for _, err := range failed {
		faults = append(faults, err)
	}
	return errors.Join(append(faults, ctx.Err())...)
}

func scanJobID(row pgx.CollectableRow) (id uuid.UUID, err error) {
	var text string
	if err = row.Scan(&text); err == nil {
		id, err = uuid.Parse(text)
	}
	return id, err
}

// jobPart is what one transaction of a job is to do.
type jobPart struct {
	rows   int
	failed *string // what the one letter has failed with, if it has
}

// workJob does one part of a job, and says whether there was one to do. A letter that fails is looked for by smaller
// and smaller parts, and is left where it is.
func (in *Inbox) workJob(ctx context.Context, id uuid.UUID, worker string) (worked bool, err error) {
	part := jobPart{rows: changeChunk}
	for {
		began := time.Now()
		worked, err = in.workPart(ctx, id, worker, part)
		switch text := fmt.Sprint(err); {
		case err == nil:
			wait.Sleep(ctx, min(time.Since(began), time.Second))
			return worked, nil
		case failure.Passes(err), failure.Of(err) == failure.Missing, part.failed != nil:
			return false, err
		case part.rows == 1:
			part.failed = &text
		default:
			part.rows = max(1, part.rows/8)
		}
	}
}

const workJobSQL = `select changed, busy_scopes, busy_lanes::text[] from firstseen.work_job($1::text::uuid, $2, $3, $4, $5::text)`

func (in *Inbox) workPart(ctx context.Context, id uuid.UUID, worker string, part jobPart) (worked bool, err error) {
	var changed *int
	var scopes []int32
	var lanes []string
	err = in.db.InLongTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		return tx.QueryRow(ctx, in.db.SQL(workJobSQL), id.String(), worker, jobLooks, part.rows, part.failed).
			Scan(&changed, &scopes, &lanes)
	})
	if err != nil {
		return false, db.RightsError(err)
	}
	return changed != nil, in.wake(ctx, scopes, lanes)
}

// SweepJobs forgets jobs that ended more than 30 days ago, and says how many. What they did stays in the audit.
func (in *Inbox) SweepJobs(ctx context.Context) (n int, err error) {
	err = in.db.InTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		return tx.QueryRow(ctx, in.db.SQL(`select firstseen.sweep_jobs()`)).Scan(&n)
	})
	if err != nil {
		return 0, fmt.Errorf("forget old jobs: %w", db.RightsError(err))
	}
	return n, nil
}
