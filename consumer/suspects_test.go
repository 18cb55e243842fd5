package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/firstseen/firstseen/consumer"
	"github.com/firstseen/firstseen/consumer/consumertest"
	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/deduptest"
	"github.com/firstseen/firstseen/dedup/holds"
	"github.com/firstseen/firstseen/handlers"
	"github.com/firstseen/firstseen/handlers/crashguard"
)

const suspectAttempts = 3

// rogue does what a message's value says, and else leaves an effect.
func rogue(ctx context.Context, tx pgx.Tx, m dedup.Message) error {
	what, argument, _ := strings.Cut(string(m.Value), ":")
	var err error
	switch what {
	case "terminate":
		_, err = tx.Exec(ctx, `select pg_terminate_backend(pg_backend_pid()), pg_sleep(10)`)
	case "hide": // the end of its session
		_, _ = tx.Exec(ctx, `select pg_terminate_backend(pg_backend_pid()), pg_sleep(10)`)
		err = errors.New("told to fail")
	case "raise":
		_, err = tx.Exec(ctx, `do $$ begin raise exception 'told to' using errcode = '`+argument+`'; end $$`)
	case "readonly":
		if _, err = tx.Exec(ctx, `set transaction read only`); err == nil {
			err = obey(ctx, tx, m)
		}
	case "crash":
		err = syscall.Kill(int(tx.Conn().PgConn().PID()), syscall.SIGKILL)
		if err == nil {
			_, err = tx.Exec(ctx, `select pg_sleep(10)`)
		}
	default:
		return obey(ctx, tx, m)
	}
	return err
}

// rogues makes messages "0", "1", …, but for some, whose values are given by their place. Each has a key of its own,
// but the last two, which have that of the first of those.
func (s *stage) rogues(n int, values map[int]string) {
	s.t.Helper()
	rs := make([]*kgo.Record, n)
	first := n
	for i := range rs {
		value := "ok"
		if v, ok := values[i]; ok {
			value, first = v, min(first, i)
		}
		rs[i] = s.record(fmt.Sprint("key-", i), value, uuid.NewString())
	}
	for i := max(0, n-2); i < n && first < n; i++ {
		rs[i].Key = []byte(fmt.Sprint("key-", first))
	}
	consumertest.Produce(s.t, s.addr, rs...)
}

func (s *stage) consumerOf(h handlers.BatchHandler,
	change func(*consumer.Config, *handlers.Config)) *consumer.Consumer {
	return s.consumer(func(cc *consumer.Config, hc *handlers.Config) {
		hc.LanePoll = 20 * time.Millisecond
		require.NoError(s.t,
			hc.Handlers.Add(handlers.Registration{Name: "effect", Topics: []string{s.topic}, Handler: h,
				Retry: handlers.Retry{Base: time.Millisecond, Cap: 10 * time.Millisecond,
					MaxAttempts: suspectAttempts}}))
		if change != nil {
			change(cc, hc)
		}
	})
}

// allSettled waits until all messages are handled or dead. Postgres may be down meanwhile.
func (s *stage) allSettled(messages int) {
	s.t.Helper()
	const sql = `select (select count(*) from firstseen.inbox) + (select count(*) from firstseen.dead_letters),
		(select coalesce(sum(attempts), 0) from firstseen.parked)`
	var n, attempts int
	deduptest.UntilDone(s.t, 5*time.Minute, "not settled", func() (string, bool) {
		err := s.pool.QueryRow(context.Background(), sql).Scan(&n, &attempts)
		return fmt.Sprintf("%d messages, and %d attempts at others", n, attempts), err == nil && n == messages
	})
}

// opaquely is a handler as one that does not say which message it failed on.
func opaquely(h handlers.HandlerFunc) handlers.BatchHandler {
	return handlers.BatchHandlerFunc(func(ctx context.Context, tx pgx.Tx, ms []dedup.Message) error {
		for _, m := range ms {
			if err := h(ctx, tx, m); err != nil {
				return err
			}
		}
		return nil
	})
}

func TestAMessageThatLooksLikeAnOutageDelaysItsOwnKeyOnly(t *testing.T) {
	t.Parallel()
	for what, reason := range map[string]string{
		"terminate": "ended_session", "hide": "ended_session", "readonly": "attempts_exhausted",
		"raise:25006": "attempts_exhausted",
		"raise:53100": "attempts_exhausted", "raise:53200": "attempts_exhausted", "raise:53300": "attempts_exhausted",
		"raise:58000": "attempts_exhausted", "raise:58030": "attempts_exhausted", "raise:58P01": "attempts_exhausted",
	} {
		for kind, wrap := range map[string]func(handlers.HandlerFunc) handlers.BatchHandler{
			"each":   func(h handlers.HandlerFunc) handlers.BatchHandler { return handlers.Each(h) },
			"opaque": opaquely} {
			t.Run(what+"/"+kind, func(t *testing.T) {
				t.Parallel()
				s := newStage(t, consumertest.NewFake(t).Addr, 1)
				s.rogues(40, map[int]string{10: what})
				stop := s.start(s.consumerOf(wrap(rogue), nil))
				s.allSettled(40)
				s.caughtUp()
				stop()
				s.requireOnce(39)
				require.Equal(t, 1, s.count(`select count(*) from firstseen.dead_letters where "offset" = 10 and attempts = $1 and reason = $2`,
					suspectAttempts, reason))
				require.Zero(t, s.count(`select sum(attempts) from firstseen.inbox`), "of others")
			})
		}
	}
}

func TestAMessageThatLooksLikeAnOutageByItselfRunsOutOfAttempts(t *testing.T) {
	t.Parallel()
	s := newStage(t, consumertest.NewFake(t).Addr, 1)
	s.rogues(1, map[int]string{0: "terminate"})
	stop := s.start(s.consumerOf(handlers.Each(handlers.HandlerFunc(rogue)), nil))
	s.allSettled(1)
	stop()
	require.Equal(t, 1, s.count(`select count(*) from firstseen.dead_letters`))
}

// When it is set apart, at each attempt by itself, and when it is given up. Of the others it says nothing.
func TestTheLogNamesASuspectAtEachStep(t *testing.T) {
	t.Parallel()
	s := newStage(t, consumertest.NewFake(t).Addr, 1)
	s.rogues(20, map[int]string{13: "terminate"})
	book := &consumertest.Log{}
	stop := s.start(s.consumerOf(handlers.Each(handlers.HandlerFunc(rogue)),
		func(cc *consumer.Config, hc *handlers.Config) { cc.Logger, hc.Logger = book.Logger(), book.Logger() }))
	s.allSettled(20)
	stop()
	require.Equal(t, 1, book.Times(slog.LevelWarn, "a message failed again by itself though Postgres is well",
		"partition", s.topic+"/0", "offset", "13", "error", "57P01"))
	for attempt, state := range []string{"failed", "failed", "ended_session"} {
		require.Equal(t, 1, book.Times(slog.LevelWarn, "handler failed", "handler", "effect",
			"message", s.topic+"/0@13", "attempts", strconv.Itoa(attempt+1), "state", state, "error", "57P01"), attempt)
	}
	require.Equal(t, suspectAttempts, book.Times(slog.LevelWarn, "handler failed"), "of others")
}

// A shortage that only it meets, of its handler's tablespace, say, is nobody's as long as nobody passes beside it.
func TestAMessageThatIsShortCountsNoAttemptUntilAnotherPasses(t *testing.T) {
	t.Parallel()
	s := newStage(t, consumertest.NewFake(t).Addr, 1)
	s.rogues(1, map[int]string{0: "raise:53100"})
	var calls atomic.Int32
	shown := holds.New(logger())
	stop := s.start(s.consumerOf(handlers.Each(handlers.HandlerFunc(func(ctx context.Context,
		tx pgx.Tx, m dedup.Message) error {
		calls.Add(1)
		return rogue(ctx, tx, m)
	})), func(_ *consumer.Config, hc *handlers.Config) { hc.Holds = shown }))
	require.Eventually(t, func() bool { return calls.Load() > suspectAttempts+2 }, 3*time.Minute, 10*time.Millisecond)
	require.Zero(t, s.count(`select count(*) from firstseen.dead_letters`))
	held := func() bool {
		return slices.ContainsFunc(shown.List(), func(h holds.Hold) bool { return h.Code == holds.Suspected })
	}
	require.True(t, held())
	s.rogues(2, nil) // the first has its key
	s.allSettled(3)
	s.eventually(func() bool { return !held() }, "it still waits")
	stop()
	s.requireOnce(2)
	require.Equal(t, suspectAttempts, s.count(`select attempts from firstseen.dead_letters`))
}

// A server process that is killed takes all others with it, and the server recovers.
func TestAMessageThatCrashesPostgresDelaysItsOwnKeyOnly(t *testing.T) {
	t.Parallel()
	s, _ := newStageOnOwnServer(t, consumertest.NewFake(t).Addr, 2)
	s.rogues(30, map[int]string{7: "crash"})
	stop := s.start(s.consumerOf(handlers.Each(handlers.HandlerFunc(rogue)), nil))
	s.allSettled(30)
	s.caughtUp()
	stop()
	s.requireOnce(29)
	require.Equal(t, fmt.Sprint("ended_session ", suspectAttempts),
		s.text(`select reason || ' ' || attempts from firstseen.dead_letters`))
	require.Zero(t, s.count(`select sum(attempts) from firstseen.inbox`), "of others")
}

func (s *stage) text(sql string) (text string) {
	s.t.Helper()
	require.NoError(s.t, s.pool.QueryRow(context.Background(), sql).Scan(&text))
	return text
}

func TestAShortageOfAllMessagesDeadLettersNone(t *testing.T) {
	t.Parallel()
	s := newStage(t, consumertest.NewFake(t).Addr, 1)
	s.rogues(40, nil)
	var full atomic.Bool
	var calls atomic.Int32
	full.Store(true)
	h := handlers.Each(handlers.HandlerFunc(func(ctx context.Context, tx pgx.Tx, m dedup.Message) error {
		if full.Load() {
			calls.Add(1)
			m.Value = []byte("raise:53100")
		}
		return rogue(ctx, tx, m)
	}))
	stop := s.start(s.consumerOf(h, nil))
	require.Eventually(t, func() bool { return calls.Load() > 60 }, 3*time.Minute, 10*time.Millisecond)
	full.Store(false)
	s.allSettled(40)
	s.caughtUp()
	stop()
	s.requireOnce(40)
	require.LessOrEqual(t, s.count(`select coalesce(max(attempts), 0) from firstseen.inbox`), 1)
}

// limits are of the sessions of a consumer. No message is too slow by itself.
func TestALimitOfASessionCostsNoMessageThatKeepsIt(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		setting  string
		messages int
		each     string
	}{
		"transaction": {"transaction_timeout = '1s'", 200, "sleep:20ms"},
		"pause":       {"idle_in_transaction_session_timeout = '500ms'", 5, "sleep:700ms"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, consumertest.NewFake(t).Addr, 1)
			values := map[int]string{}
			for i := range c.messages {
				values[i] = c.each
			}
			s.rogues(c.messages, values)
			s.exec(`alter database ` + s.text(`select current_database()`) + ` set ` + c.setting)
			stop := s.start(s.consumerOf(handlers.Each(handlers.HandlerFunc(rogue)), nil))
			s.allSettled(c.messages)
			stop()
			s.requireOnce(c.messages)
			require.Zero(t, s.count(`select sum(attempts) from firstseen.inbox`))
		})
	}
}

func TestAMessageThatIsTooSlowForASessionsLimitRunsOutOfAttempts(t *testing.T) {
	t.Parallel()
	for limit, code := range map[string]string{
		"transaction_timeout": "25P04", "idle_in_transaction_session_timeout": "25P03"} {
		t.Run(limit, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, consumertest.NewFake(t).Addr, 1)
			s.idleAfter = time.Second // or a lane would give it the ten minutes of the default
			s.rogues(20, map[int]string{5: "sleep:2s"})
			s.exec(`alter database ` + s.text(`select current_database()`) + ` set ` + limit + ` = '1s'`)
			stop := s.start(s.consumerOf(handlers.Each(handlers.HandlerFunc(rogue)), nil))
			s.allSettled(20)
			stop()
			s.requireOnce(19)
			require.Equal(t, fmt.Sprint("attempts_exhausted ", suspectAttempts),
				s.text(`select reason || ' ' || attempts from firstseen.dead_letters`))
			require.Contains(t, s.text(`select error from firstseen.dead_letters`), code)
			require.Zero(t, s.count(`select sum(attempts) from firstseen.inbox`), "of others")
		})
	}
}

func TestAWatchdogThatEndsOldTransactionsIsKeptByShorterOnes(t *testing.T) {
	t.Parallel()
	s := newStage(t, consumertest.NewFake(t).Addr, 1)
	values := map[int]string{}
	for i := range 300 {
		values[i] = "sleep:10ms"
	}
	s.rogues(300, values)
	ctx, cancel := context.WithCancel(t.Context())
	var watching sync.WaitGroup
	watching.Go(func() {
		for ctx.Err() == nil {
			_, _ = s.pool.Exec(ctx, `select pg_terminate_backend(pid) from pg_stat_activity
				where datname = current_database() and xact_start < clock_timestamp() - interval '1500 ms' and pid <> pg_backend_pid()`)
			select {
			case <-ctx.Done():
			case <-time.After(100 * time.Millisecond):
			}
		}
	})
	stop := s.start(s.consumerOf(handlers.Each(handlers.HandlerFunc(rogue)), nil))
	s.allSettled(300)
	stop()
	cancel()
	watching.Wait()
	s.requireOnce(300)
	require.Zero(t, s.count(`select sum(attempts) from firstseen.inbox`))
}

func TestAHandlerThatHangsDelaysOthersForOneTimeLimit(t *testing.T) {
	t.Parallel()
	s := newStage(t, consumertest.NewFake(t).Addr, 1)
	s.rogues(30, map[int]string{3: "hang"})
	var together, alone atomic.Int32
	h := handlers.BatchHandlerFunc(func(ctx context.Context, tx pgx.Tx, ms []dedup.Message) error {
		for _, m := range ms {
			if string(m.Value) != "hang" {
				if err := rogue(ctx, tx, m); err != nil {
					return err
				}
				continue
			}
			if len(ms) > 1 {
				together.Add(1)
			} else {
				alone.Add(1)
			}
			<-ctx.Done()
			return context.Cause(ctx)
		}
		return nil
	})
	stop := s.start(s.consumerOf(h,
		func(_ *consumer.Config, hc *handlers.Config) { hc.HandlerTimeout = 2 * time.Second }))
	s.allSettled(30)
	stop()
	s.requireOnce(29)
	require.EqualValues(t, 1, together.Load())
	require.EqualValues(t, suspectAttempts, alone.Load())
	require.Equal(t, fmt.Sprint("attempts_exhausted ", suspectAttempts),
		s.text(`select reason || ' ' || attempts from firstseen.dead_letters`))
}

func TestABatchIsHalvedAfterATimeOutInItsCommit(t *testing.T) {
	t.Parallel()
	s := newStage(t, consumertest.NewFake(t).Addr, 1)
	s.exec(`create function slow() returns trigger language plpgsql as $$ begin perform pg_sleep(.02); return null; end $$;
		create constraint trigger slow after insert on effects deferrable initially deferred for each row execute function slow()`)
	s.requireHalved()
}

// requireHalved has messages handled of which a batch takes longer than statements may, and finds that none has failed.
func (s *stage) requireHalved() {
	s.t.Helper()
	s.rogues(200, nil)
	s.exec(`alter database ` + s.text(`select current_database()`) + ` set statement_timeout = '1s'`)
	stop := s.start(s.consumerOf(effect("effect"), nil))
	s.allSettled(200)
	stop()
	s.requireOnce(200)
	require.Zero(s.t, s.count(`select sum(attempts) from firstseen.inbox`))
}

// No handler has anything to do with it.
func TestABatchIsHalvedAfterATimeOutOfOurOwnStatements(t *testing.T) {
	t.Parallel()
	for name, table := range map[string]string{"accept": "message_dedup", "commit": "inbox"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, consumertest.NewFake(t).Addr, 1)
			s.exec(`create function slow() returns trigger language plpgsql as $$ begin perform pg_sleep(.02); return null; end $$;
				create trigger slow after insert on firstseen.` + table + ` for each row execute function slow()`)
			s.requireHalved()
		})
	}
}

// The killer dies for the handler whose doing it is: the other one, which has other attempts, is done with the
// message.
func TestAKillerWithTwoHandlersIsGivenUpByTheOneThatDies(t *testing.T) {
	t.Parallel()
	s := newKillerStage(t)
	s.killerHandlers = 2
	s.produceValues("ok", "kill:99", "ok")
	deaths := s.supervise(0, 6)
	t.Logf("%d deaths", deaths)
	require.LessOrEqual(t, deaths, killerAttempts+2)
	require.Equal(t, "effect killed "+strconv.Itoa(killerAttempts),
		s.text(`select handler || ' ' || reason || ' ' || attempts from firstseen.dead_letters join firstseen.scopes using (scope_id)`))
	require.Equal(t, 3, s.count(
		`select count(*) from firstseen.inbox join firstseen.scopes using (scope_id) where handler = 'other'`))
}

// An owner that died over a position has had its first batch at work: what lies behind that is innocent, also where it
// is of the same keys.
func TestNoMoreIsHandledByItselfThanAnOwnerThatDiedHadAtWork(t *testing.T) {
	t.Parallel()
	const messages = 1000
	for name, keys := range map[string]int{"a key each": messages, "few keys": 10} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, consumertest.NewFake(t).Addr, 1)
			consumertest.Produce(t, s.addr, s.records(messages, keys)...)
			s.exec(`create table announced (message_id uuid);
				create function note() returns trigger language plpgsql as $$
					begin insert into public.announced values (new.message_id); return null; end $$;
				create trigger note after update on firstseen.parked for each row
					when (new.announced <> coalesce(old.announced, '{}')) execute function note()`)
			c := s.consumer(nil)
			store, err := dedup.Open(t.Context(), deduptest.OpenPool(t, s.dsn, nil), dedup.Config{Inbox: s.group})
			require.NoError(t, err)
			_, err = store.Acquire(t.Context(), s.group, s.topic, 0, "somebody who died")
			require.NoError(t, err)
			stop := s.start(c)
			s.allSettled(messages)
			stop()
			s.requireOnce(messages)
			require.Equal(t, crashguard.FirstBatch, s.count(`select count(*) from announced`))
		})
	}
}
