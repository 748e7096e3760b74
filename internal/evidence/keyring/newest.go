package keyring

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
)

// newestFile holds the newest checkpoint that was signed with the keys beside it.
const newestFile = "checkpoint.newest"

// NewestPath is where the newest checkpoint stands beside its key.
func NewestPath(dir string) string { return filepath.Join(dir, newestFile) }

// KeepNewest puts the signed note of a log's newest checkpoint beside its key,
// durably, in the place of the one before: a log that is put back without its keys,
// or rewritten by somebody who cannot get at them, is then seen to lack what was
// signed.
func (s *Signer) KeepNewest(signed string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return write(s.dir, newestFile, publicMode, []byte(signed))
}

// Newest returns the signed note of the newest checkpoint that is kept in a directory
// of keys, "" where none is.
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
