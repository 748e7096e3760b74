// Package retention removes old records from the log and from everything that follows it. A
// tombstone stands for them.
package retention

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/evidence/checkpoints"
	"github.com/openclawos/ocipd/internal/evidence/index"
	"github.com/openclawos/ocipd/internal/evidence/mirror"
	"github.com/openclawos/ocipd/internal/store"
	"go.uber.org/zap"
)

// every is the interval of searches for expired records.
const every = time.Hour

// Options configure a keeper.
type Options struct {
	Store  *store.Store
	Mirror *mirror.Mirror
	Index  *index.Index
	// Followed returns the last record that all followers of the log have.
	Followed func() uint64
	// Removes is called before the log's records up to a number are removed. If it fails, they
	// stay.
	Removes func(upTo uint64) error
	// Keep returns the time for which records are kept, zero for ever. A time below Advised causes
	// a warning.
	Keep    func() time.Duration
	Advised time.Duration
	// Dir is the directory of the tombstone, beside the mirror.
	Dir string
	Now func() time.Time
	Log *zap.Logger
}

// Keeper removes expired records until it is closed.
type Keeper struct {
	o    Options
	stop context.CancelFunc
	done chan struct{}
	// looks signals that Keep may have changed.
	looks chan struct{}
	// mu serializes removals.
	mu sync.Mutex
	// owed is set while a follower may have retired records: after the start, which may come after
	// a crash, and after a removal that has failed halfway.
	owed bool
}

// Start finishes an interrupted removal. From then on it removes expired records.
func Start(ctx context.Context, o Options) *Keeper {
	k := &Keeper{o: o, done: make(chan struct{}), looks: make(chan struct{}, 1), owed: true}
	ctx, k.stop = context.WithCancel(context.WithoutCancel(ctx))
	go func() {
		defer close(k.done)
		k.run(ctx)
	}()
	return k
}

// Look makes the keeper ask Keep again.
func (k *Keeper) Look() {
	select {
	case k.looks <- struct{}{}:
	default:
	}
}

// Close ends the keeper.
func (k *Keeper) Close() error {
	k.stop()
	<-k.done
	return nil
}

func (k *Keeper) run(ctx context.Context) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	var warned time.Duration
	for {
		if err := k.finish(ctx); err != nil && ctx.Err() == nil {
			k.o.Log.Error("cannot finish removing retired records; it is tried again", zap.Error(err), zap.Duration("in", every))
		}
		keep := k.o.Keep()
		if keep > 0 && keep < k.o.Advised && keep != warned {
			k.o.Log.Warn("audit.keep has records removed sooner than rules such as the EU AI Act (articles 19 and 26) allow", zap.Duration("keep", keep), zap.Duration("advised", k.o.Advised))
		}
		if warned = keep; keep > 0 {
			if _, err := k.retire(ctx, k.o.Now().Add(-keep)); err != nil && ctx.Err() == nil {
				k.o.Log.Error("cannot remove records that are older than audit.keep", zap.Error(err))
			}
		}
		select {
		case <-tick.C:
		case <-k.looks:
		case <-ctx.Done():
			return
		}
	}
}

// Retire removes old records for good, on an operator's request. It does not end with its caller.
func (k *Keeper) Retire(_ context.Context, _ api.Peer, p *api.AuditRetireParams) (api.AuditRetireResult, error) {
	r, err := k.retire(context.Background(), p.Before)
	if err != nil {
		return r, api.Errorf(api.InternalError, "%v", err)
	}
	return r, nil
}

// retire removes the segments whose last record is older than a moment, and their records from the
// database, if every sink has them.
func (k *Keeper) retire(ctx context.Context, before time.Time) (r api.AuditRetireResult, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	segments, refused := k.o.Mirror.Expired(ctx, before)
	for len(segments) > 0 && segments[len(segments)-1].Last > k.o.Followed() {
		segments = segments[:len(segments)-1]
	}
	if len(segments) == 0 {
		return r, refused
	}
	if err := k.o.Removes(segments[len(segments)-1].Last); err != nil {
		return r, err
	}
	// A tombstone only covers signed records.
	if err := k.o.Store.Sign(); err != nil {
		return r, err
	}
	k.owed = true
	tomb, err := k.o.Store.Retire(ctx, segments[len(segments)-1].Last)
	if err != nil {
		return r, errors.Join(refused, err)
	}
	r = api.AuditRetireResult{Retired: tomb.Head.Seq, Segments: len(segments), AuditSeq: k.o.Store.Head().Seq}
	k.o.Log.Info("audit records retired", zap.Uint64("upTo", r.Retired), zap.Int("segments", r.Segments))
	return r, errors.Join(refused, k.pruneFollowersLocked(ctx, &tomb))
}

// finish finishes the last removal after a crash or a failure.
func (k *Keeper) finish(ctx context.Context) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.owed {
		return nil
	}
	tomb, err := k.o.Store.Tombstone(ctx)
	if errors.Is(err, store.ErrNotFound) {
		k.owed = false
		return nil
	}
	if err == nil {
		err = k.o.Store.Prune(ctx)
	}
	if err != nil {
		return err
	}
	return k.pruneFollowersLocked(ctx, &tomb)
}

// pruneFollowersLocked removes retired records from everything that follows the log.
func (k *Keeper) pruneFollowersLocked(ctx context.Context, tomb *audit.Tombstone) error {
	if err := checkpoints.WriteTombstone(k.o.Dir, tomb); err != nil {
		return err
	}
	_, err := k.o.Mirror.Retire(ctx, tomb.Head.Seq)
	err = errors.Join(err, k.o.Index.Retire(ctx, tomb.Head.Seq))
	k.owed = err != nil
	return err
}
