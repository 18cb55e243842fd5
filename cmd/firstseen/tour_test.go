package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A walk that leads to a door that is not there is worse than none.
func TestTourLeadsToFunctionsThatAreThere(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root(t), "docs", "TOUR.md"))
	require.NoError(t, err)
	stops := regexp.MustCompile(`(?m)^\| \d+ \| (\S+) \| (\S+) \|`).FindAllStringSubmatch(string(text), -1)
	require.Greater(t, len(stops), 5)
	require.LessOrEqual(t, len(stops), 10)
	seen := map[string]bool{}
	for _, stop := range stops {
		file, function := filepath.Join(root(t), stop[1]), stop[2]
		require.False(t, seen[stop[1]], "%s is visited twice", stop[1])
		seen[stop[1]] = true
		if strings.HasSuffix(file, ".sql") {
			sql, err := os.ReadFile(file)
			require.NoError(t, err)
			require.Contains(t, string(sql), "function "+function+"(")
			continue
		}
		require.Contains(t, functions(t, file), function, stop[1])
	}
}

// functions are those of a file; a method's name has its type's before it.
func functions(t *testing.T, file string) (names []string) {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	require.NoError(t, err)
	for _, d := range parsed.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok {
			continue
		}
		name := f.Name.Name
		if f.Recv != nil {
			receiver := f.Recv.List[0].Type
			if pointer, ok := receiver.(*ast.StarExpr); ok {
				receiver = pointer.X
			}
			if named, ok := receiver.(*ast.Ident); ok {
				name = named.Name + "." + name
			}
		}
		names = append(names, name)
	}
	return names
}
