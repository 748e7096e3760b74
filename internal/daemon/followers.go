package daemon

import (
	"context"
	"errors"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/config"
	"github.com/openclawos/ocipd/internal/evidence/export"
	"github.com/openclawos/ocipd/internal/evidence/index"
	"github.com/openclawos/ocipd/internal/evidence/mirror"
	"github.com/openclawos/ocipd/internal/evidence/retention"
	"github.com/openclawos/ocipd/internal/store"
	"go.uber.org/zap"
)

// followers read the log as it grows.
type followers struct {
	mirror    mirrored
	index     *index.Index
	sinks     *export.Set
	retention *retention.Keeper
}

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
		Path: d.places.mirror, Source: d.store, Database: d.places.database, Clock: time.Now, Log: d.log.Named("mirror"),
		RotateBytes: int64(d.cfg.Audit.Rotate.Bytes), RotateAge: d.cfg.Audit.Rotate.Age, Lost: d.mirrorLost,
	})
	if err != nil {
		return err
	}
	d.followers.mirror.Store(open)
	d.ends.add("the mirror", func() error {
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
		Details: map[string]any{"file": d.places.mirror, "problem": problem},
	}}})
	if err != nil && !errors.Is(err, store.ErrClosed) {
		d.log.Error("cannot record that the mirror was lost", zap.Error(err))
	}
}

// openIndex starts to index the log. It cannot fail, because without an index the daemon
// reads the log itself.
func (d *Daemon) openIndex(ctx context.Context) error {
	d.followers.index = index.Open(ctx, index.Options{
		Path: index.Path(d.places.database), Log: d.store, Now: time.Now, Logger: d.log.Named("index"),
	})
	d.ends.add("the index", d.followers.index.Close)
	return nil
}

// retain starts the removal of records older than audit.keep.
func (d *Daemon) retain(ctx context.Context) error {
	d.followers.retention = retention.Start(ctx, retention.Options{
		Store: d.store, Mirror: d.followers.mirror.Load(), Index: d.followers.index, Dir: filepath.Dir(d.places.mirror),
		Followed: func() uint64 { return d.followers.sinks.Behind(d.store.Head()) },
		Removes:  d.reloader.Restate,
		Keep:     func() time.Duration { return d.config().Audit.Keep }, Advised: config.AdvisedKeep, Now: time.Now, Log: d.log,
	})
	d.ends.add("retention", d.followers.retention.Close)
	return nil
}
