package service

import (
	"cmp"
	"context"
	"fmt"
	"os/exec"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/base/term"
	"github.com/openclawos/ocipd/internal/cli"
	"github.com/openclawos/ocipd/systemd"
)

// Status is the output of `ocipd service status --json`.
type Status struct {
	Service unitReport `json:"service"`
	Socket  unitReport `json:"socket"`
	// Runner runs approved commands. It is off by default.
	Runner unitReport `json:"runner"`
	// Console serves the page, and ConsoleSocket holds its address. They are off by default.
	Console       unitReport `json:"console"`
	ConsoleSocket unitReport `json:"consoleSocket"`
	// Running is the version of the daemon that answers. Installed is the version of the
	// unit's program. They are "" if there is none.
	Running   string `json:"running"`
	Installed string `json:"installed"`
	Program   string `json:"program"`
	PID       int    `json:"pid,omitzero"`
	Restarts  int    `json:"restarts"`
	Status    string `json:"status"`
}

type unitReport struct {
	Unit    string `json:"unit"`
	State   string `json:"state"`
	Sub     string `json:"sub"`
	Enabled string `json:"enabled"`
	Result  string `json:"result"`
}

// String describes the state of a unit.
func (u unitReport) String() string {
	text := u.State
	if u.Sub != "" {
		text += " (" + u.Sub + ")"
	}
	if u.Enabled != "" {
		text += ", " + u.Enabled
	}
	if u.Result != "" && u.Result != "success" {
		text += ", last result " + u.Result
	}
	return text
}

// ShowUnit asks the service manager about a unit.
func (s *Manager) ShowUnit(ctx context.Context, name string) (map[string]string, error) {
	out, err := s.systemctl(ctx, "show", name, "-p",
		"LoadState,ActiveState,SubState,UnitFileState,Result,MainPID,NRestarts,StatusText,ExecStart")
	if err != nil {
		return nil, err
	}
	properties := map[string]string{}
	for line := range strings.SplitSeq(out, "\n") {
		key, value, _ := strings.Cut(line, "=")
		properties[key] = value
	}
	return properties, nil
}

// Report asks the service manager and the daemon how the service is.
func (s *Manager) Report(ctx context.Context) (*Status, error) {
	r := &Status{}
	var service map[string]string
	for _, u := range []struct {
		name string
		into *unitReport
	}{
		{systemd.ServiceName, &r.Service}, {systemd.SocketName, &r.Socket}, {systemd.RunnerName, &r.Runner},
		{systemd.ConsoleName, &r.Console}, {systemd.ConsoleSocketName, &r.ConsoleSocket},
	} {
		shown, err := s.ShowUnit(ctx, u.name)
		if err != nil {
			return nil, fmt.Errorf("%w; a daemon that was started without it is shown by: ocipd status", err)
		}
		if *u.into = unitOf(u.name, shown); service == nil {
			service = shown
		}
	}
	r.Status, r.Program = service["StatusText"], programOf(service["ExecStart"])
	// A text that is not a number counts as 0.
	r.PID, _ = strconv.Atoi(service["MainPID"])
	r.Restarts, _ = strconv.Atoi(service["NRestarts"])
	if r.Program != "" {
		r.Installed = s.versionOf(ctx, r.Program)
	}
	if r.Service.State == "active" {
		// Ask only a running service, because a connection would start it.
		if raw, err := s.AskOperator(ctx, "kernel.status"); err == nil {
			var status api.Status
			if json.Unmarshal(raw, &status) == nil {
				r.Running = status.Version
			}
		}
	}
	return r, nil
}

func unitOf(name string, p map[string]string) unitReport {
	r := unitReport{Unit: name, State: p["ActiveState"], Sub: p["SubState"], Enabled: p["UnitFileState"], Result: p["Result"]}
	if p["LoadState"] == "not-found" {
		r.State, r.Sub, r.Result = "not installed", "", ""
	}
	return r
}

// programOf is the path in the ExecStart property in the output of systemctl show.
func programOf(execStart string) string {
	_, rest, ok := strings.Cut(execStart, "path=")
	if !ok {
		return ""
	}
	path, _, _ := strings.Cut(rest, " ; argv[]=")
	return path
}

// versionOf asks a program for its version, and returns "" on failure.
func (s *Manager) versionOf(ctx context.Context, program string) string {
	ctx, cancel := context.WithTimeout(ctx, cli.AnswerTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, "version", "--json")
	cmd.Env = s.Env
	out, err := cmd.Output()
	var v struct {
		Version string `json:"version"`
	}
	if err != nil || json.Unmarshal(out, &v) != nil {
		return ""
	}
	return v.Version
}

// Print writes a report for a person.
func (s *Manager) Print(r *Status) error {
	var b strings.Builder
	for _, u := range []unitReport{r.Service, r.Socket} {
		fmt.Fprintf(&b, "%-14s %s\n", u.Unit, u)
	}
	line := func(name, value string) {
		if value != "" {
			fmt.Fprintf(&b, "  %-10s %s\n", name, term.Printable(value))
		}
	}
	if r.PID > 0 {
		// The manager keeps the last status of an ended service.
		line("status", r.Status)
	}
	if r.PID > 0 {
		line("process", fmt.Sprintf("%d, started again %d times", r.PID, r.Restarts))
	}
	if r.Runner.State == "active" || r.Runner.Enabled == "enabled" {
		line("runner", r.Runner.String())
	}
	if r.ConsoleSocket.State == "active" || r.ConsoleSocket.Enabled == "enabled" {
		line("console", r.Console.String()+"; its socket: "+r.ConsoleSocket.String())
	}
	line("running", r.Running)
	line("installed", strings.TrimSpace(r.Installed+"  "+r.Program))
	if r.Running != "" && r.Installed != "" && r.Running != r.Installed {
		line("", cmp.Or(s.HeldBack(r.Running), "to run the installed version: systemctl --user restart ocipd.service"))
	}
	if r.Service.State == "not installed" {
		b.WriteString("install it with: ocipd service install\n")
	}
	_, err := fmt.Fprint(s.Stdout, b.String())
	return err
}
