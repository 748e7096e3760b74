package doctor

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/google/uuid"
	"github.com/openclawos/ocipd/internal/base/term"
	"github.com/openclawos/ocipd/internal/bridge/integrate"
)

// gates checks the agent runtimes behind the daemon. It sends a canary through the gate of
// each, which the daemon has to refuse and record.
func (d *Examiner) gates() (found []Diagnosis) {
	if d.live != nil {
		for i := range d.live.Ungated {
			u := &d.live.Ungated[i]
			if u.Why != "" {
				found = append(found, failed("%s runs (process %d), and for %s its gate has not held: %s", u.Title, u.PID, term.Age(d.now().Sub(u.Since)), u.Why).
					advise("ocipd integrate %s; then start its sessions again", u.App))
				continue
			}
			found = append(found, failed("%s runs (process %d) and its plugin has not been connected for %s: nobody decides about what its agents send", u.Title, u.PID, term.Age(d.now().Sub(u.Since))).
				advise("ocipd integrate openclaw; where that was done: openclaw plugins reload ocip, or start the Gateway again"))
		}
	}
	tried := 0
	for _, r := range integrate.Runtimes() {
		if d.Gates == nil || !r.Integrated(d.Gates) {
			continue
		}
		tried++
		g := &gateTest{Runtime: r, ctx: d.ctx, at: d.Gates, operator: d.places.operator}
		found = append(found, g.test(d.live != nil))
		found = append(found, g.staysOpen()...)
	}
	found = append(found, taskTools(d)...)
	if tried == 0 && len(found) == 0 {
		if d.Gates == nil {
			return []Diagnosis{passed("not tried")}
		}
		return []Diagnosis{passed("no agent runtime was put behind the daemon: ocipd integrate lists those that are here")}
	}
	return found
}

// taskTools checks that each agent of OpenClaw has the tools of its own actor of tasks alone.
func taskTools(d *Examiner) []Diagnosis {
	if d.Gates == nil {
		return nil
	}
	switch entered, members, err := integrate.TaskStrays(d.ctx, d.Gates); {
	case err != nil:
		return []Diagnosis{failed("OpenClaw: the tools of tasks: %v", err)}
	case !entered:
		return nil
	case len(members) > 0:
		return []Diagnosis{failed("OpenClaw: an agent may have another's tools of tasks, since settings are not as they were entered: %s", strings.Join(members, ", ")).
			advise("ocipd integrate openclaw --tasks ACTOR=AGENT,…, with all of them")}
	}
	return []Diagnosis{passed("OpenClaw: each agent has the tools of its own actor of tasks alone")}
}

// gateTest tests the gate of one runtime.
type gateTest struct {
	*integrate.Runtime
	ctx context.Context
	at  *integrate.Place
	// operator is the operator socket of the examined daemon.
	operator string
}

// test tests whether the gate refuses a canary.
func (g *gateTest) test(live bool) Diagnosis {
	if !live {
		return warned("%s: not tried, since the daemon does not run; its agents send nothing meanwhile", g.Title)
	}
	strays, err := g.Strays(g.at)
	if err != nil {
		return failed("%s: %v", g.Title, err)
	}
	if len(strays) > 0 {
		what := make([]string, len(strays))
		for i := range strays {
			what[i] = strays[i].String()
		}
		return failed("%s: its gate does not hold as it was entered: %s", g.Title, strings.Join(what, "; ")).
			advise("ocipd integrate %s; what stands in a project's own file, or in the machine's, and a hook of others, take out there", g.Name)
	}
	if old := g.tooOld(); old != nil {
		return failed("%v", old).advise("install a later version of %s", g.Title)
	}
	id, err := uuid.NewV7()
	if err != nil {
		return failed("%s: %v", g.Title, err)
	}
	record, err := g.Try(g.ctx, g.at, integrate.NewCanary(id.String()), integrate.Records(func(ctx context.Context, method string, params, result any) error {
		return askAt(ctx, g.operator, method, params, result)
	}))
	switch {
	case errors.Is(err, integrate.ErrNotSent):
		return warned("%v", err).advise("try it again: ocipd doctor; whether its gate holds is not known until then")
	case err != nil:
		return failed("%v", err).advise("ocipd integrate %s", g.Name)
	}
	return passed("%s: a canary was refused, see record %d%s", g.Title, record.Seq, g.trial())
}

// tooOld returns an error if a runtime asks about calls of tools, and its present version is older than
// those with a gate that is known to hold.
func (g *gateTest) tooOld() error {
	program := g.Installed(g.at)
	if asks, _, _, err := g.Tools(g.at); err != nil || !asks || program == "" {
		return err
	}
	version := integrate.Version(g.ctx, program)
	if version == "" {
		return nil // it was known at the integration, and the program has not answered now
	}
	return g.Closes(version)
}

// trial tests about which actions a runtime asks its gate, and names those that it could
// not test. See [staysOpen] for the others.
func (g *gateTest) trial() string {
	program := g.Installed(g.at)
	if program == "" || !g.Tries() {
		return ""
	}
	if err := g.TryAsks(g.ctx, g.at, program); err != nil {
		return fmt.Sprintf("; %v", err)
	}
	return ""
}

// staysOpen warns of actions about which a runtime does not ask its gate.
func (g *gateTest) staysOpen() []Diagnosis {
	version := ""
	if program := g.Installed(g.at); program != "" && g.Tries() {
		version = integrate.Version(g.ctx, program)
	}
	list, err := g.StaysOpen(g.at, version)
	if err != nil {
		return []Diagnosis{failed("%s: %v", g.Title, err)}
	}
	if len(list) == 0 {
		return nil
	}
	return []Diagnosis{warned("%s: not gated: %s", g.Title, strings.Join(list, "; ")).advise("docs/guides/agent-runtimes.md")}
}
