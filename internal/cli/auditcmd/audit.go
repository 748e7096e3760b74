// Package auditcmd has the commands about the audit log.
package auditcmd

import (
	"slices"
	"strings"
	"time"

	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/cli"
	"github.com/openclawos/ocipd/internal/cli/logview"
	"github.com/spf13/cobra"
)

// New returns the commands about the audit log.
func New(s *cli.Process) *cobra.Command {
	c := cli.Group(&cobra.Command{Use: "audit", Short: "read, search and verify the audit log"})
	c.AddCommand(newTail(s), newQuery(s), newStats(s), newShow(s), newVerify(s), newExport(s), newReceipt(s), newProve(s), newConfig(s), newCase(s), newRetire(s), newRebuild(s), newForget(s), newKey(s), newWitness(s))
	return c
}

// filterFlags select records.
type filterFlags struct {
	filter       audit.Filter
	since, until string
}

func (f *filterFlags) add(c *cobra.Command) {
	flags := c.Flags()
	flags.StringVar(&f.since, "since", "", "records from this `TIME` on: RFC 3339, a date, a duration back such as 2h or 7d, today, yesterday")
	flags.StringVar(&f.until, "until", "", "records before this `TIME`")
	flags.StringVar(&f.filter.Text, "text", "", "records with this `TEXT` in their reason, in any case")
	for _, m := range audit.Filters() {
		flags.StringVar(m.Of(&f.filter.Like), m.Flag, "", m.Usage())
		if m.Values != nil {
			cli.Choices(c, m.Flag, forPeople(m.Values))
		}
	}
}

// resolve checks the flags and returns the filter.
func (f *filterFlags) resolve(now time.Time) (audit.Filter, error) {
	var err error
	if f.filter.Since, err = cli.Moment(f.since, now); err != nil {
		return audit.Filter{}, cli.Usagef("cannot read --since: %v", err)
	}
	if f.filter.Until, err = cli.Moment(f.until, now); err != nil {
		return audit.Filter{}, cli.Usagef("cannot read --until: %v", err)
	}
	if f.filter.Like.PolicyResult == logview.Hold {
		f.filter.Like.PolicyResult = audit.ResultApproval
	}
	for m, value := range f.filter.Wants() {
		if m.Values != nil && !slices.Contains(m.Values, value) {
			return audit.Filter{}, cli.Usagef("cannot filter by --%s %q: want one of %s", m.Flag, value, strings.Join(forPeople(m.Values), ", "))
		}
	}
	return f.filter, nil
}

// forPeople replaces values of a member by the words that people see.
func forPeople(values []string) []string {
	words := slices.Clone(values)
	if i := slices.Index(words, audit.ResultApproval); i >= 0 {
		words[i] = logview.Hold
	}
	return words
}
