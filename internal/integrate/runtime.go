package integrate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/openclawos/ocipd/internal/durable"
)

// Server is one MCP server in a runtime's list.
type Server struct {
	// Name is the server's in its list, and Scope where the list holds: a folder, or ""
	// for all of the user's work.
	Name  string `json:"name"`
	Scope string `json:"scope,omitzero"`
	File  string `json:"file"`
	// Command and Args start it, and URL is where it is reached if nobody starts it.
	Command string   `json:"-"`
	Args    []string `json:"-"`
	URL     string   `json:"-"`
	// Agent is the agent under which the proxy gates it, "" where none does.
	Agent string `json:"agent,omitzero"`
	// remote is the server that is reached over HTTP, where a command can take its place.
	remote *remote
	// Own is set for a server of this daemon, which decides by itself.
	Own bool `json:"own,omitzero"`
}

// Gated reports whether what leaves through the server is decided by the daemon.
func (s *Server) Gated() bool { return s.Agent != "" || s.Own }

// Why says in a few words why a server is gated, or is not.
func (s *Server) Why(p *Place) string {
	switch {
	case s.Own:
		return "this daemon's own tools"
	case s.Agent != "":
		return "behind ocipd mcp-proxy, as agent " + s.Agent
	case s.URL != "" && s.remote == nil:
		return "reached over HTTP, with settings that no command can have"
	case s.URL != "" && p.Reach != nil:
		return fmt.Sprintf("reached over HTTP: %v", p.reached(s.remote))
	case s.URL != "":
		return "reached over HTTP: not behind the proxy"
	case s.Command == "":
		return "has no command"
	}
	return "not behind the proxy"
}

// Runtime is a program that runs agents.
type Runtime struct {
	// Name is what the command line calls it, Title what people do, and Program its
	// executable.
	Name, Title, Program string
	// Open lists what no proxy gates there.
	Open []string
	// Canary sends a canary through the runtime's gate, and returns in how many ways: as many
	// records have to refuse it. An error is why it could not: [ErrNotSent], [ErrNoGate], or
	// what failed.
	Canary func(context.Context, *Runtime, *Place, *Canary) (ways int, err error)
	// files are those in which its servers may be listed.
	files func(*Place) []string
	// read finds the servers of a file.
	read func(file string, text []byte) ([]entry, error)
	// gates are what has the runtime ask about calls of tools, nil where nothing has.
	gates func(*Runtime, *Place) ([]Edit, error)
	// least is the oldest version whose gates are known to fail closed, as three numbers.
	least [3]int
	// passes are the variables of its environment that what it starts is given, nil for all.
	passes []string
	// machine is the file in which the machine's settings have servers, nil where none has.
	machine func(*Place) string
	// elsewhere finds servers of which the list is not ours to change.
	elsewhere func(*Place) ([]Server, error)
}

// Place is where the user's files are.
type Place struct {
	// Home is the user's folder.
	Home string
	// Getenv reads a variable of the user's environment.
	Getenv func(string) string
	// Self is the path of this program, and Options what it was told to find its daemon.
	Self    string
	Options []string
	// Socket is the daemon's, where Options do not name it. A runtime need not give what it
	// starts the variables by which it was found.
	Socket string
	// Notes is the directory in which it is kept what was changed.
	Notes string
	// Token is the file of the token by which the proxy speaks for the agent.
	Token string
	// Tools is set where the runtime is to ask about calls of tools. Managed is set where
	// that is to stand in the machine's own settings, which are below Etc.
	Tools, Managed bool
	Etc            string
	// Reach, where set, begins a session with a server over HTTP and ends it again: one that
	// wants no login can be put behind the proxy. The answers are kept.
	Reach   func(url string, headers map[string]string) error
	answers map[string]error
	// Hashes, where set, asks Codex by which hashes it knows hooks, by event.
	Hashes func(p *Place, groups map[string]string) (map[string]string, error)

	// openClawAgent is an agent of OpenClaw, once it was asked for them.
	openClawAgent string
}

// Runtimes are those that are known, in the order in which they are shown.
func Runtimes() []*Runtime { return []*Runtime{claudeCode, codex, openClaw} }

// Find returns the runtime of a name, nil where there is none.
func Find(name string) *Runtime {
	i := slices.IndexFunc(Runtimes(), func(r *Runtime) bool { return r.Name == name })
	if i < 0 {
		return nil
	}
	return Runtimes()[i]
}

// Installed returns the path of a runtime's program, "" where there is none.
func (r *Runtime) Installed(p *Place) string { return OnPath(p.Getenv, r.Program) }

// OnPath returns where a program is, by the variable PATH of an environment, "" where
// there is none.
func OnPath(getenv func(string) string, program string) string {
	for _, dir := range filepath.SplitList(getenv("PATH")) {
		path := filepath.Join(dir, program)
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return path
		}
	}
	return ""
}

// versionTime bounds how long a program may take to tell its version.
const versionTime = 10 * time.Second

// Version is the first line that a program prints of its version, "" where it tells
// none.
func Version(ctx context.Context, program string) string {
	ctx, stop := context.WithTimeout(ctx, versionTime)
	defer stop()
	cmd := exec.CommandContext(ctx, program, "--version")
	cmd.WaitDelay = time.Second // what it has started may have its output
	out, err := cmd.Output()
	if err != nil {
		return ""
	}
	line, _, _ := strings.Cut(string(out), "\n")
	return strings.TrimSpace(line)
}

// Closes reports, by what a runtime prints of its version, whether its hooks are known to
// fail closed.
func (r *Runtime) Closes(version string) error {
	var is [3]int
	if _, err := fmt.Sscanf(strings.TrimLeft(version, "abcdefghijklmnopqrstuvwxyz- "), "%d.%d.%d", &is[0], &is[1], &is[2]); err != nil {
		return fmt.Errorf("cannot tell whether the hooks of %s fail closed: its version is not known (%q)", r.Title, version)
	}
	if slices.Compare(is[:], r.least[:]) < 0 {
		return fmt.Errorf("the hooks of %s %s fail open: with ocipd stopped every tool would run; %d.%d.%d is needed", r.Title, version, r.least[0], r.least[1], r.least[2])
	}
	return nil
}

// Tools reports whether the runtime asks about calls of tools, and why, or why not: "" for
// one that has another gate.
func (r *Runtime) Tools(p *Place) (asks bool, why string, err error) {
	if r.gates == nil {
		return false, "", nil
	}
	for _, managed := range []bool{true, false} {
		there := *p
		there.Managed, there.Hashes = managed, nil
		edits, err := r.gates(r, &there)
		if err != nil {
			return false, "", err
		}
		all := true
		for i := range edits {
			if edits[i].Out {
				continue
			}
			entered, err := edits[i].stands()
			if err != nil {
				return false, "", err
			}
			all = all && entered
		}
		switch {
		case all && managed:
			return true, "decided by the daemon before each call; in the machine's settings, which no user can switch off", nil
		case all:
			return true, "decided by the daemon before each call", nil
		}
	}
	return false, "nobody asks the daemon about them", nil
}

// Elsewhere lists servers of which the list is not ours to change.
func (r *Runtime) Elsewhere(p *Place) ([]Server, error) {
	if r.elsewhere == nil {
		return nil, nil
	}
	return r.elsewhere(p)
}

// Servers lists the runtime's servers, by file in the runtime's order.
func (r *Runtime) Servers(p *Place) (list []Server, err error) {
	return r.listed(p, r.files(p))
}

func (r *Runtime) listed(p *Place, files []string) (list []Server, err error) {
	err = r.each(p, files, func(_ string, _ []byte, entries []entry) error {
		for i := range entries {
			list = append(list, entries[i].Server)
		}
		return nil
	})
	return list, err
}

// each reads files of the runtime, those that are there.
func (r *Runtime) each(p *Place, files []string, do func(file string, text []byte, entries []entry) error) error {
	for _, file := range files {
		whole, err := filepath.EvalSymlinks(file)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		text, err := durable.ReadFile(whole)
		if err != nil {
			return err
		}
		entries, err := r.read(file, text)
		if err != nil {
			return err
		}
		for i := range entries {
			e := &entries[i]
			e.File = file
			e.Agent, e.Own = p.behind(e.Command, e.Args)
		}
		if err := do(whole, text, entries); err != nil {
			return err
		}
	}
	return nil
}

// entry is a server, and where its command stands in the text.
type entry struct {
	Server
	// command and args are where the two stand; args is empty behind the command where
	// there are none.
	command, args span
	// write writes the two.
	write func(command string, args []string, bare bool) (string, string)
	// raw is the whole server as it stands, where that is one piece. With start a server that
	// is reached over HTTP is started by a command, and with back one that was is reached
	// again.
	raw   string
	start func(command string, args []string) []piece
	back  func(e *entry, m *remote, kept []entry) []piece
}

// words are how a server is come to.
func (s *Server) words() []string {
	if s.Command == "" {
		return []string{s.URL}
	}
	return slices.Concat([]string{s.Command}, s.Args)
}

type span struct{ begin, end int }

// Words of the command line that puts a server behind the proxy.
const (
	proxyCommand = "mcp-proxy"
	serveCommand = "mcp"
	gateCommand  = "tool-gate"
	agentFlag    = "--agent"
	tokenFlag    = "--token-file"
	separator    = "--"
)

// finds are the options by which a program of this user finds the daemon.
func (p *Place) finds() []string {
	if p.Socket == "" {
		return p.Options
	}
	return append(slices.Clip(p.Options), "--socket", p.Socket)
}

// before is the command line that starts a server behind the proxy.
func (p *Place) before(agent, command string, args []string) (string, []string) {
	return p.Self, slices.Concat(p.finds(), []string{proxyCommand, agentFlag, agent, tokenFlag, p.Token, separator, command}, args)
}

// inner is the command that a server behind the proxy is started by.
func (p *Place) inner(e *entry) (command string, args []string) {
	i := slices.Index(e.Args, separator)
	return e.Args[i+1], e.Args[i+2:]
}

// behind reads a command line: the agent of a proxy that it starts, and whether it
// starts a server of this daemon.
func (p *Place) behind(command string, args []string) (agent string, own bool) {
	if command != p.Self && filepath.Base(command) != "ocipd" {
		return "", false
	}
	ours := args
	i := slices.Index(args, separator)
	if i >= 0 {
		ours = args[:i]
	}
	if slices.Contains(ours, serveCommand) || slices.Contains(ours, gateCommand) {
		return "", true
	}
	at := slices.Index(ours, agentFlag)
	if !slices.Contains(ours, proxyCommand) || at < 0 || at+1 == len(ours) || i < 0 || i+1 == len(args) {
		return "", false
	}
	return ours[at+1], false
}

// asEntered is the agent of a proxy that a server is behind just as it is entered here, "" where
// it is in any other way: whoever works on a project says what its file starts, also by the
// name of this program, and with options by which it decides nothing.
func (p *Place) asEntered(s *Server) (agent string) {
	if agent, _ = p.behind(s.Command, s.Args); agent == "" {
		return ""
	}
	inner, args := p.inner(&entry{Server: *s})
	if command, want := p.before(agent, inner, args); command != s.Command || !slices.Equal(want, s.Args) {
		return ""
	}
	return agent
}

// Line is a command line as people read it. What looks secret in it is masked by show.
func Line(command string, args []string, show func(string) string) string {
	words := make([]string, 0, len(args)+1)
	for _, word := range slices.Concat([]string{command}, args) {
		words = append(words, cmp.Or(show(word), `""`))
	}
	return strings.Join(words, " ")
}
