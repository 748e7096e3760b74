package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/openclawos/ocipd/internal/buildtest"
)

// TestDocuments runs every command that the documents print for a shell, as printed
// and in order, and finds the printed output in what it prints. A block that cannot be
// run here says why, in a comment above it: <!-- not run: REASON -->.
func TestDocuments(t *testing.T) {
	for _, tool := range []string{"bash", "jq", "ssh-keygen"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("the documents need %s", tool)
		}
	}
	ran, skipped := 0, 0
	for _, name := range documentNames(t) {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		// The attacks of AUDIT.md are printed and checked by TestAttacks.
		d := readDocument(string(text), filepath.Base(name) != "AUDIT.md")
		if !slices.Contains(ranElsewhere, filepath.Base(name)) {
			for _, body := range d.silent {
				t.Errorf("%s: a block for the shell is not run, and no mark says why:\n%s", strings.TrimPrefix(name, "../../"), body)
			}
		}
		ran, skipped = ran+len(d.commands), skipped+d.skipped
		if len(d.commands) > 0 {
			t.Run(strings.TrimPrefix(name, "../../"), func(t *testing.T) {
				t.Parallel()
				d.run(t, filepath.Dir(name))
			})
		}
	}
	if ran < 20 {
		t.Errorf("only %d commands are run, of %d blocks none", ran, skipped)
	}
}

// ranElsewhere are the pages whose blocks for the shell have a test of their own:
// TestRecipes, and in e2e the page of tasks.
var ranElsewhere = []string{"AUDIT.md", "TASKS.md"}

// TestDocumentsName finds every command that a page names in its text, or shows in a block
// that is not run, with its flags.
func TestDocumentsName(t *testing.T) {
	named := regexp.MustCompile("(?m)^\\$ (ocipd [^\n]*)$|[^`]`(ocipd [^`\n]*)`")
	seen := map[string]bool{}
	for _, name := range documentNames(t) {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range named.FindAllStringSubmatch(string(text), -1) {
			line, _, _ := strings.Cut(found[1]+found[2], "…")
			line = strings.NewReplacer("[", "", "]", "").Replace(line)
			if seen[line] || strings.HasSuffix(line, " v1") { // what a signature is over begins like a command
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

// documentNames are the documents that show commands.
func documentNames(t *testing.T) []string {
	names, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	return append(names, "../../README.md", "../../examples/README.md", "../../CONTRIBUTING.md")
}

// document is what of a page is for a shell.
type document struct {
	steps    []step
	commands []*command
	skipped  int
	// silent are the blocks for the shell that are not run and say nothing of it.
	silent []string
}

// step is a file that the page shows, or a command.
type step struct {
	file, text string
	command    *command
}

type command struct {
	line   string
	output []string
}

var (
	block = regexp.MustCompile("(?ms)^(?:<!-- ([a-z ]+): ([^\n]*?) -->\n)?```([a-z]*)\n(.*?)^```$")
	noise = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f-]{27}|\b[0-9a-f]{8,}\b|\d+`)
	blank = regexp.MustCompile(`\s+`)
)

func readDocument(text string, plainToo bool) (d document) {
	for _, found := range block.FindAllStringSubmatch(text, -1) {
		mark, value, kind, body := found[1], found[2], found[3], found[4]
		switch {
		case mark == "tour":
			d.steps = append(d.steps, step{file: value, text: body})
		case (kind == "sh" || kind == "bash") && mark != "not run":
			d.silent = append(d.silent, body)
		case kind != "console" && (kind != "" || !plainToo || !strings.HasPrefix(body, "$ ")):
		case mark == "not run":
			d.skipped++
		default:
			var last *command
			for line := range strings.Lines(body) {
				line = strings.TrimRight(line, "\n")
				if typed, ok := strings.CutPrefix(line, "$ "); ok {
					last = &command{line: typed}
					d.commands = append(d.commands, last)
					d.steps = append(d.steps, step{command: last})
				} else if last != nil && strings.TrimSpace(line) != "" {
					last.output = append(last.output, line)
				}
			}
		}
	}
	return d
}

// run runs a page's commands in one shell, in a copy of the page's folder where that
// has programs.
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
	bin := filepath.Join(dir, ".bin")
	if err := os.Mkdir(bin, 0o700); err != nil {
		t.Fatal(err)
	}
	program := fmt.Sprintf("#!/bin/sh\nexec env %s=1 GORACE=%s %s \"$@\"\n", asProgram, os.Getenv("GORACE"), os.Args[0])
	buildtest.Executable(t, filepath.Join(bin, "ocipd"), program)
	var script strings.Builder
	script.WriteString("trap 'kill $(jobs -p) 2>/dev/null; wait' EXIT\n")
	for i, s := range d.steps {
		if s.command == nil {
			if err := os.WriteFile(filepath.Join(dir, s.file), []byte(s.text), 0o600); err != nil {
				t.Fatal(err)
			}
			continue
		}
		fmt.Fprintf(&script, "echo '=== %d'\n%s\necho \"=== exit $?\"\n", i, s.command.line)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	c := exec.CommandContext(ctx, "bash", "-c", script.String())
	c.WaitDelay = 5 * time.Second
	c.Dir = dir
	c.Env = []string{"PATH=" + bin + ":" + os.Getenv("PATH"), "HOME=" + dir, "XDG_CONFIG_HOME=" + dir + "/.config", "XDG_STATE_HOME=" + dir + "/.state",
		"XDG_RUNTIME_DIR=" + dir + "/run", "LANG=C.UTF-8"}
	if err := os.Mkdir(dir+"/run", 0o700); err != nil {
		t.Fatal(err)
	}
	out, err := c.CombinedOutput()
	if err != nil {
		t.Errorf("the shell ended with %v", err)
	}
	parts := strings.Split(string(out), "=== ")
	for i, s := range d.steps {
		if s.command == nil {
			continue
		}
		at := slices.IndexFunc(parts, func(p string) bool { return strings.HasPrefix(p, fmt.Sprintf("%d\n", i)) })
		if at < 0 || at+1 >= len(parts) {
			t.Errorf("$ %s\nwas not run:\n%s", s.command.line, out)
			continue
		}
		s.command.compare(t, parts[at], strings.TrimSpace(parts[at+1]))
	}
}

// compare finds the printed lines in the output, in order. Numbers, ids and hashes are
// as they come, and … stands for anything.
func (c *command) compare(t *testing.T, output, exit string) {
	if !slices.Contains([]string{"exit 0", "exit 5", "exit 6"}, exit) {
		t.Errorf("$ %s\nends with %s:\n%s", c.line, exit, output)
		return
	}
	lines := strings.Split(output, "\n")
	for i := range lines {
		lines[i] = plain(lines[i])
	}
	at := 0
	for _, want := range c.output {
		var like []string
		for part := range strings.SplitSeq(plain(want), "…") {
			like = append(like, regexp.QuoteMeta(strings.TrimSpace(part)))
		}
		pattern := regexp.MustCompile("^" + strings.Join(like, ".*") + "$")
		found := slices.IndexFunc(lines[at:], pattern.MatchString)
		if found < 0 {
			t.Errorf("$ %s\ndoes not print\n%s\nbut\n%s", c.line, want, output)
			return
		}
		at += found + 1
	}
}

func plain(line string) string {
	return blank.ReplaceAllString(noise.ReplaceAllString(strings.TrimSpace(line), "#"), " ")
}
