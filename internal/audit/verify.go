package audit

import (
	"bufio"
	"errors"
	"fmt"
	"io"
)

// Verifier checks lines one after another and remembers how far it came. The
// zero Verifier starts at the beginning of a chain.
type Verifier struct {
	head Head
}

// Add checks the next line.
func (v *Verifier) Add(line []byte) error {
	next, err := v.head.Check(line)
	if err != nil {
		return err
	}
	v.head = next
	return nil
}

// Head returns the last record that was found good.
func (v *Verifier) Head() Head { return v.head }

// ReadFrom checks every line of r, in constant memory. A last line without its
// newline is a fault: it was torn or cut.
func (v *Verifier) ReadFrom(r io.Reader) (int64, error) {
	buffered := bufio.NewReaderSize(r, 64<<10)
	var read int64
	var long []byte
	for {
		line, err := buffered.ReadSlice('\n')
		read += int64(len(line))
		if errors.Is(err, bufio.ErrBufferFull) {
			if long = append(long, line...); len(long) > 2*MaxBodyBytes {
				return read, &Fault{Seq: v.head.Seq + 1, Problem: fmt.Sprintf("longer than %d bytes", 2*MaxBodyBytes)}
			}
			continue
		}
		if long != nil {
			line, long = append(long, line...), nil
		}
		switch {
		case errors.Is(err, io.EOF) && len(line) == 0:
			return read, nil
		case errors.Is(err, io.EOF):
			return read, &Fault{Seq: v.head.Seq + 1, Problem: "cut short: no newline at the end"}
		case err != nil:
			return read, fmt.Errorf("cannot read the audit log: %w", err)
		}
		if err := v.Add(line[:len(line)-1]); err != nil {
			return read, err
		}
	}
}
