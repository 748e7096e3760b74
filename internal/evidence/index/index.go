// Package index finds records in the audit log by their subjects, and counts them over time. It is
// derived: it has a database of its own beside the store's, which one follower fills from the log
// in the background. The index is made again from nothing if it is lost, damaged or of another log.
// No decision waits for it, and no commit does any work for it.
//
// Its answers are complete all the same: records that are not indexed yet are read from the log's
// end, and without an index the whole log is read. Every returned line has been checked against the
// filter.
//
// The caller opens an [Index] over an open log and closes it before the log.
package index

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/evidence/follow"
	"go.uber.org/zap"
	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"
)

// Log is the indexed log.
type Log interface {
	follow.Log
	// Lines returns the lines of some records, nil for a missing one.
	Lines(ctx context.Context, seqs []uint64) ([][]byte, error)
	// SeqAt returns the number of the last record before a moment.
	SeqAt(ctx context.Context, at time.Time) (uint64, error)
	// Query returns records between two, both exclusive, newest first. It reads all of them, or a
	// part of them and returns where to continue.
	Query(ctx context.Context, f audit.Filter, after, before uint64, limit int) (lines [][]byte, next uint64, err error)
}

// Options configure an index.
type Options struct {
	// Path is the index's own database. A file at this path that is no index of this log is
	// deleted.
	Path string
	Log  Log
	Now  func() time.Time
	// Logger receives the reasons that the index cannot be used.
	Logger *zap.Logger
}

// Index is an open index. Its methods are safe for concurrent use.
type Index struct {
	path string
	log  Log
	now  func() time.Time
	zap  *zap.Logger

	// files is read-locked by users of the file, and write-locked to open or close it.
	files sync.RWMutex
	file  *file
	// writing is held by the goroutine that writes to the file.
	writing sync.Mutex

	// mu guards the following fields. have is the last indexed record.
	mu   sync.RWMutex
	have uint64
	// broken is set from the discovery of damage until the file is made again. damage describes it
	// until the follower handles it.
	broken bool
	damage error
	// complete are the shards that have been compared with the log since the file was opened, and
	// lacked nothing. Queries read the log for others.
	complete map[uint64]bool
	// retired is the last record that is still to be forgotten, zero for none.
	retired uint64

	loop *follow.Follower
	// alarms signals damage.
	alarms chan struct{}

	// Only the loop uses the following fields. unchecked is the number of shards, the oldest ones,
	// that are still to be compared with the log since checks began. checkAt is the time of the
	// next one.
	pace      pace
	unchecked uint64
	checkAt   time.Time
}

// Open starts to open and fill an index. It does not wait and does not fail: without an index,
// queries read the log.
func Open(ctx context.Context, o Options) *Index {
	x := &Index{path: o.Path, log: o.Log, now: o.Now, zap: o.Logger, alarms: make(chan struct{}, 1)}
	x.pace = pace{now: x.now, at: x.now(), seq: x.log.Head().Seq}
	x.loop = follow.Start(ctx, follow.Options{
		Log: o.Log, At: x.Indexed, Take: x.follow, Now: o.Now, Retry: follow.Retry{First: time.Second, Most: time.Minute},
		Due: func() time.Time { return x.checkAt }, Wake: func() <-chan struct{} { return x.alarms },
		Failing: "cannot update the audit index; queries read the log until it is up to date", Well: "the audit index is up to date again",
		Level: zap.ErrorLevel, Zap: o.Logger,
	})
	return x
}

// Close ends the follower and closes the file. Later queries read the log.
func (x *Index) Close() error {
	x.loop.Stop()
	x.files.Lock()
	defer x.files.Unlock()
	if x.file == nil {
		return nil
	}
	err := x.file.close()
	x.file = nil
	return err
}

// Shrink releases the memory of pages, which are read again on demand.
func (x *Index) Shrink() {
	x.files.RLock()
	defer x.files.RUnlock()
	x.writing.Lock()
	defer x.writing.Unlock()
	if x.file != nil {
		// A failure only costs memory.
		_ = sqlitex.ExecuteTransient(x.file.writer, "PRAGMA shrink_memory", nil)
	}
}

// Indexed returns the last indexed record. The records after it are read from the log.
func (x *Index) Indexed() uint64 {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.have
}

// follow indexes the next records, and compares a shard with the log if it is due. An unusable file
// is deleted, and made again at the next attempt.
func (x *Index) follow(ctx context.Context) (rest time.Duration, err error) {
	x.mu.Lock()
	err, x.damage = x.damage, nil
	x.broken = err != nil
	x.mu.Unlock()
	if err == nil {
		rest, err = x.keepUp(ctx)
	}
	if err != nil && ctx.Err() == nil && !blameless(err) {
		if err := x.discard(); err != nil {
			x.zap.Error("cannot discard the audit index", zap.Error(err))
		}
	}
	return rest, err
}

func (x *Index) keepUp(ctx context.Context) (rest time.Duration, err error) {
	if err := x.open(ctx); err != nil {
		return 0, err
	}
	if err := x.forget(ctx); err != nil {
		return 0, err
	}
	have, began := x.Indexed(), x.now()
	if have < x.log.Head().Seq {
		if err := x.advance(ctx, x.pace.most()); err != nil {
			return 0, err
		}
		rest = x.pace.rest(x.now().Sub(began), x.log.Head().Seq, x.Indexed()-have)
	}
	return rest, x.check(ctx)
}

// blameless reports whether an error does not indicate a fault in the file.
func blameless(err error) bool {
	var ofLog logError
	return errors.As(err, &ofLog) || sqlite.ErrCode(err).ToPrimary() == sqlite.ResultFull
}

// The follower indexes up to a range of records in one transaction. If the log grows by more than
// busyRate records a second, the follower takes busyRecords, then rests nineteen times as long and
// at least for leastRest, so that it takes a twentieth of one processor from the programs that make
// the log grow, and a few milliseconds at a time. Otherwise it rests for calmRest once it has caught
// up, since a transaction costs more than a record.
const (
	leastRest   = 50 * time.Millisecond
	calmRest    = time.Second
	busyRate    = 100
	busyRecords = 256
	restRatio   = 19
	// checkEvery is the interval of comparisons with the log.
	checkEvery = time.Hour
)

// pace measures the growth of the log.
type pace struct {
	now  func() time.Time
	at   time.Time
	seq  uint64
	busy bool
}

// most returns the number of records for the next transaction.
func (p *pace) most() int {
	if p.busy {
		return busyRecords
	}
	return rangeRecords
}

// rest returns the rest after some work that indexed that many records.
func (p *pace) rest(work time.Duration, head, taken uint64) time.Duration {
	now := p.now()
	grown, within, limit := head-p.seq, now.Sub(p.at), p.most()
	p.at, p.seq, p.busy = now, head, float64(grown) > busyRate*within.Seconds()
	switch {
	case p.busy:
		return max(restRatio*work, leastRest)
	case taken == 0:
		return time.Millisecond // the head is known before its line can be read
	case taken < uint64(limit):
		return calmRest
	}
	return 0
}

// open opens the file and continues at its end, if it belongs to this log.
func (x *Index) open(ctx context.Context) error {
	if x.file != nil {
		return nil
	}
	f, err := openFile(x.path)
	if err == nil {
		var last uint64
		if last, err = x.takeUp(ctx, f); err == nil {
			x.put(f, last)
			return nil
		}
		err = errors.Join(err, f.close())
	}
	if ctx.Err() != nil || blameless(err) {
		return err
	}
	if !errors.Is(err, errUnusable) {
		x.zap.Warn("the audit index cannot be used and is made again", zap.Error(err))
	}
	if err := remove(x.path); err != nil {
		return err
	}
	if f, err = openFile(x.path); err != nil {
		return err
	}
	x.put(f, 0)
	return nil
}

// takeUp returns the last record of a file that belongs to this log.
func (x *Index) takeUp(ctx context.Context, f *file) (uint64, error) {
	last, hash, err := f.end()
	if err != nil || last == 0 {
		return 0, err
	}
	if last > x.log.Head().Seq {
		return 0, errUnusable
	}
	lines, err := x.log.Lines(ctx, []uint64{last})
	if err != nil {
		return 0, ofLog(err)
	}
	if head, err := audit.HeadOf(lines[0]); lines[0] == nil || err != nil || head.Hash.String() != hash {
		return 0, errUnusable
	}
	return last, nil
}

func (x *Index) put(f *file, last uint64) {
	x.files.Lock()
	defer x.files.Unlock()
	x.mu.Lock()
	defer x.mu.Unlock()
	x.file, x.have, x.complete = f, last, make(map[uint64]bool)
	x.unchecked, x.checkAt = 0, x.now()
}

// discard closes the file and deletes it.
func (x *Index) discard() error {
	x.files.Lock()
	defer x.files.Unlock()
	x.mu.Lock()
	x.have = 0
	x.mu.Unlock()
	var err error
	if x.file != nil {
		err = x.file.close()
		x.file = nil
	}
	return errors.Join(err, remove(x.path))
}

// advance indexes at most so many of the next records, in one transaction.
func (x *Index) advance(ctx context.Context, most int) error {
	x.writing.Lock()
	defer x.writing.Unlock()
	have := x.Indexed()
	err := x.file.change(func() (err error) {
		have, err = x.take(ctx, have, x.log.Head().Seq, most)
		return err
	})
	if err != nil {
		return err
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.have = have
	return nil
}

// take indexes the records after one up to another, until there are no more or it has indexed the
// number most, and returns the last one. It is called within a change.
func (x *Index) take(ctx context.Context, after, last uint64, most int) (uint64, error) {
	for most > 0 && after < last {
		lines, upTo, err := x.log.LinesAfter(ctx, after)
		if err != nil {
			return after, ofLog(err)
		}
		first := upTo - uint64(len(lines)) + 1
		if len(lines) == 0 || first > last {
			break // they are not there yet, or were removed
		}
		lines = lines[:min(uint64(len(lines)), last-first+1, uint64(most))]
		if err := x.file.add(first, lines); err != nil {
			return after, err
		}
		after, most = first+uint64(len(lines))-1, most-len(lines)
	}
	return after, x.file.flush()
}

// check checks that the next shard has its records, and makes it again if it has not. All shards
// are checked after the file was opened and every hour, the newest first.
func (x *Index) check(ctx context.Context) error {
	began := x.now()
	if began.Before(x.checkAt) {
		return nil
	}
	if x.unchecked == 0 {
		x.unchecked = shardOf(max(x.Indexed(), 1)) + 1
	}
	x.unchecked--
	good := false
	err := x.file.read(ctx, func(conn *sqlite.Conn) (err error) {
		good, err = x.whole(ctx, conn, x.unchecked)
		return err
	})
	if err == nil && !good {
		err = x.mend(ctx, x.unchecked)
	}
	now := x.now()
	x.checkAt = now.Add(restRatio * now.Sub(began))
	if x.unchecked == 0 {
		x.checkAt = now.Add(checkEvery)
	}
	return err
}

// mend makes a shard again if it lacks records still.
func (x *Index) mend(ctx context.Context, number uint64) error {
	x.writing.Lock()
	defer x.writing.Unlock()
	if good, err := x.whole(ctx, x.file.writer, number); err != nil || good {
		return err
	}
	x.zap.Warn("records are missing in the audit index: their part is made again", zap.Uint64("from", firstOf(number)))
	return x.remake(ctx, number, 0)
}

// whole reports whether a shard has all its records that are in the log.
func (x *Index) whole(ctx context.Context, conn *sqlite.Conn, number uint64) (good bool, err error) {
	last := min(x.Indexed(), firstOf(number+1)-1)
	lines, upTo, err := x.log.LinesAfter(ctx, firstOf(number)-1)
	if err != nil {
		return false, ofLog(err)
	}
	first := upTo - uint64(len(lines)) + 1
	good = len(lines) == 0 || first > last
	if !good {
		good, err = whole(conn, number, first, last)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.complete[number] = good && err == nil
	return good, err
}

// known reports whether a shard was found complete.
func (x *Index) known(number uint64) bool {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.complete[number]
}

// remake makes a shard again, from the records after one. The caller holds writing.
func (x *Index) remake(ctx context.Context, number, after uint64) error {
	return x.file.change(func() error {
		x.file.shard = nil
		if err := dropShard(x.file.writer, number); err != nil {
			return err
		}
		_, err := x.take(ctx, max(after, firstOf(number)-1), min(x.Indexed(), firstOf(number+1)-1), shardRecords)
		return err
	})
}

// Retire forgets the records up to one, after they were removed from the log. It drops whole shards
// at once, and makes the shard again that keeps some records. It can be interrupted; the next call
// continues. If the file is not open, it forgets them later.
func (x *Index) Retire(ctx context.Context, upTo uint64) error {
	x.mu.Lock()
	x.retired = max(x.retired, upTo)
	x.mu.Unlock()
	return x.forget(ctx)
}

// forget removes the retired records from the file.
func (x *Index) forget(ctx context.Context) error {
	x.files.RLock()
	defer x.files.RUnlock()
	if !x.usable() {
		return nil
	}
	x.writing.Lock()
	defer x.writing.Unlock()
	x.mu.RLock()
	upTo := x.retired
	x.mu.RUnlock()
	if upTo == 0 {
		return nil
	}
	kept := shardOf(upTo + 1) // the first shard that keeps records
	gone, err := shards(x.file.writer, 0, kept)
	for _, number := range slices.Backward(gone) {
		if err == nil {
			err = ctx.Err()
		}
		if err == nil {
			err = x.remake(ctx, number, upTo)
		}
	}
	if err == nil {
		// The earlier data also leaves the write-ahead log.
		err = sqlitex.ExecuteTransient(x.file.writer, "PRAGMA wal_checkpoint(TRUNCATE)", nil)
	}
	if err != nil {
		return fmt.Errorf("cannot retire records from the audit index: %w", err)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.retired == upTo {
		x.retired = 0
	}
	return nil
}
