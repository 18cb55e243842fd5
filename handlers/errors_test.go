package handlers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/puddle/v2"
	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/handlers/internal/isolate"
)

// dial fails as a dependency does that is away.
func dial(ctx context.Context) error {
	_, err := (&net.Dialer{}).DialContext(ctx, "tcp", "127.0.0.1:1")
	return fmt.Errorf("call the warehouse: %w", err)
}

func TestErrorKinds(t *testing.T) {
	code := func(c string) error { return fmt.Errorf("handler: %w", &pgconn.PgError{Code: c}) }
	_, unresolved := http.Get("http://no-such-host.invalid/") //nolint:bodyclose,noctx // there is no answer
	for _, c := range []struct {
		name      string
		err       error
		standing  isolate.Kind // while the transaction's connection stands
		connected isolate.Kind // when it has ended
	}{
		{"deadlock", code("40P01"), isolate.OfConcurrency, isolate.OfConcurrency},
		{"serialization failure", code("40001"), isolate.OfConcurrency, isolate.OfConcurrency},
		{"unique violation", code("23505"), isolate.OfMessage, isolate.OfMessage},
		{"division by zero", code("22012"), isolate.OfMessage, isolate.OfMessage},
		{"NUL in JSON", code("22P05"), isolate.OfMessage, isolate.OfMessage},
		{"statement timeout", code("57014"), isolate.OfMessage, isolate.OfInfrastructure},
		{"lock timeout", code("55P03"), isolate.OfMessage, isolate.OfMessage},
		{"failed transaction", code("25P02"), isolate.OfMessage, isolate.OfMessage},
		{"idle in transaction", code("25P03"), isolate.OfMessage, isolate.OfInfrastructure},
		{"transaction timeout", code("25P04"), isolate.OfMessage, isolate.OfInfrastructure},
		{"undefined table", code("42P01"), isolate.OfDependency, isolate.OfMessage},
		{"no right", code("42501"), isolate.OfDependency, isolate.OfMessage},
		{"altered type", code("42804"), isolate.OfDependency, isolate.OfMessage},
		{"duplicate table", code("42P07"), isolate.OfMessage, isolate.OfMessage},
		{"altered table", &pgconn.PgError{Code: "0A000", Routine: "RevalidateCachedQuery"},
			isolate.OfConcurrency, isolate.OfConcurrency},
		{"raise exception", code("P0001"), isolate.OfMessage, isolate.OfMessage},
		{"internal error", code("XX000"), isolate.OfMessage, isolate.OfMessage},
		{"temp_file_limit", code("53400"), isolate.OfMessage, isolate.OfMessage},
		{"read-only", code("25006"), isolate.OfInfrastructure, isolate.OfInfrastructure},
		{"disk full", code("53100"), isolate.OfInfrastructure, isolate.OfInfrastructure},
		{"out of memory", code("53200"), isolate.OfInfrastructure, isolate.OfInfrastructure},
		{"too many connections", code("53300"), isolate.OfInfrastructure, isolate.OfInfrastructure},
		{"I/O error", code("58030"), isolate.OfInfrastructure, isolate.OfInfrastructure},
		{"admin shutdown", code("57P01"), isolate.OfDependency, isolate.OfInfrastructure},
		{"crash shutdown", code("57P02"), isolate.OfDependency, isolate.OfInfrastructure},
		{"starting up", code("57P03"), isolate.OfDependency, isolate.OfInfrastructure},
		{"connection failure", code("08006"), isolate.OfDependency, isolate.OfInfrastructure},
		{"truncated JSON", io.ErrUnexpectedEOF, isolate.OfMessage, isolate.OfInfrastructure},
		{"empty JSON", io.EOF, isolate.OfMessage, isolate.OfInfrastructure},
		{"closed socket", net.ErrClosed, isolate.OfDependency, isolate.OfInfrastructure},
		{"connection refused", dial(t.Context()), isolate.OfDependency, isolate.OfInfrastructure},
		{"unknown host", unresolved, isolate.OfDependency, isolate.OfInfrastructure},
		{"closed pool", puddle.ErrClosedPool, isolate.OfDependency, isolate.OfInfrastructure},
		{"connection lost", dedup.ErrConnectionLost, isolate.OfMessage, isolate.OfInfrastructure},
		{"plain", errTold, isolate.OfMessage, isolate.OfInfrastructure},
		{"own deadline", context.DeadlineExceeded, isolate.OfMessage, isolate.OfMessage},
		{"own cancel", context.Canceled, isolate.OfMessage, isolate.OfMessage},
		{"permanent", Permanent(code("40P01")), isolate.OfMessage, isolate.OfMessage},
		{"unavailable", fmt.Errorf("x: %w", Unavailable(errTold)), isolate.OfMessage, isolate.OfMessage},
		{"permanent and unavailable", Permanent(Unavailable(errTold)), isolate.OfMessage, isolate.OfMessage},
		{"panic", &handlerError{"h", &PanicError{Value: io.EOF}}, isolate.OfMessage, isolate.OfMessage},
		{"panic with an error", &PanicError{Value: code("57P01")}, isolate.OfMessage, isolate.OfMessage},
		{"Goexit", ErrGoexit, isolate.OfMessage, isolate.OfMessage},
		{"timeout", fmt.Errorf("%w: %w", ErrHandlerTimeout, io.EOF), isolate.OfTime, isolate.OfTime},
		{"aborted", dedup.ErrAborted, isolate.OfMessage, isolate.OfMessage},
		{"ended", dedup.ErrEnded, isolate.OfMessage, isolate.OfMessage},
		{"busy", dedup.ErrBusy, isolate.OfMessage, isolate.OfMessage},
		{"not yours", dedup.ErrNotYours, isolate.OfMessage, isolate.OfMessage},
	} {
		t.Run(c.name, func(t *testing.T) {
			require.Equal(t, c.standing, classify(t.Context(), c.err, false), "while the connection stands")
			require.Equal(t, c.connected, classify(t.Context(), c.err, true), "when the connection has ended")
			ended, cancel := context.WithCancel(t.Context())
			cancel()
			require.Equal(t, isolate.OfInfrastructure, classify(ended, c.err, false), "during a shutdown")
		})
	}
}

func TestOutagesInTheHandlerSpendNoAttempt(t *testing.T) {
	t.Parallel()
	for name, handle := range map[string]func(ctx context.Context, b *bench, tx pgx.Tx) error{
		"backend terminated": func(ctx context.Context, b *bench, tx pgx.Tx) error {
			b.exec(`select pg_terminate_backend($1)`, tx.Conn().PgConn().PID())
			_, err := tx.Exec(ctx, `select 1`)
			return err
		},
		"backend terminated, error hidden": func(ctx context.Context, b *bench, tx pgx.Tx) error {
			b.exec(`select pg_terminate_backend($1)`, tx.Conn().PgConn().PID())
			_, err := tx.Exec(ctx, `select 1`)
			return fmt.Errorf("it failed: %v", err) //nolint:errorlint // hidden on purpose
		},
		"backend terminated, error dropped": func(ctx context.Context, b *bench, tx pgx.Tx) error {
			b.exec(`select pg_terminate_backend($1)`, tx.Conn().PgConn().PID())
			_, _ = tx.Exec(ctx, `select 1`)
			return nil
		},
		"read-only": func(ctx context.Context, _ *bench, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, `do $$ begin raise exception 'cannot execute' using errcode = '25006'; end $$`)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			h := newObedient("h")
			outage := true
			p := b.processor(nil, Registration{Name: "h",
				Handler: Each(HandlerFunc(func(ctx context.Context, tx pgx.Tx, m dedup.Message) error {
					if outage && string(m.Value) == "outage" {
						outage = false
						return handle(ctx, b, tx)
					}
					return h.Handle(ctx, tx, m)
				}))})
			ms := b.messages("a=ok", "b=outage", "c=ok")
			if _, err := p.Process(t.Context(), b.batch(ms)); err != nil {
				b.requireWhole(0)
				b.process(p, ms)
			}
			b.requireWhole(3)
			b.requireOnce(3)
			require.Zero(t, b.count(`select count(*) from firstseen.parked`))
			require.Equal(t, 3, b.count(`select count(*) from firstseen.inbox where attempts <= 1`))
		})
	}
}

func TestClosedPoolIsNoAttempt(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	p := b.processor(nil, Registration{Name: "h", Handler: Each(newObedient("h"))})
	b.pool.Close()
	_, err := p.Process(t.Context(), b.batch(b.messages("a=ok")))
	require.ErrorIs(t, err, puddle.ErrClosedPool)
}

func TestShutdownInTheHandlerIsNoAttempt(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	ctx, cancel := context.WithCancel(t.Context())
	h := newObedient("h")
	p := b.processor(nil, Registration{Name: "h",
		Handler: Each(HandlerFunc(func(ctx context.Context, tx pgx.Tx, m dedup.Message) error {
			if string(m.Value) == "slow" && ctx.Err() == nil && h.try(m.ID) == 1 {
				cancel()
				<-ctx.Done()
				return errors.New("broken off")
			}
			return h.Handle(ctx, tx, m)
		}))})
	ms := b.messages("a=ok", "b=slow", "c=ok")
	_, err := p.Process(ctx, b.batch(ms))
	require.Error(t, err)
	b.requireWhole(0)
	b.process(p, ms)
	b.requireOnce(3)
}

func TestErrorTextFitsItsColumn(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ in, want string }{
		{"", ""},
		{"plain", "plain"},
		{strings.Repeat("a", 1999), strings.Repeat("a", 1999)},
		{strings.Repeat("ä", 2000), strings.Repeat("ä", 2000)},
		{strings.Repeat("😀", 2001), strings.Repeat("😀", 2000)},
		{"a\x00b", "a\uFFFDb"},
		{"a\xff\xfeb", "a\uFFFDb"},
		{strings.Repeat("a", 1999) + "\xc3", strings.Repeat("a", 1999) + "\uFFFD"},
		{strings.Repeat("a", 2000) + "\xc3\xa4", strings.Repeat("a", 2000)},
	} {
		got := clip(errors.New(c.in))
		require.Equal(t, c.want, got)
		require.True(t, utf8.ValidString(got))
		require.LessOrEqual(t, utf8.RuneCountInString(got), 2000)
	}
	b := newBench(t)
	p := b.processor(nil, Registration{Name: "h", Retry: Retry{Base: time.Hour, Cap: time.Hour},
		Handler: Each(HandlerFunc(func(context.Context, pgx.Tx, dedup.Message) error {
			return errors.New(strings.Repeat("\x00\xff😀", 64_000))
		}))})
	b.process(p, b.messages("a=1"))
	require.Equal(t, 2000, b.count(`select length(error) from firstseen.parked`))
}
