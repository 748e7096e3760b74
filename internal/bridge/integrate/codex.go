package integrate

import (
	"bytes"
	"fmt"
	"github.com/openclawos/ocipd/internal/bridge/settingsfile"
	"path/filepath"
	"slices"
	"strings"

	"github.com/openclawos/ocipd/internal/ocip/directory"
	"github.com/pelletier/go-toml/v2/unstable"
)

// codex keeps its servers in the tables mcp_servers.NAME of its configuration.
var codex = &Runtime{
	Name: "codex", Title: directory.TitleOf("codex"), Program: "codex",
	Open: []string{
		typedOpen,
		codeOpen,
		"a call of its own tools that the hook does not answer in time: Codex runs it",
	},
	files: codexFiles, read: readCodex, gates: codexGates, managed: codexManaged, switches: codexSwitches, Canary: tryCommands,
	variable: codexVariable, member: codexMember,
	exempts: func(s *Server) string { return codexName(s.Name) }, toolName: codexName,
	machine: codexMachine, elsewhere: codexElsewhere,
	// It passes other variables only to servers that name them.
	passes: []string{"HOME", "LOGNAME", "PATH", "SHELL", "USER", "LANG", "LC_ALL", "TERM", "TMPDIR", "TZ"},
	least:  [3]int{0, 169, 0},
}

const codexVariable = "CODEX_HOME"

// typedOpen and codeOpen are actions about which Codex may not ask its hooks. A trial can
// show that a version does.
const (
	typedOpen = "what is typed into a shell that is open (write_stdin): Codex asks no hook about it"
	codeOpen  = "the calls that scripts of Code Mode (exec) make, which is off by default: not every Codex asks a hook about them"
)

func codexFiles(p *Place) []string {
	dir := filepath.Join(p.Home, ".codex")
	if own := p.Getenv(codexVariable); own != "" {
		dir = own
	}
	return []string{filepath.Join(dir, "config.toml")}
}

// codexMachine is a file whose members override all users' settings and the command line.
func codexMachine(p *Place) string { return filepath.Join(p.Etc, "codex", "managed_config.toml") }

// ownFolders are variables for the folders of the user's files and of the daemon's socket.
var ownFolders = []string{"XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR"}

const serversTable = "mcp_servers"

func (s *codexServer) server() Server {
	return Server{Name: s.name, Command: s.Command, Args: s.Args, URL: s.URL, remote: s.remote(), env: s.env(), passed: s.passed(), others: s.others(), direct: s.direct()}
}

// readCodex finds the servers and the positions of their commands.
func readCodex(file string, text []byte) (list []entry, err error) {
	servers, err := codexServers(file, text)
	if err != nil {
		return nil, err
	}
	for _, s := range servers {
		e := entry{Server: s.server(), write: writeTOML, back: s.back}
		if e.remote != nil {
			e.command, _ = s.whole("url")
			e.start = s.start
		}
		if s.Command != "" {
			at, ok := s.place("command")
			if !ok {
				return nil, fmt.Errorf("%s: cannot tell where the command of mcp_servers.%s stands; write it as a table of its own: [mcp_servers.%s]", file, s.name, s.name)
			}
			e.command, e.args = at, span{at.end, at.end}
			if at, ok := s.place("args"); ok {
				e.args = at
			}
		}
		list = append(list, e)
	}
	return list, nil
}

// writeTOML encodes a command and its arguments. A JSON string is a TOML string, except for
// the one control character that JSON does not escape.
func writeTOML(command string, args []string, bare bool) (string, string) {
	first, list := writeJSON(command, args, false)
	if bare {
		list = "\nargs = " + list
	}
	hide := strings.NewReplacer("\x7f", `\u007f`)
	return hide.Replace(first), hide.Replace(list)
}

// tomlTable holds the positions of values in the servers' tables.
type tomlTable struct {
	order []string
	// at has the positions of values by server and key. lines has those of the keys with
	// their values, if they are in the server's own table.
	at, lines map[[2]string]span
}

func (t *tomlTable) of(server, key string) (span, bool) {
	at, ok := t.at[[2]string{server, key}]
	return at, ok
}

func tomlPlaces(text []byte) (*tomlTable, error) {
	found, known := &tomlTable{at: make(map[[2]string]span), lines: make(map[[2]string]span)}, make(map[string]bool)
	var table []string
	var p unstable.Parser
	p.Reset(text)
	for p.NextExpression() {
		e := p.Expression()
		if e.Kind == unstable.Table || e.Kind == unstable.ArrayTable {
			table = settingsfile.KeyOf(e.Key())
			found.meet(table, known)
		}
		if e.Kind != unstable.KeyValue {
			continue
		}
		key := append(slices.Clip(table), settingsfile.KeyOf(e.Key())...)
		found.meet(key, known)
		if len(key) != 3 || key[0] != serversTable {
			continue
		}
		value, name := e.Value(), [2]string(key[1:])
		if value.Kind == unstable.String {
			found.at[name] = span{int(value.Raw.Offset), int(value.Raw.Offset + value.Raw.Length)}
		}
		if value.Kind == unstable.Array {
			at, err := arrayAt(text, e)
			if err != nil {
				return nil, err
			}
			found.at[name] = at
		}
		if at, ok := found.at[name]; ok && len(table) == 2 {
			if parts := e.Key(); parts.Next() {
				found.lines[name] = span{int(parts.Node().Raw.Offset), at.end}
			}
		}
	}
	return found, p.Error()
}

// meet notes a server in the file's order.
func (t *tomlTable) meet(key []string, known map[string]bool) {
	if len(key) >= 2 && key[0] == serversTable && !known[key[1]] {
		known[key[1]] = true
		t.order = append(t.order, key[1])
	}
}

// arrayAt finds the position of an array of strings, which the parser does not report. It
// starts at the bracket after the key and ends after the bracket that follows the last string.
func arrayAt(text []byte, e *unstable.Node) (at span, err error) {
	end := 0
	for parts := e.Key(); parts.Next(); {
		end = int(parts.Node().Raw.Offset + parts.Node().Raw.Length)
	}
	open := bytes.IndexByte(text[end:], '[')
	if open < 0 {
		return at, fmt.Errorf("an array without a beginning")
	}
	at.begin = end + open
	end = at.begin + 1
	for items := e.Value().Children(); items.Next(); {
		if raw := items.Node().Raw; raw.Length > 0 {
			end = int(raw.Offset + raw.Length)
		}
	}
	for ; end < len(text); end++ {
		switch text[end] {
		case ']':
			at.end = end + 1
			return at, nil
		case '#':
			end += strings.IndexByte(string(text[end:])+"\n", '\n')
		case ',', ' ', '\t', '\r', '\n':
		default:
			return at, fmt.Errorf("an array of something else than texts")
		}
	}
	return at, fmt.Errorf("an array without an end")
}
