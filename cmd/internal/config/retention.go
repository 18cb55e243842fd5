package config

import (
	"maps"
	"slices"
	"strings"
)

func (l *loader) checkRetention(c *Config) {
	if age := c.Retention.Inbox; age > 0 && age%day != 0 {
		l.fault("retention.inbox", "%sis not in whole days; write it like 90d", l.shown("retention.inbox"))
	}
	names := map[string]bool{}
	for _, t := range c.Topics {
		for _, h := range t.Handlers {
			names[h.Name] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.Retention.Handlers)) {
		if !names[name] && !l.has("topics") {
			l.fault("retention.handlers["+name+"]", "no topic has a handler of that name; the handlers are %s",
				strings.Join(slices.Sorted(maps.Keys(names)), ", "))
		}
	}
}
