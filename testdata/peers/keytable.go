package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// What a team writes that has read about idempotency keys: a table of keys, in the transaction of the effect. Insert
// the key on conflict do nothing; where it was new have the effect, and update its row with the answer. A twin waits
// for the first one's transaction with a connection in its hand. Nothing is said of tenants, routes or JSON that is
// spelled another way. The tuned one sends begin with the key's insert and commit with the answer.

const (
	insertKey = `insert into bench_keys (key, fingerprint) values ($1, $2) on conflict do nothing`
	updateKey = `update bench_keys set status = $2, location = $3, body = $4 where key = $1`
	selectKey = `select fingerprint, status, location, body from bench_keys where key = $1`
)

// order is a request and its answer.
type order struct {
	key         string
	request     []byte
	fingerprint []byte

	status   int
	location string
	body     []byte
}

func serveKeyTable(once func(context.Context, *pgxpool.Pool, *order) error) service {
	return func(pool *pgxpool.Pool, listener net.Listener) error {
		mux := http.NewServeMux()
		mux.HandleFunc("POST /orders", func(w http.ResponseWriter, r *http.Request) {
			o, err := readOrder(r)
			if err == nil {
				err = once(r.Context(), pool, o)
			}
			if err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
				return
			}
			o.write(w)
		})
		return http.Serve(listener, mux) //nolint:gosec // of a benchmark
	}
}

func readOrder(r *http.Request) (*order, error) {
	o := &order{key: r.Header.Get("Idempotency-Key")}
	if o.key == "" {
		return nil, errors.New("a request has no key")
	}
	var err error
	o.request, err = io.ReadAll(r.Body)
	sum := sha256.Sum256(o.request)
	o.fingerprint = sum[:]
	return o, err
}

func (o *order) write(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/json")
	if o.location != "" {
		w.Header().Set("Location", o.location)
	}
	w.WriteHeader(o.status)
	_, _ = w.Write(o.body) //nolint:gosec // JSON that this program made
}

// insert has the effect.
func (o *order) insert(ctx context.Context, tx pgx.Tx) error {
	id := uuid.New()
	o.status, o.location = http.StatusCreated, "/orders/"+id.String()
	o.body = fmt.Appendf(nil, `{"order":%q}`, id)
	_, err := tx.Exec(ctx, insertEffect, [16]byte(id), o.request)
	return err
}

// recall reads what was answered before.
func (o *order) recall(ctx context.Context, tx pgx.Tx) error {
	var fingerprint []byte
	err := tx.QueryRow(ctx, selectKey, o.key).Scan(&fingerprint, &o.status, &o.location, &o.body)
	if err == nil && !bytes.Equal(fingerprint, o.fingerprint) {
		o.status, o.location, o.body = http.StatusConflict, "", []byte(`{"error":"the key is another order's"}`)
	}
	return err
}

func inFiveRoundTrips(ctx context.Context, pool *pgxpool.Pool, o *order) error {
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, insertKey, o.key, o.fingerprint)
		if err != nil {
			return err
		}
		if tag.RowsAffected() == 0 {
			return o.recall(ctx, tx)
		}
		if err := o.insert(ctx, tx); err != nil {
			return err
		}
		_, err = tx.Exec(ctx, updateKey, o.key, o.status, o.location, o.body)
		return err
	})
}

func inThreeRoundTrips(ctx context.Context, pool *pgxpool.Pool, o *order) error {
	return pool.AcquireFunc(ctx, func(c *pgxpool.Conn) error {
		opening := &pgx.Batch{}
		opening.BeginTx(pgx.TxOptions{})
		fresh := false
		opening.Queue(insertKey, o.key, o.fingerprint).Exec(func(tag pgconn.CommandTag) error {
			fresh = tag.RowsAffected() == 1
			return nil
		})
		results := c.SendBatch(ctx, opening)
		tx := results.Tx()
		defer func() { _ = tx.Rollback(ctx) }()
		switch err := results.Close(); {
		case err != nil:
			return err
		case !fresh:
			return o.recall(ctx, tx)
		}
		if err := o.insert(ctx, tx); err != nil {
			return err
		}
		closing := &pgx.Batch{}
		closing.Queue(updateKey, o.key, o.status, o.location, o.body)
		closing.Queue(`commit`)
		return c.SendBatch(ctx, closing).Close()
	})
}
