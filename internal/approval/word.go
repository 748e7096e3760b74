package approval

import (
	"context"
	"fmt"
	"time"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/ocip"
	"github.com/openclawos/ocipd/internal/store"
)

// Word is what a person has said about something that is asked for by asking: it answers
// the next asking that is the same, once. It is kept as a release that has the name of what
// was asked for as its key, see [Asked]. What was said stands in the record of the decision
// alone, and is read from there.
type Word struct {
	Allow bool
	Note  string
	// Revision is the policy's under which it was said.
	Revision string

	row store.Release
}

// ofTools is where words come from, as releases say it: they are about the use of tools.
const ofTools = "tools"

// stateUsed is the state of a word that was taken.
const stateUsed = "sent"

// Say enters into a decision that it answers who asks for the same until then. App is whose
// the asking is: an app's id, or what stands in its place.
func (d *Decision) Say(app string, until time.Time) {
	d.answers = d.Request.Asked
	d.Change.Add(&store.Release{Approval: d.Request.ApprovalID, AppID: app, State: store.ReleaseReady, Key: d.answers, Origin: ofTools, ExpiresAt: until})
}

// Said returns a person's word about what is asked for that nobody has taken yet, nil where
// there is none. What was allowed under another revision of the policy, by somebody who
// may not sign any more, or by fewer people than are needed now, is none. Of the last, few says
// so, for the record of whoever is asked anew.
func (c *Decider) Said(ctx context.Context, app, asked, revision string, needed int) (said *Word, few string, err error) {
	rows, err := c.o.Store.ReadyReleases(ctx, app, asked, c.o.Now(), api.MaxPage)
	if err != nil {
		return nil, "", err
	}
	for i := range rows {
		if rows[i].Origin != ofTools {
			continue
		}
		w, decided, err := c.word(ctx, &rows[i], asked)
		switch {
		case err != nil:
			return nil, "", err
		case w == nil:
			if err := c.void(&rows[i]); err != nil {
				return nil, "", err
			}
		case !w.Allow:
			return w, "", nil
		case w.Revision == revision && People(decided) < needed:
			few = fmt.Sprintf("%d people have to approve now, and %d approved %s", needed, People(decided), w.Approval())
		case w.Revision == revision:
			signed, err := c.StillSigned(ctx, decided)
			if err != nil {
				return nil, "", err
			}
			if signed {
				return w, "", nil
			}
		}
	}
	return nil, few, nil
}

// word reads a word from the record of its decision, nil if that says nothing of the kind, or
// the request says by now that something else was decided.
func (c *Decider) word(ctx context.Context, row *store.Release, asked string) (*Word, *audit.Entry, error) {
	r, err := c.Get(ctx, row.Approval)
	if err != nil {
		return nil, nil, err
	}
	decisions, err := c.o.Store.DecisionsOf(ctx, row.RecordSeq, "")
	if err != nil {
		return nil, nil, err
	}
	for i := range decisions {
		e := &decisions[i].Entry
		if e.ActionType != audit.ActionApproval || e.ApprovalID != row.Approval || e.Event != r.State {
			continue
		}
		digest, err := c.o.Answers(e.TenantID, asked)
		if err != nil {
			return nil, nil, err
		}
		if e.Details["answers"] == digest {
			note, _ := e.Details["note"].(string)
			revision, _ := e.Details["answersUnder"].(string)
			return &Word{Allow: e.Event == api.ApprovalApproved, Note: note, Revision: revision, row: *row}, e, nil
		}
	}
	return nil, nil, nil
}

// void uses up a word that no record has, with a record of that.
func (c *Decider) void(row *store.Release) error {
	change := &store.Change{Drains: true, Records: []*audit.Record{{
		ID: c.o.NewID(), ActionType: audit.ActionSecurity, Event: "undecided_word", AppID: row.AppID, ApprovalID: row.Approval,
		PolicyResult: string(ocip.Deny), PolicyReason: "no record has this answer to a tool call", Details: map[string]any{"decidedBy": row.RecordSeq},
	}}}
	(&Word{row: *row}).Take(change)
	_, err := c.o.Commit(change)
	return err
}

// Approval is the id of the request that the word is about.
func (w *Word) Approval() string { return w.row.Approval }

// Take enters into a change that the word is used up.
func (w *Word) Take(change *store.Change) {
	used := w.row
	used.From, used.State, used.Data = w.row.State, stateUsed, nil
	change.Add(&used)
}

// Back makes a word good again that was taken for an answer which nobody got. The record is
// that of the answer.
func (q *Requests) Back(w *Word, answered *audit.Record) error {
	back, told := w.row, *answered
	back.From = stateUsed
	told.ID, told.Event, told.PolicyReason = q.o.NewID(), "not_taken", "the connection ended before the answer was written: what the person said holds for the next call"
	_, err := q.o.Commit(&store.Change{Parts: []store.Part{&back}, Records: []*audit.Record{&told}, Drains: true})
	return err
}
