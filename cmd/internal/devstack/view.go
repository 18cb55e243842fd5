package devstack

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"sync"
	"time"

	"golang.org/x/term"
)

// view shows a run to a person. It is safe for concurrent use.
type view interface {
	show(*figures)
	event(string)
	close()
}

// views are several of the same run.
type views []view

func (v views) show(f *figures) {
	for _, one := range v {
		one.show(f)
	}
}

func (v views) event(text string) {
	for _, one := range v {
		one.event(text)
	}
}

func (v views) close() {
	for _, one := range v {
		one.close()
	}
}

// newView gives a live view on a terminal, and lines elsewhere. Keys are read where there is a keyboard too.
func newView(o *Options, page string, kill, interrupt func()) view {
	if !term.IsTerminal(int(o.Out.Fd())) || os.Getenv("TERM") == "dumb" {
		return &lines{out: o.Out}
	}
	s := &screen{out: o.Out, page: page, color: os.Getenv("NO_COLOR") == "", width: func() int { return width(o.Out) }}
	if o.In != nil {
		s.keys(o.In, kill, interrupt)
	}
	return s
}

// lines is a line of numbers now and then, and one for each event.
type lines struct {
	out io.Writer

	mu     sync.Mutex
	last   figures
	unseen bool
	next   time.Duration
}

const lineEvery = time.Second

func (l *lines) show(f *figures) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last, l.unseen = *f, true
	if f.Elapsed >= l.next {
		l.next = f.Elapsed.Truncate(lineEvery) + lineEvery
		l.print()
	}
}

func (l *lines) print() {
	f := &l.last
	say(l.out, "%s  produced %s (%s unique)  received %s: "+
		"%s new, %s duplicates  effects %s  %s msg/s  lag %s  crashes %d  %s", clock(f.Elapsed), commas(f.Produced),
		commas(f.Total.Unique), commas(f.Received), commas(f.New), commas(f.Received-f.New), commas(f.Effects),
		commas(int64(f.Rate)), commas(f.Lag), f.Crashes, f.balance())
	l.unseen = false
}

func (l *lines) event(text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	say(l.out, "%s  %s", clock(l.last.Elapsed), text)
}

func (l *lines) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.unseen {
		l.print()
	}
}

// balance compares the accounts to what they should hold after all that was taken so far.
func (f *figures) balance() string {
	text := "balance " + commas(f.Balance)
	switch {
	case !f.Known:
	case f.right() && f.Parked > 0:
		text += fmt.Sprintf(", %s parked for another try", commas(f.Parked))
	case f.right():
		text += " = expected"
	case f.Balance != f.due().Balance:
		text += " IS NOT " + commas(f.due().Balance)
	default:
		text += fmt.Sprintf(" = expected, BUT %s EFFECTS ARE NOT %s", commas(f.Effects), commas(f.due().Unique))
	}
	switch {
	case f.Lag == 1:
		text += ", behind by 1 message"
	case f.Lag > 1:
		text += fmt.Sprintf(", behind by %s messages", commas(f.Lag))
	}
	return text
}

func clock(d time.Duration) string {
	s := int(d.Seconds())
	return fmt.Sprintf("%02d:%02d", s/60, s%60)
}

// commas writes a number in groups of three digits.
func commas(n int64) string {
	if n < 0 {
		return "-" + commas(-n)
	}
	text := strconv.FormatInt(n, 10)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}
