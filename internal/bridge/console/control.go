package console

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/openclawos/ocipd/internal/api/client"
	"github.com/openclawos/ocipd/internal/base/peer"
)

const (
	// controlTime bounds the time of one line at the socket for commands, and maxControl its bytes.
	controlTime = 10 * time.Second
	maxControl  = 64 << 10
	// maxCommands bounds the commands at once, and acceptAgain is the pause after a failed accept.
	maxCommands = 64
	acceptAgain = 100 * time.Millisecond
)

// ErrNone means that no console runs.
var ErrNone = errors.New("no console runs")

// asked is a command's line.
type asked struct {
	Do string `json:"do"`
	// Written answers an enrolment.
	Written *written `json:"written,omitzero"`
}

// Told is a line for a command.
type Told struct {
	// Link is an address that begins a session, and File a file that leads a browser to it.
	Link string `json:"link,omitzero"`
	File string `json:"file,omitzero"`
	// Origin is that of the page, and Code the one that the page asks for.
	Origin string `json:"origin,omitzero"`
	Code   string `json:"code,omitzero"`
	// Key is a page's passkey, as a line of allowed signers has it.
	Key   string `json:"key,omitzero"`
	Error string `json:"error,omitzero"`
}

// ListenControl opens the socket for commands, for this user alone. Only one console can: another
// one would answer in its name.
func ListenControl(ctx context.Context, path string) (net.Listener, error) {
	if _, err := Ask(ctx, path); err == nil {
		return nil, fmt.Errorf("a console runs already, at %s", path)
	}
	if err := private(filepath.Dir(path)); err != nil {
		return nil, err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("cannot open the console's socket: %w", err)
	}
	l, err := new(net.ListenConfig).Listen(ctx, "unix", path)
	if err != nil {
		return nil, fmt.Errorf("cannot open the console's socket: %w", err)
	}
	// The directory keeps others out until the mode is set.
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// private refuses a directory that others than this user can write to or list.
func private(dir string) error {
	info, err := os.Lstat(dir)
	if err != nil {
		return fmt.Errorf("cannot use the console's directory: %w", err)
	}
	if s, ok := info.Sys().(*syscall.Stat_t); !ok || !info.IsDir() || s.Uid != uint32(os.Geteuid()) || info.Mode().Perm()&0o077 != 0 {
		return fmt.Errorf("cannot use the directory %s for the console: it has to be your own, with the mode 0700", dir)
	}
	return nil
}

// serveControl answers the person's commands until the listener is closed. Beyond its bound, a command
// is told so.
func (c *Console) serveControl(ctx context.Context, l net.Listener) error {
	var work sync.WaitGroup
	defer work.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	seats := make(chan struct{}, maxCommands)
	for {
		one, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return err
		}
		if err != nil {
			// Out of descriptors: connections that end free some.
			c.o.Log.Error("cannot accept a command", "error", err)
			select {
			case <-time.After(acceptAgain):
				continue
			case <-ctx.Done():
				return err
			}
		}
		s := &talk{Conn: one, lines: bufio.NewReaderSize(io.LimitReader(one, maxControl), 4096), now: c.o.Now}
		select {
		case seats <- struct{}{}:
		default:
			// The text fits into the buffer of a socket, so nothing is waited for.
			_ = s.say(Told{Error: errBusy.Error()})
			_ = one.Close() // the command may be gone
			continue
		}
		work.Go(func() {
			defer func() { <-seats }()
			defer one.Close()
			stop := context.AfterFunc(ctx, func() { _ = one.Close() }) // nobody waits any more
			defer stop()
			if err := c.serveCommand(ctx, s); err != nil {
				_ = s.say(Told{Error: err.Error()}) // the command may be gone
			}
		})
	}
}

// errBusy is the answer to a command beyond the bound.
var errBusy = fmt.Errorf("the console answers %d commands already: try again", maxCommands)

// talk is a connection of a command.
type talk struct {
	net.Conn
	lines *bufio.Reader
	now   func() time.Time // nil at the command, whose context bounds the time
}

func (t *talk) say(what any) error {
	text, err := json.Marshal(what)
	if err == nil && t.now != nil {
		err = t.SetWriteDeadline(t.now().Add(controlTime))
	}
	if err == nil {
		_, err = t.Write(append(text, '\n'))
	}
	return err
}

// hear reads a line, at the console within a time.
func (t *talk) hear(within time.Duration, into any) error {
	if t.now != nil {
		if err := t.SetReadDeadline(t.now().Add(within)); err != nil {
			return err
		}
	}
	text, err := t.lines.ReadBytes('\n')
	if err != nil {
		return err
	}
	return json.Unmarshal(text, into, json.RejectUnknownMembers(true))
}

// serveCommand answers one command. A process that may not operate the daemon gets no link.
func (c *Console) serveCommand(ctx context.Context, s *talk) error {
	conn, ok := s.Conn.(*net.UnixConn)
	if !ok {
		return errors.New("the socket is none for commands")
	}
	who, err := peer.FromConn(conn)
	if err != nil {
		return err
	}
	defer who.Close()
	process, err := who.Process()
	switch {
	case err != nil:
		return err
	case who.UID != uint32(os.Geteuid()) || process == "":
		return errors.New("the console is another user's, or cannot see the process that asks")
	}
	var a asked
	if err := s.hear(controlTime, &a); err != nil {
		return fmt.Errorf("cannot read the command: %w", err)
	}
	if a.Do == "ask" {
		return s.say(Told{Origin: c.o.Place.Origin()})
	}
	no, err := c.mayOperate(ctx, []string{process})
	if no != nil {
		err = errors.New(no.Message)
	}
	if errors.Is(err, errAway) {
		err = fmt.Errorf("%w: %w", errAway, client.ErrNotRunning)
	}
	if err != nil {
		return err
	}
	switch a.Do {
	case "link":
		address, file, err := c.links.make()
		if err != nil {
			return err
		}
		return s.say(Told{Link: address, File: file, Origin: c.o.Place.Origin()})
	case "enrol":
		return c.serveEnrolment(ctx, s)
	}
	return fmt.Errorf("the console knows no command %q", a.Do)
}

// serveEnrolment gives a terminal a code, and the key of the page that knows it.
func (c *Console) serveEnrolment(ctx context.Context, s *talk) error {
	one, err := c.enrol.begin()
	if err != nil {
		return err
	}
	defer c.enrol.end(one)
	address, file, err := c.links.make()
	if err == nil {
		err = s.say(Told{Link: address, File: file, Origin: c.o.Place.Origin(), Code: one.code})
	}
	if err != nil {
		return err
	}
	late := time.NewTimer(enrolTime)
	defer late.Stop()
	var given enrolled
	select {
	case given = <-one.key:
	case <-one.over:
		return errors.New("the enrolment is over: another one began, or the page's code was wrong too often")
	case <-late.C:
		return fmt.Errorf("no page has enrolled a passkey within %s", enrolTime)
	case <-ctx.Done():
		return ctx.Err()
	}
	if err := s.say(Told{Key: given.key}); err != nil {
		given.answer <- written{Error: "it is gone"}
		return err
	}
	var a asked
	if err := s.hear(enrolTime, &a); err != nil || a.Written == nil {
		given.answer <- written{Error: "it is gone"}
		return errors.New("the terminal has not said what it did")
	}
	given.answer <- *a.Written
	<-one.over // the page has its answer
	return s.say(Told{})
}

// dialControl connects to a running console and gives it a command. The context bounds all of it.
func dialControl(ctx context.Context, path, do string) (t *talk, end func(), err error) {
	if err := private(filepath.Dir(path)); err != nil {
		return nil, nil, err
	}
	conn, err := new(net.Dialer).DialContext(ctx, "unix", path)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %w", ErrNone, err)
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() }) // nobody waits any more
	t = &talk{Conn: conn, lines: bufio.NewReader(conn)}
	if err := t.say(asked{Do: do}); err != nil {
		return nil, nil, errors.Join(err, conn.Close())
	}
	return t, func() { stop(); _ = conn.Close() }, nil
}

// told reads a line of the console.
func (t *talk) told() (Told, error) {
	var answer Told
	err := t.hear(0, &answer)
	if err == nil && answer.Error != "" {
		err = errors.New(answer.Error)
	}
	return answer, err
}

// Ask asks a running console for its origin. An error means that none runs.
func Ask(ctx context.Context, path string) (Told, error) { return oneCommand(ctx, path, "ask") }

// Link asks a running console for a link.
func Link(ctx context.Context, path string) (Told, error) { return oneCommand(ctx, path, "link") }

func oneCommand(ctx context.Context, path, do string) (Told, error) {
	ctx, cancel := context.WithTimeout(ctx, controlTime)
	defer cancel()
	t, end, err := dialControl(ctx, path, do)
	if err != nil {
		return Told{}, err
	}
	defer end()
	return t.told()
}

// Enrol waits for a page's passkey. It calls show with the code that the page asks for, and add with
// the key.
func Enrol(ctx context.Context, path string, show func(Told), add func(key string) (Added, error)) error {
	t, end, err := dialControl(ctx, path, "enrol")
	if err != nil {
		return err
	}
	defer end()
	code, err := t.told()
	if err != nil {
		return err
	}
	show(code)
	given, err := t.told()
	if err != nil {
		return err
	}
	done := &written{}
	var failed error
	if done.Added, failed = add(given.Key); failed != nil {
		done.Error = failed.Error()
	}
	if err := t.say(asked{Do: "enrol", Written: done}); err != nil {
		return errors.Join(failed, err)
	}
	if _, err := t.told(); failed == nil && err != nil {
		return err
	}
	return failed
}
