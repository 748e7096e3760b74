package archtest

import (
	"go/ast"
	"go/types"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// TestMutants holds the switches of guards to builds with the tag mutant: in every other
// build [mutant.Off] is the constant false, so that nothing outside the program can switch
// a guard off. Each guard has a name of its own and one place.
func TestMutants(t *testing.T) {
	off := make(map[string]string) // by the constraint of its file
	guards := make(map[string]bool)
	for _, u := range load(t) {
		for _, f := range u.files {
			if u.dir == "internal/base/mutant" {
				ast.Inspect(f, func(n ast.Node) bool {
					if d, ok := n.(*ast.FuncDecl); ok && d.Name.Name == "Off" && len(d.Body.List) == 1 {
						result := d.Body.List[0].(*ast.ReturnStmt).Results[0]
						off[constraint(f)] = types.ExprString(result)
					}
					return true
				})
				continue
			}
			ast.Inspect(f, func(n ast.Node) bool {
				call, ok := n.(*ast.CallExpr)
				if !ok || types.ExprString(call.Fun) != "mutant.Off" {
					return true
				}
				name := ""
				if literal, ok := call.Args[0].(*ast.BasicLit); ok {
					name, _ = strconv.Unquote(literal.Value)
				}
				if !regexp.MustCompile(`^[a-z]+(-[a-z]+)*$`).MatchString(name) || guards[name] {
					t.Errorf("%s: a guard has a name of its own, a literal of small letters, not %s", u.fset.Position(n.Pos()), types.ExprString(call.Args[0]))
				}
				guards[name] = true
				return true
			})
		}
	}
	if len(off) != 2 || off["!mutant"] != "false" || off["mutant"] == "" {
		t.Errorf("Off returns, by the tags of its build, %v: want false without the tag mutant", off)
	}
	if len(guards) < 12 {
		t.Errorf("%d guards can be switched off", len(guards))
	}
}

// constraint is what a file's line go:build says, "" where there is none.
func constraint(f *ast.File) string {
	for _, group := range f.Comments {
		for _, c := range group.List {
			if tags, ok := strings.CutPrefix(c.Text, "//go:build "); ok {
				return tags
			}
		}
	}
	return ""
}
