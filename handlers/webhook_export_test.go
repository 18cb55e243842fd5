package handlers

import (
	"crypto/tls"
	"errors"
	"io"
	"log"
	"time"
)

// Verdict says what an error of a handler leads to, and how long it asks to wait.
func Verdict(err error) (kind string, wait time.Duration) {
	var after *afterError
	if errors.As(err, &after) {
		wait = min(after.wait, maxAfter)
	}
	switch {
	case err == nil:
		return "done", wait
	case errors.As(err, new(*permanentError)):
		return "permanent", wait
	case errors.As(err, new(*unavailableError)):
		return "unavailable", wait
	}
	return "retry", wait
}

// OldTLS speaks nothing newer than TLS 1.1.
func OldTLS() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11} //nolint:gosec // to see it refused
}

// NoLog drops what a test's server says.
func NoLog() *log.Logger { return log.New(io.Discard, "", 0) }
