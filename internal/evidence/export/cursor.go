package export

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/base/durable"
)

// cursor is the last record that a sink has taken. The zero cursor is before the first.
type cursor struct {
	Seq  uint64     `json:"seq"`
	Hash audit.Hash `json:"hash"`
}

const (
	// maxCursor bounds a cursor file, in bytes.
	maxCursor = 4096
	// cursorExt ends the names of cursor files. partExt after it marks a file that is being
	// written.
	cursorExt = ".json"
	partExt   = ".part"
)

// loadCursor reads a cursor. A missing file is [fs.ErrNotExist].
func loadCursor(path string) (cursor, error) {
	b, err := durable.ReadUpTo(path, maxCursor)
	if err != nil {
		return cursor{}, err
	}
	var c cursor
	if err := json.Unmarshal(b, &c); err != nil {
		return cursor{}, fmt.Errorf("%s is no cursor: %w", path, err)
	}
	return c, nil
}

// saveCursor writes a cursor. After a crash, the file has the old or the new one.
func saveCursor(path string, c cursor) error {
	b, err := json.Marshal(c)
	if err == nil {
		err = durable.Replace(path, partExt, 0o600, append(b, '\n'))
	}
	if err != nil {
		return fmt.Errorf("cannot keep the cursor: %w", err)
	}
	return nil
}

// clearTemps removes unfinished cursor files after a crash.
func clearTemps(dir string) error {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), cursorExt+partExt) {
			continue
		}
		if gone := os.Remove(filepath.Join(dir, e.Name())); gone != nil && !errors.Is(gone, fs.ErrNotExist) {
			err = errors.Join(err, gone)
		}
	}
	return err
}
