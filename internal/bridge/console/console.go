// Package console serves the page of `ocipd console`: a person looks at the daemon in a browser and
// decides about approval requests there. It runs in a process of the person's and is a client of the
// operator socket. The daemon opens no port.
//
// The page is reached at one port of the loopback interface and one name below .localhost
// ([Place]), both made once. Before the console answers a request, it checks by which name it was
// asked for and which page asks; which process holds the other end of the connection, and, by the
// daemon's peer.check, whether that process may operate the daemon; and a proof that the page has the
// key of a session. A session begins with a link that works once, and its key is never sent. There are
// no cookies: browsers send those to every port of a host.
//
// A session shows what an operator can read, and stops things. A decision needs a signature of a
// passkey over the text that the daemon verifies ([api.Approval.TextToSign]), which the console packs
// as OpenSSH does. The daemon verifies it, and knows nothing of pages.
//
// The caller passes listeners that nobody else can have opened in its place, and serves one console
// a daemon.
package console

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/openclawos/ocipd/internal/api/client"
)

// Options are the inputs of a console.
type Options struct {
	Place Place
	// Dial connects to the operator socket.
	Dial func(context.Context) (*client.Client, error)
	// Runtime is a directory for the file of a link, which only this user can read.
	Runtime string
	// Passkeys is the file of the enrolled passkeys.
	Passkeys string
	// Health makes the checks of `ocipd doctor`, and Clicks reports whether the configuration lets a
	// click decide (console.decide).
	Health func(context.Context) (any, error)
	Clicks func() bool
	// Signers returns the list of those who may sign decisions (approvals.allowed_signers), "" if
	// there is none.
	Signers func() string
	Log     *slog.Logger
	Now     func() time.Time
}

const (
	// maxBody bounds the body of a request, maxHeader its header, in bytes. headerTime and bodyTime
	// bound the time in which they are read.
	maxBody    = 1 << 20
	maxHeader  = 16 << 10
	headerTime = 10 * time.Second
	bodyTime   = 30 * time.Second
	// answerTime bounds the daemon's answer to a call. It may ask interceptors about a decision.
	answerTime = 2 * time.Minute
)

// Console serves one person.
type Console struct {
	o        Options
	calls    upstream
	sessions sessions
	links    links
	hub      *hub
	enrol    enrolments
	seats    seats
}

// New returns a console.
func New(o Options) *Console {
	c := &Console{o: o, calls: upstream{dial: o.Dial}, sessions: sessions{now: o.Now}, links: links{now: o.Now, dir: o.Runtime, origin: o.Place.Origin()}}
	c.hub = newHub(o.Dial, o.Now)
	c.enrol.now = o.Now
	return c
}

// Serve answers browsers at the pages' listeners and the person's commands at control, until the
// context ends or a listener fails. It closes them.
func (c *Console) Serve(ctx context.Context, pages []net.Listener, control net.Listener) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	server := &http.Server{
		Handler: c, MaxHeaderBytes: maxHeader, ReadHeaderTimeout: headerTime,
		ErrorLog:    slog.NewLogLogger(c.o.Log.Handler(), slog.LevelDebug),
		BaseContext: func(net.Listener) context.Context { return ctx }, ConnContext: withConnection, ConnState: c.seats.watch,
	}
	// A browser repeats a request whose connection was used before and broke, and the console refuses a
	// repeat. So no connection is used twice.
	server.SetKeepAlivesEnabled(false)
	var work sync.WaitGroup
	ends := make(chan error, len(pages)+1)
	for _, l := range pages {
		work.Go(func() { ends <- server.Serve(l) })
	}
	work.Go(func() { ends <- c.serveControl(ctx, control) })
	work.Go(func() { c.hub.run(ctx) })
	var err error
	select {
	case <-ctx.Done():
	case err = <-ends:
	}
	cancel()
	err = errors.Join(ended(err), ended(control.Close()), ended(server.Close()))
	work.Wait()
	c.links.forget()
	c.calls.close()
	return err
}

// ended drops the errors of what was closed.
func ended(err error) error {
	if errors.Is(err, net.ErrClosed) || errors.Is(err, http.ErrServerClosed) || errors.Is(err, os.ErrClosed) {
		return nil
	}
	return err
}

// upstream is the connection for calls. It is made when one is needed.
type upstream struct {
	dial func(context.Context) (*client.Client, error)
	mu   sync.Mutex
	c    *client.Client
}

// get returns the connection. A connection that has ended is replaced.
func (u *upstream) get(ctx context.Context) (*client.Client, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.c != nil && u.c.Err() == nil {
		return u.c, nil
	}
	c, err := u.dial(ctx)
	if err != nil {
		return nil, err
	}
	if u.c != nil {
		_ = u.c.Close() // it has ended
	}
	u.c = c
	return c, nil
}

func (u *upstream) close() {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.c != nil {
		_ = u.c.Close() // nothing is awaited any more
	}
}

// call makes one call.
func (u *upstream) call(ctx context.Context, method string, params, result any) error {
	return u.callFor(ctx, "", method, params, result)
}

// callFor makes one call on behalf of the process that asks, which the daemon judges again and names
// on record.
func (u *upstream) callFor(ctx context.Context, process, method string, params, result any) error {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	c, err := u.get(ctx)
	if err != nil {
		return err
	}
	return c.CallFor(ctx, process, method, params, "", result)
}
