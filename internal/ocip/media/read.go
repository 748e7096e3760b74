package media

import (
	"bytes"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/base/text"
)

// exchangeName is the member that the daemon reads and writes anew. Its content is weighed, and no
// client opens files that it names.
const exchangeName = "exchange"

const (
	// longNumber is the number of digits in a number that a detector could match: shorter ones are
	// no accounts and no cards.
	longNumber = 12
	// shortestSaying is the least length of a text for the detectors: the shortest secret and the
	// shortest keyword are longer.
	shortestSaying = 3
)

// Read goes through a message's metadata once. It lists every string that would be sent, with the
// names of its members, in a fixed order, and every reference in them. It leaves out members for
// which skip is true: they are the daemon's own.
//
// Texts with white space may hold commitments. A text without white space is an id, an address or
// an entry of an enumeration: meeting_scheduling is no promise.
//
// A string with the form of a local path or of a data: URL is a reference, whatever its member is
// called. In members that are known to name media, relative names and foreign addresses are
// references too. So are all references that [InText] finds in any string. Read stops at one more
// than [MaxReferences].
func Read(metadata map[string]jsontext.Value, skip func(name string) bool) ([]text.Passage, []Reference) {
	if len(metadata) == 0 {
		return nil, nil
	}
	var room [16]string
	names := room[:0]
	for name := range metadata {
		names = append(names, name)
	}
	slices.Sort(names)
	w := new(walk)
	w.texts, w.spans, w.path = w.room.texts[:0], w.room.spans[:0], append(w.room.path[:0], "metadata"...)
	for i, name := range names {
		if skip != nil && skip(name) {
			continue
		}
		w.quiet = name == exchangeName
		w.member(i, []byte(name), metadata[name], other)
	}
	return w.found()
}

// walk is one walk through metadata.
type walk struct {
	// texts holds the strings found so far, one after another: for each the names of its members,
	// then the text.
	texts []byte
	spans []span
	// path names the current member. quiet is set in members without references.
	path  []byte
	quiet bool
	// room is the initial space of these: enough for most messages.
	room struct {
		texts [512]byte
		spans [12]span
		path  [64]byte
	}
}

// span is a string in the texts of a walk.
type span struct {
	member, text, end int32
	kind              kind
	// name is set if it is the name of a member.
	name bool
}

// packed and joined are the kinds of values without a member of their own: bytes that are written
// as numbers, and the concatenated texts of a list.
const (
	packed kind = 200 + iota
	joined
)

// found returns the results of a walk. All texts are parts of one.
func (w *walk) found() (passages []text.Passage, references []Reference) {
	if len(w.spans) == 0 {
		return nil, nil
	}
	all := string(w.texts)
	passages = make([]text.Passage, 0, len(w.spans))
	for _, s := range w.spans {
		member, value := all[s.member:s.text], all[s.text:s.end]
		if s.kind >= packed {
			data, ok := []byte(value), true
			if s.kind == joined {
				data, ok = decodeAll(value)
			}
			if ok && len(references) <= MaxReferences {
				references = append(references, Reference{Member: member, Inline: data})
			}
			continue
		}
		if len(value) >= shortestSaying || text.NamesAmount(member) {
			passages = append(passages, text.Passage{Member: member, Text: value, Prose: !s.name && strings.ContainsFunc(value, isSpace)})
		}
		if s.kind != silent {
			references = appendReferences(references, member, value, s.kind)
		}
	}
	return passages, references
}

func isSpace(r rune) bool {
	return r == ' ' || r == '\n' || r == '\t' || r == '\u00a0' || r == '\u3000'
}

// member reads a member's name and its value.
func (w *walk) member(i int, name, value []byte, within kind) (rest []byte) {
	path := len(w.path)
	if plainName(name) {
		w.path = append(append(w.path, '.'), name...)
	} else {
		// A name can itself be the secret. Then the record must not contain it.
		start := len(w.texts)
		w.texts = append(append(w.texts, w.path...), " (name "...)
		w.texts = append(strconv.AppendInt(w.texts, int64(i+1), 10), ')')
		middle := len(w.texts)
		w.texts = append(w.texts, name...)
		w.add(start, middle, silent, true)
		w.path = strconv.AppendInt(append(w.path, ".#"...), int64(i+1), 10)
	}
	rest = w.value(value, kindOf(name, within))
	w.path = w.path[:path]
	return rest
}

// plainName reports whether a member's name is an ordinary word: no secret is so short and has only
// letters.
func plainName(name []byte) bool {
	for _, c := range name {
		if !isLetter(c) && c != '_' && c != '-' {
			return false
		}
	}
	return len(name) <= 24
}

// value reads the JSON value at the beginning of a text, and returns the rest. Invalid JSON ends
// the walk.
func (w *walk) value(v []byte, k kind) (rest []byte) {
	v = blanks(v)
	if len(v) == 0 {
		return nil
	}
	start := len(w.texts)
	switch v[0] {
	case '{', '[':
		return w.composite(v, k)
	case '"':
		w.texts = append(w.texts, w.path...)
		middle := len(w.texts)
		w.texts, rest = appendString(w.texts, v)
		if w.quiet {
			k = silent
		}
		w.add(start, middle, k, false)
		return rest
	}
	n := 0
	for n < len(v) && strings.IndexByte(",]} \t\r\n", v[n]) < 0 {
		n++
	}
	if number := written(v[:n]); len(number) >= longNumber || v[0] <= '9' && text.NamesAmount(string(w.path)) {
		w.texts = append(w.texts, w.path...)
		middle := len(w.texts)
		w.texts = append(w.texts, number...)
		w.add(start, middle, silent, false)
	}
	if n == 0 {
		return nil
	}
	return v[n:]
}

// written returns a number without its exponent, as its reader will show it: 4.1e15 is
// 4100000000000000. It does not change any other number, nor one with more digits before its point
// than an account.
func written(number []byte) []byte {
	const mostDigits = 40
	at := bytes.IndexAny(number, "eE")
	if at < 0 {
		return number
	}
	exponent, err := strconv.Atoi(string(number[at+1:]))
	whole, fraction, _ := bytes.Cut(number[:at], []byte("."))
	point := len(whole) + exponent
	if err != nil || point < 1 || point > mostDigits {
		return number
	}
	all := slices.Concat(whole, fraction, bytes.Repeat([]byte("0"), max(0, exponent)))
	if rest := bytes.TrimRight(all[point:], "0"); len(rest) > 0 {
		return slices.Concat(all[:point], []byte("."), rest)
	}
	return all[:point]
}

// add keeps the string at the end of texts, if it can contain a finding or a reference.
func (w *walk) add(member, begin int, k kind, name bool) {
	if length := len(w.texts) - begin; length == 0 || length < shortestSaying && k <= other && !text.NamesAmount(string(w.texts[member:begin])) {
		w.texts = w.texts[:member]
		return
	}
	w.spans = append(w.spans, span{int32(member), int32(begin), int32(len(w.texts)), k, name})
}

// composite reads an object or an array.
func (w *walk) composite(v []byte, k kind) (rest []byte) {
	object := v[0] == '{'
	path := len(w.path)
	p := parts{kind: k}
	for i, v := 0, blanks(v[1:]); len(v) > 0; i++ {
		switch v[0] {
		case ']', '}':
			if !w.quiet {
				w.parts(&p)
			}
			return v[1:]
		case ',':
			v = blanks(v[1:])
		}
		if object {
			if len(v) == 0 || v[0] != '"' {
				return nil
			}
			var room [64]byte
			name, behind := appendString(room[:0], v)
			if behind = blanks(behind); len(behind) == 0 || behind[0] != ':' {
				return nil
			}
			value := blanks(behind[1:])
			v = w.member(i, name, value, k)
			if strings.Trim(string(name), "0123456789") == "" {
				p.take(value[:len(value)-len(v)])
			}
		} else {
			w.path = append(strconv.AppendInt(append(w.path, '['), int64(i), 10), ']')
			value := v
			v = w.value(v, k)
			w.path = w.path[:path]
			p.take(value[:len(value)-len(v)])
		}
		v = blanks(v)
	}
	return nil
}

// parts are the numbers and the texts of one list, which can be bytes: a list of their values, as
// Node also writes them, or base64 in pieces.
type parts struct {
	kind    kind
	numbers []byte
	// other is set if some numbers are no bytes.
	other bool
	text  []byte
	texts int
}

func (p *parts) take(value []byte) {
	switch {
	case len(value) == 0:
	case value[0] == '"':
		if p.kind >= inlined {
			p.text, _ = appendString(p.text, value)
			p.texts++
		}
	case value[0] == '-' || '0' <= value[0] && value[0] <= '9':
		n, err := strconv.ParseFloat(string(value), 64)
		if err != nil || n != math.Trunc(n) || n < 0 || n > math.MaxUint8 {
			p.other = true
		}
		// Programs reduce any number to a byte by its last bits.
		p.numbers = append(p.numbers, byte(int64(math.Mod(n, 1<<8))))
	}
}

// parts adds the combined parts of a list.
func (w *walk) parts(p *parts) {
	least := 2 * shortestSaying
	switch {
	case p.kind == inlined:
		least = 1
	case p.kind < inlined:
		// In other members, a list of numbers counts as bytes only if all of them are.
		if least = shortestInline; p.other {
			p.numbers = nil
		}
	}
	if len(p.numbers) >= least {
		w.together(p.numbers, packed)
	}
	if p.texts > 1 && len(p.text) >= shortestInline {
		w.together(p.text, joined)
	}
}

func (w *walk) together(bytes []byte, k kind) {
	start := len(w.texts)
	w.texts = append(w.texts, w.path...)
	middle := len(w.texts)
	w.texts = append(w.texts, bytes...)
	w.add(start, middle, k, false)
}

func blanks(v []byte) []byte {
	for len(v) > 0 && (v[0] == ' ' || v[0] == '\n' || v[0] == '\t' || v[0] == '\r') {
		v = v[1:]
	}
	return v
}

// appendString appends the text of the JSON string at the beginning of v, and returns the rest.
func appendString(b, v []byte) (text, rest []byte) {
	escaped := false
	for i := 1; i < len(v); i++ {
		switch v[i] {
		case '\\':
			escaped = true
			i++
		case '"':
			if !escaped {
				return append(b, v[1:i]...), v[i+1:]
			}
			// It fails for half a character, and replaces it.
			b, _ = jsontext.AppendUnquote(b, v[:i+1])
			return b, v[i+1:]
		}
	}
	return b, nil
}
