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
		standing  kind // while the transaction's connection stands
		connected kind // when it has ended
	}{
		{"deadlock", code("40P01"), ofConcurrency, ofConcurrency},
		{"serialization failure", code("40001"), ofConcurrency, ofConcurrency},
		{"unique violation", code("23505"), ofHandler, ofHandler},
		{"division by zero", code("22012"), ofHandler, ofHandler},
		{"NUL in JSON", code("22P05"), ofHandler, ofHandler},
		{"statement timeout", code("57014"), ofHandler, ofInfrastructure},
		{"lock timeout", code("55P03"), ofHandler, ofHandler},
		{"failed transaction", code("25P02"), ofHandler, ofHandler},
		{"idle in transaction", code("25P03"), ofHandler, ofInfrastructure},
		{"transaction timeout", code("25P04"), ofHandler, ofInfrastructure},
		{"undefined table", code("42P01"), ofDependency, ofHandler},
		{"no right", code("42501"), ofDependency, ofHandler},
		{"altered type", code("42804"), ofDependency, ofHandler},
		{"duplicate table", code("42P07"), ofHandler, ofHandler},
		{"altered table", &pgconn.PgError{Code: "0A000", Routine: "RevalidateCachedQuery"},
			ofConcurrency, ofConcurrency},
		{"raise exception", code("P0001"), ofHandler, ofHandler},
		{"internal error", code("XX000"), ofHandler, ofHandler},
		{"temp_file_limit", code("53400"), ofHandler, ofHandler},
		{"read-only", code("25006"), ofInfrastructure, ofInfrastructure},
		{"disk full", code("53100"), ofInfrastructure, ofInfrastructure},
		{"out of memory", code("53200"), ofInfrastructure, ofInfrastructure},
		{"too many connections", code("53300"), ofInfrastructure, ofInfrastructure},
		{"I/O error", code("58030"), ofInfrastructure, ofInfrastructure},
		{"admin shutdown", code("57P01"), ofDependency, ofInfrastructure},
		{"crash shutdown", code("57P02"), ofDependency, ofInfrastructure},
		{"starting up", code("57P03"), ofDependency, ofInfrastructure},
		{"connection failure", code("08006"), ofDependency, ofInfrastructure},
		{"truncated JSON", io.ErrUnexpectedEOF, ofHandler, ofInfrastructure},
		{"empty JSON", io.EOF, ofHandler, ofInfrastructure},
		{"closed socket", net.ErrClosed, ofDependency, ofInfrastructure},
		{"connection refused", dial(t.Context()), ofDependency, ofInfrastructure},
		{"unknown host", unresolved, ofDependency, ofInfrastructure},
		{"closed pool", puddle.ErrClosedPool, ofDependency, ofInfrastructure},
		{"connection lost", dedup.ErrConnectionLost, ofHandler, ofInfrastructure},
		{"plain", errTold, ofHandler, ofInfrastructure},
		{"own deadline", context.DeadlineExceeded, ofHandler, ofHandler},
		{"own cancel", context.Canceled, ofHandler, ofHandler},
		{"permanent", Permanent(code("40P01")), ofHandler, ofHandler},
		{"unavailable", fmt.Errorf("x: %w", Unavailable(errTold)), ofHandler, ofHandler},
		{"permanent and unavailable", Permanent(Unavailable(errTold)), ofHandler, ofHandler},
		{"panic", &handlerError{"h", &PanicError{Value: io.EOF}}, ofHandler, ofHandler},
		{"panic with an error", &PanicError{Value: code("57P01")}, ofHandler, ofHandler},
		{"Goexit", ErrGoexit, ofHandler, ofHandler},
		{"timeout", fmt.Errorf("%w: %w", ErrHandlerTimeout, io.EOF), ofHandler, ofHandler},
		{"aborted", dedup.ErrAborted, ofHandler, ofHandler},
		{"ended", dedup.ErrEnded, ofHandler, ofHandler},
		{"busy", dedup.ErrBusy, ofHandler, ofHandler},
		{"not yours", dedup.ErrNotYours, ofHandler, ofHandler},
	} {
		t.Run(c.name, func(t *testing.T) {
			require.Equal(t, c.standing, classify(t.Context(), c.err, false), "while the connection stands")
			require.Equal(t, c.connected, classify(t.Context(), c.err, true), "when the connection has ended")
			ended, cancel := context.WithCancel(t.Context())
			cancel()
			require.Equal(t, ofInfrastructure, classify(ended, c.err, false), "during a shutdown")
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
