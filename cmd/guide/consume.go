package main

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/firstseen/firstseen/consumer"
	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/handlers"
)

// bookPayment is the effect. It commits together with the message's ID, or not at all.
func bookPayment(ctx context.Context, tx pgx.Tx, _ dedup.Message, p payment) error {
	if before, err := bookedBefore(ctx, tx, p.ID); err != nil || before {
		return err
	}
	tag, err := tx.Exec(ctx, `update billing.accounts set balance = balance + $2 where name = $1`, p.Account, p.Amount)
	if err == nil && tag.RowsAffected() == 0 {
		err = handlers.Permanent(fmt.Errorf("no account %s", p.Account)) // trying again is no use
	}
	return err
}

// bookedBefore says whether the consumer that was there before has booked a payment. Take it out when no copy of
// a payment of that time can come any more.
func bookedBefore(ctx context.Context, tx pgx.Tx, id string) (before bool, err error) {
	err = tx.QueryRow(ctx, `select exists (select from billing.seen where id = $1)`, id).Scan(&before)
	return before, err
}

// consume books each payment once, until ctx ends.
func consume(ctx context.Context, pool *pgxpool.Pool, broker string) error {
	store, err := dedup.Open(ctx, pool, dedup.Config{Inbox: "billing"})
	if err != nil {
		return err
	}
	var registry handlers.Registry
	book := handlers.Each(handlers.JSON(bookPayment))
	if err := registry.Register("book-payment", book, "payments"); err != nil {
		return err
	}
	processor, err := handlers.NewProcessor(handlers.Config{Store: store, Handlers: &registry})
	if err != nil {
		return err
	}
	kafka := consumer.Connection{Brokers: []string{broker}}
	return consumer.Run(ctx, consumer.Config{Connection: kafka, Group: "billing"}, processor)
}
