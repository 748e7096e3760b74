package daemon

import (
	"bufio"
	"crypto/rand"
	"sync"

	"github.com/google/uuid"
)

// ids makes UUIDs of version 7, which sort by time. Every message needs
// several, so randomness is fetched for many at once, and side by side.
type ids struct{ sources sync.Pool }

func newIDs() *ids {
	return &ids{sources: sync.Pool{New: func() any { return bufio.NewReaderSize(rand.Reader, 512) }}}
}

func (i *ids) next() string {
	random := i.sources.Get().(*bufio.Reader)
	defer i.sources.Put(random)
	return uuid.Must(uuid.NewV7FromReader(random)).String()
}
