package devstack

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"

	"golang.org/x/term"
)

// screen redraws a block of lines in place, at the end of a terminal; events scroll away above it.
type screen struct {
	out   io.Writer
	color bool
	width func() int
	page  string // its address; empty: there is none

	mu      sync.Mutex
	last    figures
	drawn   int  // lines of the block that stand there
	keyed   bool // keys are read
	closed  bool
	restore func()
}

// The sequences of ECMA-48 that are needed, and the styles.
const (
	upLines    = "\x1b[%dA"
	eraseDown  = "\x1b[J"
	hideCursor = "\x1b[?25l"
	showCursor = "\x1b[?25h"
	plain      = "\x1b[0m"
	bold       = "\x1b[1m"
	dim        = "\x1b[2m"
	red        = "\x1b[1;31m"
	green      = "\x1b[1;32m"
)

func (s *screen) show(f *figures) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = *f
	s.draw("")
}

func (s *screen) event(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.draw(s.styled(dim, clock(s.last.Elapsed)+"  "+text) + "\n")
}

// close leaves the numbers where they are and takes the invitation away.
func (s *screen) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.draw("")
	if s.restore != nil {
		s.restore()
	}
}

// draw writes all in one go, so that nothing flickers. Raw mode needs the carriage returns.
func (s *screen) draw(above string) {
	var b strings.Builder
	b.WriteString(hideCursor)
	if s.drawn > 0 {
		fmt.Fprintf(&b, upLines, s.drawn)
	}
	b.WriteString("\r" + eraseDown + above)
	block := s.block()
	for _, line := range block {
		b.WriteString(clip(line, s.width()) + "\n")
	}
	s.drawn = len(block)
	b.WriteString(showCursor)
	_, _ = io.WriteString(s.out, strings.ReplaceAll(b.String(), "\n", "\r\n"))
}

func (s *screen) block() []string {
	f := &s.last
	row := func(name string, n int64, text string) string {
		return fmt.Sprintf("  %-10s %14s   %s", name, commas(n), s.styled(dim, text))
	}
	block := []string{
		"",
		row("produced", f.Produced, fmt.Sprintf("messages, of them %s unique and %s copies", commas(f.Total.Unique),
			commas(f.Produced-f.Total.Unique))),
		row("received", f.Received, fmt.Sprintf("by the consumer, %s a second; one delivered again counts again",
			commas(int64(f.Rate)))),
		row("new", f.New, "rows in the inbox"),
		row("duplicates", f.Received-f.New, "recognized, and without effect"),
		row("effects", f.Effects, "rows that the handler wrote"),
		row("lag", f.Lag, "messages beyond the offsets committed to Kafka"),
		row("crashes", int64(f.Crashes), "of the consumer process"),
		"",
		"  " + s.styled(bold, clock(f.Elapsed)) + "  " + s.styled(verdictStyle(f), f.balance()),
	}
	if !s.closed {
		block = append(block, "", s.invitation())
	}
	if !s.closed && s.page != "" {
		block = append(block, "  Watch it in a browser: "+s.styled(bold, s.page))
	}
	return block
}

func verdictStyle(f *figures) string {
	switch {
	case !f.right():
		return red
	case f.Known:
		return green
	}
	return plain
}

func (s *screen) invitation() string {
	kill := fmt.Sprintf("kill -9 %d", s.last.PID)
	if s.keyed {
		return "  Crash it: press " + s.styled(bold, "k") + ", or " + s.styled(bold,
			kill) + " elsewhere.  Stop: " + s.styled(bold, "q")
	}
	return "  Crash it: " + s.styled(bold, kill) + "  Stop: " + s.styled(bold, "Ctrl-C")
}

func (s *screen) styled(style, text string) string {
	if !s.color {
		return text
	}
	return style + text + plain
}

// keys reads keys until the program ends: a read from a terminal can't be called off. Raw mode, which gives each key
// at once, turns Ctrl-C into a key too.
func (s *screen) keys(in *os.File, kill, interrupt func()) {
	before, err := term.MakeRaw(int(in.Fd()))
	if err != nil {
		return // no keyboard
	}
	s.keyed = true
	s.restore = func() { _ = term.Restore(int(in.Fd()), before) }
	go func() {
		const ctrlC, ctrlD = 3, 4
		for key := make([]byte, 1); ; {
			if n, err := in.Read(key); n == 0 || err != nil {
				return
			}
			switch key[0] {
			case 'k', 'K':
				kill()
			case 'q', 'Q', ctrlC, ctrlD:
				interrupt()
			}
		}
	}()
}

func width(out *os.File) int {
	if w, _, err := term.GetSize(int(out.Fd())); err == nil && w > 0 {
		return w
	}
	return 80
}

// clip cuts a line at the terminal's edge, where a wrapped one would spoil the next redraw.
func clip(line string, width int) string {
	visible, escape := 0, false
	for i, c := range line {
		switch {
		case c == '\x1b':
			escape = true
		case escape:
			escape = c != 'm'
		case visible == width:
			return line[:i] + plain
		default:
			visible++
		}
	}
	return line
}
