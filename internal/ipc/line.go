package ipc

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"unicode"
)

// errLineTooLong means that a line went over the limit. The reader has skipped
// nothing yet: the next call goes on behind the line's newline.
var errLineTooLong = errors.New("line too long")

const (
	// lineBuffer is what an idle connection keeps.
	lineBuffer = 2 << 10
	// keepBuffer is the largest buffer kept after a long line.
	keepBuffer = 16 << 10
)

// lineReader reads lines in bounded memory, whatever is sent.
type lineReader struct {
	source io.Reader
	limit  int
	buf    []byte
	// buf[start:end] is read and not yet returned.
	start, end int
	// searched is how far of that is known to hold no newline.
	searched int
	skipping bool
	// charge, where set, is told by how many bytes the buffer grows and shrinks.
	charge func(bytes int)
}

// resize takes another buffer, and keeps what is read and not yet returned.
func (l *lineReader) resize(size int) {
	if l.charge != nil {
		l.charge(size - len(l.buf))
	}
	buf := make([]byte, size)
	l.end = copy(buf, l.buf[l.start:l.end])
	l.start, l.buf = 0, buf
}

// release gives the buffer back. Nothing more is read.
func (l *lineReader) release() {
	l.start, l.end = 0, 0
	l.resize(lineBuffer)
}

func newLineReader(source io.Reader, limit int) *lineReader {
	return &lineReader{source: source, limit: limit, buf: make([]byte, lineBuffer)}
}

// next returns the next line that is not empty, without its line end. The line
// is valid until the next call. With [errLineTooLong] it returns the line's
// beginning. At the end of input it returns io.EOF; a last line without a
// newline is not a line.
func (l *lineReader) next() ([]byte, error) {
	for {
		if i := bytes.IndexByte(l.buf[l.start+l.searched:l.end], '\n'); i >= 0 {
			line := l.buf[l.start : l.start+l.searched+i]
			l.start += len(line) + 1
			l.searched = 0
			if l.skipping {
				l.skipping = false
				continue
			}
			if l.tooLong(line) {
				return line, errLineTooLong
			}
			if line = bytes.TrimSuffix(line, []byte("\r")); len(bytes.TrimSpace(line)) == 0 {
				continue
			}
			return line, nil
		}
		l.searched = l.end - l.start
		if l.skipping {
			l.start, l.end, l.searched = 0, 0, 0
		} else if line := l.buf[l.start:l.end]; l.tooLong(line) {
			l.skipping = true
			return line, errLineTooLong
		}
		if err := l.fill(); err != nil {
			return nil, err
		}
	}
}

// tooLong reports whether a line, or the beginning of one, goes over the limit.
// A carriage return at its end does not count.
func (l *lineReader) tooLong(line []byte) bool {
	return len(line) > l.limit && len(bytes.TrimSuffix(line, []byte("\r"))) > l.limit
}

// buffered reports whether the next line is here without waiting. Empty lines
// are none: whoever has sent one waits for an answer like anybody else.
func (l *lineReader) buffered() bool {
	rest := bytes.TrimLeftFunc(l.buf[l.start:l.end], unicode.IsSpace)
	return bytes.IndexByte(rest, '\n') >= 0
}

func (l *lineReader) fill() error {
	if l.start == l.end {
		l.start, l.end = 0, 0
		if len(l.buf) > keepBuffer {
			l.resize(lineBuffer)
		}
	}
	if l.end == len(l.buf) {
		if l.start > 0 {
			l.end = copy(l.buf, l.buf[l.start:l.end])
			l.start = 0
		} else {
			l.resize(min(2*len(l.buf), l.limit+2))
		}
	}
	n, err := l.source.Read(l.buf[l.end:])
	l.end += n
	if n > 0 {
		return nil
	}
	if err == nil {
		return fmt.Errorf("cannot read: %w", io.ErrNoProgress)
	}
	return err
}
