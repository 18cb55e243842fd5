package page_test

import (
	"context"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/consumer"
	"github.com/firstseen/firstseen/consumer/consumertest"
	"github.com/firstseen/firstseen/consumer/consumertest/chromium"
	"github.com/firstseen/firstseen/consumer/service"
	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/deduptest"
	"github.com/firstseen/firstseen/handlers"
)

// newReading is a stage whose program reads a topic, orders, with 60 messages that its handler has not seen.
func newReading(t *testing.T) (s *stage, addr string) {
	addr = consumertest.NewFake(t).Addr
	consumertest.CreateTopic(t, addr, "orders", 2)
	consumertest.Produce(t, addr, consumertest.Records("orders", 60, 7)...)
	return stageOf(t, deduptest.New(t), nil, nil, func(s *stage, parts *service.Parts) { s.read(addr, parts) }), addr
}

func (s *stage) read(addr string, parts *service.Parts) {
	quiet := slog.New(slog.DiscardHandler)
	var registry handlers.Registry
	require.NoError(s.t, registry.Register("totals", handlers.Each(handlers.HandlerFunc(
		func(context.Context, pgx.Tx, dedup.Message) error { return nil })), "orders"))
	processor, err := handlers.NewProcessor(handlers.Config{Store: s.store, Handlers: &registry, Logger: quiet})
	require.NoError(s.t, err)
	c, err := consumer.New(consumer.Config{Connection: consumer.Connection{Brokers: []string{addr}}, Group: "billing",
		FetchWait: 50 * time.Millisecond, Logger: quiet}, processor)
	require.NoError(s.t, err)
	parts.Processor, parts.Consumer = processor, c.Config()
}

// A replay is planned by whoever may read, started by whoever may change, once however often it is pressed, and watched.
func TestReplayIsPlannedStartedOnceAndWatched(t *testing.T) {
	s, addr := newReading(t)
	reader := s.signedIn(readToken, "")
	require.Contains(t, textOf(t, reader.read("replay")), "Say which topic, and from where")
	for address, fault := range map[string]string{
		"replay?topic=orders":                                       "from",
		"replay?topic=other&from=earliest":                          "topic: other is none that this process reads",
		"replay?topic=orders&from=yesterday":                        "from: ",
		"replay?topic=orders&from=earliest&handler=mail":            "the topic has no handler mail; it has: totals",
		"replay?topic=orders&from=earliest&partitions=0,x":          "partition",
		"replay?topic=orders&from=earliest&rate=0":                  "say a number from 1 on",
		"replay?topic=orders&from=earliest&rate=fast":               "say a number from 1 on",
		"replay?topic=orders&from=earliest&partitions=0+7":          "partition 7 does not exist",
		"replay?topic=%3Cscript%3Ealert(1)%3C/script%3E&from=00:00": "",
	} {
		page := reader.read(address)
		require.Contains(t, textOf(t, page), fault, address)
		require.NotContains(t, page, "<script>alert")
		require.NotContains(t, page, "The plan", address)
	}
	require.Equal(t, http.StatusConflict, s.planned("topic=orders&from=earliest&partition=7"), "the topic has none")
	require.Equal(t, http.StatusBadRequest, s.planned("topic=other&from=earliest"), "it is asked for wrongly")
	address := "replay?topic=orders&from=earliest&handler=totals&rate=1000&partitions=0,+1"
	text := textOf(t, reader.read(address))
	require.Contains(t, text, "60 offsets in 2 partitions")
	require.Contains(t, text, "All were read, and nothing was changed")
	require.Contains(t, text, "60: would be handled")
	require.NotContains(t, reader.read(address), "startreplay")

	b := s.signedIn(writeToken, "ann")
	form := append(inputs(b.read(address)), "why", "fill the totals")
	refused := reader.post("startreplay", append([]string{"form", formOf(t, reader.read("requests"))}, form...)...)
	require.Equal(t, http.StatusForbidden, refused.status)
	blank := b.post("startreplay", append(inputs(b.read(address)), "why", "  ")...)
	require.Equal(t, http.StatusOK, blank.status)
	require.Contains(t, textOf(t, blank.body), "Say why")
	require.Contains(t, textOf(t, blank.body), "60: would be handled", "the plan is still there")
	require.Regexp(t, `name="job" value="`+fieldOf(form, "job")+`"`, b.post("startreplay", append(form[:len(form)-1:len(form)-1], "")...).body,
		"it is the same job")
	made := b.post("startreplay", form...)
	require.Equal(t, http.StatusSeeOther, made.status, made.body)
	require.Equal(t, made.header.Get("Location"), b.post("startreplay", form...).header.Get("Location"))
	job := made.header.Get("Location")
	require.Eventually(t, func() bool { return strings.Contains(b.read(job), "Replay: done") }, waitFor, 50*time.Millisecond)
	text = textOf(t, b.read(job))
	require.Contains(t, text, "60 of 60 offsets")
	require.Contains(t, text, "60: handled")
	require.Contains(t, text, "handler totals, topic orders, from earliest to latest, partitions 0, 1, at most 1\u202f000 messages a second")
	require.Contains(t, textOf(t, b.read("jobs")), "write token (ann)")
	require.Contains(t, b.read("replays"), `href="`+strings.TrimPrefix(job, "./"), "it leads to its job")
	require.Contains(t, textOf(t, reader.read(address)), "60: seen before, no effect")

	consumertest.DeleteBefore(t, addr, "orders", 0, 3)
	require.Contains(t, textOf(t, reader.read("replay?topic=orders&from=0")), "are not in Kafka any more")
	b = s.signedIn(writeToken, "ann")
	plan := b.read("replay?topic=orders&from=0&skip_lost=yes")
	require.Contains(t, textOf(t, plan), "57 offsets in 2 partitions")
	made = b.post("startreplay", append(inputs(plan), "why", "what is left")...)
	require.Eventually(t, func() bool { return strings.Contains(b.read(made.header.Get("Location")), "Replay: done") }, waitFor, 50*time.Millisecond)
	require.Contains(t, textOf(t, b.read(made.header.Get("Location"))), "without those that are gone")
}

func TestReplayCanNotBePlannedWhereNoTopicIsRead(t *testing.T) {
	s := newStage(t, nil)
	require.Contains(t, textOf(t, s.signedIn(readToken, "").read("replay?topic=orders&from=earliest")), "this process reads no topic")
}

func TestInARealBrowserAReplayIsPlannedStartedAndDone(t *testing.T) {
	b := chromium.Open(t)
	s, _ := newReading(t)
	b.Do(chromedp.EmulateViewport(360, 740), chromedp.Navigate(s.url("replays")),
		chromedp.SendKeys(`input[name=actor]`, "ann"), chromedp.SendKeys(`input[name=token]`, writeToken+"\r"),
		chromedp.WaitVisible(`//h1[.="Replays"]`), chromedp.Click(`//a[.="Plan one here"]`),
		chromedp.WaitVisible(`//h1[.="Replay"]`), chromedp.SendKeys(`input[name=topic]`, "orders"),
		chromedp.SendKeys(`input[name=from]`, "earliest\r"), chromedp.WaitVisible(`//h2[.="The plan"]`))
	require.Empty(t, b.Beyond(), "the plan")
	if os.Getenv("FIRSTSEEN_TEST_AXE") != "" {
		require.Empty(t, b.Audit(chromium.Axe(t)), "the plan")
	}
	b.Do(chromedp.SendKeys(`input[name=why]`, "fill the totals\r"), chromedp.WaitVisible(`//h1[starts-with(., "Replay: ")]`))
	require.Empty(t, b.Beyond(), "the job")
	require.Eventually(t, func() bool {
		b.Do(chromedp.Reload(), chromedp.WaitVisible(`//h1[starts-with(., "Replay: ")]`))
		return strings.Contains(chromium.Seen(b, chromedp.Text(`main`)), "60 of 60 offsets")
	}, waitFor, 200*time.Millisecond)
	b.Do(chromedp.Navigate(s.url("replays")), chromedp.WaitVisible(`//td[contains(., "replay/billing/")]`))
	require.Empty(t, b.Beyond(), "the list")
}

// planned is the status of the API's answer.
func (s *stage) planned(query string) int {
	r, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet,
		"http://"+s.server.Addr().String()+"/api/v1/replays/plan?"+query, nil)
	require.NoError(s.t, err)
	r.Header.Set("Authorization", "Bearer "+readToken)
	return s.browser().do(r).status
}

// fieldOf is a field's value among pairs.
func fieldOf(pairs []string, name string) string { return pairs[slices.Index(pairs, name)+1] }
