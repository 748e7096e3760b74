package configlog

import (
	"fmt"
	"slices"
	"sort"

	"github.com/go-json-experiment/json"
	"github.com/openclawos/ocipd/internal/base/text"
)

// Edit replaces some lines of a document. Edits apply one after another: each counts the lines
// after the ones before it.
type Edit struct {
	// Line is the number of the first replaced line, from 1.
	Line int `json:"line"`
	// Was are the replaced lines, and Now their replacements.
	Was []string `json:"was,omitempty"`
	Now []string `json:"now,omitempty"`
}

// back returns the edit that undoes an edit.
func (e Edit) back() Edit { return Edit{Line: e.Line, Was: e.Now, Now: e.Was} }

// apply applies an edit to a document.
func (e Edit) apply(doc []string) ([]string, error) {
	from := e.Line - 1
	if from < 0 || from+len(e.Was) > len(doc) || !slices.Equal(doc[from:from+len(e.Was)], e.Was) {
		return nil, fmt.Errorf("line %d is not as the difference has it", e.Line)
	}
	return slices.Replace(doc, from, from+len(e.Was), e.Now...), nil
}

// diff returns the edits that turn one document into another. It keeps lines that occur once in
// both and in the same order, and replaces everything between them.
func diff(was, now []string) (edits []Edit) {
	at := 1
	var walk func(a, b []string)
	walk = func(a, b []string) {
		begin := 0
		for begin < min(len(a), len(b)) && a[begin] == b[begin] {
			begin++
		}
		at += begin
		a, b = a[begin:], b[begin:]
		end := 0
		for end < min(len(a), len(b)) && a[len(a)-1-end] == b[len(b)-1-end] {
			end++
		}
		a, b = a[:len(a)-end], b[:len(b)-end]
		both := stays(a, b)
		if len(both) == 0 && len(a)+len(b) > 0 {
			edits = append(edits, Edit{Line: at, Was: slices.Clone(a), Now: slices.Clone(b)})
			at += len(b)
		}
		i, j := 0, 0
		for _, line := range both {
			walk(a[i:line.a], b[j:line.b])
			at++
			i, j = line.a+1, line.b+1
		}
		if len(both) > 0 {
			walk(a[i:], b[j:])
		}
		at += end
	}
	walk(was, now)
	return edits
}

// pair is the positions of a line in two documents.
type pair struct{ a, b int }

// stays returns the most lines that occur once in both documents, in the order of both.
func stays(a, b []string) []pair {
	const several = -1
	once := make(map[string]int, len(b))
	for i, line := range b {
		if _, seen := once[line]; seen {
			i = several
		}
		once[line] = i
	}
	inA := make(map[string]int, len(a))
	for _, line := range a {
		inA[line]++
	}
	// The longest run with ascending positions in b: ends has the end of the best run of each
	// length.
	var pairs []pair
	var before, ends []int
	for i, line := range a {
		j, ok := once[line]
		if !ok || j == several || inA[line] > 1 {
			continue
		}
		n := sort.Search(len(ends), func(n int) bool { return pairs[ends[n]].b >= j })
		previous := -1
		if n > 0 {
			previous = ends[n-1]
		}
		pairs, before = append(pairs, pair{i, j}), append(before, previous)
		if n == len(ends) {
			ends = append(ends, 0)
		}
		ends[n] = len(pairs) - 1
	}
	run := make([]pair, len(ends))
	if len(ends) == 0 {
		return nil
	}
	at := ends[len(ends)-1]
	for n := range slices.Backward(run) {
		run[n] = pairs[at]
		at = before[at]
	}
	return run
}

// size returns approximately the bytes of a text in a record.
func size(line string) int {
	// Nearly every line is plain, and a directory has very many.
	n := len(line) + len(`"",`)
	for i := range len(line) {
		switch c := line[i]; {
		case c < ' ' || c >= 0x7f:
			return sizeEncoded(line)
		case c == '"' || c == '\\':
			n++
		}
	}
	return n
}

func sizeEncoded(line string) int {
	encoded, err := json.Marshal(line)
	if err != nil {
		return len(line)
	}
	return len(text.EscapeJSON(encoded, 0)) + 1
}

// sizeOf returns approximately the bytes of edits in a record.
func sizeOf(edits []Edit) (n int) {
	for _, e := range edits {
		n += overhead
		for _, line := range slices.Concat(e.Was, e.Now) {
			n += size(line)
		}
	}
	return n
}

// overhead is the size of an edit in a record without its lines.
const overhead = 64

// split divides edits into parts of at most that many bytes of a record, and cuts an edit that is
// larger. It returns at least one part.
func split(edits []Edit, most int) (parts [][]Edit) {
	part, room := []Edit(nil), most
	next := func() {
		parts, part, room = append(parts, part), nil, most
	}
	// open is set if the last edit of the part takes more lines.
	open := false
	put := func(line int, s string, into func(*Edit) *[]string) {
		n := size(s)
		if n > room && len(part) > 0 {
			next()
			open = false
		}
		if !open {
			part, open = append(part, Edit{Line: line}), true
			n += overhead
		}
		room -= n
		list := into(&part[len(part)-1])
		*list = append(*list, s)
	}
	for _, e := range edits {
		open = false
		for _, s := range e.Was {
			// After a part of the lines is removed, the rest has moved up.
			put(e.Line, s, func(e *Edit) *[]string { return &e.Was })
		}
		for i, s := range e.Now {
			put(e.Line+i, s, func(e *Edit) *[]string { return &e.Now })
		}
	}
	next()
	return parts
}
