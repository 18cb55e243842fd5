package config

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

// lookInterval is the time between two looks at the files.
const lookInterval = 2 * time.Second

// liveKeys take effect while the program runs, each with the keys below it.
var liveKeys = []string{"log.level", "health", "retention", "http.rate",
	"http.read_token", "http.read_token_file", "http.write_token", "http.write_token_file"}

// isLive says whether a key takes effect while the program runs.
func isLive(path string) bool {
	return slices.ContainsFunc(liveKeys, func(k string) bool { return path == k || strings.HasPrefix(path, k+".") })
}

// Live is a config that follows its file while the program runs. The log's level, health, retention, http.rate and the
// tokens of http change with it; everything else stays as it was at the start. It is safe for concurrent use.
type Live struct {
	path    string
	environ []string
	dsn     Secret // in place of the config's; empty: the config's
	level   slog.LevelVar
	current atomic.Pointer[Config]
	loaded  map[string]sum // the files as they were last loaded
	looked  map[string]sum // and as they were last looked at
}

// Follow is Load for a program that goes on to call Run.
func Follow(path string, environ []string) (*Live, error) { return FollowOn("", path, environ) }

// FollowOn is Follow with another connection string than the config's, whichever way that has one; empty: the
// config's.
func FollowOn(dsn Secret, path string, environ []string) (*Live, error) {
	live := &Live{path: path, environ: environ, dsn: dsn}
	c, err := live.read()
	live.set(c)
	return live, err
}

// Fixed is a Live that stays as it is.
func Fixed(c Config) *Live {
	live := &Live{}
	live.set(c)
	return live
}

// Load is the config as it is now. Ask again each time that it is needed; what it holds is not to be changed.
func (l *Live) Load() Config { return *l.current.Load() }

// Logger writes to w as the config says, from the level on that it has at that moment.
func (l *Live) Logger(w io.Writer) *slog.Logger { return l.Load().Logger(w, &l.level) }

// Run follows the files until ctx ends: the config and those of secrets. They are read again at each signal on hup,
// and some seconds after they have changed, as content, behind symbolic links too. A config with faults changes
// nothing. What has become of it is logged. Call it once.
func (l *Live) Run(ctx context.Context, log *slog.Logger, hup <-chan os.Signal) {
	looks := time.NewTicker(lookInterval)
	defer looks.Stop()
	l.follow(ctx, log, hup, looks.C)
}

func (l *Live) follow(ctx context.Context, log *slog.Logger, hup <-chan os.Signal, looks <-chan time.Time) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-hup:
			l.reload(log)
		case <-looks:
			if l.changed() {
				l.reload(log)
			}
		}
	}
}

// changed says whether a file is another than was loaded and has not changed since the last look: one that is still
// being written is left alone.
func (l *Live) changed() bool {
	now := map[string]sum{}
	for name := range l.loaded {
		now[name] = sumOf(readBounded(name))
	}
	rests := maps.Equal(now, l.looked)
	l.looked = now
	return rests && !maps.Equal(now, l.loaded)
}

func (l *Live) reload(log *slog.Logger) {
	next, err := l.read()
	var faulty *Error
	if errors.As(err, &faulty) {
		log.Error("config not reloaded: it has faults, and the one before stays", "source", faulty.Source, "faults",
			faulty.list())
		return
	}
	before := l.Load()
	now := before.with(next)
	l.current.Store(&now)
	l.level.Set(min(before.level(), now.level())) // what is said of the change, either level lets pass
	defer l.level.Set(now.level())
	changed := differences(reflect.ValueOf(before), reflect.ValueOf(now), "")
	log.Info("config reloaded", "changed", orNone(changed))
	if rest := differences(reflect.ValueOf(now), reflect.ValueOf(next), ""); len(rest) > 0 {
		log.Warn("the config has changes that need a restart", "keys", orNone(rest))
	}
}

func orNone(keys []string) string {
	if len(keys) == 0 {
		return "nothing"
	}
	return strings.Join(keys, ", ")
}

// read loads the config and remembers the files that it is made of.
func (l *Live) read() (Config, error) {
	loader, c := load(l.path, l.environ)
	if l.dsn != "" {
		c.Postgres.DSN, c.Postgres.DSNFile = l.dsn, ""
	}
	loader.finish(&c)
	l.loaded, l.looked = loader.files, nil
	return c, loader.err()
}

func (l *Live) set(c Config) {
	l.level.Set(c.level())
	l.current.Store(&c)
}

// with is the config with the live keys of another.
func (c Config) with(other Config) Config {
	to, from := reflect.ValueOf(&c).Elem(), reflect.ValueOf(other)
	for _, path := range liveKeys {
		fieldOf(to, path).Set(fieldOf(from, path))
	}
	return c
}

// fieldOf is the field of a key that is in no list.
func fieldOf(v reflect.Value, path string) reflect.Value {
	name, rest, more := strings.Cut(path, ".")
	for f, field := range v.Fields() {
		if f.Tag.Get("key") != name {
			continue
		}
		if more {
			return fieldOf(field, rest)
		}
		return field
	}
	panic("config: no key " + path)
}
