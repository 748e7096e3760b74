package daemon_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/task"
)

// A person sees the file that a command gets by a name, wherever the name is in the command,
// or that the file is not bound; and an approval is refused once a name leads elsewhere.
func TestApprovalShowsTheFileThatRuns(t *testing.T) {
	h := build(t, taskTeam+"  effects: {late: ask}\n")
	c := h.crew()
	dir, err := filepath.EvalSymlinks(h.dir)
	if err != nil {
		t.Fatal(err)
	}
	work, elsewhere := filepath.Join(dir, "work"), filepath.Join(dir, "elsewhere")
	if err := errors.Join(os.MkdirAll(filepath.Join(elsewhere, "deep"), 0o700), os.Mkdir(filepath.Join(work, "near"), 0o700), os.Symlink(elsewhere+"/deep", filepath.Join(work, "sub"))); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{work + "/deploy.sh": "echo shown", work + "/p.awk": "BEGIN { }", elsewhere + "/deploy.sh": "echo another"} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	deploy, program := task.Digest([]byte("echo shown")), task.Digest([]byte("BEGIN { }"))
	c.executing()
	c.toApproval()
	asks := func(key string, command m) string {
		t.Helper()
		asked := c.lead.must("task.request_approval", m{"task_id": c.id, "idempotency_key": key, "requested_action": "Deploy", "side_effect_kind": "deployment", "requested_by": "lead", "command": command})
		return str(asked, "approval_id")
	}
	awk := func(word string) m { return m{"argv": []any{"/usr/bin/awk", word}} }
	for name, tt := range map[string]struct {
		command   m
		says, not string
	}{
		"behind a link":          {m{"argv": []any{"/bin/sh", "sub/../deploy.sh"}}, `NOT BOUND: "` + work + `/sub/../deploy.sh", which the command names and which leads to "` + elsewhere + `/deploy.sh"`, deploy},
		"behind a folder":        {m{"argv": []any{"/bin/sh", "near/../deploy.sh"}}, `NOT COPIED: "` + work + `/deploy.sh" ` + deploy, "NOT BOUND"},
		"attached to an option":  {awk("-fp.awk"), `NOT COPIED: "` + work + `/p.awk" ` + program, "NOT BOUND"},
		"an option's value":      {awk("--file=p.awk"), `NOT COPIED: "` + work + `/p.awk" ` + program, "NOT BOUND"},
		"behind an “@”":          {awk("@p.awk"), `NOT COPIED: "` + work + `/p.awk" ` + program, "NOT BOUND"},
		"as a word of env":       {m{"argv": []any{"/usr/bin/env", "BASH_ENV=p.awk", "bash"}}, `NOT COPIED: "` + work + `/p.awk" ` + program, "NOT BOUND"},
		"in a text":              {m{"argv": []any{"/bin/sh", "-c", "awk -f p.awk; true"}}, `NOT BOUND: "` + work + `/p.awk"`, "NOT COPIED"},
		"a process's folder":     {awk("/proc/self/cwd/p.awk"), `NOT BOUND: "/proc/self/cwd/p.awk"`, "NOT COPIED"},
		"a process's file":       {awk("/dev/fd/7"), `NOT BOUND: "/dev/fd/7"`, "NOT COPIED"},
		"in a variable":          {m{"argv": []any{"/bin/true"}, "env": m{"BASH_ENV": "p.awk"}}, `NOT COPIED: "` + work + `/p.awk" ` + program, "NOT BOUND"},
		"in a variable's list":   {m{"argv": []any{"/bin/true"}, "env": m{"LIST": "/usr/lib:p.awk"}}, `NOT COPIED: "` + work + `/p.awk" ` + program, "NOT BOUND"},
		"an input at an option":  {m{"argv": []any{"/usr/bin/awk", "-fp.awk"}, "inputs": []any{"p.awk"}}, `input: "p.awk" ` + program + ", a copy of which takes the place of argument 1 from byte 2 on", "NOT "},
		"an input behind a link": {m{"argv": []any{"/bin/sh", "sub/../deploy.sh"}, "inputs": []any{"deploy.sh"}}, "NOT BOUND", "takes the place"},
	} {
		shown := h.shown(asks(name, tt.command)).Content
		if !strings.Contains(shown, tt.says) || strings.Contains(shown, tt.not) {
			t.Errorf("%s: want %s, and not %s, and shown is\n%s", name, tt.says, tt.not, shown)
		}
	}

	swapped := h.shown(asks("swapped", m{"argv": []any{"/bin/sh", "near/../deploy.sh"}}))
	if err := errors.Join(os.Remove(filepath.Join(work, "near")), os.Symlink(elsewhere+"/deep", filepath.Join(work, "near"))); err != nil {
		t.Fatal(err)
	}
	h.operates().refuse(api.Conflict, "approval.resolve", decision(api.DecideApprove, &swapped))
}
