package archtest

import (
	"go/ast"
	"slices"
	"strings"
	"testing"
)

// exits lists who may make what a message needs to leave, and who may hand it over. A name
// with a point is a function or a type of a package, one without is a method.
var exits = map[string][]string{
	"gate.Committed": {"internal/store"},
	"gate.ReadBack":  {"internal/store"},
	"gate.Open":      {"internal/kernel/hooks", "internal/kernel", "internal/kernel/outbox"},
	"gate.NewMemory": {"internal/kernel/outbox"},
	"gate.Question":  {"internal/kernel/registry"},
	"gate.Notice":    {"internal/kernel/registry"},
	"gate.Fact":      {"internal/kernel"},
	"gate.Own":       {"internal/kernel/hooks"},
	"gate.Show":      {"internal/kernel/inbox"},
	"Carry":          {"internal/kernel"},
	"api.Line":       {"internal/kernel/outbox", "internal/kernel/registry"},
	"api.Link":       {"internal/daemon", "internal/ipc", "internal/kernel", "internal/kernel/registry"},
	"gate.NewText":   {"internal/api", "internal/kernel/hooks", "internal/kernel"},
	"api.Said":       {"bench/fault", "internal/cli/sendcmd", "internal/bridge/a2aproxy", "internal/bridge/mcpproxy", "internal/bridge/toolgate"},
	"Inspect":        {"bench/fault", "internal/api", "internal/cli/demo", "internal/kernel/inbox", "internal/kernel", "internal/bridge/a2aproxy", "internal/bridge/mcpproxy", "internal/kernel/outbox", "internal/approval/releases"},
	"CloseEvent":     {"internal/kernel", "internal/kernel/outbox"},
	"CloseText":      {"internal/kernel/hooks", "internal/kernel"},
	"ReadyReleases":  {"internal/approval", "internal/approval/releases"},
	"OpenReleases":   {"internal/approval/releases"},
	"DecisionsOf":    {"internal/approval", "internal/kernel", "internal/kernel/outbox"},
	"WrittenAs":      {"internal/store", "internal/kernel", "internal/kernel/exchanges", "internal/approval/releases"},
	// A decision by the absence of a record reads the log, and not the search index.
	"store.EachWritten": {"internal/daemon"},
	// Who decides by a record reads it from the store, which holds it against its seal.
	"audit.Parse": {
		"bench/fault", "cmd/ocipd", "internal/cli/auditcmd", "internal/cli/configcmd", "internal/cli/contactcmd", "internal/cli/exchangecmd", "internal/evidence/casefile", "internal/evidence/configlog", "internal/cli/demo", "internal/evidence/digestkeys", "internal/cli/doctor", "internal/evidence/export", "internal/evidence/index", "internal/bridge/integrate",
		"internal/evidence/logreader", "internal/cli/logview", "internal/evidence/mirror", "internal/store/rowseal", "internal/cli/taskcmd", "internal/task/taskservice", "internal/evidence/verify",
	},
}

// TestExits holds the module against the list: nobody else calls an exit, and everybody on
// the list does.
func TestExits(t *testing.T) {
	unused := map[string][]string{}
	for name, folders := range exits {
		unused[name] = slices.Clone(folders)
	}
	for _, u := range load(t) {
		if u.dir == "internal/audit/gate" {
			continue
		}
		for _, f := range u.files {
			for _, used := range selected(f) {
				folders, listed := exits[used.name]
				if !listed {
					continue
				}
				if !slices.Contains(folders, u.dir) {
					t.Errorf("%s: %s may not use %s, which %v may", u.fset.Position(used.at.Pos()), u.dir, used.name, folders)
				}
				unused[used.name] = slices.DeleteFunc(unused[used.name], func(dir string) bool { return dir == u.dir })
			}
		}
	}
	for name, folders := range unused {
		for _, dir := range folders {
			t.Errorf("%s may use %s and does not: take it off the list", dir, name)
		}
	}
}

type selection struct {
	name string
	at   ast.Node
}

// selected are the names that a file selects: those of packages of this module with the
// package's name, the others, which are methods and fields, without.
func selected(f *ast.File) (found []selection) {
	packages := map[string]bool{}
	for _, i := range f.Imports {
		at := strings.Trim(i.Path.Value, `"`)
		packages[at[strings.LastIndexByte(at, '/')+1:]] = true
	}
	ast.Inspect(f, func(n ast.Node) bool {
		s, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		name := s.Sel.Name
		if x, ok := s.X.(*ast.Ident); ok && x.Obj == nil && packages[x.Name] {
			name = x.Name + "." + name
		}
		found = append(found, selection{name, s})
		return true
	})
	return found
}
