package protocodec_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/apipb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/handlers"
	"github.com/firstseen/firstseen/handlers/protocodec"
)

func Example() {
	h := handlers.Typed(protocodec.Decoder[*wrapperspb.Int64Value]{},
		func(_ context.Context, _ pgx.Tx, _ dedup.Message, v *wrapperspb.Int64Value) error {
			fmt.Println(v.GetValue())
			return nil
		})
	value, err := proto.Marshal(wrapperspb.Int64(42))
	fmt.Println(err, h.Handle(context.Background(), nil, dedup.Message{Value: value}))
	fmt.Println(h.Handle(context.Background(), nil, dedup.Message{Value: []byte{8}}))
	// Output:
	// 42
	// <nil> <nil>
	// read Protobuf: it is broken at byte 1, in google.protobuf.Int64Value.value
}

func TestErrorSaysWhereTheFaultIsAndNeverWhatIsThere(t *testing.T) {
	whole, err := proto.Marshal(&apipb.Api{Name: "secret", Methods: []*apipb.Method{{Name: "secret"}}})
	require.NoError(t, err)
	broken := append([]byte{}, whole...)
	broken[len(broken)-len("secret")-1] = 90 // the length of the method's name
	noText := append([]byte{}, whole...)
	noText[len(noText)-1] = 0xff
	for name, value := range map[string][]byte{
		`broken at byte 11, in google.protobuf.Method.name`:                broken,
		`broken at byte 9, in google.protobuf.Api.methods`:                 whole[:12],
		`broken at byte 0, in google.protobuf.Api; it starts as Confluent`: append([]byte{0, 0, 0, 0, 7}, whole...),
		`broken at byte 12, in google.protobuf.Method.name`:                noText,
	} {
		_, err := handlers.Decode(protocodec.Decoder[*apipb.Api]{}, dedup.Message{Value: value})
		require.ErrorContains(t, err, name)
		require.NotContains(t, err.Error(), "secret")
		require.Equal(t, "undecodable", handlers.ReasonOf(err))
	}
}

func FuzzPlaceIsFoundInWhateverComes(f *testing.F) {
	whole, err := proto.Marshal(&apipb.Api{Name: "name", Methods: []*apipb.Method{{Name: "method"}}})
	require.NoError(f, err)
	f.Add(whole)
	f.Add([]byte{0x12, 0x05, 0x0a})
	f.Fuzz(func(t *testing.T, value []byte) {
		_, err := protocodec.Decoder[*apipb.Api]{}.Decode(dedup.Message{Value: value})
		if proto.Unmarshal(value, new(apipb.Api)) == nil {
			require.NoError(t, err)
		} else {
			require.ErrorContains(t, err, "Protobuf")
		}
	})
}
