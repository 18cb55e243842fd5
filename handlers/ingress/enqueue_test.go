package ingress_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/identity"
	"github.com/firstseen/firstseen/handlers"
	"github.com/firstseen/firstseen/handlers/ingress"
)

// Rules of "HTTP enqueue with idempotency key".

const mail = `{"content":{"n":1},"participants":[{"role":"sender","address":"a@x"},{"role":"to","address":"b@x","name":"B"},
	{"role":"bcc","address":"c@x"}]}`

func TestCreateIs201WithTheMessage(t *testing.T) {
	s := newStage(t)
	orders := s.serve()
	made := orders.post("k1", mail)
	require.Equal(t, http.StatusCreated, made.status, made.body)
	require.False(t, made.replayed())
	require.Equal(t, "k1", made.field("idempotencyKey"))
	require.Equal(t, map[string]any{"n": 1.0}, made.field("content"))
	require.Equal(t, "orders", made.field("topic"))
	require.Equal(t, []any{map[string]any{"name": "book", "status": "processed", "attempts": 0.0, "reason": nil}},
		made.field("handlers"))
	require.Equal(t, []any{map[string]any{"role": "sender", "address": "a@x"},
		map[string]any{"role": "to", "address": "b@x", "name": "B"}, map[string]any{"role": "bcc", "address": "c@x"}},
		made.field("participants"))
	require.Equal(t, "/v1/topics/orders/messages/"+made.field("id").(string), made.header.Get("Location"))
	require.NotEmpty(t, made.header.Get("X-Request-Id"))
	s.left(1, 1, 1, 3, 1)
	require.Equal(t, `{"n":1}`, s.text(`select convert_from(value, 'UTF8') from effects`), "the content as it came")
}

func TestLocationIsThereAlsoWhereTheIngressIsMountedBelowAPrefix(t *testing.T) {
	s := newStage(t)
	server := httptest.NewServer(http.StripPrefix("/api", s.serve().handler))
	defer server.Close()
	orders := &service{t: t, url: server.URL + "/api/v1/topics/orders/messages"}
	made := orders.post("k1", mail)
	r, err := http.NewRequest(http.MethodGet, server.URL+made.header.Get("Location"), nil)
	require.NoError(t, err)
	got, err := do(r)
	require.NoError(t, err)
	require.Equal(t, made.body, got.body)
}

func TestReplayIs200WithWhatGetGives(t *testing.T) {
	s := newStage(t)
	orders := s.serve()
	made := orders.post("k1", mail)
	again := orders.post("k1", mail)
	require.Equal(t, http.StatusOK, again.status)
	require.True(t, again.replayed())
	require.Equal(t, made.body, again.body)
	require.Equal(t, made.header.Get("Location"), again.header.Get("Location"))
	require.Equal(t, orders.get(made.header.Get("Location")).body, again.body)
	s.left(1, 1, 1, 3, 1)
}

func TestReplayOfAMessageThatHasGoneOnIsWhatGetGivesNow(t *testing.T) {
	s := newStage(t)
	s.topic.Queued = true
	orders := s.serve()
	made := orders.post("k1", mail)
	pending := orders.get(made.header.Get("Location"))
	require.Contains(t, pending.body, `"status":"pending"`)
	s.work()
	require.Eventually(t, func() bool { return s.count("firstseen.inbox") == 1 }, waitFor, tick)
	now := orders.get(made.header.Get("Location"))
	require.Contains(t, now.body, `"status":"processed"`)
}

func TestSameKeyWithOtherContentGivesTheFirst(t *testing.T) {
	s := newStage(t)
	orders := s.serve()
	made := orders.post("k1", mail)
	other := orders.post("k1", `{"content":{"n":2},"participants":[{"role":"to","address":"z@x"}]}`)
	require.Equal(t, http.StatusOK, other.status)
	require.Equal(t, made.body, other.body)
	require.Equal(t, orders.get(made.header.Get("Location")).body, other.body)
	s.left(1, 1, 1, 3, 1)
}

func TestSameKeyWithOtherContentIsRefusedWhereItIsConfigured(t *testing.T) {
	s := newStage(t)
	s.topic.RefuseOther = true
	orders := s.serve()
	made := orders.post("k1", mail)
	require.Equal(t, http.StatusOK, orders.post("k1", ` `+strings.Replace(mail, `{"n":1}`, `{ "n": 1.0 }`, 1)).status,
		"white space and the spelling of numbers don't matter")
	for _, body := range []string{strings.Replace(mail, `{"n":1}`, `{"n":2}`, 1), strings.Replace(mail, "a@x", "z@x", 1),
		`{"content":{"n":1}}`} {
		other := orders.post("k1", body)
		require.Equal(t, http.StatusConflict, other.status, body)
		require.Equal(t, "idempotency_key_conflict", other.code())
	}
	require.Equal(t, made.body, orders.post("k1", mail).body)
	require.Equal(t, http.StatusOK, orders.post("", strings.Replace(mail, `{"content"`, `{"idempotencyKey":"k1","content"`, 1)).status,
		"where the key is does not matter")
	s.left(1, 1, 1, 3, 1)
}

func TestReplayWritesNothing(t *testing.T) {
	for name, prepare := range map[string]func(*stage){
		"plain":           func(*stage) {},
		"queued":          func(s *stage) { s.topic.Queued = true },
		"conflict":        func(s *stage) { s.topic.RefuseOther = true },
		"fingerprints":    func(s *stage) { s.topic.Fingerprint = identity.FingerprintJSON },
		"dead letter":     func(s *stage) { s.register("book", failing("book", "n", handlers.Permanent(errNo))) },
		"failed":          func(s *stage) { s.register("book", failing("book", "n", errNo)) },
		"several of them": func(s *stage) { s.register("book", effect("book")); s.register("bill", effect("bill")) },
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t)
			prepare(s)
			orders := s.serve()
			made := orders.post("k1", mail)
			require.Less(t, made.status, 300)
			before := s.rows()
			for _, body := range []string{mail, `{"content":"other"}`, `[` + strings.Replace(mail, `{`, `{"idempotencyKey":"k1",`, 1) + `]`} {
				key := "k1"
				if body[0] == '[' {
					key = ""
				}
				require.Less(t, orders.post(key, body).status, 500)
				require.Equal(t, before, s.rows())
			}
		})
	}
}

func TestNoKeyTwiceIsTwoMessages(t *testing.T) {
	s := newStage(t)
	orders := s.serve()
	first, second := orders.post("", mail), orders.post("", mail)
	require.Equal(t, []int{http.StatusCreated, http.StatusCreated}, []int{first.status, second.status})
	require.NotEqual(t, first.field("id"), second.field("id"))
	require.Nil(t, first.field("idempotencyKey"))
	require.EqualValues(t, 7, uuid.MustParse(first.field("id").(string)).Version())
	s.left(2, 2, 2, 6, 2)
}

func TestParallelTwinsAreOneMessage(t *testing.T) {
	s := newStage(t)
	s.cfg.Concurrency = 100
	processes := []*service{s.serve(), s.serve()} // as far as twins know
	const twins = 24
	answers := make([]answer, twins)
	start := make(chan struct{})
	var working sync.WaitGroup
	for i := range answers {
		working.Go(func() {
			<-start
			answers[i], _ = processes[i%2].try("k1", strings.NewReader(mail))
		})
	}
	close(start)
	working.Wait()
	created := 0
	for _, a := range answers {
		require.Equal(t, answers[0].body, a.body)
		if a.status == http.StatusCreated {
			created++
			continue
		}
		require.Equal(t, http.StatusOK, a.status, a.body)
	}
	require.Equal(t, 1, created)
	s.left(1, 1, 1, 3, 1)
}

func TestKeysAsTheMiddlewareReadsThem(t *testing.T) {
	s := newStage(t)
	orders := s.serve()
	made := orders.post("k 1", mail)
	for _, spelled := range []string{" k 1\t", `"k 1"`, `"k 1";v=1`} {
		require.Equal(t, made.body, orders.post(spelled, mail).body, spelled)
	}
	inBody := strings.Replace(mail, `{`, `{"idempotencyKey":" k 1 ",`, 1)
	require.Equal(t, made.body, orders.post("", inBody).body)
	require.Equal(t, made.body, orders.post("k 1", inBody).body, "both, and the same")
	for _, none := range []string{"", " ", `""`} {
		require.Equal(t, http.StatusCreated, orders.post(none, mail).status, "empty is none")
	}
	s.left(4, 4, 4, 12, 4)
	long := strings.Repeat("é", 200)
	require.Equal(t, http.StatusCreated, orders.post("", `{"content":1,"idempotencyKey":"`+long+`"}`).status)
	for name, refused := range map[string]answer{
		"different":      orders.post("other", inBody),
		"too long":       orders.post(long+"x", mail),
		"repeated":       orders.post("a", mail, "Idempotency-Key", "a"),
		"twice in body":  orders.post("", `{"content":1,"idempotencyKey":"a","idempotencyKey":"a"}`),
		"no string":      orders.post("", `{"content":1,"idempotencyKey":1}`),
		"stands for nil": orders.post("00000000-0000-0000-0000-000000000000", mail),
	} {
		require.Equal(t, http.StatusBadRequest, refused.status, name)
		require.Equal(t, "idempotency_key_invalid", refused.code(), name)
		require.NotContains(t, refused.body, long)
	}
	require.Contains(t, orders.post("other", inBody).field("detail"),
		"the header Idempotency-Key and the body's field idempotencyKey")
	s.left(5, 5, 5, 12, 5)
}

func TestEveryReadPathCarriesTheKey(t *testing.T) {
	s := newStage(t)
	orders := s.serve()
	key := "0190B5E2-7C1A-7DEF-8123-456789ABCDEF" // a UUID is the ID itself, and there is no raw one
	made := orders.post(key, mail)
	for _, a := range []answer{made, orders.post(key, mail), orders.get(made.header.Get("Location"))} {
		require.Equal(t, key, a.field("idempotencyKey"))
		require.Equal(t, strings.ToLower(key), a.field("id"))
	}
}

// What came by HTTP and again by Kafka takes effect once, both ways round, by whatever the topic's messages are known.
func TestByHTTPAndAgainByKafkaTakesEffectOnce(t *testing.T) {
	for name, c := range map[string]struct {
		source, content string
		headers         []dedup.Header
	}{
		"by a header":  {"header:message-id", `{"n":1}`, keyHeader("o-1")},
		"by a field":   {"json:/id", `{"id":"o-1"}`, nil},
		"by a payload": {"hash", `{"n":1}`, nil},
	} {
		t.Run(name, func(t *testing.T) {
			key := "o-1"
			if c.source == "hash" {
				key = "" // no key can stand for it
			}
			for _, kafkaFirst := range []bool{false, true} {
				s := newStage(t)
				s.topic.Identity = ruleOf(t, c.source)
				orders := s.serve()
				if kafkaFirst {
					require.Equal(t, handlers.Result{New: 1}, s.kafka(0, c.headers, c.content))
					got := orders.post(key, `{"content":`+c.content+`}`)
					require.Equal(t, http.StatusOK, got.status, got.body)
					require.Equal(t, orders.get(got.header.Get("Location")).body, got.body)
					s.left(1, 1, 0, 0, 0)
					continue
				}
				got := orders.post(key, `{"content":`+c.content+`}`)
				require.Equal(t, http.StatusCreated, got.status, got.body)
				require.Equal(t, handlers.Result{Duplicates: 1}, s.kafka(0, c.headers, c.content))
				s.left(1, 1, 1, 0, 1)
			}
		})
	}
}

func ruleOf(t *testing.T, text string) *identity.Rule {
	t.Helper()
	source, err := identity.ParseSource(text)
	require.NoError(t, err)
	rule, err := identity.NewRule(source)
	require.NoError(t, err)
	return rule
}

func TestAKeyThatIsNotTheMessagesOwnIDIsRefused(t *testing.T) {
	s := newStage(t)
	s.topic.Identity = ruleOf(t, "json:/id")
	orders := s.serve()
	for _, content := range []string{`{"id":"o-2"}`, `{}`, `"text"`} {
		got := orders.post("o-1", `{"content":`+content+`}`)
		require.Equal(t, http.StatusBadRequest, got.status)
		require.Equal(t, "idempotency_key_invalid", got.code())
	}
	s.left(0, 0, 0, 0, 0)
}

func TestByKafkaAndAgainByHTTPWithOtherContentIsRefusedWhereItIsConfigured(t *testing.T) {
	s := newStage(t)
	s.topic.RefuseOther = true
	orders := s.serve()
	s.kafka(0, keyHeader("o-1"), `{"n":1}`)
	require.Equal(t, http.StatusOK, orders.post("o-1", `{"content":{"n":1.0}}`).status)
	require.Equal(t, http.StatusConflict, orders.post("o-1", `{"content":{"n":2}}`).status)
	s.left(1, 1, 0, 0, 0)
}

// A replay does nothing, whatever handlers the topic has got since; by Kafka a new handler gets what it has not seen.
func TestAHandlerThatIsNewGetsNoReplay(t *testing.T) {
	s := newStage(t)
	orders := s.serve()
	made := orders.post("o-1", `{"content":1}`)
	s.kafka(0, keyHeader("o-2"), `2`)
	s.register("bill", effect("bill"))
	orders = s.serve()
	again := orders.post("o-1", `{"content":1}`)
	require.Equal(t, http.StatusOK, again.status)
	require.Equal(t, made.body, again.body)
	s.left(2, 2, 1, 0, 1)
	require.Equal(t, http.StatusCreated, orders.post("o-2", `{"content":2}`).status, "as by Kafka")
	require.Equal(t, 1, s.count(`effects where handler = 'bill'`))
	require.Equal(t, http.StatusOK, orders.post("o-2", `{"content":2}`).status)
}

func TestMessageParticipantsAndEventAreOneTransaction(t *testing.T) {
	for _, table := range []string{"firstseen.audit", "firstseen.participants", "firstseen.enqueued"} {
		s := newStage(t)
		orders := s.serve()
		s.exec(`create function refuse() returns trigger language plpgsql as 'begin raise exception ''no''; end'`)
		s.exec(`create trigger refuse before insert on ` + table + ` for each row execute function refuse()`)
		refused := orders.post("k1", mail)
		require.Equal(t, http.StatusInternalServerError, refused.status, "%s: %s", table, refused.body)
		s.left(0, 0, 0, 0, 0)
		s.exec(`drop trigger refuse on ` + table)
		require.Equal(t, http.StatusCreated, orders.post("k1", mail).status)
		s.left(1, 1, 1, 3, 1)
	}
}

func TestTheEventSaysWhoAndWhat(t *testing.T) {
	s := newStage(t)
	made := s.serve().post("k1", mail)
	require.Equal(t, "shop MessageEnqueued test topic orders "+made.field("id").(string),
		s.text(`select concat_ws(' ', actor, action, inbox, subject, message_id) from firstseen.audit`))
}

// What handlers do that fail is undone; what was noted of the message is not.
func TestAHandlerThatFailsParksTheMessageAndIsNoFaultOfTheClients(t *testing.T) {
	s := newStage(t)
	s.register("ship", effect("ship"))
	s.register("book", failing("book", "n", errNo))
	orders := s.serve()
	made := orders.post("k1", mail)
	require.Equal(t, http.StatusCreated, made.status, made.body)
	require.Contains(t, made.body, `{"name":"book","status":"failed","attempts":1,"reason":"failed"}`)
	require.Contains(t, made.body, `{"name":"ship","status":"processed"`)
	s.left(1, 2, 1, 3, 1)
	require.Equal(t, made.body, orders.post("k1", mail).body)
}

func TestAMessageThatIsGivenUpIsADeadLetterAndItsReplayTellsSo(t *testing.T) {
	s := newStage(t)
	s.register("book", failing("book", "n", handlers.Permanent(errNo)))
	orders := s.serve()
	made := orders.post("k1", mail)
	require.Equal(t, http.StatusCreated, made.status, made.body)
	require.Contains(t, made.body, `"status":"dead"`)
	require.Equal(t, 1, s.count("firstseen.dead_letters"))
	require.Equal(t, made.body, orders.post("k1", mail).body)
}

// Messages of one key take effect in the order in which they were accepted, also behind one that failed.
func TestMessagesOfAKeyWaitBehindOneThatFailed(t *testing.T) {
	s := newStage(t)
	s.register("book", failing("book", "bad", errNo))
	orders := s.serve()
	orders.post("k1", `{"content":"bad","key":"customer"}`)
	second := orders.post("k2", `{"content":"second","key":"customer"}`)
	require.Contains(t, second.body, `"status":"pending"`)
	third := orders.post("k3", `{"content":"third","key":"customer"}`)
	require.Contains(t, third.body, `"status":"pending"`)
	require.Contains(t, orders.post("k4", `{"content":"other","key":"another"}`).body, `"status":"processed"`)
	require.Equal(t, `"bad" "second" "third"`,
		s.text(`select string_agg(convert_from(payload, 'UTF8'), ' ' order by "offset") from firstseen.parked`))
}

// As Kafka's of one partition, whichever process takes them: a handler may read what it then writes.
func TestMessagesOfAKeyAreHandledOneAtATime(t *testing.T) {
	s := newStage(t)
	s.exec(`create table balance (n int); insert into balance values (0)`)
	s.register("book", handlers.Each(handlers.HandlerFunc(func(ctx context.Context, tx pgx.Tx, _ dedup.Message) error {
		var n int
		if err := tx.QueryRow(ctx, `select n from balance`).Scan(&n); err != nil {
			return err
		}
		time.Sleep(20 * time.Millisecond)
		_, err := tx.Exec(ctx, `update balance set n = $1`, n+1)
		return err
	})))
	processes := []*service{s.serve(), s.serve()}
	var posting sync.WaitGroup
	for i := range 12 {
		posting.Go(func() {
			got, err := processes[i%2].try(fmt.Sprint("k", i), strings.NewReader(`{"content":1,"key":"customer"}`))
			assert.NoError(t, err)
			assert.Equal(t, http.StatusCreated, got.status, got.body)
		})
	}
	posting.Wait()
	require.Equal(t, "12", s.text(`select n::text from balance`))
}

func TestBytesKeyAndHeadersAreStoredAsTheyCame(t *testing.T) {
	s := newStage(t)
	orders := s.serve()
	made := orders.post("k1", `{"content": {"b" : 1.0,  "a":"é"} , "key":"", "headers":[{"name":"x","value":"1"},{"name":"x","value":""}]}`)
	require.Equal(t, http.StatusCreated, made.status, made.body)
	require.Equal(t, `{"b" : 1.0,  "a":"é"}`, s.text(`select convert_from(payload, 'UTF8') from firstseen.inbox`))
	require.Equal(t, "", made.field("key"))
	var headers []map[string]string
	text, err := json.Marshal(made.field("headers"))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &headers))
	require.Equal(t, []map[string]string{{"name": "x", "value": "1"}, {"name": "x", "value": ""},
		{"name": "message-id", "value": "k1"}}, headers)
}

func TestAKeyOfAnotherTopicWithTheSameHandlerIsRefusedAndShowsNothing(t *testing.T) {
	s := newStage(t)
	require.NoError(t, s.registry.Add(handlers.Registration{Name: "book", Handler: effect("book"),
		Topics: []string{"orders", "refunds"}}))
	cfg := s.cfg
	cfg.Processor, cfg.Topics = s.newProcessor(&s.registry), map[string]ingress.Topic{"orders": {}, "refunds": {}}
	h, err := ingress.New(cfg)
	require.NoError(t, err)
	server := httptest.NewServer(h)
	defer server.Close()
	orders := &service{t: t, url: server.URL + "/v1/topics/orders/messages"}
	refunds := &service{t: t, url: server.URL + "/v1/topics/refunds/messages"}
	first := orders.post("k1", `{"content":"an order"}`)
	require.Equal(t, http.StatusCreated, first.status, first.body)
	got := refunds.post("k1", `{"content":"a refund"}`)
	require.Equal(t, []any{http.StatusConflict, "idempotency_key_conflict"}, []any{got.status, got.code()})
	require.NotContains(t, got.body, "an order")
	at := strings.Replace(first.header.Get("Location"), "/orders/", "/refunds/", 1)
	require.Equal(t, http.StatusNotFound, refunds.get(at).status)
	require.Equal(t, http.StatusOK, orders.get(first.header.Get("Location")).status)
}
