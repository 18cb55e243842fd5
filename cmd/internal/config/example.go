package config

import (
	"reflect"
	"strings"
)

const exampleHead = "Every key of firstseen's config, as it is where nothing is said. A key without a value has none, or what its comment " +
	"says. What is required has a sample. `firstseen config schema` prints the same for editors; ${NAME} is a variable of the " +
	"environment; beside each key is what it takes, the variable that wins over it, and whether it can change while the program runs."

// Example is a complete file: every key with its default, its unit and its comment.
func Example() string {
	var b strings.Builder
	writeComment(&b, exampleHead, "")
	shown, before := map[string]bool{}, ""
	nodes := tree(reflect.ValueOf(sample()), "", func(_ string, k key, v reflect.Value) node {
		n := node{value: printed(v)}
		if s, is := v.Interface().(Secret); is && s != "" {
			n.value = s.Reveal()
		}
		if shown[k.path] {
			return n
		}
		shown[k.path] = true
		n.beside = k.facts()
		if text := k.comment(); text != before { // two keys may share one
			n.above, before = text, text
		}
		return n
	})
	for _, n := range nodes {
		b.WriteString("\n")
		writeYAML(&b, []node{n}, "", "")
	}
	return b.String()
}

// sample has a value for each key that is required, and the defaults.
func sample() Config {
	c := defaults()
	c.Postgres.DSN = "postgres://firstseen@localhost:5432/app"
	c.Kafka.Brokers = List{"localhost:9092"}
	c.Group = "billing"
	c.Topics = []Topic{{Name: "orders", Handlers: []Handler{
		{Name: "book", Function: "billing.book_order"},
		{Name: "notify", Webhook: Webhook{URL: "https://example.com/orders"}},
	}}}
	c.fillIn()
	return c
}

// facts are what a key takes, its variable, and whether it can change while the program runs.
func (k key) facts() string {
	if k.section {
		return ""
	}
	facts := []string{k.kind()}
	if v := k.variable(); v != "" {
		facts = append(facts, v)
	}
	if isLive(k.path) {
		facts = append(facts, "no restart needed")
	}
	return strings.Join(facts, "; ")
}
