// Package panes is one live screen of several panes. Each pane is a list of lines that is
// refreshed again and again, and can be scrolled. The caller provides the lines, and the action of
// the Enter key in a pane.
package panes

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/openclawos/ocipd/internal/base/term"
)

// Pane is one of the screen's panes.
type Pane struct {
	Title string
	// Lines draws the pane for a screen with this width and number of rows. If it returns more
	// rows, the person can scroll to them. It runs on its own goroutine, one call at a time.
	Lines func(ctx context.Context, s term.Screen, rows int) ([]string, error)
	// End is set if a person should see the last lines first, as in a log.
	End bool
	// Open, if set, is the action of Enter. It has the terminal for itself. The footer calls it
	// Opens.
	Open  func(ctx context.Context) error
	Opens string
}

// Options are the properties of its process that a console needs.
type Options struct {
	Stdin  io.Reader
	Stdout io.Writer
	Env    []string
	Screen term.Screen
	Panes  []Pane
	// Every is the time between two refreshes.
	Every time.Duration
}

// Run shows the panes until the person quits or the context ends, which is no error.
func Run(ctx context.Context, o Options) error {
	m := &model{ctx: ctx, o: o, screen: o.Screen, views: make([]view, len(o.Panes))}
	for {
		m.open = false
		_, err := tea.NewProgram(m, tea.WithContext(ctx), tea.WithInput(o.Stdin), tea.WithOutput(o.Stdout),
			tea.WithEnvironment(o.Env), tea.WithoutSignalHandler()).Run()
		switch {
		case errors.Is(err, tea.ErrProgramKilled) && ctx.Err() != nil:
			return nil
		case err != nil:
			return err
		case !m.open:
			return nil
		}
		if err := o.Panes[m.at].Open(ctx); err != nil && ctx.Err() == nil {
			m.views[m.at].trouble = err.Error()
		}
	}
}

// view is the content of a pane now.
type view struct {
	lines []string
	// trouble is the error of the last refresh, empty if it succeeded.
	trouble string
	// above is the number of lines that are scrolled away: at the top, or below if the pane shows
	// its end first.
	above int
}

// model is used by one goroutine, as bubbletea does.
type model struct {
	ctx    context.Context
	o      Options
	screen term.Screen
	height int
	at     int
	help   bool
	open   bool
	views  []view
	// look numbers the refreshes, so that the tick of an earlier one does not begin another.
	look int
}

type (
	tickMsg  int
	drawnMsg struct {
		pane, look int
		lines      []string
		err        error
	}
)

// Init asks for the pane that is shown.
func (m *model) Init() tea.Cmd { return m.draw() }

func (m *model) draw() tea.Cmd {
	if m.height == 0 {
		return nil // the terminal has not reported its size
	}
	m.look++
	pane, look, screen, rows := m.at, m.look, m.screen, m.rows()
	return func() tea.Msg {
		lines, err := m.o.Panes[pane].Lines(m.ctx, screen, rows)
		return drawnMsg{pane, look, lines, err}
	}
}

// rows is the number of lines in a pane: all except the footer, and the tabs if there are several
// panes.
func (m *model) rows() int {
	if len(m.views) == 1 {
		return max(1, m.height-1)
	}
	return max(1, m.height-3)
}

// Update takes one message.
func (m *model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.screen.Width, m.height = msg.Width, msg.Height
		return m, m.draw()
	case tea.KeyPressMsg:
		return m, m.key(msg.String())
	case tickMsg:
		if int(msg) == m.look {
			return m, m.draw()
		}
	case drawnMsg:
		v := &m.views[msg.pane]
		if v.trouble = ""; msg.err != nil {
			v.trouble = msg.err.Error()
		} else {
			v.lines = msg.lines
		}
		if msg.look == m.look {
			return m, tea.Tick(m.o.Every, func(time.Time) tea.Msg { return tickMsg(msg.look) })
		}
	}
	return m, nil
}

func (m *model) key(key string) tea.Cmd {
	if m.help {
		m.help = false
		return nil
	}
	v := &m.views[m.at]
	up, down := 1, -1
	if !m.o.Panes[m.at].End {
		up, down = -1, 1
	}
	switch key {
	case "q", "ctrl+c", "esc":
		return tea.Quit
	case "?":
		m.help = true
	case "tab", "right", "l":
		return m.turn(m.at + 1)
	case "shift+tab", "left", "h":
		return m.turn(m.at - 1)
	case "up", "k":
		m.scroll(v, up)
	case "down", "j":
		m.scroll(v, down)
	case "pgup", "b":
		m.scroll(v, up*m.rows())
	case "pgdown", "space":
		m.scroll(v, down*m.rows())
	case "home", "g":
		m.scroll(v, up*len(v.lines))
	case "end", "G":
		m.scroll(v, down*len(v.lines))
	case "enter":
		if m.o.Panes[m.at].Open != nil {
			m.open = true
			return tea.Quit
		}
	default:
		if n := int(key[0] - '1'); len(key) == 1 && n >= 0 && n < len(m.views) {
			return m.turn(n)
		}
	}
	return nil
}

func (m *model) turn(to int) tea.Cmd {
	m.at = (to + len(m.views)) % len(m.views)
	return m.draw()
}

func (m *model) scroll(v *view, by int) { v.above = min(max(0, v.above+by), m.most(v)) }

// most is how far a view can be scrolled.
func (m *model) most(v *view) int { return max(0, len(v.lines)-m.rows()) }

// View draws tabs, pane and footer.
func (m *model) View() tea.View {
	p := m.screen.Colour
	var tabs []string
	width := 0
	for i := range m.o.Panes {
		name := fmt.Sprintf(" %d %s ", i+1, m.o.Panes[i].Title)
		if width += term.Width(name); width > m.screen.Width {
			break
		}
		if i == m.at {
			name = p.Paint(term.Reverse, name)
		}
		tabs = append(tabs, name)
	}
	body := m.body()
	for len(body) < m.rows() {
		body = append(body, "")
	}
	lines := body
	if len(m.views) > 1 {
		lines = append([]string{strings.Join(tabs, ""), ""}, body...)
	}
	v := tea.NewView(strings.Join(append(lines, m.footer()), "\n"))
	v.AltScreen = true
	return v
}

func (m *model) body() []string {
	if m.help {
		return m.helpLines()
	}
	v, rows := &m.views[m.at], m.rows()
	if m.nothing() {
		lines := term.Fold(term.OneLine(v.trouble), m.screen.Width)
		for i := range lines {
			lines[i] = m.screen.Colour.Paint(term.Red, lines[i])
		}
		return lines[:min(len(lines), rows)]
	}
	v.above = min(v.above, m.most(v))
	from := v.above
	if m.o.Panes[m.at].End {
		from = m.most(v) - v.above
	}
	return slices.Clone(v.lines[from:min(len(v.lines), from+rows)])
}

// nothing reports whether the pane shows an error because it has no lines.
func (m *model) nothing() bool {
	v := &m.views[m.at]
	return v.trouble != "" && len(v.lines) == 0
}

func (m *model) helpLines() []string {
	help := []string{"up, down, j, k", "scroll by a line", "space, b", "scroll by a page", "g, G", "to the beginning, to the end"}
	if len(m.views) > 1 {
		help = append([]string{"tab, 1 to " + fmt.Sprint(len(m.views)), "another pane"}, help...)
	}
	where := make(map[string][]string) // actions of Enter, and the panes that have them
	var does []string
	for i := range m.o.Panes {
		if p := &m.o.Panes[i]; p.Open != nil {
			if where[p.Opens] == nil {
				does = append(does, p.Opens)
			}
			where[p.Opens] = append(where[p.Opens], p.Title)
		}
	}
	for _, what := range does {
		help = append(help, "enter", what+", in "+strings.Join(where[what], " and "))
	}
	help = append(help, "q", "quit", "?", "this help; any key closes it")
	var keys [][2]string
	for pair := range slices.Chunk(help, 2) {
		keys = append(keys, [2]string(pair))
	}
	return term.KeyHelp(keys, m.screen.Width)
}

func (m *model) footer() string {
	pane, v := &m.o.Panes[m.at], &m.views[m.at]
	if v.trouble != "" && !m.nothing() {
		return m.screen.Colour.Paint(term.Red, term.Cut(term.OneLine(v.trouble), m.screen.Width))
	}
	keys := "tab next pane  ? help  q quit"
	if len(m.views) == 1 {
		keys = "? help  q quit"
	}
	if pane.Open != nil {
		keys = "enter " + pane.Opens + "  " + keys
	}
	if m.most(v) > v.above {
		keys = fmt.Sprintf("%s  %s", term.Count(m.most(v)-v.above, "more line"), keys)
	}
	return m.screen.Colour.Paint(term.Dim, term.KeyLine(keys, m.screen.Width))
}
