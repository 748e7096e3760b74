package kernelcmd

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/base/panes"
	"github.com/openclawos/ocipd/internal/base/term"
	"github.com/openclawos/ocipd/internal/cli/doctor"
)

// watchStatus shows the daemon's status repeatedly: on a terminal in place, otherwise one
// after another.
func (s *command) watchStatus(ctx context.Context, every time.Duration, asJSON bool) error {
	if scr := s.Screen(); scr.Terminal && !asJSON {
		return panes.Run(ctx, panes.Options{
			Stdin: s.Stdin, Stdout: s.Stdout, Env: s.Env, Screen: scr, Every: every,
			Panes: []panes.Pane{{Title: "status", Lines: func(ctx context.Context, scr term.Screen, _ int) ([]string, error) { return s.statusOf(ctx, scr, true) }}},
		})
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		raw, err := s.AskOperator(ctx, "kernel.status")
		if err == nil {
			err = s.showStatus(raw, asJSON, true)
		}
		if ctx.Err() != nil {
			return nil // an interrupt is how it ends
		}
		if err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// showStatus prints a status, in the brief form for a watch.
func (s *command) showStatus(raw jsontext.Value, asJSON, brief bool) error {
	if asJSON {
		_, err := s.Stdout.Write(s.Screen().JSONLine(raw))
		return err
	}
	var status api.Status
	if err := json.Unmarshal(raw, &status); err != nil {
		return fmt.Errorf("cannot read the daemon's status: %w", err)
	}
	if !brief {
		return s.printStatus(&status)
	}
	_, err := fmt.Fprintln(s.Stdout, strings.Join(draw(&status, s.Screen(), time.Now(), true), "\n")+"\n")
	return err
}

// latencyText describes how long decisions and commits take.
func latencyText(l *api.LatencyStatus) string {
	if l.Decisions == 0 {
		return "none yet"
	}
	took := func(micros int64) string { return term.Round(time.Duration(micros) * time.Microsecond).String() }
	return fmt.Sprintf("%d, p50 %s, p99 %s; commits p50 %s, p99 %s", l.Decisions,
		took(l.DecisionP50), took(l.DecisionP99), took(l.CommitP50), took(l.CommitP99))
}

// heldText describes the pending requests.
func heldText(status *api.Status, now time.Time) string {
	text := term.Count(status.Held, "request") + " for a person"
	if !status.OldestHeld.IsZero() {
		text += ", the oldest for " + term.Age(now.Sub(status.OldestHeld))
	}
	return text + ": ocipd approvals"
}

// logCell describes the end of the log, and how far its followers are.
func logCell(a *api.AuditStatus) term.Cell {
	if a.Seq == 0 {
		return term.Plain("no record yet")
	}
	text := fmt.Sprintf("record %d, signed %d, mirrored %d, indexed %d", a.Seq, a.Signed, a.Mirrored, a.Indexed)
	if least := min(a.Mirrored, a.Indexed); a.Seq > least+doctor.ManyBehind {
		return term.Tinted(text, term.Yellow)
	}
	return term.Plain(text)
}

func briefApps(status *api.Status, now time.Time) *term.Table {
	t := &term.Table{Columns: []term.Column{{Title: "APP", Least: 12}, {Title: "HEALTH", Least: 9}, {Title: "READY", Least: 5}, {Title: "SEEN", Least: 4, Right: true}}}
	for i := range status.Apps {
		a := &status.Apps[i]
		health := term.Tinted(a.Health, term.Yellow)
		if a.Health == "healthy" {
			health.Colour = term.Green
		}
		t.Add(term.Plain(a.ID), health, term.Plain(term.YesNo(a.Ready)), term.Plain(term.Age(now.Sub(a.LastSeenAt))))
	}
	return t
}

func briefSinks(status *api.Status, now time.Time) *term.Table {
	t := &term.Table{Columns: []term.Column{{Title: "SINK", Least: 8}, {Title: "BEHIND", Least: 6, Right: true}, {Title: "STATE", Least: 12}}}
	for i := range status.Sinks {
		s := &status.Sinks[i]
		state := term.Tinted("well", term.Green)
		if s.Error != "" {
			state = term.Tinted("failing for "+term.Age(now.Sub(s.FailingSince))+": "+s.Error, term.Red)
		}
		t.Add(term.Plain(s.Name), term.Plain(fmt.Sprint(s.Lag)), state)
	}
	return t
}
