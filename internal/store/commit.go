package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/audit/fold"
	"github.com/openclawos/ocipd/internal/audit/gate"
	"github.com/openclawos/ocipd/internal/base/metrics"
	"github.com/openclawos/ocipd/internal/store/db"
	"github.com/openclawos/ocipd/internal/store/diskspace"
	"github.com/openclawos/ocipd/internal/store/quota"
	"go.uber.org/zap"
)

// commitQueue hands the one writer around. If nobody leads, a caller leads itself, so a single
// caller needs no switch to another goroutine. Callers that come while somebody leads wait. When
// the leader's own batch is durable, the background task leads on until the queue is empty.
type commitQueue struct {
	mu      sync.Mutex
	waiting []*pending
	leading bool
	closed  bool
	// last is the change that closes the store.
	last *pending
	// wait bounds how long a change may wait for its batch; armed is set while the timer for that
	// runs.
	wait  time.Duration
	armed bool
	// tenant is that of the first change of a tenant, and several is set once another one has come.
	tenant  string
	several bool
	// relay wakes the background task to lead.
	relay chan struct{}
}

// commits write changes, one batch after another.
type commits struct {
	queue  commitQueue
	writer *writer
	health *health
	space  *diskspace.Monitor
	quotas quota.Counts
	// rooms is memory in which records are encoded: see [commits.encode].
	rooms   sync.Pool
	metrics *metrics.Set
	clock   func() time.Time
	logger  *zap.Logger
	// altered records that somebody else has changed a row.
	altered func(*AlteredError)
	closing context.Context
}

// maxBatch bounds the changes that share a commit, and so the time that the first waits for the
// last.
const maxBatch = 512

// sharedBatch bounds the disk space of a batch's changes as [pending.cost] says it, so that one tenant's
// changes wait only briefly for another's: some 40 messages of usual length, or 2 of 100 KB.
const sharedBatch = 512 << 10

type pending struct {
	*Change
	// bodies are the records, encoded by the callers in parallel, so that the one writer need not
	// do it.
	bodies [][]byte
	// folded holds each record's statements about rows.
	folded [][]fold.Change
	// same are the rows that the change writes as they were when it was folded.
	same []foldingRow
	// guards are the parts that have a guard, and refused is a guard's refusal.
	guards  []guarded
	refused error
	// waiting are the messages that will wait for a receiver.
	waiting []quota.Message
	// task, if set, runs in place of the change: see [commits.exclusively].
	task func(*writer) error
	// tenant is that of the first record that has one, and rank the place among the tenant's waiting
	// changes.
	tenant string
	rank   int
	taken  bool
	// size is the disk space of the change, see [pending.cost].
	size    int64
	receipt Receipt
	err     error
	done    chan struct{}
	// patience counts down while no batch takes the change.
	patience int
}

// seals reports whether the change writes a record.
func (p *pending) seals() bool {
	return len(p.bodies) > 0 || p.Checkpoint || p.log != nil
}

// Commit makes a change durable. It returns [ErrClosed], [ErrFull], [ErrLow], [ErrLatched],
// [ErrMirrorLost], [ErrBusy], a part's refusal, or the cause. With an error, Durable was not called
// and never will be. Nothing of the change was written either, except with ErrLatched: the next
// start may find a change that was in progress then.
//
// A panic in a part or in Durable ends the process, whether or not the caller recovers.
//
// Commit takes no context, so that no caller can interrupt the recording of a decision. It has its
// own limit, [Options.Wait], on the time until a batch takes the change.
func (s *Store) Commit(c *Change) (Receipt, error) {
	for tries := 0; ; tries++ {
		receipt, err := s.commitOnce(c, tries == 0)
		if !errors.Is(err, fold.ErrStale) || len(c.stated) > 0 || tries == foldTries {
			return receipt, err
		}
	}
}

// commitOnce is [Store.Commit] with the rows as they are now. It returns [fold.ErrStale] if another
// change of the same rows was faster. First says that nothing is redacted yet.
func (s *Store) commitOnce(c *Change, first bool) (Receipt, error) {
	p := &pending{Change: c, bodies: make([][]byte, len(c.Records)), done: make(chan struct{}), tenant: c.tenant()}
	if err := p.prepare(); err != nil {
		return Receipt{}, err
	}
	p.attribute()
	defer s.commits.forget(p)
	redacted := first && redactAll(s.redact, c.Records)
	var err error
	if p.folded, p.same, err = s.foldOf(c); err != nil {
		return Receipt{}, err
	}
	if redacted && slices.ContainsFunc(p.folded, func(rows []fold.Change) bool { return len(rows) > 0 }) {
		return Receipt{}, ErrCredential
	}
	for i, r := range c.Records {
		if p.bodies[i], err = s.commits.encode(r); err != nil {
			return Receipt{}, err
		}
	}
	if err := s.commits.take(p); err != nil {
		return Receipt{}, err
	}
	lead, err := s.commits.queue.join(p)
	if err != nil {
		s.commits.drop(p)
		return Receipt{}, err
	}
	s.commits.finish(p, lead)
	if p.err != nil {
		s.commits.drop(p)
		return Receipt{}, p.err
	}
	s.commits.space.Written(p.size)
	s.commits.quotas.Written(p.waiting)
	s.commits.counted(c)
	return p.receipt, nil
}

// tenant returns the tenant that a change is for, "" if there is none.
func (c *Change) tenant() string {
	for _, r := range c.Records {
		if r.TenantID != "" {
			return r.TenantID
		}
	}
	return ""
}

// ErrCredential means that the id of an exchange or a conversation is one that redaction takes out of
// records, and that the rows of the change would hold it.
var ErrCredential = errors.New("the id of the exchange or of the conversation looks like a credential")

// redactAll redacts records, and reports whether that changed the ids that rows are known by.
func redactAll(redact func(*audit.Record), records []*audit.Record) (ids bool) {
	if redact == nil {
		return false
	}
	for _, r := range records {
		exchange, conversation := r.ExchangeID, r.ConversationID
		redact(r)
		ids = ids || r.ExchangeID != exchange || r.ConversationID != conversation
	}
	return ids
}

// roomBytes is the memory for one record.
const roomBytes = 2 << 10

// encode encodes a record in memory that was used for one before: fresh memory for each message is
// in no processor's cache.
func (cs *commits) encode(r *audit.Record) ([]byte, error) {
	room, ok := cs.rooms.Get().(*[roomBytes]byte)
	if !ok {
		room = new([roomBytes]byte)
	}
	return audit.EncodeInto(room[:0], r)
}

// forget gives back the memory of a change's records, once the writer no longer needs it.
func (cs *commits) forget(p *pending) {
	for i, body := range p.bodies {
		if cap(body) == roomBytes {
			cs.rooms.Put((*[roomBytes]byte)(body[:roomBytes]))
		}
		p.bodies[i] = nil
	}
}

// take reserves the disk space of a change and its app's places in the queues, or refuses the
// change.
func (cs *commits) take(p *pending) error {
	p.size = p.cost()
	if err := cs.space.Take(p.use(), p.size); err != nil {
		return err
	}
	if err := cs.quotas.Take(cs.closing, p.drains(), p.waiting); err != nil {
		cs.space.GiveBack(p.size)
		return err
	}
	return nil
}

// drop gives back the reservations of a change that was not written.
func (cs *commits) drop(p *pending) {
	cs.space.GiveBack(p.size)
	cs.quotas.GiveBack(p.waiting)
}

// cost returns about how much disk space a change takes: its data, once in the write-ahead log and
// once in the file, and the pages that it changes for them.
func (p *pending) cost() int64 {
	const pages = 8 << 10
	size := p.size
	for _, b := range p.bodies {
		size += int64(len(b))
	}
	return 2*size + pages
}

// finish returns when a queued change is durable or has failed.
func (cs *commits) finish(p *pending, lead bool) {
	if lead {
		cs.leadOnce()
	}
	<-p.done
}

// join queues a change and reports whether its caller must lead.
func (q *commitQueue) join(p *pending) (lead bool, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return false, ErrClosed
	}
	return q.add(p), nil
}

func (q *commitQueue) add(p *pending) (lead bool) {
	p.patience = watchesPerWait
	if q.tenant == "" {
		q.tenant = p.tenant
	}
	q.several = q.several || p.tenant != "" && p.tenant != q.tenant
	q.waiting = append(q.waiting, p)
	if q.leading {
		if !q.armed {
			q.arm(true)
		}
		return false
	}
	q.leading = true
	return true
}

// watch fails the changes that have waited too long for a batch. One timer watches them all, and
// runs only while one waits.
func (q *commitQueue) watch() {
	q.mu.Lock()
	defer q.mu.Unlock()
	kept := q.waiting[:0]
	for _, p := range q.waiting {
		// The last change of a closing store waits as long as it takes.
		if p.patience--; p.patience < 0 && p != q.last {
			p.err = ErrBusy
			close(p.done)
			continue
		}
		kept = append(kept, p)
	}
	clear(q.waiting[len(kept):])
	q.waiting = kept
	q.arm(len(kept) > 0)
}

// watchesPerWait is how often a waiting change is checked before it fails.
const watchesPerWait = 4

// arm needs the lock.
func (q *commitQueue) arm(on bool) {
	if q.armed = on; on {
		time.AfterFunc(q.wait/watchesPerWait, q.watch)
	}
}

// take removes the next batch. With nothing left it ends the leadership. Changes of one tenant are taken
// in the order in which they came.
func (q *commitQueue) take(into []*pending) []*pending {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.waiting) == 0 {
		q.leading = false
		return nil
	}
	// A task runs alone, and nothing passes one, or the end of the store.
	n := slices.IndexFunc(q.waiting, func(p *pending) bool { return p.task != nil || p == q.last })
	switch {
	case n < 0:
		n = len(q.waiting)
	case n == 0:
		n = 1
	}
	if q.several && n > 1 {
		q.share(q.waiting[:n])
	} else {
		for _, p := range q.waiting[:min(n, maxBatch)] {
			p.taken = true
		}
	}
	into, rest := into[:0], q.waiting[:0]
	for _, p := range q.waiting {
		if p.taken {
			into = append(into, p)
		} else {
			rest = append(rest, p)
		}
	}
	clear(q.waiting[len(rest):])
	q.waiting = rest
	return into
}

// share chooses a batch of the changes of several tenants: one of each, then another one of each, as
// long as the batch is small.
func (q *commitQueue) share(waiting []*pending) {
	ranks := make(map[string]int)
	for _, p := range waiting {
		p.rank = ranks[p.tenant]
		ranks[p.tenant]++
	}
	inTurn := slices.Clone(waiting)
	slices.SortStableFunc(inTurn, func(a, b *pending) int { return a.rank - b.rank })
	size := int64(0)
	for _, p := range inTurn[:min(len(inTurn), maxBatch)] {
		if size += p.size; p.rank > 0 && size > sharedBatch {
			break
		}
		p.taken = true
	}
}

// close refuses further changes and queues the last one. It returns false if the queue was closed
// before.
func (q *commitQueue) close(last *pending) (lead, first bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return false, false
	}
	q.closed, q.last = true, last
	return q.add(last), true
}

// leadOnce commits one batch, which holds the caller's own change, and passes
// the lead on.
func (cs *commits) leadOnce() {
	if batch := cs.queue.take(nil); batch != nil {
		cs.commitBatch(batch)
	}
	cs.queue.mu.Lock()
	more := len(cs.queue.waiting) > 0
	cs.queue.leading = more
	cs.queue.mu.Unlock()
	if more {
		cs.queue.relay <- struct{}{}
	}
}

// leadUnderLoad is the background task that leads while changes keep coming.
func (cs *commits) leadUnderLoad() {
	var batch []*pending
	for {
		select {
		case <-cs.queue.relay:
			for batch = cs.queue.take(batch); batch != nil; batch = cs.queue.take(batch) {
				cs.commitBatch(batch)
			}
		case <-cs.closing.Done():
			return
		}
	}
}

// commitBatch writes a batch in one transaction. If one change cannot be written, each is tried
// again alone, so that no change fails because of another. A change that its guard refuses does not
// affect the others.
//
// A panic in it ends the process: see [commits.crash].
func (cs *commits) commitBatch(batch []*pending) {
	done := false
	defer func() {
		if !done {
			cs.crash(recover())
		}
	}()
	cs.commitOrFail(batch)
	done = true
}

func (cs *commits) commitOrFail(batch []*pending) {
	if p := batch[0]; p.task != nil {
		p.err = cs.runTask(p)
		close(p.done)
		return
	}
	err := cs.writeBatch(batch)
	switch {
	case errors.Is(err, ErrFull):
		cs.writeFull(batch, err)
	case err != nil && len(batch) > 1 && cs.health.closed() == nil:
		for _, p := range batch {
			p.end(cs.writeBatch([]*pending{p}))
		}
	default:
		for _, p := range batch {
			p.end(err)
		}
	}
	for _, p := range batch {
		close(p.done)
	}
}

// crashWithin bounds how long an ending process takes to write down the reason.
const crashWithin = 5 * time.Second

// crash latches the store and ends the process. It is called if a commit panicked, in a part, a
// guard, a task or a callback, on the goroutine of any caller, and does not return. If somebody
// recovered the panic, the queue would have no leader, the other changes of the batch no answer,
// and the daemon's memory would differ from its database. The next start continues from the durable
// state.
func (cs *commits) crash(fault any) {
	cause := fmt.Errorf("a commit panicked: %v", fault)
	end := func() { panic(cause) }
	// The process also ends if the code that panicked still holds a lock.
	time.AfterFunc(crashWithin, end)
	cs.logger.Error("a commit panicked: the process ends", zap.Any("panic", fault), zap.StackSkip("stack", 1))
	cs.health.latch(cause)
	// No caller can recover the panic of another goroutine.
	go end()
	select {}
}

// end sets the result of a change after its transaction. A guard's refusal only counts if the
// transaction was written: it may depend on another change of the transaction.
func (p *pending) end(err error) {
	if p.err = err; err == nil {
		p.err = p.refused
	}
}

// writeBatch commits and then releases: it publishes the log's end, calls the effects in order, and
// wakes followers.
func (cs *commits) writeBatch(batch []*pending) error {
	if cause := cs.health.closed(); cause != nil {
		return fmt.Errorf("%w: %w", ErrLatched, cause)
	}
	began := cs.clock()
	if err := cs.writer.write(batch, began); err != nil {
		return cs.judge(err)
	}
	// An fsync also succeeds on a deleted file. Only the name shows whether the data can be found
	// again.
	if err := cs.health.mayRelease(batch); err != nil {
		return err
	}
	if !cs.writer.idle {
		cs.metrics.Committed(len(batch), cs.clock().Sub(began))
	}
	cs.writer.log.Publish()
	for _, p := range batch {
		if p.refused != nil {
			continue
		}
		// Until here the receipt proved nothing.
		p.receipt = gate.Committed(p.receipt.Seq, p.receipt.Time, p.Records)
		if p.Durable != nil {
			p.Durable(p.receipt)
		}
	}
	cs.writer.log.Tell()
	return nil
}

// judge decides the consequences of a failed commit for the store.
func (cs *commits) judge(err error) error {
	if found, ok := errors.AsType[*AlteredError](err); ok {
		cs.altered(found)
	}
	switch {
	case db.IsFull(err):
		return fmt.Errorf("%w: %w", ErrFull, err)
	case db.IsIO(err):
		// If a file was taken away, that is the cause.
		err = errors.Join(cs.health.files.Check(), err)
		cs.health.latch(err)
		return fmt.Errorf("%w: %w", ErrLatched, err)
	}
	return err
}
