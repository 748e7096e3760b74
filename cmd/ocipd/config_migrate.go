package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/auditcmd"
	"github.com/openclawos/ocipd/internal/cli"
	"github.com/openclawos/ocipd/internal/client"
	"github.com/openclawos/ocipd/internal/config"
	"github.com/openclawos/ocipd/internal/kernelconfig"
	"github.com/openclawos/ocipd/internal/keypath"
	"github.com/openclawos/ocipd/internal/term"
	"github.com/openclawos/ocipd/internal/yamltext"
	"github.com/spf13/cobra"
)

func newConfigMigrate(s *shell) *cobra.Command {
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

// proposal is one line for the configuration, and why it is proposed.
type proposal struct {
	Key      string   `json:"key"`
	Values   []string `json:"values"`
	Reason   string   `json:"reason"`
	Evidence []string `json:"evidence"`
	// Written is set once it is in the file.
	Written bool `json:"written"`

	app, agent, name string
	// unnamed is set where nothing shows which app it is: app is a placeholder then.
	unnamed bool
}

// trace is what is known of how an app was used.
type trace struct {
	owns                  map[string]string // what shows it, by channel
	intercepts, observes  []string
	brought, delivered    map[string]int
	last                  map[string]string
	changed, blocked      int
	lastChange, lastBlock string
}

// traces are what is known of all apps, by id.
type traces map[string]*trace

func (t traces) of(app string) *trace {
	one := t[app]
	if one == nil {
		one = &trace{owns: map[string]string{}, brought: map[string]int{}, delivered: map[string]int{}, last: map[string]string{}}
		t[app] = one
	}
	return one
}

// tracedRecords is how far back the log is read.
const tracedRecords = 20_000

// trace asks the daemon, and reads the log, for what apps did.
func (s *shell) trace(ctx context.Context) (traces, error) {
	found := traces{}
	var live api.Status
	switch err := s.Operate(ctx, "kernel.status", nil, &live); {
	case errors.Is(err, client.ErrNotRunning):
	case err != nil:
		return nil, err
	}
	for i := range live.Apps {
		a := &live.Apps[i]
		t := found.of(a.ID)
		for _, has := range a.Capabilities {
			if channel, ok := strings.CutPrefix(has, "channel:"); ok {
				t.owns[channel] = "has it now, as the running daemon says"
			}
			if hook, ok := strings.CutPrefix(has, "hook:"); ok {
				t.intercepts = append(t.intercepts, hook)
			}
		}
		t.observes = a.Hooks
	}
	q, err := auditcmd.OpenSearch(ctx, &s.Process, audit.Filter{}, "")
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
		found.note(&e)
	}
	return found, nil
}

// note takes up what a record shows. Records come newest first.
func (t traces) note(e *audit.Entry) {
	channel, _, _ := strings.Cut(e.SessionKey, ":")
	when := fmt.Sprintf("%s (record %d)", e.Time.Local().Format(time.DateTime), e.Seq)
	if e.AppID != "" && channel != "" && channel != "agent" {
		one := t.of(e.AppID)
		switch {
		case e.ActionType == audit.ActionExchange && e.Side == audit.SideReceiver:
			one.brought[channel]++
			one.last[channel] = cmp.Or(one.last[channel], when)
		case e.ActionType == audit.ActionDelivery && e.Event == "delivered":
			one.delivered[channel]++
			one.last[channel] = cmp.Or(one.last[channel], when)
		}
	}
	if by, ok := strings.CutPrefix(e.PolicyApplied, "interceptor:"); ok && by != "" {
		one := t.of(by)
		one.blocked++
		one.lastBlock = cmp.Or(one.lastBlock, when)
	}
	list, _ := e.Details["changedBy"].([]any)
	for _, by := range list {
		if app, ok := by.(string); ok && api.ValidAppID(app) {
			one := t.of(app)
			one.changed++
			one.lastChange = cmp.Or(one.lastChange, when)
		}
	}
}

// owners says which app had which channel, as far as anything shows it. An app that
// speaks for agents is handed what comes in through a channel, too, so that what was
// delivered to it shows nothing.
func (t traces) owners(cfg *config.Config) map[string]string {
	best, owners := map[string]int{}, map[string]string{}
	for _, app := range slices.Sorted(maps.Keys(t)) {
		one := t[app]
		speaks := slices.ContainsFunc(cfg.Agents, func(a config.Agent) bool { return a.App == app })
		weigh := func(channel string, weight int) {
			if weight > best[channel] {
				best[channel], owners[channel] = weight, app
			}
		}
		for channel, n := range one.brought {
			weigh(channel, 1_000_000+n)
		}
		for channel, n := range one.delivered {
			if !speaks {
				weigh(channel, n)
			}
		}
		for channel := range one.owns {
			weigh(channel, 1<<40)
		}
	}
	return owners
}

// evidence is what shows that an app had a channel.
func (t *trace) evidence(channel string) (all []string) {
	if has := t.owns[channel]; has != "" {
		all = append(all, channel+": "+has)
	}
	if n := t.brought[channel]; n > 0 {
		all = append(all, fmt.Sprintf("%s: it brought %s in, last %s", channel, term.Count(n, "message"), t.last[channel]))
	}
	if n := t.delivered[channel]; n > 0 {
		all = append(all, fmt.Sprintf("%s: it was handed %s, last %s", channel, term.Count(n, "message"), t.last[channel]))
	}
	return all
}

// watching is what an app did with messages of others: as an interceptor, or else as
// one that subscribed to what is said.
func (t *trace) watching() (name, reason string, all []string) {
	if len(t.intercepts) > 0 {
		all = append(all, "it has hooks now, as the running daemon says: "+strings.Join(t.intercepts, ", "))
	}
	if t.changed > 0 {
		all = append(all, fmt.Sprintf("it changed %s, last %s", term.Count(t.changed, "message"), t.lastChange))
	}
	if t.blocked > 0 {
		all = append(all, fmt.Sprintf("it stopped %s, last %s", term.Count(t.blocked, "message"), t.lastBlock))
	}
	if len(all) > 0 {
		return "intercepts", "it looks at messages of agents that it does not speak for, and does so by a grant alone", all
	}
	said := slices.DeleteFunc(slices.Clone(t.observes), func(hook string) bool { return !strings.Contains(hook, "message") })
	if len(said) > 0 && len(t.owns) == 0 {
		return "observes", "it watches messages of agents that it does not speak for, and does so by a grant alone",
			[]string{"it hears now, as the running daemon says: " + strings.Join(said, ", ")}
	}
	return "", "", nil
}

// proposals are all lines that a configuration lacks: those without which it is
// refused, and those without which an app does no more what it did.
func (t traces) proposals(cfg *config.Config) ([]proposal, error) {
	var list []proposal
	granted := *cfg
	granted.Access.Apps = maps.Clone(cfg.Access.Apps)
	if granted.Access.Apps == nil {
		granted.Access.Apps = map[string]config.AppAccess{}
	}
	for _, app := range slices.Sorted(maps.Keys(t)) {
		speaks := slices.ContainsFunc(cfg.Agents, func(a config.Agent) bool { return a.App == app })
		grant := granted.Access.Apps[app]
		name, reason, evidence := t[app].watching()
		if name == "" || speaks || len(grant.Intercepts) > 0 || name == "observes" && len(grant.Observes) > 0 || cfg.Hooks.Apps[app].Required {
			continue
		}
		list = append(list, proposal{Key: "access.apps." + strconv.Quote(app) + "." + name, Values: []string{"*"}, Reason: reason, Evidence: evidence, app: app, name: name})
		if name == "intercepts" {
			grant.Intercepts = []string{"*"}
		} else {
			grant.Observes = []string{"*"}
		}
		granted.Access.Apps[app] = grant
	}
	lacks, err := kernelconfig.Undeclared(&granted, t.owners(cfg))
	if err != nil {
		return nil, err
	}
	for i := range lacks {
		l := &lacks[i]
		p := proposal{Key: l.Key, Values: l.Values, Reason: l.Reason, Evidence: []string{}, app: l.App, agent: l.Agent, name: l.Name}
		if one := t[l.App]; one != nil && l.Name == "channels" {
			for _, channel := range l.Values {
				p.Evidence = append(p.Evidence, one.evidence(channel)...)
			}
		}
		_, granted := cfg.Access.Apps[l.App]
		p.unnamed = l.App != "" && t[l.App] == nil && !granted
		switch {
		case l.Agent != "":
			p.Evidence = append(p.Evidence, "the daemon runs as user "+l.Values[0])
		case l.Name == "tenants" && t[l.App] != nil:
			p.Evidence = append(p.Evidence, "routes lead what comes in through its channels to agents of "+strings.Join(l.Values, ", "))
		}
		list = append(list, p)
	}
	return list, nil
}

func (s *shell) migrate(ctx context.Context, yes, asJSON bool) error {
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
	list, err := known.proposals(cfg)
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
			if err := s.declare(cfg, p); err != nil {
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

// migrated says how the configuration is afterwards.
func (s *shell) migrated(cfg *config.Config, wrote, left int, asJSON bool) error {
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

func (s *shell) printProposal(p *proposal) {
	fmt.Fprintf(s.Stdout, "%s: %s\n", term.Printable(p.Key), term.Printable(inYAML(p.Values)))
	fmt.Fprintf(s.Stdout, "    why       %s\n", term.Printable(p.Reason))
	for _, shown := range p.Evidence {
		fmt.Fprintf(s.Stdout, "    evidence  %s\n", term.Printable(shown))
	}
	switch {
	case p.unnamed:
		fmt.Fprintln(s.Stdout, "    evidence  none: put in the id of the app yourself")
	case len(p.Evidence) == 0:
		fmt.Fprintln(s.Stdout, "    evidence  none")
	}
}

// agree asks whether a line is to be written, and for the app where nothing shows
// which. Names holds what was said of placeholders already: each is asked for once.
func (s *shell) agree(in *bufio.Reader, p *proposal, names map[string]string) (bool, error) {
	if !p.unnamed {
		return s.Consents(in, "Write it? [y/N]")
	}
	app, asked := names[p.app]
	for !asked {
		given, err := s.Question(in, "Which app is it, by its id? (Enter: leave it out)", "")
		if err != nil {
			return false, err
		}
		if asked = given == "" || namesApp(given); !asked {
			fmt.Fprintf(s.Stderr, "cannot use the app %s: want its id, such as @acme/telegram\n", term.Printable(strconv.Quote(given)))
			continue
		}
		app, names[p.app] = given, given
	}
	if app == "" {
		return false, nil
	}
	p.Key = strings.Replace(p.Key, strconv.Quote(p.app), strconv.Quote(app), 1)
	p.app = app
	_, err := fmt.Fprintf(s.Stdout, "    written   %s\n", term.Printable(p.Key))
	return true, err
}

// namesApp reports whether an answer is the id of an app. A yes or a no could be one,
// and is meant as an answer to another question.
func namesApp(answer string) bool {
	words := []string{"y", "yes", "n", "no"}
	return api.ValidAppID(answer) && !slices.Contains(words, strings.ToLower(answer))
}

// declare puts a line into the configuration.
func (s *shell) declare(cfg *config.Config, p *proposal) error {
	return s.editConfig(cfg, func(text []byte) ([]byte, error) {
		now, err := config.Parse(cfg.File, text)
		if err != nil {
			return nil, err
		}
		if p.agent != "" {
			i := slices.IndexFunc(now.Agents, func(a config.Agent) bool { return a.ID == p.agent })
			return yamltext.Edit(text, keypath.Path{}.Key("agents").Index(i).Key(p.name), p.Values[0])
		}
		at := keypath.Path{}.Key("access").Key("apps").Key(p.app).Key(p.name)
		have := granted(now.Access.Apps[p.app], p.name)
		if len(have) == 0 {
			return yamltext.Edit(text, at, inYAML(p.Values))
		}
		for _, value := range slices.Backward(p.Values) {
			if slices.Contains(have, value) {
				continue
			}
			if text, err = yamltext.Edit(text, at, quoted(value)); err != nil {
				return nil, err
			}
		}
		return text, nil
	})
}

// granted is one list of a grant, by its key.
func granted(grant config.AppAccess, name string) []string {
	switch name {
	case "channels":
		return grant.Channels
	case "tenants":
		return grant.Tenants
	case "intercepts":
		return grant.Intercepts
	}
	return grant.Observes
}

// inYAML is a list on one line.
func inYAML(values []string) string {
	out := make([]string, len(values))
	for i, v := range values {
		out[i] = quoted(v)
	}
	return "[" + strings.Join(out, ", ") + "]"
}
