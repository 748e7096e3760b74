package daemon

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/config"
	"github.com/openclawos/ocipd/internal/evidence/checkpoints"
	"github.com/openclawos/ocipd/internal/evidence/follow"
	"github.com/openclawos/ocipd/internal/evidence/keyring"
	"github.com/openclawos/ocipd/internal/evidence/retention"
	"github.com/openclawos/ocipd/internal/store/logstore"
	"go.uber.org/zap"
	"golang.org/x/mod/sumdb/note"
)

// signing describes the key that signs the log.
func (d *Daemon) signing() *logstore.Signing {
	return &logstore.Signing{
		NewID: d.ids.next,
		Open: func(name, inForce string) (note.Signer, string, error) {
			signer, err := keyring.OpenSigner(config.KeysPath(d.cfg, d.database), name, rand.Reader)
			if err != nil {
				return nil, "", err
			}
			if err := signer.Settle(inForce); err != nil {
				return nil, "", err
			}
			d.signer = signer
			return signer.Note(), signer.Verifier(), nil
		},
	}
}

// checkpoints is the file of checkpoints outside the log.
func (d *Daemon) checkpoints() string { return config.CheckpointsPath(d.cfg, d.database) }

// holdCheckpoints keeps the log's checkpoints outside it. It fails if the log lacks records
// that those checkpoints cover.
func (d *Daemon) holdCheckpoints(ctx context.Context) error {
	path := d.checkpoints()
	o := checkpoints.Options{Path: path, Clock: time.Now, Log: d.log.Named("checkpoints")}
	if checkpoints.HasJournal() {
		o.Journal = checkpoints.Journal
	}
	w, err := checkpoints.Open(o)
	if err != nil {
		return err
	}
	if newest := w.Newest(); newest.Size > 0 {
		if err := d.fits(ctx, path, &newest); err != nil {
			return err
		}
	}
	if err := d.fitsKey(ctx); err != nil {
		return err
	}
	if err := d.keepHandOvers(ctx, w); err != nil {
		d.log.Error("that the log was handed over to another key is not kept outside the log as well", zap.Error(err))
	}
	d.outside.Store(w)
	d.followCheckpoints(ctx, "the checkpoints outside the log", func(_ context.Context, signed string) error {
		return d.keepCheckpoint(w, signed)
	}, func() error { return d.keepCheckpoint(w, d.store.Checkpoint().Note) })
	return nil
}

// checkpointRest is the pause between two looks for a checkpoint, so that a follower does not
// run beside each commit of many.
const checkpointRest = 10 * time.Millisecond

// followCheckpoints calls visit for each new checkpoint until the daemon stops, and atLast
// after all visits.
func (d *Daemon) followCheckpoints(ctx context.Context, name string, visit func(ctx context.Context, signed string) error, atLast func() error) {
	var at atomic.Uint64
	var visited uint64
	f := follow.Start(ctx, follow.Options{
		Log: d.store, At: at.Load, Now: time.Now, Retry: follow.Retry{First: time.Second, Most: time.Minute},
		Take: func(ctx context.Context) (time.Duration, error) {
			head, signed := d.store.Head().Seq, d.store.Checkpoint()
			if signed.Seq > visited {
				if err := visit(ctx, signed.Note); err != nil {
					return 0, err
				}
			}
			at.Store(head)
			visited = signed.Seq
			return checkpointRest, nil
		},
		Failing: "a new checkpoint is missing from " + name + "; trying again", Well: name + " have the newest checkpoint again", Level: zap.ErrorLevel, Zap: d.log,
	})
	d.onStop(name, func() error {
		f.Stop()
		return atLast()
	})
}

// fits returns an error if the log does not match a checkpoint in a file.
func (d *Daemon) fits(ctx context.Context, path string, c *audit.Checkpoint) error {
	if have := d.store.Head().Seq; c.Size > have {
		return checkpoints.Missing(path, have, c.Size)
	}
	root, err := d.store.RootAt(ctx, c.Size)
	if err != nil {
		return err
	}
	if root != c.Root {
		return checkpoints.Differs(path, c.Size)
	}
	return nil
}

// fitsKey returns an error if the log lacks records that its key has signed.
func (d *Daemon) fitsKey(ctx context.Context) error {
	dir := config.KeysPath(d.cfg, d.database)
	signed, err := keyring.Newest(dir)
	if err != nil || signed == "" {
		return err
	}
	c, err := audit.OpenCheckpoint(signed)
	if !errors.Is(err, audit.ErrUnsigned) {
		return fmt.Errorf("cannot use %s: %w; move it aside if the log is whole without it", keyring.NewestPath(dir), err)
	}
	return d.fits(ctx, keyring.NewestPath(dir), &c)
}

// keepCheckpoint stores a checkpoint in all places outside the log.
func (d *Daemon) keepCheckpoint(w *checkpoints.File, signed string) error {
	if signed == "" {
		return nil
	}
	return errors.Join(w.Keep(signed), d.signer.KeepNewest(signed))
}

// keepHandOvers stores the checkpoints that hand over to the key in force, if the newest
// checkpoint outside is of an earlier key.
func (d *Daemon) keepHandOvers(ctx context.Context, w *checkpoints.File) error {
	key, err := d.signer.Public()
	if err != nil {
		return err
	}
	newest := w.Newest()
	if newest.Size == 0 || d.outsideIsOf(key) {
		return nil
	}
	return d.store.EachLine(ctx, max(newest.Size, d.store.Retired()), func(_ uint64, line []byte) error {
		if signed, ok := audit.HandOverOf(line); ok {
			return w.Keep(signed)
		}
		return nil
	})
}

// outsideIsOf reports whether a key signed the last checkpoint outside the log.
func (d *Daemon) outsideIsOf(key note.Verifier) bool {
	notes, err := checkpoints.Read(d.checkpoints())
	if err != nil || len(notes) == 0 {
		return false
	}
	_, err = audit.OpenCheckpoint(notes[len(notes)-1], key)
	return err == nil
}

// rotateKey hands the log over to a new key. After a crash at any point, one of the two is
// in force, and the next start finds out which.
func (d *Daemon) rotateKey() (seq uint64, public string, err error) {
	d.rotating.Lock()
	defer d.rotating.Unlock()
	next, public, err := d.signer.Next()
	if err != nil {
		return 0, "", err
	}
	if seq, err = d.store.RotateKey(next, public); err != nil {
		return 0, "", err
	}
	if err := d.signer.Promote(); err != nil {
		return 0, "", errors.Join(fmt.Errorf("the log is signed with %s from record %d on, and the next start puts its key in place", public, seq), err)
	}
	line, err := d.store.Line(context.Background(), seq)
	if signed, ok := audit.HandOverOf(line); err == nil && ok {
		err = d.outside.Load().Keep(signed)
	}
	if err != nil {
		d.log.Error("that the log was handed over to another key is not kept outside the log as well", zap.Error(err))
	}
	// So that the key also covers everything before.
	return seq, public, d.store.Sign()
}

// unsignedTail is the record of a start that found more records without a checkpoint than a
// killed daemon leaves. The start is about to sign them, so it first records that they were
// unsigned: anybody who can write the database could have added them.
func (d *Daemon) unsignedTail() []*audit.Record {
	tail := d.store.FoundUnsigned()
	if tail.Last == 0 {
		return nil
	}
	fields := []zap.Field{zap.Uint64("first", tail.First), zap.Uint64("last", tail.Last), zap.Time("since", tail.From), zap.Time("until", tail.To)}
	if !tail.Long {
		d.log.Info("the last records were not signed: the daemon before this one did not stop in order", fields...)
		return nil
	}
	d.log.Error("more records than a daemon leaves unsigned stand at the end of the log: they may not be what was decided; compare them with the mirror and what others hold", fields...)
	return []*audit.Record{{
		ID: d.ids.next(), ActionType: audit.ActionSecurity, Event: "unsigned_tail", Details: map[string]any{
			"first": tail.First, "last": tail.Last, "since": tail.From.Format(time.RFC3339Nano), "until": tail.To.Format(time.RFC3339Nano),
		},
	}}
}

// retain starts the removal of records older than audit.keep.
func (d *Daemon) retain(ctx context.Context) error {
	d.retention = retention.Start(ctx, retention.Options{
		Store: d.store, Mirror: d.mirrored.Load(), Index: d.index, Dir: filepath.Dir(d.mirror),
		Followed: func() uint64 { return d.sinks.Behind(d.store.Head()) },
		Removes:  d.reloader.Restate,
		Keep:     func() time.Duration { return d.config().Audit.Keep }, Advised: config.AdvisedKeep, Now: time.Now, Log: d.log,
	})
	d.onStop("retention", d.retention.Close)
	return nil
}

// verify checks the whole log like `ocipd audit verify --database`.
func (d *Daemon) verify(ctx context.Context) (r api.AuditVerifyResult, err error) {
	held, err := checkpoints.Read(d.checkpoints())
	if err != nil {
		return r, err
	}
	newest, err := keyring.Newest(config.KeysPath(d.cfg, d.database))
	if err != nil {
		return r, err
	}
	if newest != "" {
		held = append(held, newest)
	}
	key, err := d.signer.Public()
	if err != nil {
		return r, err
	}
	r.Verifier = d.signer.Verifier()
	proof := audit.Proof{Keys: []note.Verifier{key}, Held: held}
	// Signatures of earlier keys count as evidence, too.
	former, err := keyring.PublicKeys(config.KeysPath(d.cfg, d.database))
	if err != nil {
		return r, err
	}
	for _, k := range former {
		if v, err := note.NewVerifier(k.Verifier); err == nil && v.KeyHash() != key.KeyHash() {
			proof.Former = append(proof.Former, v)
		}
	}
	report, err := d.store.Verify(ctx, proof)
	if fault, ok := errors.AsType[*audit.Fault](err); ok {
		r.Fault, err = &api.AuditFault{Seq: fault.Seq, Problem: fault.Problem}, nil
	}
	r.OK, r.Log = r.Fault == nil, report.Origin
	r.Seq, r.Hash, r.Retired = report.Head.Seq, report.Head.Hash.String(), report.Retired
	r.Signed, r.Checkpoints, r.Held, r.HeldUpTo = report.Signed, report.Checkpoints, report.Held, report.Outside
	r.Late, r.Gaps = report.Late, report.Gaps
	return r, err
}
