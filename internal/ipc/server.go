package ipc

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/api/wire"
	"github.com/openclawos/ocipd/internal/base/jsonline"
	"github.com/openclawos/ocipd/internal/base/metrics"
	"github.com/openclawos/ocipd/internal/base/peer"
	"go.uber.org/zap"
)

// line returns the longest line on a socket.
func (l *Limits) line(f face) int {
	if f == faceOperator {
		return max(l.LineBytes, l.OperatorLineBytes)
	}
	return l.LineBytes
}

// Limits bound the resources of connections.
type Limits struct {
	// LineBytes bounds one line.
	LineBytes int
	// OperatorLineBytes bounds one line on the operator socket, if it is more than LineBytes.
	OperatorLineBytes int
	// QueueBytes bounds the bytes that wait for a reader, and TotalQueueBytes those that wait for
	// all readers together; zero is no limit.
	QueueBytes, TotalQueueBytes int
	// InFlight bounds the running requests of one connection.
	InFlight int
	// Connections bounds the connections of apps, ProcessConnections those of one process and
	// UserConnections those of one user; zero is no limit for the last two. Operators have their
	// own.
	Connections, ProcessConnections, UserConnections int
}

// Options holds the dependencies of a server.
type Options struct {
	// Methods is the table of all methods.
	Methods []Method
	// Connect begins a connection of an app. Its error is the answer, and ends the connection.
	Connect func(api.Peer, api.Link) (Client, error)
	// Tasks begins a connection's part in tasks. The client is nil for an operator's.
	Tasks func(api.Peer, Client) TaskSession
	// Admit decides whether a process may use the operator socket. It is asked when
	// the process connects and at each of its requests.
	Admit func(api.Peer) error
	// Signs reports whether calls of [api.Signed] methods must be signed. Vouch identifies the
	// signer: it returns the peer as that person. A text is "" if the connection was given no
	// nonce.
	Signs func() bool
	Vouch func(who api.Peer, method, text, signature string) (api.Peer, error)
	// Behalf judges the process for which a caller asks, and returns the caller as its deputy. If
	// it is nil, nobody asks for another.
	Behalf func(who api.Peer, process, method string, s api.Signing) (api.Peer, error)
	Limits Limits
	// AllowUID reports whether a user may connect, to the operator socket or
	// to the apps'.
	AllowUID func(uid uint32, operator bool) bool
	Now      func() time.Time
	NewID    func() string
	Version  string
	Log      *zap.Logger
	// Metrics, if set, counts connections and requests.
	Metrics *metrics.Set
	// Apps and Operators are the listeners for each kind of caller.
	Apps, Operators *net.UnixListener
}

// Server answers on the kernel's sockets.
type Server struct {
	methods []Method
	connect func(api.Peer, api.Link) (Client, error)
	tasksOf func(api.Peer, Client) TaskSession
	// callers are the functions of the options that tell who operates.
	callers struct {
		admit  func(api.Peer) error
		signs  func() bool
		vouch  func(who api.Peer, method, text, signature string) (api.Peer, error)
		behalf func(who api.Peer, process, method string, s api.Signing) (api.Peer, error)
	}
	pieces   pieces
	allowUID func(uid uint32, operator bool) bool
	now      func() time.Time
	newID    func() string
	version  string
	log      *zap.Logger
	metrics  *metrics.Set
	// table holds the methods by the socket that serves them.
	table map[face]map[string]*Method
	// described holds the answers of kernel.describe.
	described map[face]func() (description, error)

	ctx    context.Context
	cancel context.CancelFunc
	tasks  sync.WaitGroup
	crew   *crew

	apps, operators *net.UnixListener

	// aborted is closed when requests in flight are no longer waited for.
	aborted chan struct{}
	abort   sync.Once
	all     connections
}

// NewServer makes a server that does not answer yet.
func NewServer(o Options) *Server {
	s := &Server{
		methods: o.Methods, connect: o.Connect, tasksOf: o.Tasks, allowUID: o.AllowUID, now: o.Now, newID: o.NewID, version: o.Version, log: o.Log, metrics: o.Metrics,
		table: map[face]map[string]*Method{faceApp: {}, faceOperator: {}}, apps: o.Apps, operators: o.Operators, aborted: make(chan struct{}),
	}
	s.callers.admit, s.callers.signs, s.callers.vouch, s.callers.behalf = o.Admit, o.Signs, o.Vouch, o.Behalf
	s.all = connections{
		log: o.Log, metrics: o.Metrics,
		conns: make(map[*conn]struct{}), faces: make(map[face]int), users: make(map[uint32]int), processes: make(map[processKey]*process),
	}
	s.SetLimits(o.Limits)
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.crew, s.described = newCrew(s.ctx), s.descriptions()
	for i := range s.methods {
		m := &s.methods[i]
		m.counts = o.Metrics.Method(m.Name)
		for f, served := range s.table {
			if m.served(f) {
				served[m.Name] = m
			}
		}
	}
	return s
}

// SetLimits sets other limits from now on. Those of requests and connections apply to all; those of
// lines and queues to new connections.
func (s *Server) SetLimits(l Limits) { s.all.limits.Store(lowered(s.log, l)) }

// Serve begins to answer, and goes on until the server is closed.
func (s *Server) Serve() {
	s.serve(s.apps, faceApp)
	s.serve(s.operators, faceOperator)
}

func (s *Server) serve(l *net.UnixListener, f face) {
	if err := peer.Attend(l); err != nil {
		s.log.Error("a socket that is handed on will not be noticed", zap.Error(err))
	}
	s.tasks.Go(func() {
		for {
			socket, err := l.AcceptUnix()
			if err != nil {
				if errors.Is(err, net.ErrClosed) || s.ctx.Err() != nil {
					return
				}
				// Out of descriptors: connections that end free some.
				s.log.Error("cannot accept a connection", zap.Error(err))
				s.pause()
				continue
			}
			s.tasks.Go(func() { s.admitConn(socket, f) })
		}
	})
}

// pause keeps a failing accept from spinning.
func (s *Server) pause() {
	again := time.NewTimer(100 * time.Millisecond)
	defer again.Stop()
	select {
	case <-again.C:
	case <-s.ctx.Done():
	}
}

// admitConn identifies the process that connects and serves the connection.
func (s *Server) admitConn(socket *net.UnixConn, f face) {
	who, err := peer.FromConn(socket)
	if err != nil {
		s.log.Warn("cannot tell who connects: refused", zap.Error(err))
		s.rejectConn(socket, api.Errorf(api.Forbidden, "the kernel cannot tell who connects"))
		return
	}
	defer func() {
		if err := who.Close(); err != nil {
			s.log.Debug("cannot close a peer", zap.Error(err))
		}
	}()
	if !s.allowUID(who.UID, f == faceOperator) {
		s.log.Warn("a foreign user connects: refused", zap.Uint32("uid", who.UID), zap.Int32("pid", who.PID))
		s.rejectConn(socket, api.Errorf(api.Forbidden, "user %d may not connect; ipc.allow_uids in the configuration lists who may", who.UID))
		return
	}
	c := newConn(s, f, socket, identity{who})
	c.heard = who.Reader(socket)
	// A refused connection must not stay among the server's.
	defer c.cancel()
	if err := s.all.add(c); err != nil {
		s.metrics.Ended(metrics.TurnedAway)
		s.rejectConn(socket, err)
		return
	}
	var client Client
	if f == faceOperator {
		err = s.callers.admit(c.peer)
	} else {
		client, err = s.connect(c.peer, c)
	}
	if err != nil {
		s.rejectConn(socket, err)
		s.all.remove(c)
		return
	}
	s.begin(c, client)
	s.metrics.Accepted(f.name())
	c.serve()
}

// begin gives a connection its parts in the kernel and in tasks, both at once, because they tell
// whether it is claimed.
func (s *Server) begin(c *conn, client Client) {
	var tasks TaskSession
	if s.tasksOf != nil {
		tasks = s.tasksOf(c.peer, client)
	}
	s.all.mu.Lock()
	defer s.all.mu.Unlock()
	c.client, c.tasks = client, tasks
}

// rejectConn says why a connection is not served, if that is possible without waiting.
func (s *Server) rejectConn(socket *net.UnixConn, reason error) {
	_ = socket.SetWriteDeadline(s.now().Add(lastWords))
	_, _ = socket.Write(jsonline.ASCII(wire.AppendResponse(nil, s.newID(), s.now().UnixMilli(), "", nil, api.AsError(reason)), 0))
	if err := socket.Close(); err != nil {
		s.log.Debug("cannot close a connection", zap.Error(err))
	}
}

// Connections returns the number of connections.
func (s *Server) Connections() int {
	s.all.mu.Lock()
	defer s.all.mu.Unlock()
	return len(s.all.conns)
}

// Queued returns how many bytes wait to be read, on all connections.
func (s *Server) Queued() int64 { return s.all.queued.Load() }

// Abort ends the waiting in [Server.Close], even if Close is called later: requests in flight end
// without an answer. A commit in progress is still finished.
func (s *Server) Abort() { s.abort.Do(func() { close(s.aborted) }) }

// Close stops listening, lets requests in flight be answered until the limit, and ends every
// connection. It returns the number of requests that were left unanswered then. It ends all
// streams.
func (s *Server) Close(within time.Duration) (left int) {
	open := s.all.close()
	for _, l := range []*net.UnixListener{s.apps, s.operators} {
		if err := l.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			s.log.Warn("cannot close a listener", zap.Error(err))
		}
	}
	for _, c := range open {
		c.refuse()
	}
	s.settle(open, within)
	for _, c := range open {
		left += c.unanswered()
		go c.part(within)
	}
	done := make(chan struct{})
	go func() { s.tasks.Wait(); close(done) }()
	limit := time.NewTimer(2 * lastWords)
	defer limit.Stop()
	select {
	case <-done:
	case <-limit.C:
		s.giveUp(open, done)
	case <-s.aborted:
		s.giveUp(open, done)
	}
	s.cancel()
	return left
}

// settle waits until nothing is in flight on any connection. It ends none before that: a request on
// one may wait for an answer on another.
func (s *Server) settle(open []*conn, within time.Duration) {
	idle := make(chan struct{})
	go func() {
		for _, c := range open {
			c.idle.Wait()
		}
		close(idle)
	}()
	limit := time.NewTimer(within)
	defer limit.Stop()
	select {
	case <-idle:
	case <-limit.C:
	case <-s.aborted:
	}
}

// giveUp ends connections that did not end by themselves.
func (s *Server) giveUp(open []*conn, done <-chan struct{}) {
	s.cancel()
	for _, c := range open {
		c.hangUp()
	}
	<-done
}

// identity is a peer as the kernel sees it.
type identity struct{ *peer.Peer }

func (i identity) Credentials() (uid, gid uint32, pid int32) { return i.UID, i.GID, i.PID }

func (i identity) Executable() (string, error) { return i.Exe() }
