// Package a2aproxy stands between an agent and its peers in the A2A protocol. ocipd decides
// about the agent's messages before a peer gets them, and about a peer's before the agent
// does.
//
// The proxy decides nothing. It reads the texts, data and files of a request or an answer,
// asks the daemon, and passes the decided ones. It refuses by name every request that two
// programs could read differently, and every method that is not decided.
//
// On the outgoing side the agent's client speaks to the proxy as to the peer. On the incoming
// side peers speak to the proxy as to the agent.
package a2aproxy

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/openclawos/ocipd/internal/bridge/gatelink"
)

// Options are the inputs of a proxy.
type Options struct {
	Link *gatelink.Link
	// Incoming is set if peers reach the agent through the proxy.
	Incoming bool
	// Target is the address of the peer, or of the agent's own server on the incoming side.
	Target *url.URL
	// Public is the address at which clients reach the proxy, with a path that may be empty.
	Public *url.URL
	// Origin distinguishes the proxy's messages from those of others.
	Origin string
	// PeerKey, if set, is the key with which the peer signs its card.
	PeerKey *Key
	// Push, if set, makes push notifications pass.
	Push *Push
	// Roots are further certificates to trust in, and Certificate, if set, shows who calls.
	Roots       *x509.CertPool
	Certificate *tls.Certificate
	// Hold is how long a request waits for a person. Wait is how long an answer may take, and
	// how long a stream may be silent.
	Hold, Wait time.Duration
	Log        *slog.Logger
	NewID      func() string
	Now        func() time.Time
}

const (
	// maxBody bounds a request, an answer, an event of a stream, and the events that are held back.
	maxBody = 32 << 20
	// maxHeader bounds the header of a request. headerTime and bodyTime bound the time in
	// which a request is read.
	maxHeader  = 64 << 10
	headerTime = 10 * time.Second
	bodyTime   = time.Minute
	idleTime   = 2 * time.Minute
	// maxRequests bounds the open requests, including streams.
	maxRequests = 256
	// maxKnown bounds what is remembered of each kind: see remembered.
	maxKnown = 8192
)

// Proxy serves one agent and one peer, or one agent and all its peers.
type Proxy struct {
	gate
	memory

	client *http.Client
	// webhooks gives decided notifications to clients.
	webhooks *http.Client
	room     chan struct{}
	// open are the open requests, and loads their memory, by peer.
	open, loads *shares
	// next is the id of the next request to the other side.
	next  atomic.Int64
	hosts []string
	work  sync.WaitGroup
}

// memory is the state of a proxy. It is lost when the proxy ends, and everything in it is
// then decided anew.
type memory struct {
	mu sync.Mutex
	// card is the newest card of the target.
	card *card
	// seen are messages and artifacts that were decided, by the other side's session. ids are
	// those that came with them.
	seen remembered[seenKey, bool]
	ids  remembered[idKey, bool]
	// exchanges are those of conversations and tasks of the protocol.
	exchanges remembered[idKey, string]
	// late are requests whose answers come after their calls.
	late remembered[[sha256.Size]byte, *late]
	// waits are the requests for approval that an open call waits for.
	waits map[string]bool
	// held are answers of the agent that wait for a person.
	held remembered[[sha256.Size]byte, string]
	// hooks are the webhooks of clients, by the last segments of their addresses at the proxy.
	hooks remembered[string, *hook]
}

type seenKey struct {
	session string
	sum     [sha256.Size]byte
}

type idKey struct{ session, id string }

func newMemory() memory {
	return memory{
		seen: remembering[seenKey, bool](maxKnown), ids: remembering[idKey, bool](maxKnown), exchanges: remembering[idKey, string](maxKnown), late: remembering[[sha256.Size]byte, *late](maxLate),
		waits: make(map[string]bool), held: remembering[[sha256.Size]byte, string](maxKnown), hooks: remembering[string, *hook](maxKnown),
	}
}

// New returns a proxy. It ends with the context.
func New(ctx context.Context, o *Options) *Proxy {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	// The proxy could not read compressed content.
	transport.DisableCompression = true
	transport.ResponseHeaderTimeout = o.Wait
	transport.TLSClientConfig = &tls.Config{RootCAs: o.Roots, MinVersion: tls.VersionTLS12}
	if o.Certificate != nil {
		transport.TLSClientConfig.Certificates = []tls.Certificate{*o.Certificate}
	}
	stay := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	webhooks := transport.Clone()
	webhooks.TLSClientConfig.Certificates = nil // it is shown to the peer alone
	return &Proxy{
		gate:   gate{o: o, ended: ctx},
		memory: newMemory(),
		room:   make(chan struct{}, maxRequests),
		open:   sharing(maxRequests), loads: sharing(maxLoad),
		client: &http.Client{Transport: transport, CheckRedirect: stay}, webhooks: &http.Client{Transport: webhooks, CheckRedirect: stay},
	}
}

// Serve serves clients at the listener until the context ends.
func (p *Proxy) Serve(l Listener) error {
	ctx, end := context.WithCancel(p.ended)
	defer end()
	p.ended = ctx
	if port := l.Addr().(*net.TCPAddr); port.IP.IsLoopback() {
		for _, host := range []string{"127.0.0.1", "localhost", "::1", port.IP.String()} {
			p.hosts = append(p.hosts, hostOf(host, port.Port))
		}
	}
	server := p.server(ctx, p)
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if push := p.o.Push; push != nil {
		taking := p.server(ctx, notifier{p})
		stop := context.AfterFunc(ctx, func() { _ = taking.Close() })
		defer stop()
		p.work.Go(func() {
			defer end() // clients would wait for notifications that never come
			if err := taking.Serve(push.Listener); !errors.Is(err, http.ErrServerClosed) {
				p.o.Log.Error("cannot take push notifications", "error", err)
			}
			_ = taking.Close()
		})
	}
	p.work.Go(func() { p.o.Link.Follow(ctx) })
	p.work.Go(p.release)
	err := server.Serve(l)
	end()
	_ = server.Close() // after a failure, the listener is still open
	// When all the room is taken, no request can begin.
	for range cap(p.room) {
		p.room <- struct{}{}
	}
	p.work.Wait()
	p.client.CloseIdleConnections()
	p.webhooks.CloseIdleConnections()
	if errors.Is(err, http.ErrServerClosed) {
		err = nil
	}
	return err
}

func (p *Proxy) server(ctx context.Context, handler http.Handler) *http.Server {
	return &http.Server{
		Handler: handler, MaxHeaderBytes: maxHeader, ReadHeaderTimeout: headerTime, IdleTimeout: idleTime,
		ErrorLog: slog.NewLogLogger(p.o.Log.Handler(), slog.LevelDebug), BaseContext: func(net.Listener) context.Context { return ctx },
	}
}

// decidedBefore reports whether a message or artifact was decided for a session.
func (p *memory) decidedBefore(session string) func([sha256.Size]byte) bool {
	return func(sum [sha256.Size]byte) bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.seen.get(seenKey{session, sum})
	}
}

func (p *memory) remember(session string, sums [][sha256.Size]byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, sum := range sums {
		p.seen.put(session, seenKey{session, sum}, true)
	}
}

// own reports whether an id of the agent needs no decision: it was decided for this session, or is
// too short and too plain to say anything.
func (p *memory) own(session string) func(id string) bool {
	return func(id string) bool {
		if id == "" {
			return true
		}
		if !isPlain(id) {
			return false
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.ids.get(idKey{session, id}) || isBare(id)
	}
}

// passes returns the rule for the ids of answers. Plain ones of a peer are no text.
func (p *Proxy) passes(session string) func(id string) bool {
	if p.o.Incoming {
		return p.own(session)
	}
	return func(id string) bool { return id == "" || isPlain(id) }
}

// learn notes the ids of a request or an answer that was decided.
func (p *memory) learn(session string, s *shape, n *node) {
	_ = (&visitor{leaf: func(_ string, l leaf, n *node) error {
		if l == anID && n.kind == '"' && isPlain(n.text) {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.ids.put(session, idKey{session, n.text}, true)
		}
		return nil
	}}).walk("", s, n) // it was walked before
}
