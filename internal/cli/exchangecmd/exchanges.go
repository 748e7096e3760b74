// Package exchangecmd has the commands about exchanges.
package exchangecmd

import (
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
	"github.com/openclawos/ocipd/internal/base/term"
	"github.com/openclawos/ocipd/internal/cli"
	"github.com/openclawos/ocipd/internal/ocip"
	"github.com/spf13/cobra"
)

// New returns the commands about exchanges.
func New(p *cli.Process) *cobra.Command {
	s := &command{p}
	c := cli.GroupAround(&cobra.Command{Use: "exchanges", Short: "list exchanges between agents, and close escalated ones"}, newExchangesList(s))
	c.AddCommand(newExchangesShow(s), newExchangesResolve(s))
	return c
}

// Side is one side of an exchange, with its original JSON.
type Side struct {
	api.Exchange
	raw jsontext.Value
}

func (x *Side) is(outcome ocip.Outcome) bool { return x.Outcome == string(outcome) }

// Asker asks the daemon a method whose answer has sides.
type Asker func(ctx context.Context, method string, params any) ([]Side, error)

// From asks a daemon through a client.
func From(c *client.Client) Asker {
	return func(ctx context.Context, method string, params any) ([]Side, error) {
		ctx, cancel := context.WithTimeout(ctx, cli.AnswerTime)
		defer cancel()
		var answer struct {
			Exchanges []jsontext.Value `json:"exchanges"`
		}
		if err := c.Call(ctx, method, params, &answer); err != nil {
			return nil, err
		}
		sides := make([]Side, len(answer.Exchanges))
		for i, raw := range answer.Exchanges {
			sides[i].raw = raw
			if err := json.Unmarshal(raw, &sides[i].Exchange); err != nil {
				return nil, fmt.Errorf("cannot read an exchange of the daemon: %w", err)
			}
		}
		return sides, nil
	}
}

func (s *command) printSides(sides []Side) error {
	scr := s.Screen()
	for i := range sides {
		if _, err := s.Stdout.Write(scr.JSONLine(sides[i].raw)); err != nil {
			return err
		}
	}
	return nil
}

func newExchangesList(s *command) *cobra.Command {
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
	flags.IntVarP(&limit, "limit", "n", api.DefaultPage, "print at most `N` sides")
	flags.BoolVar(&all, "all", false, "print every side")
	flags.BoolVar(&asJSON, "json", false, "print JSON, one side a line")
	cli.Choices(c, "outcome", outcomes())
	return c
}

// outcomes lists the outcomes of the protocol.
func outcomes() []string {
	return []string{string(ocip.InProgress), string(ocip.Resolved), string(ocip.Escalated), string(ocip.Denied), string(ocip.Expired)}
}

func (s *command) listExchanges(ctx context.Context, params api.ExchangeListParams, limit int, asJSON bool) error {
	c, err := s.DialOperator(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	sides, more, err := Pages(ctx, From(c), params, limit)
	if err != nil {
		return fmt.Errorf("cannot list exchanges: %w", err)
	}
	if asJSON {
		return s.printSides(sides)
	}
	scr := s.Screen()
	if err := Table(sides, time.Now()).Write(s.Stdout, scr); err != nil {
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

// Pages asks for pages until there are limit sides; zero means all. more reports that there
// are others.
func Pages(ctx context.Context, ask Asker, params api.ExchangeListParams, limit int) (sides []Side, more bool, err error) {
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
			whole := slices.IndexFunc(page, func(x Side) bool { return x.ExchangeID == last })
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
func find(ctx context.Context, ask Asker, name string) ([]Side, error) {
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
func nextBelow(ctx context.Context, ask Asker, before, prefix string) (string, error) {
	one := 1
	next, err := ask(ctx, "exchange.list", api.ExchangeListParams{Before: before, Limit: &one})
	if err != nil || len(next) == 0 || !strings.HasPrefix(next[0].ExchangeID, prefix) {
		return "", err
	}
	return next[0].ExchangeID, nil
}

// Table shows many sides at once.
func Table(sides []Side, now time.Time) *term.Table {
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

func (x *Side) colour() term.Colour { return outcomeColour(x.Outcome, x.Pending) }

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
func hintEscalated(w io.Writer, sides []Side) {
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
func (s *command) completeExchange(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return Complete(cmd.Context(), s.Process)
}

// Complete lists the ids of exchanges for completion.
func Complete(ctx context.Context, p *cli.Process) ([]cobra.Completion, cobra.ShellCompDirective) {
	c, err := p.DialOperator(ctx)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	defer c.Close()
	sides, _, err := Pages(ctx, From(c), api.ExchangeListParams{}, api.DefaultPage)
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
