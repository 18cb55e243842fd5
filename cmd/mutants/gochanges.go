package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"strconv"
)

var swapped = map[token.Token]token.Token{
	token.EQL: token.NEQ, token.NEQ: token.EQL, token.LSS: token.LEQ, token.LEQ: token.LSS, token.GTR: token.GEQ,
	token.GEQ:  token.GTR,
	token.LAND: token.LOR, token.LOR: token.LAND, token.ADD: token.SUB, token.SUB: token.ADD, token.MUL: token.QUO,
	token.QUO: token.MUL,
}

var renamed = map[string]string{"true": "false", "false": "true", "min": "max", "max": "min"}

// goChanges breaks each function of a file, and the SQL in its strings.
func goChanges(file string, text []byte) (changes []change, err error) {
	files := token.NewFileSet()
	parsed, err := parser.ParseFile(files, file, text, 0)
	if err != nil {
		return nil, err
	}
	for _, d := range parsed.Decls {
		b := breaker{at: func(p token.Pos) int { return files.Position(p).Offset }, text: text}
		function, ok := d.(*ast.FuncDecl)
		if !ok {
			ast.Inspect(d, b.visit)
			changes = append(changes, apply(file, "", text, b.edits)...)
			continue
		}
		b.inside = true
		ast.Inspect(function.Body, b.visit)
		in := span{placeOf(text, b.at(function.Body.Pos())), placeOf(text, b.at(function.Body.End()))}
		of := b.functionOf(function)
		for _, c := range apply(file, function.Name.Name, text, b.edits) {
			c.in, c.of = in, of
			changes = append(changes, c)
		}
	}
	return changes, nil
}

// breaker collects edits of one declaration.
type breaker struct {
	at     func(token.Pos) int
	text   []byte
	inside bool // of a function
	edits  []edit
}

func (b *breaker) replace(from, to token.Pos, text string) {
	b.edits = append(b.edits, edit{b.at(from), b.at(to), text})
}

func (b *breaker) source(n ast.Node) string { return string(b.text[b.at(n.Pos()):b.at(n.End())]) }

var sqlText = regexp.MustCompile(`^.\s*(with|select|insert|update|delete) `)

func (b *breaker) visit(n ast.Node) bool {
	if literal, ok := n.(*ast.BasicLit); ok && literal.Kind == token.STRING && sqlText.MatchString(literal.Value) {
		b.edits = append(b.edits, sqlEdits(b.text, b.at(literal.Pos()), b.at(literal.End()))...)
	}
	if !b.inside {
		return true
	}
	switch n := n.(type) {
	case *ast.BinaryExpr:
		if other, ok := swapped[n.Op]; ok {
			b.replace(n.OpPos, n.OpPos+token.Pos(len(n.Op.String())), other.String())
		}
	case *ast.UnaryExpr:
		if n.Op == token.NOT {
			b.replace(n.OpPos, n.OpPos+1, "")
		}
	case *ast.IfStmt:
		if _, binary := n.Cond.(*ast.BinaryExpr); !binary {
			b.replace(n.Cond.Pos(), n.Cond.End(), fmt.Sprintf("!(%s)", b.source(n.Cond)))
		}
	case *ast.ExprStmt, *ast.IncDecStmt, *ast.DeferStmt:
		b.replace(n.Pos(), n.End(), "")
	case *ast.AssignStmt:
		if n.Tok != token.DEFINE {
			b.replace(n.Pos(), n.End(), "")
		}
	case *ast.BranchStmt:
		if n.Tok == token.CONTINUE {
			b.replace(n.TokPos, n.TokPos+token.Pos(len("continue")), "break")
		}
	case *ast.ReturnStmt:
		b.dropError(n)
	case *ast.Ident:
		if other, ok := renamed[n.Name]; ok {
			b.replace(n.Pos(), n.End(), other)
		}
	case *ast.BasicLit:
		if number, err := strconv.Atoi(n.Value); err == nil && n.Kind == token.INT {
			b.replace(n.Pos(), n.End(), strconv.Itoa(number+1))
		}
	}
	return true
}

// dropError returns nil instead of an error.
func (b *breaker) dropError(r *ast.ReturnStmt) {
	if len(r.Results) == 0 {
		return
	}
	last := r.Results[len(r.Results)-1]
	if name, ok := last.(*ast.Ident); ok && name.Name == "err" {
		b.replace(last.Pos(), last.End(), "nil")
	}
}
