package witness

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/base/durable"
)

// placesFile lists the witnesses of a log, beside its keys: a key and an address in each line.
const placesFile = "witnesses"

// ListPath returns the path of the list of a log's witnesses.
func ListPath(dir string) string { return filepath.Join(dir, placesFile) }

// List is the list of a log's witnesses.
type List []Place

// Places returns the list of witnesses in a directory of keys.
func Places(dir string) (list List, err error) {
	path := ListPath(dir)
	text, err := durable.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read the witnesses: %w", err)
	}
	return ParseList(path, string(text))
}

// ParseList reads a list in the form of [List.String]. An error names the path.
func ParseList(path, text string) (list List, err error) {
	for line := range strings.Lines(text) {
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

// AddPlace lists a witness. If its key is listed already, it gets the new address.
func AddPlace(dir string, p Place) error {
	if _, err := os.Stat(dir); err != nil {
		return fmt.Errorf("cannot list the witness beside the log's keys: %w; the daemon makes the directory at its first start", err)
	}
	list, err := Places(dir)
	if err != nil {
		return err
	}
	return list.without(p.Key).write(dir, p)
}

// RemovePlace removes a witness from the list, by its name or its key. Its signatures stay.
func RemovePlace(dir, which string) (removed Place, err error) {
	list, err := Places(dir)
	if err != nil {
		return Place{}, err
	}
	var found List
	for _, p := range list {
		if p.Key.name == which || p.Key.String() == which {
			found = append(found, p)
		}
	}
	switch len(found) {
	case 0:
		return Place{}, fmt.Errorf("no witness %.160q is listed", which)
	case 1:
		return found[0], list.without(found[0].Key).write(dir)
	}
	return Place{}, fmt.Errorf("%d witnesses have the name %.160q: name one by its key", len(found), which)
}

// without returns the list without a key.
func (l List) without(k *Key) (rest List) {
	for _, have := range l {
		if have.Key.String() != k.String() {
			rest = append(rest, have)
		}
	}
	return rest
}

// String returns the stored form of a list: a line for each witness.
func (l List) String() string {
	var text strings.Builder
	for _, p := range l {
		fmt.Fprintf(&text, "%s %s\n", p.Key, p.URL)
	}
	return text.String()
}

// write replaces the stored list by this one, with more places at the end.
func (l List) write(dir string, more ...Place) error {
	text := append(slices.Clip(l), more...).String()
	if err := durable.Replace(ListPath(dir), ".tmp", 0o600, []byte(text)); err != nil {
		return fmt.Errorf("cannot list the witness: %w", err)
	}
	return nil
}

// cosignedPath returns the path of the newest note that a witness has signed.
func cosignedPath(dir string, k *Key) string {
	return filepath.Join(dir, fmt.Sprintf("witness-%08x.note", k.hash))
}

// Keep stores the newest note that a witness has signed, in a directory of keys.
func Keep(dir string, k *Key, cosigned string) error {
	if err := durable.Replace(cosignedPath(dir, k), ".tmp", 0o600, []byte(cosigned)); err != nil {
		return fmt.Errorf("cannot keep what the witness %s signed: %w", k.name, err)
	}
	return nil
}

// Kept returns the stored notes of the witnesses in a directory of keys.
func Kept(dir string) (notes []string, err error) {
	list, err := Places(dir)
	if err != nil {
		return nil, err
	}
	for _, p := range list {
		signed, err := KeptOf(dir, p.Key)
		if err != nil {
			return nil, err
		}
		if signed != "" {
			notes = append(notes, signed)
		}
	}
	return notes, nil
}

// KeptOf returns the stored note of one witness, or "".
func KeptOf(dir string, k *Key) (signed string, err error) {
	text, err := durable.ReadFile(cosignedPath(dir, k))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("cannot read what the witness %s signed: %w", k.name, err)
	}
	if _, err := audit.OpenCheckpoint(string(text)); !errors.Is(err, audit.ErrUnsigned) {
		return "", &audit.Fault{Problem: fmt.Sprintf("%s is no checkpoint: %v", cosignedPath(dir, k), err)}
	}
	return string(text), nil
}
