package configcmd

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/api/client"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/base/term"
	"github.com/openclawos/ocipd/internal/cli"
	"github.com/openclawos/ocipd/internal/cli/auditcmd"
	"github.com/openclawos/ocipd/internal/config"
	"github.com/openclawos/ocipd/internal/config/configfile"
	"github.com/openclawos/ocipd/internal/config/yamltext"
	"github.com/openclawos/ocipd/internal/daemon/kernelconfig"
	"github.com/spf13/cobra"
)

func newConfigMigrate(s *command) *cobra.Command {
	var yes, asJSON bool
	c := &cobra.Command{
		Use: "migrate",
		Example: "  ocipd config migrate\n" +
			"  ocipd config migrate --json",
		Short: "propose the grants that the configuration lacks, with evidence",
		Long: `Propose the entries of access.apps that the configuration lacks: which app may
own which channel, speak for which agents, and intercept or observe messages of
others. Each proposal comes with its evidence, from the running daemon and from
the last 20,000 records. You are asked about each; what you agree to is added to
the file, and nothing else in it changes. --json prints one proposal a line, and
writes only together with --yes.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return s.migrate(cmd.Context(), yes, asJSON)
		},
	}
	c.Flags().BoolVar(&yes, "yes", false, "write all that there is evidence for, and ask nothing")
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON, one proposal a line")
	return c
}

// tracedRecords is how many of the newest records are read.
const tracedRecords = 20_000

// trace finds out from the daemon and its log how apps have acted.
func (s *command) trace(ctx context.Context) (kernelconfig.Traces, error) {
	found := kernelconfig.Traces{}
	var live api.Status
	switch err := s.Operate(ctx, "kernel.status", nil, &live); {
	case errors.Is(err, client.ErrNotRunning):
	case err != nil:
		return nil, err
	}
	found.Running(&live)
	q, err := auditcmd.OpenSearch(ctx, s.Process, audit.Filter{}, "")
	if errors.Is(err, client.ErrNotRunning) {
		return found, nil // nothing was recorded yet
	}
	if err != nil {
		return nil, err
	}
	defer q.Close()
	lines, _, err := q.Most(ctx, 0, tracedRecords)
	if err != nil {
		return nil, fmt.Errorf("cannot read the log: %w", err)
	}
	for _, line := range lines {
		e, err := audit.Parse(line)
		if err != nil {
			return nil, fmt.Errorf("cannot read the log: %w", err)
		}
		found.Record(&e)
	}
	return found, nil
}

func (s *command) migrate(ctx context.Context, yes, asJSON bool) error {
	cfg, err := s.Load(nil)
	if err != nil {
		return err
	}
	if cfg.File == "" {
		return errors.New("there is no configuration that could lack anything: ocipd config init writes one")
	}
	known, err := s.trace(ctx)
	if err != nil {
		return err
	}
	list, err := known.Proposals(cfg)
	if err != nil {
		return err
	}
	in, names := bufio.NewReader(s.Stdin), map[string]string{}
	left := 0
	for i := range list {
		p := &list[i]
		wanted := yes && len(p.Evidence) > 0
		if !asJSON {
			s.printProposal(p)
			if !yes && s.Asks() {
				if wanted, err = s.agree(in, p, names); err != nil {
					return err
				}
			}
		}
		if wanted {
			if err := configfile.Declare(cfg, p); err != nil {
				return err
			}
			p.Written = true
		} else {
			left++
		}
		if asJSON {
			if err := s.PrintJSON(p); err != nil {
				return err
			}
		}
	}
	return s.migrated(cfg, len(list)-left, left, asJSON)
}

// migrated describes the configuration after the change.
func (s *command) migrated(cfg *config.Config, wrote, left int, asJSON bool) error {
	again, err := s.Load(nil)
	if err != nil {
		return err
	}
	lacks, err := kernelconfig.Undeclared(again, nil)
	if err != nil {
		return err
	}
	out := s.Stdout
	if asJSON {
		out = s.Stderr
	}
	switch {
	case wrote > 0:
		fmt.Fprintf(out, "wrote %s to %s\n", term.Count(wrote, "line"), term.Printable(cfg.File))
	case left == 0:
		fmt.Fprintln(out, "nothing is missing")
	}
	if len(lacks) == 0 {
		if wrote > 0 {
			fmt.Fprintln(out, "a daemon that runs takes it by itself; else start it")
		}
		return nil
	}
	are := " are"
	if len(lacks) == 1 {
		are = " is"
	}
	fmt.Fprintf(s.Stderr, "ocipd: %s still missing, without which no daemon starts: answer at a terminal, have --yes take what there is evidence for, or write what ocipd config check prints\n", term.Count(len(lacks), "line")+are)
	return cli.ErrSaid
}

func (s *command) printProposal(p *configfile.Proposal) {
	fmt.Fprintf(s.Stdout, "%s: %s\n", term.Printable(p.Key), term.Printable(yamltext.List(p.Values)))
	fmt.Fprintf(s.Stdout, "    why       %s\n", term.Printable(p.Reason))
	for _, shown := range p.Evidence {
		fmt.Fprintf(s.Stdout, "    evidence  %s\n", term.Printable(shown))
	}
	switch {
	case p.Unnamed:
		fmt.Fprintln(s.Stdout, "    evidence  none: put in the id of the app yourself")
	case len(p.Evidence) == 0:
		fmt.Fprintln(s.Stdout, "    evidence  none")
	}
}

// agree asks whether to write a line, and if its app is unknown, for the app. names holds
// earlier answers about placeholders, so that each is asked for once.
func (s *command) agree(in *bufio.Reader, p *configfile.Proposal, names map[string]string) (bool, error) {
	if !p.Unnamed {
		return s.Consents(in, "Write it? [y/N]")
	}
	app, asked := names[p.App]
	for !asked {
		given, err := s.Question(in, "Which app is it, by its id? (Enter: leave it out)", "")
		if err != nil {
			return false, err
		}
		if asked = given == "" || namesApp(given); !asked {
			fmt.Fprintf(s.Stderr, "cannot use the app %s: want its id, such as @acme/telegram\n", term.Printable(strconv.Quote(given)))
			continue
		}
		app, names[p.App] = given, given
	}
	if app == "" {
		return false, nil
	}
	p.Key = strings.Replace(p.Key, strconv.Quote(p.App), strconv.Quote(app), 1)
	p.App = app
	_, err := fmt.Fprintf(s.Stdout, "    written   %s\n", term.Printable(p.Key))
	return true, err
}

// namesApp reports whether an answer is the id of an app. A yes or a no would be a valid
// id, but is meant for another question.
func namesApp(answer string) bool {
	words := []string{"y", "yes", "n", "no"}
	return api.ValidAppID(answer) && !slices.Contains(words, strings.ToLower(answer))
}
