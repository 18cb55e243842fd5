package page_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/consumer"
	"github.com/firstseen/firstseen/dedup/holds"
	"github.com/firstseen/firstseen/dedup/idempotency"
	"github.com/firstseen/firstseen/dedup/operate"
)

func TestOverviewSaysWhatIsWrongAndWhatToDo(t *testing.T) {
	s := newStage(t, nil)
	b := s.signedIn(readToken, "")
	require.Contains(t, b.read(""), `<h1 class="verdict ok">All is well</h1>`)
	require.Regexp(t, `(?s)orders</bdi>/0<.*1 min 30 s.*orders</bdi>/1<.*caught up`, b.read(""))
	status := s.status
	status.Holds = []holds.Hold{{Subject: holds.Partition("orders", 0), Code: holds.CutOff, Since: time.Now().Add(-time.Hour),
		Reason: "ends at 5", Tries: 2}}
	s.tell(status)
	page := b.read("")
	require.Contains(t, page, `<h1 class="verdict unhealthy">Somebody has to act</h1>`)
	require.Contains(t, textOf(t, page), "waits for a decision")
	require.Contains(t, textOf(t, page), "on_reset: restart")
}

func TestFiveHundredPartitionsShowThoseThatWaitMost(t *testing.T) {
	s := newStage(t, nil)
	status := consumer.Status{State: consumer.Consuming, Since: time.Now()}
	for n := range 500 {
		status.Partitions = append(status.Partitions, consumer.PartitionStatus{Topic: "orders", Partition: int32(n), Lag: int64(n)})
	}
	s.tell(status)
	b := s.signedIn(readToken, "")
	page := b.read("")
	require.Contains(t, page, "orders</bdi>/499")
	require.NotContains(t, page, "orders</bdi>/7<")
	require.Less(t, len(page), 60_000)
	require.Contains(t, b.read(linkTo(t, page, "480 more partitions")), "orders</bdi>/7<")
}

func TestMessagesAreGroupedByWhatTheyFailedBy(t *testing.T) {
	s := newStage(t, nil)
	for n := range 3 {
		s.add(letter{id: fmt.Sprint("order-", n), status: operate.StatusFailed, reason: "handler_failed", err: fmt.Sprint("no account ", n)})
		s.add(letter{id: fmt.Sprint("dead-", n), err: fmt.Sprint("<b>no account ", n)})
	}
	s.add(letter{id: "order-9", status: operate.StatusFailed, reason: "handler_failed", err: "deadlock detected"})
	s.add(letter{id: "dead-9", handler: "mail", reason: "permanent"})
	b := s.signedIn(readToken, "")
	text := textOf(t, b.read("waiting?handler=book"))
	require.Contains(t, text, "3bookhandler_failed no account #")
	require.Contains(t, text, "1bookhandler_failed deadlock detected")
	require.Contains(t, textOf(t, b.read("waiting?status=pending")), "None of these")
	require.Contains(t, textOf(t, b.read("waiting?status=lost")), "lost is none of pending")
	page := b.read("dead?since=1h")
	require.Contains(t, textOf(t, page), "3bookattempts_exhausted <b>no account #")
	require.Contains(t, b.read(linkTo(t, page, "one of them")), "dead-2")
	require.NotContains(t, b.read(linkTo(t, page, "all of this reason")), "dead-9")
}

func TestListsGoOnByCursorAndSayWhatIsWrongWithAFilter(t *testing.T) {
	s := newStage(t, nil)
	for n := range 5 {
		s.add(letter{id: fmt.Sprint("order-", n)})
	}
	b := s.signedIn(readToken, "")
	page := b.read("dead?handler=book&limit=2")
	require.Contains(t, page, "order-4")
	require.NotContains(t, page, "order-2")
	page = b.read(linkTo(t, page, "Next"))
	require.Contains(t, page, "order-2")
	require.NotContains(t, page, "order-4")
	require.Contains(t, b.read(linkTo(t, page, "First")), "order-4")
	page = b.read("dead?since=tomorrow&handler=%3Cb%3E")
	require.Contains(t, textOf(t, page), "since: tomorrow is neither a duration")
	require.Contains(t, page, `value="&lt;b&gt;"`)
	require.Contains(t, textOf(t, b.read("dead?cursor=x")), "is not one that this list gave")
}

func TestContentIsShownAsJSONTextOrHex(t *testing.T) {
	s := newStage(t, nil)
	address := func(as, id string) string { return "letter?handler=book&id=" + id + "&as=" + as }
	s.add(letter{id: "json", value: []byte(`{"n":9007199254740993,"f":1.10,"html":"<b>"}`), key: []byte{0xff, 0}})
	s.add(letter{id: "binary", value: []byte{0xff, 'a', 0}})
	s.add(letter{id: "none"})
	b := s.signedIn(readToken, "")
	page := b.read(address("", "json"))
	require.Contains(t, page, "  &#34;n&#34;: 9007199254740993,\n  &#34;f&#34;: 1.10,\n  &#34;html&#34;: &#34;&lt;b&gt;&#34;\n")
	require.Contains(t, page, "00000000  ff 00")
	require.Contains(t, b.read(address("text", "json")), `{&#34;n&#34;:9007199254740993`)
	require.Contains(t, b.read(address("hex", "json")), "00000000  7b 22 6e 22")
	require.Contains(t, b.read(address("", "binary")), "00000000  ff 61 00")
	require.Contains(t, textOf(t, b.read(address("text", "binary"))), "⟨FF⟩a⟨U+0000⟩")
	require.Contains(t, b.read(address("", "none")), `<p class="soft">null</p>`)
}

func TestALargeValueIsCut(t *testing.T) {
	s := newStage(t, nil)
	s.add(letter{id: "large", value: bytes.Repeat([]byte("é\n"), 1<<20)})
	b := s.signedIn(readToken, "")
	for _, as := range []string{"", "text", "hex"} {
		page := b.read("letter?handler=book&id=large&as=" + as)
		require.Less(t, len(page), 200_000, as)
		require.Contains(t, textOf(t, page), "3.0 MiB; the first ")
		require.NotContains(t, page, "\ufffd")
	}
}

func TestConflictIsADiffThatKeepsDigits(t *testing.T) {
	s := newStage(t, nil)
	for _, status := range []operate.Status{operate.StatusProcessed, operate.StatusFailed, operate.StatusDead} {
		id := "order-" + string(status)
		s.add(letter{id: id, status: status, value: []byte(`{"n":9007199254740993,"same":[1,2]}`), key: []byte("k")})
		s.add(letter{id: id, value: []byte(`{"n":9007199254740992,"same":[1,2]}`), key: []byte("k")})
		b := s.signedIn(readToken, "")
		page := b.read(b.conflictOf(id))
		require.Contains(t, page, `<span class="minus"><span class="mark">- </span>  &#34;n&#34;: 9007199254740993,</span>`, id)
		require.Contains(t, page, `<span class="plus"><span class="mark">&#43; </span>  &#34;n&#34;: 9007199254740992,</span>`)
		require.Equal(t, 1, strings.Count(page, `class="minus"`))
		require.Equal(t, 1, strings.Count(page, `class="plus"`))
	}
}

// conflictOf finds the only conflict of an ID in the list.
func (b *browser) conflictOf(id string) string {
	b.s.t.Helper()
	page := b.read("conflicts?id=" + id)
	_, rest, found := strings.Cut(page, `href="conflict?`)
	require.True(b.s.t, found, "no conflict")
	query, _, _ := strings.Cut(rest, `"`)
	return "conflict?" + unescape(query)
}

func TestMessageIsFoundByItsPlaceToo(t *testing.T) {
	s := newStage(t, nil)
	s.add(letter{id: "order-1", status: operate.StatusFailed})
	b := s.signedIn(readToken, "")
	require.Contains(t, textOf(t, b.read("message?topic=orders&partition=0&offset=0&since=1h")), "order-1")
	require.Contains(t, textOf(t, b.read("message?id=nobody")), "never seen")
	require.Contains(t, textOf(t, b.read("message?topic=orders")), "a place is topic, partition and offset")
}

func TestRequestIsFoundByItsKeyWhichIsInNoAddress(t *testing.T) {
	s := newStage(t, nil)
	store, err := idempotency.Open(t.Context(), s.db.Pool, idempotency.PostgresConfig{})
	require.NoError(t, err)
	_, _, err = store.Claim(t.Context(), idempotency.Entry{ID: idempotency.ID(idempotency.HashKey("acme/order-1")),
		KeyHash: idempotency.HashKey("order-1"), Tenant: "acme", Scope: "c1", Route: "POST /orders"}, time.Hour, time.Hour)
	require.NoError(t, err)
	b := s.signedIn(readToken, "")
	form := formOf(t, b.read("requests"))
	found := b.post("requests", "form", form, "key", "order-1", "tenant", "acme")
	require.Contains(t, textOf(t, found.body), "POST /orders", found.body)
	require.NotContains(t, found.body, `?key=`)
	require.Contains(t, textOf(t, b.post("requests", "form", form, "key", "").body), "A key is needed")
	require.Contains(t, textOf(t, b.post("requests", "form", form, "key", `"unclosed`).body), "Idempotency-Key")
}

func TestOtherProcessesHoldsAndReplaysAreTold(t *testing.T) {
	s := newStage(t, nil)
	b := s.signedIn(readToken, "")
	require.Contains(t, textOf(t, b.read("processes")), "once one of them has a position")
	require.Contains(t, textOf(t, b.read("replays")), "None.")
	for _, sql := range []string{
		`insert into firstseen.positions (consumer, topic, "partition", next_offset, owner) values ('billing', '<b>orders', 0, 5, 'host-2')`,
		`insert into firstseen.positions (consumer, topic, "partition", next_offset) values ('replay/billing/x', 'orders', 0, 5)`,
		`insert into firstseen.replays (consumer, topic, "partition", from_offset, to_offset, asked) values ('replay/billing/x', 'orders', 0, 0, 1005, 'x')`,
	} {
		_, err := s.db.Pool.Exec(t.Context(), sql)
		require.NoError(t, err)
	}
	require.Regexp(t, `billing\s*<b>orders\s*1.*host-2`, strings.ReplaceAll(textOf(t, b.read("processes")), "\n", " "))
	require.Contains(t, textOf(t, b.read("replays")), "replay/billing/x")
	require.Contains(t, textOf(t, b.read("replays")), "1\u202f000")
	require.NotContains(t, textOf(t, b.read("replays")), "host-2")
}

func TestContentOfAMessageOfAnyStatusIsShown(t *testing.T) {
	s := newStage(t, nil)
	b := s.signedIn(readToken, "")
	for _, status := range operate.Statuses {
		id := "order-" + string(status)
		s.add(letter{id: id, status: status, value: []byte(`{"of":"` + status + `"}`)})
		page := b.read(linkTo(t, b.read("message?id="+id), "its content"))
		require.Contains(t, textOf(t, page), `"of": "`+string(status)+`"`)
		require.Contains(t, b.read(linkTo(t, page, "hex")), "00000000  7b 22 6f 66")
	}
	require.Equal(t, 404, b.get("content?status=dead&handler=book&id=nobody").status)
}
