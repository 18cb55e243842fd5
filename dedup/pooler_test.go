package dedup_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/deduptest"
	"github.com/firstseen/firstseen/dedup/wait"
)

// Eight workers share two server connections, and the pooler is restarted twice under them. Every message must end up
// in one row, and every worker at the end of its partition.
func TestTransactionPoolerMayBeRestartedUnderLoad(t *testing.T) {
	t.Parallel()
	const workers, batches, size = 8, 150, 10
	for _, mode := range []string{"exec", "cache_describe"} {
		t.Run(mode, func(t *testing.T) {
			db := deduptest.New(t)
			bouncer := deduptest.PgBouncer(t, db.DSN, "default_pool_size = 2")
			pool := deduptest.OpenPool(t, bouncer.DSN+"&default_query_exec_mode="+mode,
				func(c *pgxpool.Config) { c.MaxConns = workers })
			s := stageOn(t, db, pool, dedup.Config{})
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			var group errgroup.Group
			for partition := range workers {
				group.Go(func() error { return s.work(ctx, int32(partition), batches, size) })
			}
			for range 2 {
				rows := s.count(`select count(*) from firstseen.inbox`)
				require.Eventually(t, func() bool {
					return s.count(`select count(*) from firstseen.inbox`) > rows+100
				}, 3*time.Minute, time.Millisecond)
				bouncer.Restart()
			}
			require.NoError(t, group.Wait())
			require.Equal(t, workers*batches*size, s.count(`select count(*) from firstseen.inbox`))
			require.Equal(t, workers*batches*size, s.count(`select count(distinct message_id) from firstseen.inbox`))
			require.Equal(t, workers, s.count(`select count(*) from firstseen.positions where next_offset = $1`,
				batches*size))
		})
	}
}

// work takes a partition from start to end, and through whatever happens to its connection.
func (s *stage) work(ctx context.Context, partition int32, batches, size int) error {
	var p *dedup.Position
	ids := newIDs(batches * size)
	for ctx.Err() == nil {
		var err error
		if p == nil || !p.Known {
			p, err = s.start(ctx, partition)
		} else if int(p.Next) == len(ids) {
			return nil
		} else {
			err = s.step(ctx, p, ids[p.Next:][:size])
		}
		var moved *dedup.MovedError
		switch {
		case errors.As(err, &moved):
			p.Next = moved.Next
		case errors.Is(err, dedup.ErrFenced):
			p = nil
		case err != nil:
			wait.Sleep(ctx, 5*time.Millisecond) // the pooler is away
		}
	}
	return ctx.Err()
}

func (s *stage) start(ctx context.Context, partition int32) (*dedup.Position, error) {
	p, err := s.store.Acquire(ctx, "consumer", "orders", partition, "worker")
	if err != nil || p.Known {
		return p, err
	}
	return p, s.store.Reposition(ctx, p, 0, uuid.Nil, nil)
}

func (s *stage) step(ctx context.Context, p *dedup.Position, ids []uuid.UUID) error {
	tx, err := s.store.Accept(ctx, s.batch(p, ids...))
	if err != nil {
		return err
	}
	defer tx.Rollback(ctx)
	if _, err := tx.Handler().Exec(ctx, `select $1::int`, p.Partition); err != nil {
		return err
	}
	return tx.Commit(ctx)
}
