package auditcmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/api/client"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/base/term"
	"github.com/openclawos/ocipd/internal/cli"
	"github.com/openclawos/ocipd/internal/cli/logview"
	"github.com/openclawos/ocipd/internal/config"
	"github.com/openclawos/ocipd/internal/evidence/logreader"
	"github.com/spf13/cobra"
)

func newQuery(s *cli.Process) *cobra.Command {
	var f filterFlags
	var limit int
	var before uint64
	var all, asJSON bool
	var database string
	c := &cobra.Command{
		Use:   "query [PATH]",
		Short: "search the audit log, newest record first",
		Long: `Search the audit log, newest record first. If no daemon is running, its database
is read, or the mirror if there is no database. With PATH, a copy is searched: a
database, a directory with the files of a mirror, or one of these files. A long
reason is printed below its record. --json prints each record exactly as it was
sealed.`,
		Example: "  ocipd audit query --result deny --since 2h\n" +
			"  ocipd audit query --agent alice --text 'not allowed to share'\n" +
			"  ocipd audit query --exchange 01a1fa2b-9a2e-761b-b52b-6f34bf753fca --all --json",
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			filter, err := f.resolve(time.Now())
			if err != nil {
				return err
			}
			if limit < 1 {
				return cli.Usagef("cannot read --limit %d: want at least 1", limit)
			}
			path, err := pathOf(args, database)
			if err != nil {
				return err
			}
			return query(cmd.Context(), s, path, filter, before, limit, all, asJSON)
		},
	}
	f.add(c)
	c.Flags().IntVarP(&limit, "limit", "n", api.DefaultPage, "print at most `N` records")
	c.Flags().BoolVar(&all, "all", false, "print all records")
	c.Flags().Uint64Var(&before, "before", 0, "print records before this `SEQ`")
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON, one record a line")
	c.Flags().StringVar(&database, "database", "", "search this database `FILE`, such as a copy")
	c.MarkFlagsMutuallyExclusive("all", "limit")
	return c
}

// pathOf is the copy of a log that a command names, or "".
func pathOf(args []string, database string) (string, error) {
	if len(args) == 0 {
		return database, nil
	}
	if database != "" {
		return "", cli.Usagef("cannot read %s with --database: name one of them", args[0])
	}
	return args[0], nil
}

func query(ctx context.Context, s *cli.Process, path string, filter audit.Filter, before uint64, limit int, all, asJSON bool) error {
	search, err := OpenSearch(ctx, s, filter, path)
	if err != nil {
		return err
	}
	defer search.Close()
	out := logview.Pages{W: s.Stdout, Screen: s.Screen(), JSON: asJSON, Only: onlyAgent(ctx, s, path)}
	found := 0
	show := func(lines [][]byte) error {
		found += len(lines)
		return out.Print(lines)
	}
	if all {
		err = search.Pages(ctx, before, show)
		if err == nil && found == 0 {
			fmt.Fprintln(s.Stderr, noRecord)
		}
		return err
	}
	lines, next, err := search.Most(ctx, before, limit)
	if err == nil {
		err = show(lines)
	}
	switch {
	case err != nil:
	case next > 0 && !asJSON:
		fmt.Fprintf(s.Stderr, "more: --before %d\n", next)
	case found == 0:
		fmt.Fprintln(s.Stderr, noRecord)
	}
	return err
}

const noRecord = "no record matches"

// onlyAgent is the instance id of the daemon's only agent. It is "" if there are several,
// or if the screen needs no shortening.
func onlyAgent(ctx context.Context, s *cli.Process, path string) string {
	var status api.Status
	if scr := s.Screen(); path != "" || !scr.Terminal || !logview.Folds(scr) || s.Operate(ctx, "kernel.status", nil, &status) != nil || len(status.Agents) != 1 {
		return ""
	}
	return status.Agents[0].InstanceID
}

// OpenSearch searches a copy of a log, or asks the daemon, or searches its files if none runs.
func OpenSearch(ctx context.Context, s *cli.Process, filter audit.Filter, path string) (*logreader.Search, error) {
	c, left, err := openLog(ctx, s, path)
	switch {
	case err != nil:
		return nil, err
	case c != nil:
		return logreader.SearchDaemon(c, filter, cli.AnswerTime), nil
	}
	return logreader.SearchLeft(left, named(s, filter)), nil
}

// named returns the filter for the files of a log, which no daemon answers for.
func named(s *cli.Process, filter audit.Filter) audit.Filter {
	if cfg, err := s.Places(); err == nil {
		return filter.Named(func(name string) string { return config.InstanceOf(cfg.Agents, name) })
	}
	return filter
}

// openLog opens a named copy, or connects to the daemon, or opens its files if none runs.
func openLog(ctx context.Context, s *cli.Process, path string) (*client.Client, logreader.Left, error) {
	if path != "" {
		left, err := logreader.OpenPath(ctx, path, s.OperatorSocket)
		return nil, left, err
	}
	c, err := s.DialOperator(ctx)
	if !errors.Is(err, client.ErrNotRunning) {
		return c, nil, err
	}
	left, err := openLeft(ctx, s, err)
	return nil, left, err
}

// openLeft opens a daemon's files if none runs.
func openLeft(ctx context.Context, s *cli.Process, notRunning error) (logreader.Left, error) {
	cfg, err := s.Places("store.url", "audit.mirror")
	if err != nil {
		return nil, fmt.Errorf("%w, and %w", notRunning, err)
	}
	database := config.DatabasePath(cfg, s.Getenv)
	mirror := config.MirrorPath(cfg, database)
	left, from, err := logreader.OpenLeft(ctx, database, mirror)
	switch {
	case errors.Is(err, fs.ErrNotExist) && mirror == "":
		return nil, notRunning
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("%w (and it left no record to read at %s)", notRunning, cmp.Or(database, mirror))
	case err != nil:
		return nil, err
	}
	fmt.Fprintf(s.Stderr, "no daemon is running: reading %s\n", term.Printable(from))
	return left, nil
}
