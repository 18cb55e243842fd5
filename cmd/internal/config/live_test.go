package config

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// followed is a Live that runs, and looks when the test says so.
type followed struct {
	*Live
	t     *testing.T
	log   *bytes.Buffer
	hup   chan os.Signal
	looks chan time.Time
}

func follow(t *testing.T, path string, environ ...string) *followed {
	t.Helper()
	live, err := Follow(path, environ)
	require.NoError(t, err)
	f := &followed{live, t, &bytes.Buffer{}, make(chan os.Signal), make(chan time.Time)}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		live.follow(ctx, slog.New(slog.NewTextHandler(f.log, nil)), f.hup, f.looks)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return f
}

// look has the files looked at so often. As the channel has no buffer, all looks before the last one are over.
func (f *followed) look(times int) {
	for range times + 1 {
		f.looks <- time.Time{}
	}
}

func (f *followed) write(path, text string) {
	f.t.Helper()
	require.NoError(f.t, os.WriteFile(path, []byte(text), 0o600))
}

// logged is what was logged since the last call. Call it after look.
func (f *followed) logged() string {
	defer f.log.Reset()
	return f.log.String()
}

func TestChangedFileTakesEffectWhereItCan(t *testing.T) {
	path := write(t, "firstseen.yaml", minimal)
	f := follow(t, path)
	var told []int
	f.Tell(func(c Config) { told = append(told, c.Service().Health.Degraded.Backlog) })
	f.look(3)
	require.Empty(t, f.logged())
	debug := f.Logger(&bytes.Buffer{})
	require.False(t, debug.Enabled(t.Context(), slog.LevelDebug))

	f.write(path, minimal+`
log: {level: debug, format: json}
health: {degraded: {backlog: 5}}
retention: {ids: 90d, handlers: {book: 1d}}
http: {rate: 7, read_token: a-token-for-readers, listen: ":1"}
batch: {messages: 9}
`)
	f.look(2)
	got := f.Load()
	require.Equal(t, []int{100_000, 5}, told, "as it is, and as it became")
	require.Equal(t, "debug", got.Log.Level)
	require.True(t, debug.Enabled(t.Context(), slog.LevelDebug))
	require.Equal(t, 5, got.Health.Degraded.Backlog)
	require.Equal(t, Retention{IDs: 90 * day, Handlers: Ages{"book": day}, Interval: time.Hour}, got.Retention)
	require.Equal(t, HTTP{Rate: 7, ReadToken: "a-token-for-readers"}, got.HTTP)
	require.Equal(t, "text", got.Log.Format)
	require.Equal(t, 5000, got.Batch.Messages)
	log := f.logged()
	require.Contains(t, log, `msg="config reloaded" changed="log.level, http.read_token, http.rate, health.degraded.backlog, retention.ids, retention.handlers"`)
	require.Contains(t, log,
		`msg="the config has changes that need a restart" keys="batch.messages, log.format, http.listen"`)
	require.NotContains(t, log, "a-token")
	f.look(2)
	require.Empty(t, f.logged(), "it is not loaded again")

	f.write(path, minimal)
	f.look(2)
	require.Equal(t, "info", f.Load().Log.Level)
	require.False(t, debug.Enabled(t.Context(), slog.LevelDebug))
	require.NotContains(t, f.logged(), "restart")
}

func TestFaultyChangeIsReportedAndChangesNothing(t *testing.T) {
	path := write(t, "firstseen.yaml", minimal+"log: {level: warn}\n")
	f := follow(t, path, "PW="+password)
	f.write(path, minimal+"log: {level: loud}\nhttp: {rate: 7}\npostgres: '${PW}'\n")
	f.look(2)
	require.Contains(t, f.logged(), "config not reloaded: it has faults, and the one before stays")
	f.write(path, strings.Replace(minimal, "billing", "'${PW}'", 1)+"log: {level: loud}\nhttp: {rate: 0}\nhelth: {}\n")
	f.look(2)
	log := f.logged()
	require.Contains(t, log, `log.level (line 6, column 7): \"loud\" is none of`)
	require.Contains(t, log, "http.rate (line 7, column 8): must be above 0")
	require.Contains(t, log, "helth (line 8, column 1): unknown key; did you mean health?")
	require.NotContains(t, log, password)
	require.Equal(t, "warn", f.Load().Log.Level)
	require.Equal(t, 20, f.Load().HTTP.Rate)
	f.look(2)
	require.Empty(t, f.logged(), "the same faults are reported once")

	require.NoError(t, os.Remove(path))
	f.look(2)
	require.Contains(t, f.logged(), "no such file")
	f.write(path, minimal+"http: {rate: 9}\n")
	f.look(2)
	require.Equal(t, 9, f.Load().HTTP.Rate)
}

func TestFileThatIsStillBeingWrittenIsLeftAlone(t *testing.T) {
	path := write(t, "firstseen.yaml", minimal)
	live, err := Follow(path, nil)
	require.NoError(t, err)
	require.False(t, live.changed())
	for _, half := range []string{"", minimal[:30], minimal + "http: {rate: 1"} {
		require.NoError(t, os.WriteFile(path, []byte(half), 0o600))
		require.False(t, live.changed(), "as it was not so at the look before")
	}
	require.True(t, live.changed(), "it has rested since")
	require.NoError(t, os.WriteFile(path, []byte(minimal), 0o600))
	require.False(t, live.changed())
	require.False(t, live.changed(), "it is as it was loaded")
}

// Kubernetes changes mounted files by swapping a symbolic link to their directory.
func TestSwappedLinkIsAChange(t *testing.T) {
	dir := t.TempDir()
	mount := func(version, rate, token string) {
		require.NoError(t, os.Mkdir(filepath.Join(dir, version), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(dir, version, "firstseen.yaml"),
			[]byte(minimal+"http: {rate: "+rate+", write_token_file: "+filepath.Join(dir, "token")+"}\n"), 0o600))
		require.NoError(t, os.WriteFile(filepath.Join(dir, version, "token"), []byte(token+"\n"), 0o600))
		require.NoError(t, os.Symlink(version, filepath.Join(dir, "..tmp")))
		require.NoError(t, os.Rename(filepath.Join(dir, "..tmp"), filepath.Join(dir, "..data")))
	}
	mount("v1", "1", "the-first-token-of-it")
	for _, name := range []string{"firstseen.yaml", "token"} {
		require.NoError(t, os.Symlink(filepath.Join("..data", name), filepath.Join(dir, name)))
	}
	f := follow(t, filepath.Join(dir, "firstseen.yaml"))
	mount("v2", "2", "the-second-token-of-it")
	f.look(2)
	require.Equal(t, 2, f.Load().HTTP.Rate)
	require.Equal(t, "the-second-token-of-it", f.Load().HTTP.WriteToken.Reveal())
	require.NotContains(t, f.logged(), "token-of-it")
}

func TestChangedSecretsFileIsAChange(t *testing.T) {
	dsn, token := write(t, "dsn", "postgres://a:"+password+"@b/c"), write(t, "token", "the-first-token-of-it")
	text := strings.Replace(minimal, `dsn: "postgres://app@db/shop"`, "dsn_file: "+dsn, 1)
	f := follow(t, write(t, "firstseen.yaml", text+"http: {read_token_file: "+token+"}\n"))
	f.write(token, "the-second-token-of-it\n")
	f.write(dsn, "postgres://a:"+password+"2@b/c")
	f.look(2)
	require.Equal(t, "the-second-token-of-it", f.Load().HTTP.ReadToken.Reveal())
	require.Equal(t, "postgres://a:"+password+"@b/c", f.Load().Postgres.DSN.Reveal())
	log := f.logged()
	require.Contains(t, log, "changed=http.read_token")
	require.Contains(t, log, "keys=postgres.dsn")
	require.NotContains(t, log, password)
	require.NotContains(t, log, "token-of-it")
	f.look(3)
	require.Empty(t, f.logged(), "it is not loaded again")
}

func TestSIGHUPReloadsAtOnce(t *testing.T) {
	path := write(t, "firstseen.yaml", minimal)
	f := follow(t, path)
	f.hup <- syscall.SIGHUP
	f.look(0)
	require.Contains(t, f.logged(), `msg="config reloaded" changed=nothing`)
	f.write(path, minimal+"http: {rate: 3}\n")
	f.hup <- syscall.SIGHUP
	f.look(0)
	require.Equal(t, 3, f.Load().HTTP.Rate)
}

func TestListThatGrewIsOneChange(t *testing.T) {
	path := write(t, "firstseen.yaml", minimal)
	f := follow(t, path)
	f.write(path, strings.Replace(minimal, "function: book_order}]", "function: other}]", 1))
	f.look(2)
	require.Contains(t, f.logged(), "keys=topics[0].handlers[0].function")
	f.write(path, strings.Replace(minimal, "[{name: orders,",
		"[{name: more, handlers: [{name: book, function: book_order}]}, {name: orders,", 1))
	f.look(2)
	require.Contains(t, f.logged(), "keys=topics\n")
}

func TestFilesAreReadUpToALimit(t *testing.T) {
	_, err := loadText(t, minimal+"# "+strings.Repeat("x", maxFile))
	require.ErrorContains(t, err, "is larger than 1MiB")
	_, err = loadText(t, minimal+"http: {read_token_file: /dev/zero}\n")
	require.ErrorContains(t, err, "/dev/zero is larger than 1MiB")
}

// A pipe is what --config <(sops decrypt firstseen.yaml) gives.
func TestPipeIsReadOnceAndNotFollowed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pipe")
	require.NoError(t, syscall.Mkfifo(path, 0o600))
	writer, err := os.OpenFile(path, os.O_RDWR, 0)
	require.NoError(t, err)
	_, err = writer.WriteString(minimal)
	require.NoError(t, err)
	// keeps what was written when the writer is gone
	reader, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	require.NoError(t, err)
	defer reader.Close()
	require.NoError(t, writer.Close())
	f := follow(t, path)
	f.look(3)
	require.Empty(t, f.logged())
	f.hup <- syscall.SIGHUP
	f.look(0)
	require.Contains(t, f.logged(), "config not reloaded")
	require.Equal(t, "billing", f.Load().Group)
}
