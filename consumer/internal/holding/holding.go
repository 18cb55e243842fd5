// Package holding says why a partition, a topic or a replay waits, by the codes of dedup/holds.
package holding

import (
	"errors"

	"github.com/firstseen/firstseen/dedup/holds"
	"github.com/firstseen/firstseen/handlers"
)

// coded is the reason why something waits, with its code.
type coded struct {
	error
	code string
}

func (c *coded) Unwrap() error { return c.error }

// As gives an error its code. None stays none.
func As(code string, err error) error {
	if err == nil {
		return nil
	}
	return &coded{err, code}
}

// Kafka marks an error of Kafka's side.
func Kafka(err error) error { return As(holds.Kafka, err) }

// CodeOf gives the code of an error that has a partition wait. What says nothing else comes from Postgres, or from the
// way to it.
func CodeOf(err error) string {
	var c *coded
	if errors.As(err, &c) {
		return c.code
	}
	return handlers.HoldCode(err)
}
