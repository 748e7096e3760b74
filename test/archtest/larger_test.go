package archtest

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/token"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// limits of the parts of a package. What exceeded them when they were made is listed in
// testdata/larger.txt with its size.
const (
	mostMethods  = 40  // of a type
	mostFields   = 24  // of a struct
	mostLines    = 60  // of a function
	mostPaths    = 25  // through a function: one, and one for each branch, case, loop, && and ||
	mostInFile   = 600 // lines
	mostExported = 120 // names of a package, without methods
)

// TestLimits holds every package to the limits. The list of larger parts may only shrink: the
// test fails for a part that is larger than its row, and for a row of a part that keeps the limit.
func TestLimits(t *testing.T) {
	const list = "testdata/larger.txt"
	text, err := os.ReadFile(list)
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]int{}
	for line := range strings.Lines(string(text)) {
		at := strings.LastIndexByte(strings.TrimSpace(line), ' ')
		if at < 0 {
			t.Fatalf("%s: %q", list, line)
		}
		n, err := strconv.Atoi(strings.TrimSpace(line[at:]))
		if err != nil {
			t.Fatal(err)
		}
		known[line[:at]] = n
	}
	found := map[string]int{}
	for _, u := range load(t) {
		maps.Copy(found, larger(&u))
	}
	if len(found) < 20 {
		t.Errorf("only %d parts are larger", len(found))
	}
	for _, name := range slices.Sorted(maps.Keys(found)) {
		if was := known[name]; found[name] > was {
			t.Errorf("%s %d: the list says %d", name, found[name], was)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(known)) {
		if found[name] == 0 {
			t.Errorf("%s %d: it keeps the limit by now, take it off the list", name, known[name])
		}
	}
}

// larger are the parts of a package that exceed a limit, by name and size.
func larger(u *unit) map[string]int {
	found := map[string]int{}
	note := func(size, most int, format string, args ...any) {
		if size > most {
			found[u.dir+": "+fmt.Sprintf(format, args...)] = size
		}
	}
	methods, exported := map[string]int{}, 0
	for _, f := range u.files {
		at := u.fset.File(f.Pos())
		note(at.LineCount(), mostInFile, "lines of %s", at.Name()[strings.LastIndexByte(at.Name(), '/')+1:])
		for _, d := range f.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				name := d.Name.Name
				if d.Recv == nil {
					exported += count(ast.IsExported(name))
				} else {
					of := receiver(d.Recv.List[0].Type)
					methods[of]++
					name = of + "." + name
				}
				note(u.fset.Position(d.End()).Line-u.fset.Position(d.Pos()).Line+1, mostLines, "lines of func %s", name)
				note(paths(d), mostPaths, "paths of func %s", name)
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					switch spec := spec.(type) {
					case *ast.ValueSpec:
						for _, name := range spec.Names {
							exported += count(name.IsExported())
						}
					case *ast.TypeSpec:
						exported += count(spec.Name.IsExported())
						if s, ok := spec.Type.(*ast.StructType); ok {
							note(s.Fields.NumFields(), mostFields, "fields of %s", spec.Name.Name)
						}
					}
				}
			}
		}
	}
	for name, n := range methods {
		note(n, mostMethods, "methods of %s", name)
	}
	note(exported, mostExported, "exported names")
	return found
}

func count(is bool) int {
	if is {
		return 1
	}
	return 0
}

// receiver is the name of a method's type.
func receiver(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return receiver(e.X)
	case *ast.IndexExpr:
		return receiver(e.X)
	case *ast.IndexListExpr:
		return receiver(e.X)
	case *ast.Ident:
		return e.Name
	}
	return "?"
}

// paths counts the ways through a function, with the functions inside it.
func paths(d *ast.FuncDecl) int {
	n := 1
	ast.Inspect(d, func(node ast.Node) bool {
		switch node := node.(type) {
		case *ast.IfStmt, *ast.ForStmt, *ast.RangeStmt:
			n++
		case *ast.CaseClause:
			n += min(len(node.List), 1)
		case *ast.CommClause:
			n += count(node.Comm != nil)
		case *ast.BinaryExpr:
			n += count(node.Op == token.LAND || node.Op == token.LOR)
		}
		return true
	})
	return cmp.Or(n, 1)
}

// TestLarger shows that each limit is seen.
func TestLarger(t *testing.T) {
	many := func(n int, format string) (text string) {
		for i := range n {
			text += fmt.Sprintf(format, i)
		}
		return text
	}
	for want, src := range map[string]string{
		"x: methods of T":          "type T int\n" + many(mostMethods+1, "func (*T) m%d() {}\n"),
		"x: fields of T":           "type T struct {\n" + many(mostFields+1, "f%d int\n") + "}",
		"x: lines of func f":       "func f() {" + strings.Repeat("\n", mostLines) + "}",
		"x: paths of func T.f":     "type T[A any] int\nfunc (T[A]) f() bool { return " + strings.Repeat("a && ", mostPaths) + "a }",
		"x: lines of x.go":         strings.Repeat("\n", mostInFile),
		"x: exported names":        many(mostExported+1, "const A%d = 1\n"),
		"nothing":                  "func f() {}",
		"nothing: unexported":      many(mostExported+1, "const a%d = 1\n"),
		"nothing: nearly too long": "func f() {" + strings.Repeat("\n", mostLines-1) + "}",
	} {
		u := unit{module: testModule, dir: "x", fset: token.NewFileSet()}
		if err := u.add("x.go", []byte("package x\n"+src)); err != nil {
			t.Fatal(err)
		}
		got := slices.Sorted(maps.Keys(larger(&u)))
		if strings.HasPrefix(want, "nothing") {
			if len(got) > 0 {
				t.Errorf("%s: %q", want, got)
			}
		} else if !slices.Equal(got, []string{want}) {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
