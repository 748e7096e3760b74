// Package media reads the parts of a message besides its text: the strings of its metadata, and the
// files, addresses and inline bytes that these and the text name. A channel's app opens a named
// path by itself, so the path is as much a message as the file behind it.
//
// A reference is a name that some client opens: see [Read] for metadata and [InText] for prose. The
// caller decides from which folders an agent may send files, weighs the text that a [Look] finds in
// each like any other text of the message, and records the hashes. A look sees the file as it is at
// that time: anybody with write access can change it before it is sent.
package media

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/go-json-experiment/json/jsontext"
)

// Limits for the files and addresses of one message.
const (
	// MaxReferences bounds the files and addresses that a message may name.
	MaxReferences = 32
	// MaxBytes bounds the total size of a message's files.
	MaxBytes = 128 << 20
	// MaxTextBytes bounds the total text in them. Every byte of it is weighed, so a message with
	// more is refused.
	MaxTextBytes = 8 << 20
)

// Reference is one file or address that a message names, or bytes inside the message.
type Reference struct {
	// Member is its position, for example metadata.mediaUrls[0].
	Member string
	// Value is the original text.
	Value string
	// Path is the file, empty if it names none.
	Path string
	// Inline are bytes inside the message itself, or nil.
	Inline []byte
	// Refused is the reason that it may not be sent, whatever it names, or empty.
	Refused string
}

// File is the result of a look: a local file or inline bytes.
type File struct {
	// Path is the file itself, after all links on the way.
	Path   string
	SHA256 string
	Bytes  int64
}

// Refused is the reason that a message may not send something.
type Refused struct{ Reason string }

func (e *Refused) Error() string { return e.Reason }

func refused(format string, args ...any) *Refused { return &Refused{fmt.Sprintf(format, args...)} }

// unclear refuses a path that different programs read as different files. A look reads the file
// that the exact bytes name.
const unclear = "names a local file, in a form that programs read differently: write only its whole path, without blanks around it and without escapes"

// undecodable refuses a text in a place for a file's bytes that cannot be decoded.
const undecodable = "names no file and no address, and has no known encoding: write the bytes in base64"

// Mentioned reports whether metadata names anything to send besides the text.
func Mentioned(metadata map[string]jsontext.Value) bool {
	_, references := Read(metadata, nil)
	return len(references) > 0
}

// Address returns the record's form of a foreign address: without the query, which often contains
// keys.
func (r Reference) Address() string {
	u, err := url.Parse(strings.TrimSpace(r.Value))
	if err != nil || r.Inline != nil || len(r.Value) > 2048 {
		scheme, _, _ := strings.Cut(strings.TrimSpace(r.Value), ":")
		if r.Inline != nil {
			scheme = "data"
		}
		return scheme + ":…"
	}
	u.RawQuery, u.Fragment, u.User = "", "", nil
	return u.String()
}

// Pace limits the speed of looks. For each block of at most 64 KiB the caller waits for a turn, and
// rests while it reads the next one. An error from Wait ends the look.
type Pace interface {
	Wait() error
	Rest()
}

// Look inspects the files of one message.
type Look struct {
	// Folders are the folders from which the agent may send files.
	Folders []string
	// Text receives the text of the files, as UTF-8.
	Text io.Writer
	// Pace, if set, limits the speed.
	Pace Pace
	// Known, if set, returns the length of the text in a file with this hash, if its text need not
	// be written.
	Known func(sha256 string) (text int64, known bool)

	bytes, text int64
}

// At hashes the target of a reference, which must be inline or in one of the folders, and writes
// all its text to Text. The error is a [*Refused] if the message may not send it.
func (l *Look) At(r Reference) (File, error) {
	if r.Refused != "" {
		return File{}, refused("%s %s", r.Member, r.Refused)
	}
	if r.Inline != nil {
		return l.read(r, bytes.NewReader(r.Inline), int64(len(r.Inline)))
	}
	refuse := func(format string, args ...any) (File, error) {
		return File{}, refused("%s names a local file, "+format, append([]any{r.Member}, args...)...)
	}
	if len(l.Folders) == 0 {
		return refuse("and this agent may send none: list the folders of its files in agents[].media")
	}
	// A program that removes .. by itself, without following links, finds another file than the
	// system.
	if !filepath.IsAbs(r.Path) || filepath.Clean(r.Path) != r.Path {
		return refuse("and not by its whole path from / on")
	}
	folder, name, ok := l.resolve(r.Path)
	if !ok {
		// All of these cases have one text: the agent must not learn about files elsewhere.
		return refuse("which is in none of the folders of agents[].media, or not there")
	}
	path := filepath.Join(folder, name)
	root, err := os.OpenRoot(folder)
	if err != nil {
		return refuse("which the daemon cannot read")
	}
	defer root.Close()
	f, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return refuse("which the daemon cannot read")
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return File{}, fmt.Errorf("cannot look at the file of %s: %w", r.Member, err)
	case !info.Mode().IsRegular():
		return refuse("which is no regular file")
	}
	file, err := l.read(r, f, info.Size())
	file.Path = path
	return file, err
}

// read hashes bytes, and writes the text in them.
func (l *Look) read(r Reference, f io.ReadSeeker, size int64) (File, error) {
	if l.bytes += size; l.bytes > MaxBytes {
		return File{}, refused("%s would make the files of this message %d bytes; the limit is %d in all", r.Member, l.bytes, MaxBytes)
	}
	file, err := l.hash(r, f, size)
	if _, ok := errors.AsType[*Refused](err); err != nil && !ok {
		err = fmt.Errorf("cannot read the file of %s: %w", r.Member, err)
	}
	return file, err
}

// hash hashes a file up to its size at the open, and writes its text unless that is known. The text
// is always from the bytes of the returned hash, even if the file changes meanwhile.
func (l *Look) hash(r Reference, f io.ReadSeeker, size int64) (file File, err error) {
	if l.Pace != nil {
		f = &paced{f, l.Pace}
		defer l.Pace.Rest()
		if err := l.Pace.Wait(); err != nil {
			return file, err
		}
	}
	hash := sha256.New()
	sum := func() string { return hex.EncodeToString(hash.Sum(nil)) }
	if l.Known != nil {
		if file.Bytes, err = io.CopyBuffer(hash, io.LimitReader(f, size), make([]byte, blockBytes)); err != nil {
			return file, err
		}
		file.SHA256 = sum()
		if text, known := l.Known(file.SHA256); known {
			return file, l.count(r, text)
		}
		if _, err := f.Seek(0, io.SeekStart); err != nil {
			return file, err
		}
		hash.Reset()
	}
	file.Bytes, err = writeText(l.bounded(r), io.LimitReader(f, size), f, hash)
	file.SHA256 = sum()
	return file, err
}

// paced reads a file at a pace. While it waits for a disk, it does not hold a turn.
type paced struct {
	io.ReadSeeker
	pace Pace
}

func (p *paced) Read(b []byte) (int, error) {
	p.pace.Rest()
	n, err := p.ReadSeeker.Read(b[:min(len(b), blockBytes)])
	if late := p.pace.Wait(); late != nil {
		return 0, late
	}
	return n, err
}

// bounded returns a writer for the text of a file that enforces MaxTextBytes.
func (l *Look) bounded(r Reference) io.Writer {
	return writerFunc(func(p []byte) (int, error) {
		if err := l.count(r, int64(len(p))); err != nil {
			return 0, err
		}
		return l.Text.Write(p)
	})
}

// count refuses text beyond MaxTextBytes.
func (l *Look) count(r Reference, text int64) error {
	if l.text += text; l.text > MaxTextBytes {
		return refused("%s would make the text in the files of this message more than %d bytes, which is as much as is weighed; send it packed, or in parts", r.Member, MaxTextBytes)
	}
	return nil
}

type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// resolve follows the links of a path and of the folders. It returns the file's folder and its name
// there. It does not touch a path whose name is in no folder.
func (l *Look) resolve(path string) (folder, name string, ok bool) {
	folders := make([]string, 0, len(l.Folders))
	named := false
	for _, folder := range l.Folders {
		followed, err := filepath.EvalSymlinks(folder)
		if err != nil {
			continue
		}
		folders = append(folders, followed)
		_, as := within(path, folder)
		_, is := within(path, followed)
		named = named || as || is
	}
	if !named {
		return "", "", false
	}
	path, err := filepath.EvalSymlinks(path)
	if err != nil {
		return "", "", false
	}
	for _, folder := range folders {
		if name, ok = within(path, folder); ok {
			return folder, name, true
		}
	}
	return "", "", false
}

// within returns the name of a file relative to a folder, by their paths alone.
func within(path, folder string) (name string, ok bool) {
	name, err := filepath.Rel(folder, path)
	return name, err == nil && name != ".." && !strings.HasPrefix(name, ".."+string(filepath.Separator))
}
