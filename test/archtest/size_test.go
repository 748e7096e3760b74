package archtest

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// ring is a part of the code by what depends on it.
type ring struct {
	name string
	// rests says what fails if the code of the ring is wrong.
	rests string
	// files are patterns of the module's files, or directories whose own files are meant.
	files []string
	// most bounds the lines of the ring, 0 for no bound.
	most int
}

// rings is the list of the trusted base. A file counts in the first ring that names it.
var rings = []ring{
	{
		name: "exit", rests: "no bytes reach another principal without a decision on disk", most: 10000,
		files: []string{
			"internal/audit/gate",
			"internal/store/change.go", "internal/store/commit.go", "internal/store/decided.go", "internal/store/fold.go", "internal/store/log.go", "internal/store/outbox.go", "internal/store/part.go",
			"internal/store/reader.go", "internal/store/releases.go", "internal/store/rows.go", "internal/store/store.go", "internal/store/writer.go",
			"internal/store/db", "internal/store/walfile",
			"internal/store/logstore/log.go", "internal/store/logstore/recent.go", "internal/store/logstore/records.go", "internal/store/logstore/tree.go", "internal/store/logstore/writer.go",
			"internal/audit/canonical.go", "internal/audit/chain.go", "internal/audit/delivered.go", "internal/audit/digests.go", "internal/audit/encode.go", "internal/audit/members.go", "internal/audit/record.go",
			"internal/ipc/conn.go", "internal/ipc/outqueue.go", "internal/ipc/stream.go",
			"internal/api/wire/frame.go", "internal/api/wire/message.go", "internal/api/wire/usual.go",
			"internal/base/jsonline",
		},
	},
	{
		name: "subject", rests: "the decision is about the sender, the receiver, the bytes and the files of the message; the exit checks it again by digest",
		files: []string{
			"internal/kernel", "internal/kernel/*", "internal/approval", "internal/approval/*", "internal/ocip", "internal/ocip/directory", "internal/ocip/directory/entries", "internal/ocip/media", "internal/audit", "internal/audit/fold", "internal/api", "internal/api/members",
			"internal/api/wire", "internal/ipc", "internal/store", "internal/store/*", "internal/base/peer", "internal/base/text", "internal/base/keylock",
		},
	},
	{
		name: "judgement", rests: "the detectors and the policy find what the operator wants held or refused",
		files: []string{"internal/ocip/commitment", "internal/ocip/content", "internal/ocip/policy"},
	},
	{name: "rest", rests: "everything else: tasks, followers of the log, configuration, bridges, commands", files: []string{"internal/*", "internal/*/*", "internal/bridge/console/*", "internal/daemon/notices/*", "cmd/ocipd"}},
}

// TestTrustedBase counts the lines of each ring (`make size` prints them), and holds the first
// one to its bound. Blank lines and comments count.
func TestTrustedBase(t *testing.T) {
	root, _ := moduleRoot(t)
	counted := map[string]bool{}
	var table strings.Builder
	for _, r := range rings {
		lines, files := 0, 0
		for _, pattern := range r.files {
			found, err := filepath.Glob(filepath.Join(root, filepath.FromSlash(pattern)))
			if err != nil || len(found) == 0 {
				t.Errorf("ring %s names %s, which is nothing: %v", r.name, pattern, err)
			}
			for _, name := range goFiles(t, found) {
				if counted[name] {
					continue
				}
				counted[name] = true
				text, err := os.ReadFile(name)
				if err != nil {
					t.Fatal(err)
				}
				lines += bytes.Count(text, []byte("\n"))
				files++
			}
		}
		if r.most > 0 && lines > r.most {
			t.Errorf("the ring %q has %d lines, want at most %d", r.name, lines, r.most)
		}
		fmt.Fprintf(&table, "\n| %-10s %7d lines %5d files  %s", r.name, lines, files, r.rests)
	}
	t.Log(table.String())
	for _, u := range load(t) {
		for _, f := range u.files {
			name := filepath.Join(root, filepath.FromSlash(u.fset.Position(f.Package).Filename))
			if (strings.HasPrefix(u.dir, "internal/") || u.dir == "cmd/ocipd") && !counted[name] {
				t.Errorf("%s is in no ring", u.fset.Position(f.Package).Filename)
			}
		}
	}
}

// goFiles are the Go files among names and directly in the directories among them, without tests.
func goFiles(t *testing.T, names []string) (files []string) {
	t.Helper()
	for _, name := range names {
		below, err := filepath.Glob(filepath.Join(name, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(name, ".go") {
			below = []string{name}
		}
		files = append(files, below...)
	}
	return slices.DeleteFunc(files, func(name string) bool { return strings.HasSuffix(name, "_test.go") })
}
