package schemas_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/sr"
	"github.com/twmb/franz-go/pkg/sr/srfake"
	"go.uber.org/goleak"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/handlers"
	"github.com/firstseen/firstseen/handlers/schemas"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const payment = `{"type": "record", "name": "Payment", "namespace": "shop", "fields": [
	{"name": "id", "type": "long"}, {"name": "account", "type": ["null", "string"]},
	{"name": "amount", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}}]}`

const paymentProto = `syntax = "proto3"; package shop;
	message Note { string text = 1; }
	message Payment { int64 id = 1; string account_name = 2; repeated Note notes = 3; message Part { int32 n = 1; } }`

// framed is a value behind Confluent's frame.
func framed(id uint32, value string) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{0}, id), value...)
}

// ofPayment is payment 42 of alice, of 12.30.
const ofPayment = "\x54\x02\x0aalice\x04\x04\xce"

// server stands before a registry: it counts what is asked, and may refuse it.
type server struct {
	*httptest.Server
	registry *srfake.Registry
	asked    atomic.Int32
	down     atomic.Bool
}

func serve(t *testing.T, options ...srfake.Option) *server {
	t.Helper()
	s := &server{registry: srfake.New(options...)}
	t.Cleanup(s.registry.Close)
	s.registry.SeedSchema("payments-value", 1, 7, sr.Schema{Schema: payment, Type: sr.TypeAvro})
	s.registry.SeedSchema("proto-value", 1, 8, sr.Schema{Schema: paymentProto, Type: sr.TypeProtobuf})
	s.registry.SeedSchema("json-value", 1, 9, sr.Schema{Schema: `{"type": "object"}`, Type: sr.TypeJSON})
	to, err := url.Parse(s.registry.URL())
	require.NoError(t, err)
	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) },
		Transport: &http.Transport{DisableKeepAlives: true}}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		s.asked.Add(1)
		if s.down.Load() {
			http.Error(w, "a secret of the proxy", http.StatusBadGateway)
			return
		}
		proxy.ServeHTTP(w, q)
	}))
	t.Cleanup(s.Close)
	return s
}

func open(t *testing.T, cfg schemas.Config) *schemas.Registry {
	t.Helper()
	r, err := schemas.New(cfg)
	require.NoError(t, err)
	t.Cleanup(r.Close)
	return r
}

func read(t *testing.T, f handlers.Format, value []byte, headers ...dedup.Header) (string, error) {
	t.Helper()
	text, err := f.JSON(t.Context(), &dedup.Message{Value: value, Headers: headers})
	return string(text), err
}

func Example() {
	registry := srfake.New() // yours is at https://…
	defer registry.Close()
	registry.SeedSchema("payments-value", 1, 7, sr.Schema{Schema: payment, Type: sr.TypeAvro})

	r, err := schemas.New(schemas.Config{URL: registry.URL()})
	if err != nil {
		panic(err)
	}
	defer r.Close()
	// consumer.Topic{Name: "payments", Format: r.Format(schemas.Confluent)}
	text, err := r.Format(schemas.Confluent).JSON(context.Background(), &dedup.Message{Value: framed(7, ofPayment)})
	fmt.Println(string(text), err)
	// Output: {"id":42,"account":"alice","amount":12.30} <nil>
}

func TestValuesOfEachFormatAreReadAsJSON(t *testing.T) {
	f := open(t, schemas.Config{URL: serve(t).URL}).Format(schemas.Auto)
	for want, value := range map[string][]byte{
		`{"id":42,"account":"alice","amount":12.30}`: framed(7, ofPayment),
		`{"id":-1,"account":null,"amount":-0.01}`:    framed(7, "\x01\x00\x02\xff"),
		`{"text":"hi"}`: framed(8, "\x00\x0a\x02hi"),
		`{"id":"42","account_name":"","notes":[{"text":"hi"}]}`: framed(8, "\x02\x02\x08\x2a\x1a\x04\x0a\x02hi"),
		`{"n":5}`:    framed(8, "\x04\x02\x00\x08\x05"),
		`{"a": [1]}`: framed(9, ` {"a": [1]} `),
	} {
		got, err := read(t, f, value)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
}

func TestASchemaIsAskedForOnce(t *testing.T) {
	s := serve(t)
	r := open(t, schemas.Config{URL: s.URL})
	for range 100 {
		_, err := read(t, r.Format(schemas.Auto), framed(7, ofPayment))
		require.NoError(t, err)
	}
	require.EqualValues(t, 1, s.asked.Load())
}

// The end of one partition is no other's.
func TestWhoeverAskedFirstMayLeaveAndTheOthersGetTheAnswer(t *testing.T) {
	s := serve(t)
	asked, answer := make(chan bool, 1), make(chan bool)
	slow := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		asked <- true
		<-answer
		s.Config.Handler.ServeHTTP(w, q)
	}))
	t.Cleanup(slow.Close)
	f := open(t, schemas.Config{URL: slow.URL, Timeout: 3 * time.Minute}).Format(schemas.Confluent)
	reads := func(ctx context.Context) <-chan error {
		read := make(chan error, 1)
		go func() {
			_, err := f.JSON(ctx, &dedup.Message{Value: framed(7, ofPayment)})
			read <- err
		}()
		return read
	}
	leaving, leave := context.WithCancel(t.Context())
	first := reads(leaving)
	<-asked
	second := reads(t.Context())
	leave()
	err := <-first
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, "unavailable", handlers.ReasonOf(err))
	close(answer)
	require.NoError(t, <-second)
	require.EqualValues(t, 1, s.asked.Load())
}

func TestWhatIsBeingAskedEndsWithTheTimeLimitAndWithClose(t *testing.T) {
	silent := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, q *http.Request) { <-q.Context().Done() }))
	t.Cleanup(silent.Close)
	_, err := read(t, open(t, schemas.Config{URL: silent.URL, Timeout: time.Millisecond}).Format(schemas.Confluent),
		framed(7, ofPayment))
	require.ErrorIs(t, err, context.DeadlineExceeded)
	closed := open(t, schemas.Config{URL: silent.URL, Timeout: 3 * time.Minute})
	time.AfterFunc(10*time.Millisecond, closed.Close)
	_, err = read(t, closed.Format(schemas.Confluent), framed(7, ofPayment))
	require.ErrorIs(t, err, context.Canceled)
}

func TestARegistryThatIsAwayIsNoFaultOfTheMessage(t *testing.T) {
	s := serve(t)
	s.down.Store(true)
	f := open(t, schemas.Config{URL: s.URL}).Format(schemas.Confluent)
	for range 100 {
		_, err := read(t, f, framed(7, ofPayment))
		require.Equal(t, "unavailable", handlers.ReasonOf(err))
		require.ErrorContains(t, err, "ask for schema ID 7: "+s.URL+" answers 502 Bad Gateway")
		require.NotContains(t, err.Error(), "secret")
	}
	require.Less(t, s.asked.Load(), int32(50), "after one in vain there are none for a while")
	s.down.Store(false)
	require.Eventually(t, func() bool {
		got, err := read(t, f, framed(7, ofPayment))
		return err == nil && got != ""
	}, 3*time.Minute, 10*time.Millisecond)
	s.down.Store(true)
	_, err := read(t, f, framed(7, ofPayment))
	require.NoError(t, err, "what is known needs no registry")
}

func TestASchemaThatTheRegistryDoesNotKnowIsTheMessagesFault(t *testing.T) {
	s := serve(t)
	f := open(t, schemas.Config{URL: s.URL}).Format(schemas.Auto)
	for range 10 {
		_, err := read(t, f, framed(99, ofPayment))
		require.Equal(t, "undecodable", handlers.ReasonOf(err))
		require.EqualError(t, err, "the schema registry does not know schema ID 99")
	}
	require.EqualValues(t, 1, s.asked.Load())
}

// A wrong address must not send a topic to the dead letters.
func TestA404OfAnotherServerIsNoAnswerOfARegistry(t *testing.T) {
	other := httptest.NewServer(http.NotFoundHandler())
	defer other.Close()
	r := open(t, schemas.Config{URL: other.URL})
	_, err := read(t, r.Format(schemas.Auto), framed(7, ofPayment))
	require.Equal(t, "unavailable", handlers.ReasonOf(err))
	require.ErrorContains(t, err, "no schema registry answers at this address")
	require.ErrorContains(t, r.Ping(t.Context()), "no schema registry")
}

func TestAFaultIsToldByItsPlaceAndNeverByWhatIsThere(t *testing.T) {
	f := open(t, schemas.Config{URL: serve(t).URL}).Format(schemas.Confluent)
	for want, value := range map[string][]byte{
		"read Avro: it ends too early, at byte 2, in field account; by schema ID 7":            framed(7, "\x54\x02"),
		"read Avro: it goes on behind its end at byte 11; by schema ID 7":                      framed(7, ofPayment+"secret"),
		"read Avro: it has a branch that the schema does not have at byte 1, in field account": framed(7, "\x54\x04secret"),
		"read Avro: it has a text that is not UTF-8 at byte 2, in field account":               framed(7, "\x54\x02\x02\xff"),
		"read Protobuf: it is broken at byte 1, in shop.Note.text; by schema ID 8":             framed(8, "\x00\x0a\x7fsecret"),
		"it names a message that the schema does not have":                                     framed(8, "\x02\x0asecret"),
		"it does not say which message of the schema it is":                                    framed(8, "\xff"),
		"read JSON: it is broken at byte 2 of 9; by schema ID 9":                               framed(9, "{secret}}"),
		"read JSON: it ends too early, at byte 2; by schema ID 9":                              framed(9, `{"`),
		"it has no confluent framing, which its topic has":                                     []byte(`{"a":"secret"}`),
		"its schema ID is 0, which is none":                                                    framed(0, "secret"),
	} {
		_, err := read(t, f, value)
		require.Equal(t, "undecodable", handlers.ReasonOf(err), want)
		require.ErrorContains(t, err, want)
		require.NotContains(t, err.Error(), "secret")
	}
}

func TestAutoLeavesWhatIsNotFramedAsItIs(t *testing.T) {
	f := open(t, schemas.Config{URL: serve(t).URL}).Format("")
	for _, value := range []string{``, `{"a":1}`, "\x00", "\x00\x00\x00\x00\x00\x07"} {
		got, err := read(t, f, []byte(value))
		require.NoError(t, err)
		require.Empty(t, got)
	}
}

func TestReferencesAreFollowed(t *testing.T) {
	s := serve(t)
	s.registry.SeedSchema("money", 1, 20, sr.Schema{Type: sr.TypeAvro,
		Schema: `{"type": "record", "name": "shop.Money", "fields": [{"name": "cents", "type": "long"}]}`})
	s.registry.SeedSchema("order", 1, 21, sr.Schema{Type: sr.TypeAvro,
		Schema:     `{"type": "record", "name": "shop.Order", "fields": [{"name": "price", "type": "Money"}, {"name": "rest", "type": "shop.Money"}]}`,
		References: []sr.SchemaReference{{Name: "shop.Money", Subject: "money", Version: 1}}})
	s.registry.SeedSchema("moneyproto", 1, 22, sr.Schema{Type: sr.TypeProtobuf,
		Schema: `syntax = "proto3"; package shop; message Money { int32 cents = 1; }`})
	s.registry.SeedSchema("orderproto", 1, 23, sr.Schema{Type: sr.TypeProtobuf,
		Schema: `syntax = "proto3"; package shop; import "money.proto"; import "google/protobuf/timestamp.proto";
			import "confluent/meta.proto";
			message Order { Money price = 1; google.protobuf.Timestamp at = 2 [(confluent.field_meta) = {doc: "when"}]; }`,
		References: []sr.SchemaReference{{Name: "money.proto", Subject: "moneyproto", Version: 1}}})
	f := open(t, schemas.Config{URL: s.URL}).Format(schemas.Auto)
	got, err := read(t, f, framed(21, "\x0a\x0c"))
	require.NoError(t, err)
	require.Equal(t, `{"price":{"cents":5},"rest":{"cents":6}}`, got)
	got, err = read(t, f, framed(23, "\x00\x0a\x02\x08\x05\x12\x02\x08\x01"))
	require.NoError(t, err)
	require.Equal(t, `{"price":{"cents":5},"at":"1970-01-01T00:00:01Z"}`, got)
}

func TestASchemaThatNothingCanBeMadeOfIsTheMessagesFault(t *testing.T) {
	s := serve(t)
	s.registry.SeedSchema("broken", 1, 30, sr.Schema{Schema: `syntax = "proto3"; message A { B b = 1; }`, Type: sr.TypeProtobuf})
	f := open(t, schemas.Config{URL: s.URL}).Format(schemas.Auto)
	for range 3 {
		_, err := read(t, f, framed(30, "\x00"))
		require.Equal(t, "undecodable", handlers.ReasonOf(err))
		require.ErrorContains(t, err, "it can't be used")
	}
	require.EqualValues(t, 1, s.asked.Load())
}

func TestLogsIn(t *testing.T) {
	s := serve(t, srfake.WithAuth("Bearer right"))
	_, err := read(t, open(t, schemas.Config{URL: s.URL, Token: "right"}).Format(schemas.Auto), framed(7, ofPayment))
	require.NoError(t, err)
	_, err = read(t, open(t, schemas.Config{URL: s.URL, Token: "wrong"}).Format(schemas.Auto), framed(7, ofPayment))
	require.Equal(t, "unavailable", handlers.ReasonOf(err))
	require.ErrorContains(t, err, "it wants another login")
	require.NotContains(t, err.Error(), "wrong")
	s = serve(t, srfake.WithAuth("Basic YWxpY2U6cmlnaHQ="))
	r := open(t, schemas.Config{URL: s.URL, Username: "alice", Password: "right"})
	_, err = read(t, r.Format(schemas.Auto), framed(7, ofPayment))
	require.NoError(t, err)
}

func TestConfigTellsEveryFault(t *testing.T) {
	for want, cfg := range map[string]schemas.Config{
		"a URL is required": {},
		"none of http":      {URL: "registry:8081"},
		"credentials":       {URL: "http://a:b@registry"},
		"a query":           {URL: "http://registry?a=b"},
		"two ways":          {URL: "http://registry", Token: "t", Username: "u"},
		"needs a username":  {URL: "http://registry", Password: "p"},
	} {
		_, err := schemas.New(cfg)
		require.ErrorContains(t, err, want)
	}
}
