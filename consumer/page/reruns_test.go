package page_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/dedup/operate"
)

// A rerun is planned by whoever may read, started by whoever may change, once however often it is pressed, and watched.
func TestRerunIsPlannedStartedOnceAndWatched(t *testing.T) {
	s := newStage(t, nil)
	s.add(letter{id: "order-1", status: operate.StatusProcessed})
	s.add(letter{id: "order-2", status: operate.StatusProcessed})
	s.add(letter{id: "order-3", status: operate.StatusProcessed, handler: "mail"})
	reader := s.signedIn(readToken, "")
	require.Contains(t, textOf(t, reader.read("rerun")), "Say whose messages, and which")
	require.Contains(t, textOf(t, reader.read("rerun?handler=book")), "since: is required")
	require.Contains(t, textOf(t, reader.read("rerun?handler=book&since=2h")), "ordering: is required")
	address := "rerun?handler=book&topic=orders&partition=0&from_offset=0&to_offset=9&ordering=key"
	require.Contains(t, textOf(t, reader.read(address)), "2 would be handled again")
	require.NotContains(t, reader.read(address), "startrerun")
	require.Contains(t, textOf(t, reader.read("rerun?handler=book&id=nothing&ordering=key")), "was never seen by this handler")

	b := s.signedIn(writeToken, "ann")
	form := append(inputs(b.read(address)), "why", "price was wrong")
	refused := reader.post("startrerun", append(form, "form", formOf(t, reader.read("requests")))...)
	require.NotEqual(t, http.StatusSeeOther, refused.status)
	refused = reader.post("startrerun", append([]string{"form", formOf(t, reader.read("requests"))}, form...)...)
	require.Equal(t, http.StatusForbidden, refused.status)
	made := b.post("startrerun", form...)
	require.Equal(t, http.StatusSeeOther, made.status, made.body)
	require.Equal(t, made.header.Get("Location"), b.post("startrerun", form...).header.Get("Location"))
	job := made.header.Get("Location")
	require.Eventually(t, func() bool { return strings.Contains(b.read(job), "Rerun: done") }, waitFor, 50*time.Millisecond)
	text := textOf(t, b.read(job))
	require.Contains(t, text, "2 of 2")
	require.Contains(t, text, "handler book, topic orders, partition 0 from offset 0, partition 0 to before offset 9")
	require.Contains(t, textOf(t, b.read("jobs")), "write token (ann)")

	late := inputs(b.read(address + "&until=" + "2h"))
	require.NotContains(t, late, "set", "there is nothing to start")
}

// What is kept no more, and was planned: who started it sees what is there now, and has to type nothing again.
func TestStartOfARerunThatIsRefusedLeadsBackToItsPlan(t *testing.T) {
	s := newStage(t, nil)
	s.add(letter{id: "order-1", status: operate.StatusProcessed})
	s.add(letter{id: "order-2", status: operate.StatusProcessed})
	b := s.signedIn(writeToken, "ann")
	plan := b.read("rerun?handler=book&topic=orders&partition=0&ordering=key")
	require.Contains(t, textOf(t, plan), "2 would be handled again")
	fields := inputs(plan)

	blank := b.post("startrerun", append(fields, "why", " ")...)
	require.Equal(t, http.StatusOK, blank.status, blank.body)
	require.Contains(t, textOf(t, blank.body), "Say why: it is kept in the audit.")
	require.Contains(t, textOf(t, blank.body), "2 would be handled again")

	_, err := s.db.Pool.Exec(t.Context(), `delete from firstseen.inbox where "offset" = 0`)
	require.NoError(t, err)
	changed := b.post("startrerun", append(fields, "why", `price "was" wrong`)...)
	require.Equal(t, http.StatusOK, changed.status, changed.body)
	require.Contains(t, textOf(t, changed.body), "other messages than those that were counted, 1 now")
	require.Contains(t, textOf(t, changed.body), "1 would be handled again")
	require.Contains(t, changed.body, `name="why" required maxlength="1000" value="price &#34;was&#34; wrong"`)
	require.Contains(t, changed.body, `name="handler" required value="book"`)
	require.Contains(t, changed.body, `name="topic" value="orders"`)
	require.Contains(t, changed.body, `name="partition" inputmode="numeric" value="0"`)
	made := b.post("startrerun", append(inputs(changed.body), "why", "all right")...)
	require.Equal(t, http.StatusSeeOther, made.status, made.body)
}

func TestJobIsPausedAndResumed(t *testing.T) {
	s := newStage(t, nil)
	s.add(letter{id: "order-1", status: operate.StatusProcessed})
	b := s.signedIn(writeToken, "ann")
	made := b.post("startrerun", append(inputs(b.read("rerun?handler=book&since=2h&ordering=key")), "why", "mended")...)
	require.Equal(t, http.StatusSeeOther, made.status, made.body)
	job := made.header.Get("Location")
	form := append(inputs(b.read("requests")), "form", formOf(t, b.read("requests")), "id", strings.TrimPrefix(job, "job?id="), "why", "x")
	require.Equal(t, job, b.post("pausejob", form...).header.Get("Location"))
	require.Regexp(t, "Rerun: (paused|done)", b.read(job))
	if strings.Contains(b.read(job), "Rerun: paused") {
		require.Contains(t, b.read(job), "resumejob")
	}
	require.Equal(t, job, b.post("resumejob", form...).header.Get("Location"))
	require.Eventually(t, func() bool { return strings.Contains(b.read(job), "Rerun: done") }, waitFor, 50*time.Millisecond)
}
