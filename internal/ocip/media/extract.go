package media

import (
	"errors"
	"io"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

const (
	// shortestRun is the number of characters in a row that count as a text among other bytes.
	shortestRun = 8
	// mostJunk is the number of bytes in a row that may interrupt a text: letters of an older
	// encoding, control characters.
	mostJunk = 2
	// blockBytes is the number of bytes read at a time.
	blockBytes = 64 << 10
)

// writeText writes all text in bytes of any kind: ASCII and UTF-8, in a text file as well as
// between other bytes, and UTF-16 and UTF-32, in either order, with or without a mark. It hashes
// the bytes on the way and returns their number. If there can be wide characters, it reads the
// bytes again up to the same length.
func writeText(w io.Writer, r io.Reader, again io.ReadSeeker, hash io.Writer) (int64, error) {
	block := make([]byte, blockBytes)
	one := narrow{w: w, first: true}
	var size int64
	o := noOrder
	for {
		n, err := io.ReadFull(r, block)
		if size == 0 {
			o = orderOf(block[:n])
		}
		size += int64(n)
		if _, err := hash.Write(block[:n]); err != nil {
			return size, err
		}
		one.take(block[:n])
		if one.err != nil {
			return size, one.err
		}
		if done, err := ended(err); err != nil {
			return size, err
		} else if done {
			break
		}
	}
	one.end()
	if one.err != nil {
		return size, one.err
	}
	for _, pass := range [...]struct {
		needed bool
		write  func(io.Writer, io.Reader, order, []byte) error
	}{{one.zeros, writeRuns}, {o != noOrder, writeUTF16}} {
		if !pass.needed {
			continue
		}
		if _, err := again.Seek(0, io.SeekStart); err != nil {
			return size, err
		}
		if err := pass.write(w, io.LimitReader(again, size), o, block); err != nil {
			return size, err
		}
	}
	return size, nil
}

// narrow finds texts in characters of one byte each, or UTF-8.
type narrow struct {
	w   io.Writer
	err error
	// zeros is set after a byte 0, which occurs in texts of wide characters.
	zeros bool
	// first is set in the text at the beginning of the file.
	first bool
	// out is still to be written. The part from start on counts as a text once it has shortestRun
	// characters.
	out        []byte
	start, run int
	junk       int
	// rest is a character that began in the last block.
	rest []byte
}

// plain reports whether a byte is a character of ASCII text.
func plain(c byte) bool {
	return ' ' <= c && c < 0x7f || c == '\n' || c == '\t' || c == '\r'
}

func (t *narrow) take(b []byte) {
	for len(t.rest) > 0 && len(b) > 0 && !utf8.FullRune(t.rest) {
		t.rest, b = append(t.rest, b[0]), b[1:]
	}
	if len(t.rest) > 0 {
		rest := t.rest
		t.rest = nil
		t.walk(rest)
	}
	t.walk(b)
	if len(t.out) >= blockBytes && t.run >= shortestRun {
		t.flush()
	}
}

func (t *narrow) walk(b []byte) {
	for len(b) > 0 {
		n := 0
		for n < len(b) && plain(b[n]) {
			n++
		}
		if n > 0 {
			t.add(b[:n], n)
			b = b[n:]
			continue
		}
		c := b[0]
		switch {
		case c == 0:
			t.zeros = true
			t.cut()
		case c < utf8.RuneSelf:
			t.other(rune(c))
		case !utf8.FullRune(b):
			t.rest = append(t.rest[:0], b...)
			return
		default:
			r, size := utf8.DecodeRune(b)
			if r != utf8.RuneError || size > 1 {
				t.add(b[:size], 1)
				b = b[size:]
				continue
			}
			if c < 0xa0 {
				t.other(utf8.RuneError)
			} else {
				t.other(rune(c)) // as in Latin-1
			}
		}
		b = b[1:]
	}
}

func (t *narrow) add(b []byte, characters int) {
	t.out = append(t.out, b...)
	t.run += characters
	t.junk = 0
}

// other takes a byte that belongs to no text, unless it interrupts one.
func (t *narrow) other(r rune) {
	if t.junk++; t.junk > mostJunk || !t.first && t.run < shortestRun {
		t.cut()
		return
	}
	t.out = utf8.AppendRune(t.out, r)
}

// cut ends a text.
func (t *narrow) cut() {
	if t.run >= shortestRun {
		t.out = append(t.out, '\n')
		t.flush()
	}
	t.out, t.run, t.junk, t.first = t.out[:t.start], 0, 0, false
}

// flush writes the finished text once there is enough of it.
func (t *narrow) flush() {
	if len(t.out) >= blockBytes/2 {
		t.write()
	}
	t.start = len(t.out)
}

func (t *narrow) write() {
	if t.err == nil && len(t.out) > 0 {
		_, t.err = t.w.Write(t.out)
	}
	t.out = t.out[:0]
}

func (t *narrow) end() {
	if len(t.rest) > 0 {
		for _, c := range t.rest {
			t.other(rune(c))
		}
		t.rest = nil
	}
	// A whole file counts as a text even if it is short.
	if t.run < shortestRun && !t.first {
		t.out = t.out[:t.start]
	}
	t.write()
}

// order is the byte order of a UTF-16 character.
type order int

const (
	noOrder order = iota
	littleEnd
	bigEnd
)

// unit returns the character's two bytes as a number.
func (o order) unit(b []byte) uint16 {
	if o == bigEnd {
		b = []byte{b[1], b[0]}
	}
	return uint16(b[0]) | uint16(b[1])<<8
}

// orderOf reports whether bytes begin a text in UTF-16: they have a mark, or as many zeros on one
// side as ASCII characters between others produce.
func orderOf(b []byte) order {
	b = b[:len(b)&^1]
	var o order
	var zeros [2]int
	for i, c := range b {
		if c == 0 {
			zeros[i&1]++
		}
	}
	switch {
	case len(b) < 2:
		return noOrder
	case b[0] == 0xff && b[1] == 0xfe:
		o = littleEnd
	case b[0] == 0xfe && b[1] == 0xff:
		o = bigEnd
	case zeros[1] > len(b)/100 && zeros[0] <= zeros[1]/2:
		o = littleEnd
	case zeros[0] > len(b)/100 && zeros[1] <= zeros[0]/2:
		o = bigEnd
	default:
		return noOrder
	}
	// In other data, half of the units are no visible characters.
	strange := 0
	for i := 2; i < len(b); i += 2 {
		if r := rune(o.unit(b[i:])); !utf16.IsSurrogate(r) && !unicode.IsPrint(r) && !unicode.IsSpace(r) {
			strange++
		}
	}
	if strange > len(b)/20 {
		return noOrder
	}
	return o
}

// writeUTF16 writes bytes in UTF-16 as UTF-8.
func writeUTF16(w io.Writer, r io.Reader, o order, block []byte) error {
	var (
		out  []byte
		half rune
	)
	for {
		n, err := io.ReadFull(r, block)
		for b := block[:n]; len(b) > 1; b = b[2:] {
			unit := rune(o.unit(b))
			switch {
			case half != 0:
				unit, half = utf16.DecodeRune(half, unit), 0
			case utf16.IsSurrogate(unit):
				half = unit
				continue
			}
			out = utf8.AppendRune(out, unit)
		}
		if _, failed := w.Write(out); failed != nil {
			return failed
		}
		out = out[:0]
		if done, failed := ended(err); done || failed != nil {
			return failed
		}
	}
}

// writeRuns writes every run of ASCII and Latin-1 characters with one or three zeros between them,
// wherever it begins. It leaves out the runs that UTF-16 of the order contains.
func writeRuns(w io.Writer, r io.Reader, o order, block []byte) error {
	runs := wide{order: o}
	for at := 0; ; {
		n, err := io.ReadFull(r, block)
		for _, c := range block[:n] {
			runs.take(at, c)
			at++
		}
		done, failed := ended(err)
		if done {
			runs.cut(runs.zeros)
		}
		if _, refused := w.Write(runs.out[:runs.start]); refused != nil {
			return refused
		}
		runs.out = append(runs.out[:0], runs.out[runs.start:]...)
		runs.start = 0
		if done || failed != nil {
			return failed
		}
	}
}

// ended reports whether the error of a full read is the end of the data.
func ended(err error) (done bool, failed error) {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return true, nil
	}
	return false, err
}

// wide finds runs of characters with zeros between them.
type wide struct {
	order order
	// out has the finished runs, and from start on the current one.
	out        []byte
	start, run int
	// zeros counts the zeros since the last character, before those before the run, and gap those
	// between two characters of the run. odd tells whether its characters have odd offsets.
	zeros, before, gap, odd int
}

func (t *wide) take(at int, c byte) {
	if c == 0 {
		t.zeros++
		return
	}
	zeros := t.zeros
	t.zeros = 0
	text := plain(c) || c >= 0xa0
	if t.run > 0 && (!text || zeros != 1 && zeros != 3 || t.run > 1 && zeros != t.gap) {
		t.cut(zeros)
	}
	if !text {
		return
	}
	if t.run == 0 {
		t.before = zeros
	}
	t.gap, t.odd = zeros, at&1
	t.run++
	t.out = utf8.AppendRune(t.out, rune(c))
}

// cut ends a run that is followed by that many zeros.
func (t *wide) cut(zeros int) {
	decoded := t.gap == 1 && (t.order == littleEnd && t.odd == 0 && zeros > 0 || t.order == bigEnd && t.odd == 1 && t.before > 0)
	if t.run < shortestRun || decoded {
		t.out = t.out[:t.start]
	} else {
		t.out = append(t.out, '\n')
	}
	t.start, t.run = len(t.out), 0
}
