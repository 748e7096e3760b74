package ipc

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/base/metrics"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"
)

const (
	// operatorConnections are reserved for the operator socket, whatever the number of apps'
	// connections. At this limit the oldest idle one is ended.
	operatorConnections = 64
	// observing is the number of waiting bytes, other than deliveries, from which a connection
	// counts as an observer that does not read. The operating system buffers more than that before
	// anything waits here.
	observing = 64 << 10
	// shareOfQueues is the part of all queued bytes that one process may have, as one of so many.
	shareOfQueues = 2
	// maxLines bounds the memory of the lines that all connections are reading, except if single
	// lines may be so long that a few of them exceed it.
	maxLines   = 64 << 20
	leastLines = 16
	// maxInFlightOfProcess bounds the memory of the requests in flight of one process: their
	// parameters, and requestBytes for each request's goroutine.
	maxInFlightOfProcess = 8 * maxInFlightBytes
	requestBytes         = 8 << 10
	// maxStreamsOfProcess bounds the streams of all connections of one process.
	maxStreamsOfProcess = 512
)

// processKey names a process as the operating system reports it. Processes without an id here, for
// example in a container with its own process ids, are counted together per user.
type processKey struct {
	uid uint32
	pid int32
}

// process counts the resources of one process's connections.
type process struct {
	key processKey
	// conns counts its connections by their socket. The lock of the connections guards it.
	conns [2]int
	// queued counts the bytes that wait for it to read.
	queued atomic.Int64

	// inFlight counts the bytes of its requests in flight. A waiting connection adds itself to
	// waiting before it checks, and then waits for room. A connection that frees memory wakes the
	// waiting ones.
	inFlight atomic.Int64
	waiting  atomic.Int32
	streams  atomic.Int32
	mu       sync.Mutex
	room     sync.Cond
}

// admit waits until the process has room for a request of this cost, and returns false if the
// connection is ended meanwhile.
func (p *process) admit(c *conn, cost int) bool {
	if p.take(cost) {
		return true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waiting.Add(1)
	defer p.waiting.Add(-1)
	for c.takes() {
		if p.take(cost) {
			return true
		}
		p.room.Wait()
	}
	return false
}

// take takes room for a request, if there is any.
func (p *process) take(cost int) bool {
	for {
		held := p.inFlight.Load()
		if held > 0 && held+int64(cost)+requestBytes > maxInFlightOfProcess {
			return false
		}
		if p.inFlight.CompareAndSwap(held, held+int64(cost)+requestBytes) {
			return true
		}
	}
}

// crowded reports whether a request of this cost would wait.
func (p *process) crowded(cost int) bool {
	held := p.inFlight.Load()
	return held > 0 && held+int64(cost)+requestBytes > maxInFlightOfProcess
}

// leave gives back what a request held.
func (p *process) leave(cost int) {
	p.inFlight.Add(-int64(cost) - requestBytes)
	p.wake()
}

// wake has the waiting connections check again.
func (p *process) wake() {
	if p.waiting.Load() == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.room.Broadcast()
}

// descriptorsOf is the number of descriptors of one connection: its socket, and the one that pins
// its process.
const descriptorsOf = 2

// ownDescriptors are left for files, listeners and the rest of the process.
const ownDescriptors = 256

// connectionsWithin returns how many connections of apps there may be, from the configured number
// and the process's limit of descriptors. Without free descriptors, nobody could connect, operators
// included.
func connectionsWithin(configured int, descriptors uint64) int {
	most := (int64(min(descriptors, 1<<31)) - ownDescriptors - descriptorsOf*operatorConnections) / descriptorsOf
	return int(min(int64(configured), max(most, 1)))
}

// leastConnections is the number of apps' connections below which a daemon is useless.
const leastConnections = 8

// CheckDescriptors says why a daemon cannot serve with its process's limit of file descriptors: it
// would turn away all apps after the first few, without telling them why.
func CheckDescriptors(configured int) error {
	var open unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &open); err != nil {
		return nil
	}
	return enough(configured, open.Cur)
}

func enough(configured int, descriptors uint64) error {
	least := max(1, min(configured, leastConnections))
	if needed := uint64(ownDescriptors + descriptorsOf*(operatorConnections+least)); descriptors < needed {
		return fmt.Errorf("cannot serve with a limit of %d file descriptors: %d connections of apps, those of operators and the daemon's own files need %d; "+
			"set LimitNOFILE=%[3]d in the daemon's unit, or ulimit -n %[3]d in the shell that starts it (above the shell's hard limit, ulimit -Hn, as root)", descriptors, least, needed)
	}
	return nil
}

// lowered lowers limits to the process's own limits.
func lowered(log *zap.Logger, l Limits) *Limits {
	var open unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &open); err != nil {
		return &l
	}
	if n := connectionsWithin(l.Connections, open.Cur); n < l.Connections {
		log.Warn("too few file descriptors for the connections that are configured: fewer are taken (LimitNOFILE= of the unit, or ulimit -n)",
			zap.Uint64("descriptors", open.Cur), zap.Int("configured", l.Connections), zap.Int("connections", n))
		l.Connections = n
	}
	return &l
}

// connections are those of a server, with the bounds of their number and of their memory.
type connections struct {
	log     *zap.Logger
	metrics *metrics.Set
	limits  atomic.Pointer[Limits]

	// queued counts the bytes that wait for all readers. relief is held to reduce them, so that no
	// two connections are ended if one is enough.
	queued atomic.Int64
	relief sync.Mutex
	// lines counts the memory of the lines that are being read, in bytes. Its lock is taken after
	// mu.
	linesMu sync.Mutex
	lines   int

	mu    sync.Mutex
	conns map[*conn]struct{}
	// faces and users count the connections of a socket, and those of a user to
	// the apps' socket.
	faces     map[face]int
	users     map[uint32]int
	processes map[processKey]*process
	closed    bool
}

// add adds a connection, or says why it cannot stay. At a limit of apps, it ends the oldest
// connection that nobody has claimed yet, among those under that limit: nobody loses by that.
func (cs *connections) add(c *conn) error {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if cs.closed {
		return errClosing
	}
	uid, _, pid := c.peer.Credentials()
	key := processKey{uid, pid}
	if c.face == faceOperator {
		cs.roomForOperator()
	} else if err := cs.roomForApp(key); err != nil {
		return err
	}
	p := cs.processes[key]
	if p == nil {
		p = &process{key: key}
		p.room.L = &p.mu
		cs.processes[key] = p
	}
	p.conns[c.face]++
	c.process = p
	cs.conns[c] = struct{}{}
	cs.faces[c.face]++
	if c.face == faceApp {
		cs.users[key.uid]++
	}
	return nil
}

// roomForApp makes room for one more connection of a process to the apps' socket. The caller holds
// the lock.
func (cs *connections) roomForApp(key processKey) error {
	limits := cs.limits.Load()
	if p := cs.processes[key]; p != nil && limits.ProcessConnections > 0 && p.conns[faceApp] >= limits.ProcessConnections &&
		!cs.pushOut(func(c *conn) bool { return c.process == p }) {
		return api.Errorf(api.ConnectionClosed, "process %d has its limit of %d connections (ipc.max_connections_per_process)", key.pid, limits.ProcessConnections)
	}
	if limits.UserConnections > 0 && cs.users[key.uid] >= limits.UserConnections &&
		!cs.pushOut(func(c *conn) bool { return c.process.key.uid == key.uid }) {
		return api.Errorf(api.ConnectionClosed, "user %d has their share of %d connections", key.uid, limits.UserConnections)
	}
	if cs.faces[faceApp] >= limits.Connections && !cs.pushOut(func(*conn) bool { return true }) {
		return api.Errorf(api.ConnectionClosed, "the kernel has its limit of %d connections (ipc.max_connections)", limits.Connections)
	}
	return nil
}

// pushOut ends the oldest unclaimed connection of some connections of apps, and reports whether
// there was one. The caller holds the lock.
func (cs *connections) pushOut(among func(*conn) bool) bool {
	var oldest *conn
	for c := range cs.conns {
		if c.face == faceApp && among(c) && !holdsPlaceLocked(c) && (oldest == nil || c.since.Before(oldest.since)) {
			oldest = c
		}
	}
	if oldest == nil {
		return false
	}
	cs.end(oldest)
	return true
}

// holdsPlaceLocked reports whether a connection is claimed: by an app, or by an agent that attached
// with a grant. A connection that is just beginning also keeps its place. The caller holds the
// lock of the connections.
func holdsPlaceLocked(c *conn) bool {
	return c.client == nil || c.client.Registered() || c.tasks != nil && c.tasks.Attached()
}

// end ends a connection that loses its place. The caller holds the lock.
func (cs *connections) end(c *conn) {
	cs.drop(c)
	cs.metrics.Ended(metrics.PushedOut)
	c.hangUp()
}

// roomForOperator makes room for one more connection on the operator socket, which refuses nobody.
// If all places are taken, the process with most of them loses one: an idle one first, and of those
// the oldest. The caller holds the lock.
func (cs *connections) roomForOperator() {
	if cs.faces[faceOperator] < operatorConnections {
		return
	}
	var gives *conn
	for c := range cs.conns {
		if c.face == faceOperator && (gives == nil || comesBefore(c, gives)) {
			gives = c
		}
	}
	cs.end(gives)
}

// comesBefore reports whether an operator's connection loses its place before another.
func comesBefore(c, other *conn) bool {
	if x, y := c.process.conns[faceOperator], other.process.conns[faceOperator]; x != y {
		return x > y
	}
	if x, y := c.busy(), other.busy(); x != y {
		return y
	}
	return c.since.Before(other.since)
}

// remove removes a connection.
func (cs *connections) remove(c *conn) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	cs.drop(c)
}

// drop is remove for a caller that holds the lock.
func (cs *connections) drop(c *conn) {
	if _, there := cs.conns[c]; !there {
		return
	}
	delete(cs.conns, c)
	cs.faces[c.face]--
	p := c.process
	if c.face == faceApp {
		if cs.users[p.key.uid]--; cs.users[p.key.uid] == 0 {
			delete(cs.users, p.key.uid)
		}
	}
	if p.conns[c.face]--; p.conns == [2]int{} {
		delete(cs.processes, p.key)
	}
}

// close refuses further connections, and returns those that are open.
func (cs *connections) close() (open []*conn) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	cs.closed = true
	for c := range cs.conns {
		open = append(open, c)
	}
	return open
}

// charge counts bytes that are queued for a connection, or no longer are.
func (cs *connections) charge(p *process, bytes int64) {
	p.queued.Add(bytes)
	cs.queued.Add(bytes)
}

// relieve ends connections that do not read, as long as more is queued than all connections
// together may have, or one process more than its share.
func (cs *connections) relieve(p *process) {
	if !cs.overfull(p) {
		return
	}
	cs.relief.Lock()
	defer cs.relief.Unlock()
	for cs.overfull(p) {
		c := cs.worst(p)
		if c == nil || !c.out.cut() {
			return
		}
	}
}

// overfull reports whether a process has more queued than its share, or all together more than the
// limit.
func (cs *connections) overfull(p *process) bool {
	most := int64(cs.limits.Load().TotalQueueBytes)
	return most > 0 && (cs.queued.Load() > most || p.queued.Load() > most/shareOfQueues)
}

// worst returns the connection to end, nil if that would not help. It belongs to a process above
// its share, or else to the process with most queued, of the user with most queued. Connections
// that observe without reading come before those with deliveries. A connection that is ending
// already does not count: its memory is freed soon, and no reader should be ended for it.
func (cs *connections) worst(p *process) (worst *conn) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	var all int64
	processes, users := make(map[*process]int64), make(map[uint32]int64)
	for c := range cs.conns {
		held := c.out.held.Load()
		all += held
		processes[c.process] += held
		users[c.process.key.uid] += held
	}
	most := int64(cs.limits.Load().TotalQueueBytes)
	if processes[p] <= most/shareOfQueues {
		if all <= most {
			return nil
		}
		for other, held := range processes {
			if mine, theirs := users[p.key.uid], users[other.key.uid]; theirs > mine || theirs == mine && held > processes[p] {
				p = other
			}
		}
	}
	for c := range cs.conns {
		if c.process == p && (worst == nil || worse(c.out, worst.out)) {
			worst = c
		}
	}
	return worst
}

// chargeLine counts the memory of the line that is being read, or its release. If all lines exceed
// the limit, the connection with the longest one ends, in the process that has most of them: a
// process that only begins lines is soon stopped.
func (cs *connections) chargeLine(c *conn, bytes int) {
	for cs.chargeLines(c, bytes) {
		longest := cs.longestLine()
		if longest == nil {
			return
		}
		cs.metrics.Ended(metrics.NotFinished)
		cs.log.Warn("too much is in lines that were begun: a connection is closed", zap.Int32("pid", longest.process.key.pid), zap.Uint32("uid", longest.process.key.uid))
		longest.hangUp()
		bytes = 0
	}
}

// chargeLines counts bytes of a connection's line, unless the connection ends for them, and reports
// whether all lines exceed the limit.
func (cs *connections) chargeLines(c *conn, bytes int) (over bool) {
	cs.linesMu.Lock()
	defer cs.linesMu.Unlock()
	if c.line >= 0 {
		c.line += bytes
		cs.lines += bytes
	}
	return cs.lines > max(maxLines, leastLines*cs.limits.Load().LineBytes)
}

// longestLine returns the connection with the longest line of the process with most bytes in lines,
// or nil. That line no longer counts.
func (cs *connections) longestLine() (longest *conn) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	cs.linesMu.Lock()
	defer cs.linesMu.Unlock()
	held := make(map[*process]int)
	for c := range cs.conns {
		held[c.process] += c.line
	}
	for c := range cs.conns {
		if longest == nil || held[c.process] > held[longest.process] || c.process == longest.process && c.line > longest.line {
			longest = c
		}
	}
	if longest == nil || longest.line <= 0 {
		return nil
	}
	cs.drop(longest)
	cs.lines -= longest.line
	longest.line = -1
	return longest
}
