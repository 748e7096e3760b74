package daemon

import (
	"context"
	"errors"
	"path/filepath"
	"time"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/config"
	"github.com/openclawos/ocipd/internal/keyring"
	"github.com/openclawos/ocipd/internal/store"
	"github.com/openclawos/ocipd/internal/witness"
	"go.uber.org/zap"
	"golang.org/x/mod/sumdb/note"
)

// retainEvery is how often the daemon looks for what has outlived audit.keep.
const retainEvery = time.Hour

// retain finishes a removal that was broken off, and from then on removes what
// is older than audit.keep.
func (d *Daemon) retain(ctx context.Context) error {
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan struct{})
	go func() {
		defer close(done)
		d.retainOn(ctx)
	}()
	d.onStop("retention", func() error {
		stop()
		<-done
		return nil
	})
	return nil
}

func (d *Daemon) retainOn(ctx context.Context) {
	if err := d.finishRetiring(ctx); err != nil && ctx.Err() == nil {
		d.log.Error("cannot finish removing retired records", zap.Error(err))
	}
	tick := time.NewTicker(retainEvery)
	defer tick.Stop()
	for {
		if keep := d.config().Audit.Keep; keep > 0 {
			if _, err := d.retire(ctx, time.Now().Add(-keep)); err != nil && ctx.Err() == nil {
				d.log.Error("cannot remove records that are older than audit.keep", zap.Error(err))
			}
		}
		select {
		case <-tick.C:
		case <-d.kept:
		case <-ctx.Done():
			return
		}
	}
}

// retire removes the segments whose last record is older than a moment, and
// their records from the database, if every sink has them.
func (d *Daemon) retire(ctx context.Context, before time.Time) (r api.AuditRetireResult, err error) {
	d.retiring.Lock()
	defer d.retiring.Unlock()
	segments, refused := d.mirrored.Load().Expired(ctx, before)
	for len(segments) > 0 && segments[len(segments)-1].Last > d.exported() {
		segments = segments[:len(segments)-1]
	}
	if len(segments) == 0 {
		return r, refused
	}
	// A tombstone stands for what was signed before.
	if err := d.store.Sign(); err != nil {
		return r, err
	}
	tomb, err := d.store.Retire(ctx, segments[len(segments)-1].Last)
	if err != nil {
		return r, errors.Join(refused, err)
	}
	r = api.AuditRetireResult{Retired: tomb.Head.Seq, Segments: len(segments), AuditSeq: d.store.Head().Seq}
	d.log.Info("audit records retired", zap.Uint64("upTo", r.Retired), zap.Int("segments", r.Segments))
	return r, errors.Join(refused, d.bury(ctx, &tomb))
}

// finishRetiring takes up what a crash left of the last removal.
func (d *Daemon) finishRetiring(ctx context.Context) error {
	d.retiring.Lock()
	defer d.retiring.Unlock()
	tomb, err := d.store.Tombstone(ctx)
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	return errors.Join(d.store.Prune(ctx), d.bury(ctx, &tomb))
}

// bury takes retired records out of everything that follows the log.
func (d *Daemon) bury(ctx context.Context, tomb *audit.Tombstone) error {
	if err := witness.WriteTombstone(filepath.Dir(d.mirror), tomb); err != nil {
		return err
	}
	_, err := d.mirrored.Load().Retire(ctx, tomb.Head.Seq)
	return errors.Join(err, d.index.Retire(ctx, tomb.Head.Seq))
}

// verify checks the whole log as `ocipd audit verify --database` does.
func (d *Daemon) verify(ctx context.Context) (r api.AuditVerifyResult, err error) {
	held, err := witness.Read(d.checkpoints())
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
	report, err := d.store.Verify(ctx, proof)
	if fault, ok := errors.AsType[*audit.Fault](err); ok {
		r.Fault, err = &api.AuditFault{Seq: fault.Seq, Problem: fault.Problem}, nil
	}
	r.OK, r.Log = r.Fault == nil, report.Origin
	r.Seq, r.Hash, r.Retired = report.Head.Seq, report.Head.Hash.String(), report.Retired
	r.Signed, r.Checkpoints, r.Held = report.Signed, report.Checkpoints, report.Held
	r.Late, r.Gaps = report.Late, report.Gaps
	return r, err
}
