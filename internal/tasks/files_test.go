package tasks

import (
	"path/filepath"
	"testing"
)

// Nothing is looked for on behalf of another user's process: what it is told is the same,
// whatever is there.
func TestOthersLearnNothingOfFiles(t *testing.T) {
	dir := t.TempDir()
	for _, workspace := range []string{dir, filepath.Join(dir, "not-there"), "main"} {
		for _, name := range []string{"a", "../a", "/etc/passwd"} {
			if _, _, err := (reader{}).hashFile(workspace, name); err == nil || err.Error() != errForeign.Error() {
				t.Errorf("%s of %s: %v", name, workspace, err)
			}
		}
	}
}
