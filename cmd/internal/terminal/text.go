// Package terminal writes for people at a terminal: what messages hold, which never steers it, numbers, and how far a
// long work is. Messages and errors enter; text leaves.
//
// Files: text.go has texts and numbers for a line or a table's cell, value.go a message's value whole, sides.go two
// values beside each other, progress.go the bar.
package terminal

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// Visible keeps what comes from a message from steering the terminal.
func Visible(text string) string {
	var b strings.Builder
	for _, r := range text {
		if r == '\r' || (unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r)) && !isLayout(r) {
			fmt.Fprintf(&b, `\u%04x`, r)
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}

// OneLine is a text that stays on its line and in its column, and does not steer the terminal.
func OneLine(text string) string {
	return strings.Join(strings.FieldsFunc(Visible(text), func(r rune) bool { return r == '\n' || r == '\t' }), " ")
}

// Brief is the beginning of a text, on one line.
func Brief(text string, limit int) string {
	text = strings.Join(strings.Fields(Visible(text)), " ")
	if runes := []rune(text); len(runes) > limit {
		return string(runes[:limit-1]) + "…"
	}
	return text
}

// Count is a number of things.
func Count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// Grouped writes a number with its digits in groups of three.
func Grouped(n int64) string {
	digits := strconv.FormatInt(n, 10)
	for at := len(digits) - 3; at > 0 && digits[at-1] != '-'; at -= 3 {
		digits = digits[:at] + " " + digits[at:]
	}
	return digits
}

var byteUnits = []string{"B", "KiB", "MiB", "GiB", "TiB", "PiB"}

// Bytes writes a number of bytes to three digits or so.
func Bytes(n int64) string {
	value, unit := float64(n), 0
	for units := len(byteUnits) - 1; value >= 1024 && unit < units; unit++ {
		value /= 1024
	}
	if unit == 0 || value >= 100 {
		return fmt.Sprintf("%.0f %s", value, byteUnits[unit])
	}
	return fmt.Sprintf("%.1f %s", value, byteUnits[unit])
}

// PerSecond is a rate; 0 where no time has passed.
func PerSecond(n int64, d time.Duration) int64 {
	if d <= 0 {
		return 0
	}
	return int64(float64(n) / d.Seconds())
}
