package approvalsui

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"

	tea "charm.land/bubbletea/v2"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/approval/describe"
	"github.com/openclawos/ocipd/internal/base/term"
)

// course is the way through the requests of one decision.
type course struct {
	// together are requests that are shown on one page and decided at once, beginning with the shown
	// one. It is empty if the shown request is decided by itself.
	together []*api.Approval
	// alike are further messages that the decision may be about at once, if it sends nothing.
	alike []string
	// marked are the steps through marked messages after the shown ones. A step has one id, or those of
	// several that are decided together. total is the number of marked messages at first.
	marked [][]string
	total  int
}

// atOnce reports whether several requests can be approved by one decision, which shows every text.
func atOnce(row []*api.ApprovalSummary) bool {
	return len(row) > 1 && !slices.ContainsFunc(row, func(a *api.ApprovalSummary) bool { return !describe.Unlikely(a) })
}

// mark plans the steps through the marked messages of the rows.
func (c *course) mark(rows []group, marked map[string]bool, decision string) {
	*c = course{}
	for _, row := range rows {
		var of []*api.ApprovalSummary
		for _, a := range row {
			if marked[a.ApprovalID] {
				of = append(of, a)
			}
		}
		c.total += len(of)
		if decision == api.DecideApprove && atOnce(of) {
			c.marked = append(c.marked, idsOf(of))
			continue
		}
		for _, a := range of {
			c.marked = append(c.marked, []string{a.ApprovalID})
		}
	}
}

func idsOf(row []*api.ApprovalSummary) (ids []string) {
	for _, a := range row {
		ids = append(ids, a.ApprovalID)
	}
	return ids
}

// next takes the next step.
func (c *course) next() (ids []string) {
	ids, c.marked = c.marked[0], c.marked[1:]
	c.together, c.alike = nil, slices.Concat(c.marked...)
	return ids
}

// left is the number of marked messages after the shown ones.
func (c *course) left() (n int) {
	for _, step := range c.marked {
		n += len(step)
	}
	return n
}

// seen names what a person must have read to its end before a decision that sends it.
func (c *course) seen(shown *api.Approval) string {
	if len(c.together) == 0 {
		return shown.Digest
	}
	var digests []string
	for _, a := range c.together {
		digests = append(digests, a.Digest)
	}
	return strings.Join(digests, " ")
}

// outdates reports whether news of a request differ from one that is shown together with others.
func (c *course) outdates(a *api.ApprovalSummary) bool {
	return slices.ContainsFunc(c.together, func(of *api.Approval) bool {
		return of.ApprovalID == a.ApprovalID && !reflect.DeepEqual(&of.ApprovalSummary, a)
	})
}

// lookAll fetches requests that are to be approved together. Those that cannot be approved any more
// are left out, except the first.
func lookAll(ctx context.Context, decider decider, ids []string, decision string) tea.Cmd {
	return func() tea.Msg {
		msg := lookedMsg{id: ids[0], decision: decision}
		for _, id := range ids {
			a, err := decider.look(ctx, id)
			if err != nil {
				msg.err = err
				return msg
			}
			if a.State == api.ApprovalPending && a.Approvable {
				msg.together = append(msg.together, a)
			} else if msg.a == nil {
				msg.a = a
			}
		}
		if len(msg.together) > 0 {
			msg.a, msg.id = msg.together[0], msg.together[0].ApprovalID
		}
		return msg
	}
}

// pageTogether shows requests that are approved together: every text once, with what goes along.
// Requests whose pages differ in nothing but their ids share a text.
func pageTogether(scr term.Screen, all []*api.Approval, unfolded bool) []string {
	first := all[0]
	p := &term.Page{Screen: scr}
	p.Hang("", "    ", term.Bold, fmt.Sprintf("%d requests, unlikely to commit anybody", len(all)))
	p.Hang("", "    ", term.Bold, describe.Whose(first))
	type text struct {
		lines []string
		of    []*api.Approval
	}
	var texts []*text
	at := map[string]*text{}
	for _, a := range all {
		one := &term.Page{Screen: scr}
		(&describe.Text{Writer: one}).Among(a, unfolded)
		key := strings.Join(one.Lines, "\n")
		if at[key] == nil {
			at[key] = &text{lines: one.Lines}
			texts = append(texts, at[key])
		}
		at[key].of = append(at[key].of, a)
	}
	for i, one := range texts {
		p.Line()
		p.Say("", term.Bold, fmt.Sprintf("text %d of %d, in %s", i+1, len(texts), term.Count(len(one.of), "request")))
		for _, a := range one.of {
			p.Say("  ", term.NoColour, a.ApprovalID)
			p.Say("    ", term.Dim, a.Digest)
		}
		p.Lines = append(p.Lines, one.lines...)
	}
	if first.SignatureRequired {
		p.Line()
		p.Say("", term.Yellow, fmt.Sprintf("each takes a signature: %d are made, one after the other", len(all)))
	}
	return p.Lines
}

// nextMarked goes to the next marked message.
func (d *model) nextMarked() tea.Cmd {
	ids := d.course.next()
	d.choose(d.rowOf(ids[0]))
	return d.fetch(ids...)
}

func (d *model) fetch(ids ...string) tea.Cmd {
	d.stage = fetching
	d.say(term.Dim, "looking…")
	if len(ids) > 1 {
		return lookAll(d.ctx, d.decider, ids, d.decision)
	}
	return d.look(ids[0], d.decision)
}

// decide carries out the decision, also for similar messages or for the exchange.
func (d *model) decide(others []string, exchange bool) tea.Cmd {
	ctx, decider, a := d.ctx, d.decider, d.shown
	p := api.ApprovalResolveParams{ApprovalID: a.ApprovalID, Decision: d.decision, Digest: a.Digest, Note: d.note}
	if d.decision == api.DecideTakeover {
		p.Content = d.instead()
	}
	if exchange {
		p.Exchange = a.Exchange
	}
	shown := []*api.Approval{a}
	if len(d.course.together) > 0 {
		shown = d.course.together
	}
	return func() tea.Msg {
		msg := decidedMsg{kind: a.Kind, decision: p.Decision, rest: len(others) > 0}
		one := func(a *api.Approval) {
			p.ApprovalID, p.Digest, msg.id = a.ApprovalID, a.Digest, a.ApprovalID
			if msg.result, msg.err = decider.decide(ctx, a, p); msg.err == nil {
				msg.done = append(msg.done, a.ApprovalID)
			}
		}
		for _, a := range shown {
			if msg.err == nil {
				one(a)
			}
		}
		for _, id := range others {
			if msg.err != nil {
				break
			}
			var other *api.Approval
			if other, msg.err = decider.look(ctx, id); msg.err == nil {
				one(other)
			}
		}
		return msg
	}
}
