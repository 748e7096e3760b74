package runner

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/openclawos/ocipd/internal/base/plainfile"
	"github.com/openclawos/ocipd/internal/task"
	"github.com/openclawos/ocipd/internal/task/commandfiles"
	"github.com/openclawos/ocipd/internal/task/ledger"
)

// maxInput bounds the copy of one input, in bytes.
const maxInput = 1 << 30

// stage copies the approved inputs into a folder of the run, hashes them, and refuses
// changed ones. It returns the command's words, with each word that names an input replaced
// by the copy's name. Within the folder, a copy has the absolute path of its input.
func stage(o *shimOrder, l *ledger.Run) ([]string, error) {
	dir := l.Path(ledger.InputsDir)
	// A killed shim may have left files.
	if err := os.RemoveAll(dir); err != nil {
		return nil, err
	}
	if err := o.named(); err != nil {
		return nil, err
	}
	argv := slices.Clone(o.Action.Argv)
	staged := make(map[string]string)
	for _, in := range o.Bound.Inputs {
		name := plainfile.Joined(o.Workspace, strings.TrimPrefix(in.URI, "file://"))
		if name == "" {
			return nil, fmt.Errorf("the input %s is of a workspace that is a name and no folder", in.URI)
		}
		to := filepath.Join(dir, filepath.Clean(name))
		digest, ok := staged[to]
		if !ok {
			var err error
			if digest, err = o.copyInput(name, to); err != nil {
				return nil, fmt.Errorf("the input %s cannot be looked at: %w", in.URI, err)
			}
			staged[to] = digest
		}
		if digest != in.Digest {
			return nil, fmt.Errorf("the input %s is not what was approved", in.URI)
		}
		for _, w := range in.Argv {
			argv[w.Index] = o.Action.Argv[w.Index][:w.From] + to
		}
	}
	return argv, nil
}

// named checks the other files that the command names: they are unchanged since the approval,
// and no new ones appeared. It skips compensations, which find the command's own results.
func (o *shimOrder) named() error {
	if o.Compensation {
		return nil
	}
	approved, names, absent := make(map[task.Named]bool), make(map[string]bool), make(map[string]bool)
	for _, n := range o.Bound.Named {
		names[n.Path], absent[n.Path] = true, n.Absent
		if approved[commandfiles.Key(n)] = true; n.Digest == "" {
			continue
		}
		f, err := o.open(cmp.Or(n.Leads, n.Path))
		if err != nil {
			return fmt.Errorf("%s, which the command names, cannot be looked at: %w", n.Path, err)
		}
		sum, err := plainfile.SHA256(f)
		f.Close() //nolint:errcheck // nothing was written
		if err != nil {
			return err
		}
		if "sha256:"+sum != n.Digest {
			return fmt.Errorf("%s, which the command names, is not what was approved: ask for it anew", n.Path)
		}
	}
	now := make(map[task.Named]bool)
	for _, file := range o.place().Besides(&o.Action, o.Bound.Inputs) {
		key := commandfiles.Key(file.Named)
		switch came := absent[key.Path] && !file.Absent; {
		case !came && (!file.Whole || approved[key]):
		case !came && names[key.Path]:
			return elsewhere(key.Path)
		default:
			return fmt.Errorf("%s, which the command names, was not there when it was approved: ask for it anew", key.Path)
		}
		now[key] = file.Whole || key.Leads != ""
	}
	for _, n := range o.Bound.Named {
		if key := commandfiles.Key(n); (n.Digest != "" || n.Leads != "") && !now[key] {
			return elsewhere(n.Path)
		}
	}
	return nil
}

// elsewhere is the error for a name that leads to another file than a person has seen.
func elsewhere(name string) error {
	return fmt.Errorf("%s is what the command named when it was approved, and by that name it gets another file now: ask for it anew", name)
}

// place is the place in which the command runs.
func (o *shimOrder) place() commandfiles.Place {
	return commandfiles.Place{Workspace: plainfile.Folder(o.Workspace, ""), Folder: o.Bound.Folder}
}

// open opens a file. In the workspace, it follows no links.
func (o *shimOrder) open(name string) (*os.File, error) {
	for _, folder := range []string{o.Workspace, plainfile.Folder(o.Workspace, "")} {
		if beneath, ok := plainfile.In(folder, name); ok {
			return plainfile.OpenBeneath(folder, beneath)
		}
	}
	return plainfile.Open(name)
}

// copyInput copies a file, and returns the digest of the copy.
func (o *shimOrder) copyInput(name, to string) (digest string, err error) {
	f, err := o.open(name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return "", err
	}
	if info.Size() > maxInput {
		return "", fmt.Errorf("it has more than %d bytes", maxInput)
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
		return "", err
	}
	copied, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o400|info.Mode()&0o100)
	if err != nil {
		return "", err
	}
	h := sha256.New()
	if _, err = io.Copy(io.MultiWriter(copied, h), io.LimitReader(f, info.Size())); err != nil {
		copied.Close() //nolint:errcheck // nothing runs on it
		return "", err
	}
	return "sha256:" + hex.EncodeToString(h.Sum(nil)), copied.Close()
}
