package doctor

import (
	"context"
	"errors"
	"fmt"

	"github.com/firstseen/firstseen/handlers"
)

var handlerChecks = []Check{
	{
		Name:  "handlers.functions",
		About: "each handler's function exists, fits, and may be executed by the config's login",
		needs: needsConfig | needsSchema, run: handlersFunctions,
		Do: map[Level]string{Fault: "Create the function, grant execute on it and usage on its schema " +
			"to the config's login, or correct its name in the config. Until then the consumer does not start, " +
			"and one that runs holds the handler's messages."},
	},
	{
		Name: "handlers.webhooks", About: "each webhook's host takes connections from here", needs: needsConfig,
		run: handlersWebhooks,
		Do: map[Level]string{Warning: "See that the receiver runs, and what the network between lets through; " +
			"where this is not the consumer's host, run it there. A private address needs allow_private."},
	},
}

// handlersFunctions looks functions up as `firstseen run` does at its start, for the config's login, whoever asks.
func handlersFunctions(ctx context.Context, p *target, r *report) error {
	conf, err := p.Config.Pool()
	if err != nil {
		return errors.New("the config's connection string can't be read")
	}
	looked := map[string]bool{}
	for _, t := range p.Config.Topics {
		for _, h := range t.Handlers {
			if h.Function == "" || looked[h.Name] {
				continue
			}
			looked[h.Name] = true
			err := handlers.CheckFunction(ctx, p.pool, p.Schema, h.Function, conf.ConnConfig.User)
			switch {
			case ctx.Err() != nil:
				return err
			case err != nil:
				r.fault("handler %s of topic %s: %v", h.Name, t.Label(), err)
			}
		}
	}
	r.ok("functions looked at: %d", len(looked))
	return nil
}

func handlersWebhooks(ctx context.Context, p *target, r *report) error {
	registrations, err := p.Config.Registrations(func(string) (handlers.BatchHandler, error) { return nil, nil })
	if err != nil {
		return fmt.Errorf("a webhook can't be made of the config: %w", err)
	}
	looked := 0
	for _, h := range registrations {
		hook, ok := h.Detached.(*handlers.Webhook)
		if !ok {
			continue
		}
		looked++
		if err := hook.Reach(ctx); err != nil {
			r.warn("handler %s: %v", h.Name, err)
		}
	}
	r.ok("webhooks that take connections: %d", looked)
	return nil
}
