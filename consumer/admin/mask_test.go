package admin

import (
	"encoding/base64"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/consumer/mask"
	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/operate"
	"github.com/firstseen/firstseen/handlers/outbox"
)

// secrets are what the config of these tests hides; the last one is the error of all messages that failed.
var secrets = []string{"S3CRET-iban", "S3CRET-copy", "S3CRET-broken", "S3CRET-header", "S3CRET-key", "no such account"}

var hiding = mask.Config{Values: []string{"/customer/iban"}, Headers: []string{"x-patient"}, Keys: []string{"orders"}}

// withSecrets is a stage with secrets in messages of each kind: dead letters are order-dead and broken, order-processed has
// a copy.
func withSecrets(t *testing.T) *stage {
	s := newStage(t, func(s *stage) { withTokens(s); s.settings.Mask = hiding })
	m := dedup.Message{Key: []byte("S3CRET-key"), Value: []byte(`{"n":9007199254740993,"customer":{"iban":"S3CRET-iban"}}`),
		Headers: []dedup.Header{{Key: "X-Patient", Value: []byte("S3CRET-header")}, {Key: "trace", Value: []byte("seen")}}}
	for _, status := range operate.Statuses {
		s.add("order-"+string(status), status, m)
	}
	m.Value = []byte(`{"n":9007199254740993,"customer":{"iban":"S3CRET-copy"}}`)
	s.add("order-processed", operate.StatusProcessed, m)
	m.Value = []byte("S3CRET-broken\xff")
	s.add("broken", operate.StatusDead, m)
	var w outbox.Writer
	_, err := w.AddAll(t.Context(), s.pool, []outbox.Message{{Topic: "orders", Key: []byte("S3CRET-key"),
		Value: []byte(`{"n":9007199254740993,"customer":{"iban":"S3CRET-iban"}}`)}})
	require.NoError(t, err)
	return s
}

// looks has for each route that is read what is to be asked, and whether contents are shown there. A route that is not
// here fails the test: say whether it shows contents, and see that it hides them.
var looks = map[string]struct {
	asked   []string
	content bool
}{
	"/status": {asked: []string{""}}, "/access": {asked: []string{""}}, "/history": {asked: []string{""}},
	"/partitions": {asked: []string{""}}, "/positions": {asked: []string{""}}, "/backlog": {asked: []string{""}},
	"/reruns/plan":  {asked: []string{"?handler=book&ordering=key"}},
	"/replays/plan": {}, // none reads topics here, and no contents are shown
	"/doctor":       {}, // it has none here, and shows no contents
	"/messages/value": {asked: []string{"?status=dead&handler=book&id=order-dead", "?status=failed&handler=book&id=order-failed",
		"?status=processed&handler=book&id=order-processed", "?status=dead&handler=book&id=broken"}, content: true},
	"/size": {asked: []string{""}}, "/pauses": {asked: []string{""}}, "/audit": {asked: []string{""}},
	"/openapi.json": {asked: []string{""}}, "/jobs": {asked: []string{""}}, "/jobs/{id}": {},
	"/messages": {asked: []string{"?status=dead", "?status=dead&content=true", "?status=failed&content=true",
		"?status=pending&content=true", "?status=processed&content=true"}, content: true},
	"/dead-letters":                {asked: []string{"", "?content=true"}, content: true},
	"/dead-letters/{handler}/{id}": {asked: []string{"/dead-letters/book/order-dead", "/dead-letters/book/broken"}, content: true},
	"/dead-letters/errors":         {asked: []string{"", "?topic=orders"}, content: true},
	"/dead-letters/count":          {asked: []string{"?kind=redrive"}},
	"/lanes/errors":                {asked: []string{""}, content: true},
	"/conflicts":                   {asked: []string{"", "?content=true"}, content: true},
	"/conflicts/{handler}/{id}":    {asked: []string{"/conflicts/book/order-processed"}, content: true},
	"/explain": {asked: []string{"?id=order-dead", "?id=order-failed", "?id=order-pending", "?id=order-processed", "?id=broken",
		"?topic=orders&partition=0&offset=0"}, content: true},
	"/outbox/messages": {asked: []string{"?status=pending&content=true", "?status=dead&content=true"}, content: true},
	"/outbox/backlog":  {asked: []string{""}}, "/outbox/dead-letters/errors": {asked: []string{""}},
	"/outbox/dead-letters/count": {asked: []string{"?kind=redrive"}}, "/outbox/lanes/errors": {asked: []string{""}},
	"/outbox/jobs": {asked: []string{""}}, "/outbox/pauses": {asked: []string{""}}, "/outbox/audit": {asked: []string{""}},
}

func TestEveryRouteHidesWhatTheConfigSays(t *testing.T) {
	s := withSecrets(t)
	for path, methods := range s.server.api.operations {
		if methods[http.MethodGet] != nil {
			require.Contains(t, looks, strings.TrimPrefix(path, prefix), "a new route: say whether it shows contents")
		}
	}
	var paths []string
	for path, look := range looks {
		for _, asked := range look.asked {
			if !strings.HasPrefix(asked, "/") {
				asked = path + asked
			}
			paths = append(paths, asked)
		}
	}
	write := []string{"Authorization", "Bearer " + writeToken}
	for _, path := range paths {
		body := string(s.raw(prefix+path, write...).body)
		for _, secret := range secrets {
			require.NotContains(t, body, secret, path)
			require.NotContains(t, body, base64.StdEncoding.EncodeToString([]byte(secret))[:8], path)
		}
	}
	s.settings.Mask = mask.Config{}
	require.NoError(t, s.service.Apply(s.settings))
	for path, look := range looks {
		shown := look.asked == nil
		for _, asked := range paths {
			if asked == path || strings.HasPrefix(asked, path+"?") || slices.Contains(look.asked, asked) {
				body := string(s.raw(prefix+asked, write...).body)
				shown = shown || slices.ContainsFunc(secrets, func(secret string) bool { return strings.Contains(body, secret) })
			}
		}
		if look.content && path != "/conflicts" {
			require.True(t, shown, "%s would show contents, were they not hidden", path)
		}
	}
}

func TestWhatIsHiddenTellsNeitherLengthNorValueAndTheRestStays(t *testing.T) {
	s := withSecrets(t)
	read := []string{"Authorization", "Bearer " + readToken}
	letter := s.get(prefix+"/dead-letters/book/order-dead", read...)
	require.Equal(t, `{"n":9007199254740993,"customer":{"iban":"***"}}`, letter.at("content.value.text"))
	require.Equal(t, []any{"***", "***", "seen", true, 0.0, "***", "attempts_exhausted"}, []any{letter.at("content.key.text"),
		letter.at("content.headers.0.value.text"), letter.at("content.headers.1.value.text"), letter.at("content.masked"),
		letter.at("bytes"), letter.at("error"), letter.at("reason")})
	broken := s.get(prefix+"/dead-letters/book/broken", read...)
	require.Equal(t, []any{"***", 3.0, false}, []any{broken.at("content.value.text"), broken.at("content.value.bytes"),
		broken.at("content.value.cut")})
	require.Contains(t, string(s.get(prefix+"/explain?id=order-dead", read...).body), "(attempts_exhausted: ***)")
	pair := s.get(prefix+"/conflicts/book/order-processed", read...)
	for _, side := range []string{"first", "copy"} {
		require.Equal(t, `{"n":9007199254740993,"customer":{"iban":"*** differs"}}`,
			pair.at("conflicts.0."+side+".content.value.text"))
		require.Equal(t, "***", pair.at("conflicts.0."+side+".content.key.text"), "which is the same")
		require.EqualValues(t, 0, pair.at("conflicts.0."+side+".bytes"))
	}
	s.refused(http.StatusNotFound, http.MethodGet, prefix+"/conflicts/book/order-dead", "", read...)
}

// Who looks for a hidden key could guess it.
func TestNobodyFindsOutAHiddenKeyByLookingForIt(t *testing.T) {
	s := withSecrets(t)
	write := []string{"Authorization", "Bearer " + writeToken}
	for _, path := range []string{"/messages?status=dead&key=S3CRET-key", "/dead-letters?topic=orders&key=S3CRET-key",
		"/dead-letters/errors?key=S3CRET-key", "/dead-letters/count?kind=redrive&key=S3CRET-key",
		"/reruns/plan?handler=book&ordering=none&key=S3CRET-key", "/conflicts?key=S3CRET-key",
		"/outbox/messages?status=pending&key=S3CRET-key", "/outbox/dead-letters/count?kind=discard&key=x",
		"/outbox/dead-letters/errors?key=x", "/reruns/plan?handler=book&ordering=key&key=S3CRET-key"} {
		require.Contains(t, s.refused(http.StatusForbidden, http.MethodGet, prefix+path, "", write...).Detail, "http.mask.keys", path)
	}
	by := `{"key":{"text":"S3CRET-key"}`
	s.refused(http.StatusForbidden, http.MethodPost, prefix+"/dead-letters/redrive", by+`,"dry_run":true}`, write...)
	s.get(prefix+"/dead-letters?topic=refunds&key=S3CRET-key", write...)
	made := s.ask(200, http.MethodPost, prefix+"/jobs", by+`,"id":"`+uuid.NewString()+`","kind":"discard","why":"spam"}`, write...)
	require.Equal(t, "***", made.at("filter.key.text"), "a job that changes something is in the audit, and its key is hidden")
	require.Equal(t, "***", s.get(prefix+"/jobs", write...).at("jobs.0.filter.key.text"))
}

func TestAWriterIsShownWhatIsHiddenAndTheAuditHasIt(t *testing.T) {
	s := withSecrets(t)
	read := []string{"Authorization", "Bearer " + readToken}
	write := []string{"Authorization", "Bearer " + writeToken, "X-Actor", "ann"}
	const body = `{"handler":"book","id":"order-dead","why":"the bank asks"}`
	require.Contains(t, s.refused(http.StatusForbidden, http.MethodPost, prefix+"/unmask", body, read...).Detail, "may read and not change")
	require.Equal(t, "why", s.refused(http.StatusBadRequest, http.MethodPost, prefix+"/unmask", `{"id":"order-dead"}`, write...).Parameter)
	s.refused(http.StatusBadRequest, http.MethodPost, prefix+"/unmask", `{"id":"order-dead","why":" "}`, write...)
	s.refused(http.StatusNotFound, http.MethodPost, prefix+"/unmask", `{"id":"nobody","why":"x"}`, write...)
	s.refused(http.StatusNotFound, http.MethodPost, prefix+"/unmask", `{"handler":"mail","id":"order-dead","why":"x"}`, write...)
	require.Nil(t, s.get(prefix+"/audit?action=unmask", write...).at("audit.0"), "nothing was shown yet")
	shown := s.ask(http.StatusOK, http.MethodPost, prefix+"/unmask", body, write...)
	require.Contains(t, shown.at("messages.0.content.value.text"), "S3CRET-iban")
	require.Equal(t, []any{"S3CRET-key", "no such account", false}, []any{shown.at("messages.0.content.key.text"),
		shown.at("messages.0.error"), shown.at("messages.0.content.masked")})
	audit := s.get(prefix+"/audit?action=unmask", read...)
	require.Equal(t, []any{"write token (ann)", "the bank asks", "handler book", nil}, []any{audit.at("audit.0.actor"),
		audit.at("audit.0.why"), audit.at("audit.0.subject"), audit.at("audit.1")})
	require.Equal(t, shown.at("messages.0.id"), audit.at("audit.0.message_id"))
	require.Contains(t, string(s.get(prefix+"/explain?id=order-dead", read...).body), "unmask by write token (ann): the bank asks")
	copies := s.ask(http.StatusOK, http.MethodPost, prefix+"/unmask", `{"id":"order-processed","why":"x"}`, write...)
	require.Contains(t, copies.at("conflicts.0.content.value.text"), "S3CRET-copy")
	id := s.get(prefix+"/outbox/messages?status=pending", read...).at("messages.0.id")
	sent := s.ask(http.StatusOK, http.MethodPost, prefix+"/outbox/unmask", `{"id":"`+id.(string)+`","why":"x"}`, write...)
	require.Contains(t, sent.at("messages.0.content.value.text"), "S3CRET-iban")
	require.Equal(t, []any{"unmask", id}, []any{s.get(prefix+"/outbox/audit", read...).at("audit.0.action"),
		s.get(prefix+"/outbox/audit", read...).at("audit.0.message_id")})
	require.NotContains(t, s.logged(), "S3CRET")
}

func TestNothingIsShownWhereTheAuditCantBeWritten(t *testing.T) {
	s := withSecrets(t)
	_, err := s.pool.Exec(t.Context(), `alter table firstseen.audit add constraint full_disk check (action <> 'unmask')`)
	require.NoError(t, err)
	answer := s.ask(http.StatusInternalServerError, http.MethodPost, prefix+"/unmask", `{"id":"order-dead","why":"x"}`,
		"Authorization", "Bearer "+writeToken)
	for _, secret := range secrets {
		require.NotContains(t, string(answer.body), secret)
	}
}
