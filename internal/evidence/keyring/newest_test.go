package keyring

import (
	"crypto/rand"
	"os"
	"path/filepath"
	"testing"
)

func TestNewest(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "keys")
	s, err := OpenSigner(dir, "ocipd/x", rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := Newest(dir); err != nil || got != "" {
		t.Errorf("before the first: %q, %v", got, err)
	}
	for _, signed := range []string{"a note\n", "another\n"} {
		if err := s.KeepNewest(signed); err != nil {
			t.Fatal(err)
		}
		if got, err := Newest(dir); err != nil || got != signed {
			t.Errorf("kept %q, %v", got, err)
		}
	}
	// It is no key: other functions do not use it as one, and a start keeps it.
	if keys, err := PublicKeys(dir); err != nil || len(keys) != 1 {
		t.Errorf("%v, %v", keys, err)
	}
	if _, err := OpenSigner(dir, "ocipd/x", rand.Reader); err != nil {
		t.Error(err)
	}
	if got, err := Newest(dir); err != nil || got != "another\n" {
		t.Errorf("after a start: %q, %v", got, err)
	}
	for name, spoil := range map[string]func(path string) error{
		"emptied":     func(path string) error { return os.WriteFile(path, []byte(" \n"), 0o600) },
		"for all":     func(path string) error { return os.Chmod(path, 0o666) },
		"a directory": func(path string) error { return os.Mkdir(path, 0o700) },
		"a link":      func(path string) error { return os.Symlink("/dev/null", path) },
	} {
		if err := s.KeepNewest("a note\n"); err != nil {
			t.Fatal(err)
		}
		path := NewestPath(dir)
		if name == "a directory" || name == "a link" {
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
		}
		if err := spoil(path); err != nil {
			t.Fatal(err)
		}
		if got, err := Newest(dir); err == nil {
			t.Errorf("%s: %q", name, got)
		}
		if err := os.RemoveAll(path); err != nil {
			t.Fatal(err)
		}
	}
}
