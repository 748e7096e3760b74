package runtimecmd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/base/term"
	"github.com/openclawos/ocipd/internal/bridge/integrate"
	"github.com/openclawos/ocipd/internal/cli"
	"github.com/openclawos/ocipd/internal/config"
	"github.com/openclawos/ocipd/internal/task"
	"github.com/openclawos/ocipd/internal/task/taskapi"
)

// integrateTasks gives agents of OpenClaw the tools of actors of tasks, one server an actor.
func (s *command) integrateTasks(ctx context.Context, p *integrate.Place, pairs []string, key string, dryRun bool) error {
	cfg, err := s.Load(nil)
	if err != nil {
		return err
	}
	list, err := taskServers(cfg, pairs)
	if err != nil {
		return err
	}
	o, err := integrate.FindOpenClaw(ctx, p)
	if err != nil {
		return err
	}
	former, err := o.Tasks()
	if err != nil {
		return err
	}
	for i := range list {
		list[i].Token = o.TokenOf(list[i].Actor)
		if at := indexOf(former, list[i].Actor); at >= 0 {
			list[i].Grant = former[at].Grant
		}
	}
	patch, err := o.TaskPatch(ctx, list)
	if err != nil {
		return err
	}
	s.Say("%s, agents: %s", o.Version, strings.Join(o.Agents, ", "))
	if err := s.showPatch(o, patch); err != nil {
		return err
	}
	if dryRun {
		s.Say("nothing was changed")
		return nil
	}
	live, err := s.runningDaemon(ctx)
	if err != nil {
		return err
	}
	if err := s.actorTokens(ctx, list, key); err != nil {
		return err
	}
	if err := o.EnterTasks(ctx, list); err != nil {
		return err
	}
	gone := slices.DeleteFunc(slices.Clone(former), func(f integrate.TaskServer) bool { return indexOf(list, f.Actor) >= 0 })
	s.revoke(ctx, gone, live != nil, key)
	for i := range gone {
		if err := os.Remove(gone[i].Token); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	for i := range list {
		s.Say("agent %s has the tools of %s (%s); all other servers of tasks are denied to it", list[i].Agent, list[i].Actor, list[i].Name())
	}
	s.Say("open: an agent that runs shell commands as this user can read the token of another: deny group:runtime to reviewers, or run them in a sandbox")
	s.Say("an agent that is added later is denied nothing: run this command again then. To try a server: openclaw mcp doctor %s --probe", list[0].Name())
	return nil
}

// showPatch shows a patch of OpenClaw's settings.
func (s *command) showPatch(o *integrate.OpenClaw, patch map[string]any) error {
	if patch == nil {
		s.Say("OpenClaw: nothing to change")
		return nil
	}
	text, err := json.Marshal(patch, json.Deterministic(true), jsontext.WithIndent("  "))
	if err != nil {
		return err
	}
	s.Say("%s (OpenClaw writes it anew, without comments; --remove brings them back)", o.Settings)
	for line := range strings.Lines(string(text)) {
		s.Say("  + %s", term.Printable(strings.TrimRight(line, "\n")))
	}
	return nil
}

// actorTokens makes the tokens of actors that have none here.
func (s *command) actorTokens(ctx context.Context, list []integrate.TaskServer, key string) error {
	for i := range list {
		one := &list[i]
		if _, err := os.Stat(one.Token); err == nil {
			continue
		}
		grant, err := s.newToken(ctx, "actor "+one.Actor, &taskapi.GrantParams{Actor: one.Actor}, key, one.Token)
		if err != nil {
			return err
		}
		one.Grant = grant
	}
	return nil
}

// revoke ends the grants of actors. A grant that cannot be revoked is named, and keeps nothing from
// being removed.
func (s *command) revoke(ctx context.Context, list []integrate.TaskServer, live bool, key string) {
	for i := range list {
		one := &list[i]
		switch {
		case one.Grant == "":
		case !live:
			s.Say("no daemon runs: the grant of %s stays in force until ocipd task revoke-grant %s", one.Actor, one.Grant)
		default:
			if err := s.OperateSigned(ctx, key, "task.revoke_grant", &taskapi.RevokeGrantParams{GrantID: one.Grant}, nil); err != nil {
				s.Say("the grant of %s (%s) is not revoked: %v", one.Actor, one.Grant, err)
			}
		}
	}
}

func indexOf(list []integrate.TaskServer, actor string) int {
	return slices.IndexFunc(list, func(t integrate.TaskServer) bool { return t.Actor == actor })
}

// taskServers reads pairs of an actor and an agent. A role is the actor that alone has it.
func taskServers(cfg *config.Config, pairs []string) (list []integrate.TaskServer, err error) {
	for _, pair := range pairs {
		name, agent, ok := strings.Cut(pair, "=")
		if name, agent = strings.TrimSpace(name), strings.TrimSpace(agent); !ok || name == "" || agent == "" {
			return nil, cli.Usagef("cannot read %q of --tasks: want ACTOR=AGENT,…, such as lead=main", pair)
		}
		actor, err := actorNamed(cfg.Tasks.Actors, name)
		if err != nil {
			return nil, err
		}
		if indexOf(list, actor) >= 0 {
			return nil, cli.Usagef("actor %s is named twice: its token is for one agent", actor)
		}
		list = append(list, integrate.TaskServer{Actor: actor, Agent: agent})
	}
	if len(list) == 0 {
		return nil, cli.Usagef("--tasks names no actor: want ACTOR=AGENT,…, such as lead=main")
	}
	return list, nil
}

// actorNamed is the name of the actor with a name, or of the only one with a role.
func actorNamed(actors []config.TaskActor, name string) (string, error) {
	var names, ofRole []string
	for i := range actors {
		a := &actors[i]
		if a.Name == name {
			return name, nil
		}
		names = append(names, a.Name)
		if a.Role == name {
			ofRole = append(ofRole, a.Name)
		}
	}
	if len(ofRole) == 1 {
		return ofRole[0], nil
	}
	if len(ofRole) > 1 {
		return "", cli.Usagef("several actors are %s: name one of %s", name, strings.Join(ofRole, ", "))
	}
	if len(names) == 0 {
		return "", fmt.Errorf("the configuration has no actors: add tasks.actors, each as {name: %s, role: %s, tenant_id: …}", name, task.Orchestrator)
	}
	return "", fmt.Errorf("the configuration has no actor %q: tasks.actors has %s", name, strings.Join(names, ", "))
}
