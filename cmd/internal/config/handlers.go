package config

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/handlers"
)

// checkHandlers checks one topic's handlers; before are those of the topics before it, by name.
func (l *loader) checkHandlers(topic string, list []Handler, before map[string]Handler) {
	if len(list) == 0 && !l.elsewhere {
		l.require(topic+".handlers", "", "list at least one, {name: NAME, function: SCHEMA.FUNCTION}")
	}
	here := map[string]bool{}
	for i, h := range list {
		at := fmt.Sprintf("%s.handlers[%d]", topic, i)
		named := l.require(at+".name", h.Name, "the name is what the handler's seen IDs are kept under")
		l.checkKind(at, h)
		l.checkRetry(at+".retry", h.Retry)
		l.choice(at+".ordering", h.Ordering)
		if !named {
			continue
		}
		l.checkStored(at+".name", h.Name)
		other, known := before[h.Name]
		switch {
		case here[h.Name]:
			l.fault(at+".name", "is the name of another handler of this topic; give each its own")
		case known && other.Function != h.Function:
			l.fault(at+".name", "is the name of a handler with another function; handlers of one name share the IDs "+
				"that they have seen, so give each function its own")
		case known && !reflect.DeepEqual(other, h):
			l.fault(at+".name", "is the name of a handler with other settings; it is one handler, "+
				"so write the same for each of its topics")
		}
		here[h.Name], before[h.Name] = true, h
	}
}

// checkKind checks what a handler is: a function or a webhook.
func (l *loader) checkKind(at string, h Handler) {
	faulty := slices.ContainsFunc(l.faults, func(f Fault) bool { return strings.HasPrefix(f.Key, at+".webhook") })
	switch hasWebhook := h.Webhook.given() || faulty; {
	case hasWebhook && h.Function != "":
		l.fault(at+".webhook", "is given beside function; keep one of the two")
	case hasWebhook:
		l.checkWebhook(at+".webhook", h.Webhook)
	case l.require(at+".function", h.Function,
		"name the Postgres function, like billing.book_order, or give a webhook"):
		if !strings.Contains(h.Function, `"`) && strings.ContainsAny(h.Function, "(); ") {
			l.fault(at+".function", "is no name of a function; write it without arguments, like billing.book_order")
		}
	}
}

func (w Webhook) given() bool { return !reflect.ValueOf(w).IsZero() }

// checkWebhook has the webhook's own check name what is wrong; its faults begin with the key and show no value.
func (l *loader) checkWebhook(at string, w Webhook) {
	if w.Secret != "" && len(w.Secrets) > 0 {
		l.fault(at+".secrets", "is given beside secret or secret_file; list all of them here")
	}
	_, err := handlers.NewWebhook(w.config())
	var found []Fault
	for _, fault := range leaves(err) {
		key, text, _ := strings.Cut(fault.Error(), ": ")
		if !l.has(at + "." + key) {
			found = append(found, Fault{Key: l.named(at + "." + key), Text: text})
		}
	}
	l.faults = append(l.faults, found...)
}

// leaves are the errors that were joined.
func leaves(err error) (list []error) {
	many, joined := err.(interface{ Unwrap() []error }) //nolint:errorlint // the tree itself is walked
	if !joined {
		return slices.DeleteFunc([]error{err}, func(e error) bool { return e == nil })
	}
	for _, err := range many.Unwrap() {
		list = append(list, leaves(err)...)
	}
	return list
}

func (l *loader) checkRetry(at string, r Retry) {
	if r.Base > r.Cap {
		l.fault(at+".base", "%s is more than the longest pause, cap, which is %s", r.Base, r.Cap)
	}
}

func (w Webhook) config() handlers.WebhookConfig {
	headers := make(map[string]string, len(w.Headers))
	for name, value := range w.Headers {
		headers[name] = value.Reveal()
	}
	secrets := strings.Fields(w.Secret.Reveal())
	for _, s := range w.Secrets {
		secrets = append(secrets, s.Reveal())
	}
	return handlers.WebhookConfig{URL: w.URL, Secrets: secrets, Headers: headers, Timeout: w.Timeout,
		AllowPrivate: w.AllowPrivate, Proxy: w.Proxy.Reveal(), Connections: w.Concurrency}
}

// Registrations are the handlers, each once with all its topics, in an order that follows the topics' lists. function
// makes a handler of a Postgres function's name.
func (c Config) Registrations(
	function func(name string) (handlers.BatchHandler, error)) ([]handlers.Registration, error) {
	var list []handlers.Registration
	for _, t := range c.Topics {
		next := 0
		for _, h := range t.Handlers {
			at := slices.IndexFunc(list, func(r handlers.Registration) bool { return r.Name == h.Name })
			if at < 0 {
				r, err := h.registration(function)
				if err != nil {
					return nil, fmt.Errorf("handler %s of topic %s: %w", h.Name, t.Label(), err)
				}
				at = next
				list = slices.Insert(list, at, r)
			}
			if t.Pattern != "" {
				list[at].Patterns = append(list[at].Patterns, t.Pattern)
			} else {
				list[at].Topics = append(list[at].Topics, t.Name)
			}
			next = max(next, at+1)
		}
	}
	return list, nil
}

func (h Handler) registration(
	function func(name string) (handlers.BatchHandler, error)) (r handlers.Registration, err error) {
	r = handlers.Registration{Name: h.Name, Concurrency: h.Webhook.Concurrency,
		Ordering: dedup.Ordering(h.Ordering), Retry: handlers.Retry{Base: h.Retry.Base, Cap: h.Retry.Cap,
			MaxAttempts: h.Retry.MaxAttempts, MaxAge: h.Retry.MaxAge}}
	if h.Webhook.given() {
		r.Detached, err = handlers.NewWebhook(h.Webhook.config())
		return r, err
	}
	r.Handler, err = function(h.Function)
	return r, err
}

// Webhooks are the handlers that are webhooks, each once, by name.
func (c Config) Webhooks() (list []Handler) {
	found := map[string]Handler{}
	for _, t := range c.Topics {
		for _, h := range t.Handlers {
			if h.Webhook.given() {
				found[h.Name] = h
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(found)) {
		list = append(list, found[name])
	}
	return list
}

func (c Config) webhooks() map[string]Webhook {
	found := map[string]Webhook{}
	for _, h := range c.Webhooks() {
		found[h.Name] = h.Webhook
	}
	return found
}

// Unencrypted are the names of the webhooks that are called without TLS, sorted.
func (c Config) Unencrypted() (names []string) {
	hooks := c.webhooks()
	for _, d := range c.Outbox.Destinations {
		hooks[d.Name] = d.Webhook
	}
	for name, w := range hooks {
		if strings.HasPrefix(strings.ToLower(w.URL), "http:") {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}
