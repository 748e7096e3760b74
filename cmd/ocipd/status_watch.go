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
	"github.com/openclawos/ocipd/internal/doctor"
	"github.com/openclawos/ocipd/internal/term"
)

// watchStatus shows the daemon's status again and again: on a terminal in place,
// and otherwise one after another.
func (s *shell) watchStatus(ctx context.Context, every time.Duration, asJSON bool) error {
	if scr := s.Screen(); scr.Terminal && !asJSON {
		return s.statusOnTerminal(ctx, every, scr)
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

// showStatus writes what the daemon said of itself. One of many is brief.
func (s *shell) showStatus(raw jsontext.Value, asJSON, brief bool) error {
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

func (s *shell) statusOnTerminal(ctx context.Context, every time.Duration, scr term.Screen) error {
	m := &statusBoard{screen: scr, every: every, ask: func() (jsontext.Value, error) { return s.AskOperator(ctx, "kernel.status") }}
	_, err := tea.NewProgram(m, tea.WithContext(ctx), tea.WithInput(s.Stdin), tea.WithOutput(s.Stdout),
		tea.WithEnvironment(s.Env), tea.WithoutSignalHandler()).Run()
	if errors.Is(err, tea.ErrProgramKilled) && ctx.Err() != nil {
		return nil
	}
	return err
}

// statusBoard is a status that is kept up to date: the model of the interactive
// command. It is used by one goroutine, as bubbletea does.
type statusBoard struct {
	screen term.Screen
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
		b.screen.Width, b.height = msg.Width, msg.Height
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
		last = b.screen.Colour.Paint(term.Red, term.Cut(term.Printable(term.OneLine(b.trouble)), b.screen.Width))
	}
	if room := b.height - 1; b.height > 1 && len(lines) > room {
		more := len(lines) - room + 1
		lines = append(lines[:room-1], b.screen.Colour.Paint(term.Dim, term.Cut(fmt.Sprintf("… and %s", term.Count(more, "line")), b.screen.Width)))
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
	took := func(micros int64) string { return term.Round(time.Duration(micros) * time.Microsecond).String() }
	return fmt.Sprintf("%d, p50 %s, p99 %s; commits p50 %s, p99 %s", l.Decisions,
		took(l.DecisionP50), took(l.DecisionP99), took(l.CommitP50), took(l.CommitP99))
}

// heldText is what waits for a person.
func heldText(status *api.Status, now time.Time) string {
	text := term.Count(status.Held, "message") + " for a person"
	if !status.OldestHeld.IsZero() {
		text += ", the oldest for " + term.Age(now.Sub(status.OldestHeld))
	}
	return text + ": ocipd approvals"
}

// logCell is how far the log is, and what follows it.
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
