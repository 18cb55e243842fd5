package consumer_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/consumer"
	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/deduptest/child"
	"github.com/firstseen/firstseen/handlers"
)

// childSpec is the environment variable that makes the test binary a consumer: it holds a childMember.
const childSpec = "FIRSTSEEN_TEST_CHILD"

// childMember is a consumer in a process of its own, to be killed or stopped.
type childMember struct {
	Addr, Group, Topic, DSN string
	// Name tells the member from others: in the group, and in the effects' column made_by.
	Name string
	// Fail is the share of handler calls that fail, by chance.
	Fail float64
	// MaxBatch and BufferBytes are consumer.Config's.
	MaxBatch, BufferBytes int
	// Bounded limits Go's heap as BufferBytes' comment says.
	Bounded bool
	// SessionTimeout is consumer.Config's. Default that of quick.
	SessionTimeout time.Duration
	// Deaf has the member hear late that the group has given it up: it heartbeats and commits offsets rarely.
	Deaf bool
	// At is where the process sends itself Signal, when it comes there the Times-th time. Default nowhere.
	At     handlers.Stage
	Times  int
	Signal syscall.Signal
}

// child describes a consumer of the stage's topic.
func (s *stage) child(name string) childMember {
	return childMember{Addr: s.addr, Group: s.group, Topic: s.topic, DSN: s.dsn, Name: name}
}

// runChild is the child's main. SIGTERM ends it in good order.
func runChild(spec string) (code int) {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	var m childMember
	err := json.Unmarshal([]byte(spec), &m)
	if err == nil {
		err = m.run(ctx)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "child:", err)
		return 1
	}
	return 0
}

func (m *childMember) run(ctx context.Context) error {
	pool, err := named(m.DSN, m.Name)
	if err != nil {
		return err
	}
	defer pool.Close()
	store, err := dedup.Open(ctx, pool, dedup.Config{Inbox: m.Group, EvictAfter: 500 * time.Millisecond})
	if err != nil {
		return err
	}
	registry := &handlers.Registry{}
	err = registry.Add(handlers.Registration{Name: "effect", Topics: []string{m.Topic},
		Handler: handlers.Each(failing(m.Fail)),
		Retry:   handlers.Retry{Base: 50 * time.Millisecond, Cap: 500 * time.Millisecond, MaxAttempts: 1000}})
	if err != nil {
		return err
	}
	observe := m.observer()
	processor, err := handlers.NewProcessor(handlers.Config{Store: store, Handlers: registry, Observe: observe,
		LanePoll: 50 * time.Millisecond, Logger: logger()})
	if err != nil {
		return err
	}
	if m.Bounded {
		debug.SetMemoryLimit(int64(m.BufferBytes) + consumer.HeapBeside)
	}
	cfg := quick(m.Addr, m.Group)
	cfg.ClientID, cfg.MaxBatch, cfg.BufferBytes, cfg.Observe = m.Name, m.MaxBatch, m.BufferBytes, observe
	if m.SessionTimeout > 0 {
		cfg.SessionTimeout, cfg.RebalanceTimeout, cfg.RequestTimeout = m.SessionTimeout, m.SessionTimeout, time.Second
	}
	if m.Deaf {
		cfg.SessionTimeout, cfg.RebalanceTimeout = 30*time.Second, 30*time.Second
		cfg.HeartbeatInterval, cfg.CommitInterval, cfg.RequestTimeout = 10*time.Second, 10*time.Second, time.Second
	}
	c, err := consumer.New(cfg, processor)
	if err != nil {
		return err
	}
	return c.Run(ctx)
}

// observer sends the process its signal when it comes to the place for it.
func (m *childMember) observer() func(handlers.Stage) {
	var times atomic.Int64
	return func(at handlers.Stage) {
		if at == m.At && times.Add(1) == int64(m.Times) {
			_ = syscall.Kill(os.Getpid(), m.Signal)
			time.Sleep(200 * time.Millisecond) // the signal may hit another thread first
		}
	}
}

// named is a pool whose connections have an application_name.
func named(dsn, name string) (*pgxpool.Pool, error) {
	cfg, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, err
	}
	cfg.ConnConfig.RuntimeParams["application_name"] = name
	return pgxpool.NewWithConfig(context.Background(), cfg)
}

// failing is obey, but fails on a share of its calls.
func failing(share float64) handlers.HandlerFunc {
	return func(ctx context.Context, tx pgx.Tx, m dedup.Message) error {
		if err := obey(ctx, tx, m); err != nil || rand.Float64() >= share {
			return err
		}
		return errors.New("failed by chance, after its effect")
	}
}

// obey is effect for one message at a time, and does what the value's first line says: sleep:1s.
func obey(ctx context.Context, tx pgx.Tx, m dedup.Message) error {
	if text, ok := strings.CutPrefix(string(m.Value[:min(len(m.Value), 20)]), "sleep:"); ok {
		text, _, _ = strings.Cut(text, "\n")
		d, err := time.ParseDuration(text)
		if err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(d):
		}
	}
	_, err := tx.Exec(ctx,
		`insert into effects (handler, message_id, key, "offset", "partition") values ('effect', $1, $2, $3, $4)`,
		m.ID, string(m.Key), m.Offset, m.Partition)
	return err
}

// childProcess is a running childMember.
type childProcess struct {
	*child.Process
	t   testing.TB
	log string
}

// startChild starts the member. It ends with this process, or with the test.
func (s *stage) startChild(m childMember) *childProcess {
	s.t.Helper()
	spec, err := json.Marshal(m)
	require.NoError(s.t, err)
	log := filepath.Join(s.t.TempDir(), "child.log")
	p, err := child.Start(child.Spec{
		Path: os.Args[0], Env: []string{childSpec + "=" + string(spec), testLog + "=1"}, LogFile: log,
	})
	require.NoError(s.t, err)
	s.t.Cleanup(func() { p.Stop(syscall.SIGKILL, time.Second) })
	return &childProcess{Process: p, t: s.t, log: log}
}

func (p *childProcess) signal(sig syscall.Signal) {
	p.t.Helper()
	require.NoError(p.t, p.Signal(sig))
}

// awaitKilled waits for the child's end, which must be a SIGKILL.
func (p *childProcess) awaitKilled() {
	p.t.Helper()
	select {
	case <-p.Done():
	case <-time.After(30 * time.Second):
		p.t.Fatalf("the child did not come to its end%s", child.Tail(p.log))
	}
	var exit *exec.ExitError
	require.ErrorAs(p.t, p.Err(), &exit, "the child ended by itself%s", child.Tail(p.log))
	require.Equal(p.t, syscall.SIGKILL, exit.Sys().(syscall.WaitStatus).Signal())
}

// awaitStopped waits until a SIGSTOP has stopped the child.
func (p *childProcess) awaitStopped() {
	p.t.Helper()
	require.Eventually(p.t, func() bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.PID()))
		if errors.Is(err, os.ErrNotExist) {
			return false
		}
		_, state, _ := bytes.Cut(stat, []byte(") "))
		return err == nil && bytes.HasPrefix(state, []byte("T"))
	}, 3*time.Minute, 10*time.Millisecond, "the child did not stop itself")
}

func (p *childProcess) logs() string {
	p.t.Helper()
	text, err := os.ReadFile(p.log)
	require.NoError(p.t, err)
	return string(text)
}

// heard keeps what a consumer logs.
type heard struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (h *heard) Write(line []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if os.Getenv(testLog) != "" {
		_, _ = os.Stderr.Write(line)
	}
	return h.text.Write(line)
}

func (h *heard) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(h, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// String is all of it.
func (h *heard) String() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.text.String()
}

func (h *heard) has(text string) bool { return h.times(text) > 0 }

func (h *heard) times(text string) int {
	return strings.Count(h.String(), text)
}
