package keyring

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/openclawos/ocipd/internal/base/durable"
	"golang.org/x/sys/unix"
)

// Modes of secret files, and of files for anybody with access to the directory.
const (
	secretMode = 0o600
	publicMode = 0o644
	dirMode    = 0o700
)

// maxFileBytes bounds the part of a file that is read.
const maxFileBytes = 4 << 20

// partSuffix ends the name of an unfinished file.
const partSuffix = ".part"

// prepare makes the directory, or checks an existing one. It removes unfinished versions of the
// named files after a crash.
func prepare(dir string, names ...string) error {
	if err := os.MkdirAll(dir, dirMode); err != nil {
		return fmt.Errorf("cannot make the directory of keys: %w", err)
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return fmt.Errorf("cannot use the directory of keys: %w", err)
	}
	if !info.IsDir() {
		return fmt.Errorf("cannot use the directory of keys %s: it is no directory; name the directory itself in audit.keys", dir)
	}
	if err := ours(dir, info, dirMode); err != nil {
		return fmt.Errorf("cannot use the directory of keys %s: %w", dir, err)
	}
	for _, name := range names {
		if err := os.Remove(filepath.Join(dir, name+partSuffix)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("cannot remove what is left of a key file: %w", err)
		}
	}
	return nil
}

// ours refuses files that belong to another user or are open to others.
func ours(path string, info fs.FileInfo, mode fs.FileMode) error {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return errors.New("cannot find out its owner")
	}
	if uid := os.Geteuid(); int(stat.Uid) != uid {
		return notOurs{fmt.Errorf("it belongs to user %d and the daemon runs as %d; give it to the daemon's user: chown %d %s", stat.Uid, uid, uid, path)}
	}
	if info.Mode().Perm()&^mode != 0 {
		return notOurs{fmt.Errorf("others can get at it (mode %04o); if nobody has: chmod %o %s", info.Mode().Perm(), mode, path)}
	}
	return nil
}

// read returns a file that only this user can access, or an error that wraps [fs.ErrNotExist].
func read(dir, name string, mode fs.FileMode) ([]byte, error) {
	path := filepath.Join(dir, name)
	fail := func(err error) ([]byte, error) { return nil, fmt.Errorf("cannot use the key file %s: %w", path, err) }
	// Opening a named pipe would wait.
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	switch {
	case errors.Is(err, unix.ELOOP):
		return fail(errors.New("it is a symbolic link; put the file itself there"))
	case errors.Is(err, unix.EACCES):
		return fail(notOurs{fmt.Errorf("it may not be read: chmod %o %s", mode, path)})
	case err != nil:
		return fail(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return fail(err)
	}
	if !info.Mode().IsRegular() {
		return fail(errors.New("it is no plain file"))
	}
	if err := ours(path, info, mode); err != nil {
		return fail(err)
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok && stat.Nlink != 1 {
		return fail(fmt.Errorf("it has %d names (hard links); copy it to a file of its own", stat.Nlink))
	}
	text, err := io.ReadAll(io.LimitReader(f, maxFileBytes+1))
	if err != nil {
		return fail(err)
	}
	if len(text) > maxFileBytes {
		return fail(fmt.Errorf("it has more than %d bytes", maxFileBytes))
	}
	return text, nil
}

// write replaces a file, or creates it, durably: after a crash there is the old one or the new one.
func write(dir, name string, mode fs.FileMode, text []byte) (err error) {
	path := filepath.Join(dir, name)
	defer func() {
		if err != nil {
			err = fmt.Errorf("cannot write the key file %s: %w", path, err)
		}
	}()
	return durable.Replace(path, partSuffix, mode, text)
}

// rename renames a file durably.
func rename(dir, from, to string) error {
	if err := os.Rename(filepath.Join(dir, from), filepath.Join(dir, to)); err != nil {
		return fmt.Errorf("cannot put a key in force: %w", err)
	}
	return syncDir(dir)
}

// remove removes a file durably. A missing file is no error.
func remove(dir, name string) error {
	if err := os.Remove(filepath.Join(dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("cannot remove a key: %w", err)
	}
	return syncDir(dir)
}

func syncDir(dir string) error {
	if err := durable.SyncDir(dir); err != nil {
		return fmt.Errorf("cannot sync the directory of keys: %w", err)
	}
	return nil
}

// line returns the only line of a file.
func line(text []byte) string { return strings.TrimSuffix(string(text), "\n") }
