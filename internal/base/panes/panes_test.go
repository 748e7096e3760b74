package panes

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/openclawos/ocipd/internal/base/term"
)

// drive is a console without a terminal: it answers every request at once, and never ticks.
type drive struct {
	*testing.T
	m    *model
	quit bool
}

func begin(t *testing.T, panes ...Pane) *drive {
	d := &drive{T: t, m: &model{ctx: t.Context(), o: Options{Panes: panes, Every: time.Hour}, views: make([]view, len(panes))}}
	d.take(tea.WindowSizeMsg{Width: 40, Height: 8})
	return d
}

func (d *drive) take(msg tea.Msg) {
	_, cmd := d.m.Update(msg)
	if cmd == nil {
		return
	}
	if _, draws := msg.(drawnMsg); draws {
		return // the next tick
	}
	switch next := cmd().(type) {
	case tea.QuitMsg:
		d.quit = true
	case drawnMsg:
		d.take(next)
	}
}

func (d *drive) press(keys ...string) {
	for _, key := range keys {
		if cmd := d.m.key(key); cmd != nil {
			switch next := cmd().(type) {
			case tea.QuitMsg:
				d.quit = true
			case drawnMsg:
				d.take(next)
			}
		}
	}
}

func (d *drive) shows(what string, parts ...string) {
	d.Helper()
	screen := d.m.View().Content
	for _, part := range parts {
		want, absent := strings.CutPrefix(part, "!")
		if strings.Contains(screen, want) == absent {
			d.Errorf("%s: %q is shown: %t\n%s", what, want, absent, screen)
		}
	}
}

func lines(name string, n int) Pane {
	return Pane{Title: name, Lines: func(context.Context, term.Screen, int) (list []string, err error) {
		for i := range n {
			list = append(list, fmt.Sprintf("%s-%d.", name, i))
		}
		return list, nil
	}}
}

// Keys and numbers select panes. They scroll to their ends and no further, and a log shows its end
// first.
func TestPanes(t *testing.T) {
	log := lines("log", 20)
	log.End = true
	d := begin(t, lines("status", 9), log)
	d.shows("at first", " 1 status ", " 2 log ", "status-0.", "status-4.", "!status-5.", "4 more lines")
	d.press("j", "down")
	d.shows("two down", "!status-1.", "status-2.", "status-6.", "!status-7.")
	d.press("G", "G", "j")
	d.shows("at the end", "status-8.", "!status-3.", "!more line")
	d.press("g", "k")
	d.shows("at the beginning", "status-0.")
	d.press("2")
	d.shows("the log", "log-19.", "!log-14.", "log-15.")
	d.press("b")
	d.shows("a page up", "log-10.", "log-14.", "!log-15.")
	d.press("tab")
	d.shows("round", "status-0.")
	d.press("?")
	d.shows("help", "another pane", "!status-0.")
	d.press("x")
	d.shows("help closed", "status-0.")
	d.press("9", "enter")
	if d.quit || d.m.open {
		t.Error("a key without a meaning did something")
	}
	if d.press("q"); !d.quit || d.m.open {
		t.Error("q does not quit")
	}
}

// A pane that cannot be refreshed shows the error and keeps its content. Enter opens the pane's
// action.
func TestTrouble(t *testing.T) {
	var trouble error
	d := begin(t, Pane{
		Title: "requests", Opens: "decides", Open: func(context.Context) error { return nil },
		Lines: func(context.Context, term.Screen, int) ([]string, error) { return []string{"a request"}, trouble },
	})
	d.shows("at first", "a request", "enter decides")
	trouble = errors.New("no daemon\x1b[31m")
	d.press("1")
	d.shows("without a daemon", "a request", "no daemon", "!\x1b[31m")
	trouble = nil
	d.press("1")
	d.shows("again", "enter decides", "!no daemon")
	d.press("enter")
	if !d.quit || !d.m.open {
		t.Error("enter does not open")
	}
}

// The tick of an earlier refresh begins no other, so that refreshes do not multiply.
func TestOneLookAtATime(t *testing.T) {
	d := begin(t, lines("status", 1))
	old := d.m.look
	d.press("1")
	if _, cmd := d.m.Update(tickMsg(old)); cmd != nil {
		t.Error("a former tick looks again")
	}
	if _, cmd := d.m.Update(tickMsg(d.m.look)); cmd == nil {
		t.Error("the tick does not look")
	}
}

// An empty pane shows the reason, in as many lines as it needs.
func TestNothingToShow(t *testing.T) {
	d := begin(t, Pane{Title: "overview", Lines: func(context.Context, term.Screen, int) ([]string, error) {
		return nil, errors.New("cannot reach the daemon at /run/x.sock: start it with: ocipd serve")
	}})
	d.shows("the whole of why", "cannot reach the daemon at", "start it with: ocipd serve", "q quit")
	d.press("?")
	d.shows("the help", "scroll by a page")
}
