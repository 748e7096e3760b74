package runner

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/openclawos/ocipd/internal/task"
	"github.com/openclawos/ocipd/internal/task/commandfiles"
)

// asShown makes an order for the files that a command names now, as an approval request shows them.
func asShown(t *testing.T, o *shimOrder, inputs ...string) {
	t.Helper()
	at := commandfiles.Place{Workspace: o.Bound.Folder, Folder: o.Bound.Folder}
	for _, name := range inputs {
		o.Bound.Inputs = append(o.Bound.Inputs, task.Input{URI: name, Digest: digestOf(t, filepath.Join(o.Bound.Folder, name))})
	}
	at.Replaced(&o.Action, o.Bound.Inputs)
	for _, file := range at.Besides(&o.Action, o.Bound.Inputs) {
		n := file.Named
		if info, err := os.Stat(file.At()); err == nil && info.Mode().IsRegular() && file.Sure && file.Whole {
			n.Digest = digestOf(t, file.At())
		}
		o.Bound.Named = append(o.Bound.Named, n)
	}
}

// link replaces a file by a link.
func link(t *testing.T, to, name string) {
	t.Helper()
	if err := errors.Join(os.RemoveAll(name), os.Symlink(to, name)); err != nil {
		t.Fatal(err)
	}
}

// runs makes the order run a program of the system.
func (o *shimOrder) runs(t *testing.T, argv ...string) {
	t.Helper()
	path, err := filepath.EvalSymlinks(argv[0])
	if err != nil {
		t.Skip(err)
	}
	o.Action.Argv = argv
	o.Bound.Exe = task.Program{Path: path, SHA256: strings.TrimPrefix(digestOf(t, path), "sha256:")}
}

// A command gets the file that a person has seen, under any of its names, or does not
// begin. Names are resolved as the kernel does it, not as they look.
func TestRunsTheFileThatWasShown(t *testing.T) {
	const other, anew = "by that name it gets another file now", "was not there when it was approved"
	for name, tt := range map[string]struct {
		argv   []string
		env    string
		inputs []string
		// change happens after the approval.
		change func(t *testing.T, work, elsewhere string)
		said   string
		want   string
	}{
		"as it was": {argv: []string{"/bin/sh", "sub/../show.sh"}, said: "SHOWN"},
		"back out of a link that came": {
			argv:   []string{"/bin/sh", "sub/../show.sh"},
			change: func(t *testing.T, work, elsewhere string) { link(t, elsewhere+"/sub", work+"/sub") }, want: anew,
		},
		"back out of a link that leads elsewhere now": {
			argv:   []string{"/bin/sh", "link/../show.sh"},
			change: func(t *testing.T, work, elsewhere string) { link(t, elsewhere+"/sub", work+"/link") }, want: other,
		},
		"by a link above the workspace that leads elsewhere now": {
			argv:   []string{"/bin/sh", "../door/show.sh"},
			change: func(t *testing.T, work, elsewhere string) { link(t, elsewhere, work+"/../door") }, want: other,
		},
		"a link above the workspace, beside another name of the same": {
			argv:   []string{"/bin/sh", "../door/show.sh", "show.sh"},
			change: func(t *testing.T, work, elsewhere string) { link(t, elsewhere, work+"/../door") }, want: other,
		},
		"by a link above the workspace": {argv: []string{"/bin/sh", "../door/show.sh"}, said: "SHOWN"},
		"input by a name that leads elsewhere now": {
			argv: []string{"/bin/sh", "sub/../show.sh"}, inputs: []string{"show.sh"},
			change: func(t *testing.T, work, elsewhere string) { link(t, elsewhere+"/sub", work+"/sub") }, said: "SHOWN",
		},
		"input attached to an option": {
			argv: []string{"/usr/bin/awk", "-fshow.awk"}, inputs: []string{"show.awk"},
			said: "SHOWN",
		},
		"file attached to an option": {argv: []string{"/usr/bin/awk", "-fshow.awk"}, said: "SHOWN"},
		"file attached to an option, changed": {
			argv:   []string{"/usr/bin/awk", "-fshow.awk"},
			change: func(t *testing.T, work, _ string) { edit(t, work+"/show.awk") }, want: "is not what was approved",
		},
		"file attached to an option that came": {
			argv:   []string{"/usr/bin/awk", "-fnew.awk"},
			change: func(t *testing.T, work, _ string) { edit(t, work+"/new.awk") }, want: anew,
		},
		"file of a variable": {argv: []string{"/bin/bash", "-c", ":"}, env: "./show.sh", said: "SHOWN"},
		"file of a variable, changed": {
			argv: []string{"/bin/bash", "-c", ":"}, env: "./show.sh",
			change: func(t *testing.T, work, _ string) { edit(t, work+"/show.sh") }, want: "is not what was approved",
		},
		"file of a variable that came": {
			argv: []string{"/bin/bash", "-c", ":"}, env: "new.sh",
			change: func(t *testing.T, work, _ string) { edit(t, work+"/new.sh") }, want: anew,
		},
		"folder of the process": {argv: []string{"/bin/sh", "/proc/self/cwd/show.sh"}, said: "SHOWN"},
		"folder of a process that came": {
			argv: []string{"/bin/sh", "away/show.sh"}, said: "",
			change: func(t *testing.T, work, _ string) { link(t, "/proc/self/cwd", work+"/away") }, want: anew,
		},
		"file elsewhere": {argv: []string{"/bin/sh", "../loose.sh"}, said: "SHOWN"},
		"file elsewhere, changed": {
			argv:   []string{"/bin/sh", "../loose.sh"},
			change: func(t *testing.T, work, _ string) { edit(t, work+"/../loose.sh") }, want: "is not what was approved",
		},
		"file elsewhere that came": {
			argv: []string{"/bin/sh", "../came.sh"},
			change: func(t *testing.T, work, _ string) {
				edit(t, work+"/../came.sh")
				everybodys(t, work+"/../came.sh")
			}, want: anew,
		},
		"file elsewhere of a variable, changed": {
			argv: []string{"/bin/bash", "-c", ":"}, env: "../loose.sh",
			change: func(t *testing.T, work, _ string) { edit(t, work+"/../loose.sh") }, want: "is not what was approved",
		},
		"file of a text that came": {
			argv:   []string{"/bin/sh", "-c", "test -f new.sh || echo SHOWN; sh ./new.sh"},
			change: func(t *testing.T, work, _ string) { edit(t, work+"/new.sh") }, want: anew,
		},
		"file of a text that did not come": {argv: []string{"/bin/sh", "-c", "echo SHOWN; test ! -f new.sh"}, said: "SHOWN"},
		"output that a text names": {
			argv:   []string{"/bin/sh", "-c", "echo SHOWN >> out; cat out"},
			change: func(t *testing.T, work, _ string) { write(t, work+"/out", "") }, said: "SHOWN",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, _ := shimmed(t, func(o *shimOrder) {
				above, err := filepath.EvalSymlinks(t.TempDir())
				if err != nil {
					t.Fatal(err)
				}
				work, elsewhere := filepath.Join(above, "work"), filepath.Join(above, "elsewhere")
				for _, dir := range []string{work, elsewhere} {
					if err := os.MkdirAll(filepath.Join(dir, "sub"), 0o700); err != nil {
						t.Fatal(err)
					}
				}
				write(t, work+"/show.sh", "echo SHOWN\n")
				write(t, work+"/show.awk", "BEGIN { print \"SHOWN\" }\n")
				write(t, elsewhere+"/show.sh", "echo EVIL\n")
				write(t, above+"/loose.sh", "echo SHOWN\n")
				everybodys(t, above+"/loose.sh")
				link(t, "sub", work+"/link")
				link(t, work, above+"/door")
				o.runs(t, tt.argv...)
				o.Workspace, o.Bound.Folder = work, work
				if tt.env != "" {
					o.Action.Env = map[string]string{"BASH_ENV": tt.env}
				}
				asShown(t, o, tt.inputs...)
				if tt.change != nil {
					tt.change(t, work, elsewhere)
				}
			})
			switch {
			case tt.want != "" && (r.State != task.EffectFailed || r.Receipt.ExitCode != nil || !strings.Contains(r.Receipt.Error, tt.want)):
				t.Errorf("it was run, or refused otherwise: %+v", r)
			case tt.want == "" && (r.State != task.EffectDone || strings.TrimSpace(r.Receipt.Stdout.Text) != tt.said):
				t.Errorf("got %+v", r)
			}
		})
	}
}

func write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// everybodys makes a file one that others than root can change, whoever runs the test.
func everybodys(t *testing.T, name string) {
	t.Helper()
	if err := os.Chmod(name, 0o666); err != nil {
		t.Fatal(err)
	}
}

// edit writes another program.
func edit(t *testing.T, name string) {
	t.Helper()
	write(t, name, "echo EVIL\n")
}
