package ingress_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/handlers"
	"github.com/firstseen/firstseen/handlers/ingress"
)

// items are the answers to the messages of an array.
func (a answer) items(t *testing.T) (items []struct {
	Status   int
	Location string
	Replayed bool
	Message  map[string]any
	Problem  map[string]any
}) {
	t.Helper()
	var body struct{ Messages json.RawMessage }
	require.NoError(t, json.Unmarshal([]byte(a.body), &body), a.body)
	require.NoError(t, json.Unmarshal(body.Messages, &items))
	return items
}

func TestArrayIsOneTransactionWithOneAnswerEach(t *testing.T) {
	s := newStage(t)
	orders := s.serve()
	known := orders.post("k0", `{"content":0}`)
	got := orders.post("", `[{"content":0,"idempotencyKey":"k0"},{"content":1,"idempotencyKey":"k1"},{"content":2}]`)
	require.Equal(t, http.StatusOK, got.status, got.body)
	items := got.items(t)
	require.Equal(t, []int{200, 201, 201}, []int{items[0].Status, items[1].Status, items[2].Status})
	require.Equal(t, []bool{true, false, false}, []bool{items[0].Replayed, items[1].Replayed, items[2].Replayed})
	require.Equal(t, known.header.Get("Location"), items[0].Location)
	require.Equal(t, 1.0, items[1].Message["content"])
	s.left(3, 3, 3, 0, 3)
	require.Equal(t, "1", s.text(`select count(distinct d.xmin::text)::text from firstseen.message_dedup d
		join firstseen.enqueued e using (message_id) where e.idempotency_key is distinct from 'k0'`))
	again := orders.post("", `[{"content":1,"idempotencyKey":"k1"}]`).items(t)
	require.Equal(t, items[1].Message, again[0].Message)
}

func TestTwinsInOneArrayAreOneMessage(t *testing.T) {
	s := newStage(t)
	orders := s.serve()
	items := orders.post("", `[{"content":1,"idempotencyKey":"k"},{"content":2,"idempotencyKey":" k "}]`).items(t)
	require.Equal(t, []int{201, 200}, []int{items[0].Status, items[1].Status})
	require.Equal(t, items[0].Message, items[1].Message)
	s.left(1, 1, 1, 0, 1)
	s.topic.RefuseOther = true
	orders = s.serve()
	items = orders.post("", `[{"content":1,"idempotencyKey":"l"},{"content":2,"idempotencyKey":"l"}]`).items(t)
	require.Equal(t, []int{201, 409}, []int{items[0].Status, items[1].Status})
	require.Equal(t, "idempotency_key_conflict", items[1].Problem["code"])
}

func TestArrayWithAFaultIsRefusedWhole(t *testing.T) {
	s := newStage(t)
	s.cfg.MaxMessages = 3
	orders := s.serve()
	for name, body := range map[string]string{
		"Message 1 of the array: the message has a field": `[{"content":1},{"content":1,"content":2}]`,
		"Message 1 of the array: a message is a JSON":     `[{"content":1},2]`,
		"Message 0 of the array: the key stands":          `[{"content":1,"idempotencyKey":"null"}]`,
		"An array has 1 to 3 messages":                    `[{"content":1},{"content":1},{"content":1},{"content":1}]`,
		"An array has 1 to":                               `[]`,
	} {
		got := orders.post("", body)
		require.Equal(t, http.StatusBadRequest, got.status, got.body)
		require.True(t, strings.HasPrefix(fmt.Sprint(got.field("detail")), name), got.body)
	}
	got := orders.post("k", `[{"content":1}]`)
	require.Equal(t, http.StatusBadRequest, got.status)
	require.Contains(t, got.body, "in their own fields")
	s.left(0, 0, 0, 0, 0)
}

func TestAMessageOfAnArrayThatItsHandlerFailsOnIsParkedAndTheOthersAreDone(t *testing.T) {
	s := newStage(t)
	s.register("book", failing("book", "bad", errNo))
	items := s.serve().post("", `[{"content":"good"},{"content":"bad"},{"content":"fine"}]`).items(t)
	var status []string
	for _, one := range items {
		require.Equal(t, http.StatusCreated, one.Status)
		status = append(status, fmt.Sprint(one.Message["handlers"].([]any)[0].(map[string]any)["status"]))
	}
	require.Equal(t, []string{"processed", "failed", "processed"}, status)
	s.left(2, 3, 3, 0, 3)
}

func TestWhatIsNoMessage(t *testing.T) {
	s := newStage(t)
	orders := s.serve()
	for body, says := range map[string]string{
		`{}`: "either content or a template", `{"content":1,"template":{"key":"t"}}`: "either content or a template",
		`{"content":1,"Content":2}`: "no field of the name", `{"content":1,"IdempotencyKey":"k"}`: "no field of the name",
		`"text"`: "a JSON object", `{"content":1,"key":7}`: "the field key",
		`{"content":1,"headers":[{"name":""}]}`:                                        "headers[0]",
		`{"content":1,"participants":[{"role":"cc","address":" "}]}`:                   "participants[0]",
		`{"content":1,"participants":[{"role":"boss","address":"a"}]}`:                 "participants[0]",
		`{"content":1,"participants":[{"role":"to","address":"secret\u0000"}]}`:        "participants[0]",
		`{"content":1,"participants":[{"role":"to","address":"secret","extra":true}]}`: "the field participants",
	} {
		got := orders.post("", body)
		require.Equal(t, http.StatusBadRequest, got.status, body)
		require.Equal(t, "message_invalid", got.code(), body)
		require.Contains(t, got.field("detail"), says, body)
		require.NotContains(t, got.body, "secret")
	}
	for _, body := range []string{`{`, ``, "{\"content\":\"\xff\"}"} {
		require.Equal(t, "not_json", orders.post("", body).code())
	}
	require.Equal(t, http.StatusUnsupportedMediaType, orders.post("", `{"content":1}`, "Content-Type", "text/plain").status)
	s.left(0, 0, 0, 0, 0)
}

// Queued.

func TestQueuedIs202WithTheSameRequestIDForBothAndTakesEffectOnce(t *testing.T) {
	for name, c := range map[string]struct {
		queued  bool
		headers []string
	}{"topic": {true, nil}, "Prefer": {false, []string{"Prefer", "wait=5, respond-async"}}} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t)
			s.topic.Queued = c.queued
			orders := s.serve()
			first := orders.post("k1", mail, c.headers...)
			require.Equal(t, http.StatusAccepted, first.status, first.body)
			s.left(0, 1, 1, 3, 1)
			require.Equal(t, 1, s.count("firstseen.parked where reason is null or reason = ''"))
			again := orders.post("k1", mail, c.headers...)
			require.Equal(t, http.StatusAccepted, again.status)
			require.Equal(t, first.body, again.body)
			require.NotEmpty(t, first.field("request_id"))
			require.True(t, again.replayed())
			require.Contains(t, orders.get(first.header.Get("Location")).body, `"status":"pending"`)
			s.work()
			require.Eventually(t, func() bool { return s.count("effects") == 1 }, waitFor, tick)
			done := orders.post("k1", mail, c.headers...)
			require.Equal(t, []any{http.StatusAccepted, first.body}, []any{done.status, done.body})
			if !c.queued {
				require.Equal(t, "respond-async", first.header.Get("Preference-Applied"))
				require.Equal(t, http.StatusOK, orders.post("k1", mail).status)
			}
			s.left(1, 1, 1, 3, 1)
		})
	}
}

func TestQueuedMessagesOfAKeyTakeEffectInTheirOrder(t *testing.T) {
	s := newStage(t)
	s.topic.Queued = true
	orders := s.serve()
	for i := range 20 {
		require.Equal(t, http.StatusAccepted, orders.post(fmt.Sprint("k", i), fmt.Sprintf(`{"content":%d,"key":"c"}`, i)).status)
	}
	s.work()
	require.Eventually(t, func() bool { return s.count("effects") == 20 }, waitFor, tick)
	require.Equal(t, "0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19",
		s.text(`select string_agg(convert_from(value, 'UTF8'), ' ' order by n) from effects`))
}

func TestAHandlerThatTakesTooLongForTheRequestIsLeftToTheWorkers(t *testing.T) {
	s := newStage(t)
	s.cfg.WorkTime = 200 * time.Millisecond
	var calls atomic.Int32
	s.register("book", handlers.Each(handlers.HandlerFunc(func(ctx context.Context, tx pgx.Tx, m dedup.Message) error {
		if calls.Add(1) == 1 {
			<-ctx.Done()
			return ctx.Err()
		}
		_, err := tx.Exec(ctx, `insert into effects (handler) values ('book')`)
		return err
	})))
	orders := s.serve()
	got := orders.post("k1", mail)
	require.Equal(t, http.StatusAccepted, got.status, got.body)
	s.left(0, 1, 1, 3, 1)
	require.Equal(t, 1, s.count("firstseen.parked where attempts = 0"))
	s.work()
	require.Eventually(t, func() bool { return s.count("effects") == 1 }, waitFor, tick)
	require.Equal(t, http.StatusOK, orders.post("k1", mail).status)
}

// A topic that is paused has none of its messages handled, whichever way they came.
func TestMessagesOfAPausedTopicWaitUntilItIsResumed(t *testing.T) {
	s := newStage(t)
	orders := s.serve()
	s.exec(`insert into firstseen.pauses (inbox, kind, name, "partition", actor, why) values ('test', 'topic', 'orders', -1, 'a', 'w')`)
	require.NoError(t, s.processor.LookUpPauses(t.Context()))
	made := orders.post("k1", mail)
	require.Equal(t, http.StatusCreated, made.status, made.body)
	require.Contains(t, made.body, `"status":"pending"`)
	require.Equal(t, made.body, orders.post("k1", mail).body)
	s.work()
	require.Never(t, func() bool { return s.count("effects") > 0 }, 200*time.Millisecond, tick)
	s.exec(`delete from firstseen.pauses`)
	require.Eventually(t, func() bool { return s.count("effects") == 1 }, waitFor, tick)
	s.left(1, 1, 1, 3, 1)
}

// Templates.

func TestTemplateIsResolvedAtCreationAndBothAreStored(t *testing.T) {
	s := newStage(t)
	var asked []ingress.Template
	s.topic.Resolve = func(_ context.Context, template ingress.Template) ([]byte, error) {
		asked = append(asked, template)
		return fmt.Appendf(nil, `{"text":"hello %d"}`, len(asked)), nil
	}
	orders := s.serve()
	const body = `{"template":{"key":"welcome","version":"3","variables":{"name": "Ann"}}}`
	made := orders.post("k1", body)
	require.Equal(t, http.StatusCreated, made.status, made.body)
	require.Equal(t, map[string]any{"text": "hello 1"}, made.field("content"))
	require.Equal(t, map[string]any{"key": "welcome", "version": "3", "variables": map[string]any{"name": "Ann"}},
		made.field("template"))
	require.Equal(t, []ingress.Template{{Key: "welcome", Version: "3", Variables: json.RawMessage(`{"name": "Ann"}`)}}, asked)
	require.Equal(t, `welcome 3 {"name": "Ann"} {"text":"hello 1"}`, s.text(`select concat_ws(' ', template_key,
		template_version, convert_from(template_variables, 'UTF8'), convert_from(i.payload, 'UTF8'))
		from firstseen.enqueued join firstseen.inbox i using (message_id)`))
	again := orders.post("k1", body)
	require.Equal(t, made.body, again.body)
	require.Len(t, asked, 1, "a replay resolves nothing")
	orders.post("", body)
	orders.post("", body)
	require.Len(t, asked, 3)
	s.left(3, 3, 3, 0, 3)
}

func TestTemplateThatCanNotBeResolved(t *testing.T) {
	s := newStage(t)
	s.topic.Resolve = func(context.Context, ingress.Template) ([]byte, error) {
		return nil, errors.New("no template of that name")
	}
	orders := s.serve()
	const body = `{"template":{"key":"welcome"}}`
	for _, key := range []string{"", "k1"} {
		got := orders.post(key, body)
		require.Equal(t, http.StatusUnprocessableEntity, got.status)
		require.Equal(t, "The template can't be resolved: no template of that name", got.field("detail"))
	}
	s.topic.Resolve = nil
	require.Equal(t, http.StatusUnprocessableEntity, s.serve().post("k1", body).status)
	s.left(0, 0, 0, 0, 0)
}

// It costs one answer, and neither a connection nor a place.
func TestTemplateThatPanicsIsAnsweredAndInTheLog(t *testing.T) {
	s := newStage(t)
	s.cfg.Concurrency = 1
	panics := true
	s.topic.Resolve = func(context.Context, ingress.Template) ([]byte, error) {
		if panics {
			panic("no such field: total")
		}
		return []byte(`{}`), nil
	}
	orders := s.serve()
	for _, key := range []string{"", "k1", "k1", "k1"} {
		got := orders.post(key, `{"template":{"key":"welcome"}}`, "X-Request-Id", "r-"+key)
		require.Equal(t, []any{http.StatusInternalServerError, "failed", "r-" + key},
			[]any{got.status, got.code(), got.field("request_id")})
		require.NotContains(t, got.body, "total")
	}
	require.Regexp(t, `level=ERROR msg="ingress failed" request_id=r-k1 error="panic: no such field: total.*TestTemplateThatPanics`,
		s.log.String())
	s.left(0, 0, 0, 0, 0)
	panics = false
	require.Equal(t, http.StatusCreated, orders.post("k1", `{"template":{"key":"welcome"}}`).status)
}

func TestTemplateWhoseResultHasAnotherIDThanItsKey(t *testing.T) {
	s := newStage(t)
	s.topic.Identity = ruleOf(t, "json:/id")
	s.topic.Resolve = func(_ context.Context, template ingress.Template) ([]byte, error) {
		return []byte(`{"id":"` + template.Key + `"}`), nil
	}
	orders := s.serve()
	require.Equal(t, http.StatusBadRequest, orders.post("k1", `{"template":{"key":"k2"}}`).status)
	require.Equal(t, http.StatusCreated, orders.post("k1", `{"template":{"key":"k1"}}`).status)
	require.Equal(t, http.StatusOK, orders.post("k1", `{"template":{"key":"k1"}}`).status)
	s.left(1, 1, 1, 0, 1)
}

// What is gone.

func TestAKeyWhoseMessageRetentionHasDeletedIs410AndNeverASecondEffect(t *testing.T) {
	for name, gone := range map[string]string{
		"the inbox's day": `delete from firstseen.inbox`,
		"all but the ID":  `delete from firstseen.enqueued; delete from firstseen.inbox`,
		"the ID too":      `delete from firstseen.message_dedup; delete from firstseen.inbox`,
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t)
			orders := s.serve()
			made := orders.post("k1", mail)
			s.exec(gone)
			before := s.rows()
			for _, got := range []answer{orders.post("k1", mail), orders.post("k1", mail, "Prefer", "respond-async"),
				orders.get(made.header.Get("Location"))} {
				require.Equal(t, http.StatusGone, got.status, got.body)
				require.Equal(t, "message_gone", got.code())
			}
			items := orders.post("", `[{"content":1,"idempotencyKey":"k1"}]`).items(t)
			require.Equal(t, http.StatusGone, items[0].Status)
			require.Equal(t, before, s.rows())
			require.Equal(t, 1, s.count("effects"))
		})
	}
}

func TestRetentionOfTheInboxDeletesWhatIsNotedOfItsMessages(t *testing.T) {
	s := newStage(t)
	s.register("book", failing("book", "bad", errNo))
	orders := s.serve()
	orders.post("k1", mail)
	orders.post("k2", `{"content":"bad"}`)
	s.exec(`update firstseen.enqueued set enqueued_at = enqueued_at - interval '400 days'`)
	require.Equal(t, "1", s.text(`select firstseen.trim_inbox('test', now() - interval '300 days', 10, 'a', 'w')::text`))
	require.Equal(t, "k2", s.text(`select string_agg(idempotency_key, '') from firstseen.enqueued`), "which is not done")
	require.Zero(t, s.count("firstseen.participants"))
}

func TestMessagesThatAreNotThere(t *testing.T) {
	s := newStage(t)
	orders := s.serve()
	for _, id := range []string{uuid.NewString(), "k1", "00000000-0000-0000-0000-000000000000"} {
		got := orders.get("/v1/topics/orders/messages/" + id)
		require.Equal(t, []any{http.StatusNotFound, "not_found"}, []any{got.status, got.code()})
	}
}
