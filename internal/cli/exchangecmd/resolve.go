package exchangecmd

import (
	"context"
	"fmt"
	"slices"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/api/members"
	"github.com/openclawos/ocipd/internal/base/term"
	"github.com/openclawos/ocipd/internal/cli"
	"github.com/openclawos/ocipd/internal/ocip"
	"github.com/spf13/cobra"
)

func newExchangesResolve(s *command) *cobra.Command {
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
func (s *command) resolveExchange(ctx context.Context, params api.ExchangeResolveParams, sign bool, key string, asJSON bool) error {
	c, err := s.DialOperator(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	ask := From(c)
	was, err := find(ctx, ask, params.ExchangeID)
	if err != nil {
		return fmt.Errorf("cannot resolve the exchange: %w", err)
	}
	params.ExchangeID = was[0].ExchangeID
	params.State = was[max(0, slices.IndexFunc(was, func(x Side) bool { return x.Agent == params.Agent || x.Counterparty == params.Agent }))].State
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
func changes(was, is []Side) *term.Table {
	t := &term.Table{Columns: []term.Column{{Title: "AGENT", Whole: true}, {Title: "WITH", Whole: true, Below: true}, {Title: "WAS", Least: 11}, {Title: "IS", Least: 11}}}
	for i := range is {
		x := &is[i]
		before := ""
		if at := slices.IndexFunc(was, func(w Side) bool { return w.Agent == x.Agent }); at >= 0 {
			before = was[at].Outcome
		}
		t.Add(term.Plain(x.Agent), term.AddressOf(x.Counterparty), term.Tinted(before, outcomeColour(before, true)), term.Tinted(x.Outcome, x.colour()))
	}
	return t
}
