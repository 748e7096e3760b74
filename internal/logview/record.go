// Package logview shows records of the audit log on a terminal: in a row each, page by
// page or as they come, and in charts of how many there were.
package logview

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/term"
)

// Hold is the word that people are shown for [audit.ResultApproval].
const Hold = "hold"

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
		term.Plain(cmp.Or(e.AgentID, cmp.Or(e.AppID, e.UserID))), term.Plain(With(e)), term.Plain(What(e)),
		term.Plain(e.Classification), term.Plain(round), Result(e), term.Plain(Reason(e)),
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

func What(e *audit.Entry) string {
	if e.ExchangeType != "" && e.ActionType == audit.ActionExchange {
		return e.ExchangeType
	}
	return strings.TrimSpace(e.ActionType + " " + e.Event)
}

func Result(e *audit.Entry) term.Cell {
	switch e.PolicyResult {
	case audit.ResultAllow:
		return term.Cell{Text: audit.ResultAllow, Colour: term.Green}
	case audit.ResultDeny:
		return term.Cell{Text: audit.ResultDeny, Colour: term.Red}
	case audit.ResultApproval:
		return term.Cell{Text: Hold, Colour: term.Yellow}
	}
	return term.Plain(cmp.Or(e.PolicyResult, e.Outcome))
}

func Reason(e *audit.Entry) string {
	switch {
	case e.Code == "":
		return e.PolicyReason
	case e.PolicyReason == "":
		return e.Code
	}
	return e.Code + ": " + e.PolicyReason
}
