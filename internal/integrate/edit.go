package integrate

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/openclawos/ocipd/internal/durable"
)

// Edit is what is ours in one file besides the commands of servers.
type Edit struct {
	// File is where it stands, and What says what it does.
	File, What string
	// Out is set where it is taken out. Shared is set for a file that all users read.
	Out, Shared bool
	items       []item
}

// item is one thing of ours in a text.
type item interface {
	isThere(text []byte) (bool, error)
	add(text []byte) ([]byte, error)
	strip(text []byte) ([]byte, error)
	String() string
}

// enter returns a text with all items of the edit in it, once.
func (e *Edit) enter(text []byte) (_ []byte, err error) {
	for _, i := range e.items {
		var there bool
		if len(bytes.TrimSpace(text)) > 0 {
			if there, err = i.isThere(text); err != nil {
				return nil, fmt.Errorf("cannot change %s: %w", e.File, err)
			}
		}
		if there {
			continue
		}
		if text, err = i.strip(text); err == nil {
			text, err = i.add(text)
		}
		if err == nil {
			there, err = i.isThere(text)
		}
		if err == nil && !there {
			err = errors.New("it is written in a way that is not understood")
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
		if text, err = i.strip(text); err != nil {
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
	without, err := e.items[0].strip(text)
	return !bytes.Equal(text, without), err
}

// edit puts an edit into the plan, or takes it out of its file.
func (p *Plan) edit(e *Edit, notes map[string]note, out bool) error {
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
		return err
	}
	var f *change
	for i := range p.files {
		if p.files[i].path == path {
			f = &p.files[i]
		}
	}
	if f == nil {
		f = &change{path: path, mode: 0o600, missing: missing, folders: folders}
		if e.Shared {
			f.mode = 0o644
		}
		if !missing {
			info, err := os.Stat(path)
			if err != nil {
				return err
			}
			f.mode = info.Mode().Perm()
			if f.before, err = durable.ReadFile(path); err != nil {
				return err
			}
		}
		f.after, f.original = f.before, f.before
	}
	text := f.after
	if out {
		f.after, err = e.strip(text)
	} else {
		f.after, err = e.enter(text)
	}
	if err == nil && len(f.original) > 0 {
		f.original, err = e.strip(f.original)
	}
	if err != nil || bytes.Equal(text, f.after) {
		return err
	}
	if note, ok := notes[path]; ok && note.After == Sum(f.before) {
		f.original, f.missing, f.folders = note.Before, note.Missing, note.Folders
	}
	e.Out, f.out = out, out
	p.Edits = append(p.Edits, *e)
	for i := range p.files {
		if p.files[i].path == path {
			return nil
		}
	}
	p.files = append(p.files, *f)
	return nil
}
