package consumer

import (
	"errors"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/holds"
	"github.com/firstseen/firstseen/handlers"
)

// holdError is the reason why a partition waits, with its code.
type holdError struct {
	code string
	err  error
}

func (h *holdError) Error() string { return h.err.Error() }
func (h *holdError) Unwrap() error { return h.err }

// kafkaHold marks an error of Kafka's side.
func kafkaHold(err error) error {
	if err == nil {
		return nil
	}
	return &holdError{holds.Kafka, err}
}

// holdCode gives the code of an error that has a partition wait. What says nothing else comes from Postgres, or from the
// way to it.
func holdCode(err error) string {
	var h *holdError
	switch {
	case errors.As(err, &h):
		return h.code
	case errors.Is(err, handlers.ErrNoConnection):
		return holds.Pool
	case errors.Is(err, handlers.ErrHandlerTimeout):
		return holds.Handler
	case errors.Is(err, dedup.ErrLocked):
		return holds.Locked
	}
	return holds.OfPostgres(err)
}
