package outbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/handlers/crashguard"
	"github.com/firstseen/firstseen/migrations"
)

// statements are the relay's, spelled for its schema.
type statements struct{ open, unsent, release, claim, load, drop string }

func newStatements(schema string) statements {
	sql := migrations.Schema(schema).SQL
	return statements{open: sql(openSQL), unsent: sql(unsentSQL), release: sql(releaseSQL), claim: sql(claimSQL),
		load: sql(loadSQL), drop: sql(dropSQL)}
}

const (
	openSQL   = `select firstseen.open_outbox_shards($1)`
	unsentSQL = `select topic, since from firstseen.unsent_topics($1, $2)`
)

// channel is what adding is notified on.
func channel(schema string) string { return schema + "_outbox" }

const releaseSQL = `select released, next_ms from firstseen.release_outbox($1)`

// release has messages taken whose time has come, and says how long it is until the next one's does.
func (r *Relay) release(ctx context.Context) (next time.Duration, err error) {
	var released int
	var ms *int64
	err = r.store.Answered(ctx, 0, func(ctx context.Context) error {
		return r.store.Pool().QueryRow(ctx, r.sql.release, r.cfg.Batch).Scan(&released, &ms)
	})
	if err != nil {
		return 0, fmt.Errorf("release delayed messages of the outbox: %w", err)
	}
	if released > 0 {
		r.wakeWorkers()
	}
	if ms == nil {
		return r.cfg.IdlePoll, nil
	}
	return time.Duration(*ms) * time.Millisecond, nil
}

// place names a shard.
type place struct {
	topic string
	shard int16
}

// claim is a shard that a transaction has locked, and what there is to send of it.
type claim struct {
	place
	tx             pgx.Tx
	epoch          *int64 // of its position; nil: it has none
	ids            []int64
	bytes, largest int
}

const claimSQL = `select number, topic, shard, epoch, ids, bytes, largest from firstseen.claim_outbox($1, $2, $3, $4, $5)`

// takeBytes is about what a claim's messages take in memory, but for one that is larger.
const takeBytes = 8 << 20

// claim claims a shard that nobody else is at until its transaction ends; nil: there is none with something to send.
// The next call begins behind it. Once the worker has been silent for longer than a batch may take, it is stopped or cut
// off, and Postgres ends the transaction.
func (w *worker) claim(ctx context.Context, topics []string, most int) (c *claim, err error) {
	begin := pgx.TxOptions{BeginQuery: fmt.Sprintf(`begin isolation level read committed;
		set local idle_in_transaction_session_timeout = %d`, (2 * w.cfg.SendTimeout).Milliseconds())}
	err = w.store.Answered(ctx, 0, func(ctx context.Context) error {
		tx, err := w.store.Pool().BeginTx(ctx, begin)
		if err != nil {
			return err
		}
		if c, err = w.claimIn(ctx, tx, topics, most); c == nil {
			w.unclaim(ctx, tx)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("claim a shard of the outbox: %w", err)
	}
	return c, nil
}

func (w *worker) claimIn(ctx context.Context, tx pgx.Tx, topics []string, most int) (*claim, error) {
	c := claim{tx: tx}
	var number int
	err := tx.QueryRow(ctx, w.sql.claim, w.consumer(), topics, w.from%(shards*len(topics)), most,
		max(1, min(takeBytes, w.cfg.Memory.Limit()/8))).
		Scan(&number, &c.topic, &c.shard, &c.epoch, &c.ids, &c.bytes, &c.largest)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	w.from = number + 1
	return &c, nil
}

// unclaim lets others claim the shard. A connection that does not answer is closed.
func (w *worker) unclaim(ctx context.Context, tx pgx.Tx) { _ = w.store.Answered(ctx, 0, tx.Rollback) }

// shards is how many a topic has: see open_outbox_shards.
const shards = 16

// consumer is whose the positions of shards are. No group's name begins so.
func (r *Relay) consumer() string { return "relay/" + r.store.Inbox() }

// shard is what a relay knows of one, as a consumer does of a partition.
type shard struct {
	position *dedup.Position
	guard    *crashguard.Guard
	parked   dedup.ParkedCount
	limit    int  // messages at once: fewer after a failure that may be one message's
	lost     bool // somebody else has it, or it has moved
}

// acquire makes the relay the owner of a claimed shard's position, if it is not yet. Its epoch keeps earlier owners
// from settling anything, and by it a message shows that takes down whoever sends it: who acquires a position again and
// again without moving it has died. Which number it is at tells nothing: it counts messages.
func (w *worker) acquire(ctx context.Context, c *claim) (*shard, error) {
	w.mu.Lock()
	s := w.shards[c.place]
	delete(w.shards, c.place)
	w.mu.Unlock()
	if s != nil && c.epoch != nil && *c.epoch == s.position.Epoch {
		return s, nil
	}
	p, err := w.store.Acquire(ctx, w.consumer(), c.topic, int32(c.shard), dedup.ThisProcess())
	if err == nil && !p.Known {
		err = w.store.Reposition(ctx, p, 0, uuid.Nil, nil)
	}
	if err != nil {
		return nil, err
	}
	log := w.cfg.Logger.With("topic", c.topic, "shard", c.shard)
	return &shard{position: p, limit: w.cfg.Batch,
		guard: cmp.Or(crashguard.AfterAcquiring(w.processor, p, c.ids[0], 0, w.cfg.Batch, log),
			crashguard.AfterFailure(w.processor, p, log)),
		parked: dedup.ParkedCount{Store: w.store, Topic: c.topic, Partition: int32(c.shard), Most: w.to.MaxParked,
			N: 1}}, nil
}

// leave keeps what is known of a shard for the next time, and says in Postgres that its owner lives.
func (r *Relay) leave(ctx context.Context, at place, s *shard) {
	crashguard.Excuse(ctx, r.store, s.position, r.cfg.Logger)
	if s.lost {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.shards[at] = s
}

// failed takes in that a batch of n messages has failed.
func (s *shard) failed(ctx context.Context, err error, n int) {
	if errors.Is(err, dedup.ErrFenced) || errors.As(err, new(*dedup.MovedError)) {
		s.lost = true
		return
	}
	s.limit = s.guard.Failed(ctx, err, n, s.limit)
}

const loadSQL = `select outbox_id, added_at, message_id, tenant, raw_id, key, headers, payload
	from firstseen.load_outbox($1, $2, $3)`

// load reads messages of a claimed shard, in their order.
func (r *Relay) load(ctx context.Context, c *claim, ids []int64) (ms []dedup.Message, err error) {
	err = r.store.Answered(ctx, c.bytes, func(ctx context.Context) error {
		rows, err := r.store.Pool().Query(ctx, r.sql.load, c.topic, c.shard, ids)
		if err != nil {
			return err
		}
		ms, err = c.read(rows)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("load messages of the outbox: %w", err)
	}
	return ms, nil
}

func (at place) read(rows pgx.Rows) (ms []dedup.Message, err error) {
	m := dedup.Message{Topic: at.topic, Partition: int32(at.shard)}
	var raw *string
	var headers []byte
	_, err = pgx.ForEachRow(rows, []any{&m.Offset, &m.Timestamp, &m.ID, &m.Tenant, &raw, &m.Key, &headers, &m.Value},
		func() (err error) {
			if m.Headers, err = dedup.DecodeHeaders(headers); err != nil {
				return fmt.Errorf("message %s: %w", m.ID, err)
			}
			if m.RawID = ""; raw != nil {
				m.RawID = *raw
			}
			ms = append(ms, m)
			return nil
		})
	return ms, err
}

const dropSQL = `select firstseen.drop_outbox($1, $2, $3)`

// drop deletes messages in the transaction that they are settled in.
func (r *Relay) drop(ctx context.Context, tx execer, at place, ms []dedup.Message) error {
	ids := make([]int64, len(ms))
	for i := range ms {
		ids[i] = ms[i].Offset
	}
	err := r.store.Answered(ctx, 0, func(ctx context.Context) error {
		_, err := tx.Exec(ctx, r.sql.drop, at.topic, at.shard, ids)
		return err
	})
	if err != nil {
		return fmt.Errorf("take messages out of the outbox: %w", err)
	}
	return nil
}

type execer interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}
