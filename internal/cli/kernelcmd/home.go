package kernelcmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/api/client"
	"github.com/openclawos/ocipd/internal/base/panes"
	"github.com/openclawos/ocipd/internal/base/term"
	"github.com/openclawos/ocipd/internal/cli"
	"github.com/openclawos/ocipd/internal/cli/approvalsui"
	"github.com/openclawos/ocipd/internal/cli/exchangecmd"
	"github.com/openclawos/ocipd/internal/cli/logview"
	"github.com/openclawos/ocipd/internal/config"
)

// Home is the screen of the bare command at a terminal: a live view of several other commands.
func Home(ctx context.Context, p *cli.Process) error {
	s := &command{p}
	list := []panes.Pane{
		{Title: "overview", Lines: s.overview, Open: s.decide, Opens: "decides"},
		{Title: "requests", Lines: s.requests, Open: s.decide, Opens: "decides"},
		{Title: "log", Lines: s.newestRecords, End: true},
		{Title: "exchanges", Lines: s.newestExchanges},
		{Title: "status", Lines: s.statusLines},
	}
	for i := range list {
		list[i].Lines = s.orBegin(list[i].Lines)
	}
	return panes.Run(ctx, panes.Options{
		Stdin: s.Stdin, Stdout: s.Stdout, Env: s.Env, Screen: s.Screen(), Every: time.Second, Panes: list,
	})
}

// paneLines draws a pane, see [panes.Pane].
type paneLines = func(ctx context.Context, scr term.Screen, rows int) ([]string, error)

// orBegin also says how to begin if no daemon runs and there is no configuration.
func (s *command) orBegin(lines paneLines) paneLines {
	return func(ctx context.Context, scr term.Screen, rows int) ([]string, error) {
		drawn, err := lines(ctx, scr, rows)
		if errors.Is(err, client.ErrNotRunning) && !cli.Exists(cmp.Or(s.ConfigFile, config.FilePath(s.Getenv))) {
			err = fmt.Errorf("%w; to begin: ocipd demo shows what it does, ocipd config init makes a configuration", err)
		}
		return drawn, err
	}
}

// people is the common part of the panes about approvals.
func (s *command) people() *approvalsui.People { return &approvalsui.People{Process: s.Process} }

func (s *command) decide(ctx context.Context) error {
	return s.people().Watch(ctx, "")
}

// overview shows, in a third each, the daemon's status, the pending requests, and the
// newest records.
func (s *command) overview(ctx context.Context, scr term.Screen, rows int) ([]string, error) {
	third := max(3, rows/3)
	lines, err := s.statusOf(ctx, scr, true)
	if err != nil {
		return nil, err
	}
	lines = lines[:min(len(lines), third)]
	requests, pending, err := s.people().Lines(ctx, scr, third)
	if err != nil {
		return nil, err
	}
	title := func(text string) { lines = append(lines, "", scr.Colour.Paint(term.Bold, text)) }
	if pending > 0 {
		title(term.Count(pending, "request") + " for a person")
		lines = append(lines, requests[:min(len(requests), third)]...)
	} else {
		title("nothing waits for a person")
	}
	title("newest records")
	records, err := s.newestRecords(ctx, scr, rows-len(lines))
	records = records[max(0, len(records)-(rows-len(lines))):]
	if first := slices.IndexFunc(records, func(line string) bool { return !strings.HasPrefix(line, " ") }); first > 0 {
		records = records[first:] // not in the middle of one
	}
	return append(lines, records...), err
}

func (s *command) requests(ctx context.Context, scr term.Screen, rows int) ([]string, error) {
	lines, pending, err := s.people().Lines(ctx, scr, max(rows, api.DefaultPage))
	if err == nil && pending == 0 {
		lines = []string{"nothing waits for a person"}
	}
	return lines, err
}

// newestRecords is the end of the log, the newest record last.
func (s *command) newestRecords(ctx context.Context, scr term.Screen, _ int) ([]string, error) {
	limit := api.DefaultPage
	var page struct {
		Records []jsontext.Value `json:"records"`
	}
	if err := s.Operate(ctx, "audit.query", api.AuditQueryParams{Limit: &limit}, &page); err != nil {
		return nil, fmt.Errorf("cannot read the log: %w", err)
	}
	var b strings.Builder
	out := logview.NewTail(scr, &b, false)
	var status api.Status
	if err := s.Operate(ctx, "kernel.status", nil, &status); err == nil && len(status.Agents) == 1 {
		out.Only = status.Agents[0].InstanceID
	}
	for _, line := range slices.Backward(page.Records) {
		if err := out.Print(line); err != nil {
			return nil, err
		}
	}
	if err := out.Flush(); err != nil {
		return nil, err
	}
	return split(&b), nil
}

func (s *command) newestExchanges(ctx context.Context, scr term.Screen, _ int) ([]string, error) {
	c, err := s.DialOperator(ctx)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	sides, _, err := exchangecmd.Pages(ctx, exchangecmd.From(c), api.ExchangeListParams{}, api.DefaultPage)
	if err != nil {
		return nil, fmt.Errorf("cannot list exchanges: %w", err)
	}
	if len(sides) == 0 {
		return []string{"no exchanges between agents yet"}, nil
	}
	var b strings.Builder
	err = exchangecmd.Table(sides, time.Now()).Write(&b, scr)
	return split(&b), err
}

func (s *command) statusLines(ctx context.Context, scr term.Screen, _ int) ([]string, error) {
	return s.statusOf(ctx, scr, false)
}

func (s *command) statusOf(ctx context.Context, scr term.Screen, brief bool) ([]string, error) {
	var status api.Status
	if err := s.Operate(ctx, "kernel.status", nil, &status); err != nil {
		return nil, err
	}
	return draw(&status, scr, time.Now(), brief), nil
}

func split(b *strings.Builder) []string {
	return strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
}
