package hook

import (
	"bytes"
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/openclawos/ocipd/internal/base/durable"
	"github.com/openclawos/ocipd/internal/bridge/toolgate"
)

// maxProject bounds a project's settings, in bytes.
const maxProject = 1 << 20

// replaced reports whether a project could have put another server in the place of the user's server
// of a name, which is behind the proxy. A project's settings that cannot be read could do so.
func (r *Row) replaced(q *toolgate.Question, home string) bool {
	if len(r.Projects) > 0 && !filepath.IsAbs(q.Folder) {
		return true
	}
	for folder := filepath.Clean(q.Folder); len(r.Projects) > 0; folder = filepath.Dir(folder) {
		for _, name := range r.Projects {
			if name == r.Users && folder == filepath.Clean(home) {
				continue
			}
			text, err := durable.ReadUpTo(filepath.Join(folder, name), maxProject)
			switch {
			case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
			case err != nil, bytes.Contains(text, []byte(`"`+q.Server+`"`)), bytes.ContainsRune(text, '\\'):
				return true // a name can be written with escapes
			}
		}
		if folder == filepath.Dir(folder) {
			break
		}
	}
	return false
}

// leaves are the servers that the gate may leave to the proxy in a question.
func (o *Options) leaves(q *toolgate.Question) []string {
	if q.Server != "" && slices.Contains(o.Without, q.Server) && o.Row.replaced(q, o.Getenv("HOME")) {
		return nil
	}
	return o.Without
}
