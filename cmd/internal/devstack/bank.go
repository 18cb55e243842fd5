package devstack

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/wait"
	"github.com/firstseen/firstseen/handlers"
)

// accounts are numbered from 0.
const accounts = 1000

// movement is a message's value: an amount into or out of an account. The account is the message's key too.
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
		wait.Sleep(ctx, time.Second)
	}
}

// bankTables are the handler's tables, and a count of what the consumer took. No unique key guards movements: a second
// effect must show. The trigger adds up by how much each committed transaction moved its partition's position in the first
// topic forward; a move back, which has messages delivered again, and a first setting count for nothing.
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
for each row when (new.next_offset > old.next_offset and new.topic = 'TOPIC') execute function take();`

// createBank makes the tables in a schema of their own.
func createBank(ctx context.Context, db *pgxpool.Pool, n names) error {
	_, err := db.Exec(ctx, `create schema `+pgx.Identifier{n.Bank}.Sanitize())
	if err == nil {
		_, err = db.Exec(ctx, strings.Replace(bankTables, "TOPIC", n.Topic, 1))
	}
	if err == nil {
		_, err = db.Exec(ctx, `insert into accounts (account) select generate_series(0, $1::int - 1)`, accounts)
	}
	if err != nil {
		return fmt.Errorf("create schema %s: %w", n.Bank, err)
	}
	return nil
}

// refusedAccount is the one that the handler's SQL can be made to fail for. It is a busy one: of so many movements one
// is its own, beside those that are by chance.
const (
	refusedAccount = 7
	busyEvery      = 50
)

// refusal is a fault in the handler's SQL, for one account. There is no trigger while nothing is to fail.
var refusal = fmt.Sprintf(`
create or replace function refuse() returns trigger language plpgsql as $$
begin
	raise exception 'account %% is closed, as the page wants it', new.account;
end
$$;
create or replace trigger refuse before insert on movements
for each row when (new.account = %d) execute function refuse();`, refusedAccount)

// refuse has the handler fail for the one account, and allow ends that.
func refuse(ctx context.Context, db *pgxpool.Pool) error {
	if _, err := db.Exec(ctx, refusal); err != nil {
		return fmt.Errorf("close account %d: %w", refusedAccount, err)
	}
	return nil
}

func allow(ctx context.Context, db *pgxpool.Pool) error {
	if _, err := db.Exec(ctx, `drop trigger if exists refuse on movements`); err != nil {
		return fmt.Errorf("open account %d: %w", refusedAccount, err)
	}
	return nil
}

// booked counts effects and messages in Postgres, all at one moment.
type booked struct {
	Effects  int64           // rows in movements
	Balance  int64           // over all accounts
	New      int64           // rows in the first consumer's inbox, parked ones included
	Parked   int64           // messages that wait for another try
	Waiting  int64           // the sum of their amounts
	Dead     int64           // messages that were given up
	Received int64           // messages that committed transactions took, each as often as it was taken
	Reached  map[int32]int64 // by partition, the offset after the last message ever taken
}

const selectBooked = `select
	(select count(*) from movements),
	(select coalesce(sum(balance), 0)::bigint from accounts),
	(select count(*) from inbox i where i.scope_id in (select scope_id from scopes where inbox = 'dev'))
		+ (select count(*) from parked p where p.scope_id in (select scope_id from scopes where inbox = 'dev'))
		+ (select count(*) from dead_letters d where d.scope_id in (select scope_id from scopes where inbox = 'dev')),
	(select count(*) from parked),
	(select coalesce(sum((convert_from(payload, 'UTF8')::jsonb->>'amount')::bigint), 0)::bigint from parked),
	(select count(*) from dead_letters),
	(select coalesce(sum(received), 0)::bigint from taken),
	array(select "partition" from taken order by "partition"),
	array(select reached from taken order by "partition")`

func readBooked(ctx context.Context, db *pgxpool.Pool) (b booked, err error) {
	var partitions []int32
	var reached []int64
	err = db.QueryRow(ctx, selectBooked).Scan(&b.Effects, &b.Balance, &b.New, &b.Parked, &b.Waiting, &b.Dead,
		&b.Received, &partitions, &reached)
	if err != nil {
		return b, fmt.Errorf("read what was booked: %w", err)
	}
	b.Reached = map[int32]int64{}
	for i, p := range partitions {
		b.Reached[p] = reached[i]
	}
	return b, nil
}
