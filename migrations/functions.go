package migrations

import (
	"io/fs"
	"regexp"
	"slices"
	"strings"
)

// Function is one of the schema's functions as the migrations make it.
type Function struct {
	Name string
	// Body is its source, byte for byte.
	Body string
	// Settings are those that it runs under, each name=value, sorted: the search path, and what keeps its plans the
	// same.
	Settings []string
	// Definer says that it runs as its owner.
	Definer bool
}

// Functions lists the functions that the schema has at version [Latest], sorted by name. Overloads follow each other.
func Functions(cfg Config) ([]Function, error) {
	schema, err := cfg.schema()
	if err != nil {
		return nil, err
	}
	made := map[string]Function{} // by name and arguments
	names, _ := fs.Glob(files, "sql/*.sql")
	for _, n := range names {
		text, _ := files.ReadFile(n)
		readFunctions(upOnly(rename(string(text), schema)), schema, made)
	}
	var found []Function
	for _, f := range made {
		found = append(found, f)
	}
	slices.SortFunc(found, func(a, b Function) int { return strings.Compare(a.Name+" "+a.Body, b.Name+" "+b.Body) })
	return found, nil
}

var (
	functionStart = regexp.MustCompile(`(?m)^(?:create (?:or replace )?function|drop function(?: if exists)?) `)
	functionBody  = regexp.MustCompile(`\sas (\$\w*\$)`)
	setting       = regexp.MustCompile(`(?m)^set (\w+) (?:=|to) (.+)$`)
)

// readFunctions follows a migration's statements from one function to the next.
func readFunctions(text, schema string, made map[string]Function) {
	for at := functionStart.FindStringIndex(text); at != nil; at = functionStart.FindStringIndex(text) {
		drop := strings.HasPrefix(text[at[0]:], "drop")
		text = text[at[1]:]
		if drop {
			forget(text[:strings.Index(text, ";")], schema, made)
			continue
		}
		body := functionBody.FindStringSubmatchIndex(text)
		head, quote := text[:body[0]], text[body[2]:body[3]]
		text = text[body[1]:]
		end := strings.Index(text, quote)
		name, rest, _ := strings.Cut(strings.TrimPrefix(head, schema+"."), "(")
		arguments, _, _ := strings.Cut(rest, ")")
		made[name+"("+strings.Join(strings.Fields(arguments), " ")] = Function{
			Name: name, Body: text[:end], Settings: settingsOf(head),
			Definer: strings.Contains(head, "security definer"),
		}
		text = text[end+len(quote):]
	}
}

// forget takes out the functions of a drop statement, which names them with or without arguments.
func forget(list, schema string, made map[string]Function) {
	for _, name := range strings.Split(list, schema+".")[1:] {
		name, _, _ = strings.Cut(name, ",")
		name, _, _ = strings.Cut(name, "(")
		for key := range made {
			if strings.HasPrefix(key, strings.TrimSpace(name)+"(") {
				delete(made, key)
			}
		}
	}
}

func settingsOf(head string) (found []string) {
	for _, m := range setting.FindAllStringSubmatch(head, -1) {
		found = append(found, strings.ToLower(m[1])+"="+strings.ReplaceAll(strings.TrimSpace(m[2]), "'", ""))
	}
	slices.Sort(found)
	return found
}
