package commandfiles_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/openclawos/ocipd/internal/task"
	"github.com/openclawos/ocipd/internal/task/commandfiles"
)

// A person is shown the files that a command seems to name and that are not there, and not every word.
func TestFilesThatAreNotThere(t *testing.T) {
	work, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(work, "src"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(work, "there.sh"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	sh := func(text string) []string { return []string{"/bin/sh", "-c", text} }
	words := func(text string) []string { return strings.Fields(text) }
	for _, tt := range []struct {
		argv []string
		env  string
		want string
	}{
		{argv: sh("./deploy.sh prod"), want: "deploy.sh"},
		{argv: []string{"/bin/bash", "-lc", "python x.py"}, want: "x.py"},
		{argv: []string{"/usr/bin/bash", "-e", "deploy"}, want: "deploy"},
		{argv: words("/usr/bin/python3.11 -u run"), want: "run"},
		{argv: words("/usr/bin/env MODE=prod python3 run --fast"), want: "run"},
		{argv: words("/usr/bin/timeout 5m bash run"), want: "run"},
		{argv: words("/usr/bin/make -f release"), want: "release"},
		{argv: words("/usr/bin/awk -f count in.txt"), want: "count"},
		{argv: words("/usr/bin/ansible-playbook site.yml"), want: "site.yml"},
		{argv: words("/usr/bin/tool --script=tools/release"), want: "tools/release"},
		{argv: words("/usr/bin/curl -d @bodies/order https://example.com/a/b.php"), want: "bodies/order"},
		{argv: sh("source venv; make"), want: "venv"},
		{argv: sh(". ./env && ./there.sh"), want: "env"},
		{argv: sh("psql app < migration"), want: "migration"},
		{argv: sh("FOO=1 nohup bin/serve >log 2>&1 &"), want: "bin/serve"},
		{argv: sh("if true; then application/json; fi"), want: "application/json"},
		{argv: sh("cd src && node build"), want: "build"},
		{argv: sh(`bash -c "python 'jobs/nightly'"`), want: "jobs/nightly"},
		{argv: sh("x=$(sh version); echo $x"), want: "version"},
		{argv: sh("cp a.txt src/new"), want: "src/new"},
		{argv: []string{"/bin/true"}, env: "hooks/start", want: "hooks/start"},
		{argv: []string{"/bin/sh", work + "/gone"}, want: "gone"},

		{argv: sh("./there.sh")},
		{argv: words("/bin/bash file:///there.sh")},
		{argv: sh("echo done > out; cat out")},
		{argv: sh("sort names.txt | uniq -c")},
		{argv: words("/usr/bin/git push origin main")},
		{argv: words("/usr/bin/git rebase origin/main")},
		{argv: []string{"/usr/bin/git", "commit", "-m", "Mend the queue, and wait no more."}},
		{argv: words("/usr/bin/curl -H Accept:application/json https://example.com:8080/api/v1/run.sh")},
		{argv: sh("sed s/old/new/g names.txt")},
		{argv: words("/usr/bin/date -d 2026/11/29")},
		{argv: sh("cat <<END\nhello\nEND")},
		{argv: sh("test -x /usr/bin/missing.sh || echo none")},
		{argv: words("/usr/bin/npm run build")},
		{argv: words("/usr/bin/kubectl rollout restart deployment api")},
		{argv: words("/usr/bin/terraform apply -auto-approve")},
		{argv: []string{"/usr/bin/python3", "-c", "print(1)"}},
		{argv: []string{"/usr/bin/python3", "-m", "pip"}},
		{argv: sh("for f in src/*.py; do wc -l $f; done")},
		{argv: words("/usr/bin/ssh -p 22 deploy@example.com uptime")},
		{argv: []string{"/bin/true"}, env: "/usr/lib:https://example.com/x.js"},
	} {
		action := task.Action{Argv: tt.argv, Env: map[string]string{"HOOK": tt.env}}
		var got []string
		for _, file := range (commandfiles.Place{Workspace: work, Folder: work}).Besides(&action, nil) {
			if file.Absent {
				name, _ := file.In(work)
				got = append(got, name)
			}
		}
		if !slices.Equal(got, strings.Fields(tt.want)) {
			t.Errorf("%q %q: got %q, want %q", tt.argv, tt.env, got, tt.want)
		}
	}
}
