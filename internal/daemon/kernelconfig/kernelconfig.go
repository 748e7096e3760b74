// Package kernelconfig types a configuration for the kernel: texts in [config.Config]
// become [kernel.Config]. It also finds the lines about apps that a configuration lacks.
package kernelconfig

import (
	"cmp"
	"fmt"
	"os"
	"slices"

	"github.com/openclawos/ocipd/internal/approval"
	"github.com/openclawos/ocipd/internal/base/text"
	"github.com/openclawos/ocipd/internal/config"
	"github.com/openclawos/ocipd/internal/kernel"
	"github.com/openclawos/ocipd/internal/kernel/registry"
	"github.com/openclawos/ocipd/internal/ocip"
	"github.com/openclawos/ocipd/internal/ocip/commitment"
	"github.com/openclawos/ocipd/internal/ocip/content"
	"github.com/openclawos/ocipd/internal/ocip/directory"
	"github.com/openclawos/ocipd/internal/ocip/directory/entries"
)

// New types the texts of a configuration that was checked when it was loaded. The error is
// [config.Errors] for labels that the rules find something in, and else a fault of the program.
func New(c *config.Config) (kernel.Config, error) {
	k := kernel.Config{
		Config: registry.Config{
			HookWait: c.Hooks.Wait, HookAnswer: c.Hooks.Answer, HookApps: make(map[string]registry.HookTimes),
			UnhealthyAfter: c.Health.UnhealthyAfter, DrainTimeout: c.DrainTimeout, AppsMayOperate: c.IPC.AppsMayOperate,
		},
		ActiveWindow: c.Sessions.ActiveWindow,
		MaxRounds:    c.OCIP.MaxRounds, ExpiresAfter: c.OCIP.ExpiresAfter, MaxAnnotation: int(c.OCIP.MaxAnnotationBytes),
		Disclosure: ocip.Disclosure(c.OCIP.Disclosure), ChainWindow: c.OCIP.Chain.Window,
		MaxHeld: c.Approvals.MaxOpen, HoldFor: c.Approvals.ExpiresAfter, Approvers: c.Approvals.Required,
		Clicks: c.Console.Decide == config.DecideSession, KeepHeld: c.Approvals.KeepContent, Judge: judge(&c.OCIP.Judge), Unannotated: c.OCIP.Inbound.Unannotated,
	}
	for app, t := range c.Hooks.Apps {
		k.HookApps[app] = registry.HookTimes{Wait: t.Wait, Answer: t.Answer, Required: t.Required}
	}
	var err error
	if k.DefaultLevel, err = ocip.ParseLevel(c.OCIP.DefaultClassification); err != nil {
		return k, fmt.Errorf("cannot use ocip.default_classification: %w", err)
	}
	if k.DefaultType, err = ocip.ParseExchangeType(c.OCIP.DefaultExchangeType); err != nil {
		return k, fmt.Errorf("cannot use ocip.default_exchange_type: %w", err)
	}
	if k.Rules, err = rules(&c.OCIP); err != nil {
		return k, err
	}
	if heard := labels(c, k.Rules); len(heard) > 0 {
		return k, heard
	}
	k.Directory, err = directoryOf(c)
	return k, err
}

// judge returns the operator's model, nil if none is asked.
func judge(c *config.Judge) *approval.Judge {
	if c.URL == "" {
		return nil
	}
	return &approval.Judge{Model: c.Model, Releases: c.May == config.JudgeReleases}
}

// directoryOf types the directory and the rights of apps.
func directoryOf(c *config.Config) (directory.Config, error) {
	d, err := rightsOf(c)
	if err != nil {
		return d, err
	}
	for i := range c.Directory {
		contact := entries.Entry(c.Directory[i])
		most, err := accepts(contact.Accepts)
		if err != nil {
			return d, fmt.Errorf("cannot use directory entry %s: %w", contact.InstanceID, err)
		}
		d.Entries = append(d.Entries, directory.EntryOf(&contact, most))
	}
	d.Listed.List = c.Listed
	for _, set := range c.Listed.Sets() {
		most, err := accepts(set)
		if err != nil {
			return d, fmt.Errorf("cannot use an entry of the directory file: %w", err)
		}
		d.Listed.Levels = append(d.Listed.Levels, most)
	}
	remote, err := fleetAgents(c)
	d.Entries = append(d.Entries, remote...)
	return d, err
}

// fleetAgents are the entries of the agents on other hosts of the fleet. There are none if the
// roster does not have this host: it has left the fleet, or not joined yet.
func fleetAgents(c *config.Config) (agents []directory.Entry, err error) {
	r := c.Fleet.Members()
	if r == nil || r.Host(c.Fleet.Host) == nil {
		return nil, nil
	}
	for i := range r.Agents {
		a := &r.Agents[i]
		if a.Host == c.Fleet.Host {
			continue
		}
		who := ocip.Counterparty{Kind: ocip.KindAgent, Identity: ocip.Identity{InstanceID: a.InstanceID, UserID: a.UserID, OrgUnit: a.OrgUnit, TenantID: r.Tenant}}
		if who.Accepts, err = accepts(a.Accepts); err != nil {
			return nil, fmt.Errorf("cannot use agent %s of the roster: %w", a.ID, err)
		}
		agents = append(agents, directory.OfFleet(a.Host, a.ID, who))
	}
	return agents, nil
}

// accepts returns the highest of some levels.
func accepts(names []string) (most ocip.Level, err error) {
	for _, name := range names {
		l, err := ocip.ParseLevel(name)
		if err != nil {
			return most, err
		}
		most = max(most, l)
	}
	return most, nil
}

// rightsOf types the agents and the rights of apps, without the entries of the directory, of which there
// can be very many.
func rightsOf(c *config.Config) (directory.Config, error) {
	d := directory.Config{DefaultAgent: c.DefaultAgent}
	for _, r := range c.Routes {
		d.Routes = append(d.Routes, directory.Route{Session: r.Session, Agent: r.Agent})
	}
	for i := range c.Agents {
		a, err := agent(&c.Agents[i])
		if err != nil {
			return d, fmt.Errorf("cannot use agent %s: %w", c.Agents[i].ID, err)
		}
		d.Agents = append(d.Agents, a)
	}
	declare(&d, c)
	return d, nil
}

// declare types the rights of apps and the address members of their channels.
func declare(d *directory.Config, c *config.Config) {
	d.Grants = make(map[string]directory.Grant, len(c.Access.Apps))
	for app, grant := range c.Access.Apps {
		d.Grants[app] = directory.Grant(grant)
	}
	d.Channels = make(map[string]directory.Profile, len(c.Access.Channels))
	for id, channel := range c.Access.Channels {
		p := directory.Profile{Address: channel.Address, Case: text.Case(channel.Case)}
		for _, rendering := range channel.Rendering {
			p.Rendering = append(p.Rendering, text.Rendering(rendering))
		}
		d.Channels[id] = p
	}
	for app, t := range c.Hooks.Apps {
		d.Apps = append(d.Apps, app)
		if t.Required {
			d.Required = append(d.Required, app)
		}
	}
	slices.Sort(d.Required)
	d.UIDs = []uint32{uint32(os.Geteuid())}
	for _, uid := range c.IPC.AllowUIDs {
		d.UIDs = append(d.UIDs, uint32(uid))
	}
}

func rules(c *config.OCIP) (*ocip.Rules, error) {
	patterns := make([]content.Pattern, len(c.Content.Patterns))
	for i, p := range c.Content.Patterns {
		patterns[i] = content.Pattern{Name: p.Name, Regexp: p.Regexp, Level: p.Level}
	}
	families := make(map[string]commitment.Mode, len(c.Commitment.Families))
	for name, mode := range c.Commitment.Families {
		families[name] = commitment.Mode(mode)
	}
	found, err := content.New(content.Options{Patterns: patterns, Personal: c.Content.Personal})
	if err != nil {
		return nil, fmt.Errorf("cannot use ocip.content: %w", err)
	}
	promises, err := commitment.New(commitment.Options{Match: commitment.Match(c.Commitment.Match), Families: families})
	if err != nil {
		return nil, fmt.Errorf("cannot use ocip.commitment: %w", err)
	}
	return &ocip.Rules{
		Content: found, Commitments: promises, Monitor: c.Commitment.Enforcement == "monitor", Chain: chainLimits(&c.Chain),
		Unknown: people(&c.Unknown), Person: people(&c.Person), LookAlike: ocip.LookAlike(c.LookAlike),
		Keywords: commitment.Mode(c.Commitment.Keywords), RecordSameOwner: c.SameOwner == "record",
	}, nil
}

// labels returns a fault for each agent with a label that the rules find something in: receivers,
// and this daemon before a message leaves its queue, weigh the label with the text.
func labels(c *config.Config, rules *ocip.Rules) (faults config.Errors) {
	for i := range c.Agents {
		label, found := c.Agents[i].DisclosureText, ""
		for _, hit := range rules.Commitments.Detect(label) {
			if !hit.Shadow {
				found = cmp.Or(hit.Keyword, hit.Rule)
			}
		}
		for _, hit := range rules.Content.Detect(label) {
			if !hit.Shadow {
				found = hit.Rule
			}
		}
		if found != "" {
			faults = append(faults, c.Fault(fmt.Sprintf("agents[%d].disclosure_text", i), fmt.Errorf(
				"the rules find %s in %q, the label of each of its messages; give the agent a text without it", found, label)))
		}
	}
	return faults
}

func people(c *config.People) ocip.PeopleRules {
	return ocip.PeopleRules{
		Commitments: c.Commitments == "hold", Keywords: commitment.Mode(c.Keywords), Policy: c.Policy, FirstContact: ocip.FirstContact(c.FirstContact),
		MaxMessages: c.MaxMessages, Window: c.Window,
	}
}

func chainLimits(c *config.Chain) ocip.ChainLimits {
	if c.Enforcement == "off" {
		return ocip.ChainLimits{}
	}
	return ocip.ChainLimits{MaxHops: c.MaxHops, MaxRevisits: c.MaxRevisits, MaxAge: c.MaxAge, Monitor: c.Enforcement == "monitor"}
}

func agent(a *config.Agent) (directory.Agent, error) {
	k := directory.Agent{
		App: cmp.Or(a.App, directory.AppOf(a.ID)), Exe: a.Exe, Media: a.Media, OwnTurns: a.OwnTurns, Tools: directory.ToolMode(a.Tools),
		Disclosure: a.DisclosureText,
		Agent: ocip.Agent{
			ID:        a.ID,
			Identity:  ocip.Identity{InstanceID: a.InstanceID, UserID: a.UserID, OrgUnit: a.OrgUnit, TenantID: a.TenantID},
			MaxRounds: a.MaxRounds, CanReceiveQueries: a.CanReceiveQueries, CanAutoRespond: a.CanAutoRespond, MaxPerHour: a.MaxPerHour, Keywords: commitment.Mode(a.Keywords),
		},
	}
	if a.UID != nil {
		uid := uint32(*a.UID)
		k.UID = &uid
	}
	var err error
	if k.MaxShared, err = ocip.ParseLevel(a.MaxClassificationShared); err != nil {
		return k, err
	}
	unknown, err := ocip.ParseLevel(a.MaxClassificationUnknown)
	if err != nil {
		return k, err
	}
	k.MaxUnknown = &unknown
	if k.Floor, err = ocip.ParseLevel(a.MinClassification); err != nil {
		return k, err
	}
	for _, name := range a.SupportedExchangeTypes {
		t, err := ocip.ParseExchangeType(name)
		if err != nil {
			return k, err
		}
		k.Types = append(k.Types, t)
	}
	return k, nil
}
