package keyring

import (
	"crypto/rand"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const logName = "ocipd/6b1f7a0e-7e0f-4c86-8a52-0e3d1f4f9a11"

func noon() time.Time { return time.Date(2026, 3, 13, 12, 0, 0, 0, time.UTC) }

// place returns a directory for keys that does not exist yet.
func place(tb testing.TB) string { return filepath.Join(tb.TempDir(), "state", "keys") }

func must[T any](tb testing.TB) func(T, error) T {
	return func(v T, err error) T {
		tb.Helper()
		if err != nil {
			tb.Fatal(err)
		}
		return v
	}
}

func opened(tb testing.TB, dir string) *Signer {
	tb.Helper()
	return must[*Signer](tb)(OpenSigner(dir, logName, rand.Reader))
}

func digests(tb testing.TB, dir string) *Digests {
	tb.Helper()
	return must[*Digests](tb)(OpenDigests(dir, rand.Reader, noon))
}

func refused(t *testing.T, err error, want ...string) {
	t.Helper()
	if err == nil {
		t.Fatal("nothing is refused")
	}
	for _, part := range want {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q does not say %q", err, part)
		}
	}
}

func TestFilesAreForTheDaemonAlone(t *testing.T) {
	dir := place(t)
	old := unix.Umask(0)
	defer unix.Umask(old)
	opened(t, dir)
	if _, err := digests(t, dir).Digest("acme", "text"); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]os.FileMode{".": 0o700, signingFile: 0o600, digestFile: 0o600, publicFile: 0o644} {
		info, err := os.Lstat(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if got := info.Mode().Perm(); got != want {
			t.Errorf("%s has mode %04o, want %04o", name, got, want)
		}
	}
}

// A file that others could have read, or put there, is refused, with advice about it.
func TestForeignFilesAreRefused(t *testing.T) {
	for _, file := range []string{signingFile, digestFile} {
		for name, c := range map[string]struct {
			spoil func(path string) error
			want  string
		}{
			"readable by the group": {func(p string) error { return os.Chmod(p, 0o640) }, "chmod 600 "},
			"readable by others":    {func(p string) error { return os.Chmod(p, 0o604) }, "chmod 600 "},
			"a symbolic link": {func(p string) error {
				return errors.Join(os.Rename(p, p+".real"), os.Symlink(p+".real", p))
			}, "symbolic link"},
			"a second name":  {func(p string) error { return os.Link(p, p+".copy") }, "hard links"},
			"a pipe":         {func(p string) error { return errors.Join(os.Remove(p), unix.Mkfifo(p, 0o600)) }, "no plain file"},
			"a directory":    {func(p string) error { return errors.Join(os.Remove(p), os.Mkdir(p, 0o700)) }, "no plain file"},
			"empty":          {func(p string) error { return os.Truncate(p, 0) }, "it holds no"},
			"open directory": {func(p string) error { return os.Chmod(filepath.Dir(p), 0o755) }, "chmod 700 "},
			"linked directory": {func(p string) error {
				d := filepath.Dir(p)
				return errors.Join(os.Rename(d, d+"2"), os.Symlink(d+"2", d))
			}, "no directory"},
		} {
			t.Run(file+" "+name, func(t *testing.T) {
				dir := place(t)
				opened(t, dir)
				if _, err := digests(t, dir).Digest("acme", "text"); err != nil {
					t.Fatal(err)
				}
				if err := c.spoil(filepath.Join(dir, file)); err != nil {
					t.Fatal(err)
				}
				var err error
				if file == signingFile {
					_, err = OpenSigner(dir, logName, rand.Reader)
				} else {
					_, err = OpenDigests(dir, rand.Reader, noon)
				}
				refused(t, err, c.want, dir)
			})
		}
	}
}

func TestAnotherUsersFileIsRefused(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give a file away")
	}
	dir := place(t)
	opened(t, dir)
	path := filepath.Join(dir, signingFile)
	if err := os.Chown(path, 4711, -1); err != nil {
		t.Fatal(err)
	}
	_, err := OpenSigner(dir, logName, rand.Reader)
	refused(t, err, "user 4711", "chown 0 "+path)
}

// An unfinished file after a crash is no key, and is removed.
func TestHalfWrittenFileIsCleared(t *testing.T) {
	dir := place(t)
	was := opened(t, dir).Verifier()
	part := filepath.Join(dir, signingFile+partSuffix)
	if err := os.WriteFile(part, []byte("PRIVATE+KEY+oc"), 0o600); err != nil {
		t.Fatal(err)
	}
	if is := opened(t, dir).Verifier(); is != was {
		t.Errorf("the key became %s", is)
	}
	if _, err := os.Lstat(part); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s is still there: %v", part, err)
	}
}
