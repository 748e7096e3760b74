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

// Edit is ocipd's part of one file, apart from the commands of servers.
type Edit struct {
	// File is the path of the file. What describes the effect for people.
	File, What string
	// Out is set if the part is removed. Shared is set for a file that all users read.
	Out, Shared bool
	// mends is set if the edit removes an entry of somebody else that disables the gate, and added
	// if that was put into an entry of ocipd.
	mends, added bool
	items        []settingsfile.Item
}

// enter returns a text that contains every item of the edit once.
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

// strip returns a text without the items of the edit.
func (e *Edit) strip(text []byte) (_ []byte, err error) {
	for _, i := range e.items {
		if text, err = i.Strip(text); err != nil {
			return nil, fmt.Errorf("cannot change %s: %w", e.File, err)
		}
	}
	return text, nil
}

// Lines describes the items to people.
func (e *Edit) Lines() (lines []string) {
	for _, i := range e.items {
		if _, gone := i.(settingsfile.Gone); gone && !e.Out {
			continue
		}
		if text := strings.TrimSpace(i.String()); text != "" {
			lines = append(lines, strings.Split(text, "\n")...)
		}
	}
	return lines
}

// stands reports whether the file contains the first item, with any value.
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

// edit adds an edit, or its removal, to the plan.
func (p *Plan) edit(e *Edit, notes map[string]note, out bool) error {
	f, err := p.file(e, notes)
	if err != nil {
		return err
	}
	text := f.after
	if out {
		f.after, err = e.strip(text)
		_, ours := e.items[0].(*settingsfile.Whole)
		f.whole = ours && len(f.after) == 0
	} else {
		f.after, err = e.enter(text)
	}
	if err == nil && len(f.original) > 0 && (!e.mends || e.added) && !f.known {
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

// file returns the plan's change for the file of an edit.
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
	f := change{path: path, link: e.File, mode: 0o600, missing: missing, folders: folders}
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
