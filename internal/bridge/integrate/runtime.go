package integrate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/openclawos/ocipd/internal/base/durable"
	"github.com/openclawos/ocipd/internal/bridge/toolmap"
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
	// Changed says in which other way the proxy is started than it is entered by, "" where in
	// none: it may decide by another map, ask another daemon, or be another program.
	Changed string `json:"changed,omitzero"`
	// env are the variables that the list has it started with, and passed those of the
	// runtime's own environment that it has passed to it.
	env    map[string]string
	passed []string
	// Map is the map by which the proxy decides as far as the command line says: what the
	// server says of itself comes before that. It is "" where no command line names one.
	Map string `json:"map,omitzero"`
}

// Gated reports whether what leaves through the server is decided by the daemon.
func (s *Server) Gated() bool { return s.Agent != "" && s.Changed == "" || s.Own }

// Why says in a few words why a server is gated, or is not.
func (s *Server) Why(p *Place) string {
	switch {
	case s.Own:
		return "this daemon's own tools"
	case s.Changed != "":
		return "behind ocipd mcp-proxy in another way than it is entered by (" + s.Changed + "): " + enterAgain
	case s.Agent != "" && s.Map != "":
		return "behind ocipd mcp-proxy, as agent " + s.Agent + ", with the map " + s.Map
	case s.Agent != "":
		return "behind ocipd mcp-proxy, as agent " + s.Agent + "; its messages are guessed, unless a map is for what it says it is (ocipd mcp-proxy explain)"
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
	// Open lists what no proxy gates there. Of an installed version see [Runtime.StaysOpen].
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
	// managed are those of the machine's settings, and switches what else in the runtime's
	// files keeps gates from being asked, as far as they are not the machine's.
	managed  func(*Runtime, *Place) ([]Edit, error)
	switches func(r *Runtime, p *Place, managed bool) ([]off, error)
	// exempts is how the gate is told to leave a server's calls to the proxy.
	exempts func(*Server) string
	// variable is that of the environment which names the folder of its files.
	variable string
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

	// entered is the socket of the daemon by which what is looked at was entered, "" where that is
	// not known, or not what counts.
	entered string

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

// Elsewhere lists servers of which the list is not ours to change.
func (r *Runtime) Elsewhere(p *Place) ([]Server, error) {
	if r.elsewhere == nil {
		return nil, nil
	}
	p, err := r.asEntered(p)
	if err != nil {
		return nil, err
	}
	return r.elsewhere(p)
}

// asEntered is a place in which the daemon is the one by which the runtime's servers were entered: who looks
// may ask another one.
func (r *Runtime) asEntered(p *Place) (*Place, error) {
	k, err := r.kept(p)
	if err != nil {
		return nil, err
	}
	there := *p
	there.entered = k.Socket
	return &there, nil
}

// Servers lists the runtime's servers, by file in the runtime's order.
func (r *Runtime) Servers(p *Place) (list []Server, err error) {
	if p, err = r.asEntered(p); err != nil {
		return nil, err
	}
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
			e.Agent, e.Own, e.Changed = p.behind(&e.Server)
			if e.Agent != "" {
				command, args := p.inner(e)
				e.Map = mapOf(command, args)
			}
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
	nameFlag     = "--name"
	separator    = "--"
)

// finds are the options by which a program of this user finds the daemon.
func (p *Place) finds() []string {
	if p.Socket == "" {
		return p.Options
	}
	return append(slices.Clip(p.Options), "--socket", p.Socket)
}

// before is the command line that starts a server behind the proxy, by its name in the list.
func (p *Place) before(agent, name, command string, args []string) (string, []string) {
	return p.Self, slices.Concat(p.finds(), []string{proxyCommand, agentFlag, agent, tokenFlag, p.Token, nameFlag, name, separator, command}, args)
}

// mapOf is the map that a command line names, "" where it names none.
func mapOf(command string, args []string) string {
	m, err := toolmap.Of("", "", append([]string{command}, args...))
	if err != nil || !m.Known() {
		return ""
	}
	return m.Name
}

// parting is what parts a server's name from a tool's in the names by which runtimes know tools.
const parting = "__"

// named reports whether the proxy knows an entry's server by its name in the list.
func (e *entry) named() bool {
	i := slices.Index(e.Args, nameFlag)
	return i >= 0 && i+1 < len(e.Args) && i < slices.Index(e.Args, separator) && e.Args[i+1] == e.Name
}

// inner is the command that a server behind the proxy is started by.
func (p *Place) inner(e *entry) (command string, args []string) {
	i := slices.Index(e.Args, separator)
	return e.Args[i+1], e.Args[i+2:]
}

// subcommand is the first word of a command line of this program behind the options by which it finds
// its daemon, and what stands behind it.
func subcommand(args []string) (name string, rest []string) {
	for len(args) > 1 && (args[0] == "--config" || args[0] == "--socket") {
		args = args[2:]
	}
	if len(args) == 0 {
		return "", nil
	}
	return args[0], args[1:]
}

// behind reads how a server is started: the agent of a proxy that it starts, whether it is a server of
// this daemon, and in which other way the proxy is started than it is entered by.
func (p *Place) behind(s *Server) (agent string, own bool, changed string) {
	if !p.isSelf(s.Command) && filepath.Base(s.Command) != "ocipd" {
		return "", false, ""
	}
	ours := s.Args
	i := slices.Index(s.Args, separator)
	if i >= 0 {
		ours = s.Args[:i]
	}
	name, rest := subcommand(ours)
	changed = p.strange(s, ours[:len(ours)-len(rest)])
	switch {
	case name == serveCommand || name == gateCommand:
		return "", changed == "", ""
	case name != proxyCommand || i < 0 || i+1 == len(s.Args):
		return "", false, ""
	}
	at := slices.Index(rest, agentFlag)
	if at < 0 || at+1 == len(rest) {
		return "", false, ""
	}
	for n := 0; n < len(rest); n += 2 {
		if want := []string{agentFlag, tokenFlag, nameFlag}; changed == "" && (n/2 >= len(want) || rest[n] != want[n/2] || n+1 == len(rest)) {
			changed = "with " + rest[n]
		}
	}
	if changed == "" && len(rest) < 4 {
		changed = "without " + tokenFlag
	}
	return rest[at+1], false, changed
}

// isSelf reports whether a command is this program.
func (p *Place) isSelf(command string) bool {
	return command == p.Self || command == filepath.Base(command) && p.Getenv != nil && OnPath(p.Getenv, command) == p.Self
}

// daemon is the socket of the daemon that is asked, "" where that is not known.
func (p *Place) daemon() string {
	if i := slices.Index(p.Options, "--socket"); i >= 0 {
		return p.Options[i+1]
	}
	return p.Socket
}

// samePlace reports whether two paths name one file, which need not be there.
func samePlace(a, b string) bool {
	whole := func(path string) string {
		if dir, err := filepath.EvalSymlinks(filepath.Dir(path)); err == nil {
			return filepath.Join(dir, filepath.Base(path))
		}
		return path
	}
	return a == b || whole(a) == whole(b)
}

// strange says why a command line of this program may not ask this daemon, "" where it does: words are those up to
// the sub-command.
func (p *Place) strange(s *Server, words []string) string {
	if !p.isSelf(s.Command) {
		return "by the program " + s.Command
	}
	daemon := cmp.Or(p.entered, p.daemon())
	if i := slices.Index(words, "--socket"); daemon != "" && i >= 0 && !samePlace(words[i+1], daemon) {
		return "asking the daemon at " + words[i+1]
	}
	for _, name := range slices.Concat(slices.Sorted(maps.Keys(s.env)), s.passed) {
		if steers(name) {
			return "with " + name + " in its environment"
		}
	}
	return ""
}

// Line is a command line as people read it. What looks secret in it is masked by show.
func Line(command string, args []string, show func(string) string) string {
	words := make([]string, 0, len(args)+1)
	for _, word := range slices.Concat([]string{command}, args) {
		words = append(words, cmp.Or(show(word), `""`))
	}
	return strings.Join(words, " ")
}
