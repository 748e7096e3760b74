package integrate

import (
	"bytes"
	"errors"
	"fmt"
	"github.com/openclawos/ocipd/internal/bridge/settingsfile"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/openclawos/ocipd/internal/base/durable"
)

// Edit is our part of one file, besides the commands of servers.
type Edit struct {
	// File is the path of the file, and What describes the effect for people.
	File, What string
	// Out is set where it is taken out. Shared is set for a file that all users read.
	Out, Shared bool
	// mends is set for what somebody else has put there and what is taken out for it.
	mends bool
	items []settingsfile.Item
}

// enter returns a text with all items of the edit in it, once.
func (e *Edit) enter(text []byte) ([]byte, error) {
	for _, i := range e.items {
		strays, err := i.Strays(text)
		if err != nil {
			return nil, fmt.Errorf("cannot change %s: %w", e.File, err)
		}
		if len(strays) == 0 {
			continue
		}
		if text, err = i.Strip(text); err == nil {
			text, err = i.Add(text)
		}
		if err == nil {
			strays, err = i.Strays(text)
		}
		if err == nil && len(strays) > 0 {
			err = fmt.Errorf("it is written in a way that is not understood: %s", strings.Join(strays, "; "))
		}
		if err != nil {
			return nil, fmt.Errorf("cannot change %s: %w", e.File, err)
		}
	}
	return text, nil
}

// strip returns a text without any item of the edit.
func (e *Edit) strip(text []byte) (_ []byte, err error) {
	for _, i := range e.items {
		if text, err = i.Strip(text); err != nil {
			return nil, fmt.Errorf("cannot change %s: %w", e.File, err)
		}
	}
	return text, nil
}

// Lines are what is ours, as people are shown it.
func (e *Edit) Lines() (lines []string) {
	for _, i := range e.items {
		if text := strings.TrimSpace(i.String()); text != "" {
			lines = append(lines, strings.Split(text, "\n")...)
		}
	}
	return lines
}

// stands reports whether the first that is ours stands in the file, whatever it says.
func (e *Edit) stands() (bool, error) {
	if e.items[0].String() == "" {
		return true, nil // nothing of ours is to stand there
	}
	text, err := durable.ReadFile(e.File)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	without, err := e.items[0].Strip(text)
	return !bytes.Equal(text, without), err
}

// edit puts an edit into the plan, or takes it out of its file.
func (p *Plan) edit(e *Edit, notes map[string]note, out bool) error {
	f, err := p.file(e, notes)
	if err != nil {
		return err
	}
	text := f.after
	if out {
		f.after, err = e.strip(text)
	} else {
		f.after, err = e.enter(text)
	}
	if err == nil && len(f.original) > 0 && !e.mends && !f.known {
		f.original, err = e.strip(f.original)
	}
	if err != nil {
		return err
	}
	if !e.mends {
		f.out = out
	}
	if !out && !e.mends {
		p.enters(f.path, e)
	}
	if !bytes.Equal(text, f.after) {
		e.Out = out || e.mends
		p.Edits = append(p.Edits, *e)
	}
	return nil
}

// file is the plan's change of an edit's file.
func (p *Plan) file(e *Edit, notes map[string]note) (*change, error) {
	path, err := filepath.EvalSymlinks(e.File)
	missing := errors.Is(err, fs.ErrNotExist)
	folders := 0
	if missing {
		path, err = e.File, nil
		for dir := filepath.Dir(path); ; dir = filepath.Dir(dir) {
			if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
				break
			}
			folders++
		}
	}
	if err != nil {
		return nil, err
	}
	for i := range p.files {
		if p.files[i].path == path {
			return &p.files[i], nil
		}
	}
	f := change{path: path, mode: 0o600, missing: missing, folders: folders}
	if e.Shared {
		f.mode = 0o644
	}
	if !missing {
		info, err := os.Stat(path)
		if err != nil {
			return nil, err
		}
		f.mode = info.Mode().Perm()
		if f.before, err = durable.ReadFile(path); err != nil {
			return nil, err
		}
	}
	f.after, f.original = f.before, f.before
	f.recall(notes)
	p.files = append(p.files, f)
	return &p.files[len(p.files)-1], nil
}
