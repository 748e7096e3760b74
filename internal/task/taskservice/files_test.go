package taskservice

import (
	"cmp"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/base/plainfile"
	"github.com/openclawos/ocipd/internal/task"
)

// Nothing is looked for on behalf of another user's process: what it is told is the same,
// whatever is there.
func TestOthersLearnNothingOfFiles(t *testing.T) {
	dir := t.TempDir()
	for _, workspace := range []string{dir, filepath.Join(dir, "not-there"), "main"} {
		for _, name := range []string{"a", "../a", "/etc/passwd"} {
			if _, _, err := (reader{}).hashFile(workspace, name); err == nil || err.Error() != errForeign.Error() {
				t.Errorf("%s of %s: %v", name, workspace, err)
			}
		}
	}
}

// A word of a command that names an input is found, however the two are written.
func TestWordsThatNameInputs(t *testing.T) {
	resolved, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Mkdir(filepath.Join(resolved, "sub"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(resolved, link); err != nil {
		t.Fatal(err)
	}
	// The folder that it leads to has another file above it than the workspace has.
	elsewhere := filepath.Join(t.TempDir(), "deep")
	if err := errors.Join(os.Mkdir(elsewhere, 0o700), os.Symlink(elsewhere, filepath.Join(resolved, "away")), os.Symlink("sub", filepath.Join(resolved, "near"))); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		uri, cwd, word string
		from           int
	}{
		"by name":              {"in", "", "in", 0},
		"by another way":       {"in", "", "./sub/../in", 0},
		"by its whole name":    {"in", "", resolved + "/in", 0},
		"by a link":            {"in", "", link + "/in", 0},
		"behind an option":     {"in", "", "--file=in", 7},
		"from another folder":  {"sub/in", "sub", "in", 0},
		"that is elsewhere":    {"file:///etc/passwd", "", "/etc/passwd", 0},
		"by a name with a “=”": {"a=in", "", "a=in", 0},
		"attached to a letter": {"in", "", "-fin", 2},
		"behind an “@”":        {"in", "", "@in", 1},
		"behind “=@”":          {"in", "", "--data=@in", 8},
		"back out of a link":   {"in", "", "near/../in", 0},
		"a link out and back":  {"in", "", "away/../in", -1},
		"in a text":            {"in", "", "cat in", -1},
	} {
		t.Run(name, func(t *testing.T) {
			at := &task.Task{Head: task.Head{Workspace: link}, Artifacts: []task.Artifact{{URI: tt.uri, Digest: "sha256:00", Current: true, Work: true}}}
			b, err := (reader{}).bind(at, &task.Action{Argv: []string{"sh", "other", tt.word}, Cwd: tt.cwd, Inputs: []string{tt.uri}}, false)
			if err != nil {
				t.Fatal(err)
			}
			want := []task.Word{{Index: 2, From: tt.from}}
			if tt.from < 0 {
				want = nil
			}
			if !reflect.DeepEqual(b.Inputs[0].Argv, want) {
				t.Errorf("got %v, want %v", b.Inputs[0].Argv, want)
			}
			for _, w := range b.Inputs[0].Argv {
				if said := copied([]task.Word{w}); !strings.Contains(said, "argument 2") {
					t.Errorf("it is shown as %s", said)
				}
			}
		})
	}
}

// What a command names in its workspace or folder is bound, or a person reads that it is not.
func TestWhatACommandNames(t *testing.T) {
	above, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	work, elsewhere := filepath.Join(above, "work"), filepath.Join(above, "elsewhere")
	private := filepath.Join(work, "state")
	for _, dir := range []string{work, elsewhere, private, filepath.Join(work, "sub")} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"deploy.sh", "state/key", "sub/in", "rejected"} {
		if err := os.WriteFile(filepath.Join(work, name), []byte("text"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(elsewhere, "other"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Mkdir(filepath.Join(elsewhere, "deep"), 0o700), os.WriteFile(filepath.Join(elsewhere, "deploy.sh"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	for name, to := range map[string]string{"../door": work, "link": "nowhere", "away": elsewhere + "/deep", "near": "sub", "new": elsewhere + "/missing"} {
		if err := os.Symlink(to, filepath.Join(work, name)); err != nil {
			t.Fatal(err)
		}
	}
	// Others than root can change these, whoever runs the test.
	for _, name := range []string{"loose", "private"} {
		name = filepath.Join(above, name)
		if err := errors.Join(os.WriteFile(name, []byte("text"), 0o600), os.Chmod(name, 0o666)); err != nil {
			t.Fatal(err)
		}
	}
	folder := filepath.Join(above, "folder")
	if err := errors.Join(os.Mkdir(folder, 0o700), os.Chmod(folder, 0o777), os.Symlink("../loose", filepath.Join(folder, "loose"))); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(work, "large"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(filepath.Join(work, "large"), maxFile+1); err != nil {
		t.Fatal(err)
	}
	at := &task.Task{Head: task.Head{Workspace: work}, Artifacts: []task.Artifact{{URI: "rejected", Digest: "sha256:00", Work: true}}}
	digest := task.Digest([]byte("text"))
	const copied, bound, loose, nothing = "input", "NOT COPIED", "NOT BOUND", ""
	argv := func(words ...string) task.Action { return task.Action{Argv: append([]string{"cat"}, words...)} }
	in := func(cwd string, words ...string) task.Action {
		return task.Action{Argv: append([]string{"cat"}, words...), Cwd: cwd}
	}
	variable := func(value string) task.Action {
		return task.Action{Argv: []string{"cat"}, Env: map[string]string{"BASH_ENV": value}}
	}
	for name, tt := range map[string]struct {
		action       task.Action
		compensation bool
		want         string
		path, leads  string
	}{
		"file":                     {argv("deploy.sh"), false, bound, "deploy.sh", ""},
		"file behind an option":    {argv("--file=./deploy.sh"), false, bound, "deploy.sh", ""},
		"file by its whole name":   {in("sub", work+"/deploy.sh"), false, bound, "deploy.sh", ""},
		"file of the folder":       {in("sub", "in"), false, bound, "sub/in", ""},
		"folder":                   {argv("sub"), false, loose, "sub", ""},
		"workspace":                {argv("."), false, loose, "", ""},
		"link":                     {argv("link"), false, loose, "link", work + "/nowhere"},
		"large file":               {argv("large"), false, loose, "large", ""},
		"the daemon's own":         {argv("state/key"), false, loose, "state/key", ""},
		"of another folder":        {in(elsewhere, "other"), false, bound, elsewhere + "/other", ""},
		"of a compensation":        {argv("deploy.sh"), true, loose, "deploy.sh", ""},
		"input that is no result":  {task.Action{Argv: []string{"sh", "deploy.sh"}, Inputs: []string{"deploy.sh"}}, false, copied, "deploy.sh", ""},
		"what is not there":        {argv("missing", "deploy.sh/../missing"), false, nothing, "", ""},
		"script that is not there": {argv("-c", "./missing.sh"), false, loose, "missing.sh", ""},
		"what is not beneath":      {argv("/etc/passwd", "/", "", "sentence.", "/missing", above+"/missing", "/dev/null", "/dev/stdin", "/dev/fd/2"), false, nothing, "", ""},

		// Elsewhere, what others than root can change is bound or marked.
		"file elsewhere":           {argv(above + "/loose"), false, bound, above + "/loose", ""},
		"file of a way out":        {argv("../loose"), false, bound, above + "/loose", ""},
		"elsewhere at an option":   {argv("--file=" + above + "/loose"), false, bound, above + "/loose", ""},
		"elsewhere at letters":     {argv("-xf" + above + "/loose"), false, bound, above + "/loose", ""},
		"elsewhere in an address":  {argv("file://" + above + "/loose"), false, bound, above + "/loose", ""},
		"elsewhere in a variable":  {variable(above + "/loose"), false, bound, above + "/loose", ""},
		"elsewhere in a list":      {variable("/usr/lib:" + above + "/loose"), false, bound, above + "/loose", ""},
		"elsewhere in a text":      {argv("-c", "cat "+above+"/loose; true"), false, loose, above + "/loose", ""},
		"folder elsewhere":         {variable("/usr/bin:" + above + "/folder"), false, loose, above + "/folder", ""},
		"elsewhere, by a link":     {argv(above + "/folder/loose"), false, loose, above + "/folder/loose", above + "/loose"},
		"elsewhere, the daemon's":  {argv(above + "/private"), false, loose, above + "/private", ""},
		"elsewhere, to be undone":  {argv(above + "/loose"), true, loose, above + "/loose", ""},
		"a part of another's name": {argv("https://host" + above + "/loose"), false, nothing, "", ""},

		// What the kernel opens is another file than the name says.
		"back out of a link":           {argv("away/../deploy.sh"), false, loose, "away/../deploy.sh", elsewhere + "/deploy.sh"},
		"behind a link":                {argv("near/in"), false, loose, "near/in", work + "/sub/in"},
		"back out of a link that ends": {argv("link/../deploy.sh"), false, loose, "link/../deploy.sh", ""},
		"link to what is not there":    {argv("new"), false, loose, "new", elsewhere + "/missing"},
		"back out of a folder":         {argv("sub/../deploy.sh"), false, bound, "deploy.sh", ""},
		"by a link above":              {argv("../door/deploy.sh"), false, bound, "../door/deploy.sh", work + "/deploy.sh"},
		"out by a folder":              {argv("sub/../../" + filepath.Base(elsewhere) + "/other"), false, loose, "sub/../../" + filepath.Base(elsewhere) + "/other", elsewhere + "/other"},

		// Names that do not stand by themselves.
		"attached to a letter":    {argv("-fdeploy.sh"), false, bound, "deploy.sh", ""},
		"attached to letters":     {argv("-xfdeploy.sh"), false, bound, "deploy.sh", ""},
		"attached to a folder":    {argv("-Isub"), false, loose, "sub", ""},
		"behind an “@”":           {argv("@deploy.sh"), false, bound, "deploy.sh", ""},
		"of an env-like word":     {argv("BASH_ENV=deploy.sh"), false, bound, "deploy.sh", ""},
		"in a list":               {argv("--path=none:deploy.sh:none"), false, bound, "deploy.sh", ""},
		"address":                 {argv("file://" + work + "/deploy.sh"), false, bound, "deploy.sh", ""},
		"in the midst of a text":  {argv("-c", "cat deploy.sh; true"), false, loose, "deploy.sh", ""},
		"at the end of a text":    {argv("-c", "awk -fdeploy.sh"), false, loose, "deploy.sh", ""},
		"process's folder":        {argv("/proc/self/cwd/deploy.sh"), false, loose, "/proc/self/cwd/deploy.sh", ""},
		"another process's":       {argv("/proc/1/cwd/deploy.sh"), false, loose, "/proc/1/cwd/deploy.sh", ""},
		"process's file":          {argv("/dev/fd/9"), false, loose, "/dev/fd/9", ""},
		"variable":                {variable("deploy.sh"), false, bound, "deploy.sh", ""},
		"list in a variable":      {variable("/usr/lib:deploy.sh"), false, bound, "deploy.sh", ""},
		"options in a variable":   {variable("--require ./deploy.sh"), false, loose, "deploy.sh", ""},
		"a text that names input": {task.Action{Argv: []string{"sh", "-c", "cat deploy.sh"}, Inputs: []string{"deploy.sh"}}, false, copied, "deploy.sh", ""},
	} {
		t.Run(name, func(t *testing.T) {
			b, err := (reader{own: true, private: []string{private, above + "/private"}}).bind(at, &tt.action, tt.compensation)
			if err != nil {
				t.Fatal(err)
			}
			shown := describe(&task.Planned{Command: &tt.action}, &task.BoundPair{Command: b})
			for _, what := range []string{copied, bound, loose} {
				if strings.Contains(shown, "\n"+what+":") != (what == tt.want) {
					t.Errorf("want %q, and shown is\n%s", tt.want, shown)
				}
			}
			switch tt.want {
			case copied:
				if in := b.Inputs[0]; in.URI != tt.path || in.Digest != digest || len(b.Named) != 0 {
					t.Errorf("got %+v", b)
				}
			case bound, loose:
				want := []task.Named{{Path: cmp.Or(plainfile.Joined(work, tt.path), work), Leads: tt.leads, Absent: tt.path == "missing.sh"}}
				if tt.leads != "" && !strings.Contains(shown, strconv.Quote(tt.leads)) {
					t.Errorf("it is not shown where it leads:\n%s", shown)
				}
				if tt.want == bound {
					want[0].Digest = digest
					if tt.path == elsewhere+"/other" {
						want[0].Digest = task.Digest(nil)
					}
				}
				if !reflect.DeepEqual(b.Named, want) {
					t.Errorf("got %+v, want %+v", b.Named, want)
				}
			}
		})
	}
	for who, r := range map[string]reader{"rejected": {own: true}, "state/key": {own: true, private: []string{private}}, "deploy.sh": {}, "missing": {own: true}} {
		if _, err := r.bind(at, &task.Action{Argv: []string{"sh"}, Inputs: []string{who}}, false); err == nil {
			t.Errorf("%s is taken for an input", who)
		}
	}
}

// A command is not put to a person if its start runs a file that its approval would not cover. An
// actor of another user does not learn which.
func TestRequestRefusesWhatRunsWithAProgram(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	mine := filepath.Join(dir, "mine")
	script := func(name, first string) string {
		name = filepath.Join(dir, name)
		if err := os.WriteFile(name, []byte(first+"\necho\n"), 0o700); err != nil {
			t.Fatal(err)
		}
		return name
	}
	script("mine", "#!/bin/sh")
	if err := errors.Join(os.Chmod(mine, 0o777), os.Chmod(dir, 0o777)); err != nil { // others', whoever runs the test
		t.Fatal(err)
	}
	at := &task.Task{Head: task.Head{Workspace: dir}}
	plain, byPath := script("plain", "#!/usr/bin/env sh"), script("path", "#!/usr/bin/env mine")
	for name, tt := range map[string]struct {
		action task.Action
		want   string
	}{
		"plain":                   {task.Action{Argv: []string{plain}}, ""},
		"PATH of the runner's":    {task.Action{Argv: []string{byPath}, EnvFrom: []string{"PATH"}}, ""},
		"through env":             {task.Action{Argv: []string{script("env", "#!/usr/bin/env -S "+mine)}}, mine},
		"as an argument":          {task.Action{Argv: []string{script("argument", "#!/bin/sh "+mine)}}, mine},
		"by PATH":                 {task.Action{Argv: []string{byPath}, Env: map[string]string{"PATH": dir + ":/usr/bin"}}, dir},
		"LD_PRELOAD":              {task.Action{Argv: []string{"/bin/true"}, Env: map[string]string{"LD_PRELOAD": mine}}, mine},
		"LD_LIBRARY_PATH":         {task.Action{Argv: []string{"/bin/true"}, Env: map[string]string{"LD_LIBRARY_PATH": dir}}, dir},
		"LD_LIBRARY_PATH, root's": {task.Action{Argv: []string{"/bin/true"}, Env: map[string]string{"LD_LIBRARY_PATH": "/usr/lib"}}, ""},
	} {
		for whose, own := range map[string]bool{"own": true, "another's": false} {
			b, err := (reader{own: own}).bind(at, &tt.action, false)
			switch {
			case tt.want == "" && (err != nil || b == nil):
				t.Errorf("%s, %s: %v", name, whose, err)
			case tt.want != "" && err == nil, err != nil && strings.Contains(err.Error(), strconv.Quote(tt.want)) != own:
				t.Errorf("%s, %s: got %v, want %q", name, whose, err, tt.want)
			}
		}
	}
}

// A command that leads to a name that is not UTF-8 is refused with the member that leads there.
func TestRequestRefusesNamesThatNobodyCanBeShown(t *testing.T) {
	work, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	odd := filepath.Join(work, "odd\xff")
	if err := errors.Join(os.Mkdir(odd, 0o700), os.WriteFile(filepath.Join(odd, "run"), []byte("#!/bin/sh\n"), 0o700), os.Symlink(odd, filepath.Join(work, "link"))); err != nil {
		t.Fatal(err)
	}
	at := &task.Task{Head: task.Head{Workspace: work}}
	for member, action := range map[string]task.Action{
		"command.argv[0]": {Argv: []string{"./link/run"}},
		"command.cwd":     {Argv: []string{"true"}, Cwd: "link"},
		work + "/link":    {Argv: []string{"cat", "link"}},
	} {
		_, err := (reader{own: true}).bind(at, &action, false)
		if err == nil || !strings.Contains(err.Error(), member) || !strings.Contains(err.Error(), "is not UTF-8") || api.AsError(err).Code != api.InvalidParams {
			t.Errorf("%s: got %v", member, err)
		}
	}
}
