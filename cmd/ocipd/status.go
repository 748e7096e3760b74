package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/client"
	"github.com/spf13/cobra"
)

// askAgain is how often a daemon that is not there yet is looked for.
const askAgain = 25 * time.Millisecond

func newStatus(s *shell) *cobra.Command {
	var asJSON, watch bool
	var wait, every time.Duration
	c := &cobra.Command{
		Use:   "status",
		Short: "show the running daemon, its apps and what waits",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if every < minInterval {
				return usagef("cannot look every %s: at least %s", every, minInterval)
			}
			raw, err := s.status(cmd.Context(), wait)
			if err != nil {
				return err
			}
			if watch {
				return s.watchStatus(cmd.Context(), every, asJSON)
			}
			if asJSON {
				_, err := s.stdout.Write(s.screen().line(raw))
				return err
			}
			var status api.Status
			if err := json.Unmarshal(raw, &status); err != nil {
				return fmt.Errorf("cannot read the daemon's status: %w", err)
			}
			return s.printStatus(&status)
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	c.Flags().BoolVarP(&watch, "watch", "w", false, "go on showing it, in few lines; q ends")
	c.Flags().DurationVar(&every, "interval", time.Second, "how often --watch looks")
	c.Flags().DurationVar(&wait, "wait", 0, "wait this long for a daemon that is starting")
	return c
}

// minInterval keeps a watch from keeping the daemon busy.
const minInterval = 100 * time.Millisecond

// status asks the daemon, and goes on asking for as long as wait where none
// answers.
func (s *shell) status(ctx context.Context, wait time.Duration) (jsontext.Value, error) {
	deadline, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	again := time.NewTicker(askAgain)
	defer again.Stop()
	for {
		raw, err := s.askOperator(ctx, "kernel.status")
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

func (s *shell) printStatus(status *api.Status) error {
	scr, now := s.screen(), time.Now()
	w := bufio.NewWriter(s.stdout)
	p := scr.colour

	fmt.Fprintf(w, "%s %s, pid %d, up %s, %s\n", p.paint(bold, "ocipd"), printable(status.Version), status.PID,
		age(now.Sub(status.StartedAt)), count(status.Connections, "connection"))
	facts := table{columns: []column{{}, {least: 1}}}
	fact := func(name string, value cell) { facts.add(cell{text: "  " + name, colour: dim}, value) }
	fact("socket", show(status.Socket))
	fact("operator", show(status.OperatorSocket))
	fact("config", show(orElse(status.ConfigFile, "no file: the defaults serve")))
	fact("database", show(status.Database))
	mirror := show(status.Mirror)
	if behind := status.Audit.Seq - min(status.Audit.Mirrored, status.Audit.Seq); behind > 0 {
		mirror = paint(fmt.Sprintf("%s (%s behind)", status.Mirror, count(int(behind), "record")), yellow)
	}
	fact("mirror", mirror)
	fact("policy", show(strings.TrimSpace(status.Policy.Source+" "+status.Policy.Revision)))
	if p := &status.Policy; p.Refusal != "" {
		fact("refused", paint(p.RefusedAt.Local().Format(time.DateTime)+" "+p.Refusal, red))
		fact("", show("the policy above stays in force; correct that, try it with: ocipd policy check, then: ocipd policy reload"))
	}
	if c := &status.Config; c.Refusal != "" {
		fact("refused", paint(c.RefusedAt.Local().Format(time.DateTime)+" "+c.Refusal, red))
		fact("", show("the configuration as it was stays in force; correct that, try it with: ocipd config check --diff, then: ocipd config reload"))
	}
	if len(status.PendingRestart) > 0 {
		fact("restart", paint("takes effect at the next start: "+strings.Join(status.PendingRestart, ", "), yellow))
	}
	fact("audit", show(auditHead(&status.Audit)))
	if status.Audit.Fault != "" {
		fact("fault", paint(status.Audit.Fault, red))
	}
	for _, problem := range status.Audit.Mirror.Problems {
		fact("", paint("mirror: "+problem, red))
	}
	fact("disk", diskCell(&status.Store))
	fact("sessions", show(strconv.Itoa(status.Sessions)))
	fact("decisions", show(latencyText(&status.Latency)))
	fact("exchanges", show(orElse(counts(status.Exchanges), "none")))
	if status.Held > 0 {
		fact("held", paint(heldText(status, now), yellow))
	}
	// Paths are for copying, so they are shown whole.
	if err := facts.write(w, screen{width: 1 << 16, colour: p}); err != nil {
		return err
	}

	for _, t := range []*table{appTable(status, now), agentTable(status), queueTable(status), sinkTable(status, now)} {
		if len(t.rows) == 0 {
			continue
		}
		fmt.Fprintln(w)
		if err := t.write(w, scr); err != nil {
			return err
		}
	}
	return w.Flush()
}

// diskCell is how the disk is and what that means.
func diskCell(s *api.StoreStatus) cell {
	text := mebibytes(s.FreeBytes) + " free"
	if !s.Reserve {
		text += ", no reserve"
	}
	switch s.Disk {
	case "warn":
		return paint(text+": filling up", yellow)
	case "refuse":
		return paint(text+": nothing new is taken up; what waits can still be ended", red)
	case "full":
		return paint(text+": full, nothing can be recorded or let through", red)
	}
	return show(text)
}

func mebibytes(n int64) string {
	if n >= 10<<30 {
		return fmt.Sprintf("%d GiB", n>>30)
	}
	return fmt.Sprintf("%d MiB", n>>20)
}

func auditHead(a *api.AuditStatus) string {
	if a.Seq == 0 {
		return "no record yet"
	}
	return fmt.Sprintf("record %d of %s, hash %s, signed up to %d, indexed up to %d", a.Seq, a.Time.Local().Format(time.DateTime), cutTo(a.Hash, 17), a.Signed, a.Indexed)
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

func appTable(status *api.Status, now time.Time) *table {
	t := &table{columns: []column{
		{title: "APP", least: 12}, {title: "VERSION", least: 7}, {title: "TYPE", least: 5}, {title: "HEALTH", least: 9},
		{title: "READY", least: 5}, {title: "PID", least: 7, right: true}, {title: "SEEN", least: 4, right: true}, {title: "PROVIDES", least: 8},
	}}
	for _, a := range status.Apps {
		health := paint(a.Health, yellow)
		if a.Health == "healthy" {
			health.colour = green
		}
		t.add(show(a.ID), show(a.Version), show(a.Type), health, show(yesNo(a.Ready)), show(strconv.Itoa(int(a.PID))),
			show(age(now.Sub(a.LastSeenAt))), show(strings.Join(append(slices.Clone(a.Capabilities), a.Hooks...), " ")))
	}
	return t
}

func agentTable(status *api.Status) *table {
	t := &table{columns: []column{{title: "AGENT", least: 8}, {title: "INSTANCE", least: 12}, {title: "APP", least: 12}, {title: "CONNECTED", least: 9}}}
	for _, a := range status.Agents {
		connected := paint("no", yellow)
		if a.Connected {
			connected = paint("yes", green)
		}
		t.add(show(a.ID), show(a.InstanceID), show(a.App), connected)
	}
	return t
}

func queueTable(status *api.Status) *table {
	t := &table{columns: []column{{title: "QUEUE", least: 12}, {title: "WAITING", least: 7, right: true}}}
	for _, q := range status.Queues {
		t.add(show(q.Name), show(strconv.Itoa(q.Waiting)))
	}
	return t
}

func sinkTable(status *api.Status, now time.Time) *table {
	t := &table{columns: []column{
		{title: "SINK", least: 8}, {title: "TYPE", least: 8}, {title: "SENT TO", least: 7, right: true}, {title: "BEHIND", least: 6, right: true},
		{title: "OLDEST", least: 6, right: true}, {title: "STATE", least: 12},
	}}
	for _, s := range status.Sinks {
		state, oldest := paint("well", green), ""
		switch {
		case s.Error != "":
			state = paint("failing for "+age(now.Sub(s.FailingSince))+": "+s.Error, red)
		case s.Note != "":
			state = paint(s.Note, yellow)
		}
		if !s.OldestUnsent.IsZero() {
			oldest = age(now.Sub(s.OldestUnsent))
		}
		t.add(show(s.Name), show(s.Type), show(strconv.FormatUint(s.Seq, 10)), show(strconv.FormatUint(s.Lag, 10)), show(oldest), state)
	}
	return t
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

func orElse(text, other string) string {
	if text == "" {
		return other
	}
	return text
}

// count is a number with its noun.
func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return strconv.Itoa(n) + " " + noun + "s"
}

// age is a duration in its two largest units.
func age(d time.Duration) string {
	switch d = max(0, d.Truncate(time.Second)); {
	case d < time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%dm%ds", d/time.Minute, d%time.Minute/time.Second)
	case d < 24*time.Hour:
		return fmt.Sprintf("%dh%dm", d/time.Hour, d%time.Hour/time.Minute)
	}
	return fmt.Sprintf("%dd%dh", d/(24*time.Hour), d%(24*time.Hour)/time.Hour)
}
