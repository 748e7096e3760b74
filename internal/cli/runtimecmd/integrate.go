package runtimecmd

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/openclawos/ocipd/internal/base/durable"
	"github.com/openclawos/ocipd/internal/base/term"
	"github.com/openclawos/ocipd/internal/bridge/integrate"
	"github.com/openclawos/ocipd/internal/cli"
	"github.com/openclawos/ocipd/internal/cli/configcmd"
	"github.com/openclawos/ocipd/internal/config"
	"github.com/openclawos/ocipd/internal/config/mask"
	"github.com/openclawos/ocipd/internal/task/taskapi"
	"github.com/spf13/cobra"
)

// integrating is one call of the command that puts a runtime behind the daemon.
type integrating struct {
	*command
	agent, token, key                                 string
	remove, dryRun, asJSON, serversOnly, managed, all bool
	who                                               owner
	tasks                                             []string
}

// NewIntegrate returns the commands that put runtimes behind the daemon.
func NewIntegrate(p *cli.Process) *cobra.Command {
	in := &integrating{command: &command{p}}
	c := &cobra.Command{
		Use:   "integrate [NAME]",
		Short: "put an agent runtime behind the daemon",
		Long: `Put an agent runtime behind the daemon, and test its gate with a canary: a message that reaches nobody, and that the daemon has to refuse.
An agent of OpenClaw sends the canary. For the others, ocipd starts the gate that their files name, and asks it.

OpenClaw gets a plugin, which is part of this program, and its agents are added to the daemon's configuration.

With --tasks, agents of OpenClaw get the tools of actors of tasks instead: each actor's MCP server is entered, and the tool policy of each
agent denies it the servers of all others. The plugin is not touched.

For other runtimes, ocipd puts every MCP server that the runtime starts behind ocipd mcp-proxy, and also servers over HTTP that need no
login. The daemon then decides about the messages that the agent sends through them. The agent is one that has no app. The runtime also
asks the daemon before each call of its other tools, unless tools is off for the agent or --servers-only is given: Claude Code and Codex by
hooks, opencode by a plugin, which is part of this program. ocipd makes a token for the agent, unless --token-file names one.

ocipd changes only the necessary lines in the runtime's own files. --remove undoes this, byte for byte if nobody has changed the file since.

Without a name, list the runtimes of this machine with what is gated, what is open, and why, and the command that gates the rest. --all does
so for each of them but OpenClaw, whose agents' owner has to be named.`,
		Example: "  ocipd integrate\n" +
			"  ocipd integrate --all --dry-run\n" +
			"  ocipd integrate openclaw --user ann --tenant acme-corp\n" +
			"  ocipd integrate openclaw --tasks lead=main,builder=coder,checker=reader,critic=tester\n" +
			"  ocipd integrate claude-code --agent alice --dry-run\n" +
			"  ocipd integrate codex --agent bob\n" +
			"  ocipd integrate opencode\n" +
			"  ocipd integrate codex --remove",
		Args: cobra.MaximumNArgs(1),
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) (names []string, _ cobra.ShellCompDirective) {
			for _, r := range integrate.Runtimes() {
				names = append(names, r.Name+"\t"+r.Title)
			}
			if len(args) > 0 {
				names = nil
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: in.run,
	}
	flags := c.Flags()
	flags.StringVar(&in.agent, "agent", "", "gate the runtime's messages as the agent with this `ID` (default: the only one)")
	flags.StringVar(&in.token, "token-file", "", "`FILE` of the agent's token (default: make one)")
	cli.KeyFlag(c, &in.key)
	flags.StringVar(&in.who.user, "user", "", "`NAME` of the owner of OpenClaw's agents (default: ask)")
	flags.StringVar(&in.who.tenant, "tenant", "", "`NAME` of the owner's company or household (default: ask)")
	flags.StringSliceVar(&in.tasks, "tasks", nil, "give agents of OpenClaw the tools of actors of tasks: `ACTOR=AGENT,…`")
	flags.BoolVar(&in.remove, "remove", false, "take the servers out from behind the proxy")
	flags.BoolVar(&in.all, "all", false, "do it for each runtime of this machine")
	flags.BoolVar(&in.dryRun, "dry-run", false, "show what would be changed, and change nothing")
	flags.BoolVar(&in.serversOnly, "servers-only", false, "do not gate calls of the runtime's own tools")
	flags.BoolVar(&in.managed, "managed", false, "put the hooks into the machine's settings, for all of its users")
	flags.BoolVar(&in.asJSON, "json", false, "print JSON lines, one server each")
	return c
}

func (in *integrating) run(cmd *cobra.Command, args []string) error {
	p, err := Place(in.Process)
	if err != nil {
		return err
	}
	if in.all {
		if len(args) > 0 || in.tasks != nil || in.who != (owner{}) || in.managed {
			return cli.Usagef("--all is about each runtime: leave its name, and what is for one alone, out")
		}
		return in.everyRuntime(cmd, p)
	}
	if len(args) == 0 {
		if in.agent != "" || in.remove || in.dryRun || in.tasks != nil {
			return cli.Usagef("name the runtime: %s", strings.Join(runtimeNames(), ", "))
		}
		return in.listIntegrations(cmd.Context(), p, in.asJSON)
	}
	r := integrate.Find(args[0])
	if r == nil {
		return cli.Usagef("there is no runtime %q: %s", args[0], strings.Join(runtimeNames(), ", "))
	}
	if in.remove && in.agent != "" {
		return cli.Usagef("--remove takes all servers out, whoever's they are: leave --agent out")
	}
	if r.Name == "openclaw" {
		return in.openClaw(cmd.Context(), p)
	}
	if in.who != (owner{}) || in.tasks != nil {
		return cli.Usagef("--user, --tenant and --tasks are about agents of OpenClaw")
	}
	return in.one(cmd, r, p)
}

// everyRuntime integrates, or takes out, each runtime that is there. One that fails does not keep the
// others from it.
func (in *integrating) everyRuntime(cmd *cobra.Command, p *integrate.Place) error {
	failed := false
	for _, r := range integrate.Runtimes() {
		there := *p
		switch {
		case in.remove && !r.Integrated(&there) || !in.remove && r.Installed(&there) == "":
			continue
		case r.Name == "openclaw":
			fmt.Fprintf(in.Stdout, "%s: left out: %s\n", r.Title, closing(r))
			continue
		}
		fmt.Fprintf(in.Stdout, "== %s\n", r.Title)
		if err := in.one(cmd, r, &there); err != nil {
			fmt.Fprintf(in.Stderr, "ocipd: %s: %s\n", r.Title, term.Printable(err.Error()))
			failed = true
		}
	}
	if failed {
		return cli.ErrSaid
	}
	return nil
}

// closing is the command that gates a runtime.
func closing(r *integrate.Runtime) string {
	if r.Name == "openclaw" {
		return "ocipd integrate openclaw --user NAME --tenant NAME"
	}
	return "ocipd integrate " + r.Name
}

// one integrates one runtime, or takes it out.
func (in *integrating) one(cmd *cobra.Command, r *integrate.Runtime, p *integrate.Place) (err error) {
	if p.Token, err = filepath.Abs(in.token); err != nil {
		return err
	}
	if in.token == "" {
		p.Token = ""
	}
	if in.managed && !r.Machine() {
		return cli.Usagef("%s reads no settings of the machine that hold its gate: leave --managed out", r.Title)
	}
	p.Tools, p.Managed = !in.serversOnly, in.managed
	if !in.remove {
		p.Hashes = integrate.CodexHashes(cmd.Context())
		p.Reach = reaches(cmd)
	}
	return in.integrate(cmd.Context(), r, p, in.agent, in.key, in.remove, in.dryRun)
}

// openClaw integrates OpenClaw: its messages, or the tools of tasks.
func (in *integrating) openClaw(ctx context.Context, p *integrate.Place) error {
	switch {
	case in.agent != "" || in.token != "":
		return cli.Usagef("OpenClaw has agents of its own: leave --agent and --token-file out")
	case in.tasks == nil:
		return in.integrateOpenClaw(ctx, p, in.who, in.key, in.remove, in.dryRun)
	case in.remove:
		return cli.Usagef("--remove takes out all that was entered: leave --tasks out")
	case in.who != (owner{}):
		return cli.Usagef("--tasks names actors of the configuration: leave --user and --tenant out")
	}
	return in.integrateTasks(ctx, p, in.tasks, in.key, in.dryRun)
}

func runtimeNames() (names []string) {
	for _, r := range integrate.Runtimes() {
		names = append(names, r.Name)
	}
	return names
}

// Notes is the folder, beside the database, of notes about changes to the
// runtimes' files.
const Notes = "integrations"

// Place gives the places of the runtimes' files, and the command line of this program.
func Place(s *cli.Process) (*integrate.Place, error) {
	home := s.Getenv("HOME")
	if !filepath.IsAbs(home) {
		return nil, fmt.Errorf("cannot tell where the runtimes' files are: HOME is %q", home)
	}
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("cannot tell where this program is: %w", err)
	}
	cfg, err := s.Places("store.url")
	if err != nil {
		return nil, err
	}
	folder, err := os.Getwd()
	if err != nil {
		folder = "" // it is gone
	}
	p := &integrate.Place{Folder: folder, Home: home, Getenv: s.Getenv, Self: self, Etc: "/etc", Notes: filepath.Join(filepath.Dir(config.DatabasePath(cfg, s.Getenv)), Notes)}
	for _, o := range []struct{ name, path string }{{"--config", s.ConfigFile}, {"--socket", s.Socket}} {
		if o.path == "" {
			continue
		}
		whole, err := filepath.Abs(o.path)
		if err != nil {
			return nil, err
		}
		p.Options = append(p.Options, o.name, whole)
	}
	if s.Socket == "" {
		if p.Socket, err = s.KernelSocket(); err == nil {
			p.Socket, err = filepath.Abs(p.Socket)
		}
	}
	return p, err
}

func (s *command) integrate(ctx context.Context, r *integrate.Runtime, p *integrate.Place, agent, key string, remove, dryRun bool) error {
	var plan *integrate.Plan
	var err error
	if remove {
		plan, err = r.Remove(p)
	} else {
		if agent, err = s.integratedAgent(ctx, r, agent); err != nil {
			return err
		}
		made := p.Token == ""
		if made {
			p.Token = filepath.Join(p.Notes, agent+".token")
		}
		if err := s.mayAsk(ctx, r, p, agent); err != nil {
			return err
		}
		if plan, err = r.Behind(p, agent); err == nil && made && !dryRun && !plan.Empty() {
			err = s.makeToken(ctx, agent, key, p.Token)
		}
	}
	if err != nil {
		return err
	}
	showPlan(s.Stdout, plan)
	empty := plan.Empty()
	if empty {
		fmt.Fprintf(s.Stdout, "%s: nothing to change\n", r.Title)
	}
	switch {
	case dryRun && empty:
		return s.sayOpen(ctx, r, p, remove)
	case dryRun:
		fmt.Fprintln(s.Stdout, "nothing was changed")
		return nil
	}
	if err := plan.Apply(); err != nil {
		return err
	}
	if empty {
		return s.tryUnless(ctx, remove, r, p)
	}
	verb := "behind the proxy"
	if remove {
		verb = "as before"
	}
	if p.Tools && !remove && len(plan.Edits) > 0 {
		verb += ", calls of its other tools asked about"
	}
	fmt.Fprintf(s.Stdout, "%s: %s %s; sessions that run keep what they have started: start them again\n", r.Title, term.Count(len(plan.Changes), "server"), verb)
	return s.tryUnless(ctx, remove, r, p)
}

// showPlan shows the changes of a plan, without the values of secrets.
func showPlan(w io.Writer, plan *integrate.Plan) {
	for _, c := range plan.Changes {
		fmt.Fprintf(w, "%s: %s\n  - %s\n  + %s\n", term.Printable(c.File), term.Printable(serverName(&c.Server)), shownLine(c.Was), shownLine(c.Now))
	}
	for i := range plan.Edits {
		e, sign := &plan.Edits[i], "+"
		if e.Out {
			sign = "-"
		}
		fmt.Fprintf(w, "%s: %s\n", term.Printable(e.File), e.What)
		for _, line := range e.Lines() {
			fmt.Fprintf(w, "  %s %s\n", sign, term.Printable(mask.Text(line, mask.Data)))
		}
	}
}

// mayAsk decides whether a runtime asks about tool calls. It returns an error if the
// runtime's hooks would fail open.
func (s *command) mayAsk(ctx context.Context, r *integrate.Runtime, p *integrate.Place, agent string) error {
	cfg, err := s.Load(nil)
	if err != nil || !p.Tools {
		return err
	}
	for i := range cfg.Agents {
		if cfg.Agents[i].ID == agent && cfg.Agents[i].Tools == config.ToolsOff {
			p.Tools = false
			return nil
		}
	}
	program := r.Installed(p)
	if program == "" {
		return fmt.Errorf("cannot tell whether the hooks of %s fail closed: %s is not on your PATH; --servers-only puts its MCP servers behind the proxy, and leaves its other tools open", r.Title, r.Program)
	}
	version := integrate.Version(ctx, program)
	if err := r.Closes(version); err != nil {
		return fmt.Errorf("%w; --servers-only puts its MCP servers behind the proxy, and leaves its other tools open", err)
	}
	return nil
}

// tokenLasts is the lifetime of a token made here.
const tokenLasts = 365 * 24 * time.Hour

// makeToken has the daemon issue a token for an agent, unless the file exists.
func (s *command) makeToken(ctx context.Context, agent, key, file string) error {
	if _, err := os.Stat(file); err == nil {
		return nil
	}
	_, err := s.newToken(ctx, "agent "+agent, &taskapi.GrantParams{Agent: agent}, key, file)
	return err
}

// newToken has the daemon issue a token into a file, and returns its grant.
func (s *command) newToken(ctx context.Context, whose string, p *taskapi.GrantParams, key, file string) (grant string, err error) {
	seconds := int(tokenLasts / time.Second)
	p.ExpiresS = &seconds
	var granted taskapi.Granted
	if err := s.OperateSigned(ctx, key, "task.grant", p, &granted); err != nil {
		return "", fmt.Errorf("cannot make a token for %s: %w", whose, err)
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return "", err
	}
	if err := durable.Replace(file, ".part", 0o600, []byte(granted.Token+"\n")); err != nil {
		return "", fmt.Errorf("cannot write the token of %s: %w", whose, err)
	}
	fmt.Fprintf(s.Stdout, "a token of %s is in %s for a year (grant %s)\n", whose, term.Printable(file), granted.GrantID)
	return granted.GrantID, nil
}

// sayOpen lists a runtime's remaining ways past the daemon.
func (s *command) sayOpen(ctx context.Context, r *integrate.Runtime, p *integrate.Place, removed bool) error {
	if removed {
		return nil
	}
	servers, err := r.Servers(p)
	if err != nil {
		return err
	}
	for i := range servers {
		if server := &servers[i]; !server.Gated() {
			fmt.Fprintf(s.Stdout, "open: %s: %s\n", term.Printable(serverName(server)), term.Printable(server.Why(p)))
		}
	}
	rest, err := r.Elsewhere(p)
	if err != nil {
		return err
	}
	for i := range rest {
		if server := &rest[i]; !server.Gated() {
			fmt.Fprintf(s.Stdout, "open: %s: %s\n", term.Printable(serverName(server)), term.Printable(notChanged(server)))
		}
	}
	asks, why, projects, err := r.Tools(p)
	if err == nil && !asks && why != "" {
		fmt.Fprintf(s.Stdout, "open: its own tools: %s\n", term.Printable(why))
	}
	for i := range projects {
		fmt.Fprintf(s.Stdout, "open: its own tools in %s: %s\n", term.Printable(projects[i].Scope), term.Printable(projects[i].String()))
	}
	if err != nil {
		return err
	}
	version := ""
	if program := r.Installed(p); program != "" {
		version = integrate.Version(ctx, program)
	}
	stays, err := r.StaysOpen(p, version)
	for _, what := range stays {
		fmt.Fprintf(s.Stdout, "open: %s\n", what)
	}
	return err
}

// notChanged says why a server in a file of others is not gated.
func notChanged(s *integrate.Server) string {
	return "not behind the proxy in " + s.File + ", which ocipd does not change"
}

func serverName(s *integrate.Server) string {
	if s.Scope == "" {
		return s.Name
	}
	return s.Name + " in " + s.Scope
}

func shownLine(words []string) string {
	return integrate.Line(words[0], words[1:], func(word string) string {
		return term.Printable(mask.Text(word, mask.Data))
	})
}

// integratedAgent is the agent for which a runtime's servers are gated: one that speaks by a token. If
// there is none, it offers to add one.
func (s *command) integratedAgent(ctx context.Context, r *integrate.Runtime, named string) (string, error) {
	cfg, err := s.Load(nil)
	if err != nil {
		return "", err
	}
	var ids, all []string
	for i := range cfg.Agents {
		a := &cfg.Agents[i]
		all = append(all, a.ID)
		if a.App == "" {
			ids = append(ids, a.ID)
		}
	}
	switch {
	case slices.Contains(ids, named):
		return named, nil
	case named == "" && len(ids) == 1:
		return ids[0], nil
	case named == "" && len(ids) > 1:
		return "", cli.Usagef("whose agent does it run? name one with --agent: %s", strings.Join(ids, ", "))
	case cfg.File == "":
		return "", errors.New("no agent is configured: whose messages these are has to be known; see ocipd config init")
	case slices.Contains(all, named):
		return s.agentFor(ctx, r, cfg, r.Name, fmt.Errorf("agent %s speaks through its app, and an agent of %s by a token", named, r.Title))
	case named == "":
		return s.agentFor(ctx, r, cfg, r.Name, fmt.Errorf("no agent is configured that speaks by a token, as those of %s do", r.Title))
	}
	return s.agentFor(ctx, r, cfg, named, fmt.Errorf("there is no agent %q; configured are %s", named, strings.Join(all, ", ")))
}

// agentFor offers to add an agent for a runtime, because of a fault. If nobody can answer, it returns
// the fault with the command that adds one.
func (s *command) agentFor(ctx context.Context, r *integrate.Runtime, cfg *config.Config, id string, fault error) (string, error) {
	if !s.Asks() {
		return "", fmt.Errorf("%w; ocipd config add-agent %s adds one", fault, cli.Argument(id))
	}
	fmt.Fprintln(s.Stderr, term.Printable(fault.Error()))
	answer, err := s.Question(bufio.NewReader(s.Stdin), "Add an agent for "+r.Title+"? Its id, or no", id)
	if err != nil || strings.EqualFold(answer, "no") || strings.EqualFold(answer, "n") {
		return "", cmp.Or(err, fault)
	}
	a, err := configcmd.Like(s.Process, cfg, answer)
	if err == nil {
		err = configcmd.AddAgent(ctx, s.Process, cfg, a)
	}
	return answer, err
}
