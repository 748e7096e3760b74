package cli

import (
	"bytes"
	"strings"
	"testing"
)

// Stdin is read completely or refused, because nobody would notice a cut.
func TestStdinIsWhole(t *testing.T) {
	t.Parallel()
	for length, good := range map[int]bool{3: true, maxInput: true, maxInput + 1: false} {
		s := &Process{Stdin: bytes.NewReader(bytes.Repeat([]byte("x"), length))}
		text, err := s.ReadStdin(t.Context())
		if good != (err == nil && len(text) == length) || !good && !strings.Contains(err.Error(), "more than") {
			t.Errorf("of %d bytes, %d are read: %v", length, len(text), err)
		}
	}
}
