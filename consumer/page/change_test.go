package page_test

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// All that a filter matches is counted, confirmed, and done once; what dies after it was counted stays.
func TestAllThatMatchAreCountedAndRedrivenByAJob(t *testing.T) {
	s := newStage(t, nil)
	for n := range 3 {
		s.add(letter{id: fmt.Sprintf("order-%d", n), key: []byte("\xff\x00")})
	}
	s.add(letter{id: "mail-1", handler: "mail"})
	reader := s.signedIn(readToken, "")
	link := linkTo(t, reader.read("dead?handler=book&since=2h&key=%5Cxff00"), "Count and redrive…")
	require.Contains(t, textOf(t, reader.read(link)), "3 of them, as of now")
	require.NotContains(t, reader.read(link), "startjob")

	b := s.signedIn(writeToken, "ann")
	page := b.read(link)
	s.add(letter{id: "order-later", key: []byte("\xff\x00")})
	require.Contains(t, textOf(t, page), "key \\xff00")
	form := append(inputs(page), "why", "fixed in 1.4.2")
	made := b.post("startjob", form...)
	require.Equal(t, http.StatusSeeOther, made.status, made.body)
	again := b.post("startjob", form...)
	require.Equal(t, made.header.Get("Location"), again.header.Get("Location"))
	address := made.header.Get("Location")
	require.Eventually(t, func() bool { return strings.Contains(b.read(address), "Redrive: done") }, waitFor, 50*time.Millisecond)
	require.Contains(t, textOf(t, b.read(address)), "3 of 3")
	require.Contains(t, textOf(t, b.read("jobs")), "write token (ann)")
	var left []string
	for _, m := range s.dead() {
		left = append(left, m.Message.RawID)
	}
	require.ElementsMatch(t, []string{"mail-1", "order-later"}, left)
}

func TestJobIsCancelled(t *testing.T) {
	s := newStage(t, nil)
	b := s.signedIn(writeToken, "ann")
	made := b.post("startjob", append(inputs(b.read("bulk?kind=discard")), "form", formOf(t, b.read("requests")),
		"job", "018f2c4e-0000-7000-8000-000000000001", "kind", "discard", "why", "spam")...)
	require.Equal(t, http.StatusSeeOther, made.status, made.body)
	address := made.header.Get("Location")
	cancelled := b.post("canceljob", "form", formOf(t, b.read("requests")), "id", "018f2c4e-0000-7000-8000-000000000001", "why", "x")
	require.Equal(t, address, cancelled.header.Get("Location"), cancelled.body)
	require.Regexp(t, "Discard: (cancelled|done)", b.read(address))
}

func TestHandlerIsPausedAndResumed(t *testing.T) {
	s := newStage(t, nil)
	b := s.signedIn(writeToken, "ann")
	form := formOf(t, b.read("pauses"))
	for _, of := range []string{"", "outbox"} {
		confirm := b.post("confirm", "form", form, "do", "pause", "of", of, "kind", "handler", "name", "<b>book", "back", "pauses")
		require.Contains(t, confirm.body, "<h1>Pause handler &lt;b&gt;book</h1>")
		blank := b.post("apply", append(inputs(confirm.body), "why", " ")...)
		require.Contains(t, blank.body, "Say why")
		done := b.post("apply", append(inputs(confirm.body), "why", "incident 482")...)
		require.Contains(t, textOf(t, b.read(done.header.Get("Location"))), "Paused: handler <b>book")
		page := b.read("pauses")
		require.Contains(t, page, "incident 482")
		resume := b.post("confirm", "form", form, "do", "resume", "of", of, "kind", "handler", "name", "<b>book", "back", "pauses")
		done = b.post("apply", append(inputs(resume.body), "why", "over")...)
		require.Contains(t, textOf(t, b.read(done.header.Get("Location"))), "Resumed: handler <b>book")
		require.Contains(t, b.read("pauses"), "Nothing is paused")
	}
}

func TestWrongFormsSaySo(t *testing.T) {
	s := newStage(t, nil)
	b := s.signedIn(writeToken, "")
	form := formOf(t, b.read("requests"))
	for want, pairs := range map[string][]string{
		"select some":         {"do", "redrive"},
		"does not say":        {"do", "drop", "row", "id=1"},
		"neither the inbox":   {"do", "redrive", "row", "id=1", "of", "other"},
		"a message that is":   {"do", "redrive", "row", "handler=book"},
		"which is not blank":  {"do", "redrive", "row", "handler=book&id=%00"},
		"name is the topic's": {"do", "pause", "kind", "partition", "name", "orders", "why", "x", "once", "1"},
	} {
		address := "confirm"
		if pairs[1] == "pause" {
			address = "apply"
		}
		a := b.post(address, append(pairs, "form", form)...)
		if a.status == http.StatusSeeOther {
			a = b.get(a.header.Get("Location"))
		}
		require.Contains(t, textOf(t, a.body), want)
	}
	require.Equal(t, http.StatusNotFound, b.post("nothing", "form", form).status)
	require.Equal(t, http.StatusBadRequest, b.post("apply", "form", form, "x", strings.Repeat("x", 600_000)).status)
	require.Equal(t, http.StatusNotFound, b.get("done?change=another").status)
}

// Two letters of one ID, in two handlers, are two letters.
func TestOnlyTheSelectedHandlersLettersAreChanged(t *testing.T) {
	s := newStage(t, nil)
	s.add(letter{id: "order-1"})
	s.add(letter{id: "order-1", handler: "mail"})
	s.add(letter{id: "order-1", handler: "mail", tenant: "acme"})
	b := s.signedIn(writeToken, "")
	row := url.Values{"handler": {"mail"}, "tenant": {"acme"}, "id": {s.idOf("order-1")}}.Encode()
	confirm := b.post("confirm", "form", formOf(t, b.read("dead")), "do", "discard", "row", row)
	done := b.post("apply", append(inputs(confirm.body), "why", "spam")...)
	require.Contains(t, textOf(t, b.read(done.header.Get("Location"))), "Discarded: 1 of 1 selected")
	require.Len(t, s.dead(), 2)
	for _, m := range s.dead() {
		require.Empty(t, m.Message.Tenant)
	}
}

func TestOutboxsDeadLettersAreSentAgain(t *testing.T) {
	s := newStage(t, nil)
	b := s.signedIn(writeToken, "")
	require.Contains(t, textOf(t, b.read("outbox")), "Nothing waits to be sent")
	require.Contains(t, textOf(t, b.read("bulk?kind=redrive&of=outbox")), "0 of them")
	require.Contains(t, textOf(t, b.read("jobs?of=outbox")), "None.")
}
