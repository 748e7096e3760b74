package mcpproxy

import (
	"io"
	"runtime"
	"strings"
	"testing"
	"time"
)

// While no answer is awaited, what the server says passes in bounded memory, however long.
func TestLongLinesPassInBoundedMemory(t *testing.T) {
	const length = 20 << 20
	s := &stdio{proxy: newProxy(t.Context(), &Options{Out: io.Discard, Now: time.Now})}
	line := io.MultiReader(io.LimitReader(endless{}, length), strings.NewReader("\n"))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if err := s.readServer(line); err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	if used := after.TotalAlloc - before.TotalAlloc; used > 1<<20 {
		t.Errorf("%d bytes were allocated for a line of %d", used, length)
	}
}

// endless says x without end.
type endless struct{}

func (endless) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = 'x'
	}
	return len(b), nil
}
