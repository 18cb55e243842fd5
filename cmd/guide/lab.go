package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/segmentio/kafka-go"

	"github.com/firstseen/firstseen/dedup/wait"
)

const topic = "payments"

// payment is a message's value.
type payment struct {
	ID      string `json:"id"`
	Account string `json:"account"`
	Amount  int    `json:"amount"`
}

// lab is a broker and a database to try things on.
type lab struct {
	broker string
	client *kafka.Client
	pool   *pgxpool.Pool
}

func openLab(ctx context.Context, broker, dsn string) (*lab, error) {
	if broker == "" || dsn == "" {
		return nil, errors.New("set KAFKA to a broker's address and POSTGRES to a connection string")
	}
	pool, err := pgxpool.New(ctx, dsn)
	if err != nil {
		return nil, err
	}
	return &lab{broker: broker,
		client: &kafka.Client{Addr: kafka.TCP(broker), Timeout: 10 * time.Second}, pool: pool}, nil
}

func (l *lab) setUp(ctx context.Context) error {
	answer, err := l.client.CreateTopics(ctx, &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{
		{Topic: topic, NumPartitions: 2, ReplicationFactor: 1}}})
	if err != nil {
		return fmt.Errorf("create topic %s: %w", topic, err)
	}
	if err := answer.Errors[topic]; err != nil && !errors.Is(err, kafka.TopicAlreadyExists) {
		return fmt.Errorf("create topic %s: %w", topic, err)
	}
	_, err = l.pool.Exec(ctx, setupSQL)
	return err
}

// setupSQL makes what belongs to the consumer that was there before.
const setupSQL = `
	create schema if not exists billing;
	create table if not exists billing.accounts (name text primary key, balance int not null default 0);
	create table if not exists billing.seen (id text primary key);
	insert into billing.accounts (name) values ('alice'), ('bob') on conflict do nothing`

// produce sends payments with their ID in the header message-id and their account as the key. Without an account they
// go to alice and bob in turn.
func (l *lab) produce(ctx context.Context, first, last int, account string) error {
	w := &kafka.Writer{Addr: kafka.TCP(l.broker), Topic: topic, Balancer: &kafka.Hash{},
		BatchTimeout: 10 * time.Millisecond,
		RequiredAcks: kafka.RequireAll}
	var messages []kafka.Message
	for i := first; i <= last; i++ {
		p := payment{ID: fmt.Sprintf("p-%d", i), Account: account, Amount: 1}
		if account == "" {
			p.Account = []string{"alice", "bob"}[i%2]
		}
		value, err := json.Marshal(p)
		if err != nil {
			return err
		}
		messages = append(messages, kafka.Message{Key: []byte(p.Account), Value: value,
			Headers: []kafka.Header{{Key: "message-id", Value: []byte(p.ID)}}})
	}
	return errors.Join(w.WriteMessages(ctx, messages...), w.Close())
}

func (l *lab) openAccount(ctx context.Context, name string) error {
	_, err := l.pool.Exec(ctx, `insert into billing.accounts (name) values ($1) on conflict do nothing`, name)
	return err
}

func (l *lab) runSQL(ctx context.Context, file string) error {
	text, err := os.ReadFile(file) //nolint:gosec // the reader says which
	if err != nil {
		return err
	}
	_, err = l.pool.Exec(ctx, string(text))
	return err
}

// query prints each row as a line.
func (l *lab) query(ctx context.Context, out io.Writer, sql string) error {
	rows, err := l.pool.Query(ctx, sql)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		values, err := rows.Values()
		if err != nil {
			return err
		}
		words := make([]string, len(values))
		for i, v := range values {
			words[i] = fmt.Sprint(v)
		}
		if _, err := fmt.Fprintln(out, strings.Join(words, " ")); err != nil {
			return err
		}
	}
	return rows.Err()
}

// await returns when the group has committed the topic's ends and firstseen has nothing parked.
func (l *lab) await(ctx context.Context, group string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		done, err := l.caughtUp(ctx, group)
		if done || err != nil {
			return err
		}
		if !wait.Sleep(ctx, 50*time.Millisecond) {
			return fmt.Errorf("group %s has not caught up: %w", group, ctx.Err())
		}
	}
}

func (l *lab) caughtUp(ctx context.Context, group string) (bool, error) {
	ends, err := l.client.ListOffsets(ctx, &kafka.ListOffsetsRequest{Topics: map[string][]kafka.OffsetRequest{
		topic: {kafka.LastOffsetOf(0), kafka.LastOffsetOf(1)}}})
	if err != nil {
		return false, err
	}
	committed, err := l.client.OffsetFetch(ctx, &kafka.OffsetFetchRequest{GroupID: group,
		Topics: map[string][]int{topic: {0, 1}}})
	if err != nil {
		return false, err
	}
	if committed.Error != nil { // a new group's coordinator takes a moment
		return false, nil
	}
	at := map[int]int64{}
	for _, p := range committed.Topics[topic] {
		at[p.Partition] = p.CommittedOffset
	}
	for _, end := range ends.Topics[topic] {
		if end.Error != nil {
			return false, end.Error
		}
		if end.LastOffset > 0 && at[end.Partition] < end.LastOffset {
			return false, nil
		}
	}
	return l.nothingParked(ctx)
}

func (l *lab) nothingParked(ctx context.Context) (bool, error) {
	var there, none bool
	err := l.pool.QueryRow(ctx, `select to_regclass('firstseen.parked') is not null`).Scan(&there)
	if err != nil || !there {
		return true, err
	}
	err = l.pool.QueryRow(ctx, `select not exists (select from firstseen.parked)`).Scan(&none)
	return none, err
}
