// Package logview shows records of the audit log on a terminal: one a row, by page or as
// they come, and in charts of their numbers.
package logview

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/base/term"
)

// Hold is the word for [audit.ResultApproval] in texts for people.
const Hold = "hold"

// recordColumns are the columns of a record for people: the time, the result and the kind
// come first, and are never cut. On a narrow screen, the last column is the agent, and the
// rest goes below.
func recordColumns(narrow bool) []term.Column {
	columns := []term.Column{
		{Title: "TIME", Whole: true}, {Title: "SEQ", Right: true, Whole: true}, {Title: "RESULT", Whole: true}, {Title: "WHAT", Whole: true},
	}
	if narrow {
		return append(columns, term.Column{Title: "WHO", Whole: true})
	}
	return append(columns, term.Column{Title: "AGENT", Whole: true}, term.Column{Title: "WITH", Whole: true},
		term.Column{Title: "LEVEL", Whole: true}, term.Column{Title: "ROUND", Whole: true}, term.Column{Title: "REASON", Whole: true})
}

// narrowScreen is the width below which a record takes more than one line.
const narrowScreen = 140

// recordRow formats a record as a row of [recordColumns] for a wide screen.
func recordRow(e *audit.Entry) []term.Cell {
	return []term.Cell{
		{Text: e.Time.Local().Format(time.DateTime), Colour: term.Dim}, {Text: strconv.FormatUint(e.Seq, 10)}, Result(e), term.Plain(What(e)),
		term.Plain(agent(e)), term.AddressOf(With(e)), term.Plain(e.Classification), term.Plain(round(e)), term.Plain(Reason(e)),
	}
}

// narrowWidths are the widths of the columns before the last on a narrow screen. Longer
// content makes a row longer.
func narrowWidths() []int { return []int{14, 5, 8, 17} }

// writeNarrow shows a record in a line, and the rest below it. It omits the only agent, if
// one is given.
func writeNarrow(w io.Writer, scr term.Screen, e *audit.Entry, only string) error {
	columns, row := recordColumns(true), recordRow(e)[:4]
	row[0].Text = e.Time.Local().Format("01-02 15:04:05")
	who := term.Cell{Text: joined(" ", term.Printable(agent(e)), term.Address(With(e)))}
	if only != "" && agent(e) == only && With(e) != "" {
		who = term.AddressOf(With(e))
	}
	below := term.Printable(joined(": ", strings.TrimSpace(e.Classification+" "+round(e)), Reason(e)))
	widths := narrowWidths()
	if whole := append(slices.Clip(row), who); lineWidth(columns, append(widths, 0), whole) <= scr.Width {
		row, widths = whole, append(widths, 0)
	} else {
		below = joined(", ", who.Text, below)
	}
	if _, err := io.WriteString(w, term.RowLine(columns[:len(row)], widths, row, scr)); err != nil {
		return err
	}
	return writeBelow(w, below, scr)
}

// joined joins the texts that are not empty.
func joined(between, first, second string) string {
	if first == "" || second == "" {
		return first + second
	}
	return first + between + second
}

// lineWidth is the width of an uncut row.
func lineWidth(columns []term.Column, widths []int, row []term.Cell) int {
	return term.Width(strings.TrimSuffix(term.RowLine(columns[:len(row)], widths, row, term.Screen{}), "\n"))
}

// writeTitles writes the titles of columns.
func writeTitles(w io.Writer, scr term.Screen, columns []term.Column, widths []int) error {
	titles := make([]term.Cell, len(columns))
	for i, c := range columns {
		titles[i] = term.Cell{Text: c.Title, Colour: term.Dim}
	}
	_, err := io.WriteString(w, term.RowLine(columns, widths, titles, scr))
	return err
}

// agent is the agent, app or user of a record.
func agent(e *audit.Entry) string { return cmp.Or(e.AgentID, e.AppID, e.UserID) }

func round(e *audit.Entry) string {
	if e.Round == 0 && e.MaxRounds == 0 {
		return ""
	}
	return fmt.Sprintf("%d/%d", e.Round, e.MaxRounds)
}

// With is the other end, with the direction of the message.
func With(e *audit.Entry) string {
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

// What returns the subject of a record and the person who decided it.
func What(e *audit.Entry) string {
	what := strings.TrimSpace(e.ActionType + " " + e.Event)
	switch {
	case e.ExchangeType != "" && e.ActionType == audit.ActionExchange:
		what = e.ExchangeType
	case decided(e):
		what = e.ActionType // the event is the result
	}
	if by, ok := e.Details["by"].(string); ok && by != "" {
		what += " by " + by
	}
	return what
}

// decided reports whether a record is about the outcome of an approval request.
func decided(e *audit.Entry) bool {
	return e.ActionType == audit.ActionApproval && e.PolicyResult == "" && e.Event != ""
}

// Result is the decision.
func Result(e *audit.Entry) term.Cell {
	switch e.PolicyResult {
	case audit.ResultAllow:
		return term.Cell{Text: audit.ResultAllow, Colour: term.Green}
	case audit.ResultDeny:
		return term.Cell{Text: audit.ResultDeny, Colour: term.Red}
	case audit.ResultApproval:
		return term.Cell{Text: Hold, Colour: term.Yellow}
	}
	if decided(e) {
		return term.Tinted(strings.ReplaceAll(e.Event, "_", " "), map[string]term.Colour{"approved": term.Green, "denied": term.Red}[e.Event])
	}
	return term.Plain(cmp.Or(e.PolicyResult, e.Outcome))
}

// Reason is the reason with its codes.
func Reason(e *audit.Entry) string {
	codes := strings.Join(e.Codes(), ", ")
	switch {
	case codes == "":
		return e.PolicyReason
	case e.PolicyReason == "":
		return codes
	}
	return codes + ": " + e.PolicyReason
}

// Folds reports whether records take more than one line on a screen.
func Folds(scr term.Screen) bool { return scr.RowWidth() < narrowScreen }
