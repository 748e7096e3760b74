package console

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"

	"github.com/openclawos/ocipd/internal/ipc"
)

// installAgain says how the service manager learns the console's address.
const installAgain = "write its units again: ocipd service install --console"

// TakePassed makes listeners of the sockets that a service manager opened for the console, and
// closes the files. Each address of the page and the socket for commands must be there, once, and
// nothing else: at an address that is left free, another program could answer under the console's
// name.
func (p Place) TakePassed(files []*os.File, control string) (pages []net.Listener, commands net.Listener, err error) {
	defer func() {
		for _, f := range files {
			_ = f.Close() // the listeners have their own
		}
		if err == nil {
			return
		}
		for _, l := range pages {
			_ = l.Close() // the error says more
		}
		if commands != nil {
			_ = commands.Close() // the error says more
		}
		pages, commands = nil, nil
	}()
	missing := append(p.Addresses(), control)
	for _, f := range files {
		l, err := ipc.PassedListener(f)
		if err != nil {
			return pages, commands, err
		}
		at := slices.Index(missing, l.Addr().String())
		if at < 0 {
			_ = l.Close() // the error says more
			return pages, commands, fmt.Errorf("the passed socket %s is none of the console's at %s and %s, or is there twice; %s", l.Addr(), p.Origin(), control, installAgain)
		}
		if missing = slices.Delete(missing, at, at+1); l.Addr().Network() == "unix" {
			commands = l
		} else {
			pages = append(pages, l)
		}
	}
	if len(missing) > 0 {
		return pages, commands, fmt.Errorf("the service manager passed no socket at %s; %s", missing[0], installAgain)
	}
	return pages, commands, ownSocket(control)
}

// ownSocket checks that a socket for commands is this user's, in a directory of this user's alone, and
// keeps others out.
func ownSocket(path string) error {
	if err := private(filepath.Dir(path)); err != nil {
		return err
	}
	info, err := os.Lstat(path)
	switch {
	case err != nil:
		return fmt.Errorf("cannot use the passed socket: %w", err)
	case info.Mode()&fs.ModeSocket == 0:
		return errors.New("cannot use the passed socket " + path + ": something that is no socket is there")
	}
	return os.Chmod(path, 0o600)
}
