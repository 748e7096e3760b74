// Package index finds records in the audit log: by what they are about, and
// their numbers over time. It is derived: a database of its own beside the
// store's, filled from the log by one follower in the background, and made
// again from nothing where it is lost, damaged or of another log. No decision
// waits for it, and no commit does anything for it.
//
// Its answers are complete all the same: what is not indexed yet is read from
// the log's end, and without an index the whole log is read. Every line that is
// returned has been held against the filter.
//
// The caller opens an [Index] over an open log and closes it before the log.
package index

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/openclawos/ocipd/internal/audit"
	"go.uber.org/zap"
	"zombiezen.com/go/sqlite"
)

// Log is the log that is indexed.
type Log interface {
	// Head is the last durable record.
	Head() audit.Head
	// WaitAfter returns when there is a record after seq.
	WaitAfter(ctx context.Context, seq uint64) error
	// LinesAfter returns a page of records after seq, oldest first and without
	// a gap, and the number of the last one.
	LinesAfter(ctx context.Context, seq uint64) (lines [][]byte, upTo uint64, err error)
	// Lines returns the lines of some records, nil for one that is not there.
	Lines(ctx context.Context, seqs []uint64) ([][]byte, error)
	// SeqAt returns the number of the last record before a moment.
	SeqAt(ctx context.Context, at time.Time) (uint64, error)
	// Query returns records between two, both exclusive, newest first, by
	// reading them all, or a part of them and where to go on.
	Query(ctx context.Context, f audit.Filter, after, before uint64, limit int) (lines [][]byte, next uint64, err error)
}

// Options are what an index is given from outside.
type Options struct {
	// Path of the index's own database. A file that is there and is no index of
	// this log is deleted.
	Path string
	Log  Log
	Now  func() time.Time
	// Logger is told of what keeps the index from being used.
	Logger *zap.Logger
}

// Index is an open index. Its methods are safe for concurrent use.
type Index struct {
	path string
	log  Log
	now  func() time.Time
	zap  *zap.Logger

	// files is held for reading by whoever uses the file, and for writing to
	// open or close it.
	files sync.RWMutex
	file  *file
	// writing is held by whoever writes to the file.
	writing sync.Mutex

	// mu guards what is in memory: the block that is being filled, and the last
	// record that is indexed.
	mu   sync.RWMutex
	cur  builder
	have uint64
	dict dictionary

	// abort ends what the follower does, with a reason; it then begins again.
	abort context.CancelCauseFunc
	// broken is set from when the file was found damaged until it is made again.
	broken bool

	stop context.CancelFunc
	done chan struct{}
}

// Open starts to open and fill an index. It does not wait and does not fail:
// until there is an index, and wherever there is none, queries read the log.
func Open(ctx context.Context, o Options) *Index {
	x := &Index{
		path: o.Path, log: o.Log, now: o.Now, zap: o.Logger, dict: newDictionary(), done: make(chan struct{}),
	}
	ctx, x.stop = context.WithCancel(context.WithoutCancel(ctx))
	x.abort = func(error) {}
	go func() {
		defer close(x.done)
		x.run(ctx)
	}()
	return x
}

// Close ends the follower and closes the file. Queries that come later read the
// log.
func (x *Index) Close() error {
	x.stop()
	<-x.done
	x.files.Lock()
	defer x.files.Unlock()
	if x.file == nil {
		return nil
	}
	err := x.file.close(true)
	x.file = nil
	return err
}

// Indexed returns the last record that is indexed. Those after it are read from
// the log.
func (x *Index) Indexed() uint64 {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.have
}

// How long the index rests after a failure: the first after a while without
// one, and at most.
const (
	firstRetry = time.Second
	lastRetry  = time.Minute
)

func (x *Index) run(ctx context.Context) {
	retry := firstRetry
	for {
		before := x.Indexed()
		trial, abort := context.WithCancelCause(ctx)
		x.mu.Lock()
		x.abort = abort
		x.mu.Unlock()
		err := x.follow(trial)
		if ctx.Err() != nil {
			abort(nil)
			return
		}
		if trial.Err() != nil {
			err = context.Cause(trial)
		}
		abort(nil)
		if x.Indexed() > before+blockRecords {
			retry = firstRetry
		}
		x.zap.Error("cannot keep the audit index up; queries read the log until it is", zap.Error(err), zap.Duration("retry", retry))
		if !isFull(err) {
			if err := x.discard(); err != nil {
				x.zap.Error("cannot discard the audit index", zap.Error(err))
			}
		}
		if !rest(ctx, retry) {
			return
		}
		retry = min(2*retry, lastRetry)
	}
}

// isFull reports an error that says nothing against the file.
func isFull(err error) bool { return sqlite.ErrCode(err).ToPrimary() == sqlite.ResultFull }

// rest returns false where the context ended first.
func rest(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// follow fills the index until something fails or the context ends.
func (x *Index) follow(ctx context.Context) error {
	if err := x.open(ctx); err != nil {
		return err
	}
	pace := pace{now: x.now, at: x.now(), seq: x.log.Head().Seq}
	for {
		if err := x.log.WaitAfter(ctx, x.have); err != nil {
			return err
		}
		began, before := x.now(), x.have
		for more := true; more && x.now().Sub(began) < workTime; {
			var err error
			if more, err = x.advance(ctx); err != nil {
				return err
			}
		}
		d := pace.rest(x.now().Sub(began), x.log.Head().Seq)
		if x.have == before {
			// The head is known a moment before its line can be read.
			d = max(d, time.Millisecond)
		}
		if d > 0 && !rest(ctx, d) {
			return ctx.Err()
		}
	}
}

// The follower works for workTime at a stretch, or for what it takes to end a
// block. While the log grows faster than by busyRate records a second it then
// rests nineteen times as long and at least for leastRest, so that it takes a
// twentieth of one processor from whoever makes the log grow.
const (
	workTime  = 10 * time.Millisecond
	leastRest = 100 * time.Millisecond
	busyRate  = 100
	restRatio = 19
)

// pace sees how fast the log grows.
type pace struct {
	now func() time.Time
	at  time.Time
	seq uint64
}

// rest says how long to rest after some work.
func (p *pace) rest(work time.Duration, head uint64) time.Duration {
	now := p.now()
	grown, within := head-p.seq, now.Sub(p.at)
	p.at, p.seq = now, head
	if float64(grown) <= busyRate*within.Seconds() {
		return 0
	}
	return max(restRatio*work, leastRest)
}

// open opens the file and takes it up where it ends, if it is of this log.
func (x *Index) open(ctx context.Context) error {
	if x.file != nil {
		return x.flush()
	}
	f, err := openFile(x.path)
	if err == nil {
		var last uint64
		if last, err = x.takeUp(ctx, f); err == nil {
			x.put(f, last)
			return nil
		}
		err = errors.Join(err, f.close(false))
	}
	if ctx.Err() != nil || isFull(err) {
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

// takeUp returns the last record of a file that is of this log.
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
		return 0, err
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
	x.file, x.have, x.broken = f, last, false
	x.cur.begin(blockOf(last + 1))
	x.dict = newDictionary()
}

// discard closes the file and deletes it.
func (x *Index) discard() error {
	x.files.Lock()
	defer x.files.Unlock()
	x.mu.Lock()
	x.have = 0
	x.cur.begin(0)
	x.mu.Unlock()
	var err error
	if x.file != nil {
		err = x.file.close(false)
		x.file = nil
	}
	return errors.Join(err, remove(x.path))
}

// advance takes in a page of lines, and reports whether there are more.
func (x *Index) advance(ctx context.Context) (more bool, err error) {
	lines, upTo, err := x.log.LinesAfter(ctx, x.have)
	if err != nil {
		return false, err
	}
	if len(lines) == 0 {
		return false, nil
	}
	records := make([]extract, len(lines))
	terms := make([]term, 0, len(lines)*recordTermsMost)
	for i, line := range lines {
		start := len(terms)
		records[i] = extractLine(upTo-uint64(len(lines)-1-i), line, terms)
		if t := records[i].terms; t != nil {
			terms = t
			records[i].terms = t[start:len(t):len(t)]
		}
	}
	for len(records) > 0 {
		block := blockOf(records[0].seq)
		if x.cur.block != block {
			// Retention has taken what was between.
			if err := x.next(block); err != nil {
				return false, err
			}
		}
		n := 0
		x.mu.Lock()
		for ; n < len(records) && blockOf(records[n].seq) == block; n++ {
			x.cur.add(&records[n], &x.dict)
		}
		x.have = records[n-1].seq
		x.mu.Unlock()
		records = records[n:]
		if err := x.flush(); err != nil {
			return false, err
		}
	}
	return x.have < x.log.Head().Seq, nil
}

// recordTermsMost is how many terms a record has at most.
const recordTermsMost = int(tagReason)

// flush writes the block that is in memory, if it is full.
func (x *Index) flush() error {
	if !x.cur.full() {
		return nil
	}
	return x.next(x.cur.block + 1)
}

// next writes the block that is in memory and begins another.
func (x *Index) next(block uint64) error {
	x.writing.Lock()
	defer x.writing.Unlock()
	if x.cur.count > 0 {
		if err := x.file.write(&x.cur); err != nil {
			return err
		}
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.cur.begin(block)
	return nil
}
