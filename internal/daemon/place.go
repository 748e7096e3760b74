package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/config"
	"github.com/openclawos/ocipd/internal/witness"
	"golang.org/x/sys/unix"
)

// lookAround looks at the places of the daemon's files before any of them is
// opened, and touches nothing. The rooms look at theirs as well; here is what they
// cannot, or would say in the words of a system call.
func (d *Daemon) lookAround(context.Context) error {
	for _, place := range []struct{ key, dir string }{
		{"store.url", filepath.Dir(d.database)}, {"audit.keys", config.KeysPath(d.cfg, d.database)},
		{"audit.mirror", filepath.Dir(d.mirror)}, {"audit.checkpoints", filepath.Dir(d.checkpoints())},
	} {
		if err := writable(place.dir, place.key); err != nil {
			return err
		}
	}
	// The database may be a symbolic link, and SQLite's files are beside what it
	// leads to.
	database := d.database
	if target, err := filepath.EvalSymlinks(database); err == nil {
		database = target
	}
	for _, file := range []struct{ what, path string }{
		{"the database", database}, {"the database's write-ahead log", database + "-wal"},
		{"the database's shared memory", database + "-shm"}, {"the database's journal", database + "-journal"},
		{"the mark of a closed store", d.database + ".latched"},
		{"the audit index", d.indexFile()}, {"the audit index's write-ahead log", d.indexFile() + "-wal"},
		{"the audit index's shared memory", d.indexFile() + "-shm"}, {"the audit index's journal", d.indexFile() + "-journal"},
		{"the file of checkpoints", d.checkpoints()},
	} {
		if err := single(file.what, file.path); err != nil {
			return err
		}
	}
	return nil
}

// single refuses what is not a file of one name: what is written to it would be
// written to somebody's file elsewhere.
func single(what, path string) error {
	var info unix.Stat_t
	switch err := unix.Lstat(path, &info); {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("cannot look at %s %s: %w", what, path, err)
	case info.Mode&unix.S_IFMT == unix.S_IFLNK:
		return fmt.Errorf("cannot use %s %s: it is a symbolic link, and what it leads to would be written to; remove it, or put the file itself there", what, path)
	case info.Mode&unix.S_IFMT != unix.S_IFREG:
		return fmt.Errorf("cannot use %s %s: it is no plain file; remove it", what, path)
	case info.Nlink > 1:
		return fmt.Errorf("cannot use %s %s: it has %d names (hard links), and another file would be written with it; if it is the daemon's, make it a file of its own "+
			"(cp -p it to another name, and mv that over it), else remove it", what, path, info.Nlink)
	}
	return nil
}

// writable refuses a directory in which no file can be made. One that is not there
// is made by whoever needs it, so the one above it counts.
func writable(dir, key string) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return fmt.Errorf("cannot use %s: %w", key, err)
	}
	err = unix.Faccessat(unix.AT_FDCWD, dir, unix.W_OK|unix.X_OK, unix.AT_EACCESS)
	for errors.Is(err, fs.ErrNotExist) && dir != "/" {
		dir = filepath.Dir(dir)
		err = unix.Faccessat(unix.AT_FDCWD, dir, unix.W_OK|unix.X_OK, unix.AT_EACCESS)
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.EROFS):
		return fmt.Errorf("cannot write to the directory %s: its file system is mounted read-only; mount it read-write, or name another place in %s", dir, key)
	case errors.Is(err, unix.EACCES):
		return fmt.Errorf("cannot write to the directory %s: the daemon's user may not; give it to that user (chown, chmod u+rwx), or name another place in %s", dir, key)
	}
	return fmt.Errorf("cannot write to the directory %s: %w", dir, err)
}

// missed refuses to begin a new log where there was one: SQLite would remove what
// is left of it, and whoever reads the log would take the new one for all there is.
func (d *Daemon) missed() error {
	missing := func(path, there string) error {
		return fmt.Errorf("cannot find the database %s, and %s: put it back from where it was moved, or from a backup; or, to begin a new log knowingly, move %s and the directory %s aside",
			d.database, there, path, config.KeysPath(d.cfg, d.database))
	}
	if info, err := os.Lstat(d.database + "-wal"); err == nil && info.Size() > 0 {
		return missing(d.database+"-wal", "its write-ahead log is there without it")
	}
	path := d.checkpoints()
	notes, err := witness.Read(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var records uint64
	for _, note := range notes {
		// Who signed it does not matter here.
		c, err := audit.OpenCheckpoint(note)
		if !errors.Is(err, audit.ErrUnsigned) {
			return fmt.Errorf("cannot read the checkpoints in %s: %w", path, err)
		}
		records = max(records, c.Size)
	}
	if records == 0 {
		return nil
	}
	return missing(path, fmt.Sprintf("%s holds a signed checkpoint of %d records in it", path, records))
}
