package config

import (
	"fmt"
	"strings"

	"github.com/firstseen/firstseen/dedup/argtext"
)

// unknownKey says what the writer of an unknown key may have meant.
func unknownKey(path string) Fault {
	section, name := split(pattern(path))
	text := "unknown key; "
	switch near := nearestKey(section, name); near {
	case pattern(path):
		text += "write " + name + " on a line of its own below its section, indented"
	case "":
		text += "the keys here are " + strings.Join(namesIn(section), ", ")
	default:
		text += fmt.Sprintf("did you mean %s?", near)
	}
	if !printable.MatchString(path) {
		path = strings.TrimSuffix(section, ".")
		text = "has an " + text
	}
	return Fault{Key: path, Text: text}
}

func namesIn(section string) (names []string) {
	for _, k := range keys {
		if s, name := split(k.path); s == section {
			names = append(names, name)
		}
	}
	return names
}

// nearestKey is the key that is most like name: the path of one in another section only where its name is the same.
func nearestKey(section, name string) string {
	best, bestDistance := "", 0
	for _, k := range keys {
		s, known := split(k.path)
		d := 2 * argtext.Distance(name, known)
		near := s == section && argtext.Alike(name, known) || d == 0
		if s != section {
			d += 3 // one wrong letter here is more likely, two are less
		}
		if near && (best == "" || d < bestDistance) {
			best, bestDistance = k.path, d
		}
	}
	return best
}

// unknownVariable says what may have been meant by an environment variable that is no key's.
func unknownVariable(name string) Fault {
	best, bestDistance := "", 0
	meant := strings.ToLower(strings.TrimPrefix(name, prefix))
	for _, k := range keys {
		v := k.variable()
		known := strings.ToLower(strings.TrimPrefix(v, prefix))
		d := argtext.Distance(meant, known)
		if v != "" && (argtext.IsTypo(meant, known) || sameEnd(meant, k)) && (best == "" || d < bestDistance) {
			best, bestDistance = v, d
		}
	}
	if best == "" {
		return Fault{Key: name, Text: "unknown environment variable; it is " + prefix +
			" and a key, as in FIRSTSEEN_POSTGRES_DSN for postgres.dsn"}
	}
	return Fault{Key: name, Text: fmt.Sprintf("unknown environment variable; did you mean %s?", best)}
}

// sameEnd says whether a variable is a key's without its section, or under another one.
func sameEnd(meant string, k key) bool {
	_, last := split(k.path)
	return strings.HasSuffix("_"+meant, "_"+last)
}
