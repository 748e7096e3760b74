package verify

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/base/durable"
	"github.com/openclawos/ocipd/internal/evidence/checkpoints"
)

// maxHeldFile bounds a file of evidence from somebody.
const maxHeldFile = 64 << 20

// Held reads somebody's checkpoints: receipts, notes, or lines of a file of checkpoints; in a file,
// or a directory of such files.
func Held(path string) (notes []string, err error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("cannot read the receipts: %w", err)
	}
	if info.IsDir() {
		entries, err := os.ReadDir(path)
		if err != nil {
			return nil, fmt.Errorf("cannot read the receipts: %w", err)
		}
		for _, e := range entries {
			if e.IsDir() {
				continue
			}
			more, err := Held(filepath.Join(path, e.Name()))
			if err != nil {
				return nil, err
			}
			notes = append(notes, more...)
		}
		return notes, nil
	}
	if info.Size() > maxHeldFile {
		return nil, fmt.Errorf("cannot read the receipts in %s: larger than %d bytes", path, maxHeldFile)
	}
	text, err := durable.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("cannot read the receipts: %w", err)
	}
	var r audit.Receipt
	if r.UnmarshalText(text) == nil {
		return []string{r.Note}, nil
	}
	var c audit.Consistency
	if c.UnmarshalText(text) == nil {
		return []string{c.Note}, nil
	}
	if _, err := audit.OpenCheckpoint(string(text)); errors.Is(err, audit.ErrUnsigned) {
		return []string{string(text)}, nil
	}
	notes, err = checkpoints.Read(path)
	if err != nil || len(notes) == 0 {
		return nil, fmt.Errorf("cannot read the receipts in %s: it holds no receipt, no checkpoint and no lines of them", path)
	}
	return notes, nil
}
