package operate

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/firstseen/firstseen/dedup"
)

// MaxRerunJob caps the messages of a job that reruns: whoever plans or makes one has them in memory.
const MaxRerunJob = 100_000

// RerunPlan tells what a job that reruns would be of.
type RerunPlan struct {
	RerunPreview
	// Filter is the one that was asked for, with its times fixed.
	Filter RerunFilter
	// Set is of these messages and of no others: see NewRerun. Its text is not to be taken apart.
	Set string
}

// NewRerun says what a job is to rerun.
type NewRerun struct {
	// ID is the caller's choice: who asks twice with one ID has asked once. Required.
	ID uuid.UUID
	// Filter picks the messages. Its Handler is required.
	Filter RerunFilter
	// Set is that of the plan that was shown: where the filter does not pick these messages any more, the job is not
	// made, and the error is a *SetError. Empty: whatever the filter picks.
	Set string
}

// SetError says that a filter picks other messages than it did when they were counted.
type SetError struct{ Messages int }

func (e *SetError) Error() string {
	return fmt.Sprintf("the filter picks other messages than those that were counted, %d now: count again", e.Messages)
}

// PlanRerun looks for what a job would rerun, and changes nothing. Whoever may read may ask. ctx's deadline bounds it.
func (in *Inbox) PlanRerun(ctx context.Context, f RerunFilter) (p RerunPlan, err error) {
	found, f, err := in.rerunSet(ctx, f)
	if err == nil && f.IDs != nil {
		p.Missing, err = in.missingRerun(ctx, f)
	}
	if err != nil {
		return RerunPlan{}, fmt.Errorf("look for messages to rerun of inbox %s: %w", in.db.Inbox, err)
	}
	p.Messages, p.First, p.Filter, p.Set = len(found), found[:min(5, len(found))], f, setOf(found)
	if f.IDs == nil {
		p.SearchedFrom = f.From
	}
	return p, nil
}

// rerunSet fixes the filter's times, and gives what it picks then.
func (in *Inbox) rerunSet(ctx context.Context, f RerunFilter) ([]RerunMessage, RerunFilter, error) {
	if err := f.validate(); err != nil {
		return nil, f, err
	}
	f.most = MaxRerunJob
	if f.IDs == nil {
		var now time.Time
		if err := in.db.LookOne(ctx, `select now()`, nil, &now); err != nil {
			return nil, f, err
		}
		if f.From.IsZero() {
			f.From = now.AddDate(0, 0, -2)
		}
		if f.To.IsZero() || f.To.After(now) {
			f.To = now
		}
	}
	found, _, err := in.processed(ctx, f)
	return found, f, err
}

func setOf(found []RerunMessage) string {
	sum := sha256.New()
	for _, m := range found {
		var place [16]byte
		binary.BigEndian.PutUint64(place[:8], uint64(m.ReceivedAt.UnixMicro())) //nolint:gosec // any bits do
		binary.BigEndian.PutUint64(place[8:], uint64(m.seq))                    //nolint:gosec // the same
		sum.Write(place[:])
		sum.Write(m.lane[:])
	}
	return fmt.Sprintf("%d-%s", len(found), hex.EncodeToString(sum.Sum(nil)[:12]))
}

// CreateRerun has messages rerun by whichever process runs WorkJobs, each as Rerun does it, and says whether the job is
// new: where there is one of that ID it stands, and the error is a *JobDiffersError where that is another one. The
// messages are those that the filter picks now. It takes the rights of firstseen_operator; who works on it needs none.
// At most MaxRerunJob messages go at once.
func (in *Inbox) CreateRerun(ctx context.Context, n NewRerun, by By) (j *Job, created bool, err error) {
	err = errors.Join(n.Filter.validate(), by.validate())
	if n.ID == uuid.Nil {
		err = errors.Join(err, errNoJobID)
	}
	if err == nil {
		j, created, err = in.makeJob(ctx, n.ID, func() (bool, error) { return in.insertRerun(ctx, n, by) }, n.same)
	}
	if err != nil {
		return nil, false, fmt.Errorf("create rerun in inbox %s: %w", in.db.Inbox, err)
	}
	return j, created, nil
}

// same goes by all but times, as that of NewJob.
func (n *NewRerun) same(inbox string, j *Job) bool {
	a, b := n.Filter.Places, j.Places
	return sameFilter(inbox, JobRerun, &n.Filter.Filter, j) && (a == nil) == (b == nil) && (a == nil || *a == *b) &&
		cmp.Or(n.Filter.Ordering, dedup.OrderByKey) == j.Ordering
}

const createRerunSQL = `select firstseen.create_rerun($1::text::uuid, $2, nullif($3, ''), $4, nullif($5, ''), $6, $7, $8,
	$9::text[]::uuid[], $10, $11, $12, $13, $14::int[], $15::timestamptz[], $16::bigint[], $17::text[]::uuid[], $18, $19)`

func (in *Inbox) insertRerun(ctx context.Context, n NewRerun, by By) (created bool, err error) {
	found, f, err := in.rerunSet(ctx, n.Filter)
	if err != nil {
		return false, err
	}
	if n.Set != "" && n.Set != setOf(found) {
		return false, &SetError{len(found)}
	}
	var ids []string
	if f.IDs != nil {
		ids = texts(sortedIDs(f.IDs))
	}
	partition, from, to := f.Places.columns()
	parts, received, seqs, lanes := rerunColumns(found)
	err = in.db.InLongTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		return tx.QueryRow(ctx, in.db.SQL(createRerunSQL), n.ID.String(), in.db.Inbox, f.Topic, f.Handler, f.Tenant, f.Key,
			orNull(f.From), orNull(f.To), ids, partition, from, to, string(cmp.Or(f.Ordering, dedup.OrderByKey)), parts,
			received, seqs, lanes, by.Actor, by.Why).Scan(&created)
	})
	return created, err
}

// rerunColumns are the messages for Postgres; those of one partition have one number in parts.
func rerunColumns(found []RerunMessage) (parts []int32, received []time.Time, seqs []int64, lanes []string) {
	n := len(found)
	parts, received, seqs, lanes = make([]int32, n), make([]time.Time, n), make([]int64, n), make([]string, n)
	part := int32(0)
	for i, m := range found {
		if i > 0 && (m.Topic != found[i-1].Topic || m.Partition != found[i-1].Partition) {
			part++
		}
		parts[i], received[i], seqs[i], lanes[i] = part, m.ReceivedAt, m.seq, m.lane.String()
	}
	return parts, received, seqs, lanes
}

// columns are a range's own in the table of jobs.
func (p *PlaceRange) columns() (partition *int32, from, to *int64) {
	if p == nil {
		return nil, nil, nil
	}
	return &p.Partition, &p.From, &p.To
}

// placesOf is the range of a job.
func placesOf(partition *int32, from, to *int64) *PlaceRange {
	if partition == nil || from == nil || to == nil {
		return nil
	}
	return &PlaceRange{*partition, *from, *to}
}
