// Package chromium opens pages in a real Chromium, for tests, and has axe-core look at them: `make page`.
package chromium

import (
	"context"
	"os"
	"os/exec"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// waitFor is how long a tab is open at most, and so how long a test waits for what is to come.
const waitFor = 5 * time.Minute

// Tab is one of a real browser. It is not for concurrent use.
type Tab struct {
	t   testing.TB
	ctx context.Context

	mu         sync.Mutex
	complaints []string // exceptions, and what the console says but for requests that failed
	requested  []string // URLs
}

// Open opens a tab that is there until the test ends. Where there is no Chromium the test is skipped, or fails if
// FIRSTSEEN_REQUIRE_CHROMIUM is set. What a page complains of in the tab fails the test, requests that failed aside.
func Open(t testing.TB) *Tab {
	t.Helper()
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path(t)), chromedp.NoSandbox,
		chromedp.WSURLReadTimeout(waitFor))
	ctx, cancel := context.WithTimeout(context.Background(), waitFor)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewExecAllocator(ctx, options...)
	t.Cleanup(cancel)
	b := &Tab{t: t}
	b.ctx, cancel = chromedp.NewContext(ctx, chromedp.WithListener(b.listen))
	t.Cleanup(cancel)
	t.Cleanup(func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if len(b.complaints) > 0 {
			t.Errorf("the page complains: %q", b.complaints)
		}
	})
	return b
}

// path is the browser's, of the first name that is found.
func path(t testing.TB) string {
	t.Helper()
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if found, err := exec.LookPath(name); err == nil {
			return found
		}
	}
	if os.Getenv("FIRSTSEEN_REQUIRE_CHROMIUM") != "" {
		t.Fatal("FIRSTSEEN_REQUIRE_CHROMIUM is set and chromium is not installed")
	}
	t.Skip("chromium is not installed")
	return ""
}

func (b *Tab) listen(event any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		b.complaints = append(b.complaints, e.ExceptionDetails.Text)
	case *log.EventEntryAdded:
		if e.Entry.Source != log.EntrySourceNetwork {
			b.complaints = append(b.complaints, e.Entry.Text)
		}
	case *network.EventRequestWillBeSent:
		b.requested = append(b.requested, e.Request.URL)
	}
}

// Requested are the URLs that were asked for so far.
func (b *Tab) Requested() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.requested)
}

// Do takes steps in the tab, as a person would.
func (b *Tab) Do(steps ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	if err := chromedp.Do(b.ctx, steps...); err != nil {
		b.t.Fatalf("in the browser: %v", err)
	}
}

// Seen is what an action finds in the tab.
func Seen[T any](b *Tab, find chromedp.Action[T]) T {
	b.t.Helper()
	found, err := chromedp.Run(b.ctx, find)
	if err != nil {
		b.t.Fatalf("in the browser: %v", err)
	}
	return found
}

// Scheme has pages be shown to somebody who likes them light, or dark.
func (b *Tab) Scheme(scheme string) {
	b.t.Helper()
	b.Do(chromedp.Func(func(ctx context.Context, _ *chromedp.Target) error {
		_, err := chromedp.Call(ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
		return err
	}))
}

// Beyond are the elements that reach over the right edge of the window, but for those in what scrolls by itself.
func (b *Tab) Beyond() []string {
	b.t.Helper()
	return Seen(b, chromedp.Evaluate[[]string](`[...document.querySelectorAll("body, body *")].filter(e =>
		!e.closest(".scroll, pre, .skip, svg") && e.getBoundingClientRect().right > innerWidth + 1).map(e => e.outerHTML.slice(0, 100))`))
}

// Axe is axe-core's script, of the file that FIRSTSEEN_TEST_AXE names: axe.min.js. Without it the test is skipped.
func Axe(t testing.TB) string {
	t.Helper()
	file := os.Getenv("FIRSTSEEN_TEST_AXE")
	if file == "" {
		t.Skip("FIRSTSEEN_TEST_AXE is not set: see make page")
	}
	axe, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(axe)
}

// Audit is what axe-core finds that keeps people from using what the tab shows.
func (b *Tab) Audit(axe string) []string {
	b.t.Helper()
	b.Do(chromedp.Evaluate[chromedp.Void](axe + "; 0"))
	return Seen(b, chromedp.Evaluate[[]string](`axe.run().then(r => r.violations.map(v => v.impact + ": " + v.help + ": " +
		v.nodes.slice(0, 3).map(n => n.html.slice(0, 200) + " " + n.failureSummary).join("; ")))`, chromedp.EvalAwaitPromise))
}

// Save writes what the tab shows to a file, as PNG. A picture for the docs is to be small.
func (b *Tab) Save(file string) {
	b.t.Helper()
	const most = 150_000
	png := Seen(b, chromedp.CaptureScreenshot())
	if len(png) > most {
		b.t.Errorf("%s: %d bytes, and %d are to be enough", file, len(png), most)
	}
	if err := os.WriteFile(file, png, 0o644); err != nil {
		b.t.Fatal(err)
	}
}
