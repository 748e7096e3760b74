package configcmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/base/term"
	"github.com/openclawos/ocipd/internal/cli"
	"github.com/spf13/cobra"
)

func newConfigReload(s *command) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:     "reload",
		Example: "  ocipd config reload",
		Short:   "reload the configuration in the running daemon",
		Long: `Have the running daemon read its configuration and policy again, put both in
force and print what changed, like "ocipd policy reload" and SIGHUP. A setting
that needs a restart keeps its value and is named. A configuration with a fault
is refused, and nothing changes.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var result api.PolicyReloadResult
			if printed, err := s.tellReload(cmd.Context(), asJSON, &result); err != nil || printed {
				return err
			}
			said, done := "no value of the configuration changed", &result.Config
			switch n := done.ChangeCount; {
			case n > 0:
				said = term.Count(n, "value") + " changed"
			case !done.InForceSince.IsZero():
				said += "; " + takenBefore(done)
			}
			if result.Changed {
				said += "; the policy is now " + result.Revision
			}
			if _, err := fmt.Fprintln(s.Stdout, "ok: "+term.Printable(said)); err != nil {
				return err
			}
			return s.printReload(done)
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON, a refusal on stderr")
	return c
}

// takenBefore says when the configuration in force was taken, and why: the daemon follows the file,
// so an edit is usually in force before anybody asks.
func takenBefore(r *api.ConfigReload) string {
	how := map[string]string{"file": "when the daemon saw the file change", "signal": "on a signal"}[r.By]
	return "in force since " + term.When(r.InForceSince.UnixMilli(), time.Now()) + ", " + cmp.Or(how, "on an earlier reload") + ":"
}

// tellReload has the daemon reload. It prints the refused faults of files, one a line if
// there are several.
func (s *command) tellReload(ctx context.Context, asJSON bool, result *api.PolicyReloadResult) (printed bool, err error) {
	printed, err = s.TellOperator(ctx, "policy.reload", asJSON, result)
	return printed, s.splitRefusal(err)
}

// splitRefusal prints the faults for which the daemon refuses files, if there are several.
func (s *command) splitRefusal(err error) error {
	refused, ok := errors.AsType[*api.Error](err)
	if !ok || refused.Code != api.Conflict {
		return err
	}
	var d api.PolicyRefusal
	if text, failure := json.Marshal(refused.Details); failure != nil || json.Unmarshal(text, &d) != nil || len(d.Faults) < 2 {
		return err
	}
	cause, _, _ := strings.Cut(refused.Message, ": ")
	fmt.Fprintf(s.Stderr, "ocipd: %s: %s; what is in force stays (policy %s) (%s)\n", term.OneLine(cause), term.Count(d.FaultCount, "fault"), term.Printable(d.Revision), refused.Code)
	for _, line := range FaultLines(d.Faults, d.FaultCount) {
		fmt.Fprintln(s.Stderr, "  "+line)
	}
	return cli.ErrSaid
}

// FaultLines formats the faults of files, one a line.
func FaultLines(faults []api.PolicyFault, n int) []string {
	lines := make([]string, 0, len(faults)+1)
	for _, f := range faults {
		place := f.File
		if f.Line > 0 {
			place += ":" + strconv.Itoa(f.Line)
		}
		lines = append(lines, term.OneLine(strings.TrimPrefix(place+": "+f.Message, ": ")))
	}
	if more := n - len(faults); more > 0 {
		lines = append(lines, "and "+strconv.Itoa(more)+" more")
	}
	return lines
}

// printReload lists the effects of a reload on the configuration.
func (s *command) printReload(r *api.ConfigReload) error {
	list, n := r.Changes, r.ChangeCount
	if n == 0 {
		list, n = r.Last, len(r.Last)
	}
	if err := s.printDifferences(list, n, ""); err != nil || len(r.PendingRestart) == 0 {
		return err
	}
	_, err := fmt.Fprintf(s.Stdout, "at the next start: %s\n", term.Printable(strings.Join(r.PendingRestart, ", ")))
	return err
}

// printDifferences lists different values, one a line.
func (s *command) printDifferences(list []api.ConfigDifference, n int, note string) error {
	for _, d := range list {
		if _, err := fmt.Fprintf(s.Stdout, "  %s: %s -> %s%s\n", term.Printable(d.Key), valueText(d.Was), valueText(d.Now), note); err != nil {
			return err
		}
	}
	if more := n - len(list); more > 0 {
		if _, err := fmt.Fprintf(s.Stdout, "  and %d more\n", more); err != nil {
			return err
		}
	}
	return nil
}

// valueText formats a value of the configuration in one line.
func valueText(value any) string {
	switch v := value.(type) {
	case nil:
		return "none"
	case string:
		if v != "" && v == strings.TrimSpace(v) {
			return term.Printable(v)
		}
	}
	encoded, err := json.Marshal(value, json.Deterministic(true))
	if err != nil {
		return term.Printable(fmt.Sprint(value))
	}
	return term.Printable(string(encoded))
}

// configDiff describes the effect of a reload of the running daemon.
func (s *command) configDiff(ctx context.Context, asJSON bool) error {
	var d api.ConfigDiffResult
	if printed, err := s.TellOperator(ctx, "config.diff", asJSON, &d); err != nil || printed {
		return s.splitRefusal(err)
	}
	said := "ok: " + cmp.Or(d.File, "no configuration file; using defaults")
	if d.ChangeCount == 0 && !d.PolicyChanged && len(d.PendingRestart) == 0 {
		said += ": nothing would change"
	}
	if _, err := fmt.Fprintln(s.Stdout, term.Printable(said)); err != nil {
		return err
	}
	if err := s.printDifferences(d.Changes, d.ChangeCount, ""); err != nil {
		return err
	}
	if d.PolicyChanged {
		if _, err := fmt.Fprintf(s.Stdout, "  the policy: %s\n", term.Printable(d.PolicyRevision)); err != nil {
			return err
		}
	}
	if err := s.printDifferences(d.PendingRestart, len(d.PendingRestart), " (at the next start)"); err != nil {
		return err
	}
	for _, o := range d.Overridden {
		if _, err := fmt.Fprintf(s.Stdout, "  %s: what the file says does not count, because of %s\n", term.Printable(o.Key), term.Printable(o.By)); err != nil {
			return err
		}
	}
	return nil
}
