package mirror

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/openclawos/ocipd/internal/base/durable"
)

// WalkFile visits the lines of one file from any source: a live file, a segment, or a copy of
// either. It decompresses a file whose name ends in .zst. A line is valid during the visit only,
// and has no newline. [ErrTorn] comes after all whole lines. An error of visit ends the walk.
func WalkFile(path string, visit func(line []byte) error) error {
	f, err := durable.Open(path)
	if err != nil {
		return fmt.Errorf("cannot read the audit log: %w", err)
	}
	defer f.Close()
	lines := newLineReader()
	defer lines.close()
	if err := lines.open(f, strings.HasSuffix(path, packedExt)); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	for {
		line, err := lines.next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		if err := visit(line); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
}
