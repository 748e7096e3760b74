package auditcmd

import (
	"fmt"
	"time"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/base/term"
	"github.com/openclawos/ocipd/internal/cli"
	"github.com/spf13/cobra"
)

func newRetire(s *cli.Process) *cobra.Command {
	var before, key string
	var yes, asJSON bool
	c := &cobra.Command{
		Use:     "retire --before TIME",
		Example: "  ocipd audit retire --before 90d",
		Short:   "remove old records and leave a signed tombstone",
		Long: `Remove old records from the mirror and the database: those of whole segments whose
last record is before TIME. Each segment is verified first. A signed tombstone
stays in the log and beside the mirror, so that the remaining log still verifies.
Copy the segments elsewhere first if you must keep them. audit.keep does the same
automatically.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			at, err := cli.Moment(before, time.Now())
			if err != nil {
				return cli.Usagef("cannot read --before: %v", err)
			}
			if at.IsZero() {
				return cli.Usagef("name the time before which records are removed with --before, such as 90d")
			}
			if !yes {
				sure, err := s.Ask(cmd.Context(), fmt.Sprintf("Remove the records before %s for good?", at.Local().Format(time.DateTime)))
				if err != nil {
					return err
				}
				if !sure {
					return fmt.Errorf("nothing was removed")
				}
			}
			daemon, err := s.DialOperator(cmd.Context())
			if err != nil {
				return err
			}
			defer daemon.Close()
			var r api.AuditRetireResult
			if err := s.CallSigned(cmd.Context(), daemon, key, "audit.retire", api.AuditRetireParams{Before: at}, &r); err != nil {
				return s.Refused(err)
			}
			switch {
			case asJSON:
				return s.PrintJSON(r)
			case r.Segments == 0:
				fmt.Fprintln(s.Stdout, "nothing to remove: no whole segment is that old")
			default:
				fmt.Fprintf(s.Stdout, "ok: the records up to %d are removed, with %s; record %d stands for them\n", r.Retired, term.Count(r.Segments, "segment"), r.AuditSeq)
			}
			return nil
		},
	}
	flags := c.Flags()
	flags.StringVar(&before, "before", "", "`TIME` before which the last record of a segment must be: RFC 3339, a date, or a duration back such as 90d")
	flags.BoolVar(&yes, "yes", false, "do not ask")
	cli.KeyFlag(c, &key)
	flags.BoolVar(&asJSON, "json", false, "print JSON")
	return c
}
