package auditcmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/api/client"
	"github.com/openclawos/ocipd/internal/cli"
	"github.com/openclawos/ocipd/internal/cli/logview"
	"github.com/openclawos/ocipd/internal/evidence/logreader"
	"github.com/spf13/cobra"
)

type tailFlags struct {
	filterFlags
	follow, asJSON bool
	last           int
	after          uint64
	cursor         string
}

func newTail(s *cli.Process) *cobra.Command {
	var f tailFlags
	c := &cobra.Command{
		Use: "tail [PATH]",
		Example: "  ocipd audit tail -n 20\n" +
			"  ocipd audit tail -f --result deny\n" +
			"  ocipd audit tail --cursor seen --json",
		Short: "print the newest records, and follow the log",
		Long: `Print the newest records, and with -f each further one as soon as it is durable. If
no daemon is running, its database is read, or the mirror if there is no database;
with PATH a copy: a database, a directory with the files of a mirror, or one of
these files. -f needs the daemon. --json prints each record exactly as it was sealed.
--cursor FILE continues where the last call ended, beginning with the first
record; no record is missed.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
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
			path, err := pathOf(args, "")
			if err != nil {
				return err
			}
			if path != "" && (params.Follow || cursor != nil) {
				return cli.Usagef("cannot use -f or --cursor with a copy, which does not grow")
			}
			return tail(cmd.Context(), s, path, params, cursor, f.asJSON)
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

func tail(ctx context.Context, s *cli.Process, path string, params api.AuditTailParams, cursor *tailCursor, asJSON bool) error {
	out := logview.NewTail(s.Screen(), s.Stdout, asJSON)
	out.Only = onlyAgent(ctx, s, path)
	if cursor != nil {
		out.Printed = cursor.save
	}
	var c *client.Client
	var left logreader.Left
	var err error
	if params.Follow {
		c, err = s.DialOperator(ctx) // only a daemon has more to come
	} else {
		c, left, err = openLog(ctx, s, path)
	}
	if left != nil {
		params.Filter = named(s, params.Filter)
		return tailLeft(ctx, left, params, out)
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
			err = out.Print(record)
			if err == nil && params.Follow {
				err = out.Flush()
			}
			if err != nil {
				return err
			}
			continue
		case errors.Is(err, context.Canceled):
			return out.Flush() // an interrupt is how one stops following
		case errors.Is(err, io.EOF) && !params.Follow:
			return out.Flush()
		case errors.Is(err, io.EOF):
			err = errors.New("the daemon ended the stream")
		}
		if out.Last() > 0 {
			err = fmt.Errorf("%w; --after %d goes on", err, out.Last())
		}
		return errors.Join(out.Flush(), err)
	}
}

// tailLeft reads a daemon's files, or a copy of them.
func tailLeft(ctx context.Context, left logreader.Left, params api.AuditTailParams, out *logview.Tail) error {
	defer left.Close()
	if params.After != nil {
		err := left.EachLine(ctx, *params.After, func(_ uint64, line []byte) error {
			if !params.Filter.Match(line) {
				return nil
			}
			return out.Print(line)
		})
		return errors.Join(out.Flush(), err)
	}
	lines, _, err := logreader.SearchLeft(left, params.Filter).Most(ctx, 0, params.Last)
	if err != nil {
		return err
	}
	for _, line := range slices.Backward(lines) {
		if err := out.Print(line); err != nil {
			return err
		}
	}
	return out.Flush()
}
