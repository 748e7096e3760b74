package store

import "github.com/openclawos/ocipd/internal/store/diskspace"

// use returns the purpose of a change, for the monitor of the disk.
func (c *Change) use() diskspace.Use {
	switch {
	case c.last():
		return diskspace.Last
	case c.drains():
		return diskspace.End
	}
	return diskspace.Begin
}

// Disk returns the state of the disk at the last check.
func (s *Store) Disk() diskspace.Disk { return s.commits.space.Now() }

// writeFull continues a batch that found no space: people's decisions and the daemon's end are
// tried again, on the reserve if there still is one. All other changes fail.
func (cs *commits) writeFull(batch []*pending, full error) {
	cs.space.Filled()
	var last []*pending
	for _, p := range batch {
		if p.err = full; p.last() {
			last = append(last, p)
		}
	}
	if len(last) == 0 || !cs.space.Release() && len(last) == len(batch) {
		return
	}
	err := cs.writeBatch(last)
	for _, p := range last {
		p.end(err)
	}
}
