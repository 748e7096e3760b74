package witness

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// lockFile is held by the process that answers: two processes with one directory could each sign
// another log.
const lockFile = "lock"

func (w *Witness) lock() (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(w.dir, lockFile), os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o600)
	if err != nil {
		return nil, fmt.Errorf("cannot lock the directory of the witness: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("another witness answers with the directory %s", w.dir), f.Close())
	}
	return f, nil
}

// Serve answers at HOST:PORT or unix:/PATH until the context ends. It calls ready with the address
// as soon as it answers.
func (w *Witness) Serve(ctx context.Context, listen string, ready func(address string)) error {
	lock, err := w.lock()
	if err != nil {
		return err
	}
	defer lock.Close()
	network, address := "tcp", listen
	if path, ok := strings.CutPrefix(listen, "unix:"); ok {
		network, address = "unix", path
		if err := clearSocket(path); err != nil {
			return fmt.Errorf("cannot answer at %s: %w", listen, err)
		}
	}
	var listener net.ListenConfig
	l, err := listener.Listen(ctx, network, address)
	if err != nil {
		return fmt.Errorf("cannot answer at %s: %w", listen, err)
	}
	if network == "unix" {
		// Anybody with access to the directory may ask.
		if err := os.Chmod(address, 0o666); err != nil { //nolint:gosec // a socket: the directory is its guard
			return errors.Join(err, l.Close())
		}
	}
	ready(l.Addr().String())
	server := &http.Server{Handler: w, ReadTimeout: askTime, WriteTimeout: askTime, IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10}
	defer context.AfterFunc(ctx, func() { _ = server.Close() })()
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("cannot go on answering at %s: %w", listen, err)
	}
	return nil
}

// clearSocket removes the socket of an earlier witness.
func clearSocket(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.Mode()&fs.ModeSocket == 0 {
		return fmt.Errorf("%s is there, and is no socket", path)
	}
	if c, err := net.Dial("unix", path); err == nil {
		return errors.Join(errors.New("another witness does"), c.Close())
	}
	return os.Remove(path)
}
