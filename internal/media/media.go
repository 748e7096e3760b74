// Package media finds the files and addresses that a message sends along besides
// its text, and looks at the files: a channel's app opens by itself what a path
// names, so a path is as much a message as the file behind it.
//
// It finds references by the names of members. The caller decides which folders
// an agent may send files out of, has the text of each file weighed like any other
// text of the message, and puts the hashes on record. What is looked at is the file
// as it is at that time: whoever can write it can change it before it is sent.
package media

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"unicode"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// Bounds of what one message may send along.
const (
	// MaxReferences is how many files and addresses a message may name.
	MaxReferences = 32
	// MaxFileBytes bounds one file.
	MaxFileBytes = 64 << 20
	// MaxTextBytes bounds what is read of a file as text.
	MaxTextBytes = 256 << 10
)

// Reference is one file or address that a message names.
type Reference struct {
	// Member is where it stands, such as metadata.mediaUrls[0].
	Member string
	// Value is the text as it was given.
	Value string
	// Path is the file, empty where it is an address elsewhere.
	Path string
}

// File is a local file as it was looked at.
type File struct {
	// Path is the file itself, with every link on the way to it followed.
	Path   string
	SHA256 string
	Bytes  int64
	// Text is the beginning of the file, where that is text.
	Text string
}

// Refused is why a message may not send a file.
type Refused struct{ Reason string }

func (e *Refused) Error() string { return e.Reason }

// strict are the members in which every text that is no address is a file. In loose
// ones it can be an id that the channel gave.
var (
	strict = [...]string{"mediaurls", "mediaurl", "mediapaths", "mediapath", "filepaths", "filepath", "localpath", "localpaths", "path", "paths"}
	loose  = [...]string{"media", "attachments", "attachment", "files", "file", "images", "image", "photos", "photo", "audio", "voice",
		"video", "videos", "document", "documents", "thumbnail", "sticker", "animation", "url", "urls", "src", "source", "uri"}
)

// Mentioned reports whether metadata names anything to send besides the text.
func Mentioned(metadata map[string]jsontext.Value) bool {
	found, err := References(metadata)
	return err != nil || len(found) > 0
}

// References lists what a message sends along, in the order of its members' names.
// It fails for more than [MaxReferences].
func References(metadata map[string]jsontext.Value) (list []Reference, err error) {
	for _, name := range slices.Sorted(maps.Keys(metadata)) {
		if name == "exchange" || name == "ocip" {
			continue
		}
		list = appendReferences(list, "metadata."+name, kindOf(name), metadata[name])
	}
	if len(list) > MaxReferences {
		return nil, &Refused{fmt.Sprintf("the message names %d files and addresses, the limit is %d", len(list), MaxReferences)}
	}
	return list, nil
}

// kind is how a member's texts are read.
type kind int

const (
	other kind = iota
	looseKind
	strictKind
)

func kindOf(name string) kind {
	name = strings.ToLower(strings.NewReplacer("_", "", "-", "").Replace(name))
	switch {
	case slices.Contains(strict[:], name):
		return strictKind
	case slices.Contains(loose[:], name), hasAnySuffix(name, "path", "paths", "url", "urls", "file", "files", "media", "attachment", "attachments"):
		return looseKind
	}
	return other
}

func hasAnySuffix(name string, endings ...string) bool {
	return slices.ContainsFunc(endings, func(ending string) bool { return strings.HasSuffix(name, ending) })
}

func appendReferences(list []Reference, member string, k kind, value jsontext.Value) []Reference {
	if len(list) > MaxReferences {
		return list
	}
	switch value.Kind() {
	case '"':
		text, err := jsontext.AppendUnquote(nil, value)
		if err != nil {
			return list
		}
		return appendReference(list, member, k, string(text))
	case '[', '{':
		d := jsontext.NewDecoder(bytes.NewReader(value))
		if _, err := d.ReadToken(); err != nil {
			return list
		}
		for i := 0; d.PeekKind() != ']' && d.PeekKind() != '}'; i++ {
			inner, of := member+"["+strconv.Itoa(i)+"]", k
			if value.Kind() == '{' {
				name, err := d.ReadToken()
				if err != nil {
					return list
				}
				inner, of = member+"."+name.String(), max(k, kindOf(name.String()))
			}
			next, err := d.ReadValue()
			if err != nil {
				return list
			}
			list = appendReferences(list, inner, of, next)
		}
	}
	return list
}

func appendReference(list []Reference, member string, k kind, text string) []Reference {
	trimmed := strings.TrimFunc(text, func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsGraphic(r) })
	lower := strings.ToLower(trimmed)
	scheme, _, isURL := strings.Cut(lower, ":")
	switch {
	case trimmed == "":
		return list
	case scheme == "file" && isURL:
		return append(list, Reference{Member: member, Value: text, Path: filePath(trimmed)})
	case k == other:
		return list
	case isURL && (scheme == "http" || scheme == "https" || scheme == "data"):
		return append(list, Reference{Member: member, Value: text})
	case k == strictKind, strings.ContainsAny(trimmed, `/\`), strings.HasPrefix(trimmed, "~"), strings.HasPrefix(trimmed, "."):
		return append(list, Reference{Member: member, Value: text, Path: trimmed})
	}
	return list
}

// filePath is the path of a file: URL, or the URL itself where it is none.
func filePath(text string) string {
	u, err := url.Parse(text)
	if err != nil || u.Path == "" {
		return text
	}
	return u.Path
}

// Address is what is put on record of an address elsewhere: without what is behind
// its question mark, where keys often are.
func (r Reference) Address() string {
	u, err := url.Parse(strings.TrimSpace(r.Value))
	if err != nil || u.Scheme == "data" || len(r.Value) > 2048 {
		scheme, _, _ := strings.Cut(r.Value, ":")
		return scheme + ":…"
	}
	u.RawQuery, u.Fragment, u.User = "", "", nil
	return u.String()
}

// Look opens the file of a reference, which must be in one of the folders, and
// reads it. Its error is a [*Refused] where the message may not send the file.
func Look(r Reference, folders []string) (File, error) {
	refuse := func(format string, args ...any) (File, error) {
		return File{}, &Refused{fmt.Sprintf("%s names a local file, ", r.Member) + fmt.Sprintf(format, args...)}
	}
	if len(folders) == 0 {
		return refuse("and this agent may send none: list the folder of what it may send in agents[].media")
	}
	if !filepath.IsAbs(r.Path) {
		return refuse("and not by its whole path from / on")
	}
	path, err := filepath.EvalSymlinks(r.Path)
	if err != nil {
		return refuse("which cannot be found")
	}
	if !slices.ContainsFunc(folders, func(folder string) bool { return within(path, folder) }) {
		return refuse("which is in none of the folders of agents[].media")
	}
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
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
	case info.Size() > MaxFileBytes:
		return refuse("which has %d bytes; the limit is %d", info.Size(), MaxFileBytes)
	}
	return read(f, path)
}

// read hashes a file, and keeps its beginning where that is text.
func read(f io.Reader, path string) (File, error) {
	hash := sha256.New()
	head := make([]byte, MaxTextBytes)
	n, err := io.ReadFull(f, head)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return File{}, fmt.Errorf("cannot read a file: %w", err)
	}
	hash.Write(head[:n])
	rest, err := io.Copy(hash, io.LimitReader(f, MaxFileBytes))
	if err != nil {
		return File{}, fmt.Errorf("cannot read a file: %w", err)
	}
	return File{Path: path, SHA256: hex.EncodeToString(hash.Sum(nil)), Bytes: int64(n) + rest, Text: textOf(head[:n])}, nil
}

// textOf returns the text that bytes are, with what is none left out, and nothing
// where most of it is none.
func textOf(b []byte) string {
	if bytes.IndexByte(b, 0) < 0 && utf8.Valid(b) {
		return string(b)
	}
	// Pictures and documents hold texts in between, such as what a program wrote
	// about its author.
	text := make([]byte, 0, len(b)/4)
	run := 0
	for i, c := range b {
		if c >= ' ' && c < 0x7f {
			run++
			continue
		}
		if run >= shortestRun {
			text = append(append(text, b[i-run:i]...), '\n')
		}
		run = 0
	}
	if run >= shortestRun {
		text = append(text, b[len(b)-run:]...)
	}
	return string(text)
}

// shortestRun is how many letters in a row are a text among other bytes.
const shortestRun = 8

// within reports whether a file is in a folder. The folder's own links are followed,
// as the file's were.
func within(path, folder string) bool {
	folder, err := filepath.EvalSymlinks(folder)
	if err != nil {
		return false
	}
	rest, err := filepath.Rel(folder, path)
	return err == nil && rest != ".." && !strings.HasPrefix(rest, ".."+string(filepath.Separator))
}
