package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/api"
)

// watchStatus shows the daemon's status again and again: on a terminal in place,
// and otherwise one after another.
func (s *shell) watchStatus(ctx context.Context, every time.Duration, asJSON bool) error {
	if scr := s.screen(); scr.terminal && !asJSON {
		return s.statusOnTerminal(ctx, every, scr)
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		raw, err := s.askOperator(ctx, "kernel.status")
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

// showStatus writes what the daemon said of itself. One of many is brief.
func (s *shell) showStatus(raw jsontext.Value, asJSON, brief bool) error {
	if asJSON {
		_, err := s.stdout.Write(s.screen().line(raw))
		return err
	}
	var status api.Status
	if err := json.Unmarshal(raw, &status); err != nil {
		return fmt.Errorf("cannot read the daemon's status: %w", err)
	}
	if !brief {
		return s.printStatus(&status)
	}
	_, err := fmt.Fprintln(s.stdout, strings.Join(draw(&status, s.screen(), time.Now(), true), "\n")+"\n")
	return err
}

func (s *shell) statusOnTerminal(ctx context.Context, every time.Duration, scr screen) error {
	m := &statusBoard{screen: scr, every: every, ask: func() (jsontext.Value, error) { return s.askOperator(ctx, "kernel.status") }}
	_, err := tea.NewProgram(m, tea.WithContext(ctx), tea.WithInput(s.stdin), tea.WithOutput(s.stdout),
		tea.WithEnvironment(s.env), tea.WithoutSignalHandler()).Run()
	if errors.Is(err, tea.ErrProgramKilled) && ctx.Err() != nil {
		return nil
	}
	return err
}

// statusBoard is a status that is kept up to date: the model of the interactive
// command. It is used by one goroutine, as bubbletea does.
type statusBoard struct {
	screen screen
	height int
	every  time.Duration
	ask    func() (jsontext.Value, error)

	now    time.Time
	status *api.Status
	// trouble is why there is no newer one, empty where the last is new.
	trouble string
}

// What a board learns besides keys.
type (
	lookMsg   time.Time
	statusMsg struct {
		at  time.Time
		raw jsontext.Value
		err error
	}
)

// Init asks for the first status.
func (b *statusBoard) Init() tea.Cmd { return b.look }

func (b *statusBoard) look() tea.Msg {
	raw, err := b.ask()
	return statusMsg{at: time.Now(), raw: raw, err: err}
}

// Update takes one message.
func (b *statusBoard) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		b.screen.width, b.height = msg.Width, msg.Height
	case tea.KeyPressMsg:
		if k := msg.String(); k == "q" || k == "ctrl+c" || k == "esc" {
			return b, tea.Quit
		}
	case lookMsg:
		return b, b.look
	case statusMsg:
		b.now, b.trouble = msg.at, ""
		next := new(api.Status)
		if msg.err == nil {
			msg.err = json.Unmarshal(msg.raw, next)
		}
		if msg.err != nil {
			b.trouble = msg.err.Error()
		} else {
			b.status = next
		}
		return b, tea.Tick(b.every, func(t time.Time) tea.Msg { return lookMsg(t) })
	}
	return b, nil
}

// View shows the newest status, cut to the height of the screen.
func (b *statusBoard) View() tea.View {
	var lines []string
	if b.status != nil {
		lines = draw(b.status, b.screen, b.now, true)
	}
	last := "q ends"
	if b.trouble != "" {
		last = b.screen.colour.paint(red, cutTo(printable(oneLine(b.trouble)), b.screen.width))
	}
	if room := b.height - 1; b.height > 1 && len(lines) > room {
		more := len(lines) - room + 1
		lines = append(lines[:room-1], b.screen.colour.paint(dim, cutTo(fmt.Sprintf("… and %s", count(more, "line")), b.screen.width)))
	}
	view := tea.NewView(strings.Join(append(lines, last), "\n"))
	view.AltScreen = true
	return view
}

// latencyText is how long decisions and commits take.
func latencyText(l *api.LatencyStatus) string {
	if l.Decisions == 0 {
		return "none yet"
	}
	took := func(micros int64) string { return round(time.Duration(micros) * time.Microsecond).String() }
	return fmt.Sprintf("%d, p50 %s, p99 %s; commits p50 %s, p99 %s", l.Decisions,
		took(l.DecisionP50), took(l.DecisionP99), took(l.CommitP50), took(l.CommitP99))
}

// heldText is what waits for a person.
func heldText(status *api.Status, now time.Time) string {
	text := count(status.Held, "message") + " for a person"
	if !status.OldestHeld.IsZero() {
		text += ", the oldest for " + age(now.Sub(status.OldestHeld))
	}
	return text + ": ocipd approvals"
}

// logCell is how far the log is, and what follows it.
func logCell(a *api.AuditStatus) cell {
	if a.Seq == 0 {
		return show("no record yet")
	}
	text := fmt.Sprintf("record %d, signed %d, mirrored %d, indexed %d", a.Seq, a.Signed, a.Mirrored, a.Indexed)
	if least := min(a.Mirrored, a.Indexed); a.Seq > least+manyBehind {
		return paint(text, yellow)
	}
	return show(text)
}

func briefApps(status *api.Status, now time.Time) *table {
	t := &table{columns: []column{{title: "APP", least: 12}, {title: "HEALTH", least: 9}, {title: "READY", least: 5}, {title: "SEEN", least: 4, right: true}}}
	for i := range status.Apps {
		a := &status.Apps[i]
		health := paint(a.Health, yellow)
		if a.Health == "healthy" {
			health.colour = green
		}
		t.add(show(a.ID), health, show(yesNo(a.Ready)), show(age(now.Sub(a.LastSeenAt))))
	}
	return t
}

func briefSinks(status *api.Status, now time.Time) *table {
	t := &table{columns: []column{{title: "SINK", least: 8}, {title: "BEHIND", least: 6, right: true}, {title: "STATE", least: 12}}}
	for i := range status.Sinks {
		s := &status.Sinks[i]
		state := paint("well", green)
		if s.Error != "" {
			state = paint("failing for "+age(now.Sub(s.FailingSince))+": "+s.Error, red)
		}
		t.add(show(s.Name), show(fmt.Sprint(s.Lag)), state)
	}
	return t
}
