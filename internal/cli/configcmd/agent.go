package configcmd

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/api/client"
	"github.com/openclawos/ocipd/internal/base/fileowner"
	"github.com/openclawos/ocipd/internal/base/term"
	"github.com/openclawos/ocipd/internal/bridge/integrate"
	"github.com/openclawos/ocipd/internal/cli"
	"github.com/openclawos/ocipd/internal/config"
	"github.com/openclawos/ocipd/internal/config/configfile"
	"github.com/spf13/cobra"
)

func newAddAgent(s *command) *cobra.Command {
	var a config.Agent
	var yes bool
	c := &cobra.Command{
		Use:   "add-agent ID",
		Short: "add an agent to the configuration",
		Long: `Add an agent to the configuration, in one line, and leave the rest of the file as
it is. ID is its name in session keys, such as builder. At a terminal, what no flag
answers is asked; Enter takes the proposed answer, which is that of the first agent.

An agent with --app speaks through that program, such as a bot of yours. Without an
app it speaks by a token, as agents of Claude Code and Codex do: ocipd integrate
makes one. A daemon that runs takes the agent at once.`,
		Example: "  ocipd config add-agent builder\n" +
			"  ocipd config add-agent helper --app @acme/helper --yes",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			a.ID = args[0]
			cfg, err := s.Load(nil)
			if err != nil {
				return err
			}
			in := bufio.NewReader(s.Stdin)
			if err := s.askAgent(in, cfg, &a, cmd.Flags().Changed("app"), !yes && s.Asks()); err != nil {
				return err
			}
			return AddAgent(cmd.Context(), s.Process, cfg, &a)
		},
	}
	flags := c.Flags()
	flags.StringVar(&a.App, "app", "", "app `ID` of the program that runs the agent (default: none, it speaks by a token)")
	flags.StringVar(&a.UserID, "user", "", "`NAME` of whose agent it is (default: as the first agent)")
	flags.StringVar(&a.TenantID, "tenant", "", "`NAME` of the user's company or household (default: as the first agent)")
	flags.BoolVar(&yes, "yes", false, "ask nothing, and take what is proposed")
	return c
}

// askAgent asks for what is not known yet of an agent.
func (s *command) askAgent(in *bufio.Reader, cfg *config.Config, a *config.Agent, hasApp, asks bool) (err error) {
	if agentID(a.ID) != a.ID {
		return fmt.Errorf("cannot use the id %q: want small letters, digits, hyphens, underscores and dots, such as builder", a.ID)
	}
	var first config.Agent
	if len(cfg.Agents) > 0 {
		first = cfg.Agents[0]
	}
	a.InstanceID, a.OrgUnit = "agent-"+a.ID+"-1", cmp.Or(first.OrgUnit, "general")
	for _, q := range []struct {
		into           *string
		given          bool
		text, proposed string
	}{
		{&a.App, hasApp, "Which app speaks for it, by its id? (Enter: none, as for Claude Code and Codex)", ""},
		{&a.UserID, a.UserID != "", "Whose agent is it? A name", cmp.Or(first.UserID, s.Getenv("USER"), "me")},
		{&a.TenantID, a.TenantID != "", "Of which company or household? No message passes to agents of another one", cmp.Or(first.TenantID, first.UserID, s.Getenv("USER"), "me")},
	} {
		switch {
		case q.given:
		case !asks:
			*q.into = q.proposed
		default:
			if *q.into, err = s.Question(in, q.text, q.proposed); err != nil {
				return err
			}
		}
	}
	return cmp.Or(checkApp(a.App), CheckName("user", a.UserID), CheckName("tenant", a.TenantID))
}

// Like returns an agent without an app that has an id, and the rest like the first agent.
func Like(p *cli.Process, cfg *config.Config, id string) (*config.Agent, error) {
	a := &config.Agent{ID: id}
	return a, (&command{p}).askAgent(nil, cfg, a, true, false)
}

// AddAgent adds an agent to the configuration, has the running daemon take it, and prints the next
// command.
func AddAgent(ctx context.Context, s *cli.Process, cfg *config.Config, a *config.Agent) error {
	if cfg.File == "" {
		return errors.New("there is no configuration yet: ocipd config init writes one, with its first agent")
	}
	if slices.ContainsFunc(cfg.Agents, func(known config.Agent) bool { return known.ID == a.ID }) {
		return fmt.Errorf("cannot add agent %s: it is in %s already", a.ID, cfg.File)
	}
	if err := configfile.AddAgent(cfg, a); err != nil {
		return err
	}
	fmt.Fprintf(s.Stdout, "wrote agent %s of %s to %s\n", term.Printable(a.ID), term.Printable(a.UserID), term.Printable(cfg.File))
	var live api.Status
	err := s.Operate(ctx, "kernel.status", nil, &live)
	if err == nil && fileowner.Same(live.ConfigFile, cfg.File) {
		if err = s.Operate(ctx, "policy.reload", nil, nil); err == nil {
			fmt.Fprintln(s.Stdout, "the running daemon has taken it")
		}
	}
	if err != nil && !errors.Is(err, client.ErrNotRunning) {
		return err
	}
	next := "ocipd integrate RUNTIME --agent " + cli.Argument(a.ID) + "; ocipd integrate lists the runtimes of this machine"
	if a.App != "" {
		next = "have the app register as " + term.Printable(a.App) + ", and name context.agentId or metadata.agentId if it speaks for several agents"
	}
	_, said := fmt.Fprintln(s.Stdout, "next: "+next)
	return said
}

// gatedRuntimes are the names of runtimes whose agents speak by a token.
func gatedRuntimes() (names []string) {
	for _, r := range integrate.Runtimes() {
		if r.Name != "openclaw" {
			names = append(names, r.Name)
		}
	}
	return names
}
