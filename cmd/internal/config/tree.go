package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// node is a key with its value, or an item of a list of sections, as it is printed.
type node struct {
	name     string // empty for an item
	value    any    // nil where there is none, or where there are children
	children []node
	list     bool   // the children are items
	above    string // a comment
	beside   string // a comment
}

// tree is a config as nodes. tell gives the value and the comments of each key's.
func tree(v reflect.Value, path string, tell func(path string, k key, v reflect.Value) node) (nodes []node) {
	for f, field := range v.Fields() {
		name := f.Tag.Get("key")
		within := strings.TrimPrefix(path+"."+name, ".")
		if w, is := field.Interface().(Webhook); is && !w.given() {
			continue // the handler is a function
		}
		k, _ := findKey(within)
		n := tell(within, k, field)
		n.name, n.list = name, isSections(f.Type)
		if k.section {
			n.value = nil
		}
		switch {
		case n.list:
			for i := range field.Len() {
				n.children = append(n.children, node{children: tree(field.Index(i), within+index(i), tell)})
			}
		case k.section:
			n.children = tree(field, within, tell)
		case field.Kind() == reflect.Map:
			n.children, n.value = entries(n.value), nil
		}
		nodes = append(nodes, n)
	}
	return nodes
}

func entries(value any) (nodes []node) {
	m, _ := value.(map[string]string)
	for _, name := range slices.Sorted(maps.Keys(m)) {
		nodes = append(nodes, node{name: name, value: m[name]})
	}
	return nodes
}

// printed is a value as the file has it, with secrets hidden; nil where it is as good as left out.
func printed(v reflect.Value) any {
	if kind := v.Kind(); v.IsZero() && kind != reflect.Bool && kind != reflect.Float64 {
		return nil
	}
	switch value := v.Interface().(type) {
	case time.Duration:
		return formatDuration(value)
	case Size:
		return value.String()
	case Secret:
		return hidden
	case []Secret:
		return slices.Repeat([]string{hidden}, len(value))
	case List:
		return []string(value)
	case Sources:
		return []string(value)
	case map[string]Secret:
		return texts(value, func(Secret) string { return hidden })
	case Ages:
		return texts(value, formatDuration)
	case Names:
		return map[string]string(value)
	}
	return v.Interface()
}

func texts[V any](m map[string]V, text func(V) string) map[string]string {
	out := map[string]string{}
	for name, v := range m {
		out[name] = text(v)
	}
	return out
}

// jsonValue is the nodes as encoding/json takes them.
func jsonValue(nodes []node) map[string]any {
	out := map[string]any{}
	for _, n := range nodes {
		out[n.name] = n.value
		switch k := n.children; {
		case n.list:
			items := make([]any, len(k))
			for i := range k {
				items[i] = jsonValue(k[i].children)
			}
			out[n.name] = items
		case len(k) > 0:
			out[n.name] = jsonValue(k)
		}
	}
	return out
}

// indented is JSON for people, of texts, numbers and what is made of them.
func indented(v any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(v); err != nil {
		panic(err)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// pageWidth bounds the lines of comments.
const pageWidth = 118

// writeYAML writes nodes with their comments. The first line begins with lead and those after it with indent.
func writeYAML(b *strings.Builder, nodes []node, lead, indent string) {
	for _, n := range nodes {
		writeComment(b, n.above, strings.Repeat(" ", len(lead)))
		line := lead + yamlText(n.name) + ":"
		if n.value != nil {
			line += " " + yamlValue(n.value)
		}
		if n.beside != "" {
			line += " # " + n.beside
		}
		b.WriteString(line + "\n")
		lead = indent
		if !n.list {
			writeYAML(b, n.children, indent+"  ", indent+"  ")
			continue
		}
		for _, item := range n.children {
			writeYAML(b, item.children, indent+"  - ", indent+"    ")
		}
	}
}

func writeComment(b *strings.Builder, text, indent string) {
	line := ""
	for word := range strings.FieldsSeq(text) {
		if line != "" && len(indent)+len(line)+len(word)+3 > pageWidth {
			fmt.Fprintf(b, "%s# %s\n", indent, line)
			line = ""
		}
		line = strings.TrimPrefix(line+" "+word, " ")
	}
	if line != "" {
		fmt.Fprintf(b, "%s# %s\n", indent, line)
	}
}

func yamlValue(value any) string {
	switch value := value.(type) {
	case string:
		return yamlText(value)
	case []string:
		items := make([]string, len(value))
		for i, v := range value {
			items[i] = yamlText(v)
		}
		return "[" + strings.Join(items, ", ") + "]"
	}
	return fmt.Sprint(value)
}

// plainText is a text that YAML takes without quotes, and that is no number.
var plainText = regexp.MustCompile(`^([A-Za-z_][\w.-]*(:[\w./-]+)?|\d+(\.\d+)?[A-Za-z]+\w*)$`)

var yamlWords = []string{"true", "false", "yes", "no", "on", "off", "y", "n", "null"}

// yamlText is a text in quotes where it needs them. Go's escapes are YAML's.
func yamlText(text string) string {
	if plainText.MatchString(text) && !slices.Contains(yamlWords, strings.ToLower(text)) {
		return text
	}
	return strconv.Quote(text)
}
