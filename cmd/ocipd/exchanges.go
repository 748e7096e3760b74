package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/api/client"
	"github.com/openclawos/ocipd/internal/api/members"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/base/term"
	"github.com/openclawos/ocipd/internal/cli"
	"github.com/openclawos/ocipd/internal/cli/logview"
	"github.com/openclawos/ocipd/internal/ocip"
	"github.com/spf13/cobra"
)

func newExchanges(s *shell) *cobra.Command {
	c := cli.GroupAround(&cobra.Command{Use: "exchanges", Short: "list exchanges between agents, and close escalated ones"}, newExchangesList(s))
	c.AddCommand(newExchangesShow(s), newExchangesResolve(s))
	return c
}

// side is one side of an exchange, with its original JSON.
type side struct {
	api.Exchange
	raw jsontext.Value
}

func (x *side) is(outcome ocip.Outcome) bool { return x.Outcome == string(outcome) }

// asker asks the daemon a method whose answer has sides.
type asker func(ctx context.Context, method string, params any) ([]side, error)

func sidesFrom(c *client.Client) asker {
	return func(ctx context.Context, method string, params any) ([]side, error) {
		ctx, cancel := context.WithTimeout(ctx, cli.AnswerTime)
		defer cancel()
		var answer struct {
			Exchanges []jsontext.Value `json:"exchanges"`
		}
		if err := c.Call(ctx, method, params, &answer); err != nil {
			return nil, err
		}
		sides := make([]side, len(answer.Exchanges))
		for i, raw := range answer.Exchanges {
			sides[i].raw = raw
			if err := json.Unmarshal(raw, &sides[i].Exchange); err != nil {
				return nil, fmt.Errorf("cannot read an exchange of the daemon: %w", err)
			}
		}
		return sides, nil
	}
}

func (s *shell) printSides(sides []side) error {
	scr := s.Screen()
	for i := range sides {
		if _, err := s.Stdout.Write(scr.JSONLine(sides[i].raw)); err != nil {
			return err
		}
	}
	return nil
}

func newExchangesList(s *shell) *cobra.Command {
	var params api.ExchangeListParams
	var limit int
	var all, asJSON bool
	c := &cobra.Command{
		Use: "list",
		Example: "  ocipd exchanges list --outcome escalated\n" +
			"  ocipd exchanges list --agent agent-alice-1 --json",
		Short: "list exchanges, newest first",
		Long: `List exchanges, newest first. Each agent of this daemon keeps its own side of an
exchange, in a row of its own. A narrow terminal shows long fields on a second
line. --json prints one side a line.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case all && cmd.Flags().Changed("limit"):
				return cli.Usagef("cannot use --all and --limit together")
			case limit < 1:
				return cli.Usagef("cannot read --limit %d: want at least 1", limit)
			case params.Outcome != "" && !slices.Contains(outcomes(), params.Outcome):
				return cli.Usagef("cannot filter by --outcome %q: want one of %s", params.Outcome, strings.Join(outcomes(), ", "))
			case all:
				limit = 0
			}
			return s.listExchanges(cmd.Context(), params, limit, asJSON)
		},
	}
	flags := c.Flags()
	flags.StringVar(&params.Agent, "agent", "", "exchanges of the agent with this instance `ID`")
	flags.StringVar(&params.Counterparty, "counterparty", "", "exchanges with the counterparty of this instance `ID`")
	flags.StringVar(&params.Outcome, "outcome", "", "exchanges with this `OUTCOME`: "+strings.Join(outcomes(), ", "))
	flags.IntVar(&limit, "limit", api.DefaultPage, "print at most `N` sides")
	flags.BoolVar(&all, "all", false, "print every side")
	flags.BoolVar(&asJSON, "json", false, "print JSON, one side a line")
	cli.Choices(c, "outcome", outcomes())
	return c
}

// outcomes lists the outcomes of the protocol.
func outcomes() []string {
	return []string{string(ocip.InProgress), string(ocip.Resolved), string(ocip.Escalated), string(ocip.Denied), string(ocip.Expired)}
}

func (s *shell) listExchanges(ctx context.Context, params api.ExchangeListParams, limit int, asJSON bool) error {
	c, err := s.DialOperator(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	sides, more, err := pages(ctx, sidesFrom(c), params, limit)
	if err != nil {
		return fmt.Errorf("cannot list exchanges: %w", err)
	}
	if asJSON {
		return s.printSides(sides)
	}
	scr := s.Screen()
	if err := exchangeTable(sides, time.Now()).Write(s.Stdout, scr); err != nil {
		return err
	}
	switch {
	case len(sides) > 0:
	case params.Agent != "" || params.Counterparty != "":
		fmt.Fprintln(s.Stderr, "no exchanges: --agent and --counterparty take instance ids, as the list without them shows")
	default:
		fmt.Fprintln(s.Stderr, "no exchanges")
	}
	if more {
		fmt.Fprintln(s.Stderr, "there are more: --all lists every one")
	}
	hintEscalated(s.Stderr, sides)
	return nil
}

// pages asks for pages until there are limit sides; zero means all. more reports that there
// are others.
func pages(ctx context.Context, ask asker, params api.ExchangeListParams, limit int) (sides []side, more bool, err error) {
	size := api.DefaultPage
	for {
		params.Limit = &size
		page, err := ask(ctx, "exchange.list", params)
		if err != nil {
			return nil, false, err
		}
		full := len(page) == size
		if full {
			// The next page begins after an id. Sides of the last exchange may be missing
			// here, so ask for all of them again.
			last := page[len(page)-1].ExchangeID
			whole := slices.IndexFunc(page, func(x side) bool { return x.ExchangeID == last })
			switch {
			case whole > 0:
				page = page[:whole]
			case size < api.MaxPage:
				size = api.MaxPage
				continue
			}
			params.Before = page[len(page)-1].ExchangeID
		}
		sides = append(sides, page...)
		switch {
		case limit > 0 && len(sides) > limit:
			return sides[:limit], true, nil
		case !full:
			return sides, false, nil
		}
	}
}

// leastPrefix is the shortest prefix of an id that a person may use, in bytes.
const leastPrefix = 8

// find returns the sides of an exchange by its id, or by a prefix of its id. A name that
// ends in the ellipsis is always a prefix, so that no agent can name an exchange like the
// shortened id of another one.
func find(ctx context.Context, ask asker, name string) ([]side, error) {
	prefix, cut := strings.CutSuffix(name, "…")
	if !cut {
		sides, err := ask(ctx, "exchange.get", api.ExchangeParams{ExchangeID: name})
		if refused, ok := errors.AsType[*api.Error](err); !ok || refused.Code != api.NotFound {
			return sides, err
		}
	}
	unknown := fmt.Errorf("there is no exchange %q; ocipd exchanges list shows which there are", name)
	if len(prefix) < leastPrefix {
		return nil, unknown
	}
	first, err := nextBelow(ctx, ask, prefix+"\U0010ffff", prefix)
	if err != nil {
		return nil, err
	}
	if first == "" {
		return nil, unknown
	}
	second, err := nextBelow(ctx, ask, first, prefix)
	if err != nil {
		return nil, err
	}
	if second != "" {
		return nil, fmt.Errorf("%q is the beginning of more than one, such as %s and %s", name, first, second)
	}
	return ask(ctx, "exchange.get", api.ExchangeParams{ExchangeID: first})
}

// nextBelow returns the highest id below another that has a prefix, or "". Ids are listed
// in descending order, so ids with the prefix come first below its last continuation.
func nextBelow(ctx context.Context, ask asker, before, prefix string) (string, error) {
	one := 1
	next, err := ask(ctx, "exchange.list", api.ExchangeListParams{Before: before, Limit: &one})
	if err != nil || len(next) == 0 || !strings.HasPrefix(next[0].ExchangeID, prefix) {
		return "", err
	}
	return next[0].ExchangeID, nil
}

// exchangeTable shows many sides at once.
func exchangeTable(sides []side, now time.Time) *term.Table {
	t := &term.Table{Columns: []term.Column{
		{Title: "EXCHANGE", Whole: true}, {Title: "AGENT", Whole: true, Below: true}, {Title: "WITH", Whole: true, Below: true}, {Title: "TYPE", Least: 18, Below: true},
		{Title: "ROUND", Least: 5}, {Title: "OUTCOME", Least: 11}, {Title: "LEVEL", Least: 12, Below: true}, {Title: "UPDATED", Least: 7, Right: true},
	}}
	for i := range sides {
		x := &sides[i]
		t.Add(
			term.Plain(x.ExchangeID), term.Plain(x.Agent), term.AddressOf(x.Counterparty), term.Plain(x.Type), term.Cell{Text: fmt.Sprintf("%d/%d", x.CurrentRound, x.MaxRounds)},
			term.Tinted(x.Outcome, x.colour()), term.Plain(x.Classification), term.Cell{Text: term.Age(now.Sub(time.UnixMilli(x.UpdatedAt)))},
		)
	}
	return t
}

func (x *side) colour() term.Colour { return outcomeColour(x.Outcome, x.Pending) }

// outcomeColour is the colour of an outcome. An escalation stands out until a person settles it.
func outcomeColour(outcome string, pending bool) term.Colour {
	switch ocip.Outcome(outcome) {
	case ocip.Resolved:
		return term.Green
	case ocip.Escalated:
		if !pending {
			return term.Dim
		}
		return term.Yellow
	case ocip.Denied:
		return term.Red
	case ocip.Expired:
		return term.Dim
	case ocip.InProgress:
	}
	return term.NoColour
}

// hintEscalated says how to settle the exchanges that wait for a person.
func hintEscalated(w io.Writer, sides []side) {
	var ids []string
	for i := range sides {
		if x := &sides[i]; x.Pending && !slices.Contains(ids, x.ExchangeID) {
			ids = append(ids, x.ExchangeID)
		}
	}
	switch len(ids) {
	case 0:
		return
	case 1:
		fmt.Fprintln(w, "1 exchange is escalated and waits for a person. To read and to settle it:")
	default:
		fmt.Fprintf(w, "%d exchanges are escalated and wait for a person. To read and to settle one:\n", len(ids))
	}
	id := ids[max(0, slices.IndexFunc(ids, cli.PlainWord))]
	fmt.Fprintf(w, "  %s\n  %s\n", showCommand(id), resolveCommand(id))
}

func showCommand(id string) string { return "ocipd exchanges show " + cli.Argument(id) }

func resolveCommand(id string) string {
	return "ocipd exchanges resolve " + cli.Argument(id) + " --note TEXT"
}

// completeExchange completes the id of an exchange. It does not offer an id that a shell
// could misread.
func (s *shell) completeExchange(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	c, err := s.DialOperator(cmd.Context())
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	defer c.Close()
	sides, _, err := pages(cmd.Context(), sidesFrom(c), api.ExchangeListParams{}, api.DefaultPage)
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var found []cobra.Completion
	for i := range sides {
		x := &sides[i]
		if i > 0 && x.ExchangeID == sides[i-1].ExchangeID || !cli.PlainWord(x.ExchangeID) {
			continue
		}
		found = append(found, cobra.CompletionWithDesc(x.ExchangeID, term.Printable(x.Outcome+", "+x.Agent+" with "+x.Counterparty)))
	}
	return found, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
}

func newExchangesShow(s *shell) *cobra.Command {
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
			sides, err := find(ctx, sidesFrom(c), args[0])
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
func endingOf(ctx context.Context, c *client.Client, x *side) (ending, error) {
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
func writeExchange(out io.Writer, scr term.Screen, now time.Time, sides []side, ends []ending) error {
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
func writeAdvice(w io.Writer, scr term.Screen, sides []side, ends []ending) {
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

func rounds(x *side) string {
	text := fmt.Sprintf("%d of %d", x.CurrentRound, x.MaxRounds)
	if x.CurrentRound >= x.MaxRounds {
		text += ", used up"
	}
	return text
}

func expiry(x *side, now time.Time) string {
	switch {
	case x.ExpiresAt <= 0:
		return "never"
	case x.is(ocip.InProgress) && x.ExpiresAt <= now.UnixMilli():
		return term.When(x.ExpiresAt, now) + ": it takes no more messages"
	}
	return term.When(x.ExpiresAt, now)
}

func newExchangesResolve(s *shell) *cobra.Command {
	var note, agent, key string
	var asJSON, sign bool
	c := &cobra.Command{
		Use:     "resolve ID",
		Example: "  ocipd exchanges resolve 01a1fa2b --note 'spoke to them'",
		Short:   "close an exchange and settle its escalation",
		Long: `Close every side of an exchange that is in progress or escalated, and settle its
escalation: if its rounds were used up, the two agents may begin a new one. A
side that is denied, expired or resolved stays so. If the exchange changed after you
looked, or nothing of it is left to settle, nothing happens. The act is recorded,
with the note. The beginning of an id is enough.`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: s.completeExchange,
		RunE: func(cmd *cobra.Command, args []string) error {
			params := api.ExchangeResolveParams{ExchangeID: args[0], Agent: agent, Outcome: string(ocip.Resolved), Note: note}
			if wrong := members.Check(&params); len(wrong) > 0 {
				return cli.Usagef("cannot read the %s: %s", wrong[0].Path, wrong[0].Message)
			}
			return s.resolveExchange(cmd.Context(), params, sign || key != "", key, asJSON)
		},
	}
	c.Flags().StringVar(&note, "note", "", "record this `TEXT` with it, up to 1024 bytes")
	c.Flags().StringVar(&agent, "agent", "", "the exchange of the agent with this instance `ID`, where several pairs of agents use the id")
	c.Flags().BoolVar(&sign, "sign", false, "sign with the key of ssh-agent, also where the daemon does not demand it")
	cli.KeyFlag(c, &key)
	c.Flags().BoolVar(&asJSON, "json", false, "print the sides as JSON, one a line")
	return c
}

// resolveExchange ends an exchange, with a signature if the person or the daemon wants one.
func (s *shell) resolveExchange(ctx context.Context, params api.ExchangeResolveParams, sign bool, key string, asJSON bool) error {
	c, err := s.DialOperator(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	ask := sidesFrom(c)
	was, err := find(ctx, ask, params.ExchangeID)
	if err != nil {
		return fmt.Errorf("cannot resolve the exchange: %w", err)
	}
	params.ExchangeID = was[0].ExchangeID
	params.State = was[max(0, slices.IndexFunc(was, func(x side) bool { return x.Agent == params.Agent || x.Counterparty == params.Agent }))].State
	if !sign {
		if sign, err = s.SignatureRequired(ctx, c, "exchange.resolve"); err != nil {
			return err
		}
	}
	if sign {
		by, err := s.OpenKey(key)
		if err != nil {
			return err
		}
		if params.Signature, err = by.Sign(ctx, api.SignedNote(api.SignedSettlement(params.ExchangeID, params.Agent, params.State), params.Note)); err != nil {
			return err
		}
	}
	answer, cancel := context.WithTimeout(ctx, cli.AnswerTime)
	defer cancel()
	if err := c.Call(answer, "exchange.resolve", params, nil); err != nil {
		return fmt.Errorf("cannot resolve exchange %s: %w", params.ExchangeID, err)
	}
	is, err := ask(ctx, "exchange.get", api.ExchangeParams{ExchangeID: params.ExchangeID})
	if err != nil {
		return fmt.Errorf("exchange %s is resolved, but cannot be shown: %w", params.ExchangeID, err)
	}
	if asJSON {
		return s.printSides(is)
	}
	fmt.Fprintf(s.Stdout, "exchange %s\n", term.Printable(params.ExchangeID))
	return changes(was, is).Write(s.Stdout, s.Screen())
}

// changes shows the change of each side.
func changes(was, is []side) *term.Table {
	t := &term.Table{Columns: []term.Column{{Title: "AGENT", Whole: true}, {Title: "WITH", Whole: true, Below: true}, {Title: "WAS", Least: 11}, {Title: "IS", Least: 11}}}
	for i := range is {
		x := &is[i]
		before := ""
		if at := slices.IndexFunc(was, func(w side) bool { return w.Agent == x.Agent }); at >= 0 {
			before = was[at].Outcome
		}
		t.Add(term.Plain(x.Agent), term.AddressOf(x.Counterparty), term.Tinted(before, outcomeColour(before, true)), term.Tinted(x.Outcome, x.colour()))
	}
	return t
}
