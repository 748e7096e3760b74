package witness

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/durable"
)

// placesFile lists the witnesses of a log, beside its keys: a key and where it is
// asked, a line each.
const placesFile = "witnesses"

// Places returns the witnesses that are listed in a directory of keys.
func Places(dir string) (list []Place, err error) {
	path := filepath.Join(dir, placesFile)
	text, err := durable.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read the witnesses: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) == 0 {
			continue
		}
		if len(fields) != 2 {
			return nil, fmt.Errorf("cannot use %s: %.120q is not a key and where it is asked", path, strings.TrimSpace(line))
		}
		p, err := ParsePlace(fields[0], fields[1])
		if err != nil {
			return nil, fmt.Errorf("cannot use %s: %w", path, err)
		}
		list = append(list, p)
	}
	return list, nil
}

// AddPlace lists a witness. One whose key is listed already is asked there from now on.
func AddPlace(dir string, p Place) error {
	if _, err := os.Stat(dir); err != nil {
		return fmt.Errorf("cannot list the witness beside the log's keys: %w; the daemon makes the directory at its first start", err)
	}
	list, err := Places(dir)
	if err != nil {
		return err
	}
	var text strings.Builder
	for _, have := range list {
		if have.Key.String() != p.Key.String() {
			fmt.Fprintf(&text, "%s %s\n", have.Key, have.URL)
		}
	}
	fmt.Fprintf(&text, "%s %s\n", p.Key, p.URL)
	if err := durable.Replace(filepath.Join(dir, placesFile), ".tmp", 0o600, []byte(text.String())); err != nil {
		return fmt.Errorf("cannot list the witness: %w", err)
	}
	return nil
}

// cosignedPath is where the newest note stands that a witness has signed.
func cosignedPath(dir string, k *Key) string {
	return filepath.Join(dir, fmt.Sprintf("witness-%08x.note", k.hash))
}

// Keep keeps the newest note that a witness has signed, in a directory of keys.
func Keep(dir string, k *Key, cosigned string) error {
	if err := durable.Replace(cosignedPath(dir, k), ".tmp", 0o600, []byte(cosigned)); err != nil {
		return fmt.Errorf("cannot keep what the witness %s signed: %w", k.name, err)
	}
	return nil
}

// Kept returns the notes that are kept of the witnesses in a directory of keys.
func Kept(dir string) (notes []string, err error) {
	list, err := Places(dir)
	if err != nil {
		return nil, err
	}
	for _, p := range list {
		text, err := durable.ReadFile(cosignedPath(dir, p.Key))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("cannot read what the witness %s signed: %w", p.Key.name, err)
		}
		if _, err := audit.OpenCheckpoint(string(text)); !errors.Is(err, audit.ErrUnsigned) {
			return nil, &audit.Fault{Problem: fmt.Sprintf("%s is no checkpoint: %v", cosignedPath(dir, p.Key), err)}
		}
		notes = append(notes, string(text))
	}
	return notes, nil
}
