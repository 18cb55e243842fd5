package config

import (
	"github.com/firstseen/firstseen/consumer/mask"
	"github.com/firstseen/firstseen/consumer/retention"
	"github.com/firstseen/firstseen/consumer/service"
)

// Service makes what a service.Service can be told anew while the program runs.
func (c Config) Service() service.Settings {
	return service.Settings{
		Health: service.Limits{Window: c.Health.Window, Degraded: service.Limit(c.Health.Degraded),
			Unhealthy: service.Limit(c.Health.Unhealthy)},
		Retention: c.Retention.Policy(),
		Access: service.Access{ReadToken: c.HTTP.ReadToken.Reveal(), WriteToken: c.HTTP.WriteToken.Reveal(),
			Certificates: c.HTTP.ClientCAFile != "", Writers: c.HTTP.Writers, Rate: c.HTTP.Rate},
		Mask:     c.HTTP.Mask.config(),
		Capacity: int64(c.Postgres.Capacity),
	}
}

func (m Mask) config() mask.Config {
	return mask.Config{Values: m.Values, Headers: m.Headers, Keys: m.Keys, ShowErrors: m.ShowErrors}
}

// Policy is what the section asks for.
func (r Retention) Policy() retention.Policy {
	return retention.Policy{IDs: r.IDs, Handlers: r.Handlers, OutboxKeys: r.OutboxKeys, Inbox: r.Inbox,
		Interval: r.Interval, Force: r.Force}
}
