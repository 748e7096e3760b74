// Package hook answers the hooks of runtimes that run a command before a call of a tool. The
// command asks the user's resident gate, which holds the connections to the daemon, and so costs
// a call little more than the start of a program.
//
// A call that cannot be decided is refused, in the runtime's own form. The caller must write the
// answer to the runtime as it is, and nothing else.
package hook

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/openclawos/ocipd/internal/base/durable"
	"github.com/openclawos/ocipd/internal/base/peer"
	"github.com/openclawos/ocipd/internal/bridge/toolgate"
	"golang.org/x/sys/unix"
)

// Options are the inputs of one answer.
type Options struct {
	Row *Row
	// In is the runtime's question.
	In io.Reader
	// Getenv reads the runtime's environment.
	Getenv func(string) string
	// Gate is the path of the resident gate's socket, in a directory of the user alone.
	Gate string
	// Daemon is the path of the daemon's socket, and Token the token of a grant of the agent.
	Daemon, Token string
	// Without are MCP servers whose calls are decided elsewhere, as [toolgate.Options] has them.
	Without []string
	// Start is the command that serves the resident gate on the socket that it gets as file 3; see
	// [Serve].
	Start []string
}

// maxInput bounds a question, in bytes.
const maxInput = 16 << 20

// margin is the time that is left of a hook's time when the answer has to be given.
const margin = 10 * time.Second

// Run answers one hook.
func Run(ctx context.Context, o *Options) Said {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(o.Row.Wait)*time.Second-margin)
	defer cancel()
	raw, err := io.ReadAll(io.LimitReader(o.In, maxInput+1))
	if err == nil && len(raw) > maxInput {
		err = fmt.Errorf("the input of the hook is longer than %d bytes", maxInput)
	}
	if err != nil {
		return o.Row.refuse(nil, err)
	}
	q, event, err := o.Row.Read(raw)
	if err != nil {
		return o.Row.refuse(event, err)
	}
	v, err := o.ask(ctx, q)
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		err = fmt.Errorf("no answer came within %s", time.Duration(o.Row.Wait)*time.Second-margin)
	}
	if err != nil {
		return o.Row.refuse(event, fmt.Errorf("%s was not called, since it could not be decided: %w", q.Tool, err))
	}
	return o.Row.Say(event, v)
}

// Refuse is the answer of a hook that cannot even ask.
func Refuse(r *Row, err error) Said { return r.refuse(nil, err) }

func (r *Row) refuse(event *Event, err error) Said {
	return r.Say(event, toolgate.Verdict{Decision: toolgate.Deny, Reason: "ocipd: " + err.Error()})
}

// asked is a question on the gate's socket, a line.
type asked struct {
	// Program identifies the program that asks: the gate of another one ends.
	Program string            `json:"program"`
	Runtime string            `json:"runtime"`
	Daemon  string            `json:"daemon"`
	Token   string            `json:"token"`
	Without []string          `json:"without"`
	Defers  bool              `json:"defers"`
	HoldS   int               `json:"hold_s"`
	Asks    toolgate.Question `json:"asks"`
	Server  string            `json:"server"`
	Name    string            `json:"name"`
	Unsure  bool              `json:"unsure"`
	Foreign bool              `json:"foreign"`
}

// told is the answer, a line. Again is set by a gate that ends: the next one has to be asked.
type told struct {
	Decision string `json:"decision"`
	Reason   string `json:"reason"`
	Again    bool   `json:"again"`
}

// tries bounds the gates that are asked in turn, if each ends before it answers.
const tries = 3

// holdShare keeps a call waiting for a person for so long, of the hook's time.
const holdShare = 0.8

func (o *Options) ask(ctx context.Context, q *toolgate.Question) (v toolgate.Verdict, err error) {
	program, err := identity(o.Start[0])
	if err != nil {
		return v, err
	}
	line, err := json.Marshal(&asked{
		Program: program, Runtime: o.Row.Name, Daemon: o.Daemon, Token: o.Token, Without: o.leaves(q), Defers: o.defers(),
		HoldS: int(float64(o.Row.Wait) * holdShare),
		Asks:  *q, Server: q.Server, Name: q.Name, Unsure: q.Unsure, Foreign: q.Foreign,
	})
	if err != nil {
		return v, err
	}
	line = append(line, '\n')
	for range tries {
		var got told
		if got, err = o.once(ctx, line); err == nil && !got.Again {
			return toolgate.Verdict{Decision: got.Decision, Reason: got.Reason}, nil
		}
		if err == nil {
			err = errors.New("the gate ends before it answers")
		}
		if ctx.Err() != nil {
			break
		}
	}
	return v, err
}

// defers reports whether the runtime runs without a person.
func (o *Options) defers() bool {
	name, begins := o.Row.Defers[0], o.Row.Defers[1]
	return name != "" && strings.HasPrefix(o.Getenv(name), begins)
}

// identity tells a program from another one at the same path.
func identity(program string) (string, error) {
	info, err := os.Stat(program)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%s %d %d", program, info.Size(), info.ModTime().UnixNano()), nil
}

// once asks the gate, and starts one if there is none.
func (o *Options) once(ctx context.Context, line []byte) (got told, err error) {
	conn, err := o.connect(ctx)
	if err != nil {
		return got, err
	}
	defer func() { _ = conn.Close() }() // all was read
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	if _, err := conn.Write(line); err != nil {
		return got, fmt.Errorf("cannot ask the gate: %w", err)
	}
	answer, err := bufio.NewReader(conn).ReadBytes('\n')
	if err != nil {
		return got, fmt.Errorf("the gate has not answered: %w", err)
	}
	if err := json.Unmarshal(answer, &got); err != nil {
		return got, fmt.Errorf("cannot read the gate's answer: %w", err)
	}
	return got, nil
}

// dial connects to the gate. A server of another user is not the gate.
func (o *Options) dial() (*net.UnixConn, error) {
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: o.Gate, Net: "unix"})
	if err != nil {
		return nil, err
	}
	if err := sameUser(conn); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}

// sameUser returns an error unless the process at the other end is of this user.
func sameUser(conn *net.UnixConn) error {
	p, err := peer.FromConn(conn)
	if err != nil {
		return err
	}
	defer func() { _ = p.Close() }() // it is only looked at
	if p.UID != uint32(os.Geteuid()) {
		return fmt.Errorf("the socket is of user %d", p.UID)
	}
	return nil
}

// connect connects to the gate, and starts it where none listens. A lock lets one of several hooks
// start it; the others then find it.
func (o *Options) connect(ctx context.Context) (*net.UnixConn, error) {
	conn, err := o.dial()
	if err == nil || !nobody(err) {
		return conn, err
	}
	if err := os.MkdirAll(filepath.Dir(o.Gate), 0o700); err != nil {
		return nil, fmt.Errorf("cannot start the gate: %w", err)
	}
	unlock, err := lock(ctx, o.Gate)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if conn, err = o.dial(); err == nil || !nobody(err) {
		return conn, err
	}
	if err := o.start(); err != nil {
		return nil, fmt.Errorf("cannot start the gate: %w", err)
	}
	return o.dial()
}

// nobody reports whether nobody listens on a socket.
func nobody(err error) bool {
	return errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.ECONNREFUSED)
}

// lock takes the lock of a socket. A directory that others can write is refused: they could put
// a socket of their own there.
func lock(ctx context.Context, socket string) (unlock func(), err error) {
	dir := filepath.Dir(socket)
	var stat unix.Stat_t
	if err := unix.Lstat(dir, &stat); err != nil {
		return nil, fmt.Errorf("cannot use %s: %w", dir, err)
	}
	if stat.Mode&unix.S_IFMT != unix.S_IFDIR || stat.Uid != uint32(os.Geteuid()) || stat.Mode&0o022 != 0 {
		return nil, fmt.Errorf("cannot use %s: it is not a directory that this user alone can write", dir)
	}
	f, err := os.OpenFile(socket+".lock", os.O_CREATE|os.O_RDWR|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	if err := durable.Lock(ctx, f); ctx.Err() != nil {
		return nil, errors.New("another hook starts the gate, and does not finish")
	} else if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return func() { _ = f.Close() }, nil
}

// passes are the variables that the gate gets. It outlives the session, so it gets none of its secrets.
var passes = []string{"HOME", "PATH"}

// start listens, and starts the gate on the socket. So calls wait for the gate at the socket, and
// nobody has to look whether it is there yet. The caller holds the lock.
func (o *Options) start() (err error) {
	if err := os.Remove(o.Gate); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: o.Gate, Net: "unix"})
	if err != nil {
		return err
	}
	l.SetUnlinkOnClose(false)
	f, err := l.File()
	if err != nil {
		return errors.Join(err, l.Close())
	}
	cmd := exec.Command(o.Start[0], o.Start[1:]...)
	cmd.Dir, cmd.ExtraFiles, cmd.SysProcAttr = "/", []*os.File{f}, &syscall.SysProcAttr{Setsid: true}
	cmd.Env = []string{}
	for _, name := range passes {
		if value := o.Getenv(name); value != "" {
			cmd.Env = append(cmd.Env, name+"="+value)
		}
	}
	err = cmd.Start()
	if err == nil {
		err = cmd.Process.Release()
	} else {
		err = errors.Join(err, os.Remove(o.Gate))
	}
	return errors.Join(err, f.Close(), l.Close())
}
