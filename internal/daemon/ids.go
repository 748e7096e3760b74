package daemon

import (
	"bufio"
	"crypto/rand"
	"sync"

	"github.com/google/uuid"
)

// ids makes UUIDs of version 7, which sort by time. Randomness is fetched for
// many at once, since every message needs several.
type ids struct {
	mu     sync.Mutex
	random *bufio.Reader
}

func newIDs() *ids { return &ids{random: bufio.NewReaderSize(rand.Reader, 1024)} }

func (i *ids) next() string {
	i.mu.Lock()
	defer i.mu.Unlock()
	return uuid.Must(uuid.NewV7FromReader(i.random)).String()
}
