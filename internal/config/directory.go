package config

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"iter"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"

	"go.yaml.in/yaml/v3"
)

// A directory of a hundred thousand entries is longer than a file may be, and
// as one tree of YAML nodes it would take twenty times its own size. In a file
// that is too long, the entries of a directory that is written as a list with
// hyphens are therefore cut out and read in pieces, one after another; what is
// left has the bounds of any file.
//
// Pieces that a reload finds as they were are not read again.
//
// An entry begins where a hyphen stands in the column of the first one's. A file
// with a text that looks like that, or like the key, is refused, and so is an
// alias of what another piece holds: what is read is what YAML reads.
const (
	maxLongFileBytes   = 64 << 20
	maxDirectoryValues = 3_000_000
	maxEntryBytes      = 1 << 20
	pieceBytes         = 64 << 10
)

// directoryKey is the key of the list that may be long.
const directoryKey = "directory"

var errApart = errors.New("yaml: line 1: cannot tell where each entry begins in a file this long: let no text begin a line as they do")

// piece is some entries of the list, as they stand in the file. It has a text of
// its own: of two files that differ in a line, one does not keep the other.
type piece struct {
	text string
	// before counts the lines of the file before the text, first the entries,
	// and count those that begin in it.
	before, first, count int
	// values is how many values the entries have, once they are read.
	values int
	// contacts are the entries, where an earlier configuration has the same text,
	// until they are taken from it. taken says that they were.
	contacts []Contact
	taken    bool
}

// entries is a directory that was cut out of its file.
type entries struct {
	file string
	// line is where the key stands, counted from 1, lines how many lines follow
	// that are cut out, and count how many hyphens they have.
	line, lines, count int
	pieces             []piece
	// starts are the lines that the entries begin at.
	starts []int

	// The nodes of the piece that was looked at last: places are asked for in
	// the order of the file.
	mu     sync.Mutex
	parsed int
	node   *yaml.Node
}

// cut takes the entries of a directory out of a file. A piece has so many bytes
// and up to as many again, but for a last entry that is longer. It returns the
// file itself where it has no such list, or ends lines as YAML may and no editor
// does.
//
// Pieces that are known are taken as they were.
func cut(file string, data []byte, size int, known map[string]piece) (rest []byte, list *entries) {
	if bytes.Count(data, []byte("\r")) > bytes.Count(data, []byte("\r\n")) {
		return data, nil
	}
	for _, end := range []string{"\u0085", "\u2028", "\u2029"} {
		if bytes.Contains(data, []byte(end)) {
			return data, nil
		}
	}
	begin, line := 0, 0
	for list == nil {
		if begin == len(data) {
			return data, nil
		}
		end := begin + firstLine(data[begin:])
		line++
		if after, ok := bytes.CutPrefix(data[begin:end], []byte(directoryKey+":")); ok && blank(after) {
			list = &entries{file: file, line: line, parsed: -1}
		}
		begin = end
	}
	// The piece begins at start, and its last entry so far at last.
	p, start, last := piece{before: line}, begin, begin
	at, column := begin, -1
	for at < len(data) {
		end := at + firstLine(data[at:])
		text := bytes.TrimLeft(data[at:end], " ")
		indent := end - at - len(text)
		hyphen := len(text) > 0 && text[0] == '-' && (len(text) == 1 || bytes.IndexByte([]byte(" \t\r\n"), text[1]) >= 0)
		if hyphen && column < 0 {
			column = indent
		}
		entry := hyphen && indent == column
		if indent == 0 && !entry && !blank(text) {
			break // the next key
		}
		if entry {
			if p.count > 0 && (at-start >= 2*size || at-start >= size && divides(data[last:at], size)) {
				list.add(p, data[start:at], known)
				p, start = piece{before: line, first: list.count}, at
			}
			last = at
			p.count++
			list.starts = append(list.starts, line+1)
		}
		at, line = end, line+1
	}
	if list.count+p.count == 0 {
		return data, nil
	}
	list.add(p, data[start:at], known)
	list.lines = line - list.line
	return slices.Concat(data[:begin], data[at:]), list
}

// divides reports whether a piece ends with an entry. It asks what the entry is
// and not where it stands, so that behind an edit the pieces are soon those of
// before: there is one such entry in an eighth of a piece.
func divides(entry []byte, size int) bool {
	return crc32.ChecksumIEEE(entry)%uint32(max(1, size/8)) < uint32(len(entry))
}

// add adds a piece, unread where none is known that has its text. What is before
// the first entry may say more than the entries, so that one is always read.
func (list *entries) add(p piece, text []byte, known map[string]piece) {
	if old, ok := known[string(text)]; ok && len(list.pieces) > 0 && old.count == p.count {
		p.text, p.values, p.contacts = old.text, old.values, old.contacts
		delete(known, old.text) // one that comes twice is at fault
	} else {
		p.text = string(text)
	}
	list.pieces = append(list.pieces, p)
	list.count += p.count
}

// known are the pieces of a configuration that was read, by their text.
func (c *Config) known() map[string]piece {
	if c == nil || c.cut == nil || len(c.Directory) != c.cut.count {
		return nil
	}
	known := make(map[string]piece, len(c.cut.pieces))
	for _, p := range c.cut.pieces {
		p.contacts = c.Directory[p.first : p.first+p.count]
		known[p.text] = p
	}
	return known
}

// firstLine is how long the first line is, its end included.
func firstLine(text []byte) int {
	if i := bytes.IndexByte(text, '\n'); i >= 0 {
		return i + 1
	}
	return len(text)
}

// blank reports whether nothing but white space and a comment is on a line.
func blank(line []byte) bool {
	line = bytes.TrimLeft(line, " \t")
	return len(line) == 0 || bytes.IndexByte([]byte("\r\n#"), line[0]) >= 0
}

// tooLong reports whether a piece has an entry that is not read.
func (p *piece) tooLong() bool { return len(p.text) > maxEntryBytes+2*pieceBytes }

// parse reads a piece as a list, whose lines count from its own first.
func (p *piece) parse() (*yaml.Node, error) {
	var doc, second yaml.Node
	dec := yaml.NewDecoder(strings.NewReader(p.text))
	if err := dec.Decode(&doc); err != nil {
		return nil, err
	}
	// What stands behind the list is looked at by nobody else.
	if err := dec.Decode(&second); !errors.Is(err, io.EOF) {
		return nil, cmp.Or(err, errApart)
	}
	if len(doc.Content) != 1 || doc.Content[0].Kind != yaml.SequenceNode || len(doc.Content[0].Content) != p.count {
		return nil, errApart
	}
	return doc.Content[0], nil
}

// nodes parses the pieces, several at a time, and yields them in their order: nil
// for one that is too long, or known.
func (list *entries) nodes() iter.Seq2[*yaml.Node, error] {
	type parsed struct {
		node *yaml.Node
		err  error
	}
	return func(yield func(*yaml.Node, error) bool) {
		pieces, stop := make(chan chan parsed, runtime.GOMAXPROCS(0)), make(chan struct{})
		defer close(stop)
		go func() {
			defer close(pieces)
			for i := range list.pieces {
				p, one := &list.pieces[i], make(chan parsed, 1)
				select {
				case pieces <- one:
				case <-stop:
					return
				}
				if p.tooLong() || p.contacts != nil {
					one <- parsed{}
					continue
				}
				go func() {
					node, err := p.parse()
					one <- parsed{node, err}
				}()
			}
		}()
		for one := range pieces {
			if p := <-one; !yield(p.node, p.err) {
				return
			}
		}
	}
}

// read writes the entries into c.
func (d *decoder) read(list *entries, root *yaml.Node, c *Config) {
	// What was cut out must have been the whole of the key's value.
	at := Path{}.Key(directoryKey)
	i := slices.IndexFunc(root.Content, func(n *yaml.Node) bool { return n.Line == list.line && n.Value == directoryKey })
	if root.Kind != yaml.MappingNode || i < 0 || i%2 > 0 || root.Content[i+1].ShortTag() != "!!null" || root.Content[i+1].Value != "" {
		d.report(origin{d.file, list.line, 1}, at, "", "directory: cannot tell where the list begins in a file this long: let no text begin a line as its key does")
		return
	}
	if list.count > maxDirectoryValues {
		d.report(origin{d.file, list.line, 1}, at, "", fmt.Sprintf("directory: cannot read more than %d entries", maxDirectoryValues))
		return
	}
	d.cut = list
	c.Directory = make([]Contact, 0, list.count)
	// The path of an entry is written over that of the one before.
	at = slices.Grow(at, maxDepth)
	i = -1
	for parsed, err := range list.nodes() {
		i++
		p := &list.pieces[i]
		if p.tooLong() {
			d.report(origin{d.file, p.before + 1, 1}, at, "", fmt.Sprintf("directory: cannot read an entry of more than %d bytes", maxEntryBytes))
			return
		}
		if p.contacts != nil {
			if d.listed+p.values <= maxDirectoryValues {
				d.listed += p.values
				c.Directory = append(c.Directory, p.contacts...)
				p.contacts, p.taken = nil, true
				continue
			}
			// It is said where the list becomes too large.
			p.contacts = nil
			parsed, err = p.parse()
		}
		d.after, d.later = -1, p.before
		if err != nil {
			d.broken([]byte(p.text), err)
			return
		}
		if i == 0 {
			d.origins[directoryKey] = d.place(parsed)
		}
		before := d.listed
		for j, n := range parsed.Content {
			c.Directory = append(c.Directory, defaultContact())
			d.value(at.item(p.first+j), n, reflect.ValueOf(&c.Directory[p.first+j]).Elem())
		}
		p.values = d.listed - before
		if d.full {
			return
		}
	}
}

// source returns the line of an entry or of a key of one, if the file has it.
func (list *entries) source(at Path) (origin, bool) {
	if list != nil && len(at) == 2 && at[0].key == directoryKey && at[1].index >= 0 && at[1].index < len(list.starts) {
		// Where an entry begins is known without its text.
		return origin{name: list.file, line: list.starts[at[1].index]}, true
	}
	return list.find(at)
}

// find returns where a key of an entry stands, if the file has it.
func (list *entries) find(at Path) (origin, bool) {
	if list == nil || len(at) < 2 || at[0].key != directoryKey || at[1].index < 0 {
		return origin{}, false
	}
	list.mu.Lock()
	defer list.mu.Unlock()
	i, exact := slices.BinarySearchFunc(list.pieces, at[1].index, func(p piece, index int) int { return p.first - index })
	if !exact {
		i--
	}
	p := &list.pieces[i]
	if list.parsed != i {
		parsed, err := p.parse()
		if err != nil {
			return origin{}, false
		}
		list.parsed, list.node = i, parsed
	}
	n := child(list.node, segment{index: at[1].index - p.first})
	if n == nil {
		return origin{}, false
	}
	for _, step := range at[2:] {
		if n = child(n, step); n == nil {
			return origin{}, false
		}
	}
	if n.ShortTag() == "!!null" {
		return origin{}, false
	}
	return origin{list.file, p.before + n.Line, n.Column}, true
}

// child is the value one step below a node, or nil.
func child(n *yaml.Node, step segment) *yaml.Node {
	switch {
	case n.Kind == yaml.SequenceNode && step.index >= 0 && step.index < len(n.Content):
		return resolved(n.Content[step.index])
	case n.Kind == yaml.MappingNode && step.index < 0:
		for i := 0; i+1 < len(n.Content); i += 2 {
			if n.Content[i].Value == step.key {
				return resolved(n.Content[i+1])
			}
		}
	}
	return nil
}

// resolved follows an alias.
func resolved(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}
