package mirror

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"time"
)

// Expired returns the oldest segments whose last record is older than a moment. It reads each as a
// whole and checks it. If one is wrong, it returns an error and the segments before it.
func (ss *segments) Expired(ctx context.Context, before time.Time) ([]Segment, error) {
	return ss.verified(ctx, func(s *Segment) bool { return s.LastTime.Before(before) })
}

// verified returns the oldest segments, as long as they are wanted and correct.
func (ss *segments) verified(ctx context.Context, wanted func(*Segment) bool) ([]Segment, error) {
	var good []Segment
	for _, s := range ss.Segments() {
		if !wanted(&s) {
			break
		}
		if err := ss.Verify(ctx, &s); err != nil {
			return good, err
		}
		good = append(good, s)
	}
	return good, nil
}

// Verify reads a listed segment as a whole and compares it with the manifest.
func (ss *segments) Verify(ctx context.Context, s *Segment) error {
	got, err := examine(ctx, ss.layout.path(s.File), true)
	var bad *unsound
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.As(err, &bad):
		ss.fault("the segment %s differs from the manifest: %v", s.File, err)
		return fmt.Errorf("cannot trust the segment %s: %w", s.File, err)
	case err != nil:
		return err
	case !got.same(*s):
		ss.fault("the segment %s differs from the manifest", s.File)
		return fmt.Errorf("cannot trust the segment %s: it is a correct one of the records %d to %d, but not the one in the manifest", s.File, got.First, got.Last)
	}
	return nil
}

// Retire removes the oldest segments that hold no record after one, and returns them. It first
// reads each as a whole. It stops at a wrong segment with an error. The next start finishes a
// removal that a crash interrupts. The caller must have recorded the removal before.
func (ss *segments) Retire(ctx context.Context, upTo uint64) ([]Segment, error) {
	gone, refused := ss.verified(ctx, func(s *Segment) bool { return s.Last <= upTo })
	if len(gone) == 0 {
		return nil, refused
	}
	ss.files.Lock()
	defer ss.files.Unlock()
	marked := slices.Clone(ss.listed)
	for i := range marked {
		marked[i].Retired = marked[i].Retired || marked[i].Last <= gone[len(gone)-1].Last
	}
	if err := ss.save(marked); err != nil {
		return nil, errors.Join(refused, err)
	}
	ss.o.step("segments marked")
	left, err := ss.removeRetired(marked)
	ss.mu.Lock()
	ss.listed = left
	ss.mu.Unlock()
	return gone, errors.Join(refused, err)
}

// removeRetired removes the files of the marked segments, and then all of them except the newest
// from the manifest.
func (ss *segments) removeRetired(list []Segment) ([]Segment, error) {
	retired := 0
	for ; retired < len(list) && list[retired].Retired; retired++ {
		if err := os.Remove(ss.layout.path(list[retired].File)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return list, fmt.Errorf("cannot remove a segment: %w", err)
		}
		ss.o.step("segment removed")
	}
	if retired > 0 {
		if err := syncDir(ss.layout.dir); err != nil {
			return list, err
		}
	}
	if retired < 2 {
		return list, nil
	}
	left := slices.Clone(list[retired-1:])
	return left, ss.save(left)
}

// finishRetiring removes the segments that were marked before a crash. The daemon removes records from the
// database before it marks their segments: it did not mark a segment whose records the database has.
func (ss *segments) finishRetiring(list []Segment, found map[span]files, oldest uint64) ([]Segment, error) {
	changed := false
	for i := range list {
		switch s := &list[i]; {
		case s.Retired && s.Last >= oldest:
			ss.fault("the manifest says that the segment %s was removed on purpose, and the database has its records", s.File)
			s.Retired, changed = false, true
		case s.Retired:
			delete(found, s.span())
		}
	}
	if changed {
		if err := ss.save(list); err != nil {
			return list, err
		}
	}
	return ss.removeRetired(list)
}
