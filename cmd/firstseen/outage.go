package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// untilReached does something with Postgres again and again, with growing pauses, until it works, Postgres refuses it,
// or ctx ends.
func untilReached(ctx context.Context, log *slog.Logger, do func() error) error {
	pauses := backoff.NewExponentialBackOff()
	pauses.InitialInterval, pauses.MaxInterval = 200*time.Millisecond, 10*time.Second
	for {
		err := do()
		if err == nil || ctx.Err() != nil || !isOutage(err) {
			return err
		}
		pause := pauses.NextBackOff()
		log.Error("postgres not reached; trying again", "error", oneLine(err.Error()), "pause", pause.Round(time.Millisecond))
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
	}
}

// outageCodes are the classes and codes of SQLSTATE (Postgres manual, appendix A) that pass by themselves: broken
// connections, rollbacks, too few resources, an operator's work, a disk, a standby that is not yet the primary.
var outageCodes = []string{"08", "40", "53", "57", "58", "25006", "55P03"}

// isOutage tells what passes by itself from what somebody has to put right.
func isOutage(err error) bool {
	var refused *pgconn.PgError
	if errors.As(err, &refused) {
		return slices.ContainsFunc(outageCodes, func(c string) bool { return strings.HasPrefix(refused.Code, c) })
	}
	var connect *pgconn.ConnectError
	var network net.Error
	return errors.As(err, &connect) || errors.As(err, &network) || pgconn.Timeout(err) || pgconn.SafeToRetry(err) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, pgconn.ErrConnClosed)
}
