package runtimecmd

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/configs"
	"github.com/openclawos/ocipd/integrations"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/api/client"
	"github.com/openclawos/ocipd/internal/base/durable"
	"github.com/openclawos/ocipd/internal/base/fileowner"
	"github.com/openclawos/ocipd/internal/base/term"
	"github.com/openclawos/ocipd/internal/bridge/integrate"
	"github.com/openclawos/ocipd/internal/cli"
	"github.com/openclawos/ocipd/internal/cli/configcmd"
	"github.com/openclawos/ocipd/internal/config"
	"github.com/openclawos/ocipd/internal/config/configfile"
	"github.com/openclawos/ocipd/internal/config/keypath"
	"github.com/openclawos/ocipd/internal/config/yamltext"
)

// owner is the owner of a runtime's agents, as far as flags name it.
type owner struct{ user, tenant string }

// integrateOpenClaw puts OpenClaw's Gateway behind the daemon, or takes it out again.
func (s *command) integrateOpenClaw(ctx context.Context, p *integrate.Place, who owner, key string, remove, dryRun bool) error {
	o, err := integrate.FindOpenClaw(ctx, p)
	if err != nil {
		return err
	}
	o.Running = integrate.GatewayRuns()
	live, err := s.runningDaemon(ctx)
	if err != nil {
		return err
	}
	if remove {
		return s.removeOpenClaw(ctx, o, live, key, dryRun)
	}
	if err := o.Fit(ctx); err != nil {
		return err
	}
	socket, err := s.KernelSocket()
	if err != nil {
		return err
	}
	if socket, err = filepath.Abs(socket); err != nil {
		return err
	}
	edit, err := s.agentsOf(o, live, who)
	if err != nil {
		return err
	}
	files, settings := o.Lacks(socket)
	s.showOpenClaw(o, edit, socket, files, settings)
	if dryRun {
		s.Say("nothing was changed")
		return nil
	}
	if err := changeOpenClaw(ctx, o, edit, socket, files || len(settings) > 0); err != nil {
		return err
	}
	if edit != nil && live != nil {
		if err := s.Operate(ctx, "policy.reload", nil, nil); err != nil {
			return fmt.Errorf("the running daemon does not take the configuration: %w", err)
		}
	}
	for _, what := range integrate.Find("openclaw").Open {
		s.Say("open: %s", what)
	}
	switch {
	case live == nil:
		s.Say("no daemon runs: OpenClaw's agents send nothing until one does. Start it (ocipd service install), then try the gate: ocipd doctor")
		return nil
	case !o.Running:
		s.Say("no Gateway runs: start it (openclaw gateway start), then try the gate: ocipd doctor")
		return nil
	}
	return s.tryGate(ctx, integrate.Find("openclaw"), p)
}

// changeOpenClaw notes the changes first, so that they can be taken back, and then makes them.
func changeOpenClaw(ctx context.Context, o *integrate.OpenClaw, edit *configEdit, socket string, installs bool) error {
	if edit == nil && !installs {
		return nil
	}
	if err := o.Note(edit.note()); err != nil {
		return err
	}
	if edit != nil {
		if err := writeConfig(edit); err != nil {
			return err
		}
	}
	if !installs {
		return nil
	}
	return o.Install(ctx, socket)
}

// openClawState reports whether the messages of OpenClaw's agents are decided, and why or
// why not, by OpenClaw's files and the daemon's view of its Gateway.
func (s *command) openClawState(ctx context.Context, p *integrate.Place, version string) (gated bool, why string, err error) {
	socket, err := s.KernelSocket()
	if err != nil {
		return false, "", err
	}
	if gated, why = integrate.OpenClawState(ctx, p, version, cli.Absolute(socket)); !gated {
		return false, why, nil
	}
	live, err := s.runningDaemon(ctx)
	switch {
	case err != nil:
		return false, "", err
	case live == nil:
		return true, why + "; no daemon runs, so nothing is sent", nil
	case slices.ContainsFunc(live.Ungated, func(u api.UngatedProcess) bool { return u.App == integrate.GatewayApp }):
		return false, "its Gateway runs, and its plugin is not connected: openclaw plugins reload ocip", nil
	case !integrate.GatewayRuns():
		why += "; no Gateway runs"
	}
	return true, why, nil
}

// runningDaemon is the daemon's status, or nil if none runs.
func (s *command) runningDaemon(ctx context.Context) (*api.Status, error) {
	live := new(api.Status)
	err := s.Operate(ctx, "kernel.status", nil, live)
	if errors.Is(err, client.ErrNotRunning) {
		return nil, nil
	}
	return live, err
}

// agentsOf plans to add OpenClaw's agents to the daemon's configuration; nil if all are there.
func (s *command) agentsOf(o *integrate.OpenClaw, live *api.Status, who owner) (*configEdit, error) {
	cfg, err := s.Load(nil)
	if err != nil {
		return nil, err
	}
	file := cli.Absolute(cmp.Or(s.ConfigFile, config.FilePath(s.Getenv)))
	if live != nil && live.ConfigFile != "" && !fileowner.Same(live.ConfigFile, file) {
		return nil, fmt.Errorf("the running daemon uses %s, not %s: name its file with --config", live.ConfigFile, file)
	}
	var missing []string
	for _, id := range o.Agents {
		i := slices.IndexFunc(cfg.Agents, func(a config.Agent) bool { return a.ID == id })
		switch {
		case i < 0:
			missing = append(missing, id)
		case cfg.Agents[i].App != integrate.GatewayApp:
			return nil, fmt.Errorf("agent %s of OpenClaw has the id of one that speaks by %s: give one of them another id", id, cmp.Or(cfg.Agents[i].App, "a token"))
		}
	}
	if len(missing) == 0 {
		return nil, nil
	}
	items, err := s.askOwners(missing, who)
	if err != nil {
		return nil, err
	}
	e := &configEdit{ConfigNote: integrate.ConfigNote{File: file, Items: items}}
	e.Before, err = cli.ReadFile(file)
	if e.Was = err == nil; errors.Is(err, fs.ErrNotExist) {
		e.Before, err = nil, nil
		e.after = configs.Default()
	} else {
		e.after = e.Before
	}
	if err != nil {
		return nil, err
	}
	if e.after, err = configfile.WithAgents(file, e.after, items); err != nil {
		return nil, err
	}
	if cfg.OCIP.MaxRounds < hostRounds {
		rounds, err := yamltext.Edit(e.after, keypath.Path{}.Key("ocip").Key("max_rounds"), strconv.Itoa(hostRounds))
		if err != nil {
			return nil, fmt.Errorf("cannot set ocip.max_rounds in %s: %w", file, err)
		}
		e.after, e.rounds = rounds, true
	}
	e.After = integrate.Sum(e.after)
	return e, nil
}

// configEdit is a change to the daemon's own configuration.
type configEdit struct {
	integrate.ConfigNote
	after []byte
	// rounds is set if ocip.max_rounds is raised to [hostRounds].
	rounds bool
}

// hostRounds is the number of messages that an exchange needs in OpenClaw: a question, its
// answer, and the host's default of five turns between the two agents.
const hostRounds = 8

// askOwners asks for the owner and organisation of each agent, unless flags name them, and
// returns the agents' entries in the configuration.
func (s *command) askOwners(ids []string, who owner) (items []string, err error) {
	in, asks := bufio.NewReader(s.Stdin), s.Asks()
	if !asks && (who.user == "" || who.tenant == "") {
		return nil, cli.Usagef("whose agents are %s, and of which organisation? say it with --user and --tenant", strings.Join(ids, ", "))
	}
	said := owner{cmp.Or(who.user, s.Getenv("USER"), "me"), ""}
	for _, id := range ids {
		is := who
		if is.user == "" {
			if is.user, err = s.Question(in, "Whose agent is "+id+"? A name", said.user); err != nil {
				return nil, err
			}
		}
		if is.tenant == "" {
			if is.tenant, err = s.Question(in, "Of which company or household? No message passes to agents of another one", cmp.Or(said.tenant, is.user)); err != nil {
				return nil, err
			}
		}
		if err := cmp.Or(configcmd.CheckName("user", is.user), configcmd.CheckName("tenant", is.tenant)); err != nil {
			return nil, err
		}
		said = is
		items = append(items, fmt.Sprintf("{id: %s, app: %s, instance_id: %s, user_id: %s, org_unit: general, tenant_id: %s, own_turns: true}",
			yamltext.Quote(id), yamltext.Quote(integrate.GatewayApp), yamltext.Quote("agent-"+id+"-1"), yamltext.Quote(is.user), yamltext.Quote(is.tenant)))
	}
	return items, nil
}

// writeConfig writes a changed configuration.
func writeConfig(e *configEdit) error {
	now, err := cli.ReadFile(e.File)
	switch {
	case !e.Was && errors.Is(err, fs.ErrNotExist):
		return configcmd.WriteNew(e.File, e.after)
	case err != nil:
		return err
	case !bytes.Equal(now, e.Before):
		return fmt.Errorf("cannot change %s: %w", e.File, integrate.ErrChanged)
	}
	return replaceConfig(e.File, e.after)
}

func replaceConfig(file string, text []byte) error {
	target, err := filepath.EvalSymlinks(file)
	if err != nil {
		return err
	}
	return durable.Rewrite(target, ".part", text)
}

// showOpenClaw lists the changes, file by file.
func (s *command) showOpenClaw(o *integrate.OpenClaw, edit *configEdit, socket string, files bool, settings []string) {
	s.Say("%s, agents: %s", o.Version, strings.Join(o.Agents, ", "))
	if edit != nil {
		s.showEdit(edit)
	}
	if files {
		s.Say("%s", o.Plugin)
		_ = fs.WalkDir(integrations.OpenClaw(), ".", func(path string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() {
				s.Say("  + %s", path)
			}
			return err
		})
	}
	if len(settings) > 0 {
		s.Say("%s (OpenClaw writes it anew, without comments; --remove brings them back)", o.Settings)
		text, _ := json.Marshal(map[string]any{"plugins": o.Wanted(socket)}, json.Deterministic(true), jsontext.WithIndent("  "))
		for line := range strings.Lines(string(text)) {
			s.Say("  + %s", strings.TrimRight(line, "\n"))
		}
	}
	if edit == nil && !files && len(settings) == 0 {
		s.Say("OpenClaw: nothing to change")
	}
}

// showEdit shows the additions to the daemon's configuration.
func (s *command) showEdit(e *configEdit) {
	if e.Was {
		s.Say("%s", e.File)
	} else {
		s.Say("%s (new, with the defaults)", e.File)
	}
	for _, item := range e.Items {
		s.Say("  + agents: %s", item)
	}
	if e.rounds {
		s.Say("  + ocip.max_rounds: %d (OpenClaw lets two agents answer each other that often)", hostRounds)
	}
}

// removeOpenClaw takes OpenClaw out again.
func (s *command) removeOpenClaw(ctx context.Context, o *integrate.OpenClaw, live *api.Status, key string, dryRun bool) error {
	plan, err := o.Planned()
	if err != nil {
		return err
	}
	for _, line := range plan {
		s.Say("%s", line)
	}
	switch {
	case len(plan) == 0:
		s.Say("OpenClaw: nothing to change")
		return nil
	case dryRun:
		s.Say("nothing was changed")
		return nil
	}
	actors, err := o.Tasks()
	if err != nil {
		return err
	}
	s.revoke(ctx, actors, live != nil, key)
	changed, err := o.Remove(ctx)
	if err != nil {
		return err
	}
	if changed != nil {
		if err := undoConfig(changed); err != nil {
			return err
		}
		if live != nil {
			if err := s.Operate(ctx, "policy.reload", nil, nil); err != nil {
				return fmt.Errorf("the running daemon does not take the configuration: %w", err)
			}
		}
	}
	if err := o.Forget(); err != nil {
		return err
	}
	s.Say("OpenClaw is as before; this daemon decides nothing of its agents any more")
	return nil
}

// undoConfig removes agents from the daemon's configuration. If nobody has changed it
// since, the result is byte for byte the original; otherwise only the added lines go.
func undoConfig(n *integrate.ConfigNote) error {
	now, err := cli.ReadFile(n.File)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if integrate.Sum(now) == n.After {
		if !n.Was {
			return os.Remove(n.File)
		}
		return replaceConfig(n.File, n.Before)
	}
	text := string(now)
	for _, item := range n.Items {
		for line := range strings.Lines(text) {
			if strings.TrimSpace(line) == "- "+item {
				text = strings.Replace(text, line, "", 1)
				break
			}
		}
		for _, form := range []string{item + ", ", ", " + item, item} {
			if strings.Contains(text, form) {
				text = strings.Replace(text, form, "", 1)
				break
			}
		}
	}
	if _, err := config.Parse(n.File, []byte(text)); err != nil {
		return fmt.Errorf("cannot take the agents out of %s, it was changed since: take them out by hand: %w", term.Printable(n.File), err)
	}
	return replaceConfig(n.File, []byte(text))
}

// note is the note about an edit, or nil.
func (e *configEdit) note() *integrate.ConfigNote {
	if e == nil {
		return nil
	}
	return &e.ConfigNote
}
