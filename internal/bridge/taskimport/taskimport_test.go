package taskimport

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"
	"time"

	"github.com/openclawos/ocipd/internal/task"
)

// project is a project of files.
func project(files map[string]string) fstest.MapFS {
	m := make(fstest.MapFS)
	for name, text := range files {
		m[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return m
}

func said(notes []Note) (list []string) {
	for _, n := range notes {
		list = append(list, n.String())
	}
	return list
}

func TestRead(t *testing.T) {
	p := Read(project(map[string]string{
		Blackboard: `{
  "agents": {"builder": {"status": "busy", "sessionKey": "s", "task": "bd-2", "artifact": "./out/report.md"}, "critic": {"task": "bd-3", "artifact": "gone.md"},
    "idle": {"artifact": "x"}},
  "tasks": {
    "bd-2": {"retry_count": 2, "last_error": "the tests fail", "circuit_status": "open"},
    "bd-1": {"circuit_status": "half_open"},
    "only": {"retry_count": null, "last_error": null, "circuit_status": "closed", "owner": "me"}
  },
  "signals": ["go"], "version": 1
}`,
		Issues: `{"id":"bd-1","title":"Set up CI","status":"closed","priority":1,"created_at":"2025-01-01T00:00:00Z","design":""}
{"id":"bd-2","title":"Export","description":"A month of invoices as CSV.","acceptance_criteria":"- [ ] ` + "`make test`" + ` exits with 0\n* it works\n","status":"in_progress","priority":0,"labels":["b","a","a"],"dependencies":[{"issue_id":"bd-2","depends_on_id":"bd-3","type":"blocks"},{"depends_on_id":"bd-9","type":"blocks"},{"depends_on_id":"bd-1","type":"parent-child"}]}

{"id":"bd-3","title":"","status":"open","priority":9,"dependencies":[{"depends_on_id":"bd-2","type":"blocks"},{"depends_on_id":"nowhere","type":"blocks"},{"depends_on_id":"bd-3","type":"blocks"}]}
{"id":"bd-9","title":"Gone","status":"tombstone"}
`,
		"specs/bd-3.md":    "---\ntitle: other\n---\n# Docs\n## Goal\nPeople find it.\n## Risks\nnone\n",
		"specs/bd-9.md":    "# Gone",
		"specs/extra.md":   "# Only a spec",
		"specs/notes.txt":  "x",
		"out/report.md":    "hi",
		"CLAUDE.md":        "Be kind.\nRun bd ready, then\nwrite shared/blackboard.json\n",
		"agents/a/b.md":    "the sessionKey is yours",
		"docs/history.md":  "sessionKey",
		"agents/quiet.md":  "nothing",
		".claude/x/y/z.md": "bd close",
	}))
	if len(p.Faults) > 0 {
		t.Fatalf("faults %q", said(p.Faults))
	}
	var got []string
	for _, one := range p.Tasks {
		got = append(got, fmt.Sprintf("%s %q %s %d %v %v %d %q", one.Origin(), one.Title, one.Phase, one.Priority, one.DependsOn, one.Artifacts, one.Retries, one.LastError))
	}
	want := []string{
		`v1:bd-1 "Set up CI" completed 1 [] [] 0 ""`,
		`v1:bd-3 "Docs" spec_draft 2 [] [] 0 ""`,
		`v1:bd-2 "Export" circuit_open 0 [bd-3] [out/report.md] 2 "the tests fail"`,
		`v1:only "only" spec_draft 2 [] [] 0 ""`,
		`v1:extra "Only a spec" spec_draft 2 [] [] 0 ""`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	export := p.Tasks[2]
	if export.Fields.Goal != "A month of invoices as CSV." || !slices.Equal(export.Fields.AcceptanceCriteria, []string{"`make test` exits with 0", "it works"}) || !slices.Equal(export.Labels, []string{"a", "b"}) {
		t.Errorf("%+v", export)
	}
	if i := slices.IndexFunc(export.Missing, func(m task.Missing) bool { return m.Problem == task.ProblemWeak && m.Entry == 2 }); i < 0 {
		t.Errorf("missing %v", export.Missing)
	}
	if docs := p.Tasks[1].Fields; docs.Goal != "People find it." || docs.Risks == nil || len(docs.Risks) > 0 {
		t.Errorf("%+v", docs)
	}
	wantDropped := []string{
		".beads/issues.jsonl:1: bd-1: created_at",
		`.beads/issues.jsonl:2: bd-2: "parent-child" of bd-1, which keeps nothing from beginning`,
		".beads/issues.jsonl:4: bd-3: priority 9, which is not between 0 and 4; it is 2 now",
		".beads/issues.jsonl:4: bd-3: it waits for itself",
		".beads/issues.jsonl:5: bd-9: it was deleted",
		"shared/blackboard.json:2: agents.builder.status: who does what is a task's attempts and grants",
		"shared/blackboard.json:2: agents.builder.sessionKey: who does what is a task's attempts and grants",
		"shared/blackboard.json:3: agents.idle.artifact: no task is named beside it",
		"shared/blackboard.json:7: tasks.only.owner",
		"shared/blackboard.json:9: signals: nobody waits for them any more",
		`shared/blackboard.json:9: "version"`,
		"specs/bd-3.md:1: the front matter: title, labels and priority are those of the issue",
		"specs/bd-9.md: its task was deleted",
		"specs/notes.txt: it is no spec: one is named ID.md",
		`.beads/issues.jsonl:4: bd-3: the artifact "gone.md", which is no file of the project`,
		".beads/issues.jsonl:2: bd-2 waits for bd-9, which was deleted",
		".beads/issues.jsonl:4: bd-3 waits for bd-2, which waits for it: a circle is cut here",
		`.beads/issues.jsonl:4: bd-3 waits for "nowhere", which is not there`,
	}
	dropped := said(p.Dropped)
	slices.Sort(dropped)
	slices.Sort(wantDropped)
	if !slices.Equal(dropped, wantDropped) {
		t.Errorf("dropped\n%s\nwant\n%s", strings.Join(dropped, "\n"), strings.Join(wantDropped, "\n"))
	}
	if got, want := said(p.Guidance), []string{
		`.claude/x/y/z.md:1: it speaks of "bd close"`, `CLAUDE.md:2: it speaks of "bd ready", and in 1 more places`, `agents/a/b.md:1: it speaks of "sessionKey"`,
	}; !slices.Equal(got, want) {
		t.Errorf("guidance %q, want %q", got, want)
	}
}

// Anything that would lose or change a task is a fault with file and line.
func TestReadFaults(t *testing.T) {
	chain := func(n int) string {
		var b strings.Builder
		b.WriteString(`{"id":"a","dependencies":[`)
		for i := range n {
			fmt.Fprintf(&b, `%s{"depends_on_id":"t%d","type":"blocks"}`, map[bool]string{true: ","}[i > 0], i)
		}
		b.WriteString("]}\n")
		for i := range n {
			fmt.Fprintf(&b, "{\"id\":\"t%d\"}\n", i)
		}
		return b.String()
	}
	for _, test := range []struct{ name, file, text, want string }{
		{"twice", Issues, "{\"id\":\"a\"}\n{\"id\":\"a\"}\n", ".beads/issues.jsonl:2: the id a stands here again, as on line 1"},
		{"deleted and there", Issues, "{\"id\":\"a\",\"status\":\"tombstone\"}\n{\"id\":\"a\"}\n", ".beads/issues.jsonl:2: the id a stands here again"},
		{"no id", Issues, "{}\n", ".beads/issues.jsonl:1: the issue has no id"},
		{"id's type", Issues, "{\"id\":[]}\n", ".beads/issues.jsonl:1: id: want a text, it is a list"},
		{"a path as id", Issues, "{\"id\":\"../x\"}\n", ".beads/issues.jsonl:1: \"../x\" is no id of a task: letters, digits, dots, lines and _ make one, up to 120"},
		{"no object", Issues, "\n7\n", ".beads/issues.jsonl:2: want an object, it is a number"},
		{"cut", Issues, "{\"id\":\"a\"}\n{\"id\":", ".beads/issues.jsonl:2: it is no JSON: unexpected EOF"},
		{"member twice", Issues, "{\"id\":\"a\",\"id\":\"b\"}\n", ".beads/issues.jsonl:1: it is no JSON: duplicate object member name"},
		{"two objects", Issues, "{\"id\":\"a\"}{\"id\":\"b\"}\n", ".beads/issues.jsonl:1: something follows the object"},
		{"what is no JSON behind it", Issues, "{\"id\":\"a\"} xyz\n", ".beads/issues.jsonl:1: something follows the object"},
		{"half an object behind it", Blackboard, "{}\n{\"tasks\":", "shared/blackboard.json:2: something follows the object"},
		{"not UTF-8", Issues, "{\"id\":\"a\xff\"}\n", ".beads/issues.jsonl:1: it is no JSON: invalid UTF-8"},
		{"priority", Issues, "{\"id\":\"a\",\"priority\":1.5}\n", ".beads/issues.jsonl:1: priority: want a whole number, it is a number"},
		{"labels", Issues, "{\"id\":\"a\",\"labels\":[1]}\n", ".beads/issues.jsonl:1: labels: want a list of texts"},
		{"dependencies", Issues, "{\"id\":\"a\",\"dependencies\":{}}\n", ".beads/issues.jsonl:1: dependencies: want a list of {depends_on_id, type}"},
		{"too many dependencies", Issues, chain(task.MaxDependencies + 1), ".beads/issues.jsonl:1: a waits for more than 64 tasks"},
		{"nested", Issues, "{\"id\":\"a\",\"x\":" + strings.Repeat("[", 20000) + strings.Repeat("]", 20000) + "}\n", ".beads/issues.jsonl:1: it is no JSON: exceeded max depth"},
		{"long line", Issues, "{\"id\":\"a\",\"description\":\"" + strings.Repeat("x", maxLine) + "\"}\n", ".beads/issues.jsonl:1: the line is longer than 4194304 bytes"},
		{"long description", Issues, "{\"id\":\"a\",\"description\":\"" + strings.Repeat("x", task.MaxSpecBytes+1) + "\"}\n", ".beads/issues.jsonl:1: a: the spec is larger than 131072 bytes, with what the issue says"},
		{"blackboard", Blackboard, "[\n]", "shared/blackboard.json:1: want an object, it is a list"},
		{"blackboard cut", Blackboard, "{\n\n\"tasks\": {", "shared/blackboard.json:3: it is no JSON: unexpected EOF"},
		{"tasks", Blackboard, "{\n\"tasks\": []}", "shared/blackboard.json:2: want an object, it is a list"},
		{"a task", Blackboard, "{\"tasks\": {\n\"a\": 7}}", "shared/blackboard.json:2: want an object, it is a number"},
		{"retry_count", Blackboard, "{\"tasks\": {\n\"a\": {\n\"retry_count\": \"two\"}}}", "shared/blackboard.json:3: retry_count: want a whole number, it is a text"},
		{"less than none", Blackboard, "{\"tasks\": {\"a\": {\"retry_count\": -1}}}", "shared/blackboard.json:1: retry_count: -1 is less than none"},
		{"artifact", Blackboard, "{\"agents\": {\"b\": {\"task\": \"a\", \"artifact\": 7}}}", "shared/blackboard.json:1: artifact: want a text, it is a number"},
		{"empty", Blackboard, "", "shared/blackboard.json:1: it is no JSON: "},
		{"spec", "specs/a.md", "---\ntitle: x\n", "specs/a.md: the front matter does not end: a line of --- closes it"},
		{"large spec", "specs/a.md", strings.Repeat("x", task.MaxSpecBytes+1), "specs/a.md: it is larger than 131072 bytes"},
		{"name of a spec", "specs/a b.md", "x", "specs/a b.md:1: \"a b\" is no id of a task: letters, digits, dots, lines and _ make one, up to 120"},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := Read(project(map[string]string{test.file: test.text}))
			if got := said(p.Faults); len(got) != 1 || !strings.HasPrefix(got[0], test.want) {
				t.Errorf("%.300q, want %q", got, test.want)
			}
		})
	}
}

// A file that the daemon would not hash, because it follows no links, is left out
// beforehand, so that the import does not fail halfway.
func TestArtifactsByLinks(t *testing.T) {
	dir := t.TempDir()
	for _, step := range []error{
		os.MkdirAll(filepath.Join(dir, "shared"), 0o700), os.MkdirAll(filepath.Join(dir, "out"), 0o700), os.WriteFile(filepath.Join(dir, "out", "a.md"), []byte("x"), 0o600),
		os.Symlink("out", filepath.Join(dir, "latest")), os.Symlink("a.md", filepath.Join(dir, "out", "b.md")),
		os.WriteFile(filepath.Join(dir, Blackboard), []byte(`{"agents": {"a": {"task": "t", "artifact": "out/a.md"}, "b": {"task": "t", "artifact": "out/b.md"}, "c": {"task": "t", "artifact": "latest/a.md"}}}`), 0o600),
	} {
		if step != nil {
			t.Fatal(step)
		}
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	p := Read(root.FS())
	if len(p.Tasks) != 1 || !slices.Equal(p.Tasks[0].Artifacts, []string{"out/a.md"}) || len(p.Dropped) != 2 {
		t.Errorf("%+v, dropped %q, faults %q", p.Tasks, said(p.Dropped), said(p.Faults))
	}
}

// A project without these files has no tasks, and no faults.
func TestReadNothing(t *testing.T) {
	if p := Read(project(map[string]string{"README.md": "x"})); len(p.Tasks)+len(p.Faults)+len(p.Dropped)+len(p.Guidance) > 0 {
		t.Errorf("%+v", p)
	}
}

// A long chain is put in order, and a cycle is cut once.
func TestReadChain(t *testing.T) {
	const n = 20000
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "{\"id\":\"t%d\",\"dependencies\":[{\"depends_on_id\":\"t%d\",\"type\":\"blocks\"}]}\n", i, (i+1)%n)
	}
	p := Read(project(map[string]string{Issues: b.String()}))
	if len(p.Tasks) != n || len(p.Dropped) != 1 || p.Tasks[0].ID != fmt.Sprintf("t%d", n-1) || len(p.Tasks[0].DependsOn) != 0 || p.Tasks[n-1].ID != "t0" {
		t.Errorf("%d tasks, first %+v, dropped %q", len(p.Tasks), p.Tasks[0], said(p.Dropped))
	}
}

// Links out of the project and special files are not read, and reading never blocks on them.
func TestReadHostileFiles(t *testing.T) {
	dir := t.TempDir()
	secret := filepath.Join(t.TempDir(), "secret")
	for _, step := range []error{
		os.WriteFile(secret, []byte(`{"tasks": {"stolen": {}}}`), 0o600), os.MkdirAll(filepath.Join(dir, "shared"), 0o700), os.MkdirAll(filepath.Join(dir, ".beads"), 0o700),
		os.MkdirAll(filepath.Join(dir, "specs", "folder.md"), 0o700), os.Symlink(secret, filepath.Join(dir, Blackboard)), syscall.Mkfifo(filepath.Join(dir, Issues), 0o600),
		os.Symlink(secret, filepath.Join(dir, "CLAUDE.md")), os.Symlink("/", filepath.Join(dir, "agents")),
	} {
		if step != nil {
			t.Fatal(step)
		}
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	read := make(chan *Project, 1)
	go func() { read <- Read(root.FS()) }()
	select {
	case p := <-read:
		if len(p.Tasks) > 0 || len(p.Faults) != 3 || len(p.Guidance) > 0 {
			t.Errorf("tasks %v, faults %q, guidance %q", p.Tasks, said(p.Faults), said(p.Guidance))
		}
	case <-time.After(time.Minute):
		t.Fatal("it waits")
	}
}

func FuzzRead(f *testing.F) {
	f.Add(`{"agents":{"b":{"task":"a","artifact":"x"}},"tasks":{"a":{"retry_count":1,"circuit_status":"open"}},"signals":[]}`,
		`{"id":"a","status":"open","priority":3,"labels":["x"],"dependencies":[{"depends_on_id":"b","type":"blocks"}]}`+"\n"+`{"id":"b","dependencies":[{"depends_on_id":"a","type":"blocks"}]}`, "# x\n## Goal\ny\n")
	f.Add("{", "[]\n{}", "---\n")
	f.Fuzz(func(t *testing.T, board, issues, spec string) {
		p := Read(project(map[string]string{Blackboard: board, Issues: issues, "specs/a.md": spec, "AGENTS.md": spec}))
		before := make(map[string]bool)
		for _, one := range p.Tasks {
			if before[one.ID] || !goodID(one.ID) || one.Title == "" || len(one.Title) > task.MaxTitle || one.Priority < 0 || one.Priority > task.MaxPriority {
				t.Errorf("%+v", one)
			}
			for _, on := range one.DependsOn {
				if !before[on] {
					t.Errorf("%s comes before %s", one.ID, on)
				}
			}
			before[one.ID] = true
		}
	})
}
