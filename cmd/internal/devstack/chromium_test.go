package devstack

import (
	"errors"
	"flag"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/consumer/consumertest/chromium"
	"github.com/firstseen/firstseen/dedup/wait"
)

var screenshots = flag.Bool("screenshots", false, "write the picture in docs anew")

// guest is a visitor with a browser.
type guest struct {
	*visitor
	*chromium.Tab
}

// noted has the page itself look whenever it changes what it says of the balance.
const noted = `(() => {
	const text = (id) => document.getElementById(id).textContent;
	window.looks = 0;
	window.faults = [];
	new MutationObserver(() => {
		looks++;
		const mark = text("mark");
		if (mark !== "…" && (mark !== "✓ right" || text("balance") !== text("due"))) {
			faults.push(["mark", "balance", "due", "why"].map(text).join(" | "));
		}
	}).observe(document.getElementById("verdict"), { subtree: true, childList: true, characterData: true });
})()`

// arrive opens the page.
func arrive(t *testing.T, v *visitor) *guest {
	t.Helper()
	g := &guest{v, chromium.Open(t)}
	g.Do(chromedp.EmulateViewport(1280, 860), chromedp.Navigate(v.url), chromedp.Evaluate[chromedp.Void](noted))
	return g
}

// sees waits until an expression of the page's says so.
func (g *guest) sees(what, expression string) {
	g.t.Helper()
	for end := time.Now().Add(comes); !chromium.Seen(g.Tab, chromedp.Evaluate[bool](expression)); {
		require.True(g.t, time.Now().Before(end), "waited for: %s\n%s", what, chromium.Seen(g.Tab, chromedp.Text(`body`)))
		wait.Sleep(g.t.Context(), 20*time.Millisecond)
	}
}

// reads waits until a part of the page says something.
func (g *guest) reads(id, part string) {
	g.t.Helper()
	g.sees(id+" says "+part, fmt.Sprintf(`document.getElementById(%q).textContent.includes(%q)`, id, part))
}

// number is what a part of the page says, where that begins with a number.
func (g *guest) number(id string) int {
	g.t.Helper()
	text, _, _ := strings.Cut(chromium.Seen(g.Tab, chromedp.TextContent(`#`+id)), " ")
	n, err := strconv.Atoi(strings.ReplaceAll(text, ",", ""))
	require.NoError(g.t, err, id)
	return n
}

// goesTo walks by the keyboard's Tab to a button.
func (g *guest) goesTo(button string) {
	g.t.Helper()
	for range 20 {
		g.Do(chromedp.KeyEvent(kb.Tab))
		if g.isAt() == button {
			return
		}
	}
	require.Fail(g.t, "no way by the keyboard", button)
}

// isAt is the button that has the keyboard's focus.
func (g *guest) isAt() string {
	g.t.Helper()
	return chromium.Seen(g.Tab, chromedp.Evaluate[string](`document.activeElement.dataset.do || ""`))
}

// Somebody presses one button after the other, the first ones by mouse and the others by keyboard.
func TestInARealBrowserAVisitorDisturbsTheRunAndSeesTheBalanceStayRight(t *testing.T) {
	v := beVisited(t, 300, 0)
	g := arrive(t, v.visitor)
	g.reads("mark", "✓ right")
	g.reads("now", "Kill it, and look at the balance.")
	g.seesTheStreamMove()

	g.Do(chromedp.Click(`[data-do=kill]`))
	g.reads("stream", "✕ killed")
	g.reads("events", "took over within")
	require.Equal(t, 1, g.number("crashes"))
	g.sees("the next consumer", `!document.getElementById("stream").textContent.includes("killed")`)

	require.Zero(t, g.number("copies"))
	g.Do(chromedp.Click(`[data-do=resend]`))
	g.reads("events", "sent again, under new offsets")
	g.seesWhatWasSentAgainDropped()

	g.goesTo("fail")
	g.Do(chromedp.KeyEvent(kb.Enter))
	g.seesOneAccountWait()
	require.Equal(t, "fail", g.isAt(), "the keyboard stays where it was")
	g.reads("events", "the handler is well again")
	g.sees("nothing waits", `document.getElementById("stream").textContent.includes("another try0 waiting")`)

	g.goesTo("chaos")
	g.Do(chromedp.KeyEvent(" "))
	g.reads("chaos", "Pause chaos")
	g.sees("a kill that comes by itself", `Number(document.getElementById("crashes").textContent) > 1`)
	g.Do(chromedp.KeyEvent(" "))
	g.reads("chaos", "Start chaos")

	v.endsRight()
	g.seesTheEnd(v.s)
}

func (g *guest) seesTheStreamMove() {
	g.t.Helper()
	g.sees("dots of new messages", `document.querySelectorAll("#stream .dot.new").length > 3`)
	g.sees("a dot that moves", `(() => {
		const now = Number(document.querySelector("#stream .dot:last-child")?.getAttribute("cx") ?? 0);
		const moved = window.last > 0 && now > 0 && now !== window.last;
		window.last = now;
		return moved;
	})()`)
	g.sees("a line of the last minute", `document.querySelector("#plot polyline.new")?.points.length > 1`)
}

// Only what the button sent again are copies.
func (g *guest) seesWhatWasSentAgainDropped() {
	g.t.Helper()
	event := g.look().Events[0].Text
	count, _, _ := strings.Cut(event, " ")
	copies, err := strconv.Atoi(strings.ReplaceAll(count, ",", ""))
	require.NoError(g.t, err, event)
	require.Positive(g.t, copies)
	require.LessOrEqual(g.t, copies, resendMessages)
	g.reads("copies", commas(int64(copies))+" copies")
	g.sees("all of them dropped", fmt.Sprintf(
		`Number(document.getElementById("duplicates").textContent.replaceAll(",", "")) >= %d`, copies))
}

func (g *guest) seesOneAccountWait() {
	g.t.Helper()
	g.reads("stream", "account 7")
	g.sees("its messages wait", `/account 7[1-9]\d* waiting/.test(document.getElementById("stream").textContent)`)
	g.reads("now", "The handler fails for account 7")
	g.reads("why", "in line for another try")
	effects := g.number("effects")
	g.sees("the others go on", fmt.Sprintf(
		`Number(document.getElementById("effects").textContent.replaceAll(",", "")) > %d`, effects))
}

func (g *guest) seesTheEnd(s Summary) {
	g.t.Helper()
	g.reads("now", "The demo has ended")
	g.reads("mark", "✓ right")
	g.reads("why", commas(s.Unique)+" movements took effect once each")
	require.Equal(g.t, int(s.Effects), g.number("effects"))
	require.Equal(g.t, int(s.Produced), g.number("produced"))
	require.Equal(g.t, int(s.Duplicates), g.number("duplicates"))
	require.Equal(g.t, s.Crashes, g.number("crashes"))
	require.Equal(g.t, int(s.ExpectedBalance), g.number("balance"))
	g.sees("buttons that do nothing any more", `[...document.querySelectorAll("[data-do]")].every(b => b.ariaDisabled === "true")`)
	require.Empty(g.t, chromium.Seen(g.Tab, chromedp.Evaluate[[]string](`faults`)), "the balance was never wrong")
	require.Greater(g.t, chromium.Seen(g.Tab, chromedp.Evaluate[int](`looks`)), 20)
	for _, url := range g.Requested() {
		require.True(g.t, strings.HasPrefix(url, g.url), "%s is not the page's own", url)
	}
}

// hostile is text that a page must not take for its own.
const hostile = `<img src=x onerror="document.title='taken'"><script>document.title='taken'</script>`

// scenes are what the page shows in turn, from before the first message until after the end.
var scenes = []struct {
	name string
	show func(*webpage)
}{
	{"it starts", func(*webpage) {}},
	{"nothing yet", func(p *webpage) { p.offer(nil, "http://127.0.0.1:1/ui/"); p.show(&figures{Known: true}) }},
	{"all is well", func(p *webpage) { p.show(longRun(func(*figures) {})) }},
	{"killed", func(p *webpage) {
		p.event(hostile + strings.Repeat("a-very-long-error-without-any-space", 20))
		p.show(longRun(func(f *figures) { f.Down, f.Crashes, f.Lag = time.Second, 1, 98_765_432 }))
	}},
	{"one account waits, in chaos", func(p *webpage) {
		p.show(longRun(func(f *figures) {
			f.Parked, f.Waiting, f.Refused, f.Chaos = 58, -11, 5*time.Second, true
			f.Effects, f.Balance = f.Effects-58, f.Balance+11
		}))
	}},
	{"wrong", func(p *webpage) { p.show(longRun(func(f *figures) { f.Effects++ })) }},
	{"ended", func(p *webpage) { p.end(Summary{Unique: 3, Effects: 3, New: 3}.judge(), nil) }},
	{"ended early", func(p *webpage) { p.end(Summary{}, errors.New(hostile)) }},
}

// longRun are figures as they are after a long run, and a change to them.
func longRun(change func(*figures)) *figures {
	f := &figures{Elapsed: 20 * time.Second, Produced: 987_654_321, Known: true, Expected: tally{654_321_098, 87_654_321_098},
		Total: tally{654_321_098, 87_654_321_098}, Rate: 2000, PID: 4_194_303,
		booked: booked{Effects: 654_321_098, New: 654_321_098, Received: 987_654_321, Balance: 87_654_321_098}}
	change(f)
	return f
}

// through takes a guest through all scenes, in each once the page shows it.
func through(t *testing.T, at func(g *guest, scene string)) {
	p, v := emptyPage(t)
	g := arrive(t, v)
	for _, m := range scenes {
		m.show(p)
		g.reads("now", v.look().Now)
		g.reads("why", v.look().Why)
		at(g, m.name)
	}
	require.NotEqual(t, "taken", chromium.Seen(g.Tab, chromedp.Title()))
}

// The end of a run is the end of its server.
func TestInARealBrowserTheEndOfTheDemoIsSeen(t *testing.T) {
	p, v := emptyPage(t)
	g := arrive(t, v)
	g.reads("now", "Postgres and Kafka are starting")
	p.end(Summary{}.judge(), nil)
	p.stop()
	g.reads("now", "The demo has ended")
	g.reads("mark", "✓ right")
}

func TestInARealBrowserTheDemoFitsASmallScreen(t *testing.T) {
	through(t, func(g *guest, scene string) {
		g.Do(chromedp.EmulateViewport(360, 740))
		require.Empty(t, g.Beyond(), scene)
		require.LessOrEqual(t, chromium.Seen(g.Tab, chromedp.Evaluate[int](`document.documentElement.scrollWidth`)), 360, scene)
	})
}

func TestInARealBrowserAxeFindsNothingInTheDemo(t *testing.T) {
	axe := chromium.Axe(t)
	through(t, func(g *guest, scene string) {
		for _, scheme := range []string{"light", "dark"} {
			g.Scheme(scheme)
			require.Empty(t, g.Audit(axe), "%s, in %s", scene, scheme)
		}
	})
}

func TestScreenshot(t *testing.T) {
	if !*screenshots {
		t.Skip("-screenshots writes it")
	}
	v := beVisited(t, 2000, 0.3)
	g := arrive(t, v.visitor)
	g.Scheme("light")
	g.Do(chromedp.EmulateViewport(1200, 765))
	g.reads("clock", "00:10")
	g.Do(chromedp.Click(`[data-do=fail]`))
	g.reads("clock", "00:16")
	g.Do(chromedp.Click(`[data-do=kill]`))
	g.reads("now", "The consumer died")
	g.Save("../../../docs/demo.png")
}
