package daemon

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/evidence/mirror"
	"github.com/openclawos/ocipd/internal/store"
	"go.uber.org/zap"
)

// mirrored is the mirror, once it is open; the store asks for it from the start.
type mirrored struct{ atomic.Pointer[mirror.Mirror] }

// alive returns an error while the mirror's file is not the expected one.
func (m *mirrored) alive() error {
	if open := m.Load(); open != nil {
		return open.Check()
	}
	return nil
}

// openMirror comes right after the store, so it ends right before it, after all records of a stop.
func (d *Daemon) openMirror(ctx context.Context) error {
	open, err := mirror.Open(ctx, mirror.Options{
		Path: d.mirror, Source: d.store, Database: d.database, Clock: time.Now, Log: d.log.Named("mirror"),
		RotateBytes: int64(d.cfg.Audit.Rotate.Bytes), RotateAge: d.cfg.Audit.Rotate.Age, Lost: d.mirrorLost,
	})
	if err != nil {
		return err
	}
	d.mirrored.Store(open)
	d.onStop("the mirror", func() error {
		ctx, cancel := context.WithTimeout(context.Background(), mirrorPatience)
		defer cancel()
		return open.Close(ctx)
	})
	return nil
}

// mirrorPatience bounds a stop's wait for the mirror. The next start completes the mirror.
const mirrorPatience = 30 * time.Second

// mirrorLost records that the mirror's file was tampered with.
func (d *Daemon) mirrorLost(problem string) {
	_, err := d.store.Commit(&store.Change{Alarm: true, Records: []*audit.Record{{
		ID: d.ids.next(), ActionType: audit.ActionSecurity, Event: "mirror_lost",
		Details: map[string]any{"file": d.mirror, "problem": problem},
	}}})
	if err != nil && !errors.Is(err, store.ErrClosed) {
		d.log.Error("cannot record that the mirror was lost", zap.Error(err))
	}
}
