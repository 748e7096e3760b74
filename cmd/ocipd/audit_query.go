package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/cli"
	"github.com/openclawos/ocipd/internal/client"
	"github.com/openclawos/ocipd/internal/logreader"
	"github.com/openclawos/ocipd/internal/term"
	"github.com/spf13/cobra"
)

func newAuditQuery(s *shell) *cobra.Command {
	var f filterFlags
	var limit int
	var before uint64
	var all, asJSON bool
	var database string
	c := &cobra.Command{
		Use:   "query",
		Short: "search the audit log, newest record first",
		Long: `Search the audit log, newest record first. If no daemon is running, its database
is read, or the mirror file if there is no database. A long reason is printed
below its record. --json prints each record exactly as it was sealed.`,
		Example: "  ocipd audit query --result deny --since 2h\n" +
			"  ocipd audit query --agent agent-alice-1 --text 'not allowed to share'\n" +
			"  ocipd audit query --exchange 01a1fa2b-9a2e-761b-b52b-6f34bf753fca --all --json",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			filter, err := f.resolve(time.Now())
			if err != nil {
				return err
			}
			if limit < 1 {
				return cli.Usagef("cannot read --limit %d: want at least 1", limit)
			}
			return s.query(cmd.Context(), database, filter, before, limit, all, asJSON)
		},
	}
	f.add(c)
	c.Flags().IntVar(&limit, "limit", api.DefaultPage, "print at most `N` records")
	c.Flags().BoolVar(&all, "all", false, "print all records")
	c.Flags().Uint64Var(&before, "before", 0, "print records before this `SEQ`")
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON, one record a line")
	c.Flags().StringVar(&database, "database", "", "search this database `FILE`, such as a copy")
	c.MarkFlagsMutuallyExclusive("all", "limit")
	return c
}

func (s *shell) query(ctx context.Context, database string, filter audit.Filter, before uint64, limit int, all, asJSON bool) error {
	search, err := s.search(ctx, filter, database)
	if err != nil {
		return err
	}
	defer search.Close()
	out := recordPrinter{w: s.Stdout, screen: s.Screen(), asJSON: asJSON}
	for {
		if all {
			limit = search.page
		}
		lines, next, err := search.most(ctx, before, limit)
		if err != nil {
			return err
		}
		if err := out.print(lines); err != nil || next == 0 {
			return err
		}
		if !all {
			if !asJSON {
				fmt.Fprintf(s.Stderr, "there may be more: --before %d goes on\n", next)
			}
			return nil
		}
		before = next
	}
}

// search asks for records: the daemon, or what it left behind where none runs.
type search struct {
	// page is how many records one question is for.
	page int
	ask  func(ctx context.Context, before uint64, limit int) (lines [][]byte, next uint64, err error)
	io.Closer
}

// evidencePage is how many records are read at once from what a daemon left
// behind, which is read whole for each page where it is a mirror.
const evidencePage = 100_000

func (s *shell) search(ctx context.Context, filter audit.Filter, database string) (*search, error) {
	if database != "" {
		left, err := logreader.OpenWhole(ctx, database, s.operatorSocket)
		if err != nil {
			return nil, err
		}
		return searchEvidence(left, filter), nil
	}
	c, err := s.DialOperator(ctx)
	if errors.Is(err, client.ErrNotRunning) {
		left, err := s.openEvidence(ctx, err)
		if err != nil {
			return nil, err
		}
		return searchEvidence(left, filter), nil
	}
	if err != nil {
		return nil, err
	}
	return &search{page: api.MaxPage, Closer: c, ask: func(ctx context.Context, before uint64, limit int) (lines [][]byte, next uint64, err error) {
		limit = min(limit, api.MaxPage)
		var answer api.AuditQueryResult
		ctx, cancel := context.WithTimeout(ctx, cli.AnswerTime)
		defer cancel()
		if err := c.Call(ctx, "audit.query", api.AuditQueryParams{Filter: filter, Limit: &limit, Before: before}, &answer); err != nil {
			return nil, 0, err
		}
		for _, record := range answer.Records {
			lines = append(lines, record)
		}
		return lines, answer.NextBefore, nil
	}}, nil
}

func searchEvidence(left evidence, filter audit.Filter) *search {
	return &search{page: evidencePage, Closer: left, ask: func(ctx context.Context, before uint64, limit int) ([][]byte, uint64, error) {
		return left.Query(ctx, filter, 0, before, limit)
	}}
}

// most asks until there are as many records as wanted, or no more. Next is where
// to go on, zero where nothing more can match.
func (q *search) most(ctx context.Context, before uint64, limit int) (lines [][]byte, next uint64, err error) {
	for {
		page, next, err := q.ask(ctx, before, limit-len(lines))
		if err != nil {
			return nil, 0, err
		}
		if lines = append(lines, page...); next == 0 || len(lines) >= limit {
			return lines, next, nil
		}
		before = next
	}
}

// queryEvidence reads the last records of what a daemon left behind.
func queryEvidence(ctx context.Context, left evidence, filter audit.Filter, before uint64, limit int) (lines [][]byte, next uint64, err error) {
	if limit < 1 {
		return nil, 0, nil
	}
	return searchEvidence(left, filter).most(ctx, before, limit)
}

// recordPrinter prints records page by page.
type recordPrinter struct {
	w      io.Writer
	screen term.Screen
	asJSON bool
	// titled is set once the columns' titles were printed.
	titled bool
}

// reasonIndent is where a reason begins that stands below its record.
const reasonIndent = 4

func (p *recordPrinter) print(lines [][]byte) error {
	if len(lines) == 0 {
		return nil
	}
	if p.asJSON {
		for _, line := range lines {
			if _, err := p.w.Write(p.screen.RecordLine(line)); err != nil {
				return err
			}
		}
		return nil
	}
	narrow := p.screen.RowWidth() < narrowScreen
	t := &term.Table{Columns: recordColumns(narrow)}
	for _, line := range lines {
		e, err := audit.Parse(line)
		if err != nil {
			return fmt.Errorf("cannot show a record: %w", err)
		}
		t.Add(recordRow(&e, narrow)...)
	}
	var b strings.Builder
	p.rows(&b, t)
	_, err := io.WriteString(p.w, b.String())
	return err
}

// rows writes a table whose last column is cut from it where it has no room, and
// put below each row.
func (p *recordPrinter) rows(b *strings.Builder, t *term.Table) {
	last := len(t.Columns) - 1
	widths := t.Widths()
	room := p.screen.RowWidth() - len(term.Gap)*last
	for _, w := range widths {
		room -= w
	}
	columns, below := t.Columns, room < 0
	if below {
		columns, widths = columns[:last], widths[:last]
		term.Fit(columns, widths, p.screen.RowWidth())
	}
	if !p.titled {
		p.titled = true
		titles := make([]term.Cell, len(columns))
		for i, c := range columns {
			titles[i] = term.Cell{Text: c.Title, Colour: term.Dim}
		}
		b.WriteString(term.RowLine(columns, widths, titles, p.screen))
	}
	for _, row := range t.Rows {
		b.WriteString(term.RowLine(columns, widths, row[:len(columns)], p.screen))
		if below {
			_ = writeBelow(b, row[last].Text, p.screen) // a builder takes everything
		}
	}
}

// writeBelow writes what has no room in a row below it.
func writeBelow(w io.Writer, text string, screen term.Screen) error {
	if text == "" {
		return nil
	}
	for _, line := range term.Fold(text, screen.Width-reasonIndent) {
		if _, err := fmt.Fprintf(w, "%*s%s\n", reasonIndent, "", line); err != nil {
			return err
		}
	}
	return nil
}
