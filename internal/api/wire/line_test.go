package wire

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

// lineBuffer is what the readers keep that are tried here.
const lineBuffer = 2 << 10

// got is one answer of a reader: a line, or the beginning of one that is too
// long.
type got struct {
	line    string
	tooLong bool
}

// split is what a LineReader has to do, said as simply as possible for input
// that is in memory as a whole. A line that is too long is named in full.
func split(input []byte, limit int) (lines []got) {
	for len(input) > 0 {
		line, rest, whole := bytes.Cut(input, []byte("\n"))
		input = rest
		switch {
		case len(bytes.TrimSuffix(line, []byte("\r"))) > limit:
			lines = append(lines, got{string(line), true})
		case !whole:
			// A last line without a newline is none.
		default:
			if line = bytes.TrimSuffix(line, []byte("\r")); len(bytes.TrimSpace(line)) > 0 {
				lines = append(lines, got{string(line), false})
			}
		}
	}
	return lines
}

// chunked hands out its input in pieces of the given sizes, over and over.
type chunked struct {
	input []byte
	sizes []byte
	next  int
}

func (c *chunked) Read(p []byte) (int, error) {
	if len(c.input) == 0 {
		return 0, io.EOF
	}
	n := len(p)
	if len(c.sizes) > 0 {
		n = min(n, 1+int(c.sizes[c.next%len(c.sizes)]))
		c.next++
	}
	n = copy(p[:n], c.input)
	c.input = c.input[n:]
	return n, nil
}

// compare reads everything and holds it against [split].
func compare(t *testing.T, input []byte, limit int, source io.Reader) {
	t.Helper()
	l := NewLineReader(source, limit, lineBuffer)
	bound := max(lineBuffer, limit+2)
	for i, want := range split(input, limit) {
		line, err := l.Next()
		switch {
		case want.tooLong && !errors.Is(err, ErrLineTooLong):
			t.Fatalf("line %d: got %q %v, want it to be too long", i, line, err)
		case want.tooLong && (len(line) <= limit || !strings.HasPrefix(want.line, string(line))):
			t.Fatalf("line %d: got %d bytes that are not the line's beginning", i, len(line))
		case !want.tooLong && (err != nil || string(line) != want.line):
			t.Fatalf("line %d: got %q %v, want %q", i, line, err, want.line)
		}
		if len(l.buf) > bound {
			t.Fatalf("line %d: the reader keeps %d bytes, want at most %d", i, len(l.buf), bound)
		}
	}
	if line, err := l.Next(); !errors.Is(err, io.EOF) {
		t.Fatalf("at the end: got %q %v, want EOF", line, err)
	}
}

func TestLineReader(t *testing.T) {
	const limit = 4000
	long := strings.Repeat("x", limit)
	for _, tc := range []struct{ name, input string }{
		{"nothing", ""},
		{"empty lines", "\n\r\n \n\t\r\n"},
		{"both line ends", "a\nb\r\nc\r\r\n"},
		{"a last line without its end", "a\nb"},
		{"at the limit", long[1:] + "\n" + long + "\n" + long + "x\n" + "after\n"},
		{"at the limit with a carriage return", long[1:] + "\r\n" + long + "\r\n" + long + "x\r\n" + long + "\r\r\n" + "after\n"},
		{"far over the limit", strings.Repeat(long, 20) + "\nafter\n"},
		{"over the limit without an end", strings.Repeat(long, 20)},
		{"over the limit twice", long + long + "\n" + long + long + "\nafter\n"},
		{"zero bytes", "\x00\n\x00\x00\n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			input := []byte(tc.input)
			compare(t, input, limit, bytes.NewReader(input))
			compare(t, input, limit, iotest.OneByteReader(bytes.NewReader(input)))
			compare(t, input, limit, iotest.DataErrReader(bytes.NewReader(input)))
		})
	}
}

// What is buffered is a line that the next call returns without reading, so
// that answers are not held back for one that is not there.
func TestLineReaderBuffered(t *testing.T) {
	for _, tc := range []struct {
		rest string
		want bool
	}{
		{"", false}, {"b", false}, {"b\n", true}, {"\n", false}, {"\r\n \n\t\r\n", false}, {"\n\nb", false}, {"\n\r\nb\n", true},
	} {
		l := NewLineReader(strings.NewReader("a\n"+tc.rest), 100, lineBuffer)
		if _, err := l.Next(); err != nil {
			t.Fatal(err)
		}
		if got := l.Buffered(); got != tc.want {
			t.Errorf("behind a line and in front of %q: got %v", tc.rest, got)
		}
	}
}

// A source that gives nothing and no error must not spin.
func TestLineReaderWithoutProgress(t *testing.T) {
	if _, err := NewLineReader(stuck{}, 100, lineBuffer).Next(); !errors.Is(err, io.ErrNoProgress) {
		t.Errorf("got %v", err)
	}
}

type stuck struct{}

func (stuck) Read([]byte) (int, error) { return 0, nil }

// Once a long line is through, an idle connection is small again.
func TestLineReaderShrinks(t *testing.T) {
	const limit = 1 << 20
	var input bytes.Buffer
	input.WriteString(strings.Repeat("x", limit) + "\n")
	l := NewLineReader(&input, limit, lineBuffer)
	if line, err := l.Next(); err != nil || len(line) != limit {
		t.Fatalf("got %d bytes, %v", len(line), err)
	}
	input.WriteString("short\n")
	if line, err := l.Next(); err != nil || string(line) != "short" {
		t.Fatalf("got %q, %v", line, err)
	}
	if len(l.buf) > keepBuffer {
		t.Errorf("the reader keeps %d bytes", len(l.buf))
	}
}

// FuzzLineReader reads any bytes in any pieces: the lines are those of the
// reference, in memory that the limit bounds.
func FuzzLineReader(f *testing.F) {
	for _, seed := range []string{
		"", "\n", "\r\n", "a\nb\r\n\r\nc", "{}\n{}\n", "\xff\xfe\n", strings.Repeat("x", 3000) + "\ny\n",
		strings.Repeat("x", 2047) + "\r\n", strings.Repeat("\n", 5000), "a\r", "\r",
	} {
		f.Add([]byte(seed), []byte{0, 1, 255}, uint16(1024))
		f.Add([]byte(seed), []byte{}, uint16(2))
	}
	f.Fuzz(func(t *testing.T, input, sizes []byte, limit uint16) {
		if len(input) < 1<<12 {
			// Long lines are rare in what a fuzzer makes.
			input = bytes.Repeat(input, 1+int(limit)%7)
		}
		compare(t, input, 1+int(limit)%5000, &chunked{input: input, sizes: sizes})
	})
}
