// Package twins is what clients do to a service that may die at any moment, for tests: each key is sent by many
// clients at once, which send their request again until it is answered. Meanwhile the process that serves them is
// killed again and again, Postgres crashes once, and answers of Postgres are lost on their way.
package twins

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/firstseen/firstseen/dedup/deduptest"
	"github.com/firstseen/firstseen/dedup/deduptest/child"
	"github.com/firstseen/firstseen/dedup/deduptest/pgserver"
	"github.com/firstseen/firstseen/dedup/wait"
)

// Each key is sent by so many clients at once; and at least so many keys are sent, so many at a time.
const (
	clients    = 64
	fewestKeys = 200
	keysBeside = 8
)

// Config is the service and what is asked of it.
type Config struct {
	// Tables is SQL that makes what the service needs beside the schema of firstseen.
	Tables string
	// Child is a process that serves at addr, with its data at dsn. Its log goes to a file of the load's.
	Child func(dsn, addr string) child.Spec
	// Swallow is the command tag of those answers of Postgres of which some are lost, with their connection.
	Swallow string
	// Kills is the least number of times that the service is killed.
	Kills int
	// Request is one try of a key.
	Request func(service, key string) (*http.Request, error)
	// Read says what a client was told, the same for all clients of a key. An error has it send the request again.
	Read func(status int, body []byte) (told string, err error)
}

// Load is a service under load that is killed.
type Load struct {
	t      testing.TB
	cfg    Config
	server *pgserver.Server
	proxy  *deduptest.Proxy
	addr   string
	log    string
	client http.Client

	mu       sync.Mutex
	told     map[string]string // by key
	answered atomic.Int64
	killed   atomic.Int64
}

// New makes the database. Nothing runs yet.
func New(t testing.TB, cfg Config) *Load {
	t.Helper()
	l := &Load{t: t, cfg: cfg, server: deduptest.StartServer(t, pgserver.Config{}),
		log: filepath.Join(t.TempDir(), "child.log"), told: map[string]string{}}
	db := deduptest.Migrated(t, l.server.DSN("postgres"))
	if _, err := db.Pool.Exec(t.Context(), cfg.Tables); err != nil {
		t.Fatalf("make the service's tables: %v", err)
	}
	db.Pool.Close()
	l.proxy = deduptest.NewProxy(t, db.DSN)
	port, err := child.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	l.addr = fmt.Sprint("127.0.0.1:", port)
	l.client = http.Client{Timeout: 10 * time.Second,
		Transport: &http.Transport{MaxIdleConnsPerHost: clients * keysBeside}}
	t.Cleanup(l.client.CloseIdleConnections)
	return l
}

// DSN is that of the database, past what loses answers.
func (l *Load) DSN() string { return l.server.DSN("postgres") }

// Run sends keys until there were enough of them, and of kills. It gives what was told of each. beside, if it is not
// nil, is called with each key before its clients begin, and has it to itself.
func (l *Load) Run(beside func(key string)) map[string]string {
	ctx, stop := context.WithCancel(l.t.Context())
	var trouble, load sync.WaitGroup
	for _, fault := range []func(context.Context){l.kill, l.lose, l.crashOnce} {
		trouble.Go(func() { fault(ctx) })
	}
	var keys atomic.Int64
	for range keysBeside {
		load.Go(func() {
			for n := keys.Add(1); n <= fewestKeys || l.killed.Load() < int64(l.cfg.Kills); n = keys.Add(1) {
				l.sendAll(fmt.Sprint("k", n), beside)
			}
		})
	}
	load.Wait()
	stop()
	trouble.Wait()
	l.t.Logf("%d keys, %d kills", len(l.told), l.killed.Load())
	return l.told
}

func (l *Load) sendAll(key string, beside func(key string)) {
	var group sync.WaitGroup
	if beside != nil {
		group.Go(func() { beside(key) })
	}
	for range clients {
		group.Go(func() { l.send(key) })
	}
	group.Wait()
}

// send does what a client does: the key is made once, and the request is sent until it is answered.
func (l *Load) send(key string) {
	var err error
	for deadline := time.Now().Add(5 * time.Minute); time.Now().Before(deadline); {
		var told string
		told, err = l.try(key)
		if err == nil {
			l.compare(key, told)
			return
		}
		time.Sleep(rand.N(50 * time.Millisecond)) // as clients do
	}
	l.t.Errorf("%s: no answer in five minutes: %v%s", key, err, child.Tail(l.log))
}

func (l *Load) try(key string) (told string, err error) {
	r, err := l.cfg.Request("http://"+l.addr, key)
	if err != nil {
		return "", err
	}
	response, err := l.client.Do(r)
	if err != nil {
		return "", err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return "", err
	}
	return l.cfg.Read(response.StatusCode, body)
}

func (l *Load) compare(key, told string) {
	l.answered.Add(1)
	l.mu.Lock()
	defer l.mu.Unlock()
	if first, ok := l.told[key]; ok && first != told {
		l.t.Errorf("%s: one was told %s, another %s", key, first, told)
	}
	l.told[key] = told
}

// kill has the service killed about each second, but not before it has answered its share.
func (l *Load) kill(ctx context.Context) {
	for ctx.Err() == nil {
		enough := l.answered.Load() + l.share()
		p := l.start()
		for until := time.Now().Add(300*time.Millisecond + rand.N(700*time.Millisecond)); ctx.Err() == nil; {
			if ended(p) || l.answered.Load() >= enough && time.Now().After(until) {
				break
			}
			wait.Sleep(ctx, 10*time.Millisecond)
		}
		if !ended(p) && ctx.Err() == nil {
			l.killed.Add(1)
		}
		p.Stop(syscall.SIGKILL, time.Minute)
	}
}

// share counts the requests that must be answered between two faults: as many as are sent at once, or fewer where that
// many kills take it. Then the load gets on, however slow the machine is that it runs on.
func (l *Load) share() int64 {
	return int64(max(1, min(clients*keysBeside, clients*fewestKeys/max(1, l.cfg.Kills))))
}

func (l *Load) start() *child.Process {
	spec := l.cfg.Child(l.proxy.DSN, l.addr)
	spec.LogFile = l.log
	p, err := child.Start(spec)
	if err != nil {
		panic(err)
	}
	return p
}

func ended(p *child.Process) bool {
	select {
	case <-p.Done():
		return true
	default:
		return false
	}
}

// lose has an answer of Postgres lost now and then, with its connection.
func (l *Load) lose(ctx context.Context) {
	for enough := l.share(); wait.Sleep(ctx, time.Second); {
		if answered := l.answered.Load(); answered >= enough {
			enough = answered + l.share()
			l.proxy.SwallowAnswer(l.cfg.Swallow)
		}
	}
}

// crashOnce has Postgres crash when half of the answers are there.
func (l *Load) crashOnce(ctx context.Context) {
	for l.answered.Load() < clients*fewestKeys/2 {
		if !wait.Sleep(ctx, 10*time.Millisecond) {
			return
		}
	}
	if err := l.server.Restart(context.WithoutCancel(ctx), pgserver.Immediate); err != nil {
		l.t.Errorf("restart Postgres: %v", err)
	}
}

// Each reads rows of the database into columns, and calls do for each of them.
func (l *Load) Each(sql string, columns []any, do func()) {
	l.t.Helper()
	conn, err := pgx.Connect(l.t.Context(), l.DSN())
	if err != nil {
		l.t.Fatal(err)
	}
	defer func() { _ = conn.Close(l.t.Context()) }()
	rows, err := conn.Query(l.t.Context(), sql)
	if err == nil {
		_, err = pgx.ForEachRow(rows, columns, func() error { do(); return nil })
	}
	if err != nil {
		l.t.Fatalf("%s: %v", sql, err)
	}
}
