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

// Word is a person's answer to an agent that asks repeatedly: it answers the next identical
// question, once. It is stored as a release with the digest of the question as its key, see
// [Asked]. The answer itself is only in the record of the decision, and is read from there.
type Word struct {
	Allow bool
	Note  string
	// Revision is the policy's revision at the decision.
	Revision string

	row store.Release
}

// ofTools is the origin of words in releases: they are about the use of tools.
const ofTools = "tools"

// stateUsed is the state of a word that was used.
const stateUsed = "sent"

// Say makes a decision the answer to the same question until a time. App is the app that asks: an
// app's id, or the name that stands for it.
func (d *Decision) Say(app string, until time.Time) {
	d.answers = d.Request.Asked
	d.Change.Add(&store.Release{Approval: d.Request.ApprovalID, AppID: app, State: store.ReleaseReady, Key: d.answers, Origin: ofTools, ExpiresAt: until})
}

// Said returns a person's unused word about a question, or nil. An approval under another revision
// of the policy, by somebody who may not sign any more, or by fewer people than are needed now,
// does not count. In the last case few says so, for the record of the new request.
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

// word reads a word from the record of its decision. It returns nil if the record does not contain
// it, or the request has another decision by now.
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

// void uses up a word that no record confirms, with a record of that.
func (c *Decider) void(row *store.Release) error {
	change := &store.Change{Drains: true, Records: []*audit.Record{{
		ID: c.o.NewID(), ActionType: audit.ActionSecurity, Event: "undecided_word", AppID: row.AppID, ApprovalID: row.Approval,
		PolicyResult: string(ocip.Deny), PolicyReason: "no record has this answer to a tool call", Details: map[string]any{"decidedBy": row.RecordSeq},
	}}}
	(&Word{row: *row}).Take(change)
	_, err := c.o.Commit(change)
	return err
}

// Approval returns the id of the word's request.
func (w *Word) Approval() string { return w.row.Approval }

// Take enters into a change that the word is used up.
func (w *Word) Take(change *store.Change) {
	used := w.row
	used.From, used.State, used.Data = w.row.State, stateUsed, nil
	change.Add(&used)
}

// Back makes a used word valid again, because nobody got the answer. The record is that of the
// answer.
func (q *Requests) Back(w *Word, answered *audit.Record) error {
	back, told := w.row, *answered
	back.From = stateUsed
	told.ID, told.Event, told.PolicyReason = q.o.NewID(), "not_taken", "the connection ended before the answer was written: what the person said holds for the next call"
	_, err := q.o.Commit(&store.Change{Parts: []store.Part{&back}, Records: []*audit.Record{&told}, Drains: true})
	return err
}
