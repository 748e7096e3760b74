package taskcmd

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/openclawos/ocipd/internal/api/members"
	"github.com/openclawos/ocipd/internal/cli"
	"github.com/openclawos/ocipd/internal/task"
	"go.yaml.in/yaml/v3"
)

// readText reads a text as a spec file, and returns the messages.
func readText(t testing.TB, text string) (said string, title string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "x.md")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var stderr bytes.Buffer
	c := &command{Process: &cli.Process{Stderr: &stderr}}
	p, err := c.readTask(context.Background(), file)
	if err != nil && !errors.Is(err, cli.ErrSaid) {
		stderr.WriteString(err.Error() + "\n")
	}
	if p != nil {
		title = p.Title
	}
	return strings.ReplaceAll(stderr.String(), file, "x.md"), title
}

func TestSpecFileFaults(t *testing.T) {
	const body = "---\n## Goal\nx\n"
	for _, test := range []struct{ name, text, want string }{
		{"unknown member", "---\ntitle: x\nworkspace: b\npriorty: 1\n" + body, "x.md:4:1: there is no member \"priorty\": did you mean \"priority\"?\n"},
		{"two types", "---\ntitle: x\nworkspace: b\npriority: high\nlabels: billing\n" + body, "x.md:4:11: priority: want a number\nx.md:5:9: labels: want a list, such as [a, b]\n"},
		{"text", "---\ntitle: [x]\nworkspace: b\n" + body, "x.md:2:8: title: want a text\n"},
		{"values", "---\ntitle: x\nworkspace: b\ninitial_phase: done\npriority: 9\ndepends_on: [tsk_1]\n" + body,
			"x.md:4:16: initial_phase: \"done\" is not one of spec_draft, spec_review\nx.md:5:11: priority: 9 is not between 0 and 4\nx.md:6:14: depends_on[0]: want tsk_ and a UUID\n"},
		{"twice", "---\ntitle: x\ntitle: y\nworkspace: b\n" + body, "x.md:3:1: title stands on line 2 already\n"},
		{"YAML", "---\ntitle: x: y\nworkspace: b\n" + body, "cannot read x.md: line 2: mapping values are not allowed in this context\n"},
		{"list", "---\n- a\n" + body, "cannot read x.md: line 2: the front matter has to name members, such as title: …\n"},
		{"no end", "---\ntitle: x\n", "cannot read x.md: the front matter does not end: a line of --- closes it\n"},
		{"two parts", "---\ntitle: x\n...\nworkspace: b\n" + body, "cannot read x.md: line 2: the front matter ends behind its first part: there is one, without lines of ... and ---\n"},
		{"reference", "---\ntitle: &a x\nworkspace: *a\n" + body, "cannot read x.md: line 2: references (& and *) are not taken\n"},
		{"effect", "---\ntitle: x\nworkspace: b\neffects:\n  - idempotency_key: a\n    command: {argv: [x], inptus: [x]}\n" + body,
			"x.md:6:26: there is no member \"effects[0].command.inptus\": did you mean \"inputs\"?\n"},
		{"effect's value", "---\ntitle: x\nworkspace: b\neffects:\n  - idempotency_key: a\n" + body,
			"x.md:5:5: effects[0].side_effect_kind: required\nx.md:5:5: effects[0].command: want either command or params\n"},
		{"time", "---\ntitle: x\nworkspace: b\nnot_before: tomorrow\n" + body, "x.md:4:13: not_before: want a time, such as 2026-01-02T15:04:05Z\n"},
		{"no value", "---\ntitle:\nworkspace: b\n" + body, "x.md:2:7: title: there is no value\n"},
		{"nothing", "", "x.md: there is no title: the front matter names it, or the first heading (# …) does\n" +
			"x.md: there is no workspace: begin the file with a line of ---, then title: … and workspace: …, then a line of ---\n" +
			"x.md: there is no spec: write it under the headings Goal, Scope, Non-goals, Inputs, Outputs, Acceptance criteria, Risks\n"},
		{"the command's", "---\ntitle: x\nworkspace: b\nrequest_key: k\n" + body, "there is no member \"request_key\""},
		{"heading", "---\ntitle: x\nworkspace: b\n---\n# Goal\nx\n```\n# Riks\n```\n## Acceptance Criterias\n- x\n", "x.md:10:1: the heading \"Acceptance Criterias\" names no field of a spec: did you mean \"Acceptance criteria\"?\n"},
		{"JSON", "{\"title\": \"x\",\n \"workspace\": }", "x.md:2:15: invalid character '}' at start of value\n"},
		{"JSON member", "{\"title\": \"x\",\n \"prio\": 1}", "x.md:2:2: there is no member prio\n"},
		{"JSON type", "{\"priority\": \"x\"}", "x.md:1:14: priority: want a number\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if said, _ := readText(t, test.text); !strings.Contains(said, test.want) || strings.Count(said, "\n") != max(1, strings.Count(test.want, "\n")) {
				t.Errorf("got\n%swant\n%s", said, test.want)
			}
		})
	}
}

// A value meant as a text stays one, whatever its type in YAML.
func TestSpecFileTexts(t *testing.T) {
	for _, text := range []string{"2026-01-02", "true", "012", "1e3", "~x", "請求書"} {
		if said, title := readText(t, "---\ntitle: "+text+"\nworkspace: b\nnot_before: 2026-01-02T15:04:05Z\n---\n## Goal\nx\n"); said != "" || title != text {
			t.Errorf("%q is read as %q: %s", text, title, said)
		}
	}
	if said, title := readText(t, "---\nworkspace: b\n---\n# The title\n## Goal\nx\n"); said != "" || title != "The title" {
		t.Errorf("the heading is read as %q: %s", title, said)
	}
}

func FuzzSpecFile(f *testing.F) {
	for _, seed := range []string{"---\ntitle: x\nworkspace: b\neffects: [{command: {argv: [a], env: {a: b}}}]\n---\n## Goal\nx\n", "---\n? [a]\n: b\n---\n", "---\n!!binary x: &a [*a]\n---\n", "# Gaol\n"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		file, err := task.ReadFile([]byte(text))
		if err != nil {
			return
		}
		r := &frontReader{places: make(map[string]*yaml.Node)}
		if p := r.read(file); p != nil && len(r.faults) == 0 && len(members.Check(p)) > 0 {
			t.Errorf("%q has no fault and is not valid: %v", text, members.Check(p))
		}
		misnamed([]byte(text), file.Markdown)
	})
}
