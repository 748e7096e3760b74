package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/client"
	"github.com/openclawos/ocipd/internal/config"
	"github.com/spf13/cobra"
)

type tailFlags struct {
	filterFlags
	follow, asJSON bool
	last           int
	after          uint64
}

func newAuditTail(s *shell) *cobra.Command {
	var f tailFlags
	c := &cobra.Command{
		Use:   "tail",
		Short: "print the last records, and follow the record",
		Long: "Print the last records, and with -f each new one as soon as it is durable. Where no daemon\n" +
			"runs, the mirror file is read instead; then there is nothing to follow. --json prints each\n" +
			"record exactly as it was sealed.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			filter, err := f.resolve(time.Now())
			if err != nil {
				return err
			}
			if cmd.Flags().Changed("after") && cmd.Flags().Changed("last") {
				return usagef("cannot use -n and --after together")
			}
			if f.last < 0 || f.last > api.MaxPage {
				return usagef("cannot read -n %d: want 0 to %d; audit query and --after reach further", f.last, api.MaxPage)
			}
			params := api.AuditTailParams{Filter: filter, Last: f.last, Follow: f.follow}
			if cmd.Flags().Changed("after") {
				params.After, params.Last = &f.after, 0
			}
			return s.tail(cmd.Context(), params, f.asJSON)
		},
	}
	flags := c.Flags()
	flags.BoolVarP(&f.follow, "follow", "f", false, "go on with new records until interrupted")
	flags.IntVarP(&f.last, "last", "n", 10, "begin with the last `N` records")
	flags.Uint64Var(&f.after, "after", 0, "begin behind the record with this `SEQ`")
	flags.BoolVar(&f.asJSON, "json", false, "print JSON, one record a line")
	f.add(c)
	return c
}

func (s *shell) tail(ctx context.Context, params api.AuditTailParams, asJSON bool) error {
	out := newTailPrinter(s.screen(), s.stdout, asJSON)
	c, err := s.dialOperator(ctx)
	if errors.Is(err, client.ErrNotRunning) && !params.Follow {
		return s.tailOffline(ctx, params, out, err)
	}
	if err != nil {
		return err
	}
	defer c.Close()
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
				err = out.w.Flush()
			}
			if err != nil {
				return err
			}
			continue
		case errors.Is(err, context.Canceled):
			return out.w.Flush() // an interrupt is how one stops following
		case errors.Is(err, io.EOF) && !params.Follow:
			return out.w.Flush()
		case errors.Is(err, io.EOF):
			err = errors.New("the daemon ended the stream")
		}
		if out.seq > 0 {
			err = fmt.Errorf("%w; --after %d goes on", err, out.seq)
		}
		return errors.Join(out.w.Flush(), err)
	}
}

// tailOffline reads the mirror.
func (s *shell) tailOffline(ctx context.Context, params api.AuditTailParams, out *tailPrinter, notRunning error) error {
	kept := lastLines{limit: params.Last}
	err := s.readMirror(ctx, notRunning, func(line jsontext.Value, e *audit.Entry) error {
		if !params.Filter.Match(line) {
			return nil
		}
		if params.After == nil {
			kept.add(line)
		} else if e.Seq > *params.After {
			return out.print(line)
		}
		return nil
	})
	if err != nil {
		return errors.Join(out.w.Flush(), err)
	}
	for _, line := range kept.ordered() {
		if err := out.print(line); err != nil {
			return err
		}
	}
	return out.w.Flush()
}

// tailPrinter prints records one by one. Its columns are fixed from the
// beginning, since nobody knows what will come.
type tailPrinter struct {
	w       *bufio.Writer
	screen  screen
	asJSON  bool
	narrow  bool
	columns []column
	widths  []int
	// seq is the last record that was printed.
	seq uint64
}

func newTailPrinter(scr screen, w io.Writer, asJSON bool) *tailPrinter {
	p := &tailPrinter{w: bufio.NewWriter(w), screen: scr, asJSON: asJSON}
	if !scr.terminal {
		// A program reads whole lines.
		p.screen.width = 1 << 16
	}
	p.narrow = p.screen.width < narrowScreen
	p.columns = recordColumns(p.narrow)
	p.widths = []int{19, 6, 20, 22, 24, 12, 5, 6, p.screen.width}
	if p.narrow {
		p.widths = []int{14, 5, 14, 16, 8, 5, 6, p.screen.width}
	}
	fit(p.columns, p.widths, p.screen.width)
	return p
}

func (p *tailPrinter) print(line jsontext.Value) error {
	e, err := audit.Parse(line)
	if err != nil {
		return fmt.Errorf("cannot show a record: %w", err)
	}
	p.seq = e.Seq
	if p.asJSON {
		_, err = p.w.Write(p.screen.line(line))
		return err
	}
	_, err = p.w.WriteString(rowLine(p.columns, p.widths, recordRow(&e, p.narrow), p.screen))
	return err
}

// lastLines keeps the last lines it is given.
type lastLines struct {
	limit   int
	ring    [][]byte
	next    int
	dropped bool
}

func (l *lastLines) add(line []byte) {
	switch {
	case l.limit == 0:
		l.dropped = true
	case len(l.ring) < l.limit:
		l.ring = append(l.ring, bytes.Clone(line))
	default:
		l.dropped = true
		l.ring[l.next] = append(l.ring[l.next][:0], line...)
		l.next = (l.next + 1) % l.limit
	}
}

// ordered returns the lines, oldest first.
func (l *lastLines) ordered() [][]byte {
	return append(l.ring[l.next:len(l.ring):len(l.ring)], l.ring[:l.next]...)
}

// readMirror visits every record of the mirror file, oldest first, where no
// daemon runs to be asked. A last line that was torn by a crash is left out:
// the database has it, and the next start completes the mirror.
func (s *shell) readMirror(ctx context.Context, notRunning error, visit func(jsontext.Value, *audit.Entry) error) error {
	cfg, err := s.load(nil)
	if err != nil {
		return err
	}
	path := config.MirrorPath(cfg, config.DatabasePath(cfg, s.getenv))
	if path == "" {
		return notRunning
	}
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w (and there is no audit mirror to read at %s)", notRunning, path)
	}
	if err != nil {
		return fmt.Errorf("cannot read the audit mirror: %w", err)
	}
	defer f.Close()
	fmt.Fprintf(s.stderr, "no daemon is running: reading %s\n", printable(path))
	lines := bufio.NewReaderSize(f, 64<<10)
	for ctx.Err() == nil {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("cannot read the audit mirror: %w", err)
		}
		line = line[:len(line)-1]
		e, err := audit.Parse(line)
		if err != nil {
			return fmt.Errorf("cannot read the audit mirror %s: %w; ocipd audit verify says where it is damaged", path, err)
		}
		if err := visit(line, &e); err != nil {
			return err
		}
	}
	return ctx.Err()
}
