package main

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/cli"
	"github.com/openclawos/ocipd/internal/term"
	"github.com/spf13/cobra"
)

func newAudit(s *shell) *cobra.Command {
	c := cli.Group(&cobra.Command{Use: "audit", Short: "read, search and verify the audit log"})
	c.AddCommand(newAuditTail(s), newAuditQuery(s), newAuditStats(s), newAuditShow(s), newAuditVerify(s), newAuditExport(s), newAuditReceipt(s), newAuditProve(s), newAuditRetire(s), newAuditForget(s), newAuditKey(s), newAuditWitness(s))
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
			// It fails for a flag that does not exist, and this one does.
			_ = c.RegisterFlagCompletionFunc(m.Flag, cobra.FixedCompletions(m.Values, cobra.ShellCompDirectiveNoFileComp))
		}
	}
}

// resolve checks what was given and gives the filter.
func (f *filterFlags) resolve(now time.Time) (audit.Filter, error) {
	var err error
	if f.filter.Since, err = cli.Moment(f.since, now); err != nil {
		return audit.Filter{}, cli.Usagef("cannot read --since: %v", err)
	}
	if f.filter.Until, err = cli.Moment(f.until, now); err != nil {
		return audit.Filter{}, cli.Usagef("cannot read --until: %v", err)
	}
	if f.filter.Like.PolicyResult == resultHold {
		f.filter.Like.PolicyResult = audit.ResultApproval
	}
	for m, value := range f.filter.Wants() {
		if m.Values != nil && !slices.Contains(m.Values, value) {
			return audit.Filter{}, cli.Usagef("cannot filter by --%s %q: want one of %s", m.Flag, value, strings.Join(m.Values, ", "))
		}
	}
	return f.filter, nil
}

// resultHold is the word that people are shown for [audit.ResultApproval].
const resultHold = "hold"

// recordColumns are a record's fields for people. A narrow screen leaves out
// what kind of exchange it is, so that the rest can be read.
func recordColumns(narrow bool) []term.Column {
	columns := []term.Column{
		{Title: "TIME", Least: 14}, {Title: "SEQ", Least: 4, Right: true}, {Title: "AGENT", Least: 8, Whole: true}, {Title: "WITH", Least: 10, Whole: true},
		{Title: "WHAT", Least: 8}, {Title: "LEVEL", Least: 5}, {Title: "ROUND", Least: 5}, {Title: "RESULT", Least: 6}, {Title: "REASON", Least: 8},
	}
	if narrow {
		return slices.Delete(columns, whatColumn, whatColumn+1)
	}
	return columns
}

const whatColumn = 4

// narrowScreen is the width below which rows leave something out.
const narrowScreen = 110

// recordRow shows a record in a row of [recordColumns].
func recordRow(e *audit.Entry, narrow bool) []term.Cell {
	round := ""
	if e.Round > 0 || e.MaxRounds > 0 {
		round = fmt.Sprintf("%d/%d", e.Round, e.MaxRounds)
	}
	row := []term.Cell{
		{Text: e.Time.Local().Format(time.DateTime), Colour: term.Dim},
		{Text: strconv.FormatUint(e.Seq, 10)},
		term.Plain(cmp.Or(e.AgentID, cmp.Or(e.AppID, e.UserID))), term.Plain(with(e)), term.Plain(what(e)),
		term.Plain(e.Classification), term.Plain(round), result(e), term.Plain(reason(e)),
	}
	if !narrow {
		return row
	}
	row[0].Text = e.Time.Local().Format("01-02 15:04:05")
	if last := len(row) - 1; row[last].Text == "" && e.ActionType != audit.ActionExchange {
		row[last] = row[whatColumn]
	}
	return slices.Delete(row, whatColumn, whatColumn+1)
}

// with is the other end, with the way the message went.
func with(e *audit.Entry) string {
	c := &e.Counterparty
	other := cmp.Or(c.InstanceID, cmp.Or(c.UserID, e.SessionKey))
	switch {
	case other == "":
		return ""
	case e.Side == audit.SideReceiver:
		return "← " + other
	case e.Side == audit.SideSender:
		return "→ " + other
	}
	return other
}

func what(e *audit.Entry) string {
	if e.ExchangeType != "" && e.ActionType == audit.ActionExchange {
		return e.ExchangeType
	}
	return strings.TrimSpace(e.ActionType + " " + e.Event)
}

func result(e *audit.Entry) term.Cell {
	switch e.PolicyResult {
	case audit.ResultAllow:
		return term.Cell{Text: audit.ResultAllow, Colour: term.Green}
	case audit.ResultDeny:
		return term.Cell{Text: audit.ResultDeny, Colour: term.Red}
	case audit.ResultApproval:
		return term.Cell{Text: resultHold, Colour: term.Yellow}
	}
	return term.Plain(cmp.Or(e.PolicyResult, e.Outcome))
}

func reason(e *audit.Entry) string {
	switch {
	case e.Code == "":
		return e.PolicyReason
	case e.PolicyReason == "":
		return e.Code
	}
	return e.Code + ": " + e.PolicyReason
}
