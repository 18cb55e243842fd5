package idempotency_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/dedup/deduptest"
	"github.com/firstseen/firstseen/dedup/deduptest/child"
	"github.com/firstseen/firstseen/dedup/deduptest/pgserver"
	"github.com/firstseen/firstseen/dedup/idempotency"
)

// kills is how often the service is killed at least: FIRSTSEEN_TEST_KILLS, by default 3.
func kills(t *testing.T) int {
	text := os.Getenv("FIRSTSEEN_TEST_KILLS")
	if text == "" {
		return 3
	}
	n, err := strconv.Atoi(text)
	require.NoError(t, err, "FIRSTSEEN_TEST_KILLS")
	return n
}

// Each key is sent by so many at once; and at least so many keys are sent, so many at a time.
const (
	twins      = 64
	fewestKeys = 200
	keysBeside = 8
)

// What clients do that hear nothing: they send the request again, until they have an answer. Meanwhile the process
// that serves them is killed again and again, Postgres crashes once, and answers of Postgres are lost on their way.
func TestServiceKilledAgainAndAgainAnswersAllTwinsAlike(t *testing.T) {
	t.Run("in transaction", func(t *testing.T) {
		l := newKillLoad(t, childService{}, "COMMIT")
		answers := l.run()
		effects := map[string]int64{}
		var what string
		var id int64
		l.each(`select what, id from effects`, []any{&what, &id}, func() {
			require.NotContains(t, effects, what, "it took effect twice")
			effects[what] = id
		})
		require.Len(t, effects, len(answers))
		for key, answer := range answers {
			require.Equal(t, made{ID: effects[key]}, answer, key)
		}
	})
	t.Run("claimed", func(t *testing.T) {
		l := newKillLoad(t, childService{Claimed: true}, "UPDATE 1")
		answers := l.run()
		var what string
		var id, fence int64
		var n int
		// Handlers may have run more often, each under a fence of its own; the last of them has answered.
		const lastCalls = `select what, r.id, max(c.fence) from received r join calls c using (what) group by 1, 2`
		l.each(lastCalls, []any{&what, &id, &fence}, func() {
			require.Equal(t, made{ID: id, Fence: fence}, answers[what], what)
			n++
		})
		require.Equal(t, len(answers), n)
	})
}

// killLoad is a service under load that is killed.
type killLoad struct {
	t       *testing.T
	server  *pgserver.Server
	proxy   *deduptest.Proxy
	service childService
	swallow string // the command tag of answers that are lost
	log     string
	client  http.Client

	mu       sync.Mutex
	answers  map[string]made // by key
	answered atomic.Int64
	killed   atomic.Int64
}

func newKillLoad(t *testing.T, service childService, swallow string) *killLoad {
	l := &killLoad{t: t, server: deduptest.StartServer(t, pgserver.Config{}), service: service, swallow: swallow,
		log: filepath.Join(t.TempDir(), "child.log"), answers: map[string]made{}}
	db := deduptest.Migrated(t, l.server.DSN("postgres"))
	_, err := db.Pool.Exec(t.Context(), killTables)
	require.NoError(t, err)
	db.Pool.Close()
	l.proxy = deduptest.NewProxy(t, db.DSN)
	port, err := child.FreePort()
	require.NoError(t, err)
	l.service.DSN, l.service.Addr = l.proxy.DSN, fmt.Sprint("127.0.0.1:", port)
	l.client = http.Client{Timeout: 10 * time.Second,
		Transport: &http.Transport{MaxIdleConnsPerHost: twins * keysBeside}}
	t.Cleanup(l.client.CloseIdleConnections)
	return l
}

// run sends keys until there were enough of them, and of kills, and gives the answer that each has got.
func (l *killLoad) run() map[string]made {
	ctx, stop := context.WithCancel(l.t.Context())
	var beside, load sync.WaitGroup
	for _, trouble := range []func(context.Context){l.kill, l.lose, l.crashOnce} {
		beside.Go(func() { trouble(ctx) })
	}
	var keys atomic.Int64
	for range keysBeside {
		load.Go(func() {
			for n := keys.Add(1); n <= fewestKeys || l.killed.Load() < int64(kills(l.t)); n = keys.Add(1) {
				l.sendTwins(fmt.Sprint("k", n))
			}
		})
	}
	load.Wait()
	stop()
	beside.Wait()
	l.t.Logf("%d keys, %d kills", len(l.answers), l.killed.Load())
	l.each(`select from firstseen.idempotency where status is null or lease_until is not null`, nil, func() {
		l.t.Error("a key is stuck")
	})
	return l.answers
}

func (l *killLoad) sendTwins(key string) {
	var group sync.WaitGroup
	for range twins {
		group.Go(func() { l.send(key) })
	}
	group.Wait()
}

// send does what a client does: the key is made once, and the request is sent until it is answered.
func (l *killLoad) send(key string) {
	var err error
	for deadline := time.Now().Add(5 * time.Minute); time.Now().Before(deadline); {
		var got made
		got, err = l.try(key)
		if err == nil {
			l.compare(key, got)
			return
		}
		time.Sleep(rand.N(50 * time.Millisecond))
	}
	l.t.Errorf("%s: no answer in five minutes: %v%s", key, err, child.Tail(l.log))
}

func (l *killLoad) try(key string) (got made, err error) {
	r, err := http.NewRequest(http.MethodPost, "http://"+l.service.Addr+"/orders", strings.NewReader(key))
	if err != nil {
		return got, err
	}
	r.Header.Set(idempotency.Header, key)
	response, err := l.client.Do(r)
	if err != nil {
		return got, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	switch {
	case err != nil:
		return got, err
	case response.StatusCode == http.StatusConflict && !strings.Contains(string(body), idempotency.CodeInProgress):
		l.t.Errorf("%s: %s", key, body)
		return got, nil
	case response.StatusCode != http.StatusCreated:
		return got, fmt.Errorf("%s: %s", response.Status, body)
	}
	return got, json.Unmarshal(body, &got)
}

func (l *killLoad) compare(key string, got made) {
	l.answered.Add(1)
	l.mu.Lock()
	defer l.mu.Unlock()
	if first, ok := l.answers[key]; ok && first != got {
		l.t.Errorf("%s: one was answered %+v, another %+v", key, first, got)
	}
	l.answers[key] = got
}

// kill has the service killed about each second, but not before it has answered anything.
func (l *killLoad) kill(ctx context.Context) {
	for ctx.Err() == nil {
		before := l.answered.Load()
		p := l.start()
		for until := time.Now().Add(300*time.Millisecond + rand.N(700*time.Millisecond)); ctx.Err() == nil; {
			if ended(p) || l.answered.Load() > before && time.Now().After(until) {
				break
			}
			pause(ctx, 10*time.Millisecond)
		}
		if !ended(p) && ctx.Err() == nil {
			l.killed.Add(1)
		}
		p.Stop(syscall.SIGKILL, time.Minute)
	}
}

func (l *killLoad) start() *child.Process {
	spec, err := json.Marshal(l.service)
	if err != nil {
		panic(err)
	}
	p, err := child.Start(child.Spec{Path: os.Args[0], Env: []string{childSpec + "=" + string(spec)}, LogFile: l.log})
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

// lose has an answer of Postgres lost now and then, with its connection, but never two with no request between them
// that is answered: then none would ever be.
func (l *killLoad) lose(ctx context.Context) {
	for before := int64(0); pause(ctx, time.Second); {
		if answered := l.answered.Load(); answered > before {
			before = answered
			l.proxy.SwallowAnswer(l.swallow)
		}
	}
}

// crashOnce has Postgres crash when half of the answers are there.
func (l *killLoad) crashOnce(ctx context.Context) {
	for l.answered.Load() < twins*fewestKeys/2 {
		if !pause(ctx, 10*time.Millisecond) {
			return
		}
	}
	if err := l.server.Restart(context.WithoutCancel(ctx), pgserver.Immediate); err != nil {
		l.t.Errorf("restart Postgres: %v", err)
	}
}

// pause is cut short by the context, and says so.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

func (l *killLoad) each(sql string, columns []any, do func()) {
	l.t.Helper()
	conn, err := pgx.Connect(l.t.Context(), l.server.DSN("postgres"))
	require.NoError(l.t, err)
	defer conn.Close(l.t.Context())
	rows, err := conn.Query(l.t.Context(), sql)
	require.NoError(l.t, err)
	_, err = pgx.ForEachRow(rows, columns, func() error { do(); return nil })
	require.NoError(l.t, err)
}
