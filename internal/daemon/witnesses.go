package daemon

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/base/filewatch"
	"github.com/openclawos/ocipd/internal/evidence/checkpoints"
	"github.com/openclawos/ocipd/internal/evidence/witness"
	"github.com/openclawos/ocipd/internal/store"
	"go.uber.org/zap"
)

// lastWord bounds a stop's wait for the witnesses, and a failed start's wait for its notices.
const lastWord = 2 * time.Second

// witnesses shows the log's checkpoints to the witnesses that the operator lists, and pauses sending if
// one of them has signed another log of this name.
type witnesses struct {
	*evidence
	halt   func(by string, r *audit.Record) error
	alarm  func(id, title, text string)
	seenBy seenBy
	// recorded is closed after the record of the start: from then on, the kernel exists, and answers of
	// witnesses can be recorded.
	recorded chan struct{}
	// telling is held while witnesses get a checkpoint.
	telling sync.Mutex
	// lastWord bounds a stop's wait for the witnesses, and a failed start's wait for its notices.
	lastWord time.Duration
}

// ask asks the log's witnesses for its newest head, and fails if one of them
// refuses the log: the log was reset to an older state, or forked. An unreachable witness
// does not prevent the start; an attacker who can block it could also stop the daemon. From
// then on, each witness gets every checkpoint.
func (w *witnesses) ask(ctx context.Context, ends *endings) error {
	list, err := witness.Places(w.keys())
	if err == nil {
		err = w.seenBy.pausedBefore(ctx, w.store, list)
	}
	if err != nil {
		return err
	}
	if newest := w.store.Checkpoint().Note; newest != "" {
		for i, err := range w.showAll(ctx, list, newest) {
			if refused, ok := errors.AsType[*witness.RefusedError](err); ok {
				return &audit.Fault{Problem: fmt.Sprintf("cannot go on with this audit log: %v; put the one back that the witness has signed; or, if you restored this one knowingly, take the witness off the list (ocipd audit witness remove %s), and have it forget the log", refused, list[i].Key.Name())}
			}
			if err != nil {
				w.log.Warn("a witness does not say how far it saw the log", zap.Error(err))
			}
		}
	}
	w.follow(ctx, ends, "the witnesses", func(ctx context.Context, signed string) error {
		select {
		case <-w.recorded:
			w.tellAll(ctx, signed)
		case <-ctx.Done():
		}
		return nil // a witness that does not sign is asked again with the next one
	}, func() error {
		ctx, cancel := context.WithTimeout(context.Background(), w.lastWord)
		defer cancel()
		// The next start asks again about refusals.
		_ = w.showListed(ctx, w.store.Checkpoint().Note)
		return nil
	})
	return nil
}

// pausedBefore restores the pauses for witnesses that no person has resumed. Such a witness
// may be unreachable now, and its refusal still stands.
func (s *seenBy) pausedBefore(ctx context.Context, from *store.Store, list witness.List) error {
	rows, err := from.Paused(ctx)
	for _, row := range rows {
		for _, p := range list {
			if row.By == byWitness+p.Key.Name() {
				s.tell(p.Key)
			}
		}
	}
	return err
}

// byWitness begins the name under which a witness has paused sending.
const byWitness = "witness:"

// watch records changes of the list, and shows the log to new witnesses.
func (w *witnesses) watch(ctx context.Context, ends *endings) error {
	path := witness.ListPath(w.keys())
	watcher, err := filewatch.Start(context.WithoutCancel(ctx), path, func() string { return filewatch.Fingerprint(path) }, func() {
		w.tellAll(context.WithoutCancel(ctx), w.store.Checkpoint().Note)
	})
	if err != nil {
		return fmt.Errorf("cannot watch the list of witnesses: %w", err)
	}
	ends.add("the watch of the witnesses", func() error {
		watcher.Close()
		return nil
	})
	return nil
}

// tellAll shows a checkpoint to the listed witnesses, and records changes of the list
// and refusals.
func (w *witnesses) tellAll(ctx context.Context, signed string) {
	// One after another: a witness would refuse a smaller checkpoint after a larger one.
	w.telling.Lock()
	defer w.telling.Unlock()
	changed := &store.Change{Drains: true}
	err := w.note(ctx, changed)
	if err == nil && len(changed.Records) > 0 {
		_, err = w.store.Commit(changed)
	}
	if err != nil {
		w.log.Error("cannot record who the witnesses of the log are", zap.Error(err))
	}
	for _, refused := range w.showListed(ctx, signed) {
		w.refused(refused)
	}
}

// refusal is a witness that refuses the log.
type refusal struct {
	witness.Place
	*witness.RefusedError
}

// showListed shows a checkpoint to the listed witnesses, and returns the refusals.
func (w *witnesses) showListed(ctx context.Context, signed string) (refusals []refusal) {
	list, err := witness.Places(w.keys())
	if err != nil {
		w.log.Error("the witnesses of the log are not known", zap.Error(err))
		return nil
	}
	if signed == "" {
		return nil
	}
	for i, err := range w.showAll(ctx, list, signed) {
		if err != nil && ctx.Err() == nil {
			w.log.Error("a checkpoint is not witnessed", zap.Error(err))
		}
		if refused, ok := errors.AsType[*witness.RefusedError](err); ok {
			refusals = append(refusals, refusal{list[i], refused})
		}
	}
	return refusals
}

// refused pauses all sending because a witness has signed another log of this name, until a
// person has looked into it: there are two versions of the log, and each reader knows one.
func (w *witnesses) refused(r refusal) {
	if w.seenBy.told(r.Key) {
		return
	}
	details := map[string]any{"witness": r.Key.Name(), "key": r.Key.String(), "url": r.URL, "have": int(r.Have), "seen": int(r.Seen), "note": r.Shown}
	if r.Signed != "" {
		details["signed"] = r.Signed
	}
	if r.Answer != "" {
		details["answer"] = r.Answer
	}
	err := w.halt(byWitness+r.Key.Name(), &audit.Record{
		ID: w.newID(), ActionType: audit.ActionSecurity, Event: "witness_refused", PolicyReason: r.Error(), Details: details,
	})
	if err != nil {
		w.log.Error("cannot record that a witness refuses the log: it is tried again with the next checkpoint", zap.Error(err))
		return
	}
	w.seenBy.tell(r.Key)
	w.alarm(witnessNotice(r.Key), "A witness refuses the audit log", fmt.Sprintf("%v\nAll sending is paused.\nocipd status", r.RefusedError))
	w.log.Error("sending is paused: a witness has signed another log of this name", zap.Error(r.RefusedError))
}

// witnessNotice is the id of the notice about a witness's refusal.
func witnessNotice(k *witness.Key) string { return witnessNoticePrefix + k.String() }

const witnessNoticePrefix = "witness-"

// witnessesName is the database key of the last recorded list of witnesses.
const witnessesName = "witnesses"

// newestWitnesses is the name of the digest of that list in the log, see [store.Newest].
const newestWitnesses = "witnesses"

// onRecord returns the witnesses that the log has as added and not removed since, if the list
// in the database is not the one of the log's newest checkpoint: somebody who can write the database can
// delete that list, and with it what would show that a witness was removed.
func (w *witnesses) onRecord(ctx context.Context) (list witness.List, err error) {
	noted, err := w.store.Meta(ctx, witnessesName)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return nil, err
	}
	if said := store.Newest(w.store, newestWitnesses); said == "" || said == digestOfWitnesses(noted) {
		return nil, nil
	}
	err = nil
	removed := make(map[string]uint64)
	each := func(event string, visit func(place string, e *audit.Entry)) {
		if err == nil {
			err = store.EachWritten(ctx, w.store, &audit.Record{ActionType: audit.ActionSecurity, Event: event}, func(e *audit.Entry) {
				visit(fmt.Sprint(e.Details["key"], " ", e.Details["url"]), e)
			})
		}
	}
	each(audit.EventWitnessRemoved, func(place string, e *audit.Entry) { removed[place] = max(removed[place], e.Seq) })
	each(audit.EventWitnessAdded, func(place string, e *audit.Entry) {
		if e.Seq < removed[place] {
			return
		}
		removed[place] = e.Seq
		// A record has what was read as a witness before.
		if p, err := witness.ParseList("a record", place); err == nil {
			list = append(list, p...)
		}
	})
	return list, err
}

func digestOfWitnesses(list []byte) string { return fmt.Sprintf("sha256:%x", sha256.Sum256(list)) }

// note adds the records of witnesses added to the list or removed from it since it
// was last recorded: in the database's own list, or among the known ones.
func (w *witnesses) note(ctx context.Context, c *store.Change, known ...witness.Place) error {
	list, err := witness.Places(w.keys())
	if err != nil {
		return err
	}
	value, err := w.store.Meta(ctx, witnessesName)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return err
	}
	if said := list.String(); said != "" || len(value) > 0 || len(known) > 0 {
		store.SetNewest(w.store, newestWitnesses, digestOfWitnesses([]byte(said)))
	}
	if list.String() == string(value) && len(known) == 0 {
		return nil
	}
	before, err := witness.ParseList("the witnesses that are on record", string(value))
	if err != nil {
		return err
	}
	for _, p := range known {
		if !slices.ContainsFunc(before, p.Same) {
			before = append(before, p)
		}
	}
	each := func(event string, of, others witness.List) {
		for _, p := range of {
			if !slices.ContainsFunc(others, p.Same) {
				c.Records = append(c.Records, &audit.Record{ID: w.newID(), ActionType: audit.ActionSecurity, Event: event, Details: map[string]any{
					"witness": p.Key.Name(), "key": p.Key.String(), "url": p.URL,
				}})
			}
		}
	}
	each(audit.EventWitnessRemoved, before, list)
	each(audit.EventWitnessAdded, list, before)
	if list.String() != string(value) {
		c.Add(store.Meta{Key: witnessesName, Value: []byte(list.String())})
	}
	return nil
}

// showAll shows a checkpoint to all witnesses at once, and keeps their signatures.
func (w *witnesses) showAll(ctx context.Context, list witness.List, signed string) []error {
	errs := make([]error, len(list))
	var all sync.WaitGroup
	for i, p := range list {
		all.Go(func() { errs[i] = w.show(ctx, p, signed) })
	}
	all.Wait()
	if c, err := audit.OpenCheckpoint(signed); err == nil || errors.Is(err, audit.ErrUnsigned) {
		w.seenBy.heard(list, errs, c.Size, time.Now().UTC())
	}
	return errs
}

// seenBy is how much of the log each witness has seen.
type seenBy struct {
	mu   sync.Mutex
	list []api.WitnessStatus
	// refusing are the keys of the witnesses for which sending was paused; true until a
	// person resumes it.
	refusing map[string]bool
}

// told reports whether sending was already paused for a witness.
func (s *seenBy) told(k *witness.Key) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, told := s.refusing[k.String()]
	return told
}

// tell notes that sending was paused for a witness.
func (s *seenBy) tell(k *witness.Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refusing == nil {
		s.refusing = make(map[string]bool)
	}
	s.refusing[k.String()] = true
	s.mark(k.Name(), true)
}

// resumed notes that a person has looked into the refusals, and returns their notices.
func (s *seenBy) resumed() (notices []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key := range s.refusing {
		if s.refusing[key] {
			notices = append(notices, witnessNoticePrefix+key)
		}
		s.refusing[key] = false
	}
	for i := range s.list {
		s.list[i].Refused = false
	}
	return notices
}

// mark notes whether sending is paused for the witnesses of a name.
func (s *seenBy) mark(name string, refused bool) {
	for i := range s.list {
		if s.list[i].Name == name {
			s.list[i].Refused = refused
		}
	}
}

// heard notes the results of showing witnesses a checkpoint of a size. It forgets witnesses
// that are not listed any more, and refusals of those that sign again.
func (s *seenBy) heard(places witness.List, errs []error, size uint64, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := make([]api.WitnessStatus, len(places))
	for i, p := range places {
		w := api.WitnessStatus{Name: p.Key.Name(), URL: p.URL}
		if at := slices.IndexFunc(s.list, func(was api.WitnessStatus) bool { return was.Name == w.Name && was.URL == w.URL }); at >= 0 {
			w = s.list[at]
		}
		if err := errs[i]; err == nil {
			w.Signed, w.Error, w.FailingSince = max(w.Signed, size), "", time.Time{}
			if !s.refusing[p.Key.String()] {
				delete(s.refusing, p.Key.String())
			}
		} else {
			w.Error = err.Error()
			if w.FailingSince.IsZero() {
				w.FailingSince = now
			}
		}
		w.Refused = s.refusing[p.Key.String()]
		next[i] = w
	}
	s.list = next
}

func (s *seenBy) status() []api.WitnessStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.list)
}

// show shows a checkpoint to one witness, and keeps its signature.
func (w *witnesses) show(ctx context.Context, p witness.Place, signed string) error {
	cosigned, err := p.Ask(ctx, w.store, signed)
	if errors.Is(err, witness.ErrUnknown) {
		// It may know only an earlier key; each key hands over to the next.
		w.handOver(ctx, p)
		cosigned, err = p.Ask(ctx, w.store, signed)
	}
	if refused, ok := errors.AsType[*witness.RefusedError](err); ok {
		// Not every witness reports its last signature.
		kept, lost := witness.KeptOf(w.keys(), p.Key)
		if lost != nil {
			w.log.Warn("what a witness has signed is not known", zap.Error(lost))
		}
		refused.Signed = cmp.Or(refused.Signed, kept)
	}
	if err != nil {
		return err
	}
	return witness.Keep(w.keys(), p.Key, cosigned)
}

// handOver shows a witness the checkpoints in which a key hands over to the next, if
// it has not seen them.
func (w *witnesses) handOver(ctx context.Context, p witness.Place) {
	notes, err := checkpoints.Read(w.checkpoints())
	for _, signed := range notes {
		if c, opened := audit.OpenCheckpoint(signed); errors.Is(opened, audit.ErrUnsigned) && c.HandsOver() && c.Size <= w.store.Head().Seq {
			_, err = p.Ask(ctx, w.store, signed)
		}
	}
	if err != nil {
		w.log.Warn("a witness is not handed over to another key of the log", zap.Error(err))
	}
}
