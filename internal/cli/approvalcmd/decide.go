package approvalcmd

import (
	"context"
	"fmt"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/base/term"
	"github.com/openclawos/ocipd/internal/cli"
	"github.com/openclawos/ocipd/internal/cli/approvalsui"
	"github.com/spf13/cobra"
)

// decideEach makes the same decision about each request, in order, and stops at the first failure.
func decideEach(ctx context.Context, p *approvalsui.People, ids []string, decision string, f approvalsui.DecideOptions) error {
	for _, id := range ids {
		if err := p.Decide(ctx, id, decision, f); err != nil {
			return err
		}
	}
	return nil
}

// denyAll ends every pending request of an agent, after one question to the person.
func denyAll(ctx context.Context, p *approvalsui.People, agent, decision string, f approvalsui.DecideOptions) error {
	ids, err := p.Pending(ctx, agent)
	switch {
	case err != nil:
		return err
	case len(ids) == 0:
		return fmt.Errorf("no request of agent %s is pending", agent)
	case !f.Yes && !f.JSON && p.Interactive():
		agreed, err := p.Ask(ctx, fmt.Sprintf("%s %s of agent %s?", approvalsui.CommandOf(decision), term.Count(len(ids), "request"), term.Printable(agent)))
		if err != nil || !agreed {
			return err
		}
	}
	f.Yes = true
	return decideEach(ctx, p, ids, decision, f)
}

func newDecision(p *approvalsui.People, decision string) *cobra.Command {
	var f approvalsui.DecideOptions
	var agent string
	command := approvalsui.CommandOf(decision)
	c := &cobra.Command{
		Use:               command + " ID",
		Example:           "  ocipd approvals " + command + " 64cda28c",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: completeApproval(p, api.ApprovalPending),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := f.Check(decision, p.Interactive()); err != nil {
				return err
			}
			if agent == "" {
				return decideEach(cmd.Context(), p, args, decision, f)
			}
			return denyAll(cmd.Context(), p, agent, decision, f)
		},
	}
	c.Short, c.Long = helpOf(decision)
	flags := c.Flags()
	if !approvalsui.Sends(decision) {
		// A person reads messages that are sent one by one.
		c.Use = command + " ID..."
		c.Example += " e05ca40c\n  ocipd approvals " + command + " --all-of alice --note 'a flood'"
		flags.StringVar(&agent, "all-of", "", "every pending request of the agent with this `ID`")
		c.Args = func(_ *cobra.Command, args []string) error {
			switch {
			case agent == "" && len(args) == 0:
				return cli.Usagef("no request is named; want an ID, or --all-of")
			case agent != "" && len(args) > 0:
				return cli.Usagef("cannot use --all-of with an ID")
			case f.Signature != "" && len(args) != 1:
				return cli.Usagef("cannot use --signature for several requests: each needs its own")
			}
			return nil
		}
	}
	flags.StringVar(&f.Note, "note", "", fmt.Sprintf("record this `TEXT` with it, up to %d bytes; the app is told too", api.MaxNote))
	flags.BoolVar(&f.Yes, "yes", false, "do not ask")
	flags.BoolVar(&f.JSON, "json", false, "print the outcome as JSON")
	flags.BoolVar(&f.Sign, "sign", false, "sign with the key of ssh-agent, also where the daemon does not ask for it")
	cli.KeyFlag(c, &f.Key)
	flags.StringVar(&f.Signature, "signature", "", "take the signature in this `FILE`, which ssh-keygen -Y sign made of: ocipd approvals show ID --to-sign "+decision)
	c.MarkFlagsMutuallyExclusive("signature", "key")
	c.MarkFlagsMutuallyExclusive("signature", "sign")
	switch decision {
	case api.DecideApprove:
		beyond(c, &f.Beyond)
	case api.DecideTakeover:
		flags.StringVar(&f.Content, "content", "", "say this `TEXT` in place of the message, - reads it from stdin")
	}
	if approvalsui.Sends(decision) {
		flags.StringVar(&f.Digest, "digest", "", "decide only about what has this `DIGEST`, as show prints it")
	}
	return c
}

// helpOf returns the help of the command for a decision.
func helpOf(decision string) (short, long string) {
	const shown = "The request is shown first and you are asked; the decision is bound to what you saw. Without a\n" +
		"terminal, --yes --digest DIGEST names what you saw. If anything has changed since, nothing is\n" +
		"decided, and the difference is shown.\n\n"
	const signed = "If the daemon demands a signature, ssh-agent makes it, or the key that --key names."
	switch decision {
	case api.DecideApprove:
		return "approve a request exactly as shown", "Approve a request exactly as shown. A message is sent as assisted by a person; what a task asks\n" +
			"for may be done once.\n\n" +
			"--exchange also approves the rest of its exchange, within the bounds shown: the words found\n" +
			"in this message, up to its level, for the rounds and the time that the exchange has left, or\n" +
			"less with --round and --for. Messages within the bounds are sent without a question; all\n" +
			"others ask again, and so do acceptances, money, and answers that only a person may give.\n" +
			"\"ocipd approvals list --in-force\" lists these approvals.\n\n" + shown + signed
	case api.DecideTakeover:
		return "send a held message, or another text, as your own", "Send a held message as your own words, or other words in its place, to the same session. The\n" +
			"exchange ends as escalated. Use it if a message cannot be approved.\n\n" + shown + signed
	case api.DecideDeny:
		return "deny a request", "Deny a request. If it is about a message, the daemon tells the app that asked, and the exchange ends\n" +
			"as denied. This also takes back an approval that was not used yet: of a message that a runtime sends\n" +
			"itself, or of a tool call that the agent has not repeated.\n\n" + signed
	case api.DecideChanges:
		return "deny what a task would do, and ask for changes", "Deny an effect that a task asks for, as it is. The task may ask for another one: --note says\n" +
			"what to change.\n\n" + signed
	default: // api.DecideResolve
		return "deny a held message and settle its exchange", "Deny a held message and settle its exchange: if its rounds were used up, the two\n" +
			"agents may begin anew.\n\n" + signed
	}
}
