// Package kernelcmd has the commands that show and steer a running daemon.
package kernelcmd

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/api/client"
	"github.com/openclawos/ocipd/internal/base/term"
	"github.com/openclawos/ocipd/internal/cli"
	"github.com/openclawos/ocipd/internal/cli/service"
	"github.com/spf13/cobra"
)

// askAgain is the interval of attempts to reach a daemon that is starting.
const askAgain = 25 * time.Millisecond

// NewStatus returns the command that shows a daemon's status.
func NewStatus(p *cli.Process) *cobra.Command {
	s := &command{p}
	var asJSON, watch bool
	var wait, every time.Duration
	c := &cobra.Command{
		Use: "status",
		Example: "  ocipd status\n" +
			"  ocipd status --wait 5s\n" +
			"  ocipd status --json | jq .head",
		Short: "show the running daemon, its apps and queues",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if every < minInterval {
				return cli.Usagef("cannot look every %s: at least %s", every, minInterval)
			}
			raw, err := s.status(cmd.Context(), wait)
			if err != nil {
				return err
			}
			if watch {
				return s.watchStatus(cmd.Context(), every, asJSON)
			}
			return s.showStatus(raw, asJSON, false)
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	c.Flags().BoolVarP(&watch, "watch", "w", false, "show it again every second, in few lines, until q")
	c.Flags().DurationVar(&every, "interval", time.Second, "`TIME` between two looks of --watch")
	c.Flags().DurationVar(&wait, "wait", 0, "wait up to this `TIME` for a daemon that is starting")
	return c
}

// minInterval is the shortest interval of a watch, so that it does not keep the daemon busy.
const minInterval = 100 * time.Millisecond

// status asks the daemon for its status. If none answers, it tries again for the time wait.
func (s *command) status(ctx context.Context, wait time.Duration) (jsontext.Value, error) {
	deadline, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	again := time.NewTicker(askAgain)
	defer again.Stop()
	for {
		raw, err := s.AskOperator(ctx, "kernel.status")
		var lost *api.Error
		starting := errors.Is(err, client.ErrNotRunning) || errors.As(err, &lost) && lost.Code == api.ConnectionClosed
		if err == nil || !starting {
			return raw, err
		}
		select {
		case <-again.C:
		case <-deadline.Done():
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			return nil, err
		}
		if deadline.Err() != nil && ctx.Err() == nil {
			return nil, err
		}
	}
}

func (s *command) printStatus(status *api.Status) error {
	if _, err := fmt.Fprintln(s.Stdout, strings.Join(draw(status, s.Screen(), time.Now(), false), "\n")); err != nil {
		return err
	}
	if why := (&service.Manager{Process: s.Process}).HeldBack(status.Version); why != "" {
		fmt.Fprintln(s.Stderr, "ocipd: "+term.Printable(why))
	}
	return nil
}

// statusName is the width of the names of facts.
const statusName = len("decisions")

// draw formats a status. The brief form is for watching: without places and advice,
// problems first, and each line within the screen's width, so that 80 by 24 shows a daemon
// with a dozen apps completely.
func draw(status *api.Status, scr term.Screen, now time.Time, brief bool) []string {
	p := scr.Colour
	lines := []string{fmt.Sprintf("%s %s, pid %d, up %s, %s", p.Paint(term.Bold, "ocipd"), term.Printable(status.Version), status.PID,
		term.Age(now.Sub(status.StartedAt)), term.Count(status.Connections, "connection"))}
	list, indent := facts(status, now), "  "
	tables := []*term.Table{appTable(status, now), agentTable(status), queueTable(status), sinkTable(status, now)}
	if brief {
		list, indent = slices.DeleteFunc(list, func(f fact) bool { return f.aside }), ""
		bad := slices.DeleteFunc(slices.Clone(list), func(f fact) bool { return !f.wrong })
		list = append(bad, slices.DeleteFunc(list, func(f fact) bool { return f.wrong })...)
		tables = []*term.Table{briefApps(status, now), queueTable(status), briefSinks(status, now)}
	}
	for _, f := range list {
		before := indent + p.Paint(term.Dim, f.name) + strings.Repeat(" ", statusName-len(f.name)) + term.Gap
		width := scr.Width - len(indent) - statusName - len(term.Gap)
		value := []string{f.Text}
		switch {
		case brief && scr.Terminal:
			value[0] = term.Cut(f.Text, width)
		case brief:
		case scr.Terminal || !f.wrong && !f.aside:
			// For a program, errors and advice stay in one line.
			value = term.FoldAtBlanks(f.Text, width)
		}
		for _, text := range value {
			lines = append(lines, strings.TrimRight(before+p.Paint(f.Colour, text), " "))
			before = strings.Repeat(" ", len(indent)+statusName+len(term.Gap))
		}
	}
	for _, t := range tables {
		if len(t.Rows) == 0 {
			continue
		}
		var b strings.Builder
		// A strings.Builder never fails.
		_ = t.Write(&b, scr)
		lines = append(append(lines, ""), strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")...)
	}
	return lines
}

// diskCell describes the free space of the disk and its effect.
func diskCell(s *api.StoreStatus) term.Cell {
	text := term.Mebibytes(s.FreeBytes) + " free"
	if !s.Reserve {
		text += ", no reserve"
	}
	switch s.Disk {
	case "warn":
		return term.Tinted(text+": filling up", term.Yellow)
	case "refuse":
		return term.Tinted(text+": nothing new begins; waiting work can end", term.Red)
	case "full":
		return term.Tinted(text+": full, nothing can be recorded or let through", term.Red)
	}
	return term.Plain(text)
}

// counts lists numbers by name, such as "in_progress 2, resolved 1".
func counts(of map[string]int) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(of)) {
		if of[name] > 0 {
			parts = append(parts, fmt.Sprintf("%s %d", name, of[name]))
		}
	}
	return strings.Join(parts, ", ")
}

func appTable(status *api.Status, now time.Time) *term.Table {
	t := &term.Table{Columns: []term.Column{
		{Title: "APP", Whole: true}, {Title: "VERSION", Least: 7}, {Title: "TYPE", Least: 5}, {Title: "HEALTH", Least: 9},
		{Title: "READY", Least: 5}, {Title: "PID", Least: 7, Right: true}, {Title: "SEEN", Least: 4, Right: true}, {Title: "PROVIDES", Least: 20, Below: true},
	}}
	for _, a := range status.Apps {
		health := term.Tinted(a.Health, term.Yellow)
		if a.Health == "healthy" {
			health.Colour = term.Green
		}
		t.Add(term.Plain(a.ID), term.Plain(a.Version), term.Plain(a.Type), health, term.Plain(term.YesNo(a.Ready)), term.Plain(strconv.Itoa(int(a.PID))),
			term.Plain(term.Age(now.Sub(a.LastSeenAt))), term.Plain(strings.Join(append(slices.Clone(a.Capabilities), a.Hooks...), " ")))
	}
	return t
}

func agentTable(status *api.Status) *term.Table {
	t := &term.Table{Columns: []term.Column{{Title: "AGENT", Whole: true}, {Title: "INSTANCE", Whole: true}, {Title: "APP", Whole: true, Below: true}, {Title: "CONNECTED", Least: 9}}}
	for _, a := range status.Agents {
		connected := term.Tinted("no", term.Yellow)
		if a.Connected {
			connected = term.Tinted("yes", term.Green)
		}
		t.Add(term.Plain(a.ID), term.Plain(a.InstanceID), term.Plain(a.App), connected)
	}
	return t
}

func queueTable(status *api.Status) *term.Table {
	t := &term.Table{Columns: []term.Column{{Title: "QUEUE", Whole: true}, {Title: "WAITING", Least: 7, Right: true}, {Title: "UNTIL", Least: 12}}}
	for _, q := range status.Queues {
		t.Add(term.Plain(q.Name), term.Plain(strconv.Itoa(q.Waiting)), term.Tinted(absent(status, q.Name), term.Yellow))
	}
	return t
}

// absent says for whom a queue waits, or is "" if the receiver is there.
func absent(status *api.Status, queue string) string {
	kind, name, _ := strings.Cut(queue, ":")
	switch kind {
	case "agent":
		for i := range status.Agents {
			if a := &status.Agents[i]; a.ID == name && !a.Connected {
				return a.ID + "'s program " + a.App + " connects"
			}
		}
	case "channel":
		if !slices.ContainsFunc(status.Apps, func(a api.AppStatus) bool { return slices.Contains(a.Capabilities, queue) }) {
			return "a program registers the channel"
		}
	}
	return ""
}

func sinkTable(status *api.Status, now time.Time) *term.Table {
	t := &term.Table{Columns: []term.Column{
		{Title: "SINK", Least: 8}, {Title: "TYPE", Least: 8}, {Title: "SENT TO", Least: 7, Right: true}, {Title: "BEHIND", Least: 6, Right: true},
		{Title: "OLDEST", Least: 6, Right: true}, {Title: "STATE", Least: 12},
	}}
	for _, s := range status.Sinks {
		state, oldest := term.Tinted("well", term.Green), ""
		switch {
		case s.Error != "":
			state = term.Tinted("failing for "+term.Age(now.Sub(s.FailingSince))+": "+s.Error, term.Red)
		case s.Note != "":
			state = term.Tinted(s.Note, term.Yellow)
		}
		if !s.OldestUnsent.IsZero() {
			oldest = term.Age(now.Sub(s.OldestUnsent))
		}
		t.Add(term.Plain(s.Name), term.Plain(s.Type), term.Plain(strconv.FormatUint(s.Seq, 10)), term.Plain(strconv.FormatUint(s.Lag, 10)), term.Plain(oldest), state)
	}
	return t
}
