package taskcmd

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/openclawos/ocipd/internal/base/term"
	"github.com/openclawos/ocipd/internal/cli"
	"github.com/openclawos/ocipd/internal/task"
	"github.com/openclawos/ocipd/internal/task/taskapi"
	"github.com/spf13/cobra"
)

func newGrant(t *command) *cobra.Command {
	var p taskapi.GrantParams
	var expires time.Duration
	var file string
	var c *cobra.Command
	c = &cobra.Command{
		Use: "grant [ACTOR]",
		Example: "  ocipd task grant builder --task tsk_01a1fe46-d68f-77d6-9611-d5a7674802c7 --out builder.token\n" +
			"  ocipd task grant lead --expires 24h\n" +
			"  ocipd task grant --agent alice --out alice.token",
		Short: "give an actor or an agent a token",
		Long: `Give an actor a token. With --task it is for that task alone: an
executor's for the running attempt, a reviewer's for the present review. Without --task
it is for all tasks of the actor. With --agent, the holder sends and reads messages as
an agent that has no app, as well as acting as the actor if one is named; only the
operator can use that flag. The token is shown once with the id of its grant, or written
to a file that nobody else can read. The first program that uses the token is bound to
it (--bind).`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 && p.Agent == "" {
				return cli.Usagef("cannot give a token to nobody: name an actor, or an agent with --agent")
			}
			if len(args) > 0 {
				p.Actor = args[0]
			}
			if c.Flags().Changed("expires") {
				s := int(expires / time.Second)
				if s < 1 {
					return cli.Usagef("cannot give a token for %s: the shortest time is a second", expires)
				}
				p.ExpiresS = &s
			}
			return give(cmd.Context(), t, &p, file)
		},
	}
	flags := c.Flags()
	flags.StringVar(&p.TaskID, "task", "", "the task's `ID`")
	flags.StringVar(&p.Agent, "agent", "", "the `ID` of an agent that it speaks and reads for")
	flags.StringVar(&p.AttemptID, "attempt", "", "the attempt's `ID` (default the running one)")
	flags.StringSliceVar(&p.Tools, "tools", nil, "the `TOOLS` that it may use (default those of its role)")
	flags.StringVar(&p.Bind, "bind", "", "who the token is good for once one has used it, `WORD`: "+strings.Join(task.Binds(), ", ")+" (default program: the same program of the same user)")
	flags.DurationVar(&expires, "expires", 0, "it ends after this `DURATION` (default 720h)")
	flags.StringVar(&file, "out", "", "write the token to this `FILE`")
	cli.KeyFlag(c, &t.key)
	return c
}

// give gives a token, and says the id of its grant, which revokes it.
func give(ctx context.Context, t *command, p *taskapi.GrantParams, file string) error {
	if err := takesToken(file); err != nil {
		return err
	}
	g, _, err := asked[taskapi.Granted](ctx, t, "task.grant", p)
	if err != nil {
		return err
	}
	token := g.Token
	if file != "" {
		if err := writeToken(file, token+"\n"); err != nil {
			return err
		}
		g.Token = ""
	}
	switch {
	case t.asJSON:
		return t.PrintJSON(&g)
	case file != "":
		_, err = fmt.Fprintf(t.Stdout, "the token of %s is in %s\n", g.GrantID, term.Printable(file))
	default:
		fmt.Fprintf(t.Stderr, "the token of %s:\n", g.GrantID)
		_, err = fmt.Fprintf(t.Stdout, "%s\n", term.Printable(token))
	}
	return err
}

func newRevokeGrant(t *command) *cobra.Command {
	var p taskapi.RevokeGrantParams
	c := &cobra.Command{
		Use: "revoke-grant GRANT",
		Example: "  ocipd task revoke-grant grt_01a1fe46-d68f-77d6-9611-d5a7674802c7\n" +
			"  ocipd task revoke-grant grt_01a1fe46-d68f-77d6-9611-d5a7674802c7 --task tsk_01a1fe46-d68f-77d6-9611-d5a7674802c7 --token-file lead.token",
		Short: "revoke a grant and its token",
		Long: `Revoke a grant and its token. "ocipd task grants" lists the grants. An operator needs
no --task.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			p.GrantID = args[0]
			if err := placed(cmd.Context(), t, &p); err != nil {
				return err
			}
			return t.do(cmd.Context(), "task.revoke_grant", &p, func(*taskapi.View) string { return args[0] + " is revoked" })
		},
	}
	c.Flags().StringVar(&p.TaskID, "task", "", "the `ID` of the grant's task")
	return c
}

// placed enters the task of a grant, which an operator may leave out.
func placed(ctx context.Context, t *command, p *taskapi.RevokeGrantParams) error {
	if token, err := t.token(); err != nil || token != "" || p.TaskID != "" {
		return err
	}
	list, err := grantsInForce(ctx, t, &taskapi.GrantsParams{})
	if err != nil {
		return err
	}
	for i := range list {
		if list[i].GrantID == p.GrantID {
			p.TaskID = list[i].TaskID
		}
	}
	return nil
}

func newGrants(t *command) *cobra.Command {
	var p taskapi.GrantsParams
	c := &cobra.Command{
		Use:     "grants",
		Example: "  ocipd task grants\n  ocipd task grants --actor builder --json",
		Short:   "list who may act now by a token: the grants in force",
		Long: `List the grants in force, oldest first: who may act by a token, at which task, whom
the token is bound to, until when, and when somebody last acted by it. Only an operator
sees them. "ocipd task revoke-grant" ends one.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if token, err := t.token(); err != nil {
				return err
			} else if token != "" {
				return cli.Usagef("cannot list grants by a token: who may act is the operator's to see")
			}
			list, err := grantsInForce(cmd.Context(), t, &p)
			if err != nil {
				return err
			}
			if t.asJSON {
				return t.PrintJSON(taskapi.Grants{Grants: list})
			}
			if len(list) == 0 {
				fmt.Fprintln(t.Stderr, "no grant is in force")
				return nil
			}
			return drawGrants(t.Stdout, list, t.Screen(), time.Now())
		},
	}
	c.Flags().StringVar(&p.TaskID, "task", "", "the grants that are good for the task with this `ID`, also those for any task")
	c.Flags().StringVar(&p.Actor, "actor", "", "the grants of this `ACTOR` or agent")
	return c
}

// grantsInForce returns the grants of all pages.
func grantsInForce(ctx context.Context, t *command, p *taskapi.GrantsParams) ([]taskapi.GrantLine, error) {
	all := []taskapi.GrantLine{}
	for {
		page, _, err := asked[taskapi.Grants](ctx, t, "task.grants", p)
		if err != nil {
			return nil, err
		}
		all = append(all, page.Grants...)
		if p.After = page.Next; p.After == "" {
			return all, nil
		}
	}
}

// drawGrants draws a row for each grant.
func drawGrants(w io.Writer, list []taskapi.GrantLine, scr term.Screen, now time.Time) error {
	table := &term.Table{Columns: []term.Column{
		{Title: "GRANT", Whole: true}, {Title: "ACTOR", Least: 10}, {Title: "ROLE", Least: 8}, {Title: "TASK", Whole: true, Below: true},
		{Title: "BOUND TO", Least: 20, Below: true, Fold: true}, {Title: "UNTIL", Whole: true, Below: true}, {Title: "LAST USED", Least: 9, Below: true},
	}}
	for i := range list {
		g := &list[i]
		who := g.Actor
		if g.Agent != "" {
			who = strings.TrimPrefix(g.Actor+" and agent "+g.Agent, " and ")
		}
		used := "never"
		if !g.LastUsedAt.IsZero() {
			used = term.Age(now.Sub(g.LastUsedAt)) + " ago"
		}
		table.Add(term.Plain(g.GrantID), term.Plain(who), term.Plain(cmp.Or(string(g.Role), "agent")), term.Plain(cmp.Or(g.TaskID, "any task")), term.Plain(boundTo(g)),
			term.Plain(g.ExpiresAt.Local().Format("2006-01-02 15:04")), term.Plain(used))
	}
	return table.Write(w, scr)
}

// boundTo describes whom a grant's token is bound to.
func boundTo(g *taskapi.GrantLine) string {
	bind := cmp.Or(g.Bind, task.BindProgram)
	switch {
	case bind == task.BindNone:
		return "nobody: any process"
	case g.Holder == nil:
		return "nobody yet: the first " + bind
	default:
		return g.Holder.String()
	}
}
