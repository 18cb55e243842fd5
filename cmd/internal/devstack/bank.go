package devstack

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/handlers"
)

// accounts is how many accounts there are, from number 0.
const accounts = 1000

// movement is what a message says: an amount into or out of an account. The account is the message's key too.
type movement struct {
	ID      uuid.UUID `json:"id"`
	Account int       `json:"account"`
	Amount  int64     `json:"amount"`
	Text    string    `json:"text"`
}

// book is the handler: plain inserts and increments, with nothing in them that would notice a second time. It fails
// on a share of its calls, by chance.
func book(kind string, fail float64) handlers.BatchHandler {
	if kind == HandlerHang {
		return handlers.Each(handlers.HandlerFunc(func(ctx context.Context, tx pgx.Tx, m dedup.Message) error {
			hang(ctx)
			b := &pgx.Batch{}
			if err := enter(b, m, fail); err != nil {
				return err
			}
			return tx.SendBatch(ctx, b).Close()
		}))
	}
	return handlers.Queue(handlers.QueuedFunc(func(b *pgx.Batch, m dedup.Message) error { return enter(b, m, fail) }))
}

var errByChance = errors.New("failed by chance, as --fail wants it")

// enter queues what books one movement.
func enter(b *pgx.Batch, m dedup.Message, fail float64) error {
	var mv movement
	if err := json.Unmarshal(m.Value, &mv); err != nil {
		return fmt.Errorf("read movement: %w", err)
	}
	if rand.Float64() < fail {
		return errByChance
	}
	b.Queue(`insert into movements (id, account, amount) values ($1, $2, $3)`, mv.ID, mv.Account, mv.Amount)
	b.Queue(`update accounts set balance = balance + $2 where account = $1`, mv.Account, mv.Amount)
	return nil
}

// hang waits for a second, once in a thousand times.
func hang(ctx context.Context) {
	if rand.IntN(1000) == 0 {
		pause(ctx, time.Second)
	}
}

// bankTables are the handler's tables, and a count of what the consumer took. No unique key guards movements: a second
// effect must show. The trigger adds up by how much each committed transaction moved its partition's position
// forward; a move back, which has messages delivered again, and a first setting count for nothing.
const bankTables = `
create table accounts (account int primary key, balance bigint not null default 0) with (fillfactor = 50);
create table movements (
	seq bigint generated always as identity, id uuid not null, account int not null, amount bigint not null,
	booked_at timestamptz not null default now());
create table taken (
	"partition" int primary key, received bigint not null, reached bigint not null) with (fillfactor = 50);

create function take() returns trigger language plpgsql
set search_path from current
as $$
begin
	insert into taken as t values (new."partition", new.next_offset - old.next_offset, new.next_offset)
	on conflict ("partition") do update
	set received = t.received + excluded.received, reached = greatest(t.reached, excluded.reached);
	return null;
end
$$;
create trigger take after update of next_offset on positions
for each row when (new.next_offset > old.next_offset) execute function take();`

// createBank makes the tables in a schema of their own.
func createBank(ctx context.Context, db *pgxpool.Pool, schema string) error {
	_, err := db.Exec(ctx, `create schema `+pgx.Identifier{schema}.Sanitize())
	if err == nil {
		_, err = db.Exec(ctx, bankTables)
	}
	if err == nil {
		_, err = db.Exec(ctx, `insert into accounts (account) select generate_series(0, $1::int - 1)`, accounts)
	}
	if err != nil {
		return fmt.Errorf("create schema %s: %w", schema, err)
	}
	return nil
}

// booked is what Postgres says has happened, all at one moment.
type booked struct {
	Effects  int64           // rows in movements
	Balance  int64           // over all accounts
	New      int64           // rows in the inbox, parked ones included
	Parked   int64           // messages that wait for another try
	Dead     int64           // messages that were given up
	Received int64           // messages that committed transactions took, each as often as it was taken
	Reached  map[int32]int64 // by partition, the offset after the last message ever taken
}

const selectBooked = `select
	(select count(*) from movements),
	(select coalesce(sum(balance), 0)::bigint from accounts),
	(select count(*) from inbox) + (select count(*) from parked) + (select count(*) from dead_letters),
	(select count(*) from parked),
	(select count(*) from dead_letters),
	(select coalesce(sum(received), 0)::bigint from taken),
	array(select "partition" from taken order by "partition"),
	array(select reached from taken order by "partition")`

func readBooked(ctx context.Context, db *pgxpool.Pool) (b booked, err error) {
	var partitions []int32
	var reached []int64
	err = db.QueryRow(ctx, selectBooked).Scan(&b.Effects, &b.Balance, &b.New, &b.Parked, &b.Dead, &b.Received,
		&partitions, &reached)
	if err != nil {
		return b, fmt.Errorf("read what was booked: %w", err)
	}
	b.Reached = map[int32]int64{}
	for i, p := range partitions {
		b.Reached[p] = reached[i]
	}
	return b, nil
}
