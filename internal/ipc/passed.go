package ipc

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Names of the two sockets, as a service manager may give them to the files it passes
// (FileDescriptorName= of systemd.socket(5)).
const (
	passedKernel   = "kernel"
	passedOperator = "operator"
)

// Passed are the two sockets that a service manager opened for the daemon. They stay when the
// daemon ends, and clients that connect meanwhile wait in them.
type Passed struct {
	Apps, Operators *net.UnixListener
}

// TakePassed makes listeners of the files that a service manager passed, and closes the files. A
// file is identified by its name, kernel or operator, or else by the name of its socket,
// kernel.sock or operator.sock: a single systemd unit that opens both gives both one name. Without
// any file it returns nil.
//
// Both must be there, once, and listen on a path. Unusable ones are closed; the service manager's
// own copy stays open.
func TakePassed(files []*os.File) (p *Passed, err error) {
	if len(files) == 0 {
		return nil, nil
	}
	p = &Passed{}
	defer func() {
		for _, f := range files {
			err = errors.Join(err, f.Close())
		}
		if err != nil {
			err = errors.Join(err, p.Close())
			p = nil
		}
	}()
	for _, f := range files {
		l, err := passedListener(f)
		if err != nil {
			return p, err
		}
		which := f.Name()
		if which != passedKernel && which != passedOperator {
			which = strings.TrimSuffix(filepath.Base(l.Addr().String()), ".sock")
		}
		into := &p.Apps
		switch {
		case which == passedOperator:
			into = &p.Operators
		case which != passedKernel:
			return p, errors.Join(fmt.Errorf("cannot tell what the passed socket %s is for: name it kernel or operator with FileDescriptorName=, or let its path end in kernel.sock or operator.sock", l.Addr()), l.Close())
		}
		if *into != nil {
			return p, errors.Join(fmt.Errorf("cannot use the passed sockets: %s and %s are both the %s socket", (*into).Addr(), l.Addr(), which), l.Close())
		}
		*into = l
	}
	if p.Apps == nil || p.Operators == nil {
		return p, errors.New("cannot use the passed sockets: both are needed, kernel.sock and operator.sock; ocipd.socket of this version opens both")
	}
	return p, nil
}

// passedListener checks that a file is a listening stream socket with a path.
func passedListener(f *os.File) (*net.UnixListener, error) {
	l, err := PassedListener(f)
	if err != nil {
		return nil, err
	}
	listener, ok := l.(*net.UnixListener)
	switch {
	case !ok:
		return nil, errors.Join(refusedFile(f, "it is no Unix stream socket; use ListenStream= with a path"), l.Close())
	case !filepath.IsAbs(l.Addr().String()):
		return nil, errors.Join(refusedFile(f, "it has no path, so no mode keeps others out"), l.Close())
	}
	return listener, nil
}

func refusedFile(f *os.File, why string) error {
	return fmt.Errorf("cannot use the passed file %q: %s", f.Name(), why)
}

// PassedListener makes a listener of a file that a service manager passed, after a check that it is
// a stream socket that listens. The file stays open.
func PassedListener(f *os.File) (net.Listener, error) {
	raw, err := f.SyscallConn()
	if err != nil {
		return nil, refusedFile(f, err.Error())
	}
	var kind, listens int
	var asked error
	err = raw.Control(func(fd uintptr) {
		for option, into := range map[int]*int{unix.SO_TYPE: &kind, unix.SO_ACCEPTCONN: &listens} {
			var failed error
			*into, failed = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, option)
			asked = errors.Join(asked, failed)
		}
	})
	switch {
	case err != nil || asked != nil:
		return nil, refusedFile(f, "it is no socket")
	case kind != unix.SOCK_STREAM:
		return nil, refusedFile(f, "it is no stream socket; use ListenStream=")
	case listens == 0:
		return nil, refusedFile(f, "it does not listen; a unit with Accept=yes cannot start this program")
	}
	l, err := net.FileListener(f)
	if err != nil {
		return nil, refusedFile(f, err.Error())
	}
	return l, nil
}

// Claim takes the sockets for this process, as [ClaimSockets] does for those that the daemon opens:
// it refuses the same directories, and holds the same lock. It refuses a socket that belongs to
// somebody else, or that more users than mode allows may connect to. mode is for the apps' socket;
// the operators' is for their owner alone.
func (p *Passed) Claim(mode fs.FileMode) (*Claim, error) {
	for _, s := range []struct {
		listener *net.UnixListener
		mode     fs.FileMode
	}{{p.Apps, mode}, {p.Operators, 0o600}} {
		path := s.listener.Addr().String()
		if err := checkDir(filepath.Dir(path)); err != nil {
			return nil, err
		}
		info, err := os.Lstat(path)
		if err != nil {
			return nil, fmt.Errorf("cannot use the passed socket: %w", err)
		}
		stat, ok := info.Sys().(*syscall.Stat_t)
		switch {
		case info.Mode()&fs.ModeSocket == 0:
			return nil, fmt.Errorf("cannot use the passed socket %s: something that is no socket is there", path)
		case !ok || stat.Uid != uint32(os.Geteuid()) && stat.Uid != 0:
			return nil, fmt.Errorf("cannot use the passed socket %s: it belongs to another user; SocketUser= says whose it is", path)
		case info.Mode().Perm()&0o022&^s.mode != 0: // connecting needs write permission
			return nil, fmt.Errorf("cannot use the passed socket %s: others can connect to it (mode %04o); set SocketMode=%04o", path, info.Mode().Perm(), s.mode)
		}
	}
	// Nothing is removed at the end: the sockets belong to the service manager.
	c := &Claim{}
	return c, c.takeLock(p.Apps.Addr().String())
}

// Close closes the listeners.
func (p *Passed) Close() error {
	var failures []error
	for _, l := range []*net.UnixListener{p.Apps, p.Operators} {
		if l != nil {
			failures = append(failures, l.Close())
		}
	}
	return errors.Join(failures...)
}
