package approvalcmd

import (
	"strings"
	"time"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/cli"
	"github.com/openclawos/ocipd/internal/cli/approvalsui"
	"github.com/openclawos/ocipd/internal/ocip"
	"github.com/spf13/cobra"
)

// beyond makes the flags that also approve the exchange of a message.
func beyond(c *cobra.Command, b *approvalsui.Beyond) {
	flags := c.Flags()
	flags.BoolVar(&b.Exchange, "exchange", false, "approve its exchange too, within the bounds that are shown")
	flags.StringVar(&b.Words, "words", "", "with --exchange, for these `WORDS`, with commas, or all (default those that were found)")
	flags.IntVar(&b.Round, "round", 0, "with --exchange, to this `ROUND` at most (default the last one)")
	flags.Var((*days)(&b.For), "for", "with --exchange, for this `DURATION` at most, such as 2h (default to its end)")
}

// days is a duration that also accepts days.
type days time.Duration

func (d *days) String() string {
	if *d == 0 {
		return ""
	}
	return time.Duration(*d).String()
}

func (*days) Type() string { return "duration" }

func (d *days) Set(s string) error {
	scale := days(1)
	if n, ok := strings.CutSuffix(s, "d"); ok {
		s, scale = n+"h", 24
	}
	one, err := time.ParseDuration(s)
	*d = days(one) * scale
	return err
}

func newRevoke(p *approvalsui.People) *cobra.Command {
	return revokeCommand(p, &cobra.Command{
		Example: "  ocipd approvals revoke 64cda28c --note 'not what I meant'",
		Short:   "take back the approval of an exchange",
		Long: `Revoke the approval of an exchange that "ocipd approvals list --in-force" lists. It
covers no further message, including those being decided now; messages that were
sent stay on record.`,
	})
}

func revokeCommand(p *approvalsui.People, c *cobra.Command) *cobra.Command {
	var note string
	c.Use, c.Args = "revoke ID", cobra.ExactArgs(1)
	c.RunE = func(cmd *cobra.Command, args []string) error {
		return p.RevokeGrant(cmd.Context(), args[0], note)
	}
	c.Flags().StringVar(&note, "note", "", "`TEXT` for the record")
	return c
}

// NewPreapprovals returns the commands about pre-approvals, which the protocol calls grants.
func NewPreapprovals(s *cli.Process) *cobra.Command {
	p := &approvalsui.People{Process: s}
	c := cli.Group(&cobra.Command{
		Use: "preapprovals", Aliases: []string{"grants"},
		Example: "  ocipd preapprovals add --from alice --to agent-dave-1 --words schedule,meeting --uses 20 --for 7d\n" +
			"  ocipd preapprovals list",
		Short: "approve keywords between two agents beforehand",
		Long: `Approve keywords between two agents beforehand. Only a person makes pre-approvals, and
they count only while decisions are signed (approvals.allowed_signers). The protocol and
the records call them grants, and "ocipd grants" works as before.`,
	})
	c.AddCommand(newGrantAdd(p), newGrantList(p), revokeCommand(p, &cobra.Command{
		Example: "  ocipd preapprovals revoke 64cda28c",
		Short:   "take a pre-approval back",
		Long: `Revoke a pre-approval. It covers no further message, including those being decided now;
messages that were sent stay on record.`,
	}))
	return c
}

func newGrantAdd(p *approvalsui.People) *cobra.Command {
	var g approvalsui.NewGrant
	c := &cobra.Command{
		Use: "add",
		Example: "  ocipd preapprovals add --from alice --to agent-dave-1 --words schedule,meeting --uses 20 --for 7d\n" +
			"  ocipd preapprovals add --from alice --to telegram:4711 --words deadline --level internal --uses 5 --for 12h",
		Short: "sign a pre-approval and put it in force",
		Long: `Sign a pre-approval and put it in force. Messages from one agent to one receiver
that would be held only for the named keywords are then sent without a question,
as assisted by you, up to a number of uses and a time. It never covers other
words or cues, a higher level, acceptances, money, an answer to a request, or an
exchange that asks for a commitment or a person. Each use is recorded with its
id.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := g.Check(p.Interactive()); err != nil {
				return err
			}
			return p.AddGrant(cmd.Context(), &g)
		},
	}
	flags := c.Flags()
	flags.StringVar(&g.From, "from", "", "the sending `AGENT`, by its id or instance id")
	flags.StringVar(&g.To, "to", "", "the `RECEIVER`: an agent's id or instance id, or a session key")
	flags.StringSliceVar(&g.Words, "words", nil, "the `KEYWORDS`: some of "+strings.Join(ocip.Keywords(), ", "))
	flags.StringVar(&g.Level, "level", ocip.Public.String(), "the highest `LEVEL` of a message")
	flags.IntVar(&g.Uses, "uses", 0, "the `NUMBER` of messages that may go with it")
	flags.Var((*days)(&g.For), "for", "for how long it is good: a `DURATION` such as 12h or 7d")
	flags.StringVar(&g.Note, "note", "", "`TEXT` for the record")
	cli.KeyFlag(c, &g.Key)
	flags.BoolVar(&g.Yes, "yes", false, "do not ask")
	flags.BoolVar(&g.JSON, "json", false, "print JSON")
	return c
}

func newGrantList(p *approvalsui.People) *cobra.Command {
	var f approvalsui.GrantOptions
	c := &cobra.Command{
		Use: "list",
		Example: "  ocipd preapprovals list\n" +
			"  ocipd preapprovals list --all --agent alice --json",
		Short: "list the pre-approvals in force",
		Long: `List the pre-approvals in force; --all includes those that have ended. Approvals
of exchanges are listed by "ocipd approvals list --in-force".`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			f.Kind = api.GrantStanding
			return p.Grants(cmd.Context(), f)
		},
	}
	flags := c.Flags()
	flags.StringVar(&f.Agent, "agent", "", "those of the agent with this `ID`")
	flags.BoolVar(&f.All, "all", false, "also those that are over")
	flags.BoolVar(&f.JSON, "json", false, "print JSON, one a line")
	return c
}
