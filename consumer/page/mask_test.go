package page_test

import (
	"encoding/hex"
	"html"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/consumer/mask"
	"github.com/firstseen/firstseen/consumer/service"
	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/operate"
	"github.com/firstseen/firstseen/handlers/outbox"
)

// hidden is a stage whose config hides S3CRET wherever it is in a message.
func hidden(t *testing.T) *stage {
	s := newStage(t, func(settings *service.Settings) {
		settings.Mask = mask.Config{Values: []string{"/iban"}, Headers: []string{"patient"}, Keys: []string{"*"}}
	})
	l := letter{err: "no account S3CRET", key: []byte("S3CRET"), value: []byte(`{"n":9007199254740993,"iban":"S3CRET-1"}`),
		headers: []dedup.Header{{Key: "patient", Value: []byte("S3CRET")}}}
	for _, status := range operate.Statuses {
		l.id, l.status = "order-"+string(status), status
		s.add(l)
	}
	l.value = []byte(`{"n":9007199254740993,"iban":"S3CRET-2"}`)
	s.add(l)
	l.id, l.status, l.value = "broken", operate.StatusDead, []byte(`{"iban":"S3CRET`)
	s.add(l)
	return s
}

// requireHidden wants nothing of what is hidden in a page, in no way of writing it.
func requireHidden(t *testing.T, page, address string) {
	t.Helper()
	for _, text := range []string{page, html.UnescapeString(page)} {
		require.NotContains(t, text, "S3CRET", address)
		require.NotContains(t, strings.ReplaceAll(text, " ", ""), hex.EncodeToString([]byte("S3CRET")), address)
	}
}

func TestNoPageShowsWhatIsHidden(t *testing.T) {
	s := hidden(t)
	for _, token := range []string{readToken, writeToken} {
		b := s.signedIn(token, "")
		for _, page := range every {
			requireHidden(t, b.read(page), page)
		}
		for _, status := range operate.Statuses {
			page := b.read("message?id=order-" + string(status))
			requireHidden(t, page, string(status))
			content := b.read(linkTo(t, page, "its content"))
			require.Contains(t, content, "9007199254740993")
			for _, as := range []string{"JSON", "text", "hex"} {
				requireHidden(t, b.read(linkTo(t, content, as)), as)
			}
		}
		for _, address := range []string{"letter?handler=book&id=broken", "letter?handler=book&id=order-dead", "waiting?status=pending",
			"letter?handler=book&id=order-dead&as=text", "letter?handler=book&id=order-dead&as=hex", "dead?topic=orders", "outbox?status=dead"} {
			requireHidden(t, b.read(address), address)
		}
		diff := b.read(b.conflictOf("order-dead"))
		requireHidden(t, diff, "diff")
		require.Contains(t, textOf(t, diff), `"iban": "*** differs"`)
		require.NotContains(t, diff, `class="minus"`, "what is hidden is on neither side")
	}
}

// What is to be sent is hidden as what came is, and shown in the same way: also what no relay has taken yet.
func TestWhatIsHiddenOfTheOutboxIsShownToWriterWhoSaysWhy(t *testing.T) {
	s := hidden(t)
	var w outbox.Writer
	_, err := w.Add(t.Context(), s.db.Pool, outbox.Message{Topic: "orders", Key: []byte("S3CRET"), Tenant: "acme",
		Value: []byte(`{"n":9007199254740993,"iban":"S3CRET-waits"}`)})
	require.NoError(t, err)
	s.store, err = dedup.Open(t.Context(), s.db.Pool, dedup.Config{Inbox: dedup.OutboxInbox})
	require.NoError(t, err)
	s.add(letter{id: "sent-1", handler: "events", err: "no account S3CRET", value: []byte(`{"n":9007199254740993,"iban":"S3CRET-dead"}`)})
	reader, writer := s.signedIn(readToken, ""), s.signedIn(writeToken, "bea")
	for status, secret := range map[string]string{"pending": "S3CRET-waits", "dead": "S3CRET-dead"} {
		content := linkTo(t, writer.read("outbox?status="+status), "its content")
		require.Equal(t, content, linkTo(t, reader.read("outbox?status="+status), "its content"))
		page := writer.read(content)
		requireHidden(t, page, content)
		require.Contains(t, page, "9007199254740993")
		require.NotContains(t, page, "download?")
		require.NotContains(t, reader.read(content), `action="unmask"`)
		shown := writer.post("unmask", append(inputs(page), "why", "the bank asks for "+status)...)
		require.Equal(t, http.StatusOK, shown.status, shown.body)
		require.Contains(t, textOf(t, shown.body), secret)
		require.NotContains(t, textOf(t, reader.read("audit")), "the bank asks for "+status)
		require.Contains(t, textOf(t, reader.read("audit?of=outbox&action=unmask")), "the bank asks for "+status)
	}
	next := linkTo(t, reader.read("audit?of=outbox&limit=1"), "Next")
	require.Contains(t, textOf(t, reader.read(next)), "the bank asks for")
	require.Contains(t, textOf(t, reader.read(linkTo(t, reader.read(next), "First"))), "the bank asks for")
}

// Who may only read is offered nothing; who may change something says why, and that is in the audit before he sees it.
func TestWhatIsHiddenIsShownToWriterWhoSaysWhy(t *testing.T) {
	s := hidden(t)
	reader, writer := s.signedIn(readToken, ""), s.signedIn(writeToken, "bea")
	for _, address := range []string{"letter?handler=book&id=order-dead", writer.conflictOf("order-dead"),
		linkTo(t, writer.read("message?id=order-failed"), "its content")} {
		require.NotContains(t, reader.read(address), `action="unmask"`)
		require.Contains(t, writer.read(address), `action="unmask"`, address)
	}
	refused := reader.post("unmask", "form", formOf(t, reader.read("requests")), "handler", "book", "id", "order-dead", "why", "x")
	require.Equal(t, http.StatusForbidden, refused.status)
	requireHidden(t, refused.body, "refused")
	fields := inputs(writer.read("letter?handler=book&id=broken"))
	require.Equal(t, http.StatusBadRequest, writer.post("unmask", fields...).status)
	require.Equal(t, http.StatusForbidden, writer.post("unmask", "handler", "book", "id", "order-dead", "why", "x").status, "no form of ours")
	fields = append(inputs(writer.read(writer.conflictOf("order-dead"))), "why", "the bank <asks>")
	shown := textOf(t, writer.post("unmask", fields...).body)
	require.Contains(t, shown, "S3CRET-1")
	require.Contains(t, shown, "S3CRET-2", "the copy's")
	require.Contains(t, shown, "no account S3CRET")
	require.Contains(t, textOf(t, reader.read("audit")), "the bank <asks>")
	_, err := s.db.Pool.Exec(t.Context(), `alter table firstseen.audit add constraint full_disk check (action <> 'unmask') not valid`)
	require.NoError(t, err)
	failed := writer.post("unmask", fields...)
	require.Equal(t, http.StatusInternalServerError, failed.status)
	requireHidden(t, failed.body, "failed")
}
