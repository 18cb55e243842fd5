package consumer

import (
	"errors"
	"log/slog"
	"time"

	"github.com/firstseen/firstseen/handlers"
)

// Why a partition waits, as in PartitionStatus.Held and in the log's attribute "hold".
const (
	HeldPostgres    = "postgres"      // a transaction failed, and is tried again
	HeldKafka       = "kafka"         // brokers do not answer what has to be known to begin, and are asked again
	HeldHandler     = "handler"       // a handler ran out of time with the whole batch, which is tried again
	HeldMaxParked   = "max_parked"    // too many of the partition's messages are parked
	HeldUndecodable = "undecodable"   // the next records can't be decoded, and are fetched again
	HeldTopicReset  = "topic_reset"   // the topic was deleted and made anew: a person decides, see Config.OnReset
	HeldCutOff      = "cut_off"       // the partition ends below its position: a person decides, see Config.OnReset
	HeldLost        = "messages_lost" // messages were deleted before they were read: a person decides, see Config.OnLoss
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
	return &holdError{HeldKafka, err}
}

// holdCode gives the code of an error that has a partition wait. What says nothing else comes from Postgres, or from the
// way to it.
func holdCode(err error) string {
	var h *holdError
	switch {
	case errors.As(err, &h):
		return h.code
	case errors.Is(err, handlers.ErrHandlerTimeout):
		return HeldHandler
	}
	return HeldPostgres
}

// held is a hold that has begun. The zero value: there is none.
type held struct {
	code  string
	since time.Time
}

// waitFor says, to the log and to Status, that the worker waits before it tries again. The next success ends that.
func (p *partition) waitFor(err error, log *slog.Logger, message string, attrs ...any) {
	p.hold(&p.waits, holdCode(err))
	log.Error(message, append(attrs, "partition", p.String(), "hold", holdCode(err), "error", err)...)
}

// allWaitFor is waitFor for all partitions, and one line in the log.
func (s *session) allWaitFor(err error, message string) {
	for _, p := range s.partitions {
		p.hold(&p.waits, holdCode(err))
	}
	s.log.Error(message, "hold", holdCode(err), "error", err)
}

// stopFor says, to the log and to Status, that nothing more is fetched. Where it may be mended, the next fetch that
// brings something ends that.
func (p *partition) stopFor(err error, log *slog.Logger, message string, attrs ...any) {
	p.hold(&p.stopped, holdCode(err))
	log.Error(message, append(attrs, "partition", p.String(), "hold", holdCode(err), "reason", err)...)
}

// hold begins a hold, unless it has begun already.
func (p *partition) hold(h *held, code string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if h.code != code {
		*h = held{code, time.Now()}
	}
}

// progress says that the worker goes on, and the timestamp of the first message that it has left; zero: none.
func (p *partition) progress(front time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waits, p.front = held{}, front
}
