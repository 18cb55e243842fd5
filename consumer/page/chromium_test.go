package page_test

import (
	"context"
	"flag"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/consumer/consumertest/chromium"
	"github.com/firstseen/firstseen/consumer/page"
	"github.com/firstseen/firstseen/consumer/service"
	apiview "github.com/firstseen/firstseen/consumer/view"
	"github.com/firstseen/firstseen/dedup/httpjson"
	"github.com/firstseen/firstseen/dedup/operate"
)

var screenshots = flag.Bool("screenshots", false, "write the pictures in docs anew")

// waitFor is how long a test waits for what is to come.
const waitFor = 3 * time.Minute

// furnish has the inbox hold what an operator meets.
func (s *stage) furnish() {
	card := `{"order":"order-4711","account":9007199254740993,"total":129.90,"lines":[{"sku":"A-17","n":2}],"note":"leave at the door"}`
	for _, l := range []letter{
		{id: "order-4711", value: []byte(card), key: []byte("acc-17"),
			err: "insert into ledger: no such account 9007199254740993"},
		{id: "order-4711", value: []byte(strings.Replace(card, "129.90", "129.95", 1)), key: []byte("acc-17")},
		{id: "order-4712", value: []byte(`{"order":"order-4712","total":5}`), err: "insert into ledger: no such account 12"},
		{id: "mail-88", handler: "mail", topic: "events", reason: "permanent", err: "the receiver answers 422: no such address"},
		{id: "<script>alert(1)</script>", handler: "mail", topic: "events", reason: "permanent", tenant: "blue\u202etenant",
			err: strings.Repeat("a-very-long-error-without-any-space", 40)},
		{id: "order-4720", status: operate.StatusFailed, err: "insert into ledger: deadlock detected"},
		{id: "order-4721", status: operate.StatusFailed, err: "insert into ledger: deadlock detected"},
	} {
		s.add(l)
	}
}

func TestInARealBrowserALetterIsFoundRedrivenAndGone(t *testing.T) {
	b := chromium.Open(t)
	s := newStage(t, nil)
	s.furnish()
	b.Do(chromedp.EmulateViewport(1280, 800), chromedp.Navigate(s.url("dead?handler=book")),
		chromedp.SendKeys(`input[name=actor]`, "ann"), chromedp.SendKeys(`input[name=token]`, writeToken+"\r"),
		chromedp.WaitVisible(`input[name=row]`))
	address := chromium.Seen(b, chromedp.Location())
	require.True(t, strings.HasSuffix(address, "/ui/dead?handler=book"), "it leads where the link did: %s", address)
	b.Do(chromedp.SendKeys(`input[name=id]`, "order-4711\r"), chromedp.WaitVisible(`//a[.="order-4711"]`),
		chromedp.WaitNotPresent(`//a[.="order-4712"]`),
		chromedp.Click(`input[name=row]`), chromedp.WaitVisible(`//span[.="1 selected"]`),
		chromedp.Click(`button[value=redrive]`), chromedp.WaitVisible(`//h1[.="Redrive 1 of the dead letters"]`),
		chromedp.SendKeys(`input[name=why]`, "fixed in 1.4.2\r"), chromedp.WaitVisible(`//h1[.="Done"]`))
	require.Contains(t, chromium.Seen(b, chromedp.Text(`main`)), "Redriven: 1 of 1 selected")
	b.Do(chromedp.Click(`//a[.="Back to the list"]`), chromedp.WaitVisible(`.empty`),
		chromedp.Click(`//a[.="All"]`), chromedp.WaitVisible(`//a[.="order-4712"]`))
	require.NotContains(t, chromium.Seen(b, chromedp.Text(`main`)), "order-4711")
}

func TestInARealBrowserPagesFitASmallScreen(t *testing.T) {
	b := chromium.Open(t)
	s := newStage(t, nil)
	s.furnish()
	b.Do(chromedp.EmulateViewport(360, 740), chromedp.Navigate(s.url("")),
		chromedp.SendKeys(`input[name=token]`, writeToken+"\r"), chromedp.WaitVisible(`.verdict`))
	for _, page := range append(every, "letter?handler=book&id=order-4711", "message?id=order-4720",
		"letter?handler=book&as=hex&id=order-4711") {
		b.Do(chromedp.Navigate(s.url(page)), chromedp.WaitVisible(`h1`))
		require.Empty(t, b.Beyond(), page)
	}
}

func TestScreenshots(t *testing.T) {
	if !*screenshots {
		t.Skip("-screenshots writes them")
	}
	b := chromium.Open(t)
	s := newStage(t, nil)
	s.furnish()
	b.Do(chromedp.EmulateViewport(1280, 860), chromedp.Navigate(s.url("")),
		chromedp.SendKeys(`input[name=actor]`, "ann"), chromedp.SendKeys(`input[name=token]`, writeToken+"\r"),
		chromedp.WaitVisible(`.verdict`), chromedp.Navigate(s.url("dead")), chromedp.WaitVisible(`h1`))
	b.Save("../../docs/page-dead.png")
	busy, err := page.New(page.Config{API: busyHour(time.Now())})
	require.NoError(t, err)
	server := httptest.NewServer(busy)
	t.Cleanup(server.Close)
	b.Do(chromedp.Navigate(server.URL), chromedp.WaitVisible(`.verdict`))
	b.Save("../../docs/page-overview.png")
}

// busyHour is an API that tells of an hour with an outage, and with a restart in it.
func busyHour(now time.Time) http.Handler {
	history := apiview.History{Every: 10}
	total, lag := apiview.Totals{}, int64(0)
	for i := range 360 {
		at := now.Add(time.Duration(i-360) * 10 * time.Second)
		down := i > 120 && i < 150
		rate := int64(20000 + 3000*math.Sin(float64(i)/20) + float64(i*7919%1500))
		switch {
		case down:
			rate, lag, total.Failed = 0, lag+22000, total.Failed+40
		case lag > 0:
			rate, lag = rate*2, max(0, lag-rate)
		}
		total.Handled += rate
		total.Duplicates += rate / 9
		if i > 230 && i < 250 {
			continue
		}
		history.Samples = append(history.Samples, apiview.Sample{At: at, State: "consuming", Lag: lag, Totals: total,
			Oldest: float64(lag) / 2200, Topics: []apiview.TopicSample{{Topic: "orders", Lag: lag, Oldest: float64(lag) / 2200},
				{Topic: "payments", Lag: int64(i % 7)}}})
	}
	answers := map[string]any{"/api/v1/access": apiview.Access{Client: "local", MayChange: true}, "/api/v1/history": history,
		"/api/v1/status":     apiview.Status{Version: "v1.9.0", Group: "billing", Inbox: "billing", State: "consuming", Totals: total},
		"/api/v1/partitions": apiview.Partitions{}, "/healthz": service.Health{Status: "degraded", Checks: []service.Check{
			{Name: "failure_ratio", Status: "ok", Reason: "0 of 118402 attempts failed in the last 5m0s"},
			{Name: "dead_letters", Status: "degraded", Reason: "12 messages went to the dead letters within an hour and are there"}}}}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = httpjson.Write(w, http.StatusOK, httpjson.Type, answers[r.URL.Path])
	})
}

// axe-core finds what keeps people from using a page: FIRSTSEEN_TEST_AXE names its file, axe.min.js.
func TestInARealBrowserAxeFindsNothing(t *testing.T) {
	axe := chromium.Axe(t)
	b := chromium.Open(t)
	s := newStage(t, nil)
	s.furnish()
	b.Do(chromedp.Navigate(s.url("")), chromedp.WaitVisible(`h1`))
	require.Empty(t, b.Audit(axe), "the sign-in")
	b.Do(chromedp.SendKeys(`input[name=token]`, writeToken+"\r"), chromedp.WaitVisible(`.verdict`))
	pages := append(every, "letter?handler=book&id=order-4711", "message?id=order-4720", "bulk?kind=redrive", "nothing",
		s.signedIn(readToken, "").conflictOf("order-4711"))
	for _, scheme := range []string{"light", "dark"} {
		b.Scheme(scheme)
		for _, page := range pages {
			b.Do(chromedp.Navigate(s.url(page)), chromedp.WaitVisible(`h1`))
			require.Empty(t, b.Audit(axe), "%s in %s", page, scheme)
		}
	}
}

// Figures are kept fresh; what somebody works with stays as it is, and where no answer comes the page says so.
func TestInARealBrowserFiguresAreKeptFreshAndASelectionStays(t *testing.T) {
	b := chromium.Open(t)
	s := newStage(t, nil)
	b.Do(chromedp.Navigate(s.url("waiting")), chromedp.SendKeys(`input[name=token]`, writeToken+"\r"),
		chromedp.WaitVisible(`//span[.="Kept fresh every 10 seconds."]`),
		chromedp.SendKeys(`input[name=topic]`, "half a wo"))
	refresh := chromedp.Evaluate[chromedp.Void](`refresh().then(() => 0)`, chromedp.EvalAwaitPromise)
	s.add(letter{id: "order-1", status: operate.StatusFailed})
	b.Do(refresh, chromedp.WaitVisible(`//a[.="order-1"]`))
	require.Equal(t, "half a wo", chromium.Seen(b, chromedp.Value(`input[name=topic]`)))

	b.Do(chromedp.Evaluate[chromedp.Void](`getSelection().selectAllChildren(document.querySelector("#fresh td"))`))
	s.add(letter{id: "order-2", status: operate.StatusFailed})
	b.Do(refresh)
	require.Equal(t, "book", chromium.Seen(b, chromedp.Evaluate[string](`getSelection().toString().trim()`)))
	require.NotContains(t, chromium.Seen(b, chromedp.Text(`main`)), "order-2")
	b.Do(chromedp.Evaluate[chromedp.Void](`getSelection().removeAllRanges()`), refresh, chromedp.WaitVisible(`//a[.="order-2"]`))

	s.server.Stop()
	b.Do(refresh, chromedp.WaitVisible(`//span[starts-with(., "No answer")]`))
}

// Times are in the reader's zone, with UTC beside.
func TestInARealBrowserTimesAreInTheReadersZone(t *testing.T) {
	b := chromium.Open(t)
	s := newStage(t, nil)
	s.add(letter{id: "order-1"}) // produced at 2001-09-09 01:46:40 UTC
	b.Do(chromedp.Func(func(ctx context.Context, _ *chromedp.Target) error {
		_, err := chromedp.Call(ctx, emulation.SetTimezoneOverride, emulation.SetTimezoneOverrideParams{TimezoneID: "America/New_York"})
		return err
	}), chromedp.Navigate(s.url("letter?handler=book&id=order-1")),
		chromedp.SendKeys(`input[name=token]`, readToken+"\r"),
		chromedp.WaitVisible(`//time[.="2001-09-08 21:46:40 (2001-09-09 01:46:40 UTC)"]`))
}
