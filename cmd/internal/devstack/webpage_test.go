package devstack

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/dedup/wait"
)

// comes is how long a test waits for what has to come.
const comes = 3 * time.Minute

// visitor is somebody with the page of a run.
type visitor struct {
	t   *testing.T
	url string
}

var addressOfThePage = regexp.MustCompile(`Open  (http://\S+/)  `)

// visit waits for the address, which a run says first of all.
func visit(t *testing.T, out *os.File) *visitor {
	t.Helper()
	var found []string
	require.Eventually(t, func() bool {
		found = addressOfThePage.FindStringSubmatch(text(t, out))
		return found != nil
	}, comes, 10*time.Millisecond)
	return &visitor{t, found[1]}
}

func (v *visitor) look() (s state) {
	v.t.Helper()
	response, err := http.Get(v.url + "state")
	require.NoError(v.t, err)
	defer response.Body.Close()
	require.Equal(v.t, http.StatusOK, response.StatusCode)
	require.NoError(v.t, json.NewDecoder(response.Body).Decode(&s))
	return s
}

// await looks until it sees what it waits for. Whatever else it sees: the balance is never wrong.
func (v *visitor) await(what string, seen func(*state) bool) state {
	v.t.Helper()
	for end := time.Now().Add(comes); ; wait.Sleep(v.t.Context(), 20*time.Millisecond) {
		s := v.look()
		require.NotEqual(v.t, "wrong", s.Verdict, "%+v", s)
		if s.Counts != nil && seen(&s) {
			return s
		}
		require.True(v.t, time.Now().Before(end), "waited for: %s\n%+v", what, s)
	}
}

func (v *visitor) press(button string) (status int) {
	v.t.Helper()
	return v.send(http.MethodPost, button, func(*http.Request) {})
}

func (v *visitor) send(method, path string, with func(*http.Request)) (status int) {
	v.t.Helper()
	request, err := http.NewRequestWithContext(v.t.Context(), method, v.url+path, nil)
	require.NoError(v.t, err)
	with(request)
	response, err := http.DefaultClient.Do(request)
	require.NoError(v.t, err)
	require.NoError(v.t, response.Body.Close())
	return response.StatusCode
}

// visited is a run of a visitor's: it ends when its context does, and has the consumer catch up.
type visited struct {
	*visitor
	out    *os.File
	cancel context.CancelFunc
	ended  chan struct{}
	s      Summary
	failed error
}

// beVisited begins a run with a page, of so many messages a second, a share of which are copies.
func beVisited(t *testing.T, rate int, duplicates float64) *visited {
	t.Helper()
	o, out := shortRun(t)
	o.For, o.Duplicates, o.Listen, o.Rate = 0, duplicates, "127.0.0.1:0", rate
	ctx, cancel := context.WithCancel(context.Background())
	r := &visited{out: out, cancel: cancel, ended: make(chan struct{})}
	go func() {
		defer close(r.ended)
		r.s, r.failed = Run(ctx, o)
	}()
	t.Cleanup(func() { cancel(); <-r.ended })
	r.visitor = visit(t, out)
	return r
}

// endsRight ends the run, which finds that all of it was right.
func (r *visited) endsRight() {
	r.t.Helper()
	r.cancel()
	<-r.ended
	require.NoError(r.t, r.failed, text(r.t, r.out))
	require.True(r.t, r.s.OK, "%+v\n%s", r.s, text(r.t, r.out))
}

func TestButtonsOfThePageDisturbARunAndItsBalanceStaysRight(t *testing.T) {
	v := beVisited(t, 300, 0)

	begun := v.await("effects", func(s *state) bool { return s.Counts.Effects > 0 && s.Verdict == "right" })
	require.Equal(t, "running", begun.Phase)
	v.refusesOthers()

	require.Equal(t, http.StatusNoContent, v.press("kill"))
	back := v.await("the next consumer", func(s *state) bool {
		return s.Counts.Crashes > 0 && !s.Down && len(s.Events) > 0
	})
	require.Equal(t, 1, back.Counts.Crashes, "what was refused has killed nobody")
	require.Contains(t, back.Events[0].Text, "took over within")

	require.Zero(t, back.Counts.Copies)
	require.Equal(t, http.StatusNoContent, v.press("resend"))
	v.await("copies, dropped", func(s *state) bool {
		return s.Counts.Copies > 0 && s.Counts.Copies <= resendMessages && s.Counts.Duplicates >= s.Counts.Copies
	})

	require.Equal(t, http.StatusNoContent, v.press("chaos"))
	v.await("a kill that comes by itself", func(s *state) bool { return s.Chaos && s.Counts.Crashes > 1 })
	require.Equal(t, http.StatusNoContent, v.press("chaos"))
	v.await("the end of chaos", func(s *state) bool { return !s.Chaos && !s.Down })

	require.Equal(t, http.StatusNoContent, v.press("fail"))
	held := v.await("one account's messages wait", func(s *state) bool { return s.Refused && s.Counts.Parked > 0 })
	require.Equal(t, http.StatusConflict, v.press("fail"), "it does already")
	v.await("the other accounts go on", func(s *state) bool {
		return s.Counts.Parked > 0 && s.Counts.Effects > held.Counts.Effects
	})

	last := v.await("nothing waits", func(s *state) bool { return !s.Refused && s.Counts.Parked == 0 })
	v.findsTheOperatorsPage(last.Operator)

	v.endsRight()
}

// refusesOthers has pages of other servers, and names that DNS leads here, press the button.
func (v *visitor) refusesOthers() {
	v.t.Helper()
	for name, with := range map[string]func(*http.Request){
		"another site's form":        func(r *http.Request) { r.Header.Set("Origin", "http://evil.example") },
		"another port's page":        func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "same-site") },
		"another name for this host": func(r *http.Request) { r.Host = "evil.example" },
	} {
		require.Equal(v.t, http.StatusForbidden, v.send(http.MethodPost, "kill", with), name)
	}
	require.Equal(v.t, http.StatusMethodNotAllowed, v.send(http.MethodGet, "kill", func(*http.Request) {}), "a link")
}

func (v *visitor) findsTheOperatorsPage(url string) {
	v.t.Helper()
	require.Eventually(v.t, func() bool {
		response, err := http.Get(url)
		if err != nil {
			return false // the consumer has just started
		}
		defer response.Body.Close()
		page, err := io.ReadAll(response.Body)
		return err == nil && response.StatusCode == http.StatusOK && strings.Contains(string(page), "bank")
	}, comes, 50*time.Millisecond)
}

// emptyPage is one with nothing behind it.
func emptyPage(t *testing.T) (*webpage, *visitor) {
	t.Helper()
	out, err := os.Create(t.TempDir() + "/view")
	require.NoError(t, err)
	defer out.Close()
	p, err := openWebpage(t.Context(), &Options{Listen: "127.0.0.1:0", Out: out})
	require.NoError(t, err)
	t.Cleanup(p.stop)
	return p, visit(t, out)
}

func TestPageIsThereBeforeAndAfterTheRun(t *testing.T) {
	p, v := emptyPage(t)
	require.Equal(t, "starting", v.look().Phase)
	require.Equal(t, http.StatusConflict, v.press("kill"), "nothing runs yet")
	for _, file := range []string{"", "demo.js", "demo.css", "icon.svg"} {
		require.Equal(t, http.StatusOK, v.send(http.MethodGet, file, func(*http.Request) {}), file)
	}
	require.Equal(t, http.StatusNotFound, v.send(http.MethodGet, "demo.html", func(*http.Request) {}))

	for _, c := range []struct {
		s       Summary
		err     error
		verdict string
		why     string
	}{
		{s: Summary{}.judge(), verdict: "right", why: "OK: 0 movements"},
		{s: Summary{Effects: 1}.judge(), verdict: "wrong", why: "WRONG: 0 movements have 1 effects"},
		{err: errors.New("no such luck"), why: "no such luck"},
	} {
		p.end(c.s, c.err)
		s := v.look()
		require.Equal(t, []string{"ended", c.verdict}, []string{s.Phase, s.Verdict})
		require.Contains(t, s.Why, c.why)
	}
}

func TestPageHasNothingOfOthersAndIsForNobodyElse(t *testing.T) {
	p := &webpage{}
	for host, want := range map[string]int{"127.0.0.1:80": 200, "localhost": 200, "[::1]:8080": 200, "evil.example": 403,
		"127.0.0.1.evil.example": 403, "192.168.0.1:80": 403, "": 403} {
		w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil)
		r.Host = host
		p.handler().ServeHTTP(w, r)
		require.Equal(t, want, w.Code, host)
		if want == 200 {
			require.Contains(t, w.Header().Get("Content-Security-Policy"), "default-src 'self'")
		}
	}
}

func TestPageKeepsAMinuteAndTheLastEvents(t *testing.T) {
	p := &webpage{}
	for i := range 1000 {
		p.show(&figures{Elapsed: time.Duration(i) * 250 * time.Millisecond})
		p.event("event")
	}
	require.Len(t, p.last.Events, incidents)
	require.InDelta(t, drawn/(250*time.Millisecond), len(p.last.Samples), 3)
}

func TestPageTellsRightFromWrongAndWhy(t *testing.T) {
	good := figures{booked: booked{Effects: 70, Balance: 900, New: 70, Received: 130}, Known: true,
		Expected: tally{70, 900}, PID: 4711, Rate: 100}
	for name, c := range map[string]struct {
		change       func(*figures)
		verdict, why string
		now          string
	}{
		"all well": {func(*figures) {}, "right", "the 70 movements in them took effect once each",
			"process 4711, takes 100 messages"},
		"nothing yet": {func(f *figures) { *f = figures{Known: true} }, "", "Nothing has been booked yet.",
			"the consumer joins its group"},
		"sent again":        {func(f *figures) { f.Resent = 5000 }, "right", "once each", "5,000 messages come again, under new offsets"},
		"never killed":      {func(*figures) {}, "right", "once each", "Kill it, and look at the balance."},
		"an effect twice":   {func(f *figures) { f.Effects, f.Balance = 71, 907 }, "wrong", "twice, or not at all", ""},
		"twice, of nothing": {func(f *figures) { f.Effects = 71 }, "wrong", "70 movements had 71 effects", ""},
		"one account waits": {func(f *figures) {
			f.Effects, f.Balance, f.Parked, f.Waiting, f.Refused = 67, 800, 3, 100, 5*time.Second
		}, "right", "67 took effect once each, and 3 wait",
			"The handler fails for account 7, for another 6 s: 3 of its messages wait"},
		"one of those that wait is lost": {func(f *figures) { f.Effects, f.Balance, f.Parked, f.Waiting = 67, 800, 2, 60 },
			"wrong", "twice, or not at all", "2 messages wait for another try"},
		"one of those that wait took effect": {func(f *figures) { f.Parked = 1 },
			"wrong", "69 movements had 70 effects", ""},
		"killed": {func(f *figures) { f.Down, f.Lag = 400*time.Millisecond, 655 }, "right", "once each",
			"The consumer died 0.4 s ago, and another one is starting. 655 messages are to come, or to come again."},
		"back":   {func(f *figures) { f.Back = 900 * time.Millisecond }, "right", "once each", "took over within 0.9 s"},
		"behind": {func(f *figures) { f.Lag = 1000 }, "right", "once each", "catches up: 1,000 messages to go"},
		"through an outbox": {func(f *figures) { f.Sent, f.Effects, f.Balance = true, 60, 500 }, "right",
			"60 of 70 have taken effect", ""},
		"twice through an outbox": {func(f *figures) { f.Sent, f.Effects = true, 71 }, "wrong", "", ""},
	} {
		f := good
		c.change(&f)
		verdict, why := f.verdict()
		require.Equal(t, c.verdict, verdict, name)
		require.Contains(t, why, c.why, name)
		now, _ := f.now()
		require.Contains(t, now, c.now, name)
	}
}
