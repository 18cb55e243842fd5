package admin

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/operate"
)

// A person plans, starts what was planned, has it rest and go on, and looks on until it is done. Who may read may plan, and
// no more.
func TestRerunIsPlannedStartedOncePausedAndDone(t *testing.T) {
	s := newStage(t, withTokens)
	read, write := []string{"Authorization", "Bearer " + readToken}, []string{"Authorization", "Bearer " + writeToken, "X-Actor", "ann"}
	s.add("order-1", operate.StatusProcessed, dedup.Message{})
	s.add("order-2", operate.StatusProcessed, dedup.Message{})
	plan := s.get(prefix+"/reruns/plan"+values("handler", "book", "since", "2h", "ordering", "key"), read...)
	require.EqualValues(t, 2, plan.at("messages"))
	require.Equal(t, "orders", plan.at("first.0.topic"))
	id := uuid.NewString()
	body := func(set string) string {
		return fmt.Sprintf(`{"id":%q,"handler":"book","ordering":"key","since":%q,"until":%q,"set":%q,"why":"mended"}`, id,
			plan.at("filter.since"), plan.at("filter.until"), set)
	}
	set := plan.at("set").(string)
	s.refused(http.StatusForbidden, http.MethodPost, prefix+"/reruns", body(set), read...)
	s.refused(http.StatusConflict, http.MethodPost, prefix+"/reruns", body("3-other"), write...)
	require.Empty(t, s.get(prefix+"/jobs", read...).at("jobs"))
	made := s.ask(200, http.MethodPost, prefix+"/reruns", body(set), write...)
	require.Equal(t, []any{"rerun", "write token (ann)", 2.0, "key"}, []any{made.at("kind"), made.at("actor"), made.at("expected"), made.at("filter.ordering")})
	require.Equal(t, id, s.ask(200, http.MethodPost, prefix+"/reruns", body(set), write...).at("id"), "pressed twice")
	require.Eventually(t, func() bool { return s.get(prefix+"/jobs/"+id, read...).at("state") == "done" }, 3*time.Minute, 50*time.Millisecond)
	require.EqualValues(t, 2, s.get(prefix+"/jobs", read...).at("jobs.0.done"))
	require.Nil(t, s.get(prefix+"/jobs", read...).at("jobs.1"))
	require.Len(t, s.get(prefix+"/messages"+values("status", "pending"), read...).at("messages"), 2, "on their way to the handler again")

	for _, change := range []string{"pause", "resume"} {
		path := prefix + "/jobs/" + id + "/" + change
		s.refused(http.StatusForbidden, http.MethodPost, path, `{"why":"x"}`, read...)
		require.Equal(t, "done", s.ask(200, http.MethodPost, path, `{"why":"x"}`, write...).at("state"))
		s.refused(http.StatusNotFound, http.MethodPost, prefix+"/jobs/"+uuid.NewString()+"/"+change, `{"why":"x"}`, write...)
	}
}

func TestWrongQuestionsAboutRerunsAreRefused(t *testing.T) {
	s := newStage(t, nil)
	s.add("order-1", operate.StatusProcessed, dedup.Message{})
	for query, want := range map[string]string{"": "handler", "handler=book": "since", "handler=book&partition=0": "topic",
		"handler=book&topic=orders&from_offset=7": "partition", "handler=book&since=2h": "ordering",
		"handler=book&since=2h&ordering=all": "ordering", "handler=nobody&since=2h&ordering=key": "handler",
		"handler=book&topic=orders&partition=0&from_offset=7&to_offset=7": "to_offset", "handler=book&partition=-1&topic=orders": "partition",
		"handler=book&reason=x": "reason"} {
		require.Equal(t, want, s.refused(http.StatusBadRequest, http.MethodGet, prefix+"/reruns/plan?"+query, "").Parameter, query)
	}
	body := func(fields string) string {
		return `{"id":"` + uuid.NewString() + `","why":"x","handler":"book"` + fields + `}`
	}
	for body, want := range map[string]string{body(``): "since", body(`,"ids":["a"],"partition":1,"topic":"orders"`): "ordering",
		body(`,"partition":2147483648,"topic":"orders"`): "partition", body(`,"since":"2h","set":"1-0"`): "since",
		body(`,"kind":"rerun"`): "kind", `{"id":"7","why":"x","handler":"book","since":"2h","ordering":"key"}`: "id",
		`{"id":"` + uuid.NewString() + `","why":" ","handler":"book","since":"2h","ordering":"key"}`: "why",
		`{"id":"` + uuid.NewString() + `","why":"x","since":"2h"}`:                                   "handler"} {
		require.Equal(t, want, s.refused(http.StatusBadRequest, http.MethodPost, prefix+"/reruns", body).Parameter, body)
	}
	require.Empty(t, s.get(prefix+"/jobs").at("jobs"))
}
