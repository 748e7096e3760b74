package store

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/audit/fold"
	"github.com/openclawos/ocipd/internal/ocip"
	"github.com/openclawos/ocipd/internal/store/db"
	"github.com/openclawos/ocipd/internal/store/foldrows"
	"go.uber.org/zap"
	"zombiezen.com/go/sqlite"
)

// This file compares the rows with the log: see internal/audit/fold. Every part of a change that is
// a row of one of its tables is folded, so that the records of the change state the row's new
// content. Every row that a decision depends on is compared with the log's statement.

// folded is a part that changes rows which the log describes.
type folded interface {
	fold(f *folding)
}

// folding collects the changes of such rows in one change.
type folding struct {
	s       *Store
	changes []fold.Change
	// rows are the changed rows before and after, in the order of their first change.
	rows []foldingRow
	room [4]foldingRow
	// pairs are those whose escalation the change opens or settles.
	pairs map[Pair]string
	// owed are the debts after the change, by agent and counterparty.
	owed map[[2]string]Owed
	// err is the first error of a read for the change.
	err error
}

type foldingRow struct {
	fold.Table
	key      []string
	was, now fold.Row
	add      int64
}

// row returns the entry of a row in the change.
func (f *folding) row(t fold.Table, key []string) *foldingRow {
	for i := range f.rows {
		if r := &f.rows[i]; r.Table == t && slices.Equal(r.key, key) {
			return r
		}
	}
	was, _ := f.s.state.Get(t, key)
	f.rows = append(f.rows, foldingRow{Table: t, key: key, was: was, now: was})
	return &f.rows[len(f.rows)-1]
}

// foldOf enters the changes of rows into the records of a change, and returns them for each record. Same are
// the rows that the change writes as they are, so that no record states them.
func (s *Store) foldOf(c *Change) (_ [][]fold.Change, same []foldingRow, err error) {
	f := &folding{s: s, changes: slices.Clone(c.stated)}
	f.rows = f.room[:0]
	for _, part := range c.Parts {
		if one, ok := part.(folded); ok {
			if one.fold(f); f.err != nil {
				return nil, nil, f.err
			}
		}
	}
	f.changes = slices.Grow(f.changes, len(f.rows))
	for i := range f.rows {
		r := &f.rows[i]
		if r.add != 0 {
			f.changes = append(f.changes, fold.Change{Table: r.Table, Key: r.key, Add: r.add})
		} else if one, changed := r.Changed(r.key, r.was, r.now, s.clock()); changed {
			f.changes = append(f.changes, one)
		} else {
			same = append(same, *r)
		}
	}
	if len(c.Records) == 0 {
		if len(f.changes) > 0 {
			return nil, nil, ErrUnrecorded
		}
		return nil, same, nil
	}
	return fold.Enter(c.Records, f.changes), same, nil
}

// stale refuses a change that was folded over rows which have changed since.
func (w *writer) stale(p *pending) error {
	for _, changes := range p.folded {
		if len(changes) == 0 || w.state.Fits(changes) {
			continue
		}
		for i := range changes {
			if c := &changes[i]; c.Table == fold.CommitmentGrants && c.Add != 0 && !w.state.Fits(changes[i:i+1]) {
				return ErrGrantOver
			}
		}
		return fold.ErrStale
	}
	for i := range p.same {
		r := &p.same[i]
		if row, _ := w.state.Get(r.Table, r.key); !slices.Equal(row, r.was) {
			return fold.ErrStale
		}
	}
	return nil
}

// foldTries is how often a change is folded again after others were faster.
const foldTries = 16

func (e *Exchange) fold(f *folding) {
	f.row(fold.Exchanges, []string{e.Agent, e.ID}).now = exchangeRow(&e.Exchange)
}

func exchangeRow(e *ocip.Exchange) fold.Row {
	return foldrows.Exchange(e.ConversationID, string(e.Type), string(e.Outcome), e.Round, e.MaxRounds, e.ExpiresAt, e.ForPerson)
}

// escalated returns the exchange whose escalation is open between two agents, "" for none.
func (f *folding) escalated(p Pair) (id string) {
	id, known := f.pairs[p]
	if !known {
		id, f.err = f.s.Escalated(context.Background(), p)
	}
	return id
}

func (f *folding) escalate(p Pair, id string) {
	if f.pairs == nil {
		f.pairs = make(map[Pair]string)
	}
	f.pairs[p] = id
}

func (e Escalation) fold(f *folding) {
	if open := f.escalated(e.Pair); open == "" && f.err == nil {
		f.escalate(e.Pair, e.ExchangeID)
		f.row(fold.Escalations, []string{e.ExchangeID}).add++
	}
}

func (p Settled) fold(f *folding) {
	if open := f.escalated(Pair(p)); open != "" && f.err == nil {
		f.escalate(Pair(p), "")
		f.row(fold.Escalations, []string{open}).add--
	}
}

func (a *Approval) fold(f *folding) {
	f.row(fold.Approvals, []string{a.ID}).now = a.row()
}

func (a *Approval) row() fold.Row {
	return foldrows.Approval(a.Kind, a.Agent, a.ExchangeID, a.State, a.ExpiresAt, a.Summary, a.Body)
}

func (g *CommitmentGrant) fold(f *folding) {
	f.row(fold.CommitmentGrants, []string{g.ID}).now = foldrows.Grant(g.Agent, g.Kind, GrantInForce, g.Until, 0, g.MaxUses)
}

func (g *CommitmentGrant) row() fold.Row {
	return foldrows.Grant(g.Agent, g.Kind, g.State, g.Until, g.Uses, g.MaxUses)
}

func (u GrantUse) fold(f *folding) {
	// The use is counted in the row: one that somebody else has written does not count.
	if _, err := f.s.CommitmentGrant(context.Background(), u.ID); err != nil && !errors.Is(err, ErrNotFound) {
		f.err = err
		return
	}
	f.row(fold.CommitmentGrants, []string{u.ID}).add++
}

func (id GrantEnded) fold(f *folding) {
	r := f.row(fold.CommitmentGrants, []string{string(id)})
	if r.now != nil {
		const state = 2
		r.now = slices.Clone(r.now)
		r.now[state] = GrantRevoked
	}
}

func (p Paused) fold(f *folding) {
	f.row(fold.Paused, []string{p.Scope}).now = foldrows.Pause(p.At)
}

func (p Resumed) fold(f *folding) {
	f.row(fold.Paused, []string{string(p)}).now = nil
}

func (r *Release) fold(f *folding) {
	f.row(fold.Releases, []string{r.Approval}).now = r.row()
}

func (r *Release) row() fold.Row { return foldrows.Release(r.State, r.ExpiresAt) }

// adoptState has the log state and count all open rows, which it knows nothing of.
func (s *Store) adoptState() error {
	return s.stateRows(fold.EventAdopted, func(uint64) bool { return true })
}

// stateRows has the log state open rows, in one record or several, the first of which has the
// event. A function picks the rows by the record that last stated them in full. A checkpoint
// follows.
func (s *Store) stateRows(event string, pick func(stated uint64) bool) error {
	for tries := 0; ; tries++ {
		chunks := foldrows.Stated(s.state, pick)
		if len(chunks) == 0 {
			if event == fold.EventKept {
				return nil
			}
			chunks = append(chunks, nil)
		}
		err := s.stateChunks(event, chunks)
		if !errors.Is(err, fold.ErrStale) || tries == foldTries {
			return err
		}
	}
}

func (s *Store) stateChunks(event string, chunks [][]fold.Change) error {
	for i, chunk := range chunks {
		r := &audit.Record{ID: s.newID(), ActionType: audit.ActionSecurity, Event: event, Details: map[string]any{"open": len(chunk)}}
		if _, err := s.Commit(&Change{Records: []*audit.Record{r}, stated: chunk, Checkpoint: i == len(chunks)-1, Alarm: true}); err != nil {
			return err
		}
		event = fold.EventKept
	}
	return nil
}

// Agrees compares the current row of [Store.Tables] with the log's statement, before a decision
// depends on it. It returns an [*AlteredError], as a query of the row would.
func (s *State) Agrees(ctx context.Context, t fold.Table, key string) error {
	var row fold.Row
	err := s.db.Scan(ctx, func(conn *sqlite.Conn) (err error) {
		row, err = foldrows.Find(conn, t, []string{key})
		return err
	})
	if err != nil {
		return err
	}
	return s.agrees(t, []string{key}, row)
}

// agrees compares a row that was read with the log's statement. It returns an [*AlteredError] if
// somebody else has written the row.
func (s *State) agrees(t fold.Table, key []string, row fold.Row) error {
	if s.sameAsSaid(t, key, row) {
		return nil
	}
	// A read during a change may differ; one between two commits may not.
	differs := false
	err := s.between(func(w *writer) error {
		row, err := foldrows.Find(w.Conn, t, key)
		differs = err == nil && !s.sameAsSaid(t, key, row)
		return err
	})
	switch {
	case errors.Is(err, ErrClosed), errors.Is(err, ErrLatched):
		// Nothing is decided any more.
		return nil
	case err != nil || !differs:
		return err
	}
	says, said := s.state.Get(t, key)
	s.logger.Error("a row of the database is not as the audit log says, and is not used",
		zap.String("table", t.Name()), zap.Strings("row", key), zap.Strings("found", row), zap.Strings("log", says), zap.Uint64("record", said))
	return s.Altered(t, key...)
}

// Altered reports a row that the daemon cannot have written, and returns the [*AlteredError].
func (s *State) Altered(t fold.Table, key ...string) error {
	return s.db.Altered(db.NewAltered(t.Name(), key...))
}

// found is agrees for the result of a read: a row, or its absence.
func (s *State) found(t fold.Table, key []string, row func() fold.Row, err error) error {
	switch {
	case err == nil:
		return s.agrees(t, key, row())
	case errors.Is(err, ErrNotFound):
		return cmp.Or(s.agrees(t, key, nil), err)
	}
	return err
}

func (s *State) sameAsSaid(t fold.Table, key []string, row fold.Row) bool {
	says, _ := s.state.Get(t, key)
	if says == nil {
		return !t.Open(row, s.clock())
	}
	return slices.Equal(says, row)
}
