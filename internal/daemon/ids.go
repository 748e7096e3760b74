package daemon

import (
	"bufio"
	"crypto/rand"
	"encoding/binary"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
)

// ids makes UUIDs of version 7, which sort by time: a later id of this process never sorts
// before an earlier one. Every message needs several, so it reads randomness for many at
// once, and in parallel.
type ids struct {
	last    atomic.Uint64
	sources sync.Pool
}

// source is a source of randomness, with a buffer for an id.
type source struct {
	*bufio.Reader
	id uuid.UUID
}

func newIDs() *ids {
	return &ids{sources: sync.Pool{New: func() any { return &source{Reader: bufio.NewReaderSize(rand.Reader, 512)} }}}
}

func (i *ids) next() string {
	s := i.sources.Get().(*source)
	defer i.sources.Put(s)
	at := i.moment()
	// 48 bits of milliseconds, the version, 12 bits of their fraction, the variant, and random bits.
	binary.BigEndian.PutUint64(s.id[:8], at>>12<<16|7<<12|at&0xfff)
	if _, err := io.ReadFull(s, s.id[8:]); err != nil {
		panic("daemon: the system's randomness cannot fail: " + err.Error())
	}
	s.id[8] = s.id[8]&0x3f | 0x80
	return s.id.String()
}

// moment is the time in 4096ths of a millisecond, and increases with each call.
func (i *ids) moment() uint64 {
	now := time.Now().UnixNano()
	const milli = int64(time.Millisecond)
	at := uint64(now/milli)<<12 | uint64(now%milli)<<12/uint64(milli)
	for {
		last := i.last.Load()
		if at <= last {
			at = last + 1
		}
		if i.last.CompareAndSwap(last, at) {
			return at
		}
	}
}
