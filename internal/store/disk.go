package store

import "github.com/openclawos/ocipd/internal/store/diskspace"

// use is what a change writes for, to the monitor of the disk.
func (c *Change) use() diskspace.Use {
	switch {
	case c.last():
		return diskspace.Last
	case c.drains():
		return diskspace.End
	}
	return diskspace.Begin
}

// Disk returns how the disk was when it was last looked at.
func (s *Store) Disk() diskspace.Disk { return s.space.Now() }

// writeFull goes on with a batch that found no space: people's decisions and the
// daemon's end are tried once more, on the reserve where there still is one.
// Everything else fails.
func (s *Store) writeFull(batch []*pending, full error) {
	s.space.Filled()
	var last []*pending
	for _, p := range batch {
		if p.err = full; p.last() {
			last = append(last, p)
		}
	}
	if len(last) == 0 || !s.space.Release() && len(last) == len(batch) {
		return
	}
	err := s.writeBatch(last)
	for _, p := range last {
		p.end(err)
	}
}
