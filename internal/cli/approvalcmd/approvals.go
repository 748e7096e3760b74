// Package approvalcmd has the commands about approval requests and pre-approvals.
package approvalcmd

import (
	"slices"
	"strings"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/cli"
	"github.com/openclawos/ocipd/internal/cli/approvalsui"
	"github.com/spf13/cobra"
)

// New returns the commands about approval requests.
func New(s *cli.Process) *cobra.Command {
	p := &approvalsui.People{Process: s}
	var key string
	c := cli.Group(&cobra.Command{
		Use: "approvals",
		Example: "  ocipd approvals\n" +
			"  ocipd approvals list --json",
		Short: "list approval requests and decide about them",
		Long: `List approval requests and decide about them. On a terminal, without a command, the
list is live and keys decide; otherwise it is printed.`,
	})
	another := c.RunE
	var asJSON bool
	c.RunE = func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) > 0:
			return another(cmd, args)
		case p.Interactive() && !asJSON:
			return p.Watch(cmd.Context(), key)
		}
		return p.List(cmd.Context(), approvalsui.ListOptions{JSON: asJSON})
	}
	cli.KeyFlag(c, &key)
	c.Flags().BoolVar(&asJSON, "json", false, "print the list as JSON, one message a line")
	c.AddCommand(
		newList(p), newShow(p), newDecision(p, api.DecideApprove), newDecision(p, api.DecideDeny),
		newDecision(p, api.DecideTakeover), newDecision(p, api.DecideResolve), newDecision(p, api.DecideChanges), newRevoke(p),
	)
	return c
}

func newList(p *approvalsui.People) *cobra.Command {
	var f approvalsui.ListOptions
	var inForce bool
	states := append(api.ApprovalStates(), "all")
	c := &cobra.Command{
		Use: "list",
		Example: "  ocipd approvals list\n" +
			"  ocipd approvals list --agent alice --flat\n" +
			"  ocipd approvals list --state all --order age --json",
		Short: "list pending approval requests by agent, likeliest first",
		Long: `List pending approval requests by agent: first those that a rule holds,
then messages held for their words, with the likelihood of a commitment (high, medium or
low) and its reasons, the likeliest and then the oldest first. --order age lists the
oldest first. Requests with the same agent, counterparty, reason, likelihood and first
line share a row; if the likelihood is low, the first lines may differ. If an agent has
very many requests, the list counts the rest, so that no other agent is hidden; --agent
and --flat show all. --json prints one request a line.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f.State != "" && !slices.Contains(states, f.State) {
				return cli.Usagef("cannot list by --state %q: want one of %s", f.State, strings.Join(states, ", "))
			}
			if f.Order != "" && !slices.Contains(approvalsui.Orders(), f.Order) {
				return cli.Usagef("cannot list in --order %q: want one of %s", f.Order, strings.Join(approvalsui.Orders(), ", "))
			}
			if inForce {
				return p.Grants(cmd.Context(), approvalsui.GrantOptions{Agent: f.Agent, Kind: api.GrantOfExchange, JSON: f.JSON})
			}
			return p.List(cmd.Context(), f)
		},
	}
	flags := c.Flags()
	flags.BoolVar(&inForce, "in-force", false, "list the exchanges that are approved, and within what, instead of requests")
	flags.StringVar(&f.State, "state", "", "requests in this `STATE`: "+strings.Join(states, ", ")+" (default pending)")
	flags.StringVar(&f.Agent, "agent", "", "messages of the agent with this `ID`")
	flags.StringVar(&f.Order, "order", "", "list in this `ORDER`: "+strings.Join(approvalsui.Orders(), ", ")+" (default likelihood of what waits, else age)")
	flags.BoolVar(&f.Flat, "flat", false, "give every message a row of its own, the agents in turn")
	flags.BoolVar(&f.JSON, "json", false, "print JSON, one message a line")
	c.MarkFlagsMutuallyExclusive("in-force", "state")
	c.MarkFlagsMutuallyExclusive("in-force", "flat")
	c.MarkFlagsMutuallyExclusive("in-force", "order")
	cli.Choices(c, "order", approvalsui.Orders())
	cli.Choices(c, "state", states)
	// The call fails only for a missing flag.
	_ = c.RegisterFlagCompletionFunc("agent", completeHeldAgent(p))
	return c
}

// completeApproval completes the id of a held message in a state. It offers the end of the
// id, as listed; if the person has begun to type an id, it offers the whole.
func completeApproval(p *approvalsui.People, state string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var offered []cobra.Completion
		for _, one := range p.Names(cmd.Context(), state, begun) {
			offered = append(offered, cobra.CompletionWithDesc(one.ID, one.About))
		}
		return offered, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
	}
}

// completeHeldAgent completes the agents with pending requests.
func completeHeldAgent(p *approvalsui.People) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		return p.Agents(cmd.Context()), cobra.ShellCompDirectiveNoFileComp
	}
}

func newShow(p *approvalsui.People) *cobra.Command {
	var asJSON bool
	var decision, content, note string
	var with approvalsui.Beyond
	c := &cobra.Command{
		Use: "show ID",
		Example: "  ocipd approvals show 64cda28c\n" +
			"  ocipd approvals show 64cda28c --json\n" +
			"  ocipd approvals show 64cda28c --to-sign approve",
		Short: "show everything about one request",
		Long: `Show everything about a request: sender, receiver, why it waits, what was found
in it, what would be sent or done, and the policy. A character that does not show
as itself is named, such as ‹U+202E›. The beginning or the end of an id is
enough.

--to-sign prints the text to be signed for a decision, for
ssh-keygen -Y sign -n ` + api.ApprovalNamespace + ` -f KEY. Pass the signature to approve, deny,
resolve or takeover with --signature.`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: completeApproval(p, "all"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if decision != "" && !slices.Contains(api.Decisions(), decision) {
				return cli.Usagef("cannot print what to sign for %q: want one of %s", decision, strings.Join(api.Decisions(), ", "))
			}
			if content != "" && decision != api.DecideTakeover {
				return cli.Usagef("cannot use --content without --to-sign %s", api.DecideTakeover)
			}
			if note != "" && decision == "" {
				return cli.Usagef("cannot use --note without --to-sign")
			}
			if err := with.Check(); err != nil {
				return err
			}
			if with.Exchange && decision != api.DecideApprove {
				return cli.Usagef("cannot use --exchange without --to-sign %s", api.DecideApprove)
			}
			return p.Show(cmd.Context(), args[0], decision, content, note, with, asJSON)
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	c.Flags().StringVar(&decision, "to-sign", "", "print the text to sign for this `DECISION` and nothing else: "+strings.Join(api.Decisions(), ", "))
	c.Flags().StringVar(&content, "content", "", "the `TEXT` that is to be said in place of the message, as takeover is given it; - reads it from stdin")
	c.Flags().StringVar(&note, "note", "", "the `TEXT` that is to be recorded with the decision: it is signed too")
	beyond(c, &with)
	c.MarkFlagsMutuallyExclusive("json", "to-sign")
	cli.Choices(c, "to-sign", api.Decisions())
	return c
}
