package dedup

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// MaxNameBytes is the length of the longest name of an inbox, a handler or a consumer.
const MaxNameBytes = 1000

// CheckName says why a text can't name an inbox, a handler or a consumer: it is blank, longer than MaxNameBytes, or
// no text that Postgres can hold.
func CheckName(name string) error {
	switch {
	case isBlank(name):
		return errors.New("a name is required")
	case len(name) > MaxNameBytes:
		return fmt.Errorf("the name has %d bytes; at most %d are kept", len(name), MaxNameBytes)
	case !utf8.ValidString(name) || strings.ContainsRune(name, 0):
		return errors.New("the name is not UTF-8, or has a NUL in it")
	}
	return nil
}

// MaxTenantBytes is the length of the longest tenant name.
const MaxTenantBytes = 255

// isBlank goes by ASCII's white space.
func isBlank(text string) bool { return strings.Trim(text, " \t\n\v\f\r") == "" }
