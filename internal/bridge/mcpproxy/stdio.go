package mcpproxy

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

// endTime is how long the server may run after its input ends.
const endTime = 5 * time.Second

// stdio is one session with a server that the proxy starts.
type stdio struct {
	*proxy
	in  sync.Mutex // of the server's input
	srv io.WriteCloser
	out sync.Mutex // of the client's
	// read gets the result when the server's output ends.
	read chan error
}

// Run starts the server and serves a client until either of them ends.
func Run(ctx context.Context, o *Options) error { return run(ctx, o, endTime) }

// run is [Run] with a time for the server to end.
func run(ctx context.Context, o *Options, endTime time.Duration) error {
	s := &stdio{proxy: newProxy(ctx, o), read: make(chan error, 1)}
	s.spare = func(line []byte, o *observer, _ string) error { return s.pass(line, o) }
	s.accounts = func() []string { return []string{""} }
	defer s.end()
	// First by SIGTERM, later by SIGKILL.
	lives, stop := context.WithCancel(ctx)
	defer stop()
	cmd := exec.CommandContext(lives, o.Command[0], o.Command[1:]...)
	cmd.Env, cmd.Stderr, cmd.WaitDelay = o.Env, o.Stderr, endTime
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, written, err := os.Pipe()
	if err != nil {
		return err
	}
	defer out.Close()
	cmd.Stdout = written
	err = cmd.Start()
	_ = written.Close() // the server has it
	if err != nil {
		return fmt.Errorf("cannot start the MCP server: %w", err)
	}
	s.srv = in
	gone := make(chan error, 1)
	go func() {
		gone <- cmd.Wait()
		// A process that the server started may hold its output forever.
		<-s.ended.Done()
		time.AfterFunc(endTime, func() { _ = out.Close() })
	}()
	go s.readClient()
	err = s.readServer(out)
	s.end()
	kill := time.AfterFunc(endTime, stop)
	defer kill.Stop()
	ended := <-gone
	s.calls.loseAll()
	s.finish()
	select {
	case clientErr := <-s.read:
		err = errors.Join(clientErr, err)
	default:
		// The server ended before its client.
		if ended != nil && ctx.Err() == nil {
			err = errors.Join(err, fmt.Errorf("the MCP server has ended: %w", ended))
		}
	}
	return err
}

// lineOf reads a line of at most limit bytes with its end. It skips a longer one, and reports that.
func lineOf(r *bufio.Reader, limit int) (line []byte, tooLong bool, err error) {
	for {
		piece, err := r.ReadSlice('\n')
		if !tooLong {
			if tooLong = len(line)+len(piece) > limit; tooLong {
				line = nil
			} else {
				line = append(line, piece...)
			}
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return line, tooLong, err
		}
	}
}

// readClient reads the client's messages.
func (s *stdio) readClient() {
	r := bufio.NewReaderSize(s.o.In, 64<<10)
	for {
		line, tooLong, err := lineOf(r, maxClientLine)
		if !s.enter() {
			return
		}
		if tooLong {
			s.malformed(s, fmt.Sprintf("the message is longer than %d bytes", maxClientLine))
		} else if len(line) > 0 && s.clientLine(line) != nil {
			err = io.EOF // the server is gone, and its end says so
		}
		s.background.Done()
		if err != nil {
			s.clientEnded(err)
			return
		}
	}
}

// clientEnded ends the client's calls.
func (s *stdio) clientEnded(err error) {
	// Calls made before the end are decided, but do not wait for people.
	s.asking.Wait()
	s.end()
	if errors.Is(err, io.EOF) {
		err = nil
	}
	s.read <- err
	s.in.Lock()
	defer s.in.Unlock()
	_ = s.srv.Close()
}

func (s *stdio) clientLine(line []byte) error {
	if len(bytes.TrimSpace(line)) == 0 {
		return s.toServer([]byte("\n")) // other signs could say something
	}
	line = withoutHalves(line)
	f, err := parse(line)
	if err != nil {
		s.malformed(s, err.Error())
		return nil
	}
	pass, _ := s.fromClient(line, &f, "", s)
	if pass == nil {
		return nil
	}
	return s.toServer(pass)
}

// readServer reads the server's messages. Every line is inspected; a long one passes while it is read,
// unless an answer is awaited.
func (s *stdio) readServer(out io.Reader) error {
	r := bufio.NewReaderSize(out, maxBeside)
	for {
		line, err := r.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) {
			err = s.long(r, bytes.Clone(line))
		} else if len(line) > 0 {
			s.tell(s.inspected(bytes.Clone(line)))
		}
		if err != nil {
			if errors.Is(err, io.EOF) || errors.Is(err, os.ErrClosed) {
				err = nil
			}
			return err
		}
	}
}

// inspected returns what the client gets immediately for a line that may be blank.
func (s *stdio) inspected(line []byte) []byte {
	if len(bytes.TrimSpace(line)) == 0 {
		return line
	}
	return s.answered(line)
}

// long reads the rest of a line: the whole of it while an answer is awaited, and otherwise in parts
// that pass at once.
func (s *stdio) long(r *bufio.Reader, line []byte) (err error) {
	for s.calls.watches(false) && len(line) <= maxHeldLine {
		piece, err := r.ReadSlice('\n')
		if line = append(line, piece...); !errors.Is(err, bufio.ErrBufferFull) {
			s.tell(s.inspected(line))
			return err
		}
	}
	s.out.Lock()
	defer s.out.Unlock()
	if len(line) > maxHeldLine {
		if lines, spoiled := s.calls.spoil("", false, fmt.Sprintf("the server said something longer than %d bytes", maxHeldLine)); spoiled {
			err = skip(r)
			s.write(lines)
			return err
		}
	}
	u := &passage{p: s.proxy, lines: true}
	for more := true; ; {
		pass, said, cut := u.next(line)
		if !cut {
			s.write(pass)
			if more {
				line, err = r.ReadSlice('\n')
				more = errors.Is(err, bufio.ErrBufferFull)
				continue
			}
			if pass, said, cut = u.end(); !cut {
				s.write(pass)
				return err
			}
		}
		// What has passed of the line ends as no message.
		s.write(cutLine)
		if more {
			err = skip(r)
		}
		s.write(said)
		return err
	}
}

// cutLine ends a line so that it is no JSON.
var cutLine = []byte(" (cut by ocipd)\n")

// skip reads the rest of a line.
func skip(r *bufio.Reader) error {
	for {
		if _, err := r.ReadSlice('\n'); !errors.Is(err, bufio.ErrBufferFull) {
			return err
		}
	}
}

// answered returns the part of a server's line that the client gets at once.
func (s *stdio) answered(line []byte) []byte {
	instead, held := s.observed("", false, line)
	switch {
	case instead != nil && len(line) > maxBeside:
		s.tell(instead())
	case instead != nil:
		s.background.Go(func() { s.tell(instead()) })
	}
	if held {
		return nil
	}
	return line
}

// write writes to the client. If the client no longer reads, it has ended, and its input ends too.
func (s *stdio) write(b []byte) {
	if len(b) > 0 {
		if _, err := s.o.Out.Write(b); err != nil {
			s.end()
		}
	}
}

func (s *stdio) tell(line []byte) {
	s.out.Lock()
	defer s.out.Unlock()
	s.write(line)
}

func (s *stdio) news(line []byte)      { s.tell(line) }
func (s *stdio) reject(line []byte)    { s.tell(line) }
func (s *stdio) left() <-chan struct{} { return nil }
func (s *stdio) account() string       { return "" }

func (s *stdio) send(line []byte) error { return s.toServer(line) }

func (s *stdio) toServer(line []byte) error {
	s.in.Lock()
	defer s.in.Unlock()
	_, err := s.srv.Write(line)
	return err
}

func (s *stdio) pass(line []byte, o *observer) error {
	s.calls.watch(o)
	if err := s.toServer(line); err != nil && s.calls.unwatch(o.key) != nil {
		return err
	}
	// If the server has ended meanwhile, the call is lost with the others.
	return nil
}
