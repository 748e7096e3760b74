package mirror

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"

	"github.com/klauspost/compress/zstd"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/base/durable"
)

// ErrTorn reports that the last line of the live file has no end: it is being written, or a crash
// left it incomplete. The lines before it were visited.
var ErrTorn = errors.New("the last line has no end: it is being written, or a crash left it incomplete")

// lineBuffer holds the longest possible line, and is the amount that is read of a file at once.
const lineBuffer = 2*audit.MaxBodyBytes + 1

// maxWindow bounds the memory that a compressed file may ask for.
const maxWindow = 16 << 20

// lineReader reads the lines of one file after another. It allocates nothing for a line.
type lineReader struct {
	buffered *bufio.Reader
	decoder  *zstd.Decoder
}

func newLineReader() *lineReader {
	return &lineReader{buffered: bufio.NewReaderSize(nil, lineBuffer)}
}

// open begins a file.
func (r *lineReader) open(f io.Reader, packed bool) error {
	if packed {
		if r.decoder == nil {
			decoder, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindow))
			if err != nil {
				return fmt.Errorf("cannot decompress: %w", err)
			}
			r.decoder = decoder
		}
		if err := r.decoder.Reset(f); err != nil {
			return fmt.Errorf("cannot decompress: %w", err)
		}
		f = r.decoder
	}
	r.buffered.Reset(f)
	return nil
}

// next returns the next line without its newline. The line is valid until the next call. The error
// is [io.EOF] at the end, [ErrTorn] if the last line has no newline, or an error of reading or
// decompressing.
func (r *lineReader) next() ([]byte, error) {
	line, err := r.buffered.ReadSlice('\n')
	switch {
	case err == nil:
		return line[:len(line)-1], nil
	case errors.Is(err, bufio.ErrBufferFull):
		return nil, fmt.Errorf("a line is longer than %d bytes", lineBuffer-1)
	case errors.Is(err, io.EOF) && len(line) > 0:
		return nil, ErrTorn
	}
	return nil, err
}

func (r *lineReader) close() {
	if r.decoder != nil {
		r.decoder.Close()
	}
}

// isIO reports whether an error comes from the file system, and so says nothing about a file's
// content.
func isIO(err error) bool {
	var path *fs.PathError
	return errors.As(err, &path)
}

// unsound is the error for a file with wrong content.
type unsound struct {
	file  string
	cause error
}

func (e *unsound) Error() string { return fmt.Sprintf("%s: %v", e.file, e.cause) }

func (e *unsound) Unwrap() error { return e.cause }

// examine reads a segment's file to its end, checks its chain and describes it. An [*unsound] error
// says what is wrong with it.
func examine(ctx context.Context, path string, packed bool) (Segment, error) {
	f, err := durable.Open(path)
	if err != nil {
		return Segment{}, fmt.Errorf("cannot read a segment of the mirror: %w", err)
	}
	defer f.Close()
	counted := &counter{from: f, ctx: ctx, sum: sha256.New()}
	r := newLineReader()
	defer r.close()
	if err := r.open(counted, packed); err != nil {
		return Segment{}, &unsound{path, err}
	}
	var s Segment
	var head audit.Head
	for {
		line, err := r.next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil && s.Records == 0 {
			// The first line names its predecessor. The caller checks whether that is true.
			if head, s.Prev, err = before(line); err == nil {
				s.First = head.Seq + 1
			}
		}
		if err == nil {
			head, err = head.Check(line)
		}
		switch {
		case ctx.Err() != nil:
			return Segment{}, ctx.Err()
		case err != nil && isIO(err):
			return Segment{}, fmt.Errorf("cannot read a segment of the mirror: %w", err)
		case err != nil:
			return Segment{}, &unsound{path, err}
		}
		if s.Records == 0 {
			s.FirstTime = head.Time
		}
		s.Records++
		s.Bytes += int64(len(line)) + 1
	}
	if s.Records == 0 {
		return Segment{}, &unsound{path, errors.New("it is empty")}
	}
	s.Last, s.Hash, s.LastTime = head.Seq, head.Hash, head.Time
	s.PackedBytes = counted.n
	counted.sum.Sum(s.Sum[:0])
	return s, nil
}

// before returns the head that a line names as its predecessor, without its time.
func before(line []byte) (audit.Head, audit.Hash, error) {
	e, err := audit.Parse(line)
	if err != nil {
		return audit.Head{}, audit.Hash{}, err
	}
	if e.Seq == 0 {
		return audit.Head{}, audit.Hash{}, errors.New("not an audit record: no sequence number")
	}
	return audit.Head{Seq: e.Seq - 1, Hash: e.Prev}, e.Prev, nil
}

// counter counts and hashes the bytes that are read, and ends with its context.
type counter struct {
	from io.Reader
	ctx  context.Context
	sum  hash.Hash
	n    int64
}

func (c *counter) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := c.from.Read(p)
	c.n += int64(n)
	c.sum.Write(p[:n])
	return n, err
}

// seqOf reads the number at a line's beginning.
func seqOf(line []byte) (uint64, bool) {
	digits, ok := bytes.CutPrefix(line, []byte(`{"seq":`))
	if !ok {
		return 0, false
	}
	var seq uint64
	for i, d := range digits {
		if d < '0' || d > '9' {
			return seq, i > 0 && seq > 0 && d == ','
		}
		if i == seqDigits+7 {
			return 0, false
		}
		seq = seq*10 + uint64(d-'0')
	}
	return 0, false
}
