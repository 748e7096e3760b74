package exchangecmd

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/api/client"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/base/term"
	"github.com/openclawos/ocipd/internal/cli"
	"github.com/openclawos/ocipd/internal/cli/logview"
	"github.com/openclawos/ocipd/internal/ocip"
	"github.com/spf13/cobra"
)

func newExchangesShow(s *command) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:     "show ID",
		Example: "  ocipd exchanges show 01a1fa2b",
		Short:   "show both sides of an exchange and how it ended",
		Long: `Show both sides of an exchange with the first line of each message, and how it
ended. The beginning of an id is enough. --json prints one side a line.`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: s.completeExchange,
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			c, err := s.DialOperator(ctx)
			if err != nil {
				return err
			}
			defer c.Close()
			sides, err := find(ctx, From(c), args[0])
			if err != nil {
				return fmt.Errorf("cannot show the exchange: %w", err)
			}
			if asJSON {
				return s.printSides(sides)
			}
			ends := make([]ending, len(sides))
			for i := range sides {
				if ends[i], err = endingOf(ctx, c, &sides[i]); err != nil {
					return fmt.Errorf("cannot read why the exchange ended: %w", err)
				}
			}
			return writeExchange(s.Stdout, s.Screen(), time.Now(), sides, ends)
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON, one side a line")
	return c
}

// causeWindow bounds the time between a side's end and its record. They are simultaneous,
// except for a slow disk or a changed clock.
const causeWindow = time.Minute

// ending describes how a side ended: the record of the cause, and the record of a person's
// decision about the message. Either may be nil.
type ending struct{ cause, decision *audit.Entry }

// endingOf asks for the records of a side's end.
func endingOf(ctx context.Context, c *client.Client, x *Side) (ending, error) {
	if x.is(ocip.InProgress) || x.is(ocip.Expired) {
		return ending{}, nil
	}
	ended, limit := time.UnixMilli(x.UpdatedAt), api.DefaultPage
	params := api.AuditQueryParams{Limit: &limit, Filter: audit.Filter{Like: audit.Record{ExchangeID: x.ExchangeID, AgentID: x.Agent}, Since: ended.Add(-causeWindow), Until: ended.Add(causeWindow)}}
	ctx, cancel := context.WithTimeout(ctx, cli.AnswerTime)
	defer cancel()
	var found []audit.Entry
	for {
		var page api.AuditQueryResult
		if err := c.Call(ctx, "audit.query", params, &page); err != nil {
			return ending{}, err
		}
		for _, record := range page.Records {
			e, err := audit.Parse(record)
			if err != nil {
				return ending{}, err
			}
			found = append(found, e)
		}
		if params.Before = page.NextBefore; params.Before == 0 {
			return endingIn(found, x.Outcome), nil
		}
	}
}

// endingIn finds the cause of an exchange's outcome in its records, newest first. A
// person's own text is sent, and is not the cause of the end.
func endingIn(records []audit.Entry, outcome string) (end ending) {
	var of []audit.Entry
	for i := range records {
		e := &records[i]
		switch {
		case e.ActionType == audit.ActionApproval:
			if end.decision == nil && slices.Contains([]string{api.ApprovalTakenOver, api.ApprovalDenied, api.ApprovalResolved}, e.Event) {
				end.decision = e
			}
		case e.ActionType != audit.ActionExchange:
		case outcome == string(ocip.Escalated) && e.ApprovalID != "" && e.PolicyResult == audit.ResultAllow:
		default:
			of = append(of, *e)
		}
	}
	end.cause = cause(of, outcome)
	if end.cause == nil {
		end.cause = end.decision // which has the code, if not the reason
	}
	return end
}

// cause returns the record that led to an exchange's outcome, or nil. Of the records,
// newest first, it is the oldest of the last ones with this outcome. It skips messages
// refused because the exchange had ended.
func cause(records []audit.Entry, outcome string) (first *audit.Entry) {
	for i := range records {
		e := &records[i]
		switch {
		case e.Code == string(ocip.ExchangeClosed):
		case e.Outcome == outcome:
			first = e
		case first != nil:
			return first
		}
	}
	return first
}

// because describes a record as the cause of an end.
func because(e *audit.Entry) string {
	text := logview.Reason(e)
	if note, ok := e.Details["note"].(string); ok && text == "" {
		by, _ := e.Details["by"].(string)
		text = strings.TrimSuffix(fmt.Sprintf("%s by %s: %s", e.Event, cmp.Or(by, e.AppID), note), ": ")
	}
	return fmt.Sprintf("%s (record %d)", text, e.Seq)
}

// unsent is the message that an escalation held back, from its record.
func unsent(e *audit.Entry) string {
	escalation, _ := e.Details["escalation"].(map[string]any)
	said, _ := escalation["conversationSummary"].(string)
	return said[strings.LastIndexByte(said, '\n')+1:]
}

// writeExchange shows one exchange to a person who may have to settle it.
func writeExchange(out io.Writer, scr term.Screen, now time.Time, sides []Side, ends []ending) error {
	w := bufio.NewWriter(out)
	p := scr.Colour
	fmt.Fprintf(w, "%s %s\n", p.Paint(term.Bold, "exchange"), term.Printable(sides[0].ExchangeID))
	for i, end := range ends {
		x := &sides[i]
		fmt.Fprintf(w, "\n%s with %s: %s\n", p.Paint(term.Bold, term.Printable(x.Agent)), term.Address(x.Counterparty), p.Paint(x.colour(), term.Printable(x.Outcome)))
		fact := func(name, text string) {
			term.Prose(w, scr, term.FactName(p, name), strings.Repeat(" ", term.FactWidth), text)
		}
		if end.cause != nil {
			fact("why", because(end.cause))
		}
		if d := end.decision; d != nil {
			by, _ := d.Details["by"].(string)
			fact("decided", fmt.Sprintf("%s by %s (record %d)", strings.ReplaceAll(d.Event, "_", " "), cmp.Or(by, d.AppID), d.Seq))
		}
		// Shown whole, for copying.
		for _, f := range []struct{ name, value string }{
			{"type", x.Type},
			{"level", x.Classification},
			{"rounds", rounds(x)},
			{"session", x.SessionKey},
			{"conversation", x.ConversationID},
			{"opened", term.When(x.OpenedAt, now)},
			{"updated", term.When(x.UpdatedAt, now)},
			{"expires", expiry(x, now)},
		} {
			fmt.Fprintf(w, "%s%s\n", term.FactName(p, f.name), term.Printable(f.value))
		}
		fmt.Fprintln(w)
		if i > 0 && len(x.Transcript) > 0 && slices.Equal(x.Transcript, sides[i-1].Transcript) {
			fmt.Fprintf(w, "  the same was said as on the side of %s\n", term.Printable(sides[i-1].Agent))
		} else {
			writeTranscript(w, scr, x.Transcript)
		}
		if end.cause != nil && end.decision == nil {
			if held := unsent(end.cause); held != "" {
				fmt.Fprintln(w, "  "+p.Paint(term.Yellow, "kept back"))
				term.Quote(w, scr, held)
			}
		}
	}
	writeAdvice(w, scr, sides, ends)
	return w.Flush()
}

func writeTranscript(w io.Writer, scr term.Screen, turns []ocip.Turn) {
	if len(turns) == 0 {
		fmt.Fprintln(w, "  nothing was let through")
	}
	for _, t := range turns {
		fmt.Fprintf(w, "  %s  %s\n", scr.Colour.Paint(term.Dim, fmt.Sprintf("round %d", t.Round)), term.Printable(t.Sender))
		term.Quote(w, scr, t.Shown())
	}
}

// writeAdvice says which exchange waits for a person, and how to continue.
func writeAdvice(w io.Writer, scr term.Screen, sides []Side, ends []ending) {
	id, escalated := sides[0].ExchangeID, false
	var pairs, stopped [][2]string
	var behind string
	for i := range sides {
		x := &sides[i]
		pair := [2]string{min(x.Agent, x.Counterparty), max(x.Agent, x.Counterparty)}
		if !slices.Contains(pairs, pair) {
			pairs = append(pairs, pair)
		}
		if !x.Pending {
			continue
		}
		escalated = true
		if ends[i].cause == nil || ends[i].cause.Code != string(ocip.RoundLimit) {
			continue
		}
		if other, ok := ends[i].cause.Details["escalatedExchange"].(string); ok {
			behind = other
		} else if !slices.Contains(stopped, pair) {
			stopped = append(stopped, pair)
		}
	}
	say := func(format string, args ...any) { term.Prose(w, scr, "", "", fmt.Sprintf(format, args...)) }
	fmt.Fprintln(w)
	if len(pairs) > 1 {
		say("This id names %d exchanges, of different agents: to resolve one, name its agent with --agent.", len(pairs))
	}
	for _, pair := range stopped {
		say("Until a person settles this, nothing goes between %s and %s, in any exchange.", pair[0], pair[1])
	}
	if behind != "" {
		fmt.Fprintf(w, "What stopped this one is another, and waits for a person:\n  %s\n", showCommand(behind))
	}
	if escalated {
		fmt.Fprintf(w, "To settle it:\n  %s\n", resolveCommand(id))
	}
	fmt.Fprintf(w, "To see what was decided:\n  ocipd audit query --exchange %s\n", cli.Argument(id))
}

func rounds(x *Side) string {
	text := fmt.Sprintf("%d of %d", x.CurrentRound, x.MaxRounds)
	if x.CurrentRound >= x.MaxRounds {
		text += ", used up"
	}
	return text
}

func expiry(x *Side, now time.Time) string {
	switch {
	case x.ExpiresAt <= 0:
		return "never"
	case x.is(ocip.InProgress) && x.ExpiresAt <= now.UnixMilli():
		return term.When(x.ExpiresAt, now) + ": it takes no more messages"
	}
	return term.When(x.ExpiresAt, now)
}
