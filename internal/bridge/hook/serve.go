package hook

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/openclawos/ocipd/internal/api/client"
	"github.com/openclawos/ocipd/internal/bridge/toolgate"
)

// Gate is the resident gate: it answers the hooks of all runtimes of a user, each over a connection
// of its own, and holds the connections to daemons.
type Gate struct {
	// Program is the path of this program.
	Program string
	// Idle ends a gate that nobody has asked for so long. One whose socket is gone ends sooner.
	Idle time.Duration
	Log  *slog.Logger

	// path is the path of the socket if the gate removes it at its end, or "".
	listener *net.UnixListener
	path     string

	mu    sync.Mutex
	gates map[string]*toolgate.Gate
	open  int
	last  time.Time
	timer *time.Timer
	stop  context.CancelFunc
	left  sync.Once
}

// Listen takes the socket that the starter has passed. Set kept if somebody else keeps it after the
// gate's end.
func (g *Gate) Listen(socket *os.File, kept bool) error {
	l, err := net.FileListener(socket)
	if err != nil {
		return err
	}
	listener, ok := l.(*net.UnixListener)
	if !ok {
		return errors.Join(errors.New("it is no Unix socket"), l.Close())
	}
	g.listener = listener
	if !kept {
		g.path = g.listener.Addr().String()
	}
	return socket.Close()
}

// Serve answers until nobody has asked for a while, its program has been replaced, or ctx ends.
func (g *Gate) Serve(ctx context.Context) error {
	program, err := identity(g.Program)
	if err != nil {
		return err
	}
	ctx, g.stop = context.WithCancel(ctx)
	defer g.stop()
	g.gates = make(map[string]*toolgate.Gate)
	g.last = time.Now()
	g.timer = time.AfterFunc(g.period(), g.idle)
	defer g.timer.Stop()
	end := context.AfterFunc(ctx, func() { g.leave(context.WithoutCancel(ctx)) })
	defer end()
	var all sync.WaitGroup
	defer func() {
		all.Wait()
		for _, one := range g.gates {
			one.Close()
		}
	}()
	for {
		conn, err := g.listener.AcceptUnix()
		if ctx.Err() != nil {
			if err == nil {
				_ = conn.Close() // it asks again
			}
			return nil
		}
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("cannot accept hooks: %w", err)
		}
		g.count(1)
		all.Go(func() {
			defer g.count(-1)
			g.serve(context.WithoutCancel(ctx), conn, program)
		})
	}
}

// count keeps the number of open connections.
func (g *Gate) count(more int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.open += more
	g.last = time.Now()
}

// look is how often a gate looks whether anybody needs it.
const look = time.Minute

func (g *Gate) period() time.Duration { return min(g.Idle, look) }

// idle ends the gate if nobody asks, or nobody can.
func (g *Gate) idle() {
	g.mu.Lock()
	defer g.mu.Unlock()
	gone := false
	if g.path != "" {
		_, err := os.Lstat(g.path)
		gone = errors.Is(err, os.ErrNotExist)
	}
	if g.open == 0 && (gone || time.Since(g.last) >= g.Idle) {
		g.stop()
		return
	}
	g.timer.Reset(g.period())
}

// leave closes the socket, under its lock: nobody starts another gate meanwhile. A hook that has
// connected already finds its connection closed, and asks the next gate.
func (g *Gate) leave(ctx context.Context) {
	g.left.Do(func() { g.unlisten(ctx) })
}

func (g *Gate) unlisten(ctx context.Context) {
	if g.path != "" {
		if unlock, err := lock(ctx, g.path); err == nil {
			defer unlock()
			_ = os.Remove(g.path) // the next gate does it otherwise
		}
	}
	_ = g.listener.Close() // which is how Serve ends
}

// serve answers one hook.
func (g *Gate) serve(ctx context.Context, conn *net.UnixConn, program string) {
	defer func() { _ = conn.Close() }() // the hook has its answer, or asks again
	if err := sameUser(conn); err != nil {
		g.Log.Warn("a process that is not this user's has connected", "error", err)
		return
	}
	in := bufio.NewReader(io.LimitReader(conn, 2*maxInput))
	line, err := in.ReadBytes('\n')
	if err != nil {
		return // it has gone
	}
	got := g.answer(ctx, conn, line, program)
	text, err := json.Marshal(&got)
	if err == nil {
		_, err = conn.Write(append(text, '\n'))
	}
	if err != nil && !errors.Is(err, net.ErrClosed) {
		g.Log.Warn("cannot answer a hook", "error", err)
	}
}

func (g *Gate) answer(ctx context.Context, conn *net.UnixConn, line []byte, program string) told {
	var a asked
	if err := json.Unmarshal(line, &a); err != nil {
		return told{Decision: toolgate.Deny, Reason: "ocipd: the gate cannot read the question: " + err.Error()}
	}
	if now, err := identity(g.Program); err != nil || now != program || a.Program != program {
		g.leave(ctx)
		g.stop()
		return told{Again: true}
	}
	q := a.Asks
	q.Server, q.Name, q.Unsure, q.Foreign = a.Server, a.Name, a.Unsure, a.Foreign
	if err := q.Check(); err != nil {
		return told{Decision: toolgate.Deny, Reason: "ocipd: " + err.Error()}
	}
	// A hook that is killed gives its question up.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		_, _ = conn.Read(make([]byte, 1)) // it says nothing more
		cancel()
	}()
	v := g.of(&a).Decide(ctx, &q)
	return told{Decision: v.Decision, Reason: v.Reason}
}

// of returns the gate for a runtime's agent at a daemon.
func (g *Gate) of(a *asked) *toolgate.Gate {
	key := strings.Join(slices.Concat([]string{a.Runtime, a.Daemon, a.Token, fmt.Sprint(a.Defers, a.HoldS)}, a.Without), "\x00")
	g.mu.Lock()
	defer g.mu.Unlock()
	one, ok := g.gates[key]
	if !ok {
		one = toolgate.New(&toolgate.Options{
			Dial: func(ctx context.Context) (*client.Client, error) {
				return client.Dial(ctx, a.Daemon, client.WithDropEvents())
			},
			Token: a.Token, Runtime: a.Runtime, Without: a.Without, Defers: a.Defers, Hold: time.Duration(a.HoldS) * time.Second, Log: g.Log,
		})
		g.gates[key] = one
	}
	return one
}
