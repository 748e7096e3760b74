package auditcmd

import (
	"context"
	"time"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/cli"
	"github.com/openclawos/ocipd/internal/cli/logview"
	"github.com/openclawos/ocipd/internal/evidence/logreader"
	"github.com/spf13/cobra"
)

func newStats(s *cli.Process) *cobra.Command {
	var since, until string
	var bucket time.Duration
	var asJSON bool
	var database string
	c := &cobra.Command{
		Use: "stats [PATH]",
		Example: "  ocipd audit stats\n" +
			"  ocipd audit stats --since 7d --bucket 1h",
		Short: "chart decisions over time, by agent and by rule",
		Long: `Chart the decisions about messages over time, and list them by agent, rule and
code. A message between two agents of this daemon counts once, for its sender.
The other records count as events.
If no daemon is running, its database is read, or the mirror if there is no
database; with PATH a copy: a database, a directory with the files of a mirror, or
one of these files.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			now := time.Now()
			from, err := cli.Moment(since, now)
			if err != nil {
				return cli.Usagef("cannot read --since: %v", err)
			}
			to, err := cli.Moment(until, now)
			if err != nil {
				return cli.Usagef("cannot read --until: %v", err)
			}
			if to.IsZero() {
				to = now
			}
			if to.Before(from) {
				return cli.Usagef("cannot count from %s until %s: it ends before it begins", from.Format(time.DateTime), to.Format(time.DateTime))
			}
			if bucket < 0 || bucket%time.Minute != 0 {
				return cli.Usagef("cannot read --bucket %s: want whole minutes", bucket)
			}
			path, err := pathOf(args, database)
			if err != nil {
				return err
			}
			stats, err := count(cmd.Context(), s, path, from, to, bucket)
			if err != nil {
				return err
			}
			if asJSON {
				return s.PrintJSON(stats)
			}
			return logview.Stats(s.Stdout, s.Screen(), stats)
		},
	}
	flags := c.Flags()
	flags.StringVar(&since, "since", "24h", "count from this `TIME` on: RFC 3339, a date, a duration back such as 2h or 7d, today, yesterday")
	flags.StringVar(&until, "until", "", "count up to this `TIME`")
	flags.DurationVar(&bucket, "bucket", 0, "`TIME` of a step of the drawing, in whole minutes (chosen by the time counted)")
	flags.StringVar(&database, "database", "", "count the records of this database `FILE`, such as a copy")
	flags.BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

// count asks the daemon, or counts in its files if none runs.
func count(ctx context.Context, s *cli.Process, path string, since, until time.Time, bucket time.Duration) (*audit.Stats, error) {
	c, left, err := openLog(ctx, s, path)
	switch {
	case err != nil:
		return nil, err
	case left != nil:
		defer left.Close()
		return logreader.Count(ctx, left, since, until, bucket)
	}
	defer c.Close()
	var stats audit.Stats
	params := api.AuditStatsParams{Since: since, Until: until, Bucket: int(bucket / time.Second)}
	return &stats, s.AskPage(ctx, c.Call, "audit.stats", params, &stats)
}
