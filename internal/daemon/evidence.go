package daemon

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/openclawos/ocipd/internal/config"
	"github.com/openclawos/ocipd/internal/keyring"
	"github.com/openclawos/ocipd/internal/store"
	"github.com/openclawos/ocipd/internal/witness"
	"go.uber.org/zap"
	"golang.org/x/mod/sumdb/note"
)

// signing takes up the key that the log is signed with.
func (d *Daemon) signing() *store.Signing {
	return &store.Signing{
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

// exported is the last record that everything that follows the log has.
func (d *Daemon) exported() uint64 { return d.sinks.Behind(d.store.Head()) }

// witnessLog keeps the log's checkpoints outside it, and refuses to go on with
// a log that lacks what was witnessed.
func (d *Daemon) witnessLog(ctx context.Context) error {
	path := d.checkpoints()
	o := witness.Options{Path: path, Clock: time.Now, Log: d.log.Named("witness")}
	if witness.HasJournal() {
		o.Journal = witness.Journal
	}
	w, err := witness.Open(o)
	if err != nil {
		return err
	}
	if newest := w.Newest(); newest.Size > 0 {
		if have := d.store.Head().Seq; newest.Size > have {
			return witness.Missing(path, have, newest.Size)
		}
		root, err := d.store.RootAt(ctx, newest.Size)
		if err != nil {
			return err
		}
		if root != newest.Root {
			return witness.Differs(path, newest.Size)
		}
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan struct{})
	go func() {
		defer close(done)
		d.keepCheckpoints(ctx, w)
	}()
	d.onStop(func() error {
		stop()
		<-done
		return w.Keep(d.store.Checkpoint().Note)
	})
	return nil
}

func (d *Daemon) keepCheckpoints(ctx context.Context, w *witness.Witness) {
	var last uint64
	for {
		signed, err := d.store.WaitCheckpoint(ctx, last)
		if err != nil {
			return
		}
		last = signed.Seq
		if err := w.Keep(signed.Note); err != nil {
			d.log.Error("a checkpoint stays in the log alone", zap.Error(err))
		}
	}
}

// rotateKey hands the log over to a new key. A crash at any point leaves one of
// the two in force, and the next start finds out which.
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
	// So that it is in force for everything before, too.
	return seq, public, d.store.Sign()
}
