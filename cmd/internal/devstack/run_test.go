package devstack

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/dedup/wait"
)

// shortRun is a run of this test binary, with a temporary directory of its own; its view goes to the returned file.
func shortRun(t *testing.T) (Options, *os.File) {
	t.Helper()
	dir, err := os.MkdirTemp("", "test-of-dev-")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	require.NoError(t, os.Chmod(dir, 0o755), "Postgres runs as somebody else where this is root")
	t.Setenv("TMPDIR", dir)
	out, err := os.Create(filepath.Join(dir, "view"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = out.Close() })
	return Options{For: 3 * time.Second, Duplicates: 0.3, Out: out, Consumer: asConsumer}, out
}

func text(t *testing.T, f *os.File) string {
	t.Helper()
	b, err := os.ReadFile(f.Name())
	require.NoError(t, err)
	return string(b)
}

func TestEverythingReceivedOnceWhereNothingCrashes(t *testing.T) {
	o, out := shortRun(t)
	s, err := Run(t.Context(), o)
	require.NoError(t, err)
	require.True(t, s.OK, "%+v\n%s", s, text(t, out))
	require.Equal(t, s.Produced, s.Received, "the trigger's count is that of the producer")
	require.Equal(t, s.Unique, s.New)
	require.Zero(t, s.Crashes)
	require.InDelta(t, 0.3*float64(s.Produced), float64(s.Duplicates), 0.05*float64(s.Produced))
}

func TestKilledConsumerIsFollowedByAnotherWithinSeconds(t *testing.T) {
	o, out := shortRun(t)
	o.For, o.CrashEvery = 8*time.Second, 2*time.Second
	s, err := Run(t.Context(), o)
	require.NoError(t, err)
	require.True(t, s.OK, "%+v\n%s", s, text(t, out))
	require.GreaterOrEqual(t, s.Crashes, 2)
	require.Greater(t, s.Received, s.Produced, "a crash has messages delivered again")
	require.Contains(t, text(t, out), "took over within")
}

// Handler, outbox, relay, topic, second consumer, table, in a process that is killed again and again.
func TestWholeWayThroughTheOutboxTakesEffectOnceWhateverIsKilled(t *testing.T) {
	o, out := shortRun(t)
	o.For, o.CrashEvery, o.Rate, o.Outbox, o.Fail = 10*time.Second, 2*time.Second, 500, true, 0.01
	s, err := Run(t.Context(), o)
	require.NoError(t, err)
	require.True(t, s.OK, "%+v\n%s", s, text(t, out))
	require.Equal(t, s.Unique, s.New)
	require.GreaterOrEqual(t, s.Crashes, 2)
}

func TestFailingHandlersEndWithTheSameResult(t *testing.T) {
	for _, kind := range []string{HandlerPlain, HandlerHang} {
		t.Run(kind, func(t *testing.T) {
			o, out := shortRun(t)
			o.For, o.CrashEvery, o.Fail, o.Handler = 5*time.Second, 2*time.Second, 0.02, kind
			ctx, end := context.WithCancel(t.Context())
			failed := make(chan bool, 1)
			go func() { failed <- somethingFailed(ctx, t, out) }()
			s, err := Run(t.Context(), o)
			end()
			require.NoError(t, err)
			require.True(t, s.OK, "%+v\n%s", s, text(t, out))
			require.True(t, <-failed, "nothing failed\n%s", text(t, out))
		})
	}
}

// somethingFailed looks while a run goes on for a message that was handled at its second try, or later. The view tells of
// those that are parked at the moment when it is drawn, which may be none.
func somethingFailed(ctx context.Context, t *testing.T, out *os.File) (failed bool) {
	for !failed && wait.Sleep(ctx, 50*time.Millisecond) {
		db, err := pgx.Connect(ctx, dsn(text(t, out)))
		if err != nil {
			continue
		}
		_ = db.QueryRow(ctx, `select exists (select from firstseen.inbox where attempts > 0)`).Scan(&failed)
		_ = db.Close(ctx)
	}
	return failed
}

func TestViewTellsOfMessagesThatAreParked(t *testing.T) {
	f := figures{booked: booked{Parked: 3}, Known: true, Expected: tally{Unique: 3}}
	require.Contains(t, f.balance(), "3 parked for another try")
}

// anEffect is in the view once it has been drawn after a movement took effect.
var anEffect = regexp.MustCompile(`effects [1-9]`)

func TestSecondEffectMakesTheRunFail(t *testing.T) {
	o, out := shortRun(t)
	o.For = 10 * time.Second
	go func() {
		for !anEffect.MatchString(text(t, out)) {
			if !wait.Sleep(t.Context(), 10*time.Millisecond) {
				return // the run has ended without one, and the test with it
			}
		}
		bookAgain(t, dsn(text(t, out)))
	}()
	s, err := Run(t.Context(), o)
	require.NoError(t, err)
	require.False(t, s.OK, "%+v\n%s", s, text(t, out))
	require.Equal(t, s.Unique+1, s.Effects)
	require.Contains(t, text(t, out), "IS NOT", "it shows at once")
	logs, err := filepath.Glob(filepath.Join(filepath.Dir(out.Name()), "*.log"))
	require.NoError(t, err)
	require.Len(t, logs, 1, "the consumer's log is kept")
	require.Contains(t, text(t, out), logs[0])
}

// dsn is the connection string that the view names.
func dsn(view string) string {
	_, rest, _ := strings.Cut(view, "psql '")
	dsn, _, _ := strings.Cut(rest, "'")
	return dsn
}

// bookAgain does what a handler would do for a message that came twice.
func bookAgain(t *testing.T, dsn string) {
	ctx := context.Background()
	db, err := pgx.Connect(ctx, dsn)
	if err != nil {
		t.Error(err)
		return
	}
	defer db.Close(ctx)
	tag, err := db.Exec(ctx, `
		with one as (select id, account from bank.movements limit 1),
		again as (insert into bank.movements (id, account, amount) select id, account, 7 from one)
		update bank.accounts a set balance = a.balance + 7 from one where a.account = one.account`)
	if err != nil || tag.RowsAffected() != 1 {
		t.Errorf("%d accounts booked again: %v", tag.RowsAffected(), err)
	}
}

func TestConsumerThatCannotStartEndsTheRunWithItsLog(t *testing.T) {
	o, _ := shortRun(t)
	o.For, o.Consumer = time.Minute, asBrokenConsumer
	_, err := Run(t.Context(), o)
	require.ErrorContains(t, err, "exit status 3, 5 times in a row\nno such luck", "the end of its log")
}

func TestOptionsReportEveryFaultAtOnce(t *testing.T) {
	o := Options{Duplicates: 1, Fail: 1, Handler: "x", Rate: -1, Partitions: 1e6, For: -1, Data: "x", Postgres: "y",
		Listen: "0.0.0.0:80"}
	err := o.Validate()
	for _, name := range []string{"duplicates", "fail", "handler", "rate", "partitions", "for and crash-every",
		"data and postgres", "listen", "consumer"} {
		require.ErrorContains(t, err, name)
	}
}
