package taskservice

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/base/plainfile"
	"github.com/openclawos/ocipd/internal/task"
	"github.com/openclawos/ocipd/internal/task/commandfiles"
	"github.com/openclawos/ocipd/internal/task/taskapi"
)

// maxFile bounds an artifact that the daemon hashes itself, and maxProgram a program.
const (
	maxFile    = 64 << 20
	maxProgram = 1 << 30
)

// errNoFile says that a name is of no file in the workspace.
var errNoFile = errors.New("there is no such file in the workspace")

// errForeign is the answer to callers of another user.
var errForeign = fmt.Errorf("%w: the daemon reads files for processes of its own user alone; give the text or the digest", errNoFile)

// reader reads files for a caller, but only files that the caller's user can read without the
// daemon, and none of the daemon's own.
type reader struct {
	own     bool
	private []string
}

// reader reads files for the session's caller.
func (s *Session) reader() reader {
	r := reader{own: s.operator, private: s.t.o.Private}
	if s.peer != nil {
		uid, _, _ := s.peer.Credentials()
		r.own = r.own || int64(uid) == int64(os.Geteuid())
	}
	return r
}

// mayRead refuses an open file by its real place.
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
	if rest, ok := plainfile.In(workspace, name); ok {
		return rest
	}
	return name
}

// nameOf is the one name that a file of a workspace has among artifacts. No folder of it is a
// link, see openIn.
func nameOf(workspace, name string) string { return filepath.Clean(beneath(workspace, name)) }

// openIn opens a regular file beneath a workspace, by no link.
func (r reader) openIn(workspace, name string) (*os.File, error) {
	if !r.own {
		// Before any lookup, so that the answer does not tell which files exist.
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

// program finds the program of a command, hashes it, and refuses one that runs files with it which
// the approval would not cover.
func (r reader) program(in commandfiles.Place, c *task.Action) (task.Program, error) {
	folder := in.Folder
	name := c.Argv[0]
	// In one text: an actor of another user is not to learn which files there are.
	none := api.Errorf(api.InvalidParams, "command.argv[0]: there is no program %q that the daemon can read", name)
	path := name
	switch {
	case filepath.IsAbs(name):
	case strings.ContainsRune(name, '/'):
		if folder == "" {
			return task.Program{}, api.Errorf(api.InvalidParams, "command.argv[0]: %q is relative, and the workspace is a name and no folder", name)
		}
	default:
		path = ""
		for _, dir := range []string{"/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"} {
			if info, err := os.Stat(filepath.Join(dir, name)); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
				path = filepath.Join(dir, name)
				break
			}
		}
	}
	path, err := plainfile.Lead(folder, path, nil)
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
	if err := in.Start(f, path, commandfiles.Planned(c)); err != nil {
		if !r.own {
			// An actor of another user is not to learn whose a file is.
			return task.Program{}, api.Errorf(api.InvalidParams, "command.argv[0]: others than root can change a file that the program %q runs with it", name)
		}
		return task.Program{}, api.Errorf(api.InvalidParams, "command.argv[0]: the program %s: %v", path, err)
	}
	digest, _, err := hash(f, maxProgram)
	return task.Program{Path: path, SHA256: strings.TrimPrefix(digest, "sha256:")}, err
}

// bind finds what a command would run, where, and on what.
func (r reader) bind(at *task.Task, c *task.Action, compensation bool) (*task.Bound, error) {
	if c == nil {
		return nil, nil
	}
	in := commandfiles.Place{Workspace: plainfile.Folder(at.Workspace, ""), Folder: plainfile.Folder(at.Workspace, c.Cwd)}
	exe, err := r.program(in, c)
	if err != nil {
		return nil, err
	}
	b := &task.Bound{Exe: exe, Folder: in.Folder, Inputs: []task.Input{}}
	for _, name := range c.Inputs {
		one, err := r.input(at, name)
		if err != nil {
			return nil, err
		}
		b.Inputs = append(b.Inputs, one)
	}
	in.Replaced(c, b.Inputs)
	b.Named = r.besides(in, c, b.Inputs, compensation)
	return b, readable(b)
}

// readable refuses a command with a name in the file system that no JSON can hold. The caller's own
// words can be held, so a link leads to that name.
func readable(b *task.Bound) error {
	of := func(member, name string) error {
		if utf8.ValidString(name) {
			return nil
		}
		return api.Errorf(api.InvalidParams, "%s leads to a file whose name is not UTF-8, so that nobody can be shown it", member)
	}
	err := cmp.Or(of("command.argv[0]", b.Exe.Path), of("command.cwd", b.Folder))
	for i := range b.Named {
		err = cmp.Or(err, of(fmt.Sprintf("command: %q", strings.ToValidUTF8(b.Named[i].Path, "�")), b.Named[i].Path+b.Named[i].Leads))
	}
	return err
}

// input is an artifact that is current, or a file of the workspace that is no artifact at all.
func (r reader) input(at *task.Task, name string) (task.Input, error) {
	known := false
	for i := range at.Artifacts {
		a := &at.Artifacts[i]
		if a.ID == name || a.URI == name || a.URI == nameOf(at.Workspace, name) {
			if known = true; a.Current && a.Work {
				return task.Input{URI: a.URI, Digest: a.Digest}, r.present(at, a)
			}
		}
	}
	if !known {
		if digest, _, err := r.hashFile(at.Workspace, name); err == nil {
			return task.Input{URI: nameOf(at.Workspace, name), Digest: digest}, nil
		}
	}
	return task.Input{}, api.Errorf(api.InvalidParams, "command.inputs: the task has no current artifact %.64q, nor its workspace such a file", name)
}

// besides are the files that a command names besides its inputs. That is looked at whoever asks,
// since a person is shown it.
func (r reader) besides(in commandfiles.Place, c *task.Action, inputs []task.Input, compensation bool) (list []task.Named) {
	own := r
	own.own = true
	left := int64(maxFile)
	for _, file := range in.Besides(c, inputs) {
		n := file.Named
		if file.Sure && file.Whole && !compensation {
			if f, err := own.openNamed(in.Workspace, &file); err == nil {
				if digest, size, err := hash(f, left); err == nil {
					n.Digest = digest
					left -= size
				}
				f.Close() //nolint:errcheck // nothing was written
			}
		}
		list = append(list, n)
	}
	return list
}

// openNamed opens a file that a command names, in a workspace or elsewhere.
func (r reader) openNamed(workspace string, file *commandfiles.File) (*os.File, error) {
	if name, ok := file.In(workspace); ok {
		return r.openIn(workspace, name)
	}
	f, err := plainfile.Open(file.At())
	if err != nil {
		return nil, err
	}
	if err := r.mayRead(f); err != nil {
		f.Close() //nolint:errcheck // nothing was written
		return nil, err
	}
	return f, nil
}
