package crashtest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/firstseen/firstseen/consumer/crashtest/internal/receiver"
	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/failure"
	"github.com/firstseen/firstseen/dedup/wait"
	"github.com/firstseen/firstseen/handlers"
)

// Webhook is a handler that posts messages to a URL.
type Webhook struct {
	// Handler is its name.
	Handler string
	// Ordering is the handler's: messages that wait for each other are sent in the order of their offsets.
	Ordering dedup.Ordering
	// Receiver is a function in Postgres that stands for what is at the URL, as schema.name: it is called with each
	// call's Idempotency-Key, a text or uuid, and its body, a bytea, text, json or jsonb, in a transaction of its own. An
	// error of it is a 500 or, with handlers.SQLStatePermanent, a 422. Default: each call is answered well.
	Receiver string
}

// selectReceiver finds a function, and quotes its name.
const selectReceiver = `select format('%I.%I', n.nspname, p.proname)
	from pg_proc p join pg_namespace n on n.oid = p.pronamespace where p.oid = $1::text::regproc`

// findReceivers makes statements of the receivers' functions.
func (s *stack) findReceivers(ctx context.Context) error {
	s.receivers = map[string]string{}
	conn, err := pgx.Connect(ctx, s.dsn(template))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	for _, w := range s.config.Webhooks {
		if w.Receiver == "" {
			continue
		}
		var name string
		err := conn.QueryRow(ctx, selectReceiver, w.Receiver).Scan(&name)
		if err == nil {
			s.receivers[w.Handler] = "select " + name + "($1, $2)"
			err = takesACall(ctx, conn, s.receivers[w.Handler])
		}
		if err != nil {
			return fmt.Errorf("the receiver of webhook %s is to be a function %s(key, body): %w", w.Handler, w.Receiver, err)
		}
	}
	return nil
}

// takesACall says what is wrong with the parameters of a statement.
func takesACall(ctx context.Context, conn *pgx.Conn, statement string) error {
	prepared, err := conn.Prepare(ctx, "", statement)
	if err != nil {
		return err
	}
	ofKey := []uint32{pgtype.TextOID, pgtype.VarcharOID, pgtype.UUIDOID}
	ofBody := []uint32{pgtype.ByteaOID, pgtype.TextOID, pgtype.VarcharOID, pgtype.JSONOID, pgtype.JSONBOID}
	if !slices.Contains(ofKey, prepared.ParamOIDs[0]) || !slices.Contains(ofBody, prepared.ParamOIDs[1]) {
		return errors.New("the key is to be text or uuid, and the body bytea, text, json or jsonb")
	}
	return nil
}

// openReceiver starts what webhooks call, where there are any.
func (t *trial) openReceiver() (err error) {
	if len(t.s.config.Webhooks) > 0 {
		t.receiver, err = receiver.Open(receiver.Config{Handle: t.receive, Fails: t.plan.refuse, Seed: t.plan.seed})
	}
	return err
}

// receive does what the user's receiver does with a call.
func (t *trial) receive(ctx context.Context, c *receiver.Call) error {
	known, err := t.knows(ctx, c.Key)
	c.Early = err == nil && !known
	statement := t.s.receivers[c.Handler]
	if statement == "" {
		return nil
	}
	return refused(inPostgres(ctx, t.db, statement, c.Key, c.Body))
}

// knows says whether a message was accepted, by its ID: a position won't do, for whoever takes a partition over may begin
// before it.
func (t *trial) knows(ctx context.Context, id string) (known bool, err error) {
	query := `select exists (select from ` + t.s.own("message_dedup") + ` where message_id = $1::text::uuid)`
	err = t.db.QueryRow(ctx, query, id).Scan(&known)
	return known, err
}

// inPostgres executes a statement, again where Postgres was away: a receiver has the patience.
func inPostgres(ctx context.Context, db *pgxpool.Pool, statement string, args ...any) error {
	for {
		_, err := db.Exec(ctx, statement, args...)
		var of *pgconn.PgError
		if err == nil || errors.As(err, &of) && !strings.HasPrefix(of.Code, "57P") {
			return err
		}
		if !wait.Sleep(ctx, 20*time.Millisecond) {
			return err
		}
	}
}

// refused marks the error of a function that says that trying again is no use.
func refused(err error) error {
	if failure.Code(err) == handlers.SQLStatePermanent {
		return &receiver.RefusedError{Err: err}
	}
	return err
}

// calls is the name of a table that is none of Postgres': what webhooks have sent, once for each message, key and body.
const calls = "webhooks"

// Some of its columns. The last two say of a call what is promised: whether it came after those that its message waits
// for, and after it was accepted.
const (
	callKey      = 3
	callInOrder  = 6
	callAccepted = 7
)

func newCalls() *table {
	t := &table{name: calls, key: []int{0, 1, 2, callKey}}
	for _, name := range []string{"handler", "topic", "tenant", "idempotency_key", "id", "body", "in_order", "accepted"} {
		t.columns = append(t.columns, column{name: name})
	}
	return t
}

// addCalls adds what webhooks have sent, and counts what came again.
func (t *trial) addCalls() {
	if t.receiver == nil {
		return
	}
	t.receiver.Close()
	all, seen, order := newCalls(), map[string]bool{}, t.newOrder()
	for _, c := range t.receiver.Calls() {
		row := row(&c)
		if slices.Contains(t.s.config.Positions, c.Topic) {
			row[callKey] = "of its position"
		}
		text := strings.Join(append(row, c.Key, fmt.Sprint(c.Partition, c.Offset)), "\x00\x00")
		if seen[text] {
			t.run.Repeated++
			continue
		}
		seen[text] = true
		row[callInOrder] = strconv.FormatBool(order.keeps(&c))
		all.rows = append(all.rows, row)
	}
	slices.SortFunc(all.rows, slices.Compare)
	t.holds.list = append(t.holds.list, all)
}

// row is a call as a row. What is not known of it is null.
func row(c *receiver.Call) []string {
	body := null
	if c.Body != nil {
		body = string(c.Body)
	}
	return []string{c.Handler, c.Topic, c.Tenant, c.Key, cmp.Or(c.RawID, null), body, null, strconv.FormatBool(!c.Early)}
}

// order is the order of calls.
type order struct {
	of   map[string]dedup.Ordering // handlers
	keys map[origin][]byte         // messages'
	last map[lane]int64            // offsets
}

type lane struct {
	handler string
	id      uuid.UUID
}

func (t *trial) newOrder() order {
	o := order{map[string]dedup.Ordering{}, map[origin][]byte{}, map[lane]int64{}}
	for _, w := range t.s.config.Webhooks {
		o.of[w.Handler] = w.Ordering
	}
	for _, r := range t.records {
		o.keys[origin{place{r.Topic, r.Partition}, r.Offset}] = r.Key
	}
	return o
}

// keeps says whether a call comes after those of messages that its own is to wait for.
func (o *order) keeps(c *receiver.Call) bool {
	id, _ := uuid.Parse(c.Key)
	m := &dedup.Message{Topic: c.Topic, Partition: c.Partition, ID: id,
		Key: o.keys[origin{place{c.Topic, c.Partition}, c.Offset}]}
	at := lane{c.Handler, o.of[c.Handler].Lane(m)}
	last, known := o.last[at]
	o.last[at] = max(last, c.Offset)
	return !known || last <= c.Offset
}

// promised has calls be as is promised: what is right is not what a run without faults happens to do.
func (t *tables) promised() {
	for _, one := range t.list {
		if one.name != calls {
			continue
		}
		for _, row := range one.rows {
			row[callInOrder], row[callAccepted] = "true", "true"
		}
	}
}

// lookAtWebhooks tells of receivers that nothing stands for.
func (s *stack) lookAtWebhooks(r *Result) {
	for _, w := range s.config.Webhooks {
		if w.Receiver == "" {
			r.warn("what webhook %s calls has no function that stands for it: "+
				"whether its receiver takes the Idempotency-Key into account is not tried", quoted(w.Handler))
		}
	}
}
