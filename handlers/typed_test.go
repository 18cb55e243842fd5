package handlers_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/deduptest"
	"github.com/firstseen/firstseen/handlers"
	"github.com/firstseen/firstseen/handlers/handlertest"
)

type order struct {
	Lines []struct {
		Item   string           `json:"item"`
		Amount int8             `json:"amount"`
		Prices map[string]int64 `json:"prices"`
	} `json:"lines"`
	At   time.Time `json:"at"`
	Rule picky     `json:"rule"`
}

// picky takes an object with the member a only, and says what it has found.
type picky struct{}

func (*picky) UnmarshalJSON(doc []byte) error {
	var members map[string]any
	if err := json.Unmarshal(doc, &members); err != nil {
		return err
	}
	if members["a"] == nil {
		return fmt.Errorf("no a in %s", doc)
	}
	return nil
}

func TestErrorOfJSONSaysWhereTheFaultIsAndNeverWhatIsThere(t *testing.T) {
	for value, want := range map[string]string{
		`{"lines": [{"item": "secret"}, {"item": "x", "amount": "secret"}]}`: `read JSON: string at "/lines/1/amount", want int8`,
		`{"lines": [{"amount": 777}]}`:                                       `read JSON: number at "/lines/0/amount", want int8`,
		`{"lines": [{"prices": {"secret@example.com": "x"}}]}`:               `read JSON: string at "/lines/0/prices/*", want int64`,
		`{"lines": {}}`:              `read JSON: object at "/lines", want []struct`,
		`{"at": "secret"}`:           `at "/at" is refused by its type`,
		`{"rule": {"secret": 1}}`:    `at "/rule" is refused by its type`,
		`["secret"]`:                 `read JSON: array at "", want handlers_test.order`,
		`{"at": secret}`:             `it is broken at byte 8 of 14`,
		`{"lines": [`:                `ends too early, at byte 11`,
		"":                           `ends too early, at byte 0`,
		"\x00\x00\x00\x00\x2a{\"a\"": `it is broken at byte 1 of 9; it starts as Confluent framing does, schema ID 42, and no registry is configured for it`,
	} {
		_, err := handlers.Decode(handlers.JSONDecoder[order]{}, dedup.Message{Topic: "orders", Value: []byte(value)})
		require.ErrorContains(t, err, want, value)
		require.NotContains(t, err.Error(), "secret", value)
		require.NotContains(t, err.Error(), "777", value)
		require.Equal(t, "undecodable", handlers.ReasonOf(err))
	}
}

// Whatever is broken, and wherever, nothing of the document but names of the type's fields comes out.
func TestErrorOfJSONNeverQuotesTheDocument(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		secret := fmt.Sprintf("s%016x", rand.Uint64()) //nolint:gosec // it is no secret
		valid := `{"lines":[{"item":"` + secret + `","prices":{"` + secret + `":"` + secret + `"}}],"at":"` + secret +
			`","rule":{"` + secret + `":1},"` + secret + `":[]}`
		at := rapid.IntRange(0, len(valid)).Draw(t, "at")
		doc := valid[:at] + rapid.SampledFrom([]string{"", "x", "\"", "}", "[", ",", "\x00"}).Draw(t, "put") + valid[at:]
		_, err := handlers.Decode(handlers.JSONDecoder[order]{}, dedup.Message{Value: []byte(doc)})
		if err != nil && strings.Contains(err.Error(), secret[1:]) {
			t.Fatalf("%s: %v", doc, err)
		}
	})
}

func TestTombstoneIsUndecodableAndNotZero(t *testing.T) {
	called := false
	h := handlers.JSON(func(context.Context, pgx.Tx, dedup.Message, *order) error {
		called = true
		return nil
	})
	err := h.Handle(t.Context(), nil, dedup.Message{})
	require.ErrorContains(t, err, "tombstone")
	require.Equal(t, "undecodable", handlers.ReasonOf(err))
	require.False(t, called)
	require.NoError(t, h.Handle(t.Context(), nil, dedup.Message{Value: []byte("null")}))
	require.True(t, called, "null is a value of JSON")
}

// away is a decoder that lacks what it needs.
type away struct{}

func (away) Decode(dedup.Message) (int, error) {
	return 0, handlers.Unavailable(errors.New("no schema registry"))
}

func TestDecoderThatIsNotAvailableIsNoFaultOfTheMessage(t *testing.T) {
	_, err := handlers.Decode(away{}, dedup.Message{Value: []byte("x")})
	require.Equal(t, "unavailable", handlers.ReasonOf(err))
}

func TestUndecodableMessageIsDeadAtOnceAndTheOthersAreHandled(t *testing.T) {
	for name, h := range map[string]handlers.BatchHandler{
		"each": handlers.Each(handlers.JSON(func(ctx context.Context, tx pgx.Tx, _ dedup.Message, n int) error {
			_, err := tx.Exec(ctx, `insert into effects (n) values ($1)`, n)
			return err
		})),
		"queue": handlers.Queue(handlers.QueuedFunc(func(b *pgx.Batch, m dedup.Message) error {
			n, err := handlers.Decode(handlers.JSONDecoder[int]{}, m)
			b.Queue(`insert into effects (n) values ($1)`, n)
			return err
		})),
		"batch": handlers.BatchHandlerFunc(func(ctx context.Context, tx pgx.Tx, ms []dedup.Message) error {
			for _, m := range ms {
				n, err := handlers.Decode(handlers.JSONDecoder[int]{}, m)
				if err != nil {
					return err
				}
				if _, err := tx.Exec(ctx, `insert into effects (n) values ($1)`, n); err != nil {
					return err
				}
			}
			return nil
		}),
	} {
		t.Run(name, func(t *testing.T) {
			db := deduptest.New(t)
			_, err := db.Pool.Exec(t.Context(), `create table effects (n int)`)
			require.NoError(t, err)
			store, err := dedup.Open(t.Context(), db.Pool, dedup.Config{Inbox: "typed"})
			require.NoError(t, err)
			var registry handlers.Registry
			require.NoError(t, registry.Register("h", h, "numbers"))
			p, err := handlers.NewProcessor(handlers.Config{Store: store, Handlers: &registry})
			require.NoError(t, err)
			var b handlers.Batch
			for i, value := range []string{"1", `"2"`, "3", "x", "5"} {
				b.Messages = append(b.Messages, dedup.Message{ID: uuid.New(), Topic: "numbers", Offset: int64(i),
					Value: []byte(value)})
			}
			result, err := p.Process(t.Context(), b)
			require.NoError(t, err)
			require.Equal(t, handlers.Result{New: 3, Dead: 2}, result)
			var effects, dead string
			require.NoError(t, db.Pool.QueryRow(t.Context(),
				`select string_agg(n::text, ' ' order by n) from effects`).Scan(&effects))
			require.Equal(t, "1 3 5", effects)
			require.NoError(t, db.Pool.QueryRow(t.Context(), `select string_agg(reason || attempts, ' ')
				from firstseen.dead_letters`).Scan(&dead))
			require.Equal(t, "undecodable1 undecodable1", dead)
		})
	}
}

func TestMiddlewareSetsTheTenantOfEachMessage(t *testing.T) {
	db := deduptest.New(t)
	_, err := db.Pool.Exec(t.Context(), `create table effects (tenant text)`)
	require.NoError(t, err)
	var took []error
	h := handlers.Each(handlers.Timed(handlers.ForTenant(handlers.HandlerFunc(
		func(ctx context.Context, tx pgx.Tx, _ dedup.Message) error {
			_, err := tx.Exec(ctx, `insert into effects values (current_setting('app.tenant'))`)
			return err
		}), "app.tenant"),
		func(_ context.Context, _ dedup.Message, d time.Duration, err error) { took = append(took, err) }))
	for _, tenant := range []string{"acme", "globex"} {
		require.NoError(t, handlertest.Handle(t, db.Pool, h, dedup.Message{Tenant: tenant}))
	}
	var effects string
	require.NoError(t, db.Pool.QueryRow(t.Context(),
		`select string_agg(tenant, ' ' order by tenant) from effects`).Scan(&effects))
	require.Equal(t, "acme globex", effects)
	require.Equal(t, []error{nil, nil}, took)
}

// A batch handler is given one tenant's messages at a time, in their order.
func TestMiddlewareSetsTheTenantOfEachCallOfABatchHandler(t *testing.T) {
	db := deduptest.New(t)
	_, err := db.Pool.Exec(t.Context(), `create table effects (n serial, tenant text, messages int)`)
	require.NoError(t, err)
	h := handlers.ForTenants(handlers.BatchHandlerFunc(func(ctx context.Context, tx pgx.Tx, ms []dedup.Message) error {
		_, err := tx.Exec(ctx, `insert into effects (tenant, messages) values (current_setting('app.tenant'), $1)`, len(ms))
		return err
	}), "app.tenant")
	var ms []dedup.Message
	for _, tenant := range []string{"acme", "acme", "globex", "acme"} {
		ms = append(ms, dedup.Message{Tenant: tenant})
	}
	require.NoError(t, pgx.BeginFunc(t.Context(), db.Pool, func(tx pgx.Tx) error {
		return h.HandleBatch(t.Context(), tx, ms)
	}))
	var effects string
	require.NoError(t, db.Pool.QueryRow(t.Context(),
		`select string_agg(tenant || messages, ' ' order by n) from effects`).Scan(&effects))
	require.Equal(t, "acme2 globex1 acme1", effects)
}
