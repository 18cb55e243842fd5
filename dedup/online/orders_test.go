package online_test

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/firstseen/firstseen/dedup/online"
)

// These are the steps of docs/TABLES.md, which quotes them.

// addKey is taken before the version is released that writes keys.
func addKey(ctx context.Context, dsn string) error {
	orders, err := online.Open(ctx, dsn, "orders", online.Config{})
	if err != nil {
		return err
	}
	defer orders.Close()
	if err := orders.AddColumn(ctx, "idempotency_key", "text"); err != nil {
		return err
	}
	return orders.AddIndex(ctx, online.Index{Name: "orders_once", Unique: true,
		Columns: "tenant, idempotency_key", Where: "idempotency_key is not null"})
}

// insertOnce inserts an order, or finds the one that its key has inserted. The conflict names no index: the statement
// works before there is one, too.
func insertOnce(ctx context.Context, tx pgx.Tx, tenant, key, item string) (id int64, isNew bool, err error) {
	err = tx.QueryRow(ctx, `
		insert into orders (tenant, idempotency_key, item) values ($1, nullif($2, ''), $3)
		on conflict do nothing
		returning id`, tenant, key, item).Scan(&id)
	if !errors.Is(err, pgx.ErrNoRows) {
		return id, err == nil, err
	}
	err = tx.QueryRow(ctx,
		`select id from orders where tenant = $1 and idempotency_key = $2`, tenant, key).Scan(&id)
	return id, false, err // no rows: another constraint has refused it
}

// oldOrders are those that were inserted without a key.
func oldOrders(progress func(online.Progress)) online.Backfill {
	return online.Backfill{Column: "idempotency_key", Value: "'order-' || id", OnProgress: progress}
}

// giveKeys is taken when the version runs that writes keys.
func giveKeys(ctx context.Context, dsn string, progress func(online.Progress)) error {
	orders, err := online.Open(ctx, dsn, "orders", online.Config{})
	if err != nil {
		return err
	}
	defer orders.Close()
	return orders.Backfill(ctx, oldOrders(progress))
}

// requireKeys is taken when no other version runs any more.
func requireKeys(ctx context.Context, dsn string, progress func(online.Progress)) error {
	orders, err := online.Open(ctx, dsn, "orders", online.Config{})
	if err != nil {
		return err
	}
	defer orders.Close()
	return orders.SetNotNull(ctx, oldOrders(progress))
}
