package main

import (
	"context"
	"log/slog"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/firstseen/firstseen/cmd/internal/config"
	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/holds"
	"github.com/firstseen/firstseen/handlers"
)

// newProcessor makes what messages are processed with: all handlers of the config or, where only is not empty, that one.
func newProcessor(ctx context.Context, cfg config.Config, pool *pgxpool.Pool, store *dedup.Store, only string, waiting *holds.Registry, log *slog.Logger) (*handlers.Processor, error) {
	registry, err := registryOf(ctx, cfg, pool, only)
	if err != nil {
		return nil, err
	}
	return handlers.NewProcessor(handlers.Config{Store: store, Handlers: registry, HandlerTimeout: cfg.Timeouts.Handler, Holds: waiting, Logger: log})
}

// registryOf makes the config's handlers, or, where only is not empty, the one of that name.
func registryOf(ctx context.Context, cfg config.Config, pool *pgxpool.Pool, only string) (*handlers.Registry, error) {
	registrations, err := cfg.Registrations(func(name string) (handlers.BatchHandler, error) {
		return handlers.NewSQL(ctx, pool, cfg.Postgres.Schema, name)
	})
	if err != nil {
		return nil, err
	}
	registry := &handlers.Registry{}
	for _, r := range registrations {
		if only != "" && r.Name != only {
			continue
		}
		if err := registry.Add(r); err != nil {
			return nil, err
		}
	}
	return registry, nil
}
