package pgserver_test

import (
	"context"
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/dedup/deduptest/pgserver"
)

func TestOldestAndNewestVersionStart(t *testing.T) {
	for _, version := range []string{"14", "18"} {
		t.Run(version, func(t *testing.T) {
			s := start(t, pgserver.Config{Version: version})
			require.Equal(t, version, queryText(t, s,
				`select current_setting('server_version_num')::int / 10000 || ''`))
			require.Equal(t, "UTF8", queryText(t, s, "show server_encoding"))
			require.Equal(t, "200", queryText(t, s, "show max_connections"))
			require.Equal(t, "127.0.0.1", queryText(t, s, "show listen_addresses"))
		})
	}
}

func TestUnknownVersionIsRefused(t *testing.T) {
	_, err := pgserver.Start(t.Context(), pgserver.Config{Version: "13"})
	require.ErrorContains(t, err, `version "13": want one of 14, 15, 16, 17, 18`)
}

func TestSettingsWinOverTheFastDefaults(t *testing.T) {
	s := start(t, pgserver.Config{Settings: map[string]string{"fsync": "on", "application_name": "a b"}})
	require.Equal(t, "on", queryText(t, s, "show fsync"))
	require.Equal(t, "off", queryText(t, s, "show full_page_writes"))
}

func TestWrongSettingIsReportedWithTheServersWords(t *testing.T) {
	_, err := pgserver.Start(t.Context(), pgserver.Config{Settings: map[string]string{"no_such": "1"}})
	require.ErrorContains(t, err, "no_such")
}

func TestPasswordIsAskedFor(t *testing.T) {
	for _, password := range []string{"", "p@ss/word"} {
		s := start(t, pgserver.Config{Password: password})
		require.Equal(t, "1", queryText(t, s, "select '1'"))
		u, err := url.Parse(s.DSN("postgres"))
		require.NoError(t, err)
		for _, wrong := range []*url.Userinfo{url.UserPassword(pgserver.Superuser, "other"),
			url.User(pgserver.Superuser)} {
			u.User = wrong
			_, err = pgx.Connect(t.Context(), u.String())
			var refused *pgconn.PgError
			require.ErrorAs(t, err, &refused)
			require.Equal(t, "28P01", refused.Code)
		}
	}
}

// Logs hold statements, with what is in them.
func TestFilesOfTheServerAreItsUsersOnly(t *testing.T) {
	s := start(t, pgserver.Config{})
	for path, mode := range map[string]os.FileMode{
		filepath.Dir(s.Dir()): 0o700, s.Dir(): 0o700, s.LogFile(): 0o600,
		filepath.Join(s.Dir(), "firstseen.password"): 0o600,
	} {
		info, err := os.Stat(path)
		require.NoError(t, err)
		require.Equal(t, mode, info.Mode().Perm(), path)
	}
	require.Empty(t, queryText(t, s, "show unix_socket_directories"))
}

func TestDataAndPortStayOverStopAndStart(t *testing.T) {
	for _, mode := range []pgserver.Mode{pgserver.Fast, pgserver.Immediate} {
		t.Run(string(mode), func(t *testing.T) {
			s := start(t, pgserver.Config{})
			exec(t, s, "create table kept as select 'here' as word")
			port := s.Port()

			require.NoError(t, s.Stop(mode))
			require.NoError(t, s.Stop(mode), "a second stop has nothing to do")
			_, err := pgx.Connect(t.Context(), s.DSN("postgres"))
			require.Error(t, err)

			require.NoError(t, s.Start(t.Context()))
			require.Equal(t, port, s.Port())
			require.Equal(t, "here", queryText(t, s, "select word from kept"))
		})
	}
}

func TestRestoreLosesWhatCameAfterTheBackup(t *testing.T) {
	s := start(t, pgserver.Config{})
	exec(t, s, "create table kept as select 'first' as word")
	backup := filepath.Join(t.TempDir(), "backup")
	require.NoError(t, s.Backup(t.Context(), backup))
	exec(t, s, "update kept set word = 'second'")

	require.NoError(t, s.Restore(t.Context(), backup))

	require.Equal(t, "first", queryText(t, s, "select word from kept"))
}

func TestCloseRemovesTheTemporaryDirectoryOnly(t *testing.T) {
	s := start(t, pgserver.Config{})
	require.NoError(t, s.Close())
	require.NoDirExists(t, s.Dir())

	named := filepath.Join(openDir(t), "data")
	s = start(t, pgserver.Config{Dir: named})
	exec(t, s, "create table kept as select 'here' as word")
	require.NoError(t, s.Close())
	s = start(t, pgserver.Config{Dir: named})
	require.Equal(t, "here", queryText(t, s, "select word from kept"))
}

func TestDirectoryClosedToTheServersUserIsNamed(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root's servers run as somebody else")
	}
	closed := t.TempDir() // below a directory of mode 0700
	_, err := pgserver.Start(t.Context(), pgserver.Config{Dir: filepath.Join(closed, "data")})
	require.ErrorContains(t, err, "is closed to user")
}

func start(t *testing.T, config pgserver.Config) *pgserver.Server {
	t.Helper()
	s, err := pgserver.Start(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// openDir is a directory that the server's user can enter, which t.TempDir's parent keeps from it.
func openDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "pgserver-test-")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	require.NoError(t, os.Chmod(dir, 0o755))
	return dir
}

func exec(t *testing.T, s *pgserver.Server, sql string) {
	t.Helper()
	require.NoError(t, withConn(t.Context(), s, func(conn *pgx.Conn) error {
		_, err := conn.Exec(t.Context(), sql)
		return err
	}))
}

func queryText(t *testing.T, s *pgserver.Server, sql string) (text string) {
	t.Helper()
	require.NoError(t, withConn(t.Context(), s, func(conn *pgx.Conn) error {
		return conn.QueryRow(t.Context(), sql).Scan(&text)
	}))
	return text
}

func withConn(ctx context.Context, s *pgserver.Server, use func(*pgx.Conn) error) error {
	conn, err := pgx.Connect(ctx, s.DSN("postgres"))
	if err != nil {
		return err
	}
	return errors.Join(use(conn), conn.Close(ctx))
}
