package failure_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/puddle/v2"
	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/dedup/failure"
)

func TestWhatAStatementRaisedIsToldFromTheEndOfASession(t *testing.T) {
	require.True(t,
		failure.Raised(fmt.Errorf("commit: %w", &pgconn.PgError{Code: "08001", SeverityUnlocalized: "ERROR"})))
	require.False(t, failure.Raised(&pgconn.PgError{Code: "57P01", SeverityUnlocalized: "FATAL"}))
	require.False(t, failure.Raised(io.EOF))
}

// What a code is a sign of is listed once: whoever asks for one of these elsewhere decides by a list of his own.
func TestCodesAreListedHereOnly(t *testing.T) {
	listed := regexp.MustCompile(`(?m)^\t"([0-9A-Z]{5})": `)
	text, err := os.ReadFile("failure.go")
	require.NoError(t, err)
	codes := listed.FindAllStringSubmatch(string(text), -1)
	require.NotEmpty(t, codes)
	require.NoError(t, filepath.WalkDir("../..", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") ||
			strings.Contains(path, "dedup/failure/") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, c := range codes {
			require.NotContains(t, string(text), `"`+c[1]+`"`, path)
		}
		return err
	}))
}

func TestWhatIsMissingIsTold(t *testing.T) {
	for code, want := range map[string][3]bool{"42501": {true, false, false}, "42704": {false, true, false},
		"42P01": {false, false, true}, "3F000": {false, false, true}, "42883": {}, "57014": {}} {
		err := fmt.Errorf("look: %w", &pgconn.PgError{Code: code})
		require.Equal(t, want, [3]bool{failure.Denied(err), failure.NoObject(err), failure.NoTable(err)}, code)
	}
	require.False(t, failure.Denied(io.EOF) || failure.NoObject(nil) || failure.NoTable(nil))
}

func TestSignsOfErrors(t *testing.T) {
	code := func(c string) error { return fmt.Errorf("handler: %w", &pgconn.PgError{Code: c}) }
	_, refused := pgx.Connect(t.Context(), "host=127.0.0.1 port=1 connect_timeout=5")
	_, dial := (&net.Dialer{}).DialContext(t.Context(), "tcp", "127.0.0.1:1")
	for _, c := range []struct {
		name   string
		err    error
		sign   failure.Sign
		passes bool
	}{
		{"none", nil, failure.Other, false},
		{"plain", errors.New("told to fail"), failure.Other, false},
		{"serialization failure", code("40001"), failure.Concurrent, true},
		{"deadlock", code("40P01"), failure.Concurrent, true},
		{"a day of the inbox is made", &pgconn.PgError{Code: "23514", TableName: "inbox_default"},
			failure.Concurrent, true},
		{"check violation", &pgconn.PgError{Code: "23514", TableName: "accounts"}, failure.Other, false},
		{"completion unknown", code("40003"), failure.Ended, true},
		{"unique violation", code("23505"), failure.Other, false},
		{"division by zero", code("22012"), failure.Other, false},
		{"raise exception", code("P0001"), failure.Other, false},
		{"internal error", code("XX000"), failure.Other, false},
		{"failed transaction", code("25P02"), failure.Other, false},
		{"statement timeout", code("57014"), failure.TooSlow, true},
		{"idle in transaction", code("25P03"), failure.TooSlow, true},
		{"transaction timeout", code("25P04"), failure.TooSlow, true},
		{"lock timeout", code("55P03"), failure.Locked, true},
		{"no right", code("42501"), failure.Missing, false},
		{"no table", code("42P01"), failure.Missing, false},
		{"no function", code("42883"), failure.Missing, false},
		{"no schema", code("3F000"), failure.Missing, false},
		{"read-only", code("25006"), failure.ReadOnly, true},
		{"begin read write on a standby", &pgconn.PgError{Code: "0A000",
			Message: "cannot set transaction read-write mode during recovery"}, failure.ReadOnly, true},
		{"feature not supported",
			&pgconn.PgError{Code: "0A000", Message: "cached plan must not change result type"}, failure.Other, false},
		{"only a standby answers", fmt.Errorf("connect: %w", pgconn.ErrStandbyConnection), failure.ReadOnly, true},
		{"disk full", code("53100"), failure.Short, true},
		{"out of memory", code("53200"), failure.Short, true},
		{"too many connections", code("53300"), failure.Short, true},
		{"temp_file_limit", code("53400"), failure.Other, true},
		{"system error", code("58000"), failure.Short, true},
		{"I/O error", code("58030"), failure.Short, true},
		{"undefined file", code("58P01"), failure.Short, true},
		{"connection failure", code("08006"), failure.Ended, true},
		{"protocol violation", code("08P01"), failure.Ended, true},
		{"connection rejected", code("08004"), failure.Away, true},
		{"admin shutdown", code("57P01"), failure.Ended, true},
		{"crash shutdown", code("57P02"), failure.Away, true},
		{"starting up", code("57P03"), failure.Away, true},
		{"database dropped", code("57P04"), failure.Away, true},
		{"idle session", code("57P05"), failure.Ended, true},
		{"connection refused", refused, failure.Away, true},
		{"dial", dial, failure.Away, true},
		{"unknown host", &net.DNSError{Err: "no such host"}, failure.Away, true},
		{"closed pool", puddle.ErrClosedPool, failure.Away, true},
		{"end of file", io.EOF, failure.Ended, true},
		{"truncated", fmt.Errorf("read: %w", io.ErrUnexpectedEOF), failure.Ended, true},
		{"closed socket", net.ErrClosed, failure.Ended, true},
		{"reset", &net.OpError{Op: "read", Err: os.NewSyscallError("read", syscall.ECONNRESET)}, failure.Ended, true},
		{"timed out by TCP",
			&net.OpError{Op: "read", Err: os.NewSyscallError("read", syscall.ETIMEDOUT)}, failure.Ended, true},
		{"closed connection", pgconn.ErrConnClosed, failure.Ended, true},
		{"lost connection", failure.ErrConnectionLost, failure.Ended, true},
		{"own deadline", fmt.Errorf("x: %w", context.DeadlineExceeded), failure.Silent, true},
		{"wrong password", code("28P01"), failure.Other, false},
		{"no database", code("3D000"), failure.Other, false},
		{"own cancel", context.Canceled, failure.Silent, true},
		{"deadline of a socket", os.ErrDeadlineExceeded, failure.Silent, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			require.Equal(t, c.sign, failure.Of(c.err), "%s", failure.Of(c.err))
			require.Equal(t, c.passes, failure.Passes(c.err))
		})
	}
}
