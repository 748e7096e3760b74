package db

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
)

// A process that opens a file which another has made and given up does not wait, and gets the file
// that has the name.
func TestClaimOfAFileThatLostItsName(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ocipd.db")
	for range 200 {
		var both sync.WaitGroup
		for range 2 {
			both.Go(func() {
				f, made, _, err := claimFile(path)
				if errors.Is(err, ErrInUse) {
					return
				}
				if err != nil || !made {
					t.Errorf("made is %t, %v", made, err)
					return
				}
				named, err := os.Stat(path)
				if err != nil {
					t.Errorf("claimed is a file without a name: %v", err)
				} else if info, err := f.Stat(); err != nil || !os.SameFile(info, named) {
					t.Errorf("claimed is a file of another name: %v", err)
				}
				if err := errors.Join(os.Remove(path), f.Close()); err != nil {
					t.Error(err)
				}
			})
		}
		both.Wait()
	}
}
