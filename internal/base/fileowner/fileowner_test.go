package fileowner

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const nobody = 65534

func TestExposed(t *testing.T) {
	for _, test := range []struct {
		name string
		do   func(dir string) error
		// want are paths below the directory, each with its problem.
		want []string
	}{
		{"as it should be", func(string) error { return nil }, nil},
		{"file of everybody's", func(dir string) error { return os.Chmod(dir+"/a/b/file", 0o646) }, []string{"a/b/file can be written by everybody (mode 0646)"}},
		{"file of the group's", func(dir string) error { return os.Chmod(dir+"/a/b/file", 0o664) }, []string{"a/b/file can be written by its group (mode 0664)"}},
		{"directories above it", func(dir string) error {
			return errors.Join(os.Chmod(dir+"/a/b", 0o777), os.Chmod(dir+"/a", 0o757))
		}, []string{"a can be written by everybody (mode 0757)", "a/b can be written by everybody (mode 0777)"}},
		{"directory with the sticky bit", func(dir string) error { return os.Chmod(dir+"/a", fs.ModeSticky|0o777) }, nil},
		{"directory beside it", func(dir string) error { return os.Chmod(dir+"/c", 0o777) }, nil},
		{"where a link leads", func(dir string) error {
			return errors.Join(os.Rename(dir+"/a/b/file", dir+"/c/file"), os.Symlink("../../c/file", dir+"/a/b/file"), os.Chmod(dir+"/c", 0o777))
		}, []string{"c can be written by everybody (mode 0777)"}},
		{"behind a link and back", func(dir string) error {
			return errors.Join(os.MkdirAll(dir+"/d/e", 0o700), os.Rename(dir+"/a/b/file", dir+"/d/file"),
				os.Symlink(dir+"/d/e", dir+"/c/e"), os.Symlink(dir+"/c/e/../file", dir+"/a/b/file"), os.Chmod(dir+"/d", 0o777))
		}, []string{"d can be written by everybody (mode 0777)"}},
		{"where a link was made", func(dir string) error {
			return errors.Join(os.Rename(dir+"/a/b", dir+"/c/b"), os.Symlink(dir+"/c/b", dir+"/a/b"), os.Chmod(dir+"/a", 0o777))
		}, []string{"a can be written by everybody (mode 0777)"}},
		{"somebody else's", func(dir string) error { return os.Lchown(dir+"/a/b", nobody, -1) }, []string{"a/b belongs to user 65534"}},
		{"somebody else's link", func(dir string) error {
			return errors.Join(os.Rename(dir+"/a/b/file", dir+"/c/file"), os.Symlink(dir+"/c/file", dir+"/a/b/file"), os.Lchown(dir+"/a/b/file", nobody, -1))
		}, []string{"a/b/file belongs to user 65534"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			if strings.HasPrefix(test.name, "somebody else's") && os.Geteuid() != 0 {
				t.Skip("only root gives files away")
			}
			dir, err := filepath.EvalSymlinks(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			err = errors.Join(os.MkdirAll(dir+"/a/b", 0o700), os.Mkdir(dir+"/c", 0o700), os.WriteFile(dir+"/a/b/file", nil, 0o600), test.do(dir))
			if err != nil {
				t.Fatal(err)
			}
			list, err := Exposed(dir + "/a/b/file")
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for i := range list {
				// The directories above belong to the machine.
				if below, ours := strings.CutPrefix(list[i].Path, dir+"/"); ours {
					got = append(got, below+" "+list[i].String())
				}
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
	dir := t.TempDir()
	if err := os.Symlink("loop", dir+"/loop"); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{dir + "/loop", dir + "/none"} {
		if list, err := Exposed(path); err == nil {
			t.Errorf("%s: got %v and no error", path, list)
		}
	}
}

func TestRoots(t *testing.T) {
	sh, err := filepath.EvalSymlinks("/bin/sh")
	if err != nil {
		t.Fatal(err)
	}
	if !Roots("/bin/sh") || !Roots(sh) || Roots("/bin/there-is-none") {
		t.Error("/bin/sh is root's alone, and what is not there is nobody's")
	}
	dir := t.TempDir()
	name := filepath.Join(dir, "file")
	if err := os.WriteFile(name, nil, 0o755); err != nil {
		t.Fatal(err)
	}
	if Roots(name) != (os.Geteuid() == 0) {
		t.Error("a file of this user's is said to be root's alone, or one of root's not to be")
	}
	for what, change := range map[string]func(mode fs.FileMode) error{
		"file":      func(mode fs.FileMode) error { return os.Chmod(name, mode) },
		"directory": func(mode fs.FileMode) error { return os.Chmod(dir, mode) },
	} {
		for _, mode := range []fs.FileMode{0o775, 0o757} {
			if err := change(mode); err != nil {
				t.Fatal(err)
			}
			if Roots(name) {
				t.Errorf("a %s of mode %o is said to be root's alone", what, mode)
			}
		}
		if err := change(0o755); err != nil {
			t.Fatal(err)
		}
	}
	if os.Geteuid() != 0 {
		return
	}
	if err := os.Chmod(dir, fs.ModeSticky|0o777); err != nil {
		t.Fatal(err)
	}
	if !Roots(name) {
		t.Error("a file of root's is replaced by nobody else in a directory with the sticky bit")
	}
	if err := os.Lchown(name, nobody, -1); err != nil {
		t.Fatal(err)
	}
	if Roots(name) {
		t.Error("somebody else's file is said to be root's alone")
	}
}
