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
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/openclawos/ocipd/internal/base/durable"
	"github.com/openclawos/ocipd/internal/bridge/hook"
	"github.com/openclawos/ocipd/internal/bridge/settingsfile"
	"github.com/openclawos/ocipd/internal/bridge/toolmap"
)

// Server is one MCP server in a runtime's list.
type Server struct {
	// Name is the server's name in its list. Scope is the folder in which the list applies,
	// or "" for all of the user's work.
	Name  string `json:"name"`
	Scope string `json:"scope,omitzero"`
	File  string `json:"file"`
	// Command and Args start the server. URL is its address if no command starts it.
	Command string   `json:"-"`
	Args    []string `json:"-"`
	URL     string   `json:"-"`
	// Agent is the agent for which the proxy gates the server, or "" if no proxy does.
	Agent string `json:"agent,omitzero"`
	// remote is set for a server over HTTP that a command can replace.
	remote *remote
	// Own is set for a server of ocipd itself, which needs no proxy.
	Own bool `json:"own,omitzero"`
	// Changed says how the proxy's command line differs from the entered one, or is "": it
	// may name another map, another daemon or another program.
	Changed string `json:"changed,omitzero"`
	// env are the variables that the list sets for the server. passed are the variables of
	// the runtime's environment that it passes on.
	env    map[string]string
	passed []string
	// others are members of the entry that a server started by a command does not have. direct is
	// set if the runtime reaches the server by one of them and does not start the command.
	others []string
	direct bool
	// path leads to the entry in its file, for a runtime whose files have several forms of it.
	path []string
	// kind is the type of the server, in the runtime's words.
	kind string
	// source is the runtime's name of a list that is neither the user's nor a project's of the user.
	source string
	// Map is the tool map that the command line names, or "". A map that the server itself
	// provides comes first.
	Map string `json:"map,omitzero"`
}

// Gated reports whether the daemon decides about messages through the server.
func (s *Server) Gated() bool { return s.Agent != "" && s.Changed == "" || s.Own }

// Closable reports whether [Runtime.Behind] may gate a server: one over HTTP only if it needs no login.
func (s *Server) Closable() bool { return s.Command != "" && !s.direct || s.remote != nil }

// Why says briefly why a server is gated or not.
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
	case s.direct:
		return "reached by another member than its command: " + s.others[0]
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
	// Name is the runtime's name on command lines, Title the name for people, and Program
	// its executable.
	Name, Title, Program string
	// Open lists actions that no proxy gates. For an installed version, see
	// [Runtime.StaysOpen].
	Open []string
	// Canary sends a canary through the runtime's gates, and returns their number: as many
	// records must show a refusal. The error is [ErrNotSent], [ErrNoGate] or another failure.
	Canary func(context.Context, *Runtime, *Place, *Canary) (ways int, err error)
	// files are the files that may list its servers.
	files func(*Place) []string
	// read finds the servers in a file.
	read func(file string, text []byte) ([]entry, error)
	// gates returns the edits that make the runtime ask about tool calls; nil if there are none.
	gates func(*Runtime, *Place) ([]Edit, error)
	// managed returns the edits of the machine's settings. switches finds other settings
	// outside the machine's that stop the runtime from asking its gates.
	managed  func(*Runtime, *Place) ([]Edit, error)
	switches func(r *Runtime, p *Place, managed bool) ([]off, error)
	// strays replaces the search of [Runtime.Strays] for a runtime without gates.
	strays func(*Place) ([]Stray, error)
	// member is a member of a server's entry, at a path in it.
	member func(s *Server, path ...string) settingsfile.Item
	// exempts is a server's name in the gate's list of servers that it leaves to the proxy.
	exempts func(*Server) string
	// asked is the command that the runtime asks about calls of tools, or nil, for one that has it in
	// no list of servers.
	asked func(*Place) (*Server, error)
	// toolName is a server's name within the names of its tools; nil for a runtime in which a server
	// of another name cannot be taken for it.
	toolName func(server string) string
	// variable is the environment variable for the folder of the runtime's files.
	variable string
	// least is the oldest version whose gates are known to fail closed.
	least [3]int
	// passes are the environment variables that the runtime passes to its processes; nil for all.
	passes []string
	// row is the runtime's row of hooks, for one whose hooks run a command; otherwise nil.
	row *hook.Row
	// machine is the file of the machine's settings that lists servers; nil if there is none.
	machine func(*Place) string
	// elsewhere finds servers in lists that ocipd does not change.
	elsewhere func(*Place) ([]Server, error)
}

// Place says where the user's files are.
type Place struct {
	// Home is the user's folder.
	Home string
	// Getenv reads a variable of the user's environment.
	Getenv func(string) string
	// Self is the path of this program. Options are its options that find the daemon.
	Self    string
	Options []string
	// Socket is the daemon's socket if Options do not name it. A runtime may not pass on
	// the variables that led to it.
	Socket string
	// Notes is the directory of the notes about changes.
	Notes string
	// Token is the file of the token with which the proxy speaks for the agent.
	Token string
	// Folder is the folder in which the user works, or "".
	Folder string
	// Tools is set if the runtime is to ask about tool calls. Managed is set if the hooks
	// are to be in the machine's settings, which are below Etc.
	Tools, Managed bool
	Etc            string
	// Reach, if set, opens and ends a session with a server over HTTP. A server that needs
	// no login can be put behind the proxy. answers caches the results.
	Reach   func(url string, headers map[string]string) error
	answers map[string]error
	// Hashes, if set, asks Codex for the hashes of hooks, by event.
	Hashes func(p *Place, groups map[string]string) (map[string]string, error)

	// entered is the note about an earlier integration, with which the caller finds it although the
	// caller may use another daemon. It is nil without one, and where nobody needs it.
	entered *kept

	// agent is the agent for which the runtime is put behind the daemon, known in [Runtime.Behind].
	agent string
	// openClawAgent is an agent of OpenClaw, known after a query.
	openClawAgent string
}

// Runtimes are the known runtimes, in the order of display.
func Runtimes() []*Runtime {
	return slices.Concat([]*Runtime{claudeCode, codex, openCode, openClaw}, hookedRuntimes)
}

// Find returns the runtime with a name, or nil.
func Find(name string) *Runtime {
	i := slices.IndexFunc(Runtimes(), func(r *Runtime) bool { return r.Name == name })
	if i < 0 {
		return nil
	}
	return Runtimes()[i]
}

// Installed returns the path of a runtime's program, or "".
func (r *Runtime) Installed(p *Place) string { return OnPath(p.Getenv, r.Program) }

// OnPath returns the path of a program according to the variable PATH of an environment, or "".
func OnPath(getenv func(string) string, program string) string {
	for _, dir := range filepath.SplitList(getenv("PATH")) {
		path := filepath.Join(dir, program)
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return path
		}
	}
	return ""
}

// versionTime bounds the command that prints a program's version. On a busy machine the first start of a
// program in JavaScript was seen to take more than 10 seconds.
const versionTime = 30 * time.Second

// Version returns the first line that a program prints for its version, or "".
func Version(ctx context.Context, program string) string {
	ctx, stop := context.WithTimeout(ctx, versionTime)
	defer stop()
	cmd := exec.CommandContext(ctx, program, "--version")
	cmd.WaitDelay = time.Second // a child process may still hold its output
	out, err := cmd.Output()
	if err != nil {
		return ""
	}
	line, _, _ := strings.Cut(string(out), "\n")
	return strings.TrimSpace(line)
}

// versionNumber finds a version in a program's own words.
var versionNumber = regexp.MustCompile(`[0-9]+\.[0-9]+\.[0-9]+`)

// Number is the number in a program's own words for its version, or these words if there is none.
func Number(version string) string { return cmp.Or(versionNumber.FindString(version), version) }

// hookedRuntimes are those with a row of hooks alone.
var hookedRuntimes = []*Runtime{hooked("gemini"), hooked("copilot"), hooked("cursor"), hooked("goose")}

// Machine reports whether the machine's settings can hold the runtime's gate.
func (r *Runtime) Machine() bool { return r.managed != nil }

// Closes returns an error unless this version's hooks are known to fail closed. version is
// the runtime's own output.
func (r *Runtime) Closes(version string) error {
	var is [3]int
	number := versionNumber.FindString(version)
	if _, err := fmt.Sscanf(number, "%d.%d.%d", &is[0], &is[1], &is[2]); err != nil {
		return fmt.Errorf("cannot tell whether the hooks of %s fail closed: its version is not known (%q)", r.Title, version)
	}
	if slices.Compare(is[:], r.least[:]) < 0 && r.row != nil {
		return fmt.Errorf("%s %s is older than the hooks that ocipd knows of it: %d.%d.%d is needed", r.Title, number, r.least[0], r.least[1], r.least[2])
	}
	if slices.Compare(is[:], r.least[:]) < 0 {
		return fmt.Errorf("the hooks of %s %s fail open: with ocipd stopped every tool would run; %d.%d.%d is needed", r.Title, version, r.least[0], r.least[1], r.least[2])
	}
	return nil
}

// Elsewhere returns the servers in lists that ocipd does not change.
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

// asEntered returns a place with the daemon of the integration, because the caller may use
// another one.
func (r *Runtime) asEntered(p *Place) (*Place, error) {
	k, err := r.kept(p)
	if err != nil {
		return nil, err
	}
	there := *p
	if len(k.Files) > 0 {
		there.entered = k
	}
	return &there, nil
}

// Servers returns the runtime's servers, by file and in the runtime's order.
func (r *Runtime) Servers(p *Place) (list []Server, err error) {
	if p, err = r.asEntered(p); err != nil {
		return nil, err
	}
	return r.listed(p, r.files(p))
}

func (r *Runtime) listed(p *Place, files []string) (list []Server, err error) {
	err = r.each(p, files, func(_, _ string, _ []byte, entries []entry) error {
		for i := range entries {
			list = append(list, entries[i].Server)
		}
		return nil
	})
	return list, err
}

// each reads those files of the runtime that exist, each with the path to which it leads.
func (r *Runtime) each(p *Place, files []string, do func(file, whole string, text []byte, entries []entry) error) error {
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
		if err := do(file, whole, text, entries); err != nil {
			return err
		}
	}
	return nil
}

// entry is a server with the position of its command in the text.
type entry struct {
	Server
	// command and args are the positions of the two. If there are no arguments, args is
	// empty and follows the command.
	command, args span
	// write encodes the two.
	write func(command string, args []string, bare bool) (string, string)
	// raw is the whole server, if it is one piece of text. start replaces the address of a
	// server over HTTP by a command, and back restores the address.
	raw   string
	start func(command string, args []string) []piece
	back  func(e *entry, m *remote, kept []entry) []piece
}

// words describe how to reach a server.
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

// finds are the options with which a program of this user finds the daemon.
func (p *Place) finds() []string {
	if p.Socket == "" {
		return p.Options
	}
	return append(slices.Clip(p.Options), "--socket", p.Socket)
}

// before is the command line that starts a server behind the proxy, under the server's name
// in the list.
func (p *Place) before(agent, name, command string, args []string) (string, []string) {
	return p.Self, slices.Concat(p.finds(), []string{proxyCommand, agentFlag, agent, tokenFlag, p.Token, nameFlag, name, separator, command}, args)
}

// mapOf returns the tool map that a command line names, or "".
func mapOf(command string, args []string) string {
	m, err := toolmap.Of("", "", append([]string{command}, args...))
	if err != nil || !m.Known() {
		return ""
	}
	return m.Name
}

// parting separates the server from the tool in a runtime's names of tools.
const parting = "__"

// named reports whether the proxy's command line gives the server's name in the list.
func (e *entry) named() bool {
	i := slices.Index(e.Args, nameFlag)
	return i >= 0 && i+1 < len(e.Args) && i < slices.Index(e.Args, separator) && e.Args[i+1] == e.Name
}

// inner is the command of the server behind the proxy.
func (p *Place) inner(e *entry) (command string, args []string) {
	i := slices.Index(e.Args, separator)
	return e.Args[i+1], e.Args[i+2:]
}

// subcommand returns the sub-command in a command line of this program, after the options
// that find the daemon, and the words after it.
func subcommand(args []string) (name string, rest []string) {
	for len(args) > 1 && (args[0] == "--config" || args[0] == "--socket") {
		args = args[2:]
	}
	if len(args) == 0 {
		return "", nil
	}
	return args[0], args[1:]
}

// finds reports whether a word names a daemon, or begins to. Behind a sub-command it takes the place of
// one before.
func finds(word string) bool {
	name, _, _ := strings.Cut(word, "=")
	return name == "--config" || name == "--socket"
}

// behind parses a server's command: the agent of its proxy, whether it is one of ocipd's
// own servers, and how the entry differs from the entered one.
func (p *Place) behind(s *Server) (agent string, own bool, changed string) {
	if s.Command != p.Self && filepath.Base(s.Command) != "ocipd" {
		return "", false, ""
	}
	ours := s.Args
	i := slices.Index(s.Args, separator)
	if i >= 0 {
		ours = s.Args[:i]
	}
	name, rest := subcommand(ours)
	changed = p.strange(s, ours[:max(0, len(ours)-len(rest)-1)])
	switch {
	case name == serveCommand || name == gateCommand:
		return "", changed == "" && !slices.ContainsFunc(rest, finds), ""
	case name != proxyCommand || i < 0 || i+1 == len(s.Args):
		return "", false, ""
	}
	at := slices.Index(rest, agentFlag)
	if at < 0 || at+1 == len(rest) {
		return "", false, ""
	}
	return rest[at+1], false, cmp.Or(changed, p.loosened(rest))
}

// loosened says how the options of the proxy differ from the entered ones, or is "".
func (p *Place) loosened(words []string) string {
	want := []string{agentFlag, "", tokenFlag, "", nameFlag}
	if k := p.entered; k != nil {
		want[1], want[3] = k.Agent, k.Token
	}
	for n, word := range words {
		switch {
		case n%2 == 0 && (n >= len(want) || word != want[n] || n+1 == len(words)):
			return "with " + word
		case n%2 == 1 && n < len(want) && want[n] != "" && word != want[n]:
			return "with " + words[n-1] + " " + word
		}
	}
	if len(words) < 4 {
		return "without " + tokenFlag
	}
	return ""
}

// daemon is the socket of the daemon in use, or "" if it is unknown.
func (p *Place) daemon() string {
	if i := slices.Index(p.Options, "--socket"); i >= 0 {
		return p.Options[i+1]
	}
	return p.Socket
}

// samePlace reports whether two paths name one file, which need not exist.
func samePlace(a, b string) bool {
	whole := func(path string) string {
		if dir, err := filepath.EvalSymlinks(filepath.Dir(path)); err == nil {
			return filepath.Join(dir, filepath.Base(path))
		}
		return path
	}
	return a == b || whole(a) == whole(b)
}

// strange says why an entry of this program may not ask this daemon, or may not start it as it
// was entered, or is "". finds are the words before the sub-command.
func (p *Place) strange(s *Server, finds []string) string {
	switch {
	case s.Command != p.Self:
		return "by the program " + s.Command
	case len(s.others) > 0:
		return "with " + s.others[0]
	}
	if why := p.asksAnother(finds); why != "" {
		return why
	}
	for _, name := range slices.Concat(slices.Sorted(maps.Keys(s.env)), s.passed) {
		if steers(name) {
			return "with " + name + " in its environment"
		}
	}
	return ""
}

// asksAnother says how the options that find the daemon differ from the entered ones, or is
// "". What was entered is not known of an entry that a person wrote, and of one of an earlier
// version: it may leave out the socket, or name the known one once.
func (p *Place) asksAnother(finds []string) string {
	daemon, options := p.daemon(), p.Options
	if k := p.entered; k != nil {
		if daemon = cmp.Or(k.Socket, daemon); k.Finds != nil {
			options = k.Finds
		}
	}
	seen := make(map[string]bool)
	for i := 0; i+1 < len(finds); i += 2 {
		name, value := finds[i], finds[i+1]
		switch at := slices.Index(options, name); {
		case seen[name]:
			return "with " + name + " twice"
		case name == "--socket" && daemon != "" && !samePlace(value, daemon):
			return "asking the daemon at " + value
		case name == "--config" && (at < 0 || !samePlace(value, options[at+1])):
			return "with --config " + value
		}
		seen[name] = true
	}
	if k := p.entered; k != nil {
		for i := 0; i+1 < len(k.Finds); i += 2 {
			if !seen[k.Finds[i]] {
				return "without " + k.Finds[i]
			}
		}
	}
	return ""
}

// Line formats a command line for people. show masks secrets.
func Line(command string, args []string, show func(string) string) string {
	words := make([]string, 0, len(args)+1)
	for _, word := range slices.Concat([]string{command}, args) {
		words = append(words, cmp.Or(show(word), `""`))
	}
	return strings.Join(words, " ")
}
