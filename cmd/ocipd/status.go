package main

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
			return s.showStatus(raw, asJSON, false)
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
	if _, err := fmt.Fprintln(s.stdout, strings.Join(draw(status, s.screen(), time.Now(), false), "\n")); err != nil {
		return err
	}
	if why := s.heldBack(status.Version); why != "" {
		fmt.Fprintln(s.stderr, "ocipd: "+printable(why))
	}
	return nil
}

// fact is one line about the daemon as a whole.
type fact struct {
	name string
	cell
	// wrong marks what is not as it should be, aside what a watch leaves out:
	// places, and what to do.
	wrong, aside bool
}

// facts are what is said of the daemon as a whole, wherever its status is shown.
func facts(status *api.Status, now time.Time) (list []fact) {
	say := func(name string, c cell) { list = append(list, fact{name: name, cell: c}) }
	aside := func(name string, c cell) { list = append(list, fact{name: name, cell: c, aside: true}) }
	wrong := func(name, text string, c colour) {
		list = append(list, fact{name: name, cell: cell{text: oneLine(text), colour: c}, wrong: true})
	}
	a := &status.Audit

	aside("socket", show(status.Socket))
	aside("operator", show(status.OperatorSocket))
	if status.UnusedSocket != "" {
		wrong("unused", status.UnusedSocket+" was passed by the service manager, and nobody answers there: another one is configured", yellow)
	}
	aside("config", show(orElse(status.ConfigFile, "no file: the defaults serve")))
	aside("database", show(status.Database))
	mirror := show(status.Mirror)
	if behind := a.Seq - min(a.Mirrored, a.Seq); behind > 0 {
		mirror = paint(fmt.Sprintf("%s (%s behind)", status.Mirror, count(int(behind), "record")), yellow)
	}
	aside("mirror", mirror)
	say("policy", show(strings.TrimSpace(status.Policy.Source+" "+status.Policy.Revision)))
	if a.Fault != "" {
		wrong("fault", a.Fault, red)
	}
	if u := a.Unsigned; u != nil {
		wrong("unsigned", fmt.Sprintf("nobody had signed records %d to %d (%s to %s) when the daemon started, more than one leaves behind: they may not be what was decided",
			u.First, u.Last, u.Since.Local().Format(time.DateTime), u.Until.Local().Format(time.DateTime)), red)
		aside("", show("compare them with what others hold: ocipd audit verify --with-receipts, and with the mirror's copies"))
	}
	refused := func(at time.Time, why string, faults []api.PolicyFault, advice string) {
		if why == "" {
			return
		}
		if len(faults) > 1 {
			why, _, _ = strings.Cut(why, ": ")
			why += ": " + count(len(faults), "fault")
		}
		wrong("refused", at.Local().Format(time.DateTime)+" "+why, red)
		if len(faults) > 1 {
			for _, line := range faultLines(faults, len(faults)) {
				list = append(list, fact{cell: cell{text: line, colour: red}, wrong: true})
			}
		}
		aside("", show(advice))
	}
	refused(status.Policy.RefusedAt, status.Policy.Refusal, status.Policy.Faults,
		"the policy above stays in force; correct that, try it with: ocipd policy check, then: ocipd policy reload")
	refused(status.Config.RefusedAt, status.Config.Refusal, status.Config.Faults,
		"the configuration as it was stays in force; correct that, try it with: ocipd config check --diff, then: ocipd config reload")
	if len(status.PendingRestart) > 0 {
		wrong("restart", "takes effect at the next start: "+strings.Join(status.PendingRestart, ", "), yellow)
	}
	for _, problem := range a.Mirror.Problems {
		wrong("mirror", problem, red)
	}
	say("log", logCell(a))
	if a.Seq > 0 {
		aside("", show(fmt.Sprintf("%s, hash %s", a.Time.Local().Format(time.DateTime), cutTo(a.Hash, 17))))
	}
	say("disk", diskCell(&status.Store))
	say("sessions", show(strconv.Itoa(status.Sessions)))
	say("decisions", show(latencyText(&status.Latency)))
	say("exchanges", show(orElse(counts(status.Exchanges), "none")))
	held := show("none")
	if status.Held > 0 {
		held = paint(heldText(status, now), yellow)
	}
	say("held", held)
	for i := range status.Paused {
		say("paused", paint(strings.TrimPrefix(pausedLine(&status.Paused[i], now), "paused: "), yellow))
	}
	return list
}

// statusName is how wide the names of facts are.
const statusName = len("decisions")

// draw is a status in lines of text. A brief one is for watching: without places
// and advice, with what is wrong first, and each line within the screen's width,
// so that 80 by 24 shows a daemon with a dozen apps whole.
func draw(status *api.Status, scr screen, now time.Time, brief bool) []string {
	p := scr.colour
	lines := []string{fmt.Sprintf("%s %s, pid %d, up %s, %s", p.paint(bold, "ocipd"), printable(status.Version), status.PID,
		age(now.Sub(status.StartedAt)), count(status.Connections, "connection"))}
	list, indent := facts(status, now), "  "
	tables := []*table{appTable(status, now), agentTable(status), queueTable(status), sinkTable(status, now)}
	if brief {
		list, indent = slices.DeleteFunc(list, func(f fact) bool { return f.aside }), ""
		bad := slices.DeleteFunc(slices.Clone(list), func(f fact) bool { return !f.wrong })
		list = append(bad, slices.DeleteFunc(list, func(f fact) bool { return f.wrong })...)
		tables = []*table{briefApps(status, now), queueTable(status), briefSinks(status, now)}
	}
	for _, f := range list {
		before := indent + p.paint(dim, f.name) + strings.Repeat(" ", statusName-len(f.name)) + gap
		width := scr.width - len(indent) - statusName - len(gap)
		value := []string{f.text}
		switch {
		case brief && scr.terminal:
			value[0] = cutTo(f.text, width)
		case brief:
		case scr.terminal || !f.wrong && !f.aside:
			// For a program, errors and advice stay in one line.
			value = foldAtBlanks(f.text, width)
		}
		for _, text := range value {
			lines = append(lines, strings.TrimRight(before+p.paint(f.colour, text), " "))
			before = strings.Repeat(" ", len(indent)+statusName+len(gap))
		}
	}
	for _, t := range tables {
		if len(t.rows) == 0 {
			continue
		}
		var b strings.Builder
		// A strings.Builder takes everything.
		_ = t.write(&b, scr)
		lines = append(append(lines, ""), strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")...)
	}
	return lines
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
		{title: "APP", whole: true}, {title: "VERSION", least: 7}, {title: "TYPE", least: 5}, {title: "HEALTH", least: 9},
		{title: "READY", least: 5}, {title: "PID", least: 7, right: true}, {title: "SEEN", least: 4, right: true}, {title: "PROVIDES", least: 20, below: true},
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
	t := &table{columns: []column{{title: "AGENT", whole: true}, {title: "INSTANCE", whole: true}, {title: "APP", whole: true, below: true}, {title: "CONNECTED", least: 9}}}
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
	t := &table{columns: []column{{title: "QUEUE", whole: true}, {title: "WAITING", least: 7, right: true}}}
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
