package idempotency_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"os"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/idempotency"
)

// childSpec is the environment variable that makes the test binary a service: it holds a childService.
const childSpec = "FIRSTSEEN_TEST_CHILD"

// childService is a service in a process of its own, to be killed.
type childService struct {
	DSN, Addr string
	// Claimed has it run requests so, and not in a transaction.
	Claimed bool

	pool *pgxpool.Pool
}

// killTables are what the service's effects are: those of a transaction, and for a claim the calls and what a receiver
// that knows its keys has made of them.
const killTables = `
create table effects (id bigint generated always as identity primary key, what text);
create table calls (what text, fence bigint, primary key (what, fence));
create table received (key text primary key, what text, id bigint generated always as identity)`

// runChild is the child's main, which has no end of its own.
func runChild(spec string) int {
	var c childService
	err := json.Unmarshal([]byte(spec), &c)
	if err == nil {
		err = c.run(context.Background())
	}
	fmt.Fprintln(os.Stderr, "child:", err)
	return 1
}

func (c *childService) run(ctx context.Context) error {
	config, err := pgxpool.ParseConfig(c.DSN)
	if err != nil {
		return err
	}
	config.MaxConns = 8
	dedup.PreparePool(config, 2*time.Second)
	if c.pool, err = pgxpool.NewWithConfig(ctx, config); err != nil {
		return err
	}
	store, err := idempotency.Open(ctx, c.pool, idempotency.PostgresConfig{AnswerTimeout: 2 * time.Second})
	if err != nil {
		return err
	}
	middleware, err := c.middleware(store)
	if err != nil {
		return err
	}
	server := &http.Server{Addr: c.Addr, Handler: middleware.Handler(http.HandlerFunc(c.create)),
		ReadHeaderTimeout: time.Minute}
	return server.ListenAndServe()
}

func (c *childService) middleware(store *idempotency.Postgres) (*idempotency.Middleware, error) {
	cfg := idempotency.Config{Caller: idempotency.OneCaller, Wait: 2 * time.Second, Concurrency: 1024,
		WorkTime: 2 * time.Second, Lease: time.Second,
		Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))}
	if c.Claimed {
		return idempotency.Claimed(store, cfg)
	}
	return idempotency.InTransaction(store, cfg)
}

// create takes effect, and one time in ten fails after that.
func (c *childService) create(w http.ResponseWriter, r *http.Request) {
	what, err := io.ReadAll(r.Body)
	made := made{Fence: idempotency.Fence(r.Context())}
	if err == nil {
		made.ID, err = c.effect(r.Context(), string(what))
	}
	time.Sleep(rand.N(20 * time.Millisecond)) // so that kills meet it at work
	if err == nil && rand.IntN(10) == 0 {
		err = errors.New("told to")
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.WriteHeader(http.StatusCreated)
	_ = json.NewEncoder(w).Encode(made)
}

// made is the service's answer.
type made struct{ ID, Fence int64 }

func (c *childService) effect(ctx context.Context, what string) (id int64, err error) {
	if tx := idempotency.Tx(ctx); tx != nil {
		return id, tx.QueryRow(ctx, `insert into effects (what) values ($1) returning id`, what).Scan(&id)
	}
	if _, err := c.pool.Exec(ctx, `insert into calls values ($1, $2)`, what, idempotency.Fence(ctx)); err != nil {
		return 0, err
	}
	return id, c.pool.QueryRow(ctx, `insert into received (key, what) values ($1, $2)
		on conflict (key) do update set what = excluded.what returning id`, idempotency.Key(ctx), what).Scan(&id)
}
