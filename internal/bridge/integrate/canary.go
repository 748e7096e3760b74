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

// canaryChannel is a channel that nothing delivers to: what a canary says reaches nobody,
// should a gate let it through.
const canaryChannel = toolgate.Canary

// Canary is a message by which a runtime's gate is tried: an agent of the runtime is made
// to send it, in a real turn, or what its files name is started and asked as the runtime
// would, and the daemon has to have refused it and to have it on record. It is marked for nobody's eyes, so that it is refused whoever sends it, and
// nothing in it is secret.
type Canary struct {
	// ID is unique, and Target is who it is for in the channel of Session.
	ID, Target string
	// Session is the session key by which its record is found.
	Session string
	Text    string
}

// NewCanary returns a canary of an id that no other has.
func NewCanary(id string) *Canary {
	return &Canary{
		ID: id, Target: id, Session: canaryChannel + ":" + id,
		Text: "TLP:RED\nThis is a canary of ocipd, " + id + ". It tries a gate, and is for nobody.",
	}
}

// CanaryTime bounds a canary: the turn of an agent, and what starts it.
const CanaryTime = 2 * time.Minute

// ErrNotSent means that the runtime's agent did not try to send the canary, so that
// nothing is known of the gate.
var ErrNotSent = errors.New("the agent did not send it, so nothing was tried")

// ErrNoGate means that nothing in a runtime's files is there to be tried.
var ErrNoGate = errors.New("nothing in its files asks the daemon, so nothing was tried")

// Record is what the log has of a canary.
type Record struct {
	Seq     uint64
	Refused bool
	Reason  string
}

// Try has a canary sent by a runtime, or by what its files name, and looks for it in the
// log: find returns the records of its session. Without an error the gate was seen to work.
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

// tryCommands starts what a runtime's files name, as the runtime does, and asks it about a
// canary: the server that hooks ask, and each proxy that differs before the command of its
// server, with a server of ours behind it instead. No agent and no model have a part in it,
// and no server of the user's is started.
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
	var tried []string
	var failed error
	for i := range servers {
		s := &servers[i]
		env := r.environment(p, s, i >= own)
		switch gate := s.Name == gateServer && s.Scope == ""; {
		case gate:
			if asks, why, _, err := r.Tools(p); err != nil || !asks {
				return 0, errors.Join(fmt.Errorf("its own tools: %s", why), err)
			}
			ways++
			said, _, err := toolgate.Ask(ctx, env, s.Command, s.Args, toolgate.Tool, (&toolgate.CanaryCall{To: c.Target, Text: c.Text}).Question())
			if err == nil && !toolgate.Refused(said) {
				return 0, fmt.Errorf("the server that its hooks ask has answered %q", said)
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

// environment is that in which a runtime starts a server, which may stand in the machine's settings: what it
// gives to all, and what its files give to that one.
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
	// Of two values the last one counts.
	for _, env := range []map[string]string{r.sets(p), s.env} {
		for _, name := range slices.Sorted(maps.Keys(env)) {
			list = append(list, name+"="+env[name])
		}
	}
	return list
}

// sets are the variables that the user's settings have set for all that a runtime starts.
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

// canaryMap is of the tool that a canary is sent by through a proxy: that of the gate, which
// stands behind it and understands no such call.
const canaryMap = "channel: " + canaryChannel + "\ntools:\n  " + toolgate.Tool + ": {text: [input], to: [\"{session}\"]}\n"

// tryProxy starts a proxy as a runtime does, and has it send a canary.
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

// Integrated reports whether a runtime was put behind the daemon and not taken out again.
func (r *Runtime) Integrated(p *Place) bool {
	_, err := os.Stat(r.noteFile(p))
	return err == nil
}

// Records looks for a canary in the log of a daemon, by a call to its operator socket.
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
