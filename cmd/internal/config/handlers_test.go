package config

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/handlers"
)

func withTopics(topics string) string {
	at := strings.Index(minimal, "topics:")
	return minimal[:at] + "topics: " + topics + "\n"
}

func hook(settings string) string {
	return withTopics("[{name: orders, handlers: [{name: notify, " + settings + "}]}]")
}

func TestFaultsOfHandlers(t *testing.T) {
	at := "topics[0].handlers[0]"
	for text, want := range map[string][]string{
		hook("webhook: {timeout: 1s}"): {at + ".webhook.url: is required"},
		hook("function: f, webhook: {url: 'https://h'}"): {
			at + ".webhook: is given beside function; keep one of the two"},
		hook("webhook: {}"): {
			at + ".function: is required; name the Postgres function, like billing.book_order, or give a webhook"},
		hook("webhook: 'https://h'"): {at + ".webhook: is not a section"},
		hook("webhook: {url: 'https://h', key: x}"): {
			at + ".webhook.key: unknown key; the keys here are url, secret,"},
		hook("webhook: {url: 'https://h', allowprivate: true}"): {
			at + ".webhook.allowprivate: unknown key; did you mean topics[].handlers[].webhook.allow_private?"},
		hook("webhook: {url: 'ftp://h#x', secrets: [a, whsec_aaaa], headers: {Host: x, a b: c}, proxy: x}"): {
			at + ".webhook.url: must begin with https://", at + ".webhook.url: has a fragment",
			at + ".webhook.secrets: number 1 is not whsec_ and base64", at + ".webhook.secrets: number 2 has 3 bytes",
			at + ".webhook.headers: Host is not yours to set", at + `.webhook.headers: "a b" is no name of a header`,
			at + ".webhook.proxy: is no URL of a proxy",
		},
		hook("webhook: {url: 'http://127.0.0.1/'}"): {
			at + ".webhook.url: is an address that is refused"},
		hook("webhook: {url: 'https://h', secret: " + signing + ", secrets: [" + signing + "]}"): {
			at + ".webhook.secrets: is given beside secret"},
		hook("webhook: {url: 'https://h', secret: " + signing + ", secret_file: /none}"): {
			at + ".webhook.secret_file: is given beside " + at + ".webhook.secret"},
		hook("webhook: {url: 'https://h', secret_file: /none}"): {
			at + ".webhook.secret_file: open /none"},
		hook("webhook: {url: 'https://h', timeout: .nan, concurrency: .nan, headers: x, secrets: x, allow_private: maybe}"): {
			at + ".webhook.secrets: is not a list", at + ".webhook.headers: is not a section",
			at + ".webhook.timeout: is not a duration",
			at + ".webhook.concurrency: is not a whole number",
			at + ".webhook.allow_private: is neither true nor false",
		},
		hook("function: f, retry: {base: 0s, cap: NaN, max_attempts: .inf, max_age: -1h}, ordering: any"): {
			at + ".retry.cap: is not a duration", at + ".retry.max_attempts: is not a whole number",
			at + ".retry.base: must be above 0", at + ".retry.max_age: must be above 0",
			at + ".ordering: is none of key, partition, none",
		},
		hook("function: f, retry: {base: 10m}"): {
			at + ".retry.base: 10m0s is more than the longest pause, cap, which is 5m0s"},
		hook("function: f, retry: {base: 2s, cap: 1s}"): {
			at + ".retry.base: 2s is more than the longest pause, cap, which is 1s"},
		minimal + "max_parked: 0\n": {`max_parked: must be above 0`},
		withTopics("[{name: a, fingerprint: xml, handlers: [{name: h, function: f}]}]"): {
			"topics[0].fingerprint: is none of bytes, json"},
		withTopics("[{name: a, handlers: [{name: h, function: f}]}, {name: b, handlers: [{name: h, function: f, ordering: none}]}]"): {
			"topics[1].handlers[0].name: is the name of a handler with other settings"},
		withTopics("[{name: a, handlers: [{name: h, webhook: {url: 'https://a'}}]}, {name: b, handlers: [{name: h, webhook: {url: 'https://b'}}]}]"): {
			"topics[1].handlers[0].name: is the name of a handler with other settings"},
	} {
		_, err := loadText(t, text)
		got := faults(t, err)
		require.Len(t, got, len(want), "%s\n%s", text, err)
		for i := range want {
			require.True(t, strings.HasPrefix(got[i], want[i]), "%s\nwant %q\ngot  %q", text, want[i], got[i])
		}
	}
}

func TestSecretFileMayHoldSeveralSecrets(t *testing.T) {
	c, err := loadText(t,
		hook("webhook: {url: 'https://h', secret_file: "+write(t, "s", signing+"\r\n\n"+signing+"\n")+"}"))
	require.NoError(t, err)
	require.Equal(t, []string{signing, signing}, c.Topics[0].Handlers[0].Webhook.config().Secrets)
}

func TestRegistrationsAreMadeOnceForAllTopicsOfAHandler(t *testing.T) {
	c, err := loadText(t, complete, completeEnviron...)
	require.NoError(t, err)
	var made []string
	got, err := c.Registrations(func(name string) (handlers.BatchHandler, error) {
		made = append(made, name)
		return handlers.BatchHandlerFunc(nil), nil
	})
	require.NoError(t, err)
	require.Equal(t, []string{"app.book_order"}, made)
	require.Len(t, got, 2)
	require.Equal(t, []string{"orders", "refunds"}, got[0].Topics)
	require.Equal(t, "book", got[0].Name)
	hook := got[1]
	require.Equal(t, 3*time.Second, hook.Detached.(*handlers.Webhook).Timeout())
	hook.Detached = nil
	require.Equal(t,
		handlers.Registration{Name: "notify", Topics: []string{"orders"}, Concurrency: 4, Ordering: dedup.Unordered,
			Retry: handlers.Retry{Base: 2 * time.Second, Cap: time.Minute,
				MaxAttempts: 5, MaxAge: 24 * time.Hour}}, hook)
	require.Contains(t, c.Summary(), "gives them to 2 handlers in db:5432/shop, 1 of them by webhook")

	_, err = c.Registrations(
		func(string) (handlers.BatchHandler, error) { return nil, errors.New("none of that name") })
	require.EqualError(t, err, "handler book of topic orders: none of that name")
}

func TestHandlersRunInTheOrderOfTheTopicsLists(t *testing.T) {
	c, err := loadText(t, withTopics("[{name: a, handlers: [{name: two, function: f}]}, {name: b, handlers: [{name: "+
		"one, function: g}, {name: two, function: f}, {name: three, webhook: {url: 'http://h'}}]}]"))
	require.NoError(t, err)
	got, err := c.Registrations(
		func(string) (handlers.BatchHandler, error) { return handlers.BatchHandlerFunc(nil), nil })
	require.NoError(t, err)
	var names []string
	for _, r := range got {
		names = append(names, r.Name)
	}
	require.Equal(t, []string{"one", "two", "three"}, names)
	require.Equal(t, []string{"three"}, c.Unencrypted())
	pool, err := c.Pool()
	require.NoError(t, err)
	require.EqualValues(t, 9, pool.MaxConns)
}
