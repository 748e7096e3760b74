package fileintegrity

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// A file that grows during the check has no hole, whatever a single look shows.
func TestGrowingLogHasNoHole(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "log")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	log := watched{what: "the log", path: path, dir: unix.AT_FDCWD, name: path, solid: true}
	if err := log.remember(); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		frame := make([]byte, 4120)
		for i := range frame {
			frame[i] = 1
		}
		var err error
		for i := 0; i < 4000 && err == nil; i++ {
			if _, err = f.Write(frame); err == nil && i%4 == 0 {
				err = unix.Fdatasync(int(f.Fd()))
			}
		}
		done <- err
	}()
	for {
		select {
		case err := <-done:
			if err != nil {
				t.Fatal(err)
			}
			return
		default:
		}
		if err := log.check(); err != nil {
			t.Fatal(err, errors.Join(<-done))
		}
	}
}
