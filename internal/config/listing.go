package config

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/base/text"
	"github.com/openclawos/ocipd/internal/config/keypath"
	"github.com/openclawos/ocipd/internal/ocip/directory/entries"
)

// A directory grows with every person to whom an agent speaks, and commands write to it. So
// most of it is in its own file, [Config.DirectoryFile]: JSON lines, one entry a line, with
// an entry's keys in the configuration. Empty lines and lines that begin with # are
// ignored. Each line is valid or not by itself; differences, errors and edits are by line.
const (
	maxListingBytes = 64 << 20
	maxListed       = 1_000_000
	maxEntryBytes   = 64 << 10
	// pieceBytes is about how much of the file each of several readers reads at a time.
	pieceBytes = 256 << 10
)

const (
	directoryKey = "directory"
	listingKey   = "directory_file"
)

// listing is a directory file as it was read.
type listing struct {
	file string
	// lines are the line numbers of the entries, from 1.
	lines []int32
	sum   [sha256.Size]byte
	empty bool
}

// DirectoryPath is the path of the directory file, or "". A relative one is beside the
// configuration file.
func (c *Config) DirectoryPath() string {
	if c.DirectoryFile == "" || filepath.IsAbs(c.DirectoryFile) {
		return c.DirectoryFile
	}
	return filepath.Join(filepath.Dir(c.File), c.DirectoryFile)
}

// ListedDigest is the SHA-256 of the directory file as it was read, and its number of
// entries; "" without a file.
func (c *Config) ListedDigest() (digest string, entries int) {
	if c.listed == nil {
		return "", 0
	}
	return "sha256:" + hex.EncodeToString(c.listed.sum[:]), c.Listed.Len()
}

// ListedChange compares two lists of entries: after the first begin entries, which are
// equal, gone were removed and come added.
func ListedChange(was, now *entries.List) (begin int, gone, come []Contact) {
	least := min(was.Len(), now.Len())
	for begin < least && was.Same(begin, now, begin) {
		begin++
	}
	end := 0
	for end < least-begin && was.Same(was.Len()-1-end, now, now.Len()-1-end) {
		end++
	}
	return begin, contactsOf(was, begin, was.Len()-end), contactsOf(now, begin, now.Len()-end)
}

// contactsOf returns some entries of a list.
func contactsOf(list *entries.List, from, to int) []Contact {
	some := make([]Contact, 0, to-from)
	for i := from; i < to; i++ {
		some = append(some, Contact(list.At(i)))
	}
	return some
}

// Contacts are all entries: first those of the configuration, then those of the directory file.
func (c *Config) Contacts(yield func(*Contact) bool) {
	for i := range c.Directory {
		if !yield(&c.Directory[i]) {
			return
		}
	}
	for i := range c.Listed.Len() {
		if contact := Contact(c.Listed.At(i)); !yield(&contact) {
			return
		}
	}
}

// stillFile fails if something else has replaced a file that the daemon has read before: it
// would wait at a pipe forever.
func stillFile(path string) error {
	info, err := os.Stat(path)
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("cannot read %s: it is no file", path)
	}
	return err
}

// readListing returns the content of a directory file.
func readListing(file string) ([]byte, error) {
	data, err := readUpTo(file, maxListingBytes)
	switch {
	case err != nil:
		return nil, err
	case len(data) > maxListingBytes:
		return nil, fmt.Errorf("cannot read %s: it has more than %d bytes", file, maxListingBytes)
	}
	return data, nil
}

// readUpTo returns at most one byte more than a file may have.
func readUpTo(file string, most int64) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var data bytes.Buffer
	if info, err := f.Stat(); err == nil && info.Size() <= most {
		data.Grow(int(info.Size()) + bytes.MinRead)
	}
	_, err = data.ReadFrom(io.LimitReader(f, most+1))
	return data.Bytes(), err
}

// list reads the directory file into c. It shares unchanged entries with an earlier configuration.
func (c *Config) list(p *problems, earlier *Config) {
	at := keypath.Path{}.Key(listingKey)
	file := c.DirectoryPath()
	if file == "" {
		return
	}
	if c.File == "" && !filepath.IsAbs(c.DirectoryFile) {
		p.bad(at, "want an absolute path, because there is no configuration file that it could be beside, got %q", c.DirectoryFile)
		return
	}
	var err error
	if earlier != nil {
		err = stillFile(file)
	}
	var data []byte
	if err == nil {
		data, err = readListing(file)
	}
	if err != nil {
		p.bad(at, "%v", unwrapped(err))
		return
	}
	c.listed = &listing{file: file, sum: sha256.Sum256(data), empty: len(bytes.TrimSpace(data)) == 0}
	p.listed = c.listed
	if earlier != nil && earlier.listed != nil && earlier.listed.sum == c.listed.sum {
		c.Listed, c.listed.lines = earlier.Listed, earlier.listed.lines
		return
	}
	c.Listed, c.listed.lines = parseListing(p, file, data)
}

// unwrapped is a file error without the name of the operation.
func unwrapped(err error) error {
	if fault, ok := errors.AsType[*os.PathError](err); ok {
		return fmt.Errorf("cannot read %s: %w", fault.Path, fault.Err)
	}
	return err
}

// part is a part of the file for one reader.
type part struct {
	text []byte
	// first is the number of the first line.
	first  int
	read   entries.Builder
	lines  []int32
	faults []*Error
}

// parseListing parses the lines, and reports each faulty one.
func parseListing(p *problems, file string, data []byte) (*entries.List, []int32) {
	var parts []*part
	for line := 1; len(data) > 0; {
		end := len(data)
		if end > pieceBytes {
			end = pieceBytes + firstLine(data[pieceBytes:])
		}
		parts = append(parts, &part{text: data[:end], first: line})
		line += bytes.Count(data[:end], []byte("\n"))
		data = data[end:]
	}
	var readers sync.WaitGroup
	work := make(chan *part)
	for range min(runtime.GOMAXPROCS(0), len(parts)) {
		readers.Go(func() {
			for next := range work {
				next.parse(file)
			}
		})
	}
	for _, next := range parts {
		work <- next
	}
	close(work)
	readers.Wait()

	n, built := 0, make([]*entries.Builder, 0, len(parts))
	for _, done := range parts {
		n, built = n+done.read.Len(), append(built, &done.read)
	}
	if n > maxListed {
		p.bad(keypath.Path{}.Key(listingKey), "want at most %d entries, got %d", maxListed, n)
		return nil, nil
	}
	lines := make([]int32, 0, n)
	for _, done := range parts {
		for _, fault := range done.faults {
			p.report(origin{file, fault.Line, fault.Column}, nil, fault.Nearest, fault.Message)
		}
		lines = append(lines, done.lines...)
	}
	return entries.Join(built), lines
}

// firstLine is the length of the first line with its end.
func firstLine(text []byte) int {
	if i := bytes.IndexByte(text, '\n'); i >= 0 {
		return i + 1
	}
	return len(text)
}

func (r *part) parse(file string) {
	n := r.first - 1
	var usual usual
	for line := range strings.Lines(string(r.text)) {
		n++
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		c, fault := usual.entry(line)
		if fault != nil {
			if len(r.faults) < maxErrors {
				fault.File, fault.Line = file, n
				r.faults = append(r.faults, fault)
			}
			continue
		}
		entry := entries.Entry(c)
		r.read.Add(&entry)
		r.lines = append(r.lines, int32(n))
	}
}

// ParseEntry parses one line of a directory file, and reports its own faults.
func ParseEntry(line []byte) (Contact, error) {
	var usual usual
	c, fault := usual.entry(string(line))
	if fault != nil {
		return Contact{}, fault
	}
	return c, nil
}

// entry parses a line. Its lists are valid until the next line.
func (p *usual) entry(line string) (Contact, *Error) {
	if len(line) > maxEntryBytes {
		return Contact{}, &Error{Message: fmt.Sprintf("want an entry of at most %d bytes, got %d", maxEntryBytes, len(line))}
	}
	c, ok := p.parse(line)
	if !ok {
		c = Contact{Kind: defaultContact().Kind}
		if err := json.Unmarshal([]byte(line), &c, json.RejectUnknownMembers(true)); err != nil {
			return Contact{}, entryFault(err)
		}
	}
	if c.Accepts == nil {
		c.Accepts = defaultContact().Accepts
	}
	return c, nil
}

// entryKeys are the keys of an entry.
func entryKeys() []string {
	return []string{"kind", "instance_id", "user_id", "org_unit", "tenant_id", "accepts", "sessions", "members"}
}

// entryFault explains the fault of a line.
func entryFault(err error) *Error {
	syntax, isSyntax := errors.AsType[*jsontext.SyntacticError](err)
	meaning, isMeaning := errors.AsType[*json.SemanticError](err)
	switch {
	case isSyntax && errors.Is(err, jsontext.ErrDuplicateName):
		return &Error{Column: int(syntax.ByteOffset) + 1, Message: fmt.Sprintf("duplicate key %q", clip(syntax.JSONPointer.LastToken()))}
	case isSyntax:
		what := strings.TrimPrefix(errors.Unwrap(syntax).Error(), "jsontext: ")
		return &Error{Column: int(syntax.ByteOffset) + 1, Message: "cannot read JSON: " + what}
	case isMeaning && errors.Is(err, json.ErrUnknownName):
		name := meaning.JSONPointer.LastToken()
		fault := &Error{Column: int(meaning.ByteOffset) + 1, Message: fmt.Sprintf("unknown key %q", clip(name)), Nearest: text.Nearest(name, entryKeys(), text.Near(name))}
		if fault.Nearest == "" {
			fault.Message += ", want one of " + strings.Join(entryKeys(), ", ")
		}
		return fault
	case isMeaning && meaning.JSONPointer == "":
		return &Error{Column: 1, Message: `want an object such as {"kind":"person","sessions":["telegram:4711"]}`}
	case isMeaning:
		key := strings.TrimPrefix(string(meaning.JSONPointer), "/")
		want := "text"
		if name, _, item := strings.Cut(key, "/"); !item && slices.Contains([]string{"accepts", "sessions", "members"}, name) {
			want = "a list of texts"
		}
		return &Error{Column: int(meaning.ByteOffset) + 1, Message: fmt.Sprintf("%s: want %s, got %s", strings.ReplaceAll(clip(key), "/", "."), want, jsonKind(meaning.JSONKind))}
	}
	return &Error{Message: "cannot read JSON: " + err.Error()}
}

func jsonKind(k jsontext.Kind) string {
	switch k {
	case '0':
		return "a number"
	case 't', 'f':
		return "true or false"
	case '{':
		return "an object"
	case '[':
		return "a list"
	}
	return "text"
}

// find returns the position of the file's entry to which a path leads.
func (l *listing) find(at keypath.Path) (origin, bool) {
	if l == nil || len(at) < 2 || at[0].Key != listingKey || at[1].Index < 0 || at[1].Index >= len(l.lines) {
		return origin{}, false
	}
	return origin{name: l.file, line: int(l.lines[at[1].Index])}, true
}

// unchanged reports whether the file is as it was read. An unreadable file counts as changed.
func (l *listing) unchanged() bool {
	if l == nil {
		return true
	}
	if stillFile(l.file) != nil {
		return false
	}
	data, err := readListing(l.file)
	return err == nil && sha256.Sum256(data) == l.sum
}

// Line is the entry as a line of a directory file, without the line end.
func (c *Contact) Line() []byte {
	line, err := json.Marshal(c, json.Deterministic(true))
	if err != nil {
		panic("config: an entry of texts cannot fail to be written: " + err.Error())
	}
	return line
}
