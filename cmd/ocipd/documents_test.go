package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/openclawos/ocipd/internal/bridge/hook"
	"github.com/openclawos/ocipd/internal/cli"
	"github.com/openclawos/ocipd/internal/cli/configcmd"
	"github.com/spf13/pflag"
)

// TestDocuments runs every shell block of a page, as printed and in order, and finds the
// printed output in the real output. Comments above a block give exceptions:
//
//	<!-- not run: needs root: WHY -->      or hardware, or the network: it is not run
//	<!-- run by TestName -->               that test runs it, and names the page
//	<!-- file NAME -->                     its text becomes this file
//	<!-- with NAME -->                     testdata/pages/NAME.sh is run before it
//	<!-- where there is TOOL -->           it is run on machines that have TOOL
//	<!-- exits N -->                       N is an exit code that is meant
//
// A comment that stands alone applies to the rest of its section.
func TestDocuments(t *testing.T) {
	for _, tool := range []string{"bash", "jq", "ssh-keygen", "socat", "script", "python3"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("the documents need %s", tool)
		}
	}
	ran := 0
	for _, name := range documentNames(t) {
		d, faults := readDocument(readPage(t, name))
		page := strings.TrimPrefix(name, "../../")
		for _, fault := range faults {
			t.Errorf("%s: %s", page, fault)
		}
		for _, other := range d.elsewhere {
			if !testOf(t, other, filepath.Base(name)) {
				t.Errorf("%s: no test %s names the page", page, other)
			}
		}
		ran += d.commands()
		if d.commands() > 0 {
			t.Run(page, func(t *testing.T) {
				t.Parallel()
				d.run(t, filepath.Dir(name))
			})
		}
	}
	if ran < 80 {
		t.Errorf("only %d commands are run", ran)
	}
}

// TestDocumentsSayWhatIsNotRun checks that each form in which a page could show an untested
// command is a fault.
func TestDocumentsSayWhatIsNotRun(t *testing.T) {
	t.Parallel()
	for text, fault := range map[string]string{
		"```sh\nls\n```\n": "",
		"<!-- not run: needs root: it boots -->\n```sh\nls\n```\n":                         "",
		"## A\n<!-- run by TestX -->\n\nHere:\n\n```console\n$ ls\n```\n## B\n":            "",
		"<!-- not run: it takes long -->\n```sh\nls\n```\n":                                "no reason",
		"<!-- not run: needs OpenClaw -->\n```sh\nls\n```\n":                               "no reason",
		"## A\n<!-- not run: needs root: a -->\n\n## B\n```\n$ ls\n```\n":                  "says nothing of its kind",
		"```\nocipd status\n```\n":                                                         "says nothing of its kind",
		"<!-- Made by \"make reference\" from x. Do not edit. -->\n\n```yaml\na: b\n```\n": "",
		"```fish\nls\n```\n":                                            `kind "fish" is not known`,
		"```text\n$ ls\n```\n":                                          "is one for a shell",
		"~~~sh\nls\n~~~\n":                                              "in a form",
		"- a list:\n\n  ```sh\n  ls\n  ```\n":                           "in a form",
		"Like this:\n\n    $ ls\n":                                      "in a form",
		"```console\nls\n```\n":                                         "no command",
		"<!-- file a.sh -->\n```bash\nls\n```\n":                        "nothing names the file a.sh",
		"<!-- file a.sh -->\n```bash\nls\n```\n```sh\nbash a.sh\n```\n": "",
		"<!-- with nothing-such -->\n```sh\nls\n```\n":                  "nothing-such.sh",
		"<!-- nonsense -->\n```sh\nls\n```\n":                           "the mark",
		"<!-- not run: needs root: x -->\n\n```sh\nls\n```\n<!-- what -->\n\n# B\nText": "",
	} {
		_, faults := readDocument(text)
		if got := strings.Join(faults, "\n"); fault == "" && got != "" || !strings.Contains(got, fault) {
			t.Errorf("%q: %q, want %q", text, got, fault)
		}
	}
}

// TestDocumentsName checks every command that a page names in its text, or shows in a block
// that is not run, with its flags.
func TestDocumentsName(t *testing.T) {
	named := regexp.MustCompile("(?m)^\\$ (ocipd [^\n]*)$|[^`]`(ocipd [^`\n]*)`")
	seen := map[string]bool{}
	for _, name := range documentNames(t) {
		for _, found := range named.FindAllStringSubmatch(readPage(t, name), -1) {
			line, _, _ := strings.Cut(found[1]+found[2], "…")
			line = strings.NewReplacer("[", "", "]", "").Replace(line)
			if seen[line] || strings.HasSuffix(line, " v1") { // the signed text begins like a command
				continue
			}
			seen[line] = true
			if _, err := readCommand(commandLine(line)[1:]); err != nil && !errors.Is(err, pflag.ErrHelp) {
				t.Errorf("%s: %s: %v", strings.TrimPrefix(name, "../../"), line, err)
			}
		}
	}
	if len(seen) < 100 {
		t.Errorf("%d commands were found", len(seen))
	}
}

// The reference pages of commands and of the configuration are those that the tree of commands and
// the table of keys give.
func TestPagesAreGenerated(t *testing.T) {
	configuration, err := configcmd.Reference()
	if err != nil {
		t.Fatal(err)
	}
	pages := map[string]string{"commands": string(cli.CommandPage(newRoot(&shell{Process: cli.Process{}}))), "configuration": string(configuration), "runtimes": string(hook.Page())}
	rows := hook.Rows()
	for i := range rows {
		pages["runtimes/"+rows[i].Name] = string(rows[i].Page())
	}
	files, _ := filepath.Glob("../../docs/reference/runtimes/*.md") // the pattern is well-formed
	for _, file := range files {
		if name := strings.TrimSuffix(filepath.Base(file), ".md"); hook.Find(name) == nil {
			t.Errorf("%s is about no runtime of the table", file)
		}
	}
	for name, want := range pages {
		if readPage(t, "../../docs/reference/"+name+".md") != want {
			t.Errorf("docs/reference/%s.md is stale: make reference writes it", name)
		}
	}
	for _, row := range []string{"\n| `ocipd audit verify [PATH]` | verify ", "\n| 5 | a message is held |"} {
		if !strings.Contains(pages["commands"], row) {
			t.Errorf("the page of commands has no row %q", row)
		}
	}
	if !strings.Contains(pages["configuration"], "need a restart: `ipc.socket`, ") {
		t.Error("the page of the configuration does not name the keys that need a restart")
	}
}

func readPage(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// documentNames are all the pages of the repository.
func documentNames(t *testing.T) (names []string) {
	err := filepath.WalkDir("../..", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && slices.Contains([]string{".git", "node_modules", "testdata", "bin", "dist"}, entry.Name()):
			return filepath.SkipDir
		case strings.HasSuffix(path, ".md"):
			names = append(names, path)
		}
		return nil
	})
	if err != nil || len(names) < 20 {
		t.Fatalf("there are the pages %q, %v", names, err)
	}
	return names
}

// testOf reports whether there is a test with a name whose file names a page.
func testOf(t *testing.T, name, page string) bool {
	t.Helper()
	files, err := filepath.Glob("*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if text := readPage(t, file); strings.Contains(text, "func "+name+"(t *testing.T)") && strings.Contains(text, page) {
			return true
		}
	}
	return false
}

// document is the shell part of a page.
type document struct {
	steps []step
	// elsewhere are the tests that run other blocks of it.
	elsewhere []string
}

// step is a file in the page, or a command with its output.
type step struct {
	file, text string
	output     []string
	// tool is the required tool; with is the script to run first, and exit the permitted exit code.
	tool, with, exit string
}

var (
	fence     = regexp.MustCompile("^```([a-z]*)$")
	mark      = regexp.MustCompile(`^<!-- (not run|run by|file|with|where there is|exits):? (\S.*?) -->$`)
	generated = regexp.MustCompile(`^<!-- Made by "make reference" from .* Do not edit\. -->$`)
	// unrunnable is why a block may be one that nothing runs.
	unrunnable = regexp.MustCompile(`^needs (root|hardware|the network): .`)
	// hiddenBlock is a block in a form that is not looked at, or a command in the text.
	hiddenBlock = regexp.MustCompile("^\\s+```|^\\s*~~~|^(    |\t)\\s*\\$ ")

	noise   = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f-]{27}|\b[0-9a-f]{8,}\b|\d+|\b([b-z][aiou][b-z][aiou][b-z] ?\b){4}`)
	pageID  = regexp.MustCompile(`\b(?:(?:tsk|att|eff|grt)_)?[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f-]{22}\b|\b[0-9a-f]{8}\b`)
	release = regexp.MustCompile(`\b(v\d+\.\d+\.\d+|dev)\b`)
	blank   = regexp.MustCompile(`\s+`)
)

// kinds are the languages of blocks without shell commands.
var kinds = []string{"text", "yaml", "json", "rego", "ini", "prose", "diff", "go", "js", "python", "ts"}

// readDocument reads a page, and reports everything in it that could be an untested command.
func readDocument(text string) (d *document, faults []string) {
	d = &document{}
	lines := strings.Split(text, "\n")
	section := map[string]string{} // the marks that hold for the rest of it
	level := 0                     // of the heading that they stand below
	for i := 0; i < len(lines); i++ {
		line := lines[i]
		if heading := len(line) - len(strings.TrimLeft(line, "#")); heading > 0 && heading <= level {
			clear(section)
		}
		if strings.HasPrefix(line, "#") && len(section) == 0 {
			level = len(line) - len(strings.TrimLeft(line, "#"))
		}
		if hiddenBlock.MatchString(line) {
			faults = append(faults, fmt.Sprintf("line %d is a block in a form that is not looked at: %s", i+1, line))
		}
		marks, from := map[string]string{}, i
		for ; i < len(lines) && strings.HasPrefix(lines[i], "<!-- "); i++ {
			if found := mark.FindStringSubmatch(lines[i]); found != nil {
				marks[found[1]] = found[2]
			} else if !generated.MatchString(lines[i]) {
				marks["?"] = lines[i]
			}
		}
		if i == len(lines) {
			break
		}
		opened := fence.FindStringSubmatch(lines[i])
		if opened == nil {
			if strings.HasPrefix(lines[i], "```") {
				faults = append(faults, fmt.Sprintf("line %d: its kind is not known", i+1))
			}
			if i > from && lines[i] == "" {
				maps.Copy(section, marks)
			}
			if i > from {
				i--
			}
			continue
		}
		begin := i + 1
		for i = begin; i < len(lines) && lines[i] != "```"; i++ {
		}
		if len(marks) == 0 {
			marks = section
		}
		for _, fault := range d.block(opened[1], lines[begin:min(i, len(lines))], marks) {
			faults = append(faults, fmt.Sprintf("the block in line %d %s", begin, fault))
		}
	}
	for i, s := range d.steps {
		if s.file != "" && !slices.ContainsFunc(d.steps[i:], func(later step) bool { return later.file == "" && strings.Contains(later.text, s.file) }) {
			faults = append(faults, "nothing names the file "+s.file)
		}
	}
	return d, faults
}

// block adds a block, and reports its faults.
func (d *document) block(kind string, body []string, marks map[string]string) (faults []string) {
	typed := slices.ContainsFunc(body, func(line string) bool { return strings.HasPrefix(line, "$ ") })
	isShell := slices.Contains([]string{"sh", "bash", "console"}, kind)
	switch {
	case marks["?"] != "":
		faults = append(faults, "has the mark "+marks["?"]+", which means nothing")
	case kind == "":
		faults = append(faults, "says nothing of its kind: for a shell (console, sh, bash), or one of "+strings.Join(kinds, ", "))
	case !isShell && !slices.Contains(kinds, kind):
		faults = append(faults, fmt.Sprintf("kind %q is not known", kind))
	case !isShell && typed:
		faults = append(faults, "is one for a shell, and does not say so")
	case marks["file"] != "":
		d.steps = append(d.steps, step{file: marks["file"], text: strings.Join(body, "\n") + "\n"})
	case !isShell:
	case marks["not run"] != "":
		if !unrunnable.MatchString(marks["not run"]) {
			faults = append(faults, "is not run for no reason that counts: needs root, hardware or the network")
		}
	case marks["run by"] == ".ci/run":
		script, err := os.ReadFile("../../.ci/run")
		for _, line := range body {
			command, _, _ := strings.Cut(strings.TrimPrefix(line, "$ "), "#")
			if err != nil || !strings.Contains(string(script), " "+strings.TrimSpace(command)) {
				faults = append(faults, "has a command that .ci/run has not: "+line)
			}
		}
	case marks["run by"] != "":
		d.elsewhere = append(d.elsewhere, marks["run by"])
	case kind == "console" && !typed:
		faults = append(faults, "has no command")
	default:
		with := marks["with"]
		if _, err := os.Stat(filepath.Join(pageWorld, with+".sh")); with != "" && err != nil {
			faults = append(faults, err.Error())
		}
		if kind != "console" {
			d.steps = append(d.steps, step{text: strings.Join(body, "\n"), with: with, tool: marks["where there is"], exit: marks["exits"]})
			break
		}
		for _, line := range body {
			if command, ok := strings.CutPrefix(line, "$ "); ok {
				d.steps = append(d.steps, step{text: command, with: with, tool: marks["where there is"], exit: marks["exits"]})
				with = ""
			} else if strings.TrimSpace(line) != "" {
				last := &d.steps[len(d.steps)-1]
				last.output = append(last.output, line)
			}
		}
	}
	return faults
}

func (d *document) commands() (count int) {
	for _, s := range d.steps {
		if s.file == "" {
			count++
		}
	}
	return count
}

// pageWorld has the surroundings of a page's commands.
const pageWorld = "testdata/pages"

// pageShell is a shell with its own home, which runs a page's commands.
type pageShell struct {
	t       *testing.T
	dir     string
	in, out *os.File
	read    []byte
	names   [2]string         // how the user is called here, and on the pages
	ids     map[string]string // the page's ids, and the real ones
	stuck   bool              // a command has not ended
}

// run runs a page's commands in one shell, in a copy of the page's folder if that has programs.
func (d *document) run(t *testing.T, folder string) {
	dir, err := os.MkdirTemp("", "ocipd")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if strings.HasSuffix(folder, "examples") {
		if err := os.CopyFS(dir, os.DirFS(folder)); err != nil {
			t.Fatal(err)
		}
	}
	s := newPageShell(t, dir)
	for _, step := range d.steps {
		if step.file != "" {
			if err := os.WriteFile(filepath.Join(dir, step.file), []byte(step.text), 0o600); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if step.tool != "" {
			if _, err := exec.LookPath(step.tool); err != nil {
				t.Logf("without %s: $ %s", step.tool, step.text)
				continue
			}
		}
		if step.with != "" {
			if output, exit := s.do(". \"$PAGES/" + step.with + ".sh\""); exit != "0" {
				t.Fatalf("%s.sh ends with %s:\n%s", step.with, exit, output)
			}
		}
		s.try(&step)
	}
}

// newPageShell starts a shell. Its ocipd is the test binary under that name.
func newPageShell(t *testing.T, dir string) *pageShell {
	t.Helper()
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	stand, err := filepath.Abs(pageWorld)
	if err != nil {
		t.Fatal(err)
	}
	bin := filepath.Join(dir, ".bin")
	for _, sub := range []string{bin, filepath.Join(dir, "run")} {
		if err := os.Mkdir(sub, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Link(os.Args[0], filepath.Join(bin, "ocipd")); err != nil {
		program, err := os.ReadFile(os.Args[0])
		if err == nil {
			err = os.WriteFile(filepath.Join(bin, "ocipd"), program, 0o700)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	script, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer script.Close()
	out, said, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer said.Close()
	c := exec.CommandContext(context.WithoutCancel(t.Context()), "bash", "/dev/fd/3") // it ends its own processes
	c.Dir, c.Stdout, c.Stderr, c.ExtraFiles = dir, said, said, []*os.File{script}
	c.Env = []string{
		"PATH=" + bin + ":" + filepath.Join(stand, "bin") + ":" + os.Getenv("PATH"), "HOME=" + dir, "XDG_RUNTIME_DIR=" + dir + "/run", "LANG=C.UTF-8",
		"GORACE=" + os.Getenv("GORACE"), "PAGES=" + stand, "TEST_BINARY=" + os.Args[0],
	}
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	s := &pageShell{t: t, dir: dir, in: in, out: out, names: [2]string{me.Username, "alice"}, ids: map[string]string{}}
	t.Cleanup(func() {
		if !s.stuck {
			s.do(". \"$PAGES/end.sh\"")
		}
		in.Close()
		// Its remaining processes, such as an endless command.
		_ = syscall.Kill(-c.Process.Pid, syscall.SIGKILL)
		_ = c.Wait()
		out.Close()
	})
	s.do("exec 3<&- 2>&1; . \"$PAGES/begin.sh\"")
	return s
}

var ended = regexp.MustCompile(`(?s)^(.*)=== exit (\d+)\n`)

// do types a command, and returns its output and its exit code.
func (s *pageShell) do(command string) (output, exit string) {
	s.t.Helper()
	if err := s.out.SetReadDeadline(time.Now().Add(commandPatience)); err != nil {
		s.t.Fatal(err)
	}
	if _, err := fmt.Fprintf(s.in, "%s\necho \"=== exit $?\"\n", command); err != nil {
		s.t.Fatal(err)
	}
	for {
		if found := ended.FindSubmatch(s.read); found != nil {
			s.read = s.read[len(found[0]):]
			return string(found[1]), string(found[2])
		}
		part := make([]byte, 64<<10)
		n, err := s.out.Read(part)
		if s.read = append(s.read, part[:n]...); err != nil {
			s.stuck = true
			s.t.Fatalf("$ %s\n%v, after\n%s", command, err, s.read)
		}
	}
}

// try runs a step as printed, but with the real ids, and finds the printed lines in the
// output, in order. Numbers, ids and hashes may differ, and … stands for anything.
func (s *pageShell) try(want *step) {
	s.t.Helper()
	command := pageID.ReplaceAllStringFunc(want.text, func(id string) string {
		for page, here := range s.ids {
			if strings.HasSuffix(page, id) {
				return here[len(here)-len(id):]
			}
		}
		return id
	})
	output, exit := s.do(command)
	if !slices.Contains([]string{"0", "5", "6", want.exit}, exit) {
		s.t.Errorf("$ %s\nends with %s:\n%s", command, exit, output)
		return
	}
	lines := strings.Split(output, "\n")
	at := 0
	for _, line := range want.output {
		var like []string
		for part := range strings.SplitSeq(s.plain(line), "…") {
			like = append(like, regexp.QuoteMeta(strings.TrimSpace(part)))
		}
		pattern := regexp.MustCompile("^" + strings.Join(like, ".*") + "$")
		found := slices.IndexFunc(lines[at:], func(got string) bool { return pattern.MatchString(s.plain(got)) })
		if found < 0 {
			s.t.Errorf("$ %s\ndoes not print\n%s\nbut\n%s", command, line, output)
			return
		}
		at += found + 1
		theirs, ours := pageID.FindAllString(line, -1), pageID.FindAllString(lines[at-1], -1)
		if len(theirs) == len(ours) {
			for i := range theirs {
				s.ids[theirs[i]] = ours[i]
			}
		}
	}
}

// plain is a line without the parts that differ between places and runs.
func (s *pageShell) plain(line string) string {
	line = strings.ReplaceAll(line, s.dir, "/home/"+s.names[1])
	line = strings.ReplaceAll(line, "linger "+s.names[0], "linger "+s.names[1])
	line = noise.ReplaceAllString(release.ReplaceAllString(strings.TrimSpace(line), "VERSION"), "#")
	return blank.ReplaceAllString(line, " ")
}
