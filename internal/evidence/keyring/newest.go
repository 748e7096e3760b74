package keyring

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
)

// newestFile holds the newest checkpoint that the keys beside it signed.
const newestFile = "checkpoint.newest"

// NewestPath returns the path of the newest checkpoint beside its key.
func NewestPath(dir string) string { return filepath.Join(dir, newestFile) }

// KeepNewest writes the signed note of a log's newest checkpoint beside its key, durably, in place
// of the one before. If a log is restored without its keys, or rewritten by somebody without access
// to them, the note shows that signed records are missing.
func (s *Signer) KeepNewest(signed string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return write(s.dir, newestFile, publicMode, []byte(signed))
}

// Newest returns the signed note of the newest checkpoint in a directory of keys, or "".
func Newest(dir string) (signed string, err error) {
	text, err := read(dir, newestFile, publicMode)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", nil
	case err != nil:
		return "", err
	case len(strings.TrimSpace(string(text))) == 0:
		return "", fmt.Errorf("cannot use %s: it is empty; move it aside if the log is whole without it", NewestPath(dir))
	}
	return string(text), nil
}
