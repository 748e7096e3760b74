package mirror

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/openclawos/ocipd/internal/audit"
	"go.uber.org/zap"
)

// segments are the parts of the log that have left the live file.
type segments struct {
	o      *Options
	layout layout

	mu sync.Mutex
	// listed are those of the manifest. The slice is replaced as a whole.
	listed []Segment
	// pending are the segments that are not in it yet, oldest first.
	pending []span
	// faults describe problems with segments.
	faults []string

	// files is held during a change of the manifest and of the files that belong to it.
	files sync.Mutex
	// kick signals work for compression.
	kick chan struct{}
}

// status adds the segments to the mirror's state.
func (ss *segments) status(s *Status) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	for i := range ss.listed {
		if !ss.listed[i].Retired {
			s.Segments++
			s.PackedBytes += ss.listed[i].PackedBytes
		}
	}
	s.Pending = len(ss.pending)
	s.Problems = append(s.Problems, ss.faults...)
}

// files tells which files of a span exist.
type files struct {
	plain, packed bool
	packedBytes   int64
}

// scan lists the files of segments and removes unfinished ones after a crash.
func (l layout) scan() (map[span]files, error) {
	entries, err := os.ReadDir(l.dir)
	if err != nil {
		return nil, fmt.Errorf("cannot read the audit mirror's directory: %w", err)
	}
	found := make(map[span]files)
	for _, e := range entries {
		name, temporary := strings.CutSuffix(e.Name(), temporaryExt)
		r, packed, ok := l.parse(name)
		switch {
		case temporary && (ok || l.path(name) == l.manifest()):
			if err := os.Remove(l.path(e.Name())); err != nil {
				return nil, fmt.Errorf("cannot remove an unfinished file: %w", err)
			}
		case temporary || !ok:
		case packed:
			info, err := e.Info()
			if err != nil {
				return nil, fmt.Errorf("cannot read the audit mirror's directory: %w", err)
			}
			f := found[r]
			f.packed, f.packedBytes = true, info.Size()
			found[r] = f
		default:
			f := found[r]
			f.plain = true
			found[r] = f
		}
	}
	return found, nil
}

// load reads the segments and returns their last record. Unfinished segments become pending.
func (ss *segments) load(ctx context.Context) (tail uint64, err error) {
	found, err := ss.layout.scan()
	if err != nil {
		return 0, err
	}
	oldest, err := oldest(ctx, ss.o.Source)
	if err != nil {
		return 0, err
	}
	listed, err := ss.readListed(ctx, found, oldest)
	if err != nil {
		return 0, err
	}
	ss.listed = listed
	var pending []span
	for i := range listed {
		s := &listed[i]
		f := found[s.span()]
		delete(found, s.span())
		switch {
		case s.Retired:
		case f.plain:
			pending = append(pending, s.span())
		default:
			ss.checkListed(s, f)
		}
	}
	head := ss.o.Source.Head().Seq
	for _, r := range sorted(found) {
		taken := slices.ContainsFunc(listed, func(s Segment) bool { return r.first <= s.Last && s.First <= r.last }) ||
			slices.ContainsFunc(pending, func(p span) bool { return r.first <= p.last && p.first <= r.last })
		switch {
		case r.last > head:
			err = ss.disownFiles(r, found[r], fmt.Errorf("the database ends at record %d", head))
		case taken:
			err = ss.disownFiles(r, found[r], errors.New("another segment holds its records"))
		default:
			pending = append(pending, r)
		}
		if err != nil {
			return 0, err
		}
	}
	ss.pending, tail = gaps(listed, pending, oldest)
	if len(ss.pending) > 0 {
		ss.kick <- struct{}{}
	}
	return tail, nil
}

// gaps adds the missing spans between segments to the pending ones, and returns the last record of
// all.
func gaps(listed []Segment, pending []span, oldest uint64) (all []span, tail uint64) {
	slices.SortFunc(pending, bySpan)
	have := slices.Clone(pending)
	for i := range listed {
		have = append(have, listed[i].span())
	}
	slices.SortFunc(have, bySpan)
	next := oldest
	if len(listed) > 0 && listed[0].Retired {
		next = max(next, listed[0].Last+1)
	}
	tail = next - 1
	for i, r := range have {
		if r.first > next {
			pending = append(pending, span{next, r.first - 1})
		}
		next = max(next, r.last+1)
		if i == len(have)-1 {
			tail = r.last
		}
	}
	slices.SortFunc(pending, bySpan)
	return pending, tail
}

func bySpan(a, b span) int {
	return cmp.Or(cmp.Compare(a.first, b.first), cmp.Compare(a.last, b.last))
}

func sorted(found map[span]files) []span { return slices.SortedFunc(maps.Keys(found), bySpan) }

// readListed returns the segments of the manifest that belong to this database, after it has finished what a
// crash interrupted. Oldest is the first record that the database has.
func (ss *segments) readListed(ctx context.Context, found map[span]files, oldest uint64) ([]Segment, error) {
	listed, err := ss.layout.readManifest()
	if broken, ok := errors.AsType[*manifestError](err); ok {
		ss.fault("%v; it is made again from the segments", err)
		_, err = setAside(ss.o, ss.layout.manifest(), broken.cause)
	}
	if err != nil {
		return nil, err
	}
	if listed, err = ss.finishRetiring(listed, found, oldest); err != nil {
		return nil, err
	}
	return ss.disown(ctx, listed, found)
}

// disown sets aside the listed segments that do not belong to this database. Since each contains
// the hash of the one before, they are the last ones.
func (ss *segments) disown(ctx context.Context, listed []Segment, found map[span]files) ([]Segment, error) {
	ours := len(listed)
	for ; ours > 0; ours-- {
		verdict, err := ss.compare(ctx, &listed[ours-1])
		if err != nil {
			return nil, err
		}
		if verdict == nil {
			break
		}
		s := &listed[ours-1]
		ss.fault("the segment %s is not of this database: %v", s.File, verdict)
		if err := ss.disownFiles(s.span(), found[s.span()], verdict); err != nil {
			return nil, err
		}
		delete(found, s.span())
	}
	if ours == len(listed) {
		return listed, nil
	}
	listed = listed[:ours:ours]
	return listed, ss.save(listed)
}

// disownFiles sets the files of a span aside.
func (ss *segments) disownFiles(r span, f files, why error) error {
	if f.plain {
		if _, err := setAside(ss.o, ss.layout.path(ss.layout.plain(r)), why); err != nil {
			return err
		}
	}
	if f.packed {
		if _, err := setAside(ss.o, ss.layout.path(ss.layout.packed(r)), why); err != nil {
			return err
		}
	}
	return nil
}

// compare returns the reason that a segment cannot belong to this database. If retention has
// removed its last record, this is unknown.
func (ss *segments) compare(ctx context.Context, s *Segment) (verdict, err error) {
	if head := ss.o.Source.Head().Seq; s.Last > head {
		return fmt.Errorf("it ends at record %d, and the database at %d", s.Last, head), nil
	}
	line, err := stored(ctx, ss.o.Source, s.Last)
	if err != nil || line == nil {
		return nil, err
	}
	head, err := audit.HeadOf(line)
	if err != nil {
		return nil, err
	}
	if head.Hash != s.Hash {
		return fmt.Errorf("its record %d has the hash %s, and that of the database %s", s.Last, s.Hash, head.Hash), nil
	}
	return nil, nil
}

// checkListed notes a fault if a listed segment has no file or a file of another length.
func (ss *segments) checkListed(s *Segment, f files) {
	switch {
	case !f.packed:
		ss.fault("the segment %s is listed and is not there", s.File)
	case f.packedBytes != s.PackedBytes:
		ss.fault("the segment %s has %d bytes, and the manifest says %d", s.File, f.packedBytes, s.PackedBytes)
	}
}

// save replaces the manifest.
func (ss *segments) save(list []Segment) error {
	text, err := encodeManifest(list)
	if err != nil {
		return err
	}
	return replaceFile(ss.layout.manifest(), text, ss.o.step)
}

// keepManifest writes the manifest again after its directory was removed.
func (ss *segments) keepManifest() error {
	ss.files.Lock()
	defer ss.files.Unlock()
	if _, err := os.Lstat(ss.layout.manifest()); len(ss.listed) == 0 || !errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	ss.fault("the manifest %s was removed; it was written again", ss.layout.manifest())
	found, err := ss.layout.scan()
	if err != nil {
		return err
	}
	for i := range ss.listed {
		if s := &ss.listed[i]; !s.Retired {
			ss.checkListed(s, found[s.span()])
		}
	}
	return ss.save(ss.listed)
}

// enqueue adds a span to those that must be compressed.
func (ss *segments) enqueue(r span) {
	ss.mu.Lock()
	ss.pending = append(ss.pending, r)
	slices.SortFunc(ss.pending, bySpan)
	ss.mu.Unlock()
	select {
	case ss.kick <- struct{}{}:
	default:
	}
}

// settled replaces a pending span by the rest of it.
func (ss *segments) settled(r span, left ...span) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if at := slices.Index(ss.pending, r); at >= 0 {
		ss.pending = slices.Replace(ss.pending, at, at+1, left...)
	}
}

// list adds a segment to the manifest.
func (ss *segments) add(s Segment) error {
	ss.files.Lock()
	defer ss.files.Unlock()
	list := insert(ss.listed, s)
	if err := ss.save(list); err != nil {
		return err
	}
	ss.mu.Lock()
	ss.listed = list
	ss.mu.Unlock()
	return nil
}

// Segments returns the segments of the manifest, oldest first, without the retired ones.
func (ss *segments) Segments() []Segment {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(ss.listed), func(s Segment) bool { return s.Retired })
}

// fault notes a fault of a segment.
func (ss *segments) fault(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	ss.o.Log.Error("the audit mirror has a fault", zap.String("problem", text))
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if !slices.Contains(ss.faults, text) {
		ss.faults = append(ss.faults, text)
	}
}

// goesOn reports whether a live file continues a segment, or begins directly before the oldest
// record of the database. It is for a file whose last record retention has removed from the
// database.
func (ss *segments) goesOn(ctx context.Context, prev audit.Hash, last audit.Head) (bool, error) {
	lines, upTo, err := ss.o.Source.LinesAfter(ctx, 0)
	if err != nil || len(lines) == 0 {
		return false, err
	}
	oldest, err := audit.Parse(lines[0])
	if err != nil || last.Seq > upTo-uint64(len(lines)) {
		return false, err
	}
	if last.Seq+1 == oldest.Seq {
		return last.Hash == oldest.Prev, nil
	}
	ss.mu.Lock()
	defer ss.mu.Unlock()
	return slices.ContainsFunc(ss.listed, func(s Segment) bool { return s.Hash == prev }), nil
}
