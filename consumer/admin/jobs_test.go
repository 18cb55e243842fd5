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

// A person counts, asks for what was counted, and looks on until it is done; what died meanwhile is not touched.
func TestJobIsCountedMadeOnceWatchedAndDone(t *testing.T) {
	s := newStage(t, withTokens)
	read, write := []string{"Authorization", "Bearer " + readToken}, []string{"Authorization", "Bearer " + writeToken, "X-Actor", "ann"}
	s.add("order-1", operate.StatusDead, dedup.Message{})
	s.add("order-2", operate.StatusDead, dedup.Message{})
	counted := s.get(prefix+"/dead-letters/count"+values("kind", "discard", "handler", "book"), read...)
	require.EqualValues(t, 2, counted.at("messages"))
	require.Equal(t, []any{false, "book"}, []any{counted.at("more"), counted.at("filter.handler")})
	s.add("order-3", operate.StatusDead, dedup.Message{})
	id := uuid.NewString()
	body := fmt.Sprintf(`{"id":%q,"kind":"discard","handler":"book","moment":%q,"why":"spam"}`, id, counted.at("moment"))
	require.Contains(t, s.refused(http.StatusForbidden, http.MethodPost, prefix+"/jobs", body, read...).Detail, "may read and not change")
	made := s.ask(200, http.MethodPost, prefix+"/jobs", body, write...)
	require.Equal(t, "write token (ann)", made.at("actor"))
	require.EqualValues(t, 2, made.at("expected"))
	require.Equal(t, id, s.ask(200, http.MethodPost, prefix+"/jobs", body, write...).at("id"), "pressed twice")
	require.Eventually(t, func() bool { return s.get(prefix+"/jobs/"+id, read...).at("state") == "done" }, 3*time.Minute, 50*time.Millisecond)
	require.EqualValues(t, 2, s.get(prefix+"/jobs", read...).at("jobs.0.done"))
	require.Equal(t, "order-3", s.get(prefix+"/dead-letters", read...).at("messages.0.raw_id"))
	require.Nil(t, s.get(prefix+"/jobs", read...).at("jobs.1"))

	cancelled := s.ask(200, http.MethodPost, prefix+"/jobs/"+id+"/cancel", `{"why":"too late"}`, write...)
	require.Equal(t, "done", cancelled.at("state"))
	s.refused(http.StatusForbidden, http.MethodPost, prefix+"/jobs/"+id+"/cancel", `{"why":"x"}`, read...)
	s.ask(200, http.MethodPost, prefix+"/outbox/jobs", fmt.Sprintf(`{"id":%q,"kind":"redrive","all":true,"why":"x"}`, uuid.NewString()), write...)
	require.Equal(t, "outbox", s.get(prefix+"/outbox/jobs", read...).at("jobs.0.inbox"))
	require.EqualValues(t, 0, s.get(prefix+"/outbox/dead-letters/count?kind=redrive", read...).at("messages"))
}

func TestWrongQuestionsAboutJobsAreRefused(t *testing.T) {
	s := newStage(t, nil)
	id := uuid.NewString()
	job := func(fields string) string { return `{"id":"` + id + `","kind":"redrive","why":"x"` + fields + `}` }
	s.ask(200, http.MethodPost, prefix+"/jobs", job(`,"topic":"orders"`))
	for body, want := range map[string]string{job(``): "all", job(`,"all":true,"topic":"orders"`): "all",
		`{"id":"` + uuid.NewString() + `","kind":"redrive","why":"x","all":true,"moment":"1"}`: "moment", job(`,"all":true,"reasons":"x"`): "reasons",
		`{"id":"` + uuid.NewString() + `","kind":"redrive","why":"x","since":"2h","moment":"1.2:3:"}`: "since",
		`{"id":"7","kind":"redrive","why":"x","all":true}`:                                            "id", `{"kind":"redrive","why":"x","all":true}`: "id",
		`{"id":"00000000-0000-0000-0000-000000000000","kind":"redrive","why":"x","all":true}`: "id",
		`{"id":"` + id + `","kind":"rerun","why":"x","all":true}`:                             "kind",
		`{"id":"` + id + `","kind":"redrive","why":" ","all":true}`:                           "why"} {
		require.Equal(t, want, s.refused(http.StatusBadRequest, http.MethodPost, prefix+"/jobs", body).Parameter, body)
	}
	s.refused(http.StatusConflict, http.MethodPost, prefix+"/jobs", job(`,"topic":"mail"`))
	s.refused(http.StatusNotFound, http.MethodGet, prefix+"/jobs/"+uuid.NewString(), "")
	s.refused(http.StatusNotFound, http.MethodPost, prefix+"/jobs/"+uuid.NewString()+"/cancel", `{"why":"x"}`)
	for _, path := range []string{"/jobs/7", "/jobs/00000000-0000-0000-0000-000000000000", "/jobs?cursor=x", "/dead-letters/count",
		"/dead-letters/count?kind=all", "/dead-letters/count?kind=redrive&moment=x"} {
		s.refused(http.StatusBadRequest, http.MethodGet, prefix+path, "")
	}
}

func TestWhatFailedIsGroupedByItsError(t *testing.T) {
	s := newStage(t, nil)
	for _, id := range []string{"order-1", "order-2"} {
		s.add(id, operate.StatusDead, dedup.Message{})
		s.add(id+" waits", operate.StatusFailed, dedup.Message{})
	}
	dead := s.get(prefix + "/dead-letters/errors" + values("handler", "book", "reason", "attempts_exhausted"))
	require.Equal(t, []any{"book", "no such account", 2.0, nil, false}, []any{dead.at("groups.0.handler"),
		dead.at("groups.0.error"), dead.at("groups.0.count"), dead.at("groups.0.next_try_at"), dead.at("more")})
	lanes := s.get(prefix + "/lanes/errors")
	require.Equal(t, []any{"handler_failed", 2.0}, []any{lanes.at("groups.0.reason"), lanes.at("groups.0.count")})
	require.NotNil(t, lanes.at("groups.0.next_try_at"))
	require.Empty(t, s.get(prefix+"/lanes/errors?handler=ship").at("groups"))
	for _, path := range []string{"/outbox/dead-letters/errors", "/outbox/lanes/errors"} {
		require.Empty(t, s.get(prefix+path).at("groups"))
	}
}
