package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/firstseen/firstseen/dedup/idempotency"
)

// service is an http.Handler that inserts one row of effects for a request, and answers 201 with its ID.
type service func(context.Context, *pgxpool.Pool) (http.Handler, error)

// The services, by name. The first is what the others are measured against.
const (
	ownTransaction = "own-transaction" // begin, insert, commit: no keys
	inTransaction  = "in-transaction"
	claimed        = "claimed"
)

var services = map[string]service{
	ownTransaction: func(_ context.Context, pool *pgxpool.Pool) (http.Handler, error) {
		return inOwnTransaction(pool), nil
	},
	inTransaction: func(ctx context.Context, pool *pgxpool.Pool) (http.Handler, error) {
		store, err := idempotency.Open(ctx, pool, idempotency.PostgresConfig{})
		if err != nil {
			return nil, err
		}
		once, err := idempotency.InTransaction(store, idempotencyConfig())
		if err != nil {
			return nil, err
		}
		return once.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			answerOrder(w, r, func(id uuid.UUID, body []byte) error {
				return insertOrder(r.Context(), idempotency.Tx(r.Context()), id, body)
			})
		})), nil
	},
	claimed: func(ctx context.Context, pool *pgxpool.Pool) (http.Handler, error) {
		store, err := idempotency.Open(ctx, pool, idempotency.PostgresConfig{})
		if err != nil {
			return nil, err
		}
		once, err := idempotency.Claimed(store, idempotencyConfig())
		if err != nil {
			return nil, err
		}
		return once.Handler(inOwnTransaction(pool)), nil
	},
}

func idempotencyConfig() idempotency.Config {
	return idempotency.Config{Caller: idempotency.OneCaller, Logger: slog.New(slog.DiscardHandler)}
}

// inOwnTransaction is the handler as it is without any middleware.
func inOwnTransaction(pool *pgxpool.Pool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answerOrder(w, r, func(id uuid.UUID, body []byte) error {
			return pgx.BeginFunc(r.Context(), pool, func(tx pgx.Tx) error {
				return insertOrder(r.Context(), tx, id, body)
			})
		})
	})
}

func insertOrder(ctx context.Context, tx pgx.Tx, id uuid.UUID, body []byte) error {
	_, err := tx.Exec(ctx, `insert into bench_effects (id, payload) values ($1, $2)`, [16]byte(id), body)
	return err
}

// answerOrder is all of the handler but for its transaction.
func answerOrder(w http.ResponseWriter, r *http.Request, insert func(uuid.UUID, []byte) error) {
	body, err := io.ReadAll(r.Body)
	id := uuid.New()
	if err == nil {
		err = insert(id, body)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Location", "/orders/"+id.String())
	w.WriteHeader(http.StatusCreated)
	_, _ = fmt.Fprintf(w, `{"order":%q}`, id)
}

// listening is the first line of a contender that serves.
type listening struct {
	Address string `json:"address"`
}

// serve answers requests until stopped is at its end.
func (j job) serve(ctx context.Context, stopped io.Reader, out io.Writer) error {
	made := services[j.Service]
	if made == nil {
		return fmt.Errorf("no service %q", j.Service)
	}
	pool, err := j.pool(ctx)
	if err != nil {
		return err
	}
	defer pool.Close()
	handler, err := made(ctx, pool)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("POST "+ordersPath, handler)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	if err = json.NewEncoder(out).Encode(listening{listener.Addr().String()}); err == nil {
		_, err = io.Copy(io.Discard, stopped)
	}
	return errors.Join(err, server.Close(), served(<-ended))
}

// served is no error where the server was closed.
func served(err error) error {
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}
