package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// TestLayers holds the whole module against the rules.
func TestLayers(t *testing.T) {
	for _, u := range load(t) {
		for _, fault := range check(u) {
			t.Error(fault)
		}
	}
}

// TestEveryFileIsRead guards against a walk that finds nothing and passes. It counts the
// files of each directory by itself.
func TestEveryFileIsRead(t *testing.T) {
	root, _ := moduleRoot(t)
	read := 0
	for _, u := range load(t) {
		all, err := filepath.Glob(filepath.Join(root, filepath.FromSlash(u.dir), "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		if got := len(u.files) + len(u.tests); got != len(all) {
			t.Errorf("%s: the check read %d of %d files", u.dir, got, len(all))
		}
		read += len(all)
	}
	if read < 1000 {
		t.Errorf("the check read %d files", read)
	}
}

// TestTable holds the tables against the module: each folder and each package that they
// name is there, and the two edges that nobody may ever add stay out.
func TestTable(t *testing.T) {
	packages, used := map[string]bool{}, map[string]bool{}
	for _, u := range load(t) {
		packages[u.dir], used[folderOf(u.dir)] = true, true
	}
	for dir := range folders {
		if !used[dir] {
			t.Errorf("no package is in %s", dir)
		}
	}
	for name, list := range map[string][]string{"clocks": clocks, "followers": followers, "processes": processes, "namedFiles": namedFiles} {
		for _, dir := range list {
			if !packages[dir] {
				t.Errorf("%s names %s, which is no package", name, dir)
			}
		}
	}
	for _, f := range fences {
		for _, dir := range f.folders {
			if !packages[dir] {
				t.Errorf("the fence around %s names %s, which is no package", f.paths, dir)
			}
		}
	}
	for _, never := range [][2]string{{"internal/kernel", "internal/ipc"}, {"internal/ipc", "internal/kernel"}} {
		if mayImport(never[0], never[1]) {
			t.Errorf("%s may import %s: the daemon introduces them", never[0], never[1])
		}
	}
}

// TestAlone holds the packages whose tests run without the race detector to this: neither
// they nor their tests start anything beside themselves.
func TestAlone(t *testing.T) {
	root, _ := moduleRoot(t)
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	_, list, _ := strings.Cut(string(makefile), "\nALONE := ")
	list, _, _ = strings.Cut(strings.ReplaceAll(list, "\\\n", " "), "\n")
	alone := strings.Fields(list)
	if len(alone) == 0 {
		t.Fatal("the Makefile names none")
	}
	for _, u := range load(t) {
		at := slices.Index(alone, u.dir)
		if at < 0 {
			continue
		}
		alone = slices.Delete(alone, at, at+1)
		for _, f := range slices.Concat(u.files, u.tests) {
			ast.Inspect(f, func(n ast.Node) bool {
				_, starts := n.(*ast.GoStmt)
				if call, ok := n.(*ast.SelectorExpr); ok {
					starts = slices.Contains([]string{"Go", "Parallel", "RunParallel", "AfterFunc"}, call.Sel.Name)
				}
				if starts {
					t.Errorf("%s: this may race, so %s does not belong into ALONE of the Makefile", u.fset.Position(n.Pos()), u.dir)
				}
				return true
			})
		}
	}
	if len(alone) > 0 {
		t.Errorf("the Makefile names %s, which is no package", alone)
	}
}

// TestLongTests holds the tests that the Makefile leaves to `make test-long` against the tree.
func TestLongTests(t *testing.T) {
	root, _ := moduleRoot(t)
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	_, swept, _ := strings.Cut(string(makefile), "\nSWEPT := ")
	swept, _, _ = strings.Cut(swept, "\n")
	tests := make(map[string]string)
	for _, u := range load(t) {
		for _, f := range u.tests {
			for _, decl := range f.Decls {
				if is, ok := decl.(*ast.FuncDecl); ok && is.Recv == nil {
					tests[is.Name.Name] = u.dir
				}
			}
		}
	}
	for _, variable := range []string{"SWEEPS", "KILLS"} {
		_, list, _ := strings.Cut(string(makefile), "\n"+variable+" := ")
		list, _, _ = strings.Cut(list, "\n")
		for name := range strings.SplitSeq(list, "|") {
			prefix, several := strings.CutSuffix(name, ".*")
			found := false
			for is, dir := range tests {
				if is != name && (!several || !strings.HasPrefix(is, prefix)) {
					continue
				}
				if found = true; variable == "SWEEPS" && !slices.Contains(strings.Fields(swept), dir) {
					t.Errorf("%s is a sweep of %s, and SWEPT of the Makefile lacks that package", is, dir)
				}
			}
			if !found {
				t.Errorf("%s of the Makefile names %q, which is no test", variable, name)
			}
		}
	}
}

// TestDocumentedFiles holds the files that docs/architecture names, from the root or from
// internal on, against the tree.
func TestDocumentedFiles(t *testing.T) {
	root, _ := moduleRoot(t)
	pages, err := filepath.Glob(filepath.Join(root, "docs", "architecture", "*.md"))
	if err != nil || len(pages) < 2 {
		t.Fatalf("the pages are %q, %v", pages, err)
	}
	var text strings.Builder
	for _, page := range pages {
		read, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		text.Write(read)
	}
	named := regexp.MustCompile("`([a-z]+/[a-z_/]+\\.go)`").FindAllStringSubmatch(text.String(), -1)
	if len(named) < 40 {
		t.Errorf("%d files are named", len(named))
	}
	for _, m := range named {
		_, whole := os.Stat(filepath.Join(root, m[1]))
		if _, err := os.Stat(filepath.Join(root, "internal", m[1])); err != nil && whole != nil {
			t.Errorf("docs/architecture names %s, which is nowhere", m[1])
		}
	}
}

// documentRow is a row of the document's table: floor, folder, packages, never imports.
var documentRow = regexp.MustCompile("(?m)^\\| (\\d+) \\| `([a-z]+)` \\| [^|]+ \\| ([^|]*) \\| ([^|]*) \\|$")

// TestDocument holds the table that people read against the one that is enforced, and the
// doc.go of each folder against the packages in it.
func TestDocument(t *testing.T) {
	root, _ := moduleRoot(t)
	text, err := os.ReadFile(filepath.Join(root, "docs", "architecture", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	said := map[string][]string{}
	for _, m := range documentRow.FindAllStringSubmatch(string(text), -1) {
		said["internal/"+m[2]] = m[1:]
	}
	packages := map[string][]string{}
	for _, u := range load(t) {
		folder := folderOf(u.dir)
		if name, below := strings.CutPrefix(u.dir, folder+"/"); below && len(u.files) > 0 {
			packages[folder] = append(packages[folder], name)
		}
	}
	for dir, row := range folders {
		if !strings.HasPrefix(dir, "internal/") {
			continue
		}
		var never []string
		for _, folder := range row.never {
			never = append(never, strings.TrimPrefix(folder, "internal/"))
		}
		slices.Sort(packages[dir])
		want := []string{strconv.Itoa(row.floor), strings.TrimPrefix(dir, "internal/"), strings.Join(packages[dir], ", "), strings.Join(never, ", ")}
		if !slices.Equal(said[dir], want) {
			t.Errorf("docs/architecture/README.md says of %s %q, want %q", dir, said[dir], want)
		}
		doc, err := os.ReadFile(filepath.Join(root, dir, "doc.go"))
		if err != nil {
			t.Error(err)
		}
		for _, name := range packages[dir] {
			if !strings.Contains(string(doc), "//   - "+name+": ") {
				t.Errorf("%s/doc.go does not say what %s does", dir, name)
			}
		}
	}
}

// file is a text of the source tree, of which Go files are parsed.
type file struct {
	rel, text string
	parsed    *ast.File
	// other is set in a module of its own, which builds releases.
	other bool
}

// positions are those of all files of the tree.
var positions = sync.OnceValue(token.NewFileSet)

// readTree reads and parses the source tree once for all tests.
var readTree = sync.OnceValues(func() (list []file, err error) {
	root, err := filepath.Abs("../..")
	if err != nil {
		return nil, err
	}
	var others []string
	err = filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		if entry.IsDir() {
			switch base := entry.Name(); {
			case rel == ".":
			case base[0] == '.' || base[0] == '_' || slices.Contains([]string{"testdata", "vendor", "node_modules", "bin", "dist"}, base):
				return filepath.SkipDir
			default:
				if _, err := os.Stat(filepath.Join(name, "go.mod")); err == nil {
					others = append(others, rel+"/")
				}
			}
			return nil
		}
		ext := path.Ext(rel)
		if !slices.Contains([]string{".go", ".md", ".yaml", ".rego"}, ext) {
			return nil
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		f := file{rel: rel, text: string(text)}
		f.other = slices.ContainsFunc(others, func(dir string) bool { return strings.HasPrefix(rel, dir) })
		if ext == ".go" {
			f.parsed, err = parser.ParseFile(positions(), rel, text, parser.ParseComments|parser.SkipObjectResolution)
		}
		list = append(list, f)
		return err
	})
	return list, err
})

func tree(t *testing.T) []file {
	t.Helper()
	list, err := readTree()
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// load is the module's own Go files, folder by folder.
func load(t *testing.T) []unit {
	t.Helper()
	_, module := moduleRoot(t)
	units := map[string]*unit{}
	of := func(dir string) *unit {
		if units[dir] == nil {
			units[dir] = &unit{module: module, dir: dir, fset: positions()}
		}
		return units[dir]
	}
	for _, f := range tree(t) {
		if f.parsed != nil && !f.other {
			of(path.Dir(f.rel)).put(f.rel, f.parsed)
		}
	}
	list := make([]unit, 0, len(units))
	for _, u := range units {
		list = append(list, *u)
	}
	slices.SortFunc(list, func(a, b unit) int { return strings.Compare(a.dir, b.dir) })
	return list
}

// add parses one file into the unit.
func (u *unit) add(name string, src []byte) error {
	f, err := parser.ParseFile(u.fset, name, src, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	u.put(name, f)
	return nil
}

func (u *unit) put(name string, f *ast.File) {
	if strings.HasSuffix(name, "_test.go") {
		u.tests = append(u.tests, f)
	} else {
		u.files = append(u.files, f)
	}
}

// moduleRoot finds the folder of go.mod above the test, and the module's path.
func moduleRoot(t *testing.T) (dir, module string) {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		mod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil {
			for line := range strings.Lines(string(mod)) {
				if rest, ok := strings.CutPrefix(line, "module "); ok {
					return dir, strings.TrimSpace(rest)
				}
			}
			t.Fatalf("%s/go.mod names no module", dir)
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			t.Fatal("no go.mod above the test")
		}
		dir = parent
	}
}

const testModule = "example.com/layers"

// TestDecisions holds that each decision on record has a number of its own, which its
// title says too.
func TestDecisions(t *testing.T) {
	names, err := filepath.Glob("../../docs/adr/*.md")
	if err != nil || len(names) == 0 {
		t.Fatal("no decisions are there", err)
	}
	taken := make(map[string]string)
	for _, name := range names {
		base := filepath.Base(name)
		number, _, _ := strings.Cut(base, "-")
		if other := taken[number]; other != "" {
			t.Errorf("%s has the number of %s", base, other)
		}
		taken[number] = base
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(string(text), "# "+number+": ") {
			t.Errorf("the title of %s does not begin with its number", base)
		}
	}
}

// TestNamedTests holds that each test that a document names as evidence is there.
func TestNamedTests(t *testing.T) {
	there := map[string]bool{}
	named := regexp.MustCompile(`\b(?:Test|Fuzz)[A-Z][A-Za-z0-9]+`)
	var documents []file
	for _, f := range tree(t) {
		switch {
		case strings.HasSuffix(f.rel, "_test.go"):
			for _, d := range f.parsed.Decls {
				if fn, ok := d.(*ast.FuncDecl); ok {
					there[fn.Name.Name] = true
				}
			}
		case strings.HasSuffix(f.rel, ".md"):
			documents = append(documents, f)
		}
	}
	names := 0
	for _, f := range documents {
		for _, name := range named.FindAllString(f.text, -1) {
			if names++; !there[name] {
				t.Errorf("%s names %s, which is nowhere", f.rel, name)
			}
		}
	}
	if names < 100 {
		t.Errorf("%d names were found", names)
	}
}

// TestCheck breaks every rule once, so that the check is known to be able to
// fail, and keeps some neighbours of each rule, so that it is known to be able
// to pass.
func TestCheck(t *testing.T) {
	// A src without a package clause is put below a good one.
	tests := []struct {
		name string
		dir  string
		file string // default x.go
		src  string
		want []string // a part of each fault, in order
	}{
		// Layers.
		{"allowed edge", "internal/kernel", "", `import "example.com/layers/internal/store"`, nil},
		{"kernel to ipc", "internal/kernel", "", `import "example.com/layers/internal/ipc"`, []string{"internal/kernel may not import internal/ipc"}},
		{"ipc to kernel", "internal/ipc", "", `import "example.com/layers/internal/kernel"`, []string{"internal/ipc may not import internal/kernel"}},
		{"command to ipc", "cmd/ocipd", "", `import "example.com/layers/internal/ipc"`, []string{"may not import internal/ipc"}},
		{"leaf to leaf", "internal/ocip", "", `import _ "example.com/layers/internal/audit"`, []string{"may not import internal/audit"}},
		{"renamed import", "internal/audit", "", `import s "example.com/layers/internal/store"`, []string{"may not import internal/store"}},
		{"a package below an allowed folder", "internal/kernel", "", `import "example.com/layers/internal/store/inner"`, nil},
		{"a neighbour in the folder", "internal/kernel/outbox", "", `import "example.com/layers/internal/kernel/registry"`, nil},
		{"a package of the same floor", "internal/kernel/outbox", "", `import "example.com/layers/internal/task/taskservice"`, []string{"internal/kernel/outbox may not import internal/task/taskservice"}},
		{"a bridge to the database", "internal/bridge/acp", "", `import "example.com/layers/internal/store/db"`, []string{"may not import internal/store/db"}},
		{"what tests share", "internal/daemon", "", `import "example.com/layers/test/buildtest"`, []string{"may not import test/buildtest"}},
		{"files that are handed out", "configs/policies", "", `import "example.com/layers/internal/base/text"`, []string{"may not import internal/base/text"}},
		{"the module's root", "internal/daemon", "", `import "example.com/layers"`, []string{"may not import"}},
		{"a module with the same beginning", "internal/ocip", "", `import "example.com/housekeeping"`, nil},
		{"dot import", "internal/ocip", "", `import . "strings"`, []string{"dot import"}},
		{"unknown folder", "internal/attic", "", ``, []string{"internal/attic: in no folder of the table"}},
		{"a new package of a known folder", "internal/store/inner", "", ``, nil},
		{"unknown folder of tests", "internal/attic", "x_test.go", `package attic`, []string{"in no folder of the table"}},
		{"unknown command", "cmd/other", "", ``, []string{"in no folder of the table"}},

		{"a follower to what decides", "internal/evidence/mirror", "", "import (\n\"example.com/layers/internal/ocip/policy\"\n\"example.com/layers/internal/store\"\n)", []string{"internal/evidence/mirror may not import internal/ocip/policy", "may not import internal/store"}},
		{"a follower to evidence that reads the database", "internal/evidence/export", "", `import "example.com/layers/internal/evidence/verify"`, []string{"may not import internal/evidence/verify"}},
		{"a follower to what it follows", "internal/evidence/index", "", "import (\n\"example.com/layers/internal/audit\"\n\"example.com/layers/internal/evidence/follow\"\n)", nil},
		{"other evidence to the database", "internal/evidence/verify", "", `import "example.com/layers/internal/store"`, nil},

		// Fences.
		{"OPA outside", "internal/kernel", "", `import "github.com/open-policy-agent/opa/v1/rego"`, []string{"may not import github.com/open-policy-agent/opa/v1/rego"}},
		{"OPA inside", "internal/ocip/policy", "", `import "github.com/open-policy-agent/opa/v1/rego"`, nil},
		{"SQL outside", "internal/audit", "", "import (\n\"database/sql\"\n_ \"modernc.org/sqlite\"\n\"zombiezen.com/go/sqlite/sqlitex\"\n)", []string{"database/sql", "modernc.org/sqlite", "sqlitex"}},
		{"SQL inside", "internal/store", "", `import "zombiezen.com/go/sqlite/sqlitex"`, nil},
		{"net outside", "internal/kernel", "", "import (\n\"net\"\n\"net/http\"\n)", []string{"may not import net:", "may not import net/http:"}},
		{"net inside", "internal/ipc", "", `import "net"`, nil},
		{"a path that only looks like net", "internal/kernel", "", `import "netting"`, nil},
		{"flags outside", "internal/daemon", "", "import (\n\"flag\"\n\"github.com/spf13/cobra\"\n\"os/signal\"\n)", []string{"flag", "cobra", "os/signal"}},
		{"flags inside", "cmd/ocipd", "", "import (\n\"github.com/spf13/cobra\"\n\"os/signal\"\n)", nil},
		{"log", "cmd/ocipd", "", `import "log"`, []string{"may not import log:"}},
		{"slog", "internal/kernel", "", `import "log/slog"`, nil},
		{"cgo", "internal/base/peer", "", `import "C"`, []string{"may not import C"}},
		{"exit outside", "internal/daemon", "", "import \"os\"\nfunc f() { os.Exit(1) }", []string{"may not use os.Exit"}},
		{"exit renamed", "internal/daemon", "", "import sys \"os\"\nfunc f() { defer sys.Exit(1) }", []string{"may not use os.Exit"}},
		{"exit as a value", "internal/daemon", "", "import \"os\"\nfunc f() { g(os.Exit) }", []string{"may not use os.Exit"}},
		{"exit inside", "cmd/ocipd", "", "import \"os\"\nfunc f() { os.Exit(1) }", nil},
		{"another Exit", "internal/daemon", "", "func f() { var os door; os.Exit(1) }\ntype door struct{}\nfunc (door) Exit(int) {}", nil},

		// Clock, ids, waiting.
		{"clock", "internal/kernel", "", "import \"time\"\nfunc f() { time.Now() }", []string{"may not use time.Now"}},
		{"clock as a value", "internal/store", "", "import \"time\"\nfunc f() { g(time.Now) }", []string{"may not use time.Now"}},
		{"clock by its reading", "internal/ipc", "", "import \"time\"\nfunc f(t time.Time) { g(time.Since(t)) }", []string{"may not use time.Since"}},
		{"clock in a literal", "internal/ocip", "", "import \"time\"\nvar x = []any{func() { time.Now() }}", []string{"may not use time.Now"}},
		{"clock inside", "internal/daemon", "", "import \"time\"\nfunc f() { time.Now() }", nil},
		{"fresh id", "internal/kernel", "", "import \"github.com/google/uuid\"\nfunc f() { uuid.NewString() }", []string{"may not use github.com/google/uuid.NewString"}},
		{"derived id", "internal/kernel", "", "import \"github.com/google/uuid\"\nfunc f() { uuid.NewSHA1(uuid.UUID{}, nil) }", nil},
		{"fresh id inside", "internal/api/client", "", "import \"github.com/google/uuid\"\nfunc f() { uuid.NewString() }", nil},
		{"sleep", "internal/daemon", "", "import \"time\"\nfunc f() { time.Sleep(1) }", []string{"time.Sleep"}},
		{"sleep in a test", "internal/daemon", "x_test.go", "package daemon_test\nimport \"time\"\nfunc f() { time.Sleep(1) }", []string{"x_test.go:3: time.Sleep"}},
		{"clock in a test", "internal/kernel", "x_test.go", "package kernel\nimport \"time\"\nfunc f() { time.Now() }", nil},

		// Package comments.
		{"no package comment", "internal/ocip", "", "package ocip", []string{"no package comment"}},
		{"package comment in other words", "internal/ocip", "", "// This is it.\npackage ocip", []string{`does not begin "Package ocip "`}},
		{"command comment", "cmd/ocipd", "", "// Command ocipd runs.\npackage main", nil},
		{"package comment on a command", "cmd/ocipd", "", "// Package main runs.\npackage main", []string{`does not begin "Command "`}},

		// Package-level variables and effects.
		{"init", "internal/ocip", "", "func init() {}", []string{"init functions"}},
		{"a method called init", "internal/ocip", "", "type t int\nfunc (t) init() {}", nil},
		{"constants in all but name", "internal/ocip", "", `import (
			"embed"
			"encoding/json"
			"errors"
			"fmt"
			"reflect"
			"regexp"
			"strings"
			"sync"
		)
		type level int
		var (
			_ fmt.Stringer = level(0)
			errA  = errors.New("a")
			errB  = fmt.Errorf("%w", errA)
			digit = regexp.MustCompile("[0-9]")
			fold  = strings.NewReplacer("a", "b")
			raw   = json.RawMessage("{}")
			bytes = []byte("x")
			top   = level(3) + 1
			table = map[string][]int{"a": {1}}
			point = &struct{ x int }{1}
			upper = strings.ToUpper
			count = len(table)
			kind  = reflect.TypeFor[level]()
			once  = sync.OnceValue(func() int { return 1 })
			zero  [32]byte
		)
		//go:embed *.rego
		var files embed.FS
		var (
			//go:embed a.txt
			text string
		)
		func f() []int { return table["a"] }
		func (level) String() string { return "" }`, nil},
		{"no value", "internal/ocip", "", `var cache map[string]int`, []string{"var cache has no value"}},
		{"linker's string", "cmd/ocipd", "", `var version string`, nil},
		{"linker's string elsewhere", "internal/daemon", "", `var version string`, []string{"var version has no value"}},
		{"made", "internal/ocip", "", `var cache = make(map[string]int)`, []string{"var cache is initialised by a call"}},
		{"second of two", "internal/ocip", "", `var a, b = 1, compute()`, []string{"var b is initialised by a call"}},
		{"lock", "internal/ocip", "", "import \"sync\"\nvar mu sync.Mutex", []string{"var mu has no value"}},
		{"lock with a value", "internal/ocip", "", "import \"sync\"\nvar mu = sync.Mutex{}", []string{"var mu holds a sync.Mutex"}},
		{"lock inside a struct", "internal/ocip", "", "import \"sync\"\nvar s = struct{ mu sync.RWMutex; n int }{}", []string{"var s holds a sync.RWMutex"}},
		{"atomic", "internal/ocip", "", "import \"sync/atomic\"\nvar n = new(atomic.Int64)", []string{"var n holds a sync/atomic.Int64"}},
		{"channel", "internal/ocip", "", `var c = make(chan int)`, []string{"var c holds a channel"}},
		{"assigned", "internal/ocip", "", "var x = 1\nfunc f() { x = 2 }", []string{"x.go:4: package-level var x is assigned"}},
		{"added to", "internal/ocip", "", "var x = 1\nfunc f() { x += 2 }", []string{"var x is assigned"}},
		{"counted", "internal/ocip", "", "var x = 1\nfunc f() { x++ }", []string{"var x is assigned"}},
		{"by index", "internal/ocip", "", "var m = map[int]int{}\nfunc f() { m[1] = 2 }", []string{"var m is assigned"}},
		{"by field", "internal/ocip", "", "var s = struct{ a []struct{ b int } }{}\nfunc f() { (s.a[0]).b-- }", []string{"var s is assigned"}},
		{"through a pointer", "internal/ocip", "", "var p = &struct{ a int }{}\nfunc f() { (*p).a = 1 }", []string{"var p is assigned"}},
		{"by range", "internal/ocip", "", "var x = 1\nfunc f(l []int) { for _, x = range l {} }", []string{"var x is assigned"}},
		{"by its address", "internal/ocip", "", "var x = 1\nfunc f() { g(&x) }\nfunc g(*int) {}", []string{"var x is pointed to"}},
		{"by delete", "internal/ocip", "", "var m = map[int]int{}\nfunc f() { delete(m, 1) }", []string{"var m is changed by delete"}},
		{"by sorting", "internal/ocip", "", "import \"slices\"\nvar l = []int{2, 1}\nfunc f() { slices.Sort(l) }", []string{"var l is changed by slices.Sort"}},
		{"in a literal", "internal/ocip", "", "var x = 1\nvar f = func() { x = 2 }", []string{"var x is assigned"}},
		{"after a call nobody knows", "internal/ocip", "", "import \"os\"\nvar x = 1\nfunc f() { for range os.Things() { switch os.Thing() { case 1: x = os.Thing() } } }", []string{"var x is assigned"}},
		{"another package's", "internal/ocip", "", "import \"os\"\nfunc f() { os.Args = nil }", []string{"another package's var os.Args is assigned"}},
		{"a library's knob, in the command", "cmd/ocipd", "", "import \"github.com/spf13/cobra\"\nfunc f() { cobra.EnableCommandSorting = false }", nil},
		{"a local of the same name", "internal/ocip", "", "var x = 1\nfunc f() { x := x; x = 2; x++; var m map[int]int; m[x] = 1 }", nil},
		{"a parameter of the same name", "internal/ocip", "", "var x = 1\nfunc f(x int) { x = 2 }", nil},
		{"a field of the same name", "internal/ocip", "", "var x = 1\ntype t struct{ x int }\nfunc (v *t) f() { v.x = 2 }", nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			src := tt.src
			if !strings.Contains(src, "package ") {
				src = preamble(tt.dir) + src
			}
			file := tt.file
			if file == "" {
				file = "x.go"
			}
			u := unit{module: testModule, dir: tt.dir, fset: token.NewFileSet()}
			if err := u.add(file, []byte(src)); err != nil {
				t.Fatal(err)
			}
			expect(t, check(u), tt.want)
		})
	}
}

// TestCheckAcrossFiles changes in one file what another declares.
func TestCheckAcrossFiles(t *testing.T) {
	u := unit{module: testModule, dir: "internal/ocip", fset: token.NewFileSet()}
	for _, file := range []struct{ name, src string }{
		{"a.go", preamble("internal/ocip") + "var table = []int{1}"},
		{"b.go", "package ocip\nfunc f() { table[0] = 2 }"},
		{"c_linux.go", "package ocip\nfunc g() { table[0] = 3 }"},
		{"c_other.go", "//go:build !linux\n\npackage ocip\nfunc g() { table[0] = 4 }"},
		{"d.go", "package other"},
	} {
		if err := u.add(file.name, []byte(file.src)); err != nil {
			t.Fatal(err)
		}
	}
	expect(t, check(u), []string{
		"b.go:2: package-level var table is assigned",
		"c_linux.go:2: package-level var table is assigned",
		"c_other.go:4: package-level var table is assigned",
		"d.go:1: package other shares its folder with package ocip",
	})
}

// preamble is a good beginning of a file in dir, two lines long.
func preamble(dir string) string {
	if dir == "bench" || strings.HasPrefix(dir, "cmd/") {
		return "// Command x is a test.\npackage main\n"
	}
	name := path.Base(dir)
	return "// Package " + name + " is a test.\npackage " + name + "\n"
}

// expect compares faults with the parts wanted of each.
func expect(t *testing.T, faults, want []string) {
	t.Helper()
	if len(faults) != len(want) {
		t.Fatalf("got %d faults, want %d:\n%s", len(faults), len(want), strings.Join(faults, "\n"))
	}
	for i, part := range want {
		if !strings.Contains(faults[i], part) {
			t.Errorf("fault %q does not mention %q", faults[i], part)
		}
	}
}
