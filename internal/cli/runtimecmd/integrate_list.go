package runtimecmd

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/openclawos/ocipd/internal/base/term"
	"github.com/openclawos/ocipd/internal/bridge/integrate"
)

// listed is a server of a runtime in the output of --json.
type listed struct {
	Runtime string `json:"runtime"`
	Version string `json:"version,omitzero"`
	integrate.Server
	Gated bool   `json:"gated"`
	Why   string `json:"why"`
	// Close is the command that gates it, or "" if none does.
	Close string `json:"close,omitzero"`
}

func (s *command) listIntegrations(ctx context.Context, p *integrate.Place, asJSON bool) error {
	var list []listed
	var closes []string
	for _, r := range integrate.Runtimes() {
		rows, err := s.listRuntime(ctx, p, r)
		if err != nil {
			// One runtime's broken file does not hide the others.
			rows = append(rows, listed{Runtime: r.Name, Server: integrate.Server{Name: "its settings"}, Why: "they cannot be read: " + err.Error()})
		}
		list = append(list, rows...)
	}
	t := &term.Table{Columns: []term.Column{{Title: "RUNTIME", Whole: true}, {Title: "VERSION", Least: 7, Fold: true}, {Title: "WHAT", Least: 20, Fold: true}, {Title: "GATE", Whole: true}, {Title: "WHY", Least: 34, Fold: true, Below: true}}}
	for i := range list {
		one := &list[i]
		if asJSON {
			if err := s.PrintJSON(one); err != nil {
				return err
			}
			continue
		}
		if one.Close != "" && !slices.Contains(closes, one.Close) {
			closes = append(closes, one.Close)
		}
		gate := term.Tinted("open", term.Yellow)
		if one.Gated {
			gate = term.Tinted("gated", term.Green)
		}
		t.Add(term.Plain(one.Runtime), term.Plain(cmp.Or(integrate.Number(one.Version), "-")), term.Plain(serverName(&one.Server)), gate, term.Plain(one.Why))
	}
	if len(list) == 0 {
		fmt.Fprintf(s.Stderr, "none of these runtimes is on this machine: %s\na program of yours asks the daemon by itself; its agent: ocipd config add-agent ID --app APP\n", strings.Join(runtimeNames(), ", "))
	}
	// Its cells are sentences, so a pipe gets them folded too: a program asks for --json.
	screen := s.Screen()
	screen.Terminal = true
	if err := t.Write(s.Stdout, screen); err != nil {
		return err
	}
	for _, command := range closes {
		fmt.Fprintf(s.Stdout, "to gate what is open: %s\n", command)
	}
	return nil
}

// closable is the line with the command that gates it, if there is one.
func (l listed) closable(r *integrate.Runtime, can bool) listed {
	if can && !l.Gated {
		l.Close = closing(r)
	}
	return l
}

// listRuntime lists what a runtime can do, gated or not; nothing for one that is not there.
func (s *command) listRuntime(ctx context.Context, p *integrate.Place, r *integrate.Runtime) (list []listed, err error) {
	program := r.Installed(p)
	servers, err := r.Servers(p)
	if err != nil {
		return nil, err
	}
	if program == "" && len(servers) == 0 {
		return nil, nil
	}
	one := listed{Runtime: r.Name}
	if program != "" {
		one.Version = integrate.Version(ctx, program)
	}
	for i := range servers {
		one.Server, one.Gated, one.Why = servers[i], servers[i].Gated(), servers[i].Why(p)
		list = append(list, one.closable(r, servers[i].Closable()))
	}
	rest, err := r.Elsewhere(p)
	if err != nil {
		return nil, err
	}
	for i := range rest {
		one.Server, one.Gated, one.Why = rest[i], rest[i].Gated(), rest[i].Why(p)
		if !one.Gated {
			one.Why = notChanged(&rest[i])
		}
		list = append(list, one)
	}
	asks, why, projects, err := r.Tools(p)
	if err != nil {
		return nil, err
	}
	if old := r.Closes(one.Version); asks && one.Version != "" && old != nil {
		asks, why = false, old.Error()
	}
	if why != "" {
		one.Server, one.Gated, one.Why = integrate.Server{Name: "its own tools"}, asks, why
		list = append(list, one.closable(r, true))
	}
	for i := range projects {
		one.Server, one.Gated, one.Why = integrate.Server{Name: "its own tools", Scope: projects[i].Scope, File: projects[i].File}, false, projects[i].String()
		list = append(list, one)
	}
	if r.Name == "openclaw" {
		one.Server = integrate.Server{Name: "what its agents send"}
		if one.Gated, one.Why, err = s.openClawState(ctx, p, one.Version); err != nil {
			return nil, err
		}
		list = append(list, one.closable(r, true))
	}
	stays, err := r.StaysOpen(p, one.Version)
	if err != nil {
		return nil, err
	}
	for _, what := range stays {
		one.Server, one.Gated, one.Why = integrate.Server{Name: what}, false, "goes past the gate"
		list = append(list, one)
	}
	return list, nil
}
