package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/cli"
	"github.com/openclawos/ocipd/internal/client"
	"github.com/openclawos/ocipd/internal/term"
	"github.com/spf13/cobra"
)

type tailFlags struct {
	filterFlags
	follow, asJSON bool
	last           int
	after          uint64
	cursor         string
}

func newAuditTail(s *shell) *cobra.Command {
	var f tailFlags
	c := &cobra.Command{
		Use: "tail",
		Example: "  ocipd audit tail -n 20\n" +
			"  ocipd audit tail -f --result deny\n" +
			"  ocipd audit tail --cursor seen --json",
		Short: "print the newest records, and follow the log",
		Long: `Print the newest records, and with -f each further one as soon as it is durable. If
no daemon is running, its database is read, or the mirror file if there is no
database; -f needs the daemon. --json prints each record exactly as it was sealed.
--cursor FILE continues where the last call ended, beginning with the first
record; no record is missed.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			filter, err := f.resolve(time.Now())
			if err != nil {
				return err
			}
			if cmd.Flags().Changed("after") && cmd.Flags().Changed("last") {
				return cli.Usagef("cannot use -n and --after together")
			}
			if f.last < 0 || f.last > api.MaxPage {
				return cli.Usagef("cannot read -n %d: want 0 to %d; audit query and --after reach further", f.last, api.MaxPage)
			}
			params := api.AuditTailParams{Filter: filter, Last: f.last, Follow: f.follow}
			if cmd.Flags().Changed("after") {
				params.After, params.Last = &f.after, 0
			}
			var cursor *tailCursor
			if f.cursor != "" {
				if cmd.Flags().Changed("after") || cmd.Flags().Changed("last") {
					return cli.Usagef("cannot use --cursor with -n or --after")
				}
				if cursor, err = openCursor(f.cursor); err != nil {
					return err
				}
				params.After, params.Last = &cursor.Seq, 0
			}
			return s.tail(cmd.Context(), params, cursor, f.asJSON)
		},
	}
	flags := c.Flags()
	flags.BoolVarP(&f.follow, "follow", "f", false, "go on with new records until interrupted")
	flags.IntVarP(&f.last, "last", "n", 10, "begin with the last `N` records")
	flags.Uint64Var(&f.after, "after", 0, "begin behind the record with this `SEQ`")
	flags.StringVar(&f.cursor, "cursor", "", "go on behind the record that `FILE` names, and keep it up to date")
	flags.BoolVar(&f.asJSON, "json", false, "print JSON, one record a line")
	f.add(c)
	return c
}

func (s *shell) tail(ctx context.Context, params api.AuditTailParams, cursor *tailCursor, asJSON bool) error {
	out := newTailPrinter(s.Screen(), s.Stdout, asJSON)
	out.cursor = cursor
	c, err := s.DialOperator(ctx)
	if errors.Is(err, client.ErrNotRunning) && !params.Follow {
		return s.tailOffline(ctx, params, out, err)
	}
	if err != nil {
		return err
	}
	defer c.Close()
	if cursor != nil {
		if err := cursor.belongs(ctx, c); err != nil {
			return err
		}
	}
	records, err := c.Stream(ctx, "audit.tail", params)
	if err != nil {
		return err
	}
	for {
		record, err := records.Next(ctx)
		switch {
		case err == nil:
			err = out.print(record)
			if err == nil && params.Follow {
				err = out.flush()
			}
			if err != nil {
				return err
			}
			continue
		case errors.Is(err, context.Canceled):
			return out.flush() // an interrupt is how one stops following
		case errors.Is(err, io.EOF) && !params.Follow:
			return out.flush()
		case errors.Is(err, io.EOF):
			err = errors.New("the daemon ended the stream")
		}
		if out.seq > 0 {
			err = fmt.Errorf("%w; --after %d goes on", err, out.seq)
		}
		return errors.Join(out.flush(), err)
	}
}

// tailOffline reads what a daemon left behind.
func (s *shell) tailOffline(ctx context.Context, params api.AuditTailParams, out *tailPrinter, notRunning error) error {
	left, err := s.openEvidence(ctx, notRunning)
	if err != nil {
		return err
	}
	defer left.Close()
	if params.After != nil {
		err := left.EachLine(ctx, *params.After, func(_ uint64, line []byte) error {
			if !params.Filter.Match(line) {
				return nil
			}
			return out.print(line)
		})
		return errors.Join(out.flush(), err)
	}
	lines, _, err := queryEvidence(ctx, left, params.Filter, 0, params.Last)
	if err != nil {
		return err
	}
	for _, line := range slices.Backward(lines) {
		if err := out.print(line); err != nil {
			return err
		}
	}
	return out.flush()
}

// tailPrinter prints records one by one. Its columns are fixed from the
// beginning, since nobody knows what will come.
type tailPrinter struct {
	w       *bufio.Writer
	screen  term.Screen
	asJSON  bool
	narrow  bool
	columns []term.Column
	widths  []int
	// seq is the last record that was printed, and line, where there is a
	// cursor to be moved, what it says.
	seq    uint64
	line   []byte
	cursor *tailCursor
}

// flush gives out what was printed, and then moves the cursor.
func (p *tailPrinter) flush() error {
	if err := p.w.Flush(); err != nil || p.cursor == nil || p.line == nil {
		return err
	}
	line := p.line
	p.line = nil
	return p.cursor.save(line)
}

func newTailPrinter(scr term.Screen, w io.Writer, asJSON bool) *tailPrinter {
	p := &tailPrinter{w: bufio.NewWriter(w), screen: scr, asJSON: asJSON}
	room := scr.RowWidth()
	p.narrow = room < narrowScreen
	p.columns = recordColumns(p.narrow)
	p.widths = []int{19, 6, 20, 22, 24, 12, 5, 6, room}
	if p.narrow {
		// What happened stands below, where it has room.
		p.widths = []int{14, 5, 14, 16, 12, 5, 6}
		p.columns = p.columns[:len(p.widths)]
	}
	term.Fit(p.columns, p.widths, room)
	return p
}

func (p *tailPrinter) print(line jsontext.Value) error {
	e, err := audit.Parse(line)
	if err != nil {
		return fmt.Errorf("cannot show a record: %w", err)
	}
	p.seq = e.Seq
	if p.cursor != nil {
		p.line = append(p.line[:0], line...)
	}
	if p.asJSON {
		_, err = p.w.Write(p.screen.RecordLine(line))
		return err
	}
	row := recordRow(&e, p.narrow)
	if _, err = p.w.WriteString(term.RowLine(p.columns, p.widths, row[:len(p.columns)], p.screen)); err != nil {
		return err
	}
	for _, cell := range row[len(p.columns):] {
		if err := writeBelow(p.w, cell.Text, p.screen); err != nil {
			return err
		}
	}
	return nil
}
