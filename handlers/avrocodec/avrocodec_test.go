package avrocodec_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"github.com/twmb/avro"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/handlers"
	"github.com/firstseen/firstseen/handlers/avrocodec"
)

var schema = avro.MustParse(`{"type": "record", "name": "Payment", "fields": [
	{"name": "account", "type": "string"},
	{"name": "money", "type": {"type": "record", "name": "Money", "fields": [
		{"name": "amount", "type": "long"}, {"name": "currency", "type": "string"}]}}]}`)

type money struct {
	Amount   int64  `avro:"amount"`
	Currency string `avro:"currency"`
}

type payment struct {
	Account string `avro:"account"`
	Money   money  `avro:"money"`
}

func encoded(v any) []byte {
	value, err := schema.Encode(v)
	if err != nil {
		panic(err)
	}
	return value
}

func Example() {
	h := handlers.Typed(avrocodec.Decoder[payment]{Schema: schema},
		func(_ context.Context, _ pgx.Tx, _ dedup.Message, p payment) error {
			fmt.Println(p.Account, p.Money.Amount, p.Money.Currency)
			return nil
		})
	value := encoded(&payment{"alice", money{12, "EUR"}})
	fmt.Println(h.Handle(context.Background(), nil, dedup.Message{Value: value}))
	fmt.Println(h.Handle(context.Background(), nil, dedup.Message{Value: value[:8]}))
	// Output:
	// alice 12 EUR
	// <nil>
	// read Avro: it ends too early, in field money.currency, in a string
}

func TestErrorSaysWhereTheFaultIsAndNeverWhatIsThere(t *testing.T) {
	type small struct {
		Money struct {
			Amount   int8   `avro:"amount"`
			Currency string `avro:"currency"`
		} `avro:"money"`
	}
	whole := encoded(&payment{"secret", money{777, "secret"}})
	_, err := handlers.Decode(avrocodec.Decoder[small]{Schema: schema}, dedup.Message{Value: whole})
	require.ErrorContains(t, err, "read Avro: long in field money.amount, want int8")
	require.NotContains(t, err.Error(), "777")
	decoder := avrocodec.Decoder[payment]{Schema: schema}
	_, err = handlers.Decode(decoder, dedup.Message{Value: append(whole, 0)})
	require.ErrorContains(t, err, fmt.Sprintf("behind its end, at byte %d of %d", len(whole), len(whole)+1))
	_, err = handlers.Decode(decoder, dedup.Message{Value: append([]byte{0, 0, 0, 0, 7}, whole...)})
	require.ErrorContains(t, err, "starts as Confluent framing does, schema ID 7")
	require.Equal(t, "undecodable", handlers.ReasonOf(err))
}
