package wire

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"unicode"
)

// ErrLineTooLong means that a line went over the limit. The reader has skipped
// nothing yet: the next call goes on behind the line's newline.
var ErrLineTooLong = errors.New("line too long")

// keepBuffer is the largest buffer kept after a long line, unless the caller wants more.
const keepBuffer = 16 << 10

// LineReader reads lines in bounded memory for any input. One goroutine uses it.
type LineReader struct {
	// Charge, if set, gets the bytes by which the buffer grows and shrinks.
	Charge func(bytes int)

	source io.Reader
	limit  int
	// idle is the size of the buffer that is kept.
	idle int
	buf  []byte
	// buf[start:end] is read and not yet returned.
	start, end int
	// searched is how far of that is known to hold no newline.
	searched int
	skipping bool
}

// NewLineReader makes a reader of lines of at most so many bytes, line ends not
// counted, with a buffer of idle bytes that grows with longer lines.
func NewLineReader(source io.Reader, limit, idle int) *LineReader {
	return &LineReader{source: source, limit: limit, idle: idle, buf: make([]byte, idle)}
}

// resize takes another buffer, and keeps what is read and not yet returned.
func (l *LineReader) resize(size int) {
	if l.Charge != nil {
		l.Charge(size - len(l.buf))
	}
	buf := make([]byte, size)
	l.end = copy(buf, l.buf[l.start:l.end])
	l.start, l.buf = 0, buf
}

// Release gives the buffer back. Nothing more is read.
func (l *LineReader) Release() {
	l.start, l.end = 0, 0
	l.resize(l.idle)
}

// Next returns the next line that is not empty, without its line end. The line
// is valid until the next call. With [ErrLineTooLong] it returns the line's
// beginning. At the end of input it returns io.EOF; a last line without a
// newline is not a line.
func (l *LineReader) Next() ([]byte, error) {
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
				return line, ErrLineTooLong
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
			return line, ErrLineTooLong
		}
		if err := l.fill(); err != nil {
			return nil, err
		}
	}
}

// tooLong reports whether a line, or the beginning of one, goes over the limit.
// A carriage return at its end does not count.
func (l *LineReader) tooLong(line []byte) bool {
	return len(line) > l.limit && len(bytes.TrimSuffix(line, []byte("\r"))) > l.limit
}

// Buffered reports whether the next line is here without waiting. Empty lines are none: its sender
// waits for an answer like any other.
func (l *LineReader) Buffered() bool {
	rest := bytes.TrimLeftFunc(l.buf[l.start:l.end], unicode.IsSpace)
	return bytes.IndexByte(rest, '\n') >= 0
}

func (l *LineReader) fill() error {
	if l.start == l.end {
		l.start, l.end = 0, 0
		if len(l.buf) > max(keepBuffer, l.idle) {
			l.resize(l.idle)
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
