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
	d.queue.choose(d.queue.rowOf(ids[0]))
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

// begin fetches the chosen message to decide about it, because the decision is about the
// daemon's current version, not the listed one.
func (d *model) begin(decision string) tea.Cmd {
	row := d.queue.at()
	var id string
	switch {
	case !d.connected:
		d.say(term.Red, "no daemon: nothing can be decided")
		return nil
	case d.stage == reading && d.shown != nil:
		// The message on the page, wherever it is in the list now.
		id = d.shown.ApprovalID
		row = d.queue.rowOf(id)
	case row >= 0:
		id = d.queue.rows[row].oldest().ApprovalID
	default:
		d.say(term.Yellow, "nothing is chosen")
		return nil
	}
	d.decision = decision
	if d.stage == choosing && len(d.queue.marked) > 0 {
		if d.course.mark(d.queue.rows, d.queue.marked, decision); d.course.total == 0 {
			d.say(term.Yellow, "what is marked is not in this list: esc forgets it")
			return nil
		}
		return d.nextMarked()
	}
	d.course = course{}
	switch {
	case row < 0:
	case d.stage == choosing && decision == api.DecideApprove && atOnce(d.queue.rows[row]):
		return d.fetch(idsOf(d.queue.rows[row])...)
	default:
		d.course.alike = slices.DeleteFunc(idsOf(d.queue.rows[row]), func(like string) bool { return like == id })
	}
	return d.fetch(id)
}

// confirm handles a key at the confirmation.
func (d *model) confirm(k tea.KeyPressMsg) tea.Cmd {
	if d.scroll(k) {
		d.said = ""
		return nil
	}
	all := k.String() == "A" && len(d.course.alike) > 0 && !Sends(d.decision)
	exchange := k.String() == "x" && d.offers()
	switch {
	case k.String() == "i":
		d.unfolded = !d.unfolded
		d.turnTo(d.shown)
	case k.String() == "n" && len(d.course.marked) > 0:
		delete(d.queue.marked, d.shown.ApprovalID)
		for _, a := range d.course.together {
			delete(d.queue.marked, a.ApprovalID)
		}
		return d.nextMarked()
	case k.String() == "esc", k.String() == "n", k.String() == "q":
		said := "nothing was decided"
		if d.course.total > 1 {
			said = "the rest stays as it is"
		}
		d.back()
		d.say(term.Dim, "%s", said)
	case k.String() != "y" && !all && !exchange:
	case Sends(d.decision) && d.read != d.course.seen(d.shown):
		d.say(term.Yellow, "read to the end first: space goes on")
	default:
		d.stage = deciding
		d.say(term.Dim, "deciding; a key in hardware may want a touch")
		var others []string
		if all {
			others = d.course.alike
		}
		return d.decide(others, exchange)
	}
	return nil
}

// offers reports whether the exchange can be approved together with the message.
func (d *model) offers() bool {
	return d.decision == api.DecideApprove && d.shown.Exchange != nil && len(d.course.together) == 0
}

// decided handles the result of a decision.
func (d *model) decided(msg decidedMsg) tea.Cmd {
	course := d.course
	d.back()
	d.asking = ""
	for _, id := range msg.done {
		delete(d.queue.marked, id)
	}
	if msg.err == nil {
		d.words.of = ""
		if len(course.marked) > 0 && !msg.rest {
			d.course = course
			return d.nextMarked()
		}
		d.note = ""
		d.say(term.Green, "%s", describe.Decided(msg.kind, msg.result))
		if msg.result.GrantID != "" {
			d.say(term.Green, "approved, and its exchange: ocipd approvals revoke %s takes that back", msg.result.GrantID)
		}
		if len(msg.done) > 1 {
			d.say(term.Green, "%s: %d of them, the last in record %d", describe.State(msg.result.State), len(msg.done), msg.result.AuditSeq)
		}
		return nil
	}
	before := ""
	if len(msg.done) > 0 {
		before = fmt.Sprintf("%d were decided; ", len(msg.done))
	}
	switch o := api.DetailsOf[api.Obstacle](msg.err); o.Code {
	case api.ApprovalStale:
		d.say(term.Yellow, "%sit is no longer what you saw: what changed is shown; look again", before)
	case api.AlreadyDecided:
		d.say(term.Yellow, "%s", decidedBefore(d.queue.table.short(msg.id), msg.decision, o.State, o.By, o.At, d.now))
	default:
		d.say(term.Red, "%scannot %s it: %v", before, describe.Verb(msg.decision), msg.err)
	}
	return nil
}
