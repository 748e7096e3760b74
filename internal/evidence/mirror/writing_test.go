package mirror

import (
	"errors"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestWritingBegins checks that the system does not keep more than a piece of the live file in memory
// for the sync of a rotation, which all commits would wait for.
func TestWritingBegins(t *testing.T) {
	dir, b := t.TempDir(), newBook("book", 0)
	var kind unix.Statfs_t
	if err := unix.Statfs(dir, &kind); err != nil || kind.Type == unix.TMPFS_MAGIC {
		t.Skipf("the file system %x has no disk, or there is none: %v", kind.Type, err)
	}
	o := options(dir, b)
	o.RotateBytes = 0
	m := openTest(t, o)
	for range 512 {
		b.addAt(bookStart, strings.Repeat("x", 16<<10))
	}
	eventually(t, "the mirror has all records", func() bool { return m.Mirrored() == b.Head().Seq })
	f, err := os.Open(o.Path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var pages unix.Cachestat_t
	err = unix.Cachestat(uint(f.Fd()), &unix.CachestatRange{}, &pages, 0)
	if errors.Is(err, unix.ENOSYS) {
		t.Skip("the kernel cannot tell which pages of a file are not written yet")
	}
	if err != nil {
		t.Fatal(err)
	}
	if waiting := int(pages.Dirty) * os.Getpagesize(); waiting > 2*writeEvery {
		t.Errorf("%d bytes wait in memory", waiting)
	}
}
