package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"

	"github.com/jackc/pgx/v5/pgxpool"
)

// connections caps a service's pool: as firstseen's.
const connections = 8

// service answers POST /orders with 201, and inserts one row of effects for an Idempotency-Key, for as long as the
// listener is open.
type service func(*pgxpool.Pool, net.Listener) error

var services = map[string]service{
	"key-table":       serveKeyTable(inFiveRoundTrips),
	"key-table-tuned": serveKeyTable(inThreeRoundTrips),
	"fiber":           serveFiber,
}

// serve says where a service listens, and ends the program where in does.
func serve(ctx context.Context, s service, in io.Reader, out io.Writer) error {
	var j job
	if err := json.NewDecoder(in).Decode(&j); err != nil {
		return fmt.Errorf("read job: %w", err)
	}
	pool, err := j.pool(ctx, connections)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(out, "{\"address\":%q}\n", listener.Addr()); err != nil {
		return err
	}
	go func() {
		_, _ = io.Copy(io.Discard, in)
		os.Exit(0)
	}()
	return s(pool, listener)
}
