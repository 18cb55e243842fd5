package service

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/firstseen/firstseen/consumer/mask"
	"github.com/firstseen/firstseen/consumer/retention"
)

// Settings are what may change while a program runs: see [Service.Apply]. The zero value has defaults for all of them.
type Settings struct {
	// Health says from where on the program is degraded or unhealthy. Default: DefaultLimits.
	Health Limits
	// Retention says how long what is done is kept. Default: for ever; answers to HTTP requests whose time is over are
	// deleted all the same, hourly.
	Retention retention.Policy
	// Access says who may use the admin API. Default: clients on the same host.
	Access Access
	// Mask says what the admin API hides of messages. Default: nothing.
	Mask mask.Config
	// Capacity is the size of Postgres' disk in bytes, by which it is told when that is full. Default: not known, and not
	// told.
	Capacity int64
}

// Limits say from where on health is degraded or unhealthy. What is sent out of the outbox is held against the same
// limits, by itself.
type Limits struct {
	// Window is the time that the failure ratio and the throughput are taken over. Default 5 minutes.
	Window time.Duration
	// Degraded are the limits beyond which somebody should look, and Unhealthy those beyond which somebody must act.
	Degraded, Unhealthy Limit
}

// Limit are limits of health; 0 is none.
type Limit struct {
	// Backlog counts the messages that wait, in Kafka or parked.
	Backlog int
	// OldestAge is the time that the oldest message has waited.
	OldestAge time.Duration
	// FailureRatio is the share of failed attempts among all, 0 to 1.
	FailureRatio float64
	// DeadLetters counts the messages that went to the dead letters of the inbox within an hour.
	DeadLetters int
}

// DefaultLimits are degraded beyond 100,000 messages that wait, 5 minutes, 5 % of attempts or 10 dead letters an hour,
// and unhealthy beyond half of the attempts, over 5 minutes.
func DefaultLimits() Limits {
	return Limits{Window: 5 * time.Minute,
		Degraded:  Limit{Backlog: 100_000, OldestAge: 5 * time.Minute, FailureRatio: 0.05, DeadLetters: 10},
		Unhealthy: Limit{FailureRatio: 0.5}}
}

// Access says who may use the admin API. The zero value is closed to all but clients on the same host, who may do
// everything; a proxy and a web page there are none. With a token or certificates, who shows one may, wherever it is,
// and nobody else.
type Access struct {
	// ReadToken lets a client read that sends it as a bearer token, WriteToken read and change. They are kept as they
	// are and shown nowhere. At least 16 characters, and not the same. Default none.
	ReadToken, WriteToken string
	// Certificates lets a client read that has shown a certificate, which the server's TLS has verified, and change where
	// its common name is one of Writers.
	Certificates bool
	Writers      []string
	// Rate caps the API's requests a second, all clients together, and by itself the visits of the operator's page.
	// Default 20.
	Rate int
}

// LeastToken is the least length of a token, in characters.
const LeastToken = 16

// Check reports every fault of the settings at once.
func (s Settings) Check() error {
	var faults []error
	for _, token := range []string{s.Access.ReadToken, s.Access.WriteToken} {
		if token != "" && len(token) < LeastToken {
			faults = append(faults, fmt.Errorf("access: a token has less than %d characters", LeastToken))
		}
	}
	if s.Access.ReadToken != "" && s.Access.ReadToken == s.Access.WriteToken {
		faults = append(faults, errors.New("access: read and write token are the same: whoever may read could change"))
	}
	if len(s.Access.Writers) > 0 && !s.Access.Certificates {
		faults = append(faults, errors.New("access: writers have no effect without certificates"))
	}
	if _, err := mask.New(s.Mask); err != nil {
		faults = append(faults, err)
	}
	return errors.Join(faults...)
}

func (s Settings) withDefaults() Settings {
	if s.Health == (Limits{}) {
		s.Health = DefaultLimits()
	}
	s.Health.Window = cmp.Or(s.Health.Window, DefaultLimits().Window)
	s.Access.Rate = cmp.Or(s.Access.Rate, 20)
	return s
}
