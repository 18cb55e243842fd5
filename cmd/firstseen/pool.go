package main

import (
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// closeLimit is how long connections are waited for that do not answer any more: the program ends without their farewell.
const closeLimit = 3 * time.Second

func closePool(pool *pgxpool.Pool) {
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		pool.Close()
	}()
	select {
	case <-closed:
	case <-time.After(closeLimit):
	}
}
