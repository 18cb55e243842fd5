package main

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/firstseen/firstseen/cmd/internal/config"
	"github.com/firstseen/firstseen/handlers"
)

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
