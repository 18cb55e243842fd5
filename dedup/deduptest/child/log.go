package child

import (
	"bytes"
	"os"
)

const tailBytes = 2 << 10

func openLog(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
}

// Tail is the end of a log file for an error message: "\n" and the last lines, or nothing where there is
// no log.
func Tail(path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	text = bytes.TrimSpace(text)
	if len(text) > tailBytes {
		text = text[len(text)-tailBytes:]
	}
	if len(text) == 0 {
		return ""
	}
	return "\n" + string(text)
}
