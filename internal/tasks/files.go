package tasks

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/plainfile"
	"github.com/openclawos/ocipd/internal/task"
	"github.com/openclawos/ocipd/internal/taskapi"
)

// maxFile bounds an artifact that the daemon hashes itself, and maxProgram a program.
const (
	maxFile    = 64 << 20
	maxProgram = 1 << 30
)

// errNoFile says that a name is of no file in the workspace.
var errNoFile = errors.New("there is no such file in the workspace")

// errForeign is what is said to callers that are another user's.
var errForeign = fmt.Errorf("%w: the daemon reads files for processes of its own user alone; give the text or the digest", errNoFile)

// reader reads files for a caller: those alone that the caller can read without the
// daemon, which is what its user tells, and none of the daemon's own.
type reader struct {
	own     bool
	private []string
}

// reader is who reads files for the session's caller.
func (s *Session) reader() reader {
	r := reader{own: s.operator, private: s.t.o.Private}
	if s.peer != nil {
		uid, _, _ := s.peer.Credentials()
		r.own = r.own || int64(uid) == int64(os.Geteuid())
	}
	return r
}

// mayRead refuses a file that is open, by where it really is.
func (r reader) mayRead(f *os.File) error {
	path, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", f.Fd()))
	if err != nil {
		return err
	}
	for _, dir := range append([]string{"/proc", "/sys", "/dev"}, r.private...) {
		if resolved, err := filepath.EvalSymlinks(dir); err == nil {
			dir = resolved
		}
		if path == dir || strings.HasPrefix(path, dir+"/") {
			return fmt.Errorf("%w: it is the daemon's or the system's own", errNoFile)
		}
	}
	return nil
}

// beneath is the name of a file from its workspace on, as it was given otherwise.
func beneath(workspace, name string) string {
	name = strings.TrimPrefix(name, "file://")
	if rel, err := filepath.Rel(workspace, name); filepath.IsAbs(name) && err == nil {
		return rel
	}
	return name
}

// nameOf is the one name that a file of a workspace has among artifacts. No folder of it is a
// link, see openIn.
func nameOf(workspace, name string) string { return filepath.Clean(beneath(workspace, name)) }

// openIn opens a regular file beneath a workspace, by no link.
func (r reader) openIn(workspace, name string) (*os.File, error) {
	if !r.own {
		// Before anything is looked for: what is there is not for others to learn.
		return nil, errForeign
	}
	if !filepath.IsAbs(workspace) {
		return nil, fmt.Errorf("%w: the workspace is a name and no folder", errNoFile)
	}
	f, err := plainfile.OpenBeneath(workspace, beneath(workspace, name))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNoFile, err)
	}
	if err := r.mayRead(f); err != nil {
		f.Close() //nolint:errcheck // nothing was written
		return nil, err
	}
	return f, nil
}

// hashFile returns the digest and size of a file beneath a workspace.
func (r reader) hashFile(workspace, name string) (digest string, size int64, err error) {
	f, err := r.openIn(workspace, name)
	if err != nil {
		return "", 0, err
	}
	defer f.Close()
	return hash(f, maxFile)
}

func hash(f *os.File, limit int64) (string, int64, error) {
	h := sha256.New()
	n, err := io.Copy(h, io.LimitReader(f, limit+1))
	if err != nil {
		return "", 0, err
	}
	if n > limit {
		return "", 0, api.Errorf(api.InvalidParams, "the file is larger than %d bytes", limit)
	}
	return "sha256:" + hex.EncodeToString(h.Sum(nil)), n, nil
}

// readSpecFile reads a spec from a file of the workspace.
func (r reader) readSpecFile(workspace string, ref *taskapi.SpecRef) (task.Spec, error) {
	f, err := r.openIn(workspace, ref.URI)
	if err != nil {
		return task.Spec{}, api.Errorf(api.InvalidParams, "spec_ref.uri: %v", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, task.MaxSpecBytes+1))
	if err != nil {
		return task.Spec{}, err
	}
	digest := task.Digest(text)
	if ref.Digest != "" && ref.Digest != digest {
		return task.Spec{}, api.Errorf(api.InvalidParams, "spec_ref.digest: the file has %s", digest)
	}
	file, err := task.ReadFile(text)
	if err != nil {
		return task.Spec{}, api.Errorf(api.InvalidParams, "spec_ref: %v", err)
	}
	s := task.Spec{Markdown: file.Markdown, URI: ref.URI, Digest: digest}
	s.Fields, _ = task.ReadMarkdown([]byte(file.Markdown))
	return s, nil
}

// programDirs are where a program is looked for that is named without a folder.
func programDirs() []string {
	return []string{"/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"}
}

// program finds the program of a command, and hashes it.
func program(workspace string, c *task.Action) (task.Program, error) {
	name := c.Argv[0]
	// In one text: an actor of another user is not to learn which files there are.
	none := api.Errorf(api.InvalidParams, "command.argv[0]: there is no program %q that the daemon can read", name)
	var path string
	switch {
	case filepath.IsAbs(name):
		path = name
	case strings.ContainsRune(name, '/'):
		if !filepath.IsAbs(workspace) {
			return task.Program{}, api.Errorf(api.InvalidParams, "command.argv[0]: %q is relative, and the workspace is a name and no folder", name)
		}
		path = filepath.Join(workspace, c.Cwd, name)
	default:
		for _, dir := range programDirs() {
			if info, err := os.Stat(filepath.Join(dir, name)); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
				path = filepath.Join(dir, name)
				break
			}
		}
	}
	path, err := filepath.EvalSymlinks(path)
	if err != nil {
		return task.Program{}, none
	}
	f, err := plainfile.Open(path)
	if err != nil {
		return task.Program{}, none
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || info.Mode()&0o111 == 0 {
		return task.Program{}, none
	}
	digest, _, err := hash(f, maxProgram)
	return task.Program{Path: path, SHA256: strings.TrimPrefix(digest, "sha256:")}, err
}

// folder is where a command begins: by its real name, where there is such a folder, so that a
// person sees where a link leads, and the runner finds it changed. It is "" where nobody says.
func folder(workspace string, c *task.Action) string {
	dir := c.Cwd
	switch {
	case filepath.IsAbs(dir):
		dir = filepath.Clean(dir)
	case filepath.IsAbs(workspace):
		dir = filepath.Join(workspace, dir)
	default:
		return ""
	}
	if found, err := filepath.EvalSymlinks(dir); err == nil {
		return found
	}
	return dir
}

// bind finds what a command would run, where, and on what.
func bind(at *task.Task, c *task.Action) (*task.Bound, error) {
	if c == nil {
		return nil, nil
	}
	exe, err := program(at.Workspace, c)
	if err != nil {
		return nil, err
	}
	b := &task.Bound{Exe: exe, Folder: folder(at.Workspace, c), Inputs: []task.Input{}}
	for _, name := range c.Inputs {
		found := false
		for _, a := range at.Artifacts {
			if a.Current && a.Work && (a.ID == name || a.URI == name || a.URI == nameOf(at.Workspace, name)) {
				b.Inputs, found = append(b.Inputs, task.Input{URI: a.URI, Digest: a.Digest}), true
			}
		}
		if !found {
			return nil, api.Errorf(api.InvalidParams, "command.inputs: the task has no current artifact %.64q", name)
		}
	}
	return b, nil
}
