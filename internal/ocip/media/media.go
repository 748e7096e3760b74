// Package media reads what a message says and sends besides its text: the strings
// of its metadata, and the files, addresses and inline bytes that these and the text
// name. A channel's app opens by itself what a path names, so a path is as much a
// message as the file behind it.
//
// A reference is what a client is known to open: see [Read] for metadata and
// [InText] for prose. The caller decides which folders an agent may send files out
// of, has the text that a [Look] finds in each weighed like any other text of the
// message, and puts the hashes on record. What is looked at is the file as it is at
// that time: whoever can write it can change it before it is sent.
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

// Bounds of what one message may send along.
const (
	// MaxReferences is how many files and addresses a message may name.
	MaxReferences = 32
	// MaxBytes bounds the files of a message, all together.
	MaxBytes = 128 << 20
	// MaxTextBytes bounds the text in them, all together. Every byte of it is
	// weighed: a message with more is refused.
	MaxTextBytes = 8 << 20
)

// Reference is one file or address that a message names, or bytes that it has in it.
type Reference struct {
	// Member is where it stands, such as metadata.mediaUrls[0].
	Member string
	// Value is the text as it was given.
	Value string
	// Path is the file, empty where it is none.
	Path string
	// Inline are the bytes that stand in the message itself, nil where none do.
	Inline []byte
	// Refused is why it may not go along, whatever it names, empty where it may.
	Refused string
}

// File is what was looked at: a local file or inline bytes.
type File struct {
	// Path is the file itself, with every link on the way to it followed.
	Path   string
	SHA256 string
	Bytes  int64
}

// Refused is why a message may not send something along.
type Refused struct{ Reason string }

func (e *Refused) Error() string { return e.Reason }

func refused(format string, args ...any) *Refused { return &Refused{fmt.Sprintf(format, args...)} }

// unclear is why a path is refused of which programs that read it differently make
// different files: what is looked at is the file that the very bytes name.
const unclear = "names a local file, in a way that programs read differently: write its whole path alone, with no blanks around it and nothing escaped"

// undecodable is why a text is refused that stands where a file's bytes do.
const undecodable = "names no file and no address, and is in no encoding that is decoded: write the bytes in base64"

// Mentioned reports whether metadata names anything to send besides the text.
func Mentioned(metadata map[string]jsontext.Value) bool {
	_, references := Read(metadata, nil)
	return len(references) > 0
}

// Address is what is put on record of an address elsewhere: without what is behind
// its question mark, where keys often are.
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

// Pace is how fast files are looked at: for each block of at most 64 KiB the caller waits
// for a turn, and rests while it reads the next one. Wait's error ends the look.
type Pace interface {
	Wait() error
	Rest()
}

// Look looks at the files of one message.
type Look struct {
	// Folders are those that the agent may send files out of.
	Folders []string
	// Text takes the text that is found, as UTF-8.
	Text io.Writer
	// Pace, where set, is how fast.
	Pace Pace
	// Known, where set, says of a file's hash how much text is in it, if its text need not
	// be written.
	Known func(sha256 string) (text int64, known bool)

	bytes, text int64
}

// At hashes what a reference names, which must be inline or in one of the folders,
// and writes all the text in it to Text. Its error is a [*Refused] where the message
// may not send it.
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
		return refuse("and this agent may send none: list the folder of what it may send in agents[].media")
	}
	// A program that takes out .. by itself, without following links, comes to
	// another file than the system does.
	if !filepath.IsAbs(r.Path) || filepath.Clean(r.Path) != r.Path {
		return refuse("and not by its whole path from / on")
	}
	folder, name, ok := l.resolve(r.Path)
	if !ok {
		// One text for all of these: what is there elsewhere is not the agent's to know.
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

// read hashes bytes, and writes what is text in them.
func (l *Look) read(r Reference, f io.ReadSeeker, size int64) (File, error) {
	if l.bytes += size; l.bytes > MaxBytes {
		return File{}, refused("%s would make the files of this message %d bytes; the limit is %d in all", r.Member, l.bytes, MaxBytes)
	}
	file, err := l.hash(r, f, size)
	if _, ok := errors.AsType[*Refused](err); err != nil && !ok {
		err = fmt.Errorf("cannot read what %s names: %w", r.Member, err)
	}
	return file, err
}

// hash hashes as much of a file as there was when it was opened, and writes its text
// unless that is known. What is written is of the bytes of the hash that it returns, also
// where the file changes meanwhile.
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

// paced reads a file at a pace. Whoever waits for a disk keeps nobody waiting.
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

// bounded is the writer of the text that is found. It refuses more than is weighed.
func (l *Look) bounded(r Reference) io.Writer {
	return writerFunc(func(p []byte) (int, error) {
		if err := l.count(r, int64(len(p))); err != nil {
			return 0, err
		}
		return l.Text.Write(p)
	})
}

// count refuses more text than is weighed.
func (l *Look) count(r Reference, text int64) error {
	if l.text += text; l.text > MaxTextBytes {
		return refused("%s would make the text in the files of this message more than %d bytes, which is as much as is weighed; send it packed, or in parts", r.Member, MaxTextBytes)
	}
	return nil
}

type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// resolve follows the links of a path and of the folders, and returns the folder that
// the file is in and its name there. A path that names nothing in a folder is not
// looked at.
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

// within is the name of a file in a folder, by what the two are called.
func within(path, folder string) (name string, ok bool) {
	name, err := filepath.Rel(folder, path)
	return name, err == nil && name != ".." && !strings.HasPrefix(name, ".."+string(filepath.Separator))
}
