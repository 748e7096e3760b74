package kernelconfig

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/base/term"
	"github.com/openclawos/ocipd/internal/config"
	"github.com/openclawos/ocipd/internal/config/configfile"
)

// trace is the evidence of an app's use.
type trace struct {
	owns                  map[string]string // the evidence, by channel
	intercepts, observes  []string
	brought, delivered    map[string]int
	last                  map[string]string
	changed, blocked      int
	lastChange, lastBlock string
}

// Traces is the evidence of all apps, by id.
type Traces map[string]*trace

func (t Traces) of(app string) *trace {
	one := t[app]
	if one == nil {
		one = &trace{owns: map[string]string{}, brought: map[string]int{}, delivered: map[string]int{}, last: map[string]string{}}
		t[app] = one
	}
	return one
}

// Running adds a running daemon's status of its apps.
func (t Traces) Running(live *api.Status) {
	for i := range live.Apps {
		a := &live.Apps[i]
		one := t.of(a.ID)
		for _, has := range a.Capabilities {
			if channel, ok := strings.CutPrefix(has, "channel:"); ok {
				one.owns[channel] = "has it now, as the running daemon says"
			}
			if hook, ok := strings.CutPrefix(has, "hook:"); ok {
				one.intercepts = append(one.intercepts, hook)
			}
		}
		one.observes = a.Hooks
	}
}

// Record adds a record. Records come newest first.
func (t Traces) Record(e *audit.Entry) {
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

// owners returns the likely app of each channel. A delivery to an app that speaks for
// agents is no evidence, because the agents' app also gets the channel's incoming messages.
func (t Traces) owners(cfg *config.Config) map[string]string {
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

// evidence lists the evidence that an app had a channel.
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

// watching describes an app's use of other messages: as an interceptor, or else as an observer.
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

// Proposals returns all lines that a configuration lacks: those that are mandatory, and
// those without which an app could not do what it did before.
func (t Traces) Proposals(cfg *config.Config) ([]configfile.Proposal, error) {
	var list []configfile.Proposal
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
		list = append(list, configfile.Proposal{Key: "access.apps." + strconv.Quote(app) + "." + name, Values: []string{"*"}, Reason: reason, Evidence: evidence, App: app, Name: name})
		if name == "intercepts" {
			grant.Intercepts = []string{"*"}
		} else {
			grant.Observes = []string{"*"}
		}
		granted.Access.Apps[app] = grant
	}
	lacks, err := Undeclared(&granted, t.owners(cfg))
	if err != nil {
		return nil, err
	}
	for i := range lacks {
		l := &lacks[i]
		p := configfile.Proposal{Key: l.Key, Values: l.Values, Reason: l.Reason, Evidence: []string{}, App: l.App, Agent: l.Agent, Name: l.Name}
		if one := t[l.App]; one != nil && l.Name == "channels" {
			for _, channel := range l.Values {
				p.Evidence = append(p.Evidence, one.evidence(channel)...)
			}
		}
		_, granted := cfg.Access.Apps[l.App]
		p.Unnamed = l.App != "" && t[l.App] == nil && !granted
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
