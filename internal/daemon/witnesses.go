package daemon

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/checkpoints"
	"github.com/openclawos/ocipd/internal/config"
	"github.com/openclawos/ocipd/internal/witness"
	"go.uber.org/zap"
)

// lastWord bounds how long a stop waits for the witnesses.
const lastWord = 2 * time.Second

// askWitnesses asks the log's witnesses for its newest head, and refuses to go on with
// a log of which one has seen more: it was put back to an older state. A witness that
// cannot be asked stops nothing; whoever could keep the daemon from asking could stop
// it as well. From then on each is shown every checkpoint.
func (d *Daemon) askWitnesses(ctx context.Context) error {
	dir := config.KeysPath(d.cfg, d.database)
	list, err := witness.Places(dir)
	if err != nil {
		return err
	}
	if newest := d.store.Checkpoint().Note; newest != "" {
		for _, err := range d.showWitnesses(ctx, list, newest) {
			if larger, ok := errors.AsType[*witness.LargerError](err); ok {
				return &audit.Fault{Problem: fmt.Sprintf("cannot go on with this audit log: %v; put the newer one back; or, if you restored it knowingly, take the witness out of %s/witnesses, and have it forget the log", larger, dir)}
			}
			if err != nil {
				d.log.Warn("a witness does not say how far it saw the log", zap.Error(err))
			}
		}
	}
	d.followCheckpoints(ctx, "the witnesses", func(ctx context.Context, signed string) { d.tellWitnesses(ctx, dir, signed) }, func() error {
		ctx, cancel := context.WithTimeout(context.Background(), lastWord)
		defer cancel()
		d.tellWitnesses(ctx, dir, d.store.Checkpoint().Note)
		return nil
	})
	return nil
}

// tellWitnesses shows a checkpoint to whoever is listed now.
func (d *Daemon) tellWitnesses(ctx context.Context, dir, signed string) {
	list, err := witness.Places(dir)
	if err != nil {
		d.log.Error("the witnesses of the log are not known", zap.Error(err))
		return
	}
	if signed == "" {
		return
	}
	for _, err := range d.showWitnesses(ctx, list, signed) {
		if err != nil && ctx.Err() == nil {
			d.log.Error("a checkpoint is not witnessed", zap.Error(err))
		}
	}
}

// showWitnesses shows a checkpoint to all at once, and keeps what they sign.
func (d *Daemon) showWitnesses(ctx context.Context, list []witness.Place, signed string) []error {
	errs := make([]error, len(list))
	var all sync.WaitGroup
	for i, p := range list {
		all.Go(func() { errs[i] = d.showWitness(ctx, p, signed) })
	}
	all.Wait()
	return errs
}

func (d *Daemon) showWitness(ctx context.Context, p witness.Place, signed string) error {
	cosigned, err := p.Ask(ctx, d.store, signed)
	if errors.Is(err, witness.ErrUnknown) {
		// It may know an earlier key only: each key hands over to the next.
		d.handWitnessOver(ctx, p)
		cosigned, err = p.Ask(ctx, d.store, signed)
	}
	if err != nil {
		return err
	}
	return witness.Keep(config.KeysPath(d.cfg, d.database), p.Key, cosigned)
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
