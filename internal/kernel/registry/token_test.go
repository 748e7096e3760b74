package registry

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"
)

// A token is compared in constant time, so that the duration of a refusal does not reveal how much
// of it was right. In this package a token is an operand of no comparison except with the empty
// one, no key of a map and no argument of a comparing function except those of crypto/subtle. A
// digest of it may be anything.
func TestTokensAreComparedInConstantTime(t *testing.T) {
	names, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	files := token.NewFileSet()
	compared := 0
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(files, name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			fault := func(what string) { t.Errorf("%s: a token is %s", files.Position(n.Pos()), what) }
			switch n := n.(type) {
			case *ast.BinaryExpr:
				if (isToken(n.X) || isToken(n.Y)) && !isEmpty(n.X) && !isEmpty(n.Y) {
					fault("compared by " + n.Op.String())
				}
			case *ast.IndexExpr:
				if isToken(n.Index) {
					fault("looked up")
				}
			case *ast.SwitchStmt:
				if n.Tag != nil && isToken(n.Tag) {
					fault("compared by switch")
				}
			case *ast.CallExpr:
				if f, ok := n.Fun.(*ast.SelectorExpr); ok && f.Sel.Name == "owns" {
					compared++
				}
				called, ok := n.Fun.(*ast.SelectorExpr)
				if !ok {
					return true
				}
				room, _ := called.X.(*ast.Ident)
				for _, a := range n.Args {
					switch {
					case room == nil || !mentions(a):
					case room.Name == "subtle" && called.Sel.Name == "ConstantTimeCompare":
						compared++
					case room.Name == "bytes", room.Name == "strings", room.Name == "slices", room.Name == "cmp", room.Name == "reflect", room.Name == "maps":
						fault("handed to " + room.Name + "." + called.Sel.Name)
					}
				}
			}
			return true
		})
	}
	// A request's token, on a connection that is the app's by its process too, a
	// takeover's, and that of a resumption: each by its digest ([app.owns]).
	if compared < 4 {
		t.Errorf("tokens are compared %d times", compared)
	}
}

// isToken reports whether an expression is a variable or a field named token.
func isToken(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name == "token"
	case *ast.SelectorExpr:
		return e.Sel.Name == "token"
	case *ast.ParenExpr:
		return isToken(e.X)
	}
	return false
}

// mentions reports whether an argument is a token, or one converted.
func mentions(e ast.Expr) bool {
	if call, ok := e.(*ast.CallExpr); ok && len(call.Args) == 1 {
		if _, conversion := call.Fun.(*ast.ArrayType); conversion {
			return isToken(call.Args[0])
		}
	}
	return isToken(e)
}

func isEmpty(e ast.Expr) bool {
	literal, ok := e.(*ast.BasicLit)
	return ok && literal.Value == `""`
}
