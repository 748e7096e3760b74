package archtest

import (
	"go/ast"
	"go/token"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// machine are the names by which a file reaches the machine that it runs on: variables,
// programs, the user, the time zone.
var machine = map[string][]string{
	"os":   {"Environ", "Getenv", "LookupEnv", "ExpandEnv", "UserHomeDir", "UserCacheDir", "UserConfigDir", "Hostname", "StartProcess"},
	"time": {"Local"},
}

// reachesMachine reports whether a file uses one of these names, or starts programs.
func reachesMachine(f *ast.File) (reaches bool) {
	local := map[string]string{}
	for _, i := range f.Imports {
		imported, _ := strconv.Unquote(i.Path.Value) // it was parsed
		name := path.Base(imported)
		if i.Name != nil {
			name = i.Name.Name
		}
		local[name] = imported
		reaches = reaches || imported == "os/exec" || imported == "os/user"
	}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.SelectorExpr:
			x, named := n.X.(*ast.Ident)
			reaches = reaches || n.Sel.Name == "Local" || named && slices.Contains(machine[local[x.Name]], n.Sel.Name)
		case *ast.CallExpr:
			reaches = reaches || masked(n)
		}
		return true
	})
	return reaches
}

// masked reports whether a call makes a file or a directory whose mode depends on the
// user's mask.
func masked(call *ast.CallExpr) bool {
	s, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || !slices.Contains([]string{"WriteFile", "OpenFile", "Mkdir", "MkdirAll"}, s.Sel.Name) || len(call.Args) == 0 {
		return false
	}
	mode, ok := call.Args[len(call.Args)-1].(*ast.BasicLit)
	if !ok {
		return false
	}
	bits, err := strconv.ParseUint(mode.Value, 0, 32)
	return err == nil && bits&0o077 != 0
}

// unisolated returns the folders whose tests can reach the machine, by themselves or
// through what they import, and have no TestMain that isolates them.
func unisolated(units []unit) (faults []string) {
	byPath := map[string]unit{}
	for _, u := range units {
		byPath[path.Join(u.module, u.dir)] = u
	}
	seen := map[string]bool{}
	var reaches func(files []*ast.File) bool
	reaches = func(files []*ast.File) bool {
		for _, f := range files {
			if reachesMachine(f) {
				return true
			}
			for _, i := range f.Imports {
				imported, _ := strconv.Unquote(i.Path.Value) // it was parsed
				u, ours := byPath[imported]
				// What isolates is no reason to be isolated, nor is a variable that
				// only a build with the tag mutant reads.
				if !ours || u.dir == "test/buildtest" || u.dir == "internal/base/mutant" || seen[imported] {
					continue
				}
				seen[imported] = true
				if reaches(u.files) {
					return true
				}
			}
		}
		return false
	}
	for _, u := range units {
		clear(seen)
		if len(u.tests) > 0 && !slices.ContainsFunc(u.tests, isolates) && reaches(slices.Concat(u.files, u.tests)) {
			faults = append(faults, u.dir)
		}
	}
	return faults
}

// isolates reports whether a file's TestMain calls buildtest.Isolated.
func isolates(f *ast.File) (found bool) {
	for _, d := range f.Decls {
		main, ok := d.(*ast.FuncDecl)
		if !ok || main.Name.Name != "TestMain" {
			continue
		}
		ast.Inspect(main, func(n ast.Node) bool {
			if s, ok := n.(*ast.SelectorExpr); ok && s.Sel.Name == "Isolated" {
				x, named := s.X.(*ast.Ident)
				found = found || named && x.Name == "buildtest"
			}
			return true
		})
	}
	return found
}

// TestIsolated wants tests to be isolated from the machine of whoever runs them.
func TestIsolated(t *testing.T) {
	for _, dir := range unisolated(load(t)) {
		if !strings.HasPrefix(dir, "e2e") { // it is about programs that are installed
			t.Errorf("the tests of %s can reach the user's machine: add func TestMain(m *testing.M) { buildtest.Isolated(m).Run() }", dir)
		}
	}
}

// TestIsolationIsMissed tries the check on a module of its own.
func TestIsolationIsMissed(t *testing.T) {
	const main = "package x\nimport (\"testing\"; \"m/test/buildtest\")\nfunc TestMain(m *testing.M) { buildtest.Isolated(m).Run() }"
	for name, source := range map[string]string{
		"a variable": "package x\nimport \"os\"\nvar _ = os.Getenv(\"HOME\")",
		"a program":  "package x\nimport osexec \"os/exec\"\nvar _ = osexec.Command",
		"the zone":   "package x\nimport \"time\"\nvar _ = time.Now().Local()",
		"the mask":   "package x\nimport \"os\"\nvar _ = os.Mkdir(\"d\", 0o750)",
		"an import":  "package x\nimport \"m/reaches\"\nvar _ = reaches.X",
	} {
		for kept, want := range map[string]int{"package x": 1, main: 0} {
			fset := token.NewFileSet()
			reaching, tested := unit{module: "m", dir: "reaches", fset: fset}, unit{module: "m", dir: "x", fset: fset}
			for _, f := range []struct {
				of         *unit
				name, text string
			}{
				{&reaching, "reaches.go", "package reaches\nimport \"os\"\nvar X = os.Environ"},
				{&tested, "x_test.go", source}, {&tested, "main_test.go", kept},
			} {
				if err := f.of.add(f.name, []byte(f.text)); err != nil {
					t.Fatal(err)
				}
			}
			if got := unisolated([]unit{reaching, tested}); len(got) != want {
				t.Errorf("%s: %q, want %d", name, got, want)
			}
		}
	}
}
