package main

import (
	"bytes"
	"context"
	"fmt"
	"go/ast"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// function is one that changes can be built into together: each change is a copy of it beside it, and it begins by
// calling the copy whose number a variable of the environment has.
type function struct {
	from, to, name, body int    // offsets; name is where the name ends, body where the first statement begins
	call                 string // of a copy: a format of its number
}

// functionOf is nil where that can't be: generic ones, those whose parameters have no names, and those that recover.
func (b *breaker) functionOf(d *ast.FuncDecl) *function {
	if d.Type.TypeParams != nil || d.Name.Name == "init" || d.Name.Name == "main" ||
		strings.Contains(b.source(d), "recover()") {
		return nil
	}
	call := d.Name.Name + "_%d("
	if d.Recv != nil {
		field := d.Recv.List[0]
		if len(field.Names) == 0 || field.Names[0].Name == "_" {
			return nil
		}
		call = field.Names[0].Name + "." + call
	}
	for _, field := range d.Type.Params.List {
		if len(field.Names) == 0 {
			return nil
		}
		for _, name := range field.Names {
			if name.Name == "_" {
				return nil
			}
			call += name.Name
			if _, variadic := field.Type.(*ast.Ellipsis); variadic {
				call += "..."
			}
			call += ", "
		}
	}
	if call = strings.TrimSuffix(call, ", ") + ")"; d.Type.Results != nil {
		call = "return " + call
	} else {
		call += "; return"
	}
	return &function{b.at(d.Pos()), b.at(d.End()), b.at(d.Name.End()), b.at(d.Body.Lbrace) + 1, call}
}

// number is the variable that says which of the changes that were built together is on.
const number = "FIRSTSEEN_MUTANT"

// together builds as many changes of a file as can be into one overlay, and numbers them from 1. Those that are no Go
// get -1.
func together(ctx context.Context, dir, file string, changes []change) (overlay string, err error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	pkg := packageName.FindSubmatch(text)[1]
	begin := fmt.Sprintf(switchText, pkg, number)
	broken, switched := filepath.Join(dir, filepath.Base(file)), filepath.Join(dir, "mutant.go")
	if err := os.WriteFile(switched, []byte(begin), 0o600); err != nil { //nolint:gosec // in a directory of ours
		return "", err
	}
	overlay, err = writeOverlay(dir,
		map[string]string{file: broken, filepath.Join(filepath.Dir(file), "mutant.go"): switched})
	if err != nil {
		return "", err
	}
	at := 0
	for i := range changes {
		if changes[i].of != nil {
			at++
			changes[i].number = at
		}
	}
	for {
		all, first := merge(text, changes)
		if err := os.WriteFile(broken, all, 0o600); err != nil {
			return "", err
		}
		out, err := goTool(ctx, "build", "-gcflags=-e", "-overlay="+overlay, "./"+filepath.Dir(file))
		if err == nil {
			return overlay, nil
		}
		if !dropUnbuilt(first, filepath.Base(file), out) {
			return "", fmt.Errorf("build the changes of %s: %w\n%s", file, err, out)
		}
	}
}

// switchText is a file beside the target: which change is on.
const switchText = `package %s

import (
	"os"
	"strconv"
)

var mutant, _ = strconv.Atoi(os.Getenv(%q))
`

var packageName = regexp.MustCompile(`(?m)^package (\w+)`)

// merge gives the file with all numbered changes, and the line where each begins.
func merge(text []byte, changes []change) (all []byte, first map[int]*change) {
	calls := map[*function]string{}
	for i := range changes {
		if c := &changes[i]; c.number > 0 {
			calls[c.of] += fmt.Sprintf("case %d: %s; ", c.number, fmt.Sprintf(c.of.call, c.number))
		}
	}
	var out bytes.Buffer
	done := 0
	for i := range changes {
		if f := changes[i].of; calls[f] != "" {
			out.Write(text[done:f.body])
			out.WriteString(" switch mutant { " + calls[f] + "}; ")
			done, calls[f] = f.body, ""
		}
	}
	out.Write(text[done:])
	first = map[int]*change{}
	for i := range changes {
		c := &changes[i]
		if c.number <= 0 {
			continue
		}
		first[1+bytes.Count(out.Bytes(), []byte{'\n'})] = c
		out.Write(text[c.of.from:c.of.name])
		fmt.Fprintf(&out, "_%d", c.number)
		out.Write(text[c.of.name:c.from])
		out.WriteString(c.text)
		out.Write(text[c.to:c.of.to])
		out.WriteByte('\n')
	}
	return out.Bytes(), first
}

// dropUnbuilt finds the changes that the compiler complains of.
func dropUnbuilt(first map[int]*change, file string, out []byte) (any bool) {
	for _, found := range regexp.MustCompile(regexp.QuoteMeta(file)+`:(\d+):`).FindAllSubmatch(out, -1) {
		line, _ := strconv.Atoi(string(found[1]))
		for ; line > 0 && first[line] == nil; line-- {
		}
		if c := first[line]; c != nil {
			c.number, any = -1, true
		}
	}
	return any
}
