package config

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// reread has what is made of files, and makes it again when it is asked for, once in lookInterval at most: certificates
// are replaced while the program runs. Where that fails what there was stays. The log says so once, and once that it
// is well again. It is safe for concurrent use.
type reread[T any] struct {
	what string // for the log
	make func() (T, error)
	log  *slog.Logger

	mu     sync.Mutex
	last   T
	looked time.Time
	failed bool
}

// read makes it for the first time. Then there is nothing yet that could stay.
func (r *reread[T]) read() (first T, err error) {
	r.last, err = r.make()
	r.looked = time.Now()
	return r.last, err
}

func (r *reread[T]) get() T {
	r.mu.Lock()
	defer r.mu.Unlock()
	if time.Since(r.looked) < lookInterval {
		return r.last
	}
	r.looked = time.Now()
	next, err := r.make()
	switch {
	case err != nil && !r.failed:
		r.log.Error("certificates can't be read again; those from before stay", "of", r.what, "error", err)
	case err == nil && r.failed:
		r.log.Info("certificates are read again", "of", r.what)
	}
	if r.failed = err != nil; err == nil {
		r.last = next
	}
	return r.last
}

// certificates reads those of a section.
func certificates(section string, log *slog.Logger, read func() (*tls.Config, []Fault)) *reread[*tls.Config] {
	return &reread[*tls.Config]{what: section, log: log, make: func() (*tls.Config, error) {
		c, faults := read()
		if len(faults) > 0 {
			return nil, &Error{Source: "read again", Faults: faults}
		}
		return c, nil
	}}
}

// serving is a server's config whose files are followed. It is nil where the server speaks plain HTTP.
func serving(section string, log *slog.Logger, read func() (*tls.Config, []Fault)) (*tls.Config, error) {
	files := certificates(section, log, read)
	first, err := files.read()
	if first == nil || err != nil {
		return nil, err
	}
	c := first.Clone()
	c.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) { return files.get(), nil }
	return c, nil
}

// Following has a pool read the files of the connection string's sslrootcert, sslcert and sslkey again for its new
// connections.
func (p Postgres) Following(log *slog.Logger) func(*pgxpool.Config) {
	return func(pool *pgxpool.Config) {
		files := &reread[*pgx.ConnConfig]{what: "postgres.dsn", log: log,
			make: p.parsed, last: pool.ConnConfig, looked: time.Now()}
		pool.BeforeConnect = func(_ context.Context, next *pgx.ConnConfig) error {
			now := files.get()
			if len(now.Fallbacks) != len(next.Fallbacks) { // a service file has other hosts now
				return nil
			}
			next.TLSConfig = now.TLSConfig
			for i := range next.Fallbacks {
				next.Fallbacks[i].TLSConfig = now.Fallbacks[i].TLSConfig
			}
			return nil
		}
	}
}

// parsed reads the connection string, and the files that it names. The error does not quote the string.
func (p Postgres) parsed() (*pgx.ConnConfig, error) {
	conf, err := pgx.ParseConfig(p.DSN.Reveal())
	if inside := errors.Unwrap(err); inside != nil {
		err = inside
	}
	return conf, err
}
