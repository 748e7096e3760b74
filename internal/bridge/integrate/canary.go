package integrate

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/base/durable"
	"github.com/openclawos/ocipd/internal/bridge/toolgate"
)

// canaryChannel has no app, so a canary reaches nobody even if a gate lets it through.
const canaryChannel = toolgate.Canary

// Canary is a message that tests a runtime's gate. Either an agent of the runtime sends it in a
// real turn, or ocipd starts the gate that the runtime's files name and asks it as the runtime
// would. The test passes if the daemon refused the message and recorded it. The message is
// marked TLP:RED, so the daemon refuses it from any sender, and it contains no secret.
type Canary struct {
	// ID is unique. Target is the canary's receiver in the channel of Session.
	ID, Target string
	// Session is the session key that finds the canary's record.
	Session string
	Text    string
}

// NewCanary returns a canary with a unique id.
func NewCanary(id string) *Canary {
	return &Canary{
		ID: id, Target: id, Session: canaryChannel + ":" + id,
		Text: "TLP:RED\nThis is a canary of ocipd, " + id + ". It tries a gate, and is for nobody.",
	}
}

// CanaryTime bounds a canary, including the agent's turn.
const CanaryTime = 2 * time.Minute

// ErrNotSent means that the runtime's agent did not try to send the canary, so the gate was
// not tested.
var ErrNotSent = errors.New("the agent did not send it, so nothing was tried")

// ErrNoGate means that the runtime's files contain no gate to test.
var ErrNoGate = errors.New("nothing in its files asks the daemon, so nothing was tried")

// Record is the log's record of a canary.
type Record struct {
	Seq     uint64
	Refused bool
	Reason  string
}

// Try has a runtime, or the gate in its files, send a canary. It then looks for the canary in the
// log with find, which returns the records of a session. A nil error means that the gate worked.
func (r *Runtime) Try(ctx context.Context, p *Place, c *Canary, find func(ctx context.Context, session string) ([]Record, error)) (Record, error) {
	ctx, stop := context.WithTimeout(ctx, CanaryTime)
	defer stop()
	ways, failed := r.Canary(ctx, r, p, c)
	records, err := find(context.WithoutCancel(ctx), c.Session)
	passed := slices.IndexFunc(records, func(r Record) bool { return !r.Refused })
	switch {
	case err != nil:
		return Record{}, fmt.Errorf("cannot look for the canary in the log: %w", err)
	case passed >= 0:
		return Record{}, fmt.Errorf("the daemon has let the canary of %s pass, see record %d", r.Title, records[passed].Seq)
	case ways > 0 && len(records) >= ways:
		return records[0], nil
	case failed != nil:
		return Record{}, fmt.Errorf("the canary of %s: %w", r.Title, failed)
	}
	return Record{}, fmt.Errorf("a canary of %s was sent, and the daemon was not asked: the gate is open", r.Title)
}

// tryCommands starts the gates in a runtime's files as the runtime does, and asks them about a
// canary: the server that the hooks ask, and each different proxy, with a server of ocipd in
// place of the user's. It uses no agent and no model, and starts none of the user's servers.
func tryCommands(ctx context.Context, r *Runtime, p *Place, c *Canary) (ways int, err error) {
	servers, err := r.Servers(p)
	if err != nil {
		return 0, err
	}
	own := len(servers)
	if r.machine != nil {
		shared, err := r.listed(p, []string{r.machine(p)})
		if err != nil {
			return 0, err
		}
		servers = append(servers, shared...)
	}
	if r.asked != nil {
		gate, err := r.asked(p)
		if err != nil {
			return 0, err
		}
		if gate != nil {
			servers, own = slices.Insert(servers, 0, *gate), own+1
		}
	}
	var tried []string
	var failed error
	for i := range servers {
		s := &servers[i]
		env := r.environment(p, s, i >= own)
		switch gate := s.Name == gateServer && s.Scope == ""; {
		case gate:
			if asks, why, _, err := r.tools(p, true); err != nil || !asks {
				return 0, errors.Join(fmt.Errorf("its own tools: %s", why), err)
			}
			ways++
			said, _, err := toolgate.Ask(ctx, env, s.Command, s.Args, toolgate.Tool, (&toolgate.CanaryCall{To: c.Target, Text: c.Text}).Question())
			if err == nil && !toolgate.Refused(said) {
				return 0, fmt.Errorf("the server that its hooks ask has answered %q", said)
			}
			if why := toolgate.Undecided(said); why != "" {
				err = fmt.Errorf("its gate refuses every call, since the daemon does not decide for the token %s: %s. If the token is not valid any more, delete the file and run ocipd integrate %s again", p.Token, why, r.Name)
			}
			failed = errors.Join(failed, err)
		case s.Agent != "":
			before := slices.Clone(s.Args[:slices.Index(s.Args, separator)])
			if at := slices.Index(before, nameFlag); at >= 0 && at+1 < len(before) {
				before = slices.Delete(before, at, at+2) // they differ in that alone
			}
			key := strings.Join(slices.Concat([]string{s.Command}, before, env), "\x00")
			if slices.Contains(tried, key) {
				continue
			}
			tried = append(tried, key)
			ways++
			failed = errors.Join(failed, r.tryProxy(ctx, p, env, s.Command, before, c))
		}
	}
	if ways == 0 {
		return 0, ErrNoGate
	}
	return ways, failed
}

// environment is the environment in which a runtime starts a server: variables for all
// servers, then those for this one. The server may be in the machine's settings.
func (r *Runtime) environment(p *Place, s *Server, machine bool) []string {
	list := os.Environ()
	if r.passes != nil {
		list = nil
		passed := slices.Concat(r.passes, s.passed)
		if machine {
			passed = append(passed, ownFolders...)
		}
		for _, name := range passed {
			if value := p.Getenv(name); value != "" {
				list = append(list, name+"="+value)
			}
		}
	}
	// If a variable is set twice, the last value counts.
	for _, env := range []map[string]string{r.sets(p), s.env} {
		for _, name := range slices.Sorted(maps.Keys(env)) {
			list = append(list, name+"="+env[name])
		}
	}
	return list
}

// sets returns the variables that the user's settings set for every process of the runtime.
func (r *Runtime) sets(p *Place) map[string]string {
	env := make(map[string]string)
	if r.variable != claudeVariable {
		return env
	}
	var s struct {
		Env map[string]any `json:"env"`
	}
	if text, err := durable.ReadFile(claudeSettings(p)); err == nil && json.Unmarshal(text, &s) == nil {
		for name, value := range s.Env {
			env[name] = fmt.Sprint(value)
		}
	}
	return env
}

// canaryMap describes the tool with which a canary is sent through a proxy. It is the
// gate's tool; the gate stands in for the server and does not understand the call.
const canaryMap = "channel: " + canaryChannel + "\ntools:\n  " + toolgate.Tool + ": {text: [input], to: [\"{session}\"]}\n"

// tryProxy starts a proxy as the runtime does, and sends a canary through it.
func (r *Runtime) tryProxy(ctx context.Context, p *Place, env []string, command string, before []string, c *Canary) error {
	dir, err := os.MkdirTemp("", canaryChannel)
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }() // it holds no secret
	file := filepath.Join(dir, "map.yaml")
	if err := os.WriteFile(file, []byte(canaryMap), 0o600); err != nil {
		return err
	}
	behind := *p
	if at := slices.Index(before, tokenFlag); at >= 0 && at+1 < len(before) {
		behind.Token = before[at+1]
	}
	args := slices.Concat(before, []string{"--map", file, separator, p.Self}, behind.gateArgs(r))
	said, isError, err := toolgate.Ask(ctx, env, command, args, toolgate.Tool, map[string]string{"session": c.Target, "input": c.Text})
	if err == nil && !isError {
		err = fmt.Errorf("the proxy has answered %q", said)
	}
	return err
}

// Integrated reports whether a runtime is behind the daemon.
func (r *Runtime) Integrated(p *Place) bool {
	if r == openClaw {
		note, err := p.openClawNote()
		return err != nil || note != nil && (note.Plugin || len(note.Tasks) == 0)
	}
	_, err := os.Stat(r.noteFile(p))
	return err == nil
}

// Records returns a function that looks for a canary in a daemon's log, by a call to its
// operator socket.
func Records(call func(ctx context.Context, method string, params, result any) error) func(ctx context.Context, session string) ([]Record, error) {
	return func(ctx context.Context, session string) (found []Record, err error) {
		var page api.AuditQueryResult
		if err := call(ctx, "audit.query", &api.AuditQueryParams{Filter: audit.Filter{Like: audit.Record{SessionKey: session}}}, &page); err != nil {
			return nil, err
		}
		for _, line := range page.Records {
			r, err := audit.Parse(line)
			if err != nil {
				return nil, err
			}
			found = append(found, Record{Seq: r.Seq, Refused: r.PolicyResult == audit.ResultDeny, Reason: r.PolicyReason})
		}
		return found, nil
	}
}
