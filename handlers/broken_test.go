package handlers_test

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/savepoint"
	"github.com/firstseen/firstseen/handlers"
)

// broken does what a message's value says, and leaves an effect for it first.
func broken(ctx context.Context, tx pgx.Tx, m dedup.Message) error {
	if err := leaveEffect(ctx, tx, m); err != nil {
		return err
	}
	conn := tx.Conn().PgConn()
	switch string(m.Value) {
	case "end":
		_, _ = conn.Exec(ctx, `rollback`).ReadAll()
	case "replace": // the transaction by another, which looks as open
		_, _ = conn.Exec(ctx, `rollback; begin`).ReadAll()
	case "release":
		_, _ = conn.Exec(ctx, "release "+savepoint.Keep()).ReadAll() // Keep is "savepoint" and the name
	case "fail":
		return errors.New("told to")
	case "defer":
		_, err := tx.Exec(ctx, `insert into child values (99)`)
		return err
	}
	return nil
}

// Failures of different kinds in one batch must not hide each other: each is its own message's.
func TestFailuresOfDifferentKindsInOneBatchAreToldApart(t *testing.T) {
	t.Parallel()
	for name, values := range map[string][]string{
		"replaced, then failed":   {"ok", "replace", "ok", "fail", "ok"},
		"failed, then replaced":   {"ok", "fail", "ok", "replace", "ok"},
		"ended, then replaced":    {"ok", "end", "ok", "replace", "ok"},
		"replaced, then ended":    {"ok", "replace", "ok", "end", "ok"},
		"ended, then deferred":    {"ok", "end", "ok", "defer", "ok"},
		"deferred, then ended":    {"ok", "defer", "ok", "end", "ok"},
		"deferred, then replaced": {"ok", "defer", "ok", "replace", "ok"},
		"deferred, then failed":   {"ok", "defer", "ok", "fail", "ok"},
		"replaced twice":          {"ok", "replace", "replace", "ok"},
		"replaced at the end":     {"ok", "fail", "ok", "replace"},
		"released, then failed":   {"ok", "release", "ok", "fail", "ok"},
		"released, then ended":    {"ok", "release", "end", "ok"},
	} {
		for _, named := range []bool{true, false} {
			t.Run(name, func(t *testing.T) {
				s := newStage(t)
				s.exec(`create table parent (id int primary key);
					create table child (parent int references parent deferrable initially deferred)`)
				if named {
					s.register("h", handlers.Each(handlers.HandlerFunc(broken)))
				} else {
					s.register("h", handlers.BatchHandlerFunc(func(ctx context.Context, tx pgx.Tx,
						ms []dedup.Message) error {
						for _, m := range ms {
							if err := broken(ctx, tx, m); err != nil {
								return err
							}
						}
						return nil
					}))
				}
				p := s.position("orders")
				ms := keyed(messages(p, newIDs(len(values))...))
				var good []int64
				for i, value := range values {
					ms[i].Value = []byte(value)
					if value == "ok" {
						good = append(good, ms[i].Offset)
					}
				}
				s.requireResult(handlers.Result{New: len(good), Parked: len(values) - len(good)}, p, ms...)
				s.requireEffects(good...)
				require.Equal(t, len(values)-len(good),
					s.count(`select count(*) from firstseen.parked where attempts = 1 and payload <> 'ok'`))
			})
		}
	}
}
