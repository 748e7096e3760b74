// Package logview shows records of the audit log on a terminal: in a row each, page by
// page or as they come, and in charts of how many there were.
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

// Hold is the word that people are shown for [audit.ResultApproval].
const Hold = "hold"

// recordColumns are a record's fields for people: first when, what became of it and
// what it was. None of them is ever cut. Where the screen is narrow, the last column is who,
// and the rest stands below.
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

// recordRow shows a record in a row of [recordColumns], for a wide screen.
func recordRow(e *audit.Entry) []term.Cell {
	return []term.Cell{
		{Text: e.Time.Local().Format(time.DateTime), Colour: term.Dim}, {Text: strconv.FormatUint(e.Seq, 10)}, Result(e), term.Plain(What(e)),
		term.Plain(agent(e)), term.AddressOf(With(e)), term.Plain(e.Classification), term.Plain(round(e)), term.Plain(Reason(e)),
	}
}

// narrowWidths are how wide the columns before the last are on a narrow screen. A row
// with more in one of them is longer.
func narrowWidths() []int { return []int{14, 5, 8, 17} }

// writeNarrow shows a record in a line, and below it what has no room there. The only
// agent there is, if one is named, is not named again beside the other end.
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

// joined is those of two texts that are not empty, with something in between.
func joined(between, first, second string) string {
	if first == "" || second == "" {
		return first + second
	}
	return first + between + second
}

// lineWidth is how wide a row is with nothing cut.
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

// agent is whose record it is.
func agent(e *audit.Entry) string { return cmp.Or(e.AgentID, e.AppID, e.UserID) }

func round(e *audit.Entry) string {
	if e.Round == 0 && e.MaxRounds == 0 {
		return ""
	}
	return fmt.Sprintf("%d/%d", e.Round, e.MaxRounds)
}

// With is the other end, with the way the message went.
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

// What is what a record is of, and who decided it.
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

// decided reports a record of what became of an approval request.
func decided(e *audit.Entry) bool {
	return e.ActionType == audit.ActionApproval && e.PolicyResult == "" && e.Event != ""
}

// Result is what was decided.
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

// Reason is why, with the code of it.
func Reason(e *audit.Entry) string {
	switch {
	case e.Code == "":
		return e.PolicyReason
	case e.PolicyReason == "":
		return e.Code
	}
	return e.Code + ": " + e.PolicyReason
}

// Folds reports whether records take more than one line on a screen.
func Folds(scr term.Screen) bool { return scr.RowWidth() < narrowScreen }
