package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/base/filewatch"
	"github.com/openclawos/ocipd/internal/config"
	"github.com/openclawos/ocipd/internal/evidence/checkpoints"
	"github.com/openclawos/ocipd/internal/evidence/witness"
	"github.com/openclawos/ocipd/internal/store"
	"go.uber.org/zap"
)

// lastWord bounds how long a stop waits for the witnesses, and a start that fails for people to be told.
const lastWord = 2 * time.Second

// keysDir is the directory of the log's keys, where its witnesses are listed too.
func (d *Daemon) keysDir() string { return config.KeysPath(d.cfg, d.database) }

// askWitnesses asks the log's witnesses for its newest head, and refuses to go on with
// a log that one of them refuses: it was put back to an older state, or another one goes
// on from it. A witness that cannot be asked stops nothing; whoever could keep the daemon
// from asking could stop it as well. From then on each is shown every checkpoint.
func (d *Daemon) askWitnesses(ctx context.Context) error {
	list, err := witness.Places(d.keysDir())
	if err == nil {
		err = d.seenBy.pausedBefore(ctx, d.store, list)
	}
	if err != nil {
		return err
	}
	if newest := d.store.Checkpoint().Note; newest != "" {
		for i, err := range d.showWitnesses(ctx, list, newest) {
			if refused, ok := errors.AsType[*witness.RefusedError](err); ok {
				return &audit.Fault{Problem: fmt.Sprintf("cannot go on with this audit log: %v; put the one back that the witness has signed; or, if you restored this one knowingly, take the witness off the list (ocipd audit witness remove %s), and have it forget the log", refused, list[i].Key.Name())}
			}
			if err != nil {
				d.log.Warn("a witness does not say how far it saw the log", zap.Error(err))
			}
		}
	}
	d.followCheckpoints(ctx, "the witnesses", func(ctx context.Context, signed string) error {
		select {
		case <-d.recorded:
			d.tellWitnesses(ctx, signed)
		case <-ctx.Done():
		}
		return nil // a witness that does not sign is asked again with the next one
	}, func() error {
		ctx, cancel := context.WithTimeout(context.Background(), d.seenBy.lastWord)
		defer cancel()
		// What one of them says against it, the next start asks for again.
		_ = d.showListed(ctx, d.store.Checkpoint().Note)
		return nil
	})
	return nil
}

// pausedBefore takes up for which witnesses sending was paused before the daemon was stopped, and no person has resumed
// it: such a witness may be away by now, and its refusal stands all the same.
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

// byWitness begins the name of who has paused sending where that is a witness.
const byWitness = "witness:"

// watchWitnesses has a change of the list go on record, and who is new on it shown the log.
func (d *Daemon) watchWitnesses(ctx context.Context) error {
	path := witness.ListPath(d.keysDir())
	watcher, err := filewatch.Start(context.WithoutCancel(ctx), path, func() string { return filewatch.Fingerprint(path) }, func() {
		d.tellWitnesses(context.WithoutCancel(ctx), d.store.Checkpoint().Note)
	})
	if err != nil {
		return fmt.Errorf("cannot watch the list of witnesses: %w", err)
	}
	d.onStop("the watch of the witnesses", func() error {
		watcher.Close()
		return nil
	})
	return nil
}

// tellWitnesses shows a checkpoint to whoever is listed now, and puts on record what has
// changed of the list, and who refuses.
func (d *Daemon) tellWitnesses(ctx context.Context, signed string) {
	// One after another: a smaller checkpoint behind a larger one would be refused.
	d.seenBy.telling.Lock()
	defer d.seenBy.telling.Unlock()
	changed := &store.Change{Drains: true}
	err := d.noteWitnesses(ctx, changed)
	if err == nil && len(changed.Records) > 0 {
		_, err = d.store.Commit(changed)
	}
	if err != nil {
		d.log.Error("cannot record who the witnesses of the log are", zap.Error(err))
	}
	for _, refused := range d.showListed(ctx, signed) {
		d.refused(refused)
	}
}

// refusal is a witness that refuses the log.
type refusal struct {
	witness.Place
	*witness.RefusedError
}

// showListed shows a checkpoint to whoever is listed now, and returns who refuses it.
func (d *Daemon) showListed(ctx context.Context, signed string) (refusals []refusal) {
	list, err := witness.Places(d.keysDir())
	if err != nil {
		d.log.Error("the witnesses of the log are not known", zap.Error(err))
		return nil
	}
	if signed == "" {
		return nil
	}
	for i, err := range d.showWitnesses(ctx, list, signed) {
		if err != nil && ctx.Err() == nil {
			d.log.Error("a checkpoint is not witnessed", zap.Error(err))
		}
		if refused, ok := errors.AsType[*witness.RefusedError](err); ok {
			refusals = append(refusals, refusal{list[i], refused})
		}
	}
	return refusals
}

// refused stops all sending because a witness has signed another log of this name, until a
// person has looked into it: whoever was told something was told it of one of the two.
func (d *Daemon) refused(r refusal) {
	if d.seenBy.told(r.Key) {
		return
	}
	details := map[string]any{"witness": r.Key.Name(), "key": r.Key.String(), "url": r.URL, "have": int(r.Have), "seen": int(r.Seen), "note": r.Shown}
	if r.Signed != "" {
		details["signed"] = r.Signed
	}
	if r.Answer != "" {
		details["answer"] = r.Answer
	}
	err := d.kernel.Halt(byWitness+r.Key.Name(), &audit.Record{
		ID: d.ids.next(), ActionType: audit.ActionSecurity, Event: "witness_refused", PolicyReason: r.Error(), Details: details,
	})
	if err != nil {
		d.log.Error("cannot record that a witness refuses the log: it is tried again with the next checkpoint", zap.Error(err))
		return
	}
	d.seenBy.tell(r.Key)
	d.notices.Alarm(witnessNotice(r.Key), "A witness refuses the audit log", fmt.Sprintf("%v\nAll sending is paused.\nocipd status", r.RefusedError))
	d.log.Error("sending is paused: a witness has signed another log of this name", zap.Error(r.RefusedError))
}

// resume ends a pause, as a person wants it who has looked into why there was one.
func (d *Daemon) resume(ctx context.Context, who api.Peer, p *api.PauseParams) (api.PauseResult, error) {
	result, err := d.kernel.Resume(ctx, who, p)
	if err == nil && result.Changed && p.Scope() == api.PausedAll {
		for _, notice := range append(d.seenBy.resumed(), logNotice) {
			d.notices.Decided(notice)
		}
	}
	return result, err
}

// witnessNotice is what people are told by that a witness refuses the log.
func witnessNotice(k *witness.Key) string { return witnessNoticePrefix + k.String() }

const witnessNoticePrefix = "witness-"

// witnessesName is where the database keeps which witnesses were on record last.
const witnessesName = "witnesses"

// noteWitnesses adds the records of who was added to the list of witnesses, and removed,
// since it was on record last.
func (d *Daemon) noteWitnesses(ctx context.Context, c *store.Change) error {
	list, err := witness.Places(d.keysDir())
	if err != nil {
		return err
	}
	value, err := d.store.Meta(ctx, witnessesName)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return err
	}
	if list.String() == string(value) {
		return nil
	}
	before, err := witness.ParseList("the witnesses that are on record", string(value))
	if err != nil {
		return err
	}
	note := func(event string, of, others witness.List) {
		for _, p := range of {
			if !slices.ContainsFunc(others, func(o witness.Place) bool { return o.Key.String() == p.Key.String() && o.URL == p.URL }) {
				c.Records = append(c.Records, &audit.Record{ID: d.ids.next(), ActionType: audit.ActionSecurity, Event: event, Details: map[string]any{
					"witness": p.Key.Name(), "key": p.Key.String(), "url": p.URL,
				}})
			}
		}
	}
	note(audit.EventWitnessRemoved, before, list)
	note(audit.EventWitnessAdded, list, before)
	if len(c.Records) > 0 {
		c.Add(store.Meta{Key: witnessesName, Value: []byte(list.String())})
	}
	return nil
}

// showWitnesses shows a checkpoint to all at once, and keeps what they sign.
func (d *Daemon) showWitnesses(ctx context.Context, list witness.List, signed string) []error {
	errs := make([]error, len(list))
	var all sync.WaitGroup
	for i, p := range list {
		all.Go(func() { errs[i] = d.showWitness(ctx, p, signed) })
	}
	all.Wait()
	if c, err := audit.OpenCheckpoint(signed); err == nil || errors.Is(err, audit.ErrUnsigned) {
		d.seenBy.heard(list, errs, c.Size, time.Now().UTC())
	}
	return errs
}

// seenBy is how far the witnesses of the log are.
type seenBy struct {
	// lastWord is how long a stop waits for them, and a start that fails for people to be told.
	lastWord time.Duration
	// telling is held while witnesses are told of a checkpoint.
	telling sync.Mutex

	mu   sync.Mutex
	list []api.WitnessStatus
	// refusing are the keys of the witnesses for which sending was paused, with true until a
	// person resumes it.
	refusing map[string]bool
}

// told reports whether sending was paused for a witness already.
func (s *seenBy) told(k *witness.Key) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, told := s.refusing[k.String()]
	return told
}

// tell remembers that sending was paused for a witness.
func (s *seenBy) tell(k *witness.Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refusing == nil {
		s.refusing = make(map[string]bool)
	}
	s.refusing[k.String()] = true
	s.mark(k.Name(), true)
}

// resumed remembers that a person has looked into what witnesses refuse, and returns the
// notices of that.
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

// mark says of the witnesses of a name whether sending is paused for them.
func (s *seenBy) mark(name string, refused bool) {
	for i := range s.list {
		if s.list[i].Name == name {
			s.list[i].Refused = refused
		}
	}
}

// heard keeps what came of showing a checkpoint of this size to witnesses. One that is not
// among them any more is forgotten, and so is that one has refused, once it signs again.
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

// showWitness shows a checkpoint to one witness, and keeps what it signs.
func (d *Daemon) showWitness(ctx context.Context, p witness.Place, signed string) error {
	cosigned, err := p.Ask(ctx, d.store, signed)
	if errors.Is(err, witness.ErrUnknown) {
		// It may know an earlier key only: each key hands over to the next.
		d.handWitnessOver(ctx, p)
		cosigned, err = p.Ask(ctx, d.store, signed)
	}
	if refused, ok := errors.AsType[*witness.RefusedError](err); ok {
		// Not every witness says what it has signed.
		kept, lost := witness.KeptOf(d.keysDir(), p.Key)
		if lost != nil {
			d.log.Warn("what a witness has signed is not known", zap.Error(lost))
		}
		refused.Signed = cmp.Or(refused.Signed, kept)
	}
	if err != nil {
		return err
	}
	return witness.Keep(d.keysDir(), p.Key, cosigned)
}

// handWitnessOver shows a witness the checkpoints in which a key hands over to the
// next, as far as it has not seen them.
func (d *Daemon) handWitnessOver(ctx context.Context, p witness.Place) {
	notes, err := checkpoints.Read(d.checkpoints())
	for _, signed := range notes {
		if c, opened := audit.OpenCheckpoint(signed); errors.Is(opened, audit.ErrUnsigned) && c.HandsOver() && c.Size <= d.store.Head().Seq {
			_, err = p.Ask(ctx, d.store, signed)
		}
	}
	if err != nil {
		d.log.Warn("a witness is not handed over to another key of the log", zap.Error(err))
	}
}
