package config

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"maps"
	"os"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// lookInterval is the time between two looks at the files.
const lookInterval = 2 * time.Second

// liveKeys take effect while the program runs, each with the keys below it.
var liveKeys = []string{"log.level", "health", "retention", "http.rate", "http.mask",
	"http.read_token", "http.read_token_file", "http.write_token", "http.write_token_file",
	"ingress.tokens", "ingress.token_files", "ingress.tenants"}

// Live is a config that follows its file while the program runs. The log's level, health, retention, http.rate and
// http.mask, the tokens of http and those of ingress with their tenants change with it; everything else stays as it was at the start.
// It is safe for concurrent use.
type Live struct {
	path    string
	environ []string
	given   Given
	level   slog.LevelVar
	current atomic.Pointer[Config]
	changes sync.Mutex // of current, of the file's name, and of who is told
	file    string
	told    []func(Config)
	loaded  map[string]sum // the files as they were last loaded
	looked  map[string]sum // and as they were last looked at
}

// Follow is Load for a program that goes on to call Run.
func Follow(path string, environ []string) (*Live, error) { return FollowOn(Given{}, path, environ) }

// FollowOn is Follow with what is given in place of the config's, whichever way that has it.
func FollowOn(given Given, path string, environ []string) (*Live, error) {
	live := &Live{path: path, environ: environ, given: given}
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

// File is where the config was read from; empty: from the environment alone.
func (l *Live) File() string {
	l.changes.Lock()
	defer l.changes.Unlock()
	return l.file
}

// Tell calls f with the config as it is now, and again each time that it has changed.
func (l *Live) Tell(f func(Config)) {
	l.changes.Lock()
	defer l.changes.Unlock()
	l.told = append(l.told, f)
	f(l.Load())
}

// change has another config be the one that is there, and tells of it.
func (l *Live) change(c Config) {
	l.changes.Lock()
	defer l.changes.Unlock()
	l.current.Store(&c)
	for _, f := range l.told {
		f(c)
	}
}

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
	l.change(now)
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
	l.given.replace(loader, &c)
	loader.finish(&c)
	l.loaded, l.looked = loader.files, nil
	l.changes.Lock()
	defer l.changes.Unlock()
	l.file = loader.path
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
