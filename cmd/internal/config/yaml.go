package config

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// pageWidth is where comments are broken.
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

// plainText is what YAML takes for a text without quotes, and is no number.
var plainText = regexp.MustCompile(`^([A-Za-z_][\w.-]*(:[\w./-]+)?|\d+(\.\d+)?[A-Za-z]+\w*)$`)

var yamlWords = []string{"true", "false", "yes", "no", "on", "off", "y", "n", "null"}

// yamlText is a text in quotes where it needs them. Go's escapes are YAML's.
func yamlText(text string) string {
	if plainText.MatchString(text) && !slices.Contains(yamlWords, strings.ToLower(text)) {
		return text
	}
	return strconv.Quote(text)
}
