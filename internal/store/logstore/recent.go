package logstore

import (
	"bytes"
	"sync"
)

// recent holds the newest lines in memory, so that close followers of the log need not read the
// database: the mirror, the sinks, the index, operators.
type recent struct {
	mu      sync.Mutex
	batches []lineBatch
	bytes   int
}

// lineBatch holds the lines of one commit, whole and with their newlines. It never changes.
type lineBatch struct {
	first, last uint64
	text        []byte
}

// recentBytes bounds the lines held in memory.
const recentBytes = 1 << 20

func (r *recent) add(first, last uint64, text []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.batches = append(r.batches, lineBatch{first, last, text})
	r.bytes += len(text)
	// A commit that is larger by itself, such as that of a long directory, is read from the database.
	drop := 0
	for ; r.bytes > recentBytes; drop++ {
		r.bytes -= len(r.batches[drop].text)
	}
	// The list moves along its memory, and is copied only when that is full: there are thousands of
	// batches, and each commit drops one.
	clear(r.batches[:drop])
	r.batches = r.batches[drop:]
}

// forget drops all lines: followers read the database until there are new ones.
func (r *recent) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.batches, r.bytes = nil, 0
}

// after returns a page of the lines after seq and the number of the last one, and false if memory
// does not reach back so far.
func (r *recent) after(seq uint64) (lines [][]byte, upTo uint64, ok bool) {
	r.mu.Lock()
	batches := r.batches
	if len(batches) == 0 || batches[0].first > seq+1 {
		r.mu.Unlock()
		return nil, seq, false
	}
	low, high := 0, len(batches)
	for low < high {
		if middle := int(uint(low+high) >> 1); batches[middle].last > seq {
			high = middle
		} else {
			low = middle + 1
		}
	}
	// The list moves when its beginning is dropped, so copy it before reading without the lock.
	page := append([]lineBatch(nil), batches[low:min(len(batches), low+pageLines)]...)
	r.mu.Unlock()
	upTo, size := seq, 0
	for _, b := range page {
		n := b.first
		for text := b.text; len(text) > 0; n++ {
			end := bytes.IndexByte(text, '\n')
			line := text[:end:end]
			text = text[end+1:]
			if n <= seq {
				continue
			}
			lines, upTo, size = append(lines, line), n, size+len(line)
			if len(lines) == pageLines || size >= pageBytes {
				return lines, upTo, true
			}
		}
	}
	return lines, upTo, true
}
