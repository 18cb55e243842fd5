package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/segmentio/kafka-go"
)

// byHand books payments: a transaction for each message, with a table of what was seen.
func byHand(ctx context.Context, pool *pgxpool.Pool, broker string) error {
	reader := kafka.NewReader(kafka.ReaderConfig{Brokers: []string{broker}, GroupID: "billing", Topic: "payments",
		StartOffset: kafka.FirstOffset, MaxWait: time.Second})
	defer func() { _ = reader.Close() }()
	for {
		m, err := reader.FetchMessage(ctx)
		if err != nil {
			return err
		}
		if err := bookByHand(ctx, pool, m.Value); err != nil {
			return err // and what now? it comes again, and stops everything behind it
		}
		if err := reader.CommitMessages(ctx, m); err != nil {
			return err
		}
	}
}

func bookByHand(ctx context.Context, pool *pgxpool.Pool, value []byte) error {
	var p payment
	if err := json.Unmarshal(value, &p); err != nil {
		return err
	}
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, `insert into billing.seen (id) values ($1) on conflict do nothing`, p.ID)
		if err != nil || tag.RowsAffected() == 0 {
			return err
		}
		tag, err = tx.Exec(ctx,
			`update billing.accounts set balance = balance + $2 where name = $1`, p.Account, p.Amount)
		if err == nil && tag.RowsAffected() == 0 {
			err = fmt.Errorf("no account %s", p.Account)
		}
		return err
	})
}
