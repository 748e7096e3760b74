package integrate

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/base/durable"
)

// TaskServer is the MCP server of one actor of tasks, for one agent of OpenClaw.
type TaskServer struct {
	Actor string `json:"actor"`
	Agent string `json:"agent"`
	// Token is the file of the actor's token, and Grant the id of its grant.
	Token string `json:"token"`
	Grant string `json:"grant,omitzero"`
}

// Name is the server's name in OpenClaw's settings.
func (s *TaskServer) Name() string { return "ocipd-" + s.Actor }

// tools matches all tools of the server in OpenClaw's tool policy.
func (s *TaskServer) tools() string { return s.Name() + parting + "*" }

// actorName matches the names of actors of which OpenClaw makes a prefix of tools without a change.
var actorName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,20}$`)

// toolPolicy is the part of a tool policy of OpenClaw that matters here.
type toolPolicy struct {
	Profile   string   `json:"profile"`
	Allow     []string `json:"allow"`
	AlsoAllow []string `json:"alsoAllow"`
	Deny      []string `json:"deny"`
}

// taskSettings are the parts of OpenClaw's settings that the servers of tasks are in.
type taskSettings struct {
	Servers map[string]jsontext.Value
	Agents  map[string]struct {
		Tools toolPolicy `json:"tools"`
	}
	Tools toolPolicy
}

// taskSettings reads the parts, from the file if it is plain JSON.
func (o *OpenClaw) taskSettings(ctx context.Context) (t *taskSettings, err error) {
	var all struct {
		MCP struct {
			Servers map[string]jsontext.Value `json:"servers"`
		} `json:"mcp"`
		Agents struct {
			Entries map[string]struct {
				Tools toolPolicy `json:"tools"`
			} `json:"entries"`
		} `json:"agents"`
		Tools toolPolicy `json:"tools"`
	}
	text, err := durable.ReadFile(o.Settings)
	if err != nil || !plainJSON(text) || json.Unmarshal(text, &all) != nil {
		err = errors.Join(setting(ctx, o.place, &all.MCP, "mcp"), setting(ctx, o.place, &all.Agents, "agents"), setting(ctx, o.place, &all.Tools, "tools"))
	}
	return &taskSettings{all.MCP.Servers, all.Agents.Entries, all.Tools}, err
}

// checkTasks refuses servers that OpenClaw could not keep apart.
func (o *OpenClaw) checkTasks(list []TaskServer, is *taskSettings, note *openClawNote) error {
	if err := checkOpenClaw(o.Version); err != nil {
		return err
	}
	if o.gateway.Mode == "remote" {
		return errors.New("this OpenClaw uses the Gateway of another machine (gateway.mode is remote): its agents get their tools there")
	}
	seen := make(map[string]string)
	for i := range list {
		s := &list[i]
		switch {
		case !actorName.MatchString(s.Actor):
			return fmt.Errorf("cannot name a server after the actor %q: OpenClaw keeps names of up to 20 letters, digits, _ and - as they are", s.Actor)
		case !slices.Contains(o.Agents, s.Agent):
			return fmt.Errorf("OpenClaw has no agent %q: its agents are %s", s.Agent, strings.Join(o.Agents, ", "))
		case seen[s.Agent] != "":
			return fmt.Errorf("agent %s cannot be both %s and %s: it would have the tools of both", s.Agent, seen[s.Agent], s.Actor)
		case is.Servers[s.Name()] != nil && (note == nil || !slices.ContainsFunc(note.Tasks, func(k TaskServer) bool { return k.Actor == s.Actor })):
			return fmt.Errorf("OpenClaw has an MCP server %s already, which is not from here: openclaw mcp unset %s", s.Name(), s.Name())
		}
		seen[s.Agent] = s.Actor
	}
	for _, name := range is.Tools.Deny {
		if name == "*" || name == "bundle-mcp" || name == "group:plugins" {
			return fmt.Errorf("OpenClaw's tools.deny has %s, so that no agent has a tool of an MCP server: take it out", name)
		}
	}
	return nil
}

// TaskPatch returns the patch of OpenClaw's settings (RFC 7396) that enters the servers of tasks: each
// server once, and in the tool policy of every agent a denial of all servers but its own. It is nil if
// nothing has to change.
func (o *OpenClaw) TaskPatch(ctx context.Context, list []TaskServer) (map[string]any, error) {
	note, err := o.place.openClawNote()
	if err != nil {
		return nil, err
	}
	is, err := o.taskSettings(ctx)
	if err != nil {
		return nil, err
	}
	if err := o.checkTasks(list, is, note); err != nil {
		return nil, err
	}
	var former []TaskServer
	if note != nil {
		former = note.Tasks
	}
	return o.taskPatch(list, former, is)
}

// taskPatch makes settings with the former servers into ones with the servers of a list.
func (o *OpenClaw) taskPatch(list, former []TaskServer, is *taskSettings) (map[string]any, error) {
	servers, entries, patch := map[string]any{}, map[string]any{}, map[string]any{}
	for i := range former {
		if name := former[i].Name(); is.Servers[name] != nil {
			servers[name] = nil
		}
	}
	for i := range list {
		s := &list[i]
		want := map[string]any{"command": o.place.Self, "args": slices.Concat(o.place.finds(), []string{serveCommand, tokenFlag, s.Token})}
		if same, err := sameJSON(is.Servers[s.Name()], want); err != nil {
			return nil, err
		} else if delete(servers, s.Name()); !same {
			servers[s.Name()] = want
		}
	}
	for _, id := range o.Agents {
		if tools := policyPatch(id, is.Agents[id].Tools, is.Tools, list, former); len(tools) > 0 {
			entries[id] = map[string]any{"tools": tools}
		}
	}
	if len(servers) > 0 {
		patch["mcp"] = map[string]any{"servers": servers}
	}
	if len(entries) > 0 {
		patch["agents"] = map[string]any{"entries": entries}
	}
	if len(is.Tools.Allow) > 0 {
		if allow := with(is.Tools.Allow, globs(former), globs(list)); !slices.Equal(allow, is.Tools.Allow) {
			patch["tools"] = map[string]any{"allow": orNull(allow)}
		}
	}
	if len(patch) == 0 {
		return nil, nil
	}
	return patch, nil
}

// policyPatch is the patch of one agent's tool policy.
func policyPatch(id string, is, global toolPolicy, list, former []TaskServer) map[string]any {
	var own, others []string
	for i := range list {
		if list[i].Agent == id {
			own = append(own, list[i].tools())
		} else {
			others = append(others, list[i].tools())
		}
	}
	patch := map[string]any{}
	set := func(name string, is, add []string) {
		if want := with(is, globs(former), add); !slices.Equal(want, is) {
			patch[name] = orNull(want)
		}
	}
	set("deny", is.Deny, others)
	// A list of allowed tools, or a small profile, leaves out the servers.
	profile := is.Profile
	if profile == "" {
		profile = global.Profile
	}
	switch {
	case len(is.Allow) > 0:
		set("allow", is.Allow, own)
	case profile == "minimal" || len(is.AlsoAllow) > 0:
		set("alsoAllow", is.AlsoAllow, own)
	}
	return patch
}

// with is a list without some entries, and with others at its end.
func with(list, without, more []string) []string {
	kept := slices.DeleteFunc(slices.Clone(list), func(name string) bool {
		return slices.Contains(without, name) && !slices.Contains(more, name)
	})
	for _, name := range more {
		if !slices.Contains(kept, name) {
			kept = append(kept, name)
		}
	}
	return kept
}

// orNull is a list, or the value that removes it.
func orNull(list []string) any {
	if len(list) == 0 {
		return nil
	}
	return list
}

func globs(list []TaskServer) (names []string) {
	for i := range list {
		names = append(names, list[i].tools())
	}
	return names
}

// sameJSON reports whether a text has a value.
func sameJSON(text jsontext.Value, value any) (bool, error) {
	if text == nil {
		return false, nil
	}
	want, err := json.Marshal(value, json.Deterministic(true))
	if err != nil {
		return false, err
	}
	is := text.Clone()
	if err := is.Canonicalize(); err != nil {
		return false, err
	}
	canonical := jsontext.Value(want)
	err = canonical.Canonicalize()
	return string(is) == string(canonical), err
}

// Tasks are the servers of tasks that are entered.
func (o *OpenClaw) Tasks() ([]TaskServer, error) {
	note, err := o.place.openClawNote()
	if err != nil || note == nil {
		return nil, err
	}
	return note.Tasks, nil
}

// TaskStrays returns the members of OpenClaw's settings that differ from the entered servers of tasks
// and tool policies, and whether any servers are entered. An agent that was added since is among them.
func TaskStrays(ctx context.Context, p *Place) (entered bool, members []string, err error) {
	note, err := p.openClawNote()
	if err != nil || note == nil || len(note.Tasks) == 0 {
		return false, nil, err
	}
	o, err := FindOpenClaw(ctx, p)
	if err != nil {
		return true, nil, err
	}
	patch, err := o.TaskPatch(ctx, note.Tasks)
	for member := range leaves("", patch) {
		members = append(members, member)
	}
	slices.Sort(members)
	return true, members, err
}

// leaves are the members of a patch that have a value or are removed: servers, and lists.
func leaves(at string, patch map[string]any) iter.Seq[string] {
	return func(yield func(string) bool) {
		for name, value := range patch {
			path := strings.TrimPrefix(at+"."+name, ".")
			inner, ok := value.(map[string]any)
			if !ok || at == "mcp.servers" {
				if !yield(path) {
					return
				}
				continue
			}
			for member := range leaves(path, inner) {
				if !yield(member) {
					return
				}
			}
		}
	}
}

// TokenOf is the file of an actor's token.
func (o *OpenClaw) TokenOf(actor string) string {
	return filepath.Join(o.place.Notes, "openclaw-"+actor+".token")
}

// EnterTasks has OpenClaw write the servers of tasks into its settings, and notes them.
func (o *OpenClaw) EnterTasks(ctx context.Context, list []TaskServer) error {
	if err := o.Note(nil); err != nil {
		return err
	}
	patch, err := o.TaskPatch(ctx, list)
	if err != nil {
		return err
	}
	return o.changing(func(note *openClawNote) error {
		// What is noted can be removed, also if the next step fails.
		note.Tasks = list
		if err := o.place.keepOpenClaw(note); err != nil || patch == nil {
			return err
		}
		return o.patch(ctx, patch)
	})
}

// withoutTasks is the patch that takes the noted servers out of settings that somebody else has
// changed since.
func (o *OpenClaw) withoutTasks(ctx context.Context, note *openClawNote) (map[string]any, error) {
	if note == nil || len(note.Tasks) == 0 {
		return nil, nil
	}
	is, err := o.taskSettings(ctx)
	if err != nil {
		return nil, err
	}
	return o.taskPatch(nil, note.Tasks, is)
}

// removeTokens removes the files of the actors' tokens.
func (n *openClawNote) removeTokens() (failed error) {
	for i := range n.Tasks {
		if err := os.Remove(n.Tasks[i].Token); err != nil && !errors.Is(err, fs.ErrNotExist) {
			failed = errors.Join(failed, err)
		}
	}
	return failed
}
