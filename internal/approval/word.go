package approval

import (
	"context"
	"fmt"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/store"
)

// Word is what a person has said about something that is asked for by asking: it answers
// the next asking that is the same, once. It is kept as a release that has the name of what
// was asked for as its key, see [Asked].
type Word struct {
	Allow bool   `json:"allow"`
	Note  string `json:"note,omitzero"`
	// Revision is the policy's under which it was said.
	Revision string `json:"revision"`

	row store.Release
}

// ofTools is where words come from, as releases say it: they are about the use of tools.
const ofTools = "tools"

// stateUsed is the state of a word that was taken.
const stateUsed = "sent"

// Say enters into a decision that it answers who asks for the same until then. App is whose
// the asking is: an app's id, or what stands in its place.
func (d *Decision) Say(app string, allow bool, until time.Time) error {
	r := d.Request
	data, err := json.Marshal(&Word{Allow: allow, Note: d.By.Note, Revision: r.PolicyRevision})
	if err != nil {
		return fmt.Errorf("cannot encode what was decided about approval %s: %w", r.ApprovalID, err)
	}
	d.Change.Add(&store.Release{Approval: r.ApprovalID, AppID: app, State: store.ReleaseReady, Key: r.Asked, Origin: ofTools, Data: data, ExpiresAt: until})
	return nil
}

// Said returns a person's word about what is asked for that nobody has taken yet, nil where
// there is none. What was allowed under another revision of the policy is none.
func (q *Requests) Said(ctx context.Context, app, asked, revision string) (*Word, error) {
	rows, err := q.o.Store.ReadyReleases(ctx, app, asked, q.o.Now(), api.MaxPage)
	if err != nil {
		return nil, err
	}
	for i := range rows {
		w := &Word{row: rows[i]}
		if rows[i].Origin == ofTools && json.Unmarshal(rows[i].Data, w) == nil && (w.Revision == revision || !w.Allow) {
			return w, nil
		}
	}
	return nil, nil
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
