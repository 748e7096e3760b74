// Package walfile is SQLite's unix-excl VFS with a write-ahead log that is written in one system
// call a commit. SQLite writes a page in two calls, one for the page's header and one for the page,
// so that a commit of eight pages enters the kernel sixteen times before its fsync. This package
// gathers consecutive pieces, and writes them when SQLite syncs the log.
//
// Every file is opened by unix-excl, and every call except those to a write-ahead log goes straight
// to it. A crash before the sync loses the gathered pieces, which SQLite has not promised to
// anybody yet: a connection that writes must set synchronous=FULL, with which a commit ends with
// the sync, before another connection sees it.
package walfile

import (
	"errors"
	"fmt"
	"sync"
	"unsafe"

	"modernc.org/libc"
	"modernc.org/libc/sys/types"
	lib "modernc.org/sqlite/lib"
)

// name is the VFS's name in SQLite.
const name = "ocipd-excl"

// most is the number of gathered bytes: unix-excl takes less than 128 KiB at once. A longer commit
// is written in several calls.
const most = 127 << 10

// VFS returns the name of the VFS, for the parameter vfs of a database's URI. Its first call
// registers the VFS with SQLite.
func VFS() (string, error) { return name, register() }

var register = sync.OnceValue(func() error {
	tls := libc.NewTLS()
	defer tls.Close()
	if rc := lib.Xsqlite3_initialize(tls); rc != lib.SQLITE_OK {
		return fmt.Errorf("cannot initialize SQLite: code %d", rc)
	}
	parentName, err := libc.CString("unix-excl")
	if err != nil {
		return err
	}
	defer libc.Xfree(tls, parentName)
	ownName, err := libc.CString(name) // SQLite keeps it, and the following allocations
	if err != nil {
		return err
	}
	parent, own := lib.Xsqlite3_vfs_find(tls, parentName), libc.Xmalloc(tls, types.Size_t(unsafe.Sizeof(vfs{})))
	if parent == 0 || own == 0 {
		return errors.New("SQLite has no VFS unix-excl, or no memory")
	}
	v := at[vfs](own)
	*v = vfs{Tsqlite3_vfs: *at[lib.Tsqlite3_vfs](parent), parent: parent}
	v.FpNext, v.FzName, v.FxOpen = 0, ownName, pointer(open)
	v.FszOsFile = int32(v.behind() + unsafe.Sizeof(gathered{}))
	if rc := lib.Xsqlite3_vfs_register(tls, own, 0); rc != lib.SQLITE_OK {
		return fmt.Errorf("cannot register a VFS with SQLite: code %d", rc)
	}
	return nil
})

// vfs is SQLite's structure of a VFS, followed by the one that opens the files.
type vfs struct {
	lib.Tsqlite3_vfs
	parent uintptr
}

// behind is the offset of this package's part of an open file, in bytes.
func (v *vfs) behind() uintptr {
	const word = unsafe.Sizeof(uintptr(0))
	return (uintptr(at[lib.Tsqlite3_vfs](v.parent).FszOsFile) + word - 1) / word * word
}

// gathered is this package's state of an open write-ahead log. SQLite allocates it after
// unix-excl's own, and finds it again by the first member, the methods that it calls: no other file
// has these.
type gathered struct {
	methods lib.Tsqlite3_io_methods
	parent  uintptr // the methods of unix-excl
	bytes   uintptr // of most bytes, 0 before the first is written
	n       int64   // how many of them must be written
	from    int64   // their offset in the log
	// failed is set for good once a sync has failed: the kernel reports an error once, and a later
	// sync does not report the lost data again. SQLite does not report the error of a checkpoint,
	// so the next commit must see it.
	failed bool
}

func of(f uintptr) *gathered { return at[gathered](at[lib.Tsqlite3_file](f).FpMethods) }

func (g *gathered) unix() *lib.Tsqlite3_io_methods { return at[lib.Tsqlite3_io_methods](g.parent) }

func open(tls *libc.TLS, own, path, f uintptr, flags int32, outFlags uintptr) int32 {
	v := at[vfs](own)
	rc := function[func(*libc.TLS, uintptr, uintptr, uintptr, int32, uintptr) int32](at[lib.Tsqlite3_vfs](v.parent).FxOpen)(tls, v.parent, path, f, flags, outFlags)
	file := at[lib.Tsqlite3_file](f)
	if rc != lib.SQLITE_OK || flags&lib.SQLITE_OPEN_WAL == 0 || file.FpMethods == 0 {
		return rc
	}
	behind := f + v.behind()
	g := at[gathered](behind)
	*g = gathered{methods: *at[lib.Tsqlite3_io_methods](file.FpMethods), parent: file.FpMethods}
	g.methods.FxWrite = pointer(write)
	g.methods.FxRead = pointer(read)
	g.methods.FxSync = pointer(syncLog)
	g.methods.FxTruncate = pointer(truncate)
	g.methods.FxFileSize = pointer(size)
	g.methods.FxClose = pointer(closeLog)
	file.FpMethods = behind
	return rc
}

func write(tls *libc.TLS, f, bytes uintptr, n int32, from int64) int32 {
	g := of(f)
	if g.bytes == 0 {
		// Without memory each piece is written as it comes.
		g.bytes = libc.Xmalloc(tls, most)
	}
	if g.n > 0 && (from != g.from+g.n || g.n+int64(n) > most) {
		if rc := g.flush(tls, f); rc != lib.SQLITE_OK {
			return rc
		}
	}
	if g.bytes == 0 || int64(n) > most {
		return function[func(*libc.TLS, uintptr, uintptr, int32, int64) int32](g.unix().FxWrite)(tls, f, bytes, n, from)
	}
	if g.n == 0 {
		g.from = from
	}
	libc.Xmemcpy(tls, g.bytes+uintptr(g.n), bytes, types.Size_t(n))
	g.n += int64(n)
	return lib.SQLITE_OK
}

// flush writes the gathered pieces. On failure it drops them: SQLite gets the error, and rolls back
// the commit that they belong to.
func (g *gathered) flush(tls *libc.TLS, f uintptr) int32 {
	n := g.n
	if n == 0 {
		return lib.SQLITE_OK
	}
	g.n = 0
	return function[func(*libc.TLS, uintptr, uintptr, int32, int64) int32](g.unix().FxWrite)(tls, f, g.bytes, int32(n), g.from)
}

func read(tls *libc.TLS, f, bytes uintptr, n int32, from int64) int32 {
	g := of(f)
	if rc := g.flush(tls, f); rc != lib.SQLITE_OK {
		return rc
	}
	return function[func(*libc.TLS, uintptr, uintptr, int32, int64) int32](g.unix().FxRead)(tls, f, bytes, n, from)
}

// syncLog syncs by fdatasync(2), as SQLite does when it is built from C: the translated one asks
// for the file's times too, which are a write of their own if the clock has ticked since the last
// commit. Both sync a new length.
func syncLog(tls *libc.TLS, f uintptr, flags int32) int32 {
	g := of(f)
	if rc := g.flush(tls, f); rc != lib.SQLITE_OK {
		return rc
	}
	if g.failed {
		return lib.SQLITE_IOERR_FSYNC
	}
	file, rc := at[lib.TunixFile](f), int32(lib.SQLITE_OK)
	if file.FctrlFlags&lib.UNIXFILE_DIRSYNC != 0 {
		// A new log: its name must be on the disk too, once.
		rc = function[func(*libc.TLS, uintptr, int32) int32](g.unix().FxSync)(tls, f, flags)
	} else if libc.Xfdatasync(tls, file.Fh) != 0 {
		rc = lib.SQLITE_IOERR_FSYNC
	}
	g.failed = rc != lib.SQLITE_OK
	return rc
}

func truncate(tls *libc.TLS, f uintptr, n int64) int32 {
	g := of(f)
	if rc := g.flush(tls, f); rc != lib.SQLITE_OK {
		return rc
	}
	return function[func(*libc.TLS, uintptr, int64) int32](g.unix().FxTruncate)(tls, f, n)
}

func size(tls *libc.TLS, f, n uintptr) int32 {
	g := of(f)
	if rc := g.flush(tls, f); rc != lib.SQLITE_OK {
		return rc
	}
	return function[func(*libc.TLS, uintptr, uintptr) int32](g.unix().FxFileSize)(tls, f, n)
}

func closeLog(tls *libc.TLS, f uintptr) int32 {
	g := of(f)
	flushed := g.flush(tls, f)
	if g.bytes != 0 {
		libc.Xfree(tls, g.bytes)
	}
	file := at[lib.Tsqlite3_file](f)
	file.FpMethods = g.parent
	if rc := function[func(*libc.TLS, uintptr) int32](g.unix().FxClose)(tls, f); rc != lib.SQLITE_OK {
		return rc
	}
	return flushed
}

// at returns the value at an address of SQLite's memory, which no garbage collector moves or frees.
func at[T any](address uintptr) *T { return *(**T)(unsafe.Pointer(&address)) } //nolint:gosec // memory of SQLite, see above

// pointer and function convert between a function that is declared in Go and SQLite's pointer to
// it, in the form that modernc.org/sqlite gives pointers to functions.
func pointer[F any](f F) uintptr { return *(*uintptr)(unsafe.Pointer(&struct{ f F }{f})) } //nolint:gosec // as SQLite's own pointers to functions

func function[F any](address uintptr) F { return *(*F)(unsafe.Pointer(&struct{ p uintptr }{address})) } //nolint:gosec // as SQLite's own pointers to functions
