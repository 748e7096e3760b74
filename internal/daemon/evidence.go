package daemon

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/api/caller"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/evidence/checkpoints"
	"github.com/openclawos/ocipd/internal/evidence/follow"
	"github.com/openclawos/ocipd/internal/evidence/keyring"
	"github.com/openclawos/ocipd/internal/store"
	"github.com/openclawos/ocipd/internal/store/logstore"
	"github.com/openclawos/ocipd/internal/store/storeerror"
	"go.uber.org/zap"
	"golang.org/x/mod/sumdb/note"
)

// evidence is what shows that the log is whole: the key that signs it, and its checkpoints outside
// the database.
type evidence struct {
	places
	log   *zap.Logger
	newID func() string
	// store is set once it is open, and signer while it opens.
	store  *store.Store
	signer *keyring.Signer
	// outside are the checkpoints outside the log.
	outside atomic.Pointer[checkpoints.File]
	// rotating serializes rotations of the key.
	rotating sync.Mutex
	// damaged is the fault that the check of the whole log found, or nil.
	damaged atomic.Pointer[string]
}

// signing describes the key that signs the log.
func (e *evidence) signing() *logstore.Signing {
	return &logstore.Signing{
		NewID: e.newID,
		Open: func(name, inForce string) (note.Signer, string, error) {
			signer, err := keyring.OpenSigner(e.keys(), name, rand.Reader)
			if err != nil {
				return nil, "", err
			}
			if err := signer.Settle(inForce); err != nil {
				return nil, "", err
			}
			e.signer = signer
			return signer.Note(), signer.Verifier(), nil
		},
	}
}

// hold keeps the log's checkpoints outside it. It fails if the log lacks records
// that those checkpoints cover.
func (e *evidence) hold(ctx context.Context, ends *endings) error {
	path := e.checkpoints()
	o := checkpoints.Options{Path: path, Clock: time.Now, Log: e.log.Named("checkpoints")}
	if checkpoints.HasJournal() {
		o.Journal = checkpoints.Journal
	}
	w, err := checkpoints.Open(o)
	if err != nil {
		return err
	}
	if newest := w.Newest(); newest.Size > 0 {
		if err := e.fits(ctx, path, &newest); err != nil {
			return err
		}
	}
	if err := e.fitsKey(ctx); err != nil {
		return err
	}
	if err := e.keepHandOvers(ctx, w); err != nil {
		e.log.Error("that the log was handed over to another key is not kept outside the log as well", zap.Error(err))
	}
	e.outside.Store(w)
	e.follow(ctx, ends, "the checkpoints outside the log", func(_ context.Context, signed string) error {
		return e.keep(w, signed)
	}, func() error { return e.keep(w, e.store.Checkpoint().Note) })
	return nil
}

// checkpointRest is the pause between two looks for a checkpoint, so that a follower does not
// run beside each commit of many.
const checkpointRest = 10 * time.Millisecond

// follow calls visit for each new checkpoint until the daemon stops, and atLast
// after all visits.
func (e *evidence) follow(ctx context.Context, ends *endings, name string, visit func(ctx context.Context, signed string) error, atLast func() error) {
	var at atomic.Uint64
	var visited uint64
	f := follow.Start(ctx, follow.Options{
		Log: e.store, At: at.Load, Now: time.Now, Retry: follow.Retry{First: time.Second, Most: time.Minute},
		Take: func(ctx context.Context) (time.Duration, error) {
			head, signed := e.store.Head().Seq, e.store.Checkpoint()
			if signed.Seq > visited {
				if err := visit(ctx, signed.Note); err != nil {
					return 0, err
				}
			}
			at.Store(head)
			visited = signed.Seq
			return checkpointRest, nil
		},
		Failing: "a new checkpoint is missing from " + name + "; trying again", Well: name + " have the newest checkpoint again", Level: zap.ErrorLevel, Zap: e.log,
	})
	ends.add(name, func() error {
		f.Stop()
		return atLast()
	})
}

// fits returns an error if the log does not match a checkpoint in a file.
func (e *evidence) fits(ctx context.Context, path string, c *audit.Checkpoint) error {
	if have := e.store.Head().Seq; c.Size > have {
		return checkpoints.Missing(path, have, c.Size)
	}
	root, err := e.store.RootAt(ctx, c.Size)
	if err != nil {
		return err
	}
	if root != c.Root {
		return checkpoints.Differs(path, c.Size)
	}
	return nil
}

// fitsKey returns an error if the log lacks records that its key has signed.
func (e *evidence) fitsKey(ctx context.Context) error {
	dir := e.keys()
	signed, err := keyring.Newest(dir)
	if err != nil || signed == "" {
		return err
	}
	c, err := audit.OpenCheckpoint(signed)
	if !errors.Is(err, audit.ErrUnsigned) {
		return fmt.Errorf("cannot use %s: %w; move it aside if the log is whole without it", keyring.NewestPath(dir), err)
	}
	return e.fits(ctx, keyring.NewestPath(dir), &c)
}

// keep stores a checkpoint in all places outside the log.
func (e *evidence) keep(w *checkpoints.File, signed string) error {
	if signed == "" {
		return nil
	}
	return errors.Join(w.Keep(signed), e.signer.KeepNewest(signed))
}

// keepHandOvers stores the checkpoints that hand over to the key in force, if the newest
// checkpoint outside is of an earlier key.
func (e *evidence) keepHandOvers(ctx context.Context, w *checkpoints.File) error {
	key, err := e.signer.Public()
	if err != nil {
		return err
	}
	newest := w.Newest()
	if newest.Size == 0 || e.outsideIsOf(key) {
		return nil
	}
	return e.store.EachLine(ctx, max(newest.Size, e.store.Retired()), func(_ uint64, line []byte) error {
		if signed, ok := audit.HandOverOf(line); ok {
			return w.Keep(signed)
		}
		return nil
	})
}

// outsideIsOf reports whether a key signed the last checkpoint outside the log.
func (e *evidence) outsideIsOf(key note.Verifier) bool {
	notes, err := checkpoints.Read(e.checkpoints())
	if err != nil || len(notes) == 0 {
		return false
	}
	_, err = audit.OpenCheckpoint(notes[len(notes)-1], key)
	return err == nil
}

// rotateKey hands the log over to a new key. After a crash at any point, one of the two is
// in force, and the next start finds out which.
func (e *evidence) rotateKey() (seq uint64, public string, err error) {
	e.rotating.Lock()
	defer e.rotating.Unlock()
	next, public, err := e.signer.Next()
	if err != nil {
		return 0, "", err
	}
	if seq, err = e.store.RotateKey(next, public); err != nil {
		return 0, "", err
	}
	if err := e.signer.Promote(); err != nil {
		return 0, "", errors.Join(fmt.Errorf("the log is signed with %s from record %d on, and the next start puts its key in place", public, seq), err)
	}
	line, err := e.store.Line(context.Background(), seq)
	if signed, ok := audit.HandOverOf(line); err == nil && ok {
		err = e.outside.Load().Keep(signed)
	}
	if err != nil {
		e.log.Error("that the log was handed over to another key is not kept outside the log as well", zap.Error(err))
	}
	// So that the key also covers everything before.
	return seq, public, e.store.Sign()
}

// unsignedTail is the record of a start that found more records without a checkpoint than a
// killed daemon leaves. The start is about to sign them, so it first records that they were
// unsigned: anybody who can write the database could have added them.
func (e *evidence) unsignedTail() []*audit.Record {
	tail := e.store.FoundUnsigned()
	if tail.Last == 0 {
		return nil
	}
	fields := []zap.Field{zap.Uint64("first", tail.First), zap.Uint64("last", tail.Last), zap.Time("since", tail.From), zap.Time("until", tail.To)}
	if !tail.Long {
		e.log.Info("the last records were not signed: the daemon before this one did not stop in order", fields...)
		return nil
	}
	e.log.Error("more records than a daemon leaves unsigned stand at the end of the log: they may not be what was decided; compare them with the mirror and what others hold", fields...)
	return []*audit.Record{{
		ID: e.newID(), ActionType: audit.ActionSecurity, Event: "unsigned_tail", Details: map[string]any{
			"first": tail.First, "last": tail.Last, "since": tail.From.Format(time.RFC3339Nano), "until": tail.To.Format(time.RFC3339Nano),
		},
	}}
}

// verify checks the whole log like `ocipd audit verify --database`.
func (e *evidence) verify(ctx context.Context) (r api.AuditVerifyResult, err error) {
	held, err := checkpoints.Read(e.checkpoints())
	if err != nil {
		return r, err
	}
	newest, err := keyring.Newest(e.keys())
	if err != nil {
		return r, err
	}
	if newest != "" {
		held = append(held, newest)
	}
	key, err := e.signer.Public()
	if err != nil {
		return r, err
	}
	r.Verifier = e.signer.Verifier()
	proof := audit.Proof{Keys: []note.Verifier{key}, Held: held}
	// Signatures of earlier keys count as evidence, too.
	former, err := keyring.PublicKeys(e.keys())
	if err != nil {
		return r, err
	}
	for _, k := range former {
		if v, err := note.NewVerifier(k.Verifier); err == nil && v.KeyHash() != key.KeyHash() {
			proof.Former = append(proof.Former, v)
		}
	}
	report, err := e.store.Verify(ctx, proof)
	if fault, ok := errors.AsType[*audit.Fault](err); ok {
		r.Fault, err = &api.AuditFault{Seq: fault.Seq, Problem: fault.Problem}, nil
	}
	r.OK, r.Log = r.Fault == nil, report.Origin
	r.Seq, r.Hash, r.Retired = report.Head.Seq, report.Head.Hash.String(), report.Retired
	r.Signed, r.Checkpoints, r.Held, r.HeldUpTo = report.Signed, report.Checkpoints, report.Held, report.Outside
	r.Late, r.Gaps = report.Late, report.Gaps
	return r, err
}

// rotate answers audit.rotate_key: it hands the log over to a new key. It continues if the caller goes away.
func (e *evidence) rotate(_ context.Context, who api.Peer, _ *api.Empty) (api.AuditRotateKeyResult, error) {
	_, err := e.store.Commit(&store.Change{Drains: true, Records: []*audit.Record{{
		ID: e.newID(), ActionType: audit.ActionSecurity, Event: "key_rotation", Details: caller.Details(who),
	}}})
	if err != nil {
		e.log.Error("cannot record that the log gets a new key: the old one stays", zap.Error(err))
		return api.AuditRotateKeyResult{}, storeerror.NotRecorded("cannot record it, so nothing was done", err)
	}
	previous := e.signer.Verifier()
	seq, public, err := e.rotateKey()
	return api.AuditRotateKeyResult{Verifier: public, Previous: previous, AuditSeq: seq}, err
}

// check answers audit.verify.
func (e *evidence) check(ctx context.Context, _ *api.Empty) (api.AuditVerifyResult, error) {
	r, err := e.verify(ctx)
	if err != nil && ctx.Err() == nil {
		return r, api.Errorf(api.InternalError, "%v", err)
	}
	return r, err
}
