package mirror

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/openclawos/ocipd/internal/evidence/follow"
)

// oldest returns the first record that the database still has, or will have.
func oldest(ctx context.Context, source follow.Log) (uint64, error) {
	if source.Head().Seq == 0 {
		return 1, nil
	}
	lines, upTo, err := source.LinesAfter(ctx, 0)
	if err != nil {
		return 0, err
	}
	return upTo + 1 - uint64(len(lines)), nil
}

// stored returns a record of the database, or nil.
func stored(ctx context.Context, source follow.Log, seq uint64) ([]byte, error) {
	if seq == 0 || seq > source.Head().Seq {
		return nil, nil
	}
	lines, upTo, err := source.LinesAfter(ctx, seq-1)
	if err != nil || len(lines) == 0 || upTo+1-uint64(len(lines)) != seq {
		return nil, err
	}
	return lines[0], nil
}

// begins reports whether a file without a whole line is empty, or contains the beginning of the
// record that belongs there.
func begins(ctx context.Context, source follow.Log, f *os.File, tail uint64) (bool, error) {
	piece, err := io.ReadAll(io.NewSectionReader(f, 0, lineBuffer))
	if err != nil || len(piece) == 0 {
		return true, err
	}
	if tail >= source.Head().Seq {
		return false, nil
	}
	lines, _, err := source.LinesAfter(ctx, tail)
	return err == nil && len(lines) > 0 && bytes.HasPrefix(lines[0], piece), err
}

// export writes records into a file, from the first of a span to its last or up to the size of one
// segment, and returns the last.
func export(ctx context.Context, o *Options, r span, path string) (last uint64, err error) {
	f, err := createNew(path)
	if err != nil {
		return 0, fmt.Errorf("cannot write a segment: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	last = r.first - 1
	var size int64
	var text []byte
	for whole := false; last < r.last && !whole; {
		lines, upTo, err := o.Source.LinesAfter(ctx, last)
		if err != nil {
			return 0, err
		}
		if len(lines) == 0 || upTo+1-uint64(len(lines)) != last+1 {
			break
		}
		text = text[:0]
		for _, line := range lines {
			length := int64(len(line)) + 1
			if whole = last == r.last || size > 0 && o.RotateBytes > 0 && size+length > o.RotateBytes; whole {
				break
			}
			text = append(append(text, line...), '\n')
			size += length
			last++
		}
		if _, err := f.Write(text); err != nil {
			return 0, fmt.Errorf("cannot write a segment: %w", err)
		}
	}
	if err := f.Sync(); err != nil {
		return 0, fmt.Errorf("cannot write a segment: %w", err)
	}
	return last, nil
}
