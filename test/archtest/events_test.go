package archtest

import (
	"go/ast"
	"go/token"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/openclawos/ocipd/internal/audit"
)

// named are the names that a package's code gives to events of records: texts that become the
// member Event of something, that are called event, or that are handed over as a parameter of
// that name.
func named(u *unit) map[string]token.Pos {
	found := map[string]token.Pos{}
	isEvent := func(name string) bool {
		return name == "Event" || strings.HasPrefix(strings.ToLower(name), "event") || u.dir == "internal/task" && name == "kind"
	}
	add := func(e ast.Expr) {
		if lit, ok := e.(*ast.BasicLit); ok && lit.Kind == token.STRING {
			if text, err := strconv.Unquote(lit.Value); err == nil {
				found[text] = lit.Pos()
			}
		}
	}
	places := map[string]int{}
	for _, f := range u.files {
		for _, d := range f.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}
			at := 0
			for _, p := range fn.Type.Params.List {
				for _, name := range p.Names {
					if name.Name == "event" || u.dir == "internal/task" && name.Name == "kind" && fn.Name.Name != "touch" {
						places[fn.Name.Name] = at
					}
					at++
				}
			}
		}
	}
	for _, f := range u.files {
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.KeyValueExpr:
				if key, ok := n.Key.(*ast.Ident); ok && key.Name == "Event" {
					add(n.Value)
				}
			case *ast.ValueSpec:
				for i, name := range n.Names {
					if isEvent(name.Name) && i < len(n.Values) {
						add(n.Values[i])
					}
				}
			case *ast.AssignStmt:
				for i, left := range n.Lhs {
					name := ""
					switch left := left.(type) {
					case *ast.Ident:
						name = left.Name
					case *ast.SelectorExpr:
						name = left.Sel.Name
					}
					if isEvent(name) && len(n.Lhs) == len(n.Rhs) {
						add(n.Rhs[i])
					}
				}
			case *ast.CallExpr:
				name := ""
				switch fn := n.Fun.(type) {
				case *ast.Ident:
					name = fn.Name
				case *ast.SelectorExpr:
					name = fn.Sel.Name
				}
				if at, ok := places[name]; ok && at < len(n.Args) {
					add(n.Args[at])
				}
			}
			return true
		})
	}
	return found
}

// noRecords are folders whose events are those of the protocol, or of other programs.
var noRecords = []string{"internal/bridge/acp", "internal/api/client", "internal/cli/demo", "internal/cli/fleetcmd", "internal/evidence/export", "internal/bridge/integrate", "internal/ipc", "internal/task/taskapi", "internal/api/wire", "internal/bridge/mcpserver", "internal/bridge/runner", "cmd/ocipd"}

// TestEvents holds the table of events against the code. An event that code makes of other words
// is found by the tests of the daemon, whose logs are held against the table too.
func TestEvents(t *testing.T) {
	known, used := map[string]bool{}, map[string]bool{}
	for _, events := range audit.Events() {
		for _, event := range events {
			known[event] = true
		}
	}
	for _, u := range load(t) {
		if !strings.HasPrefix(u.dir, "internal/") || slices.Contains(noRecords, u.dir) || u.dir == "internal/api" {
			continue
		}
		for event, at := range named(&u) {
			if used[event] = true; !known[event] && event != "" {
				t.Errorf("%s: the event %q is not in the table of internal/audit", u.fset.Position(at), event)
			}
		}
	}
	if len(used) < 60 {
		t.Errorf("%d events were found in the code", len(used))
	}
}
