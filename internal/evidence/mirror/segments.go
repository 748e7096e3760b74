package mirror

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/openclawos/ocipd/internal/audit"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"
)

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

// loadSegments reads the segments and returns their last record. Unfinished segments become
// pending.
func (m *Mirror) loadSegments(ctx context.Context) (tail uint64, err error) {
	found, err := m.layout.scan()
	if err != nil {
		return 0, err
	}
	oldest, err := m.oldest(ctx)
	if err != nil {
		return 0, err
	}
	listed, err := m.layout.readManifest()
	if broken, ok := errors.AsType[*manifestError](err); ok {
		m.fault("%v; it is made again from the segments", err)
		_, err = m.setAside(m.layout.manifest(), broken.cause)
	}
	if err != nil {
		return 0, err
	}
	if listed, err = m.finishRetiring(listed, found); err != nil {
		return 0, err
	}
	if listed, err = m.disown(ctx, listed, found); err != nil {
		return 0, err
	}
	m.segments = listed

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
			m.checkListed(s, f)
		}
	}
	head := m.o.Source.Head().Seq
	unlisted := sorted(found)
	for _, r := range unlisted {
		taken := slices.ContainsFunc(listed, func(s Segment) bool { return r.first <= s.Last && s.First <= r.last }) ||
			slices.ContainsFunc(pending, func(p span) bool { return r.first <= p.last && p.first <= r.last })
		switch {
		case r.last > head:
			err = m.disownFiles(r, found[r], fmt.Errorf("the database ends at record %d", head))
		case taken:
			err = m.disownFiles(r, found[r], errors.New("another segment holds its records"))
		default:
			pending = append(pending, r)
		}
		if err != nil {
			return 0, err
		}
	}
	m.pending, tail = gaps(listed, pending, oldest)
	if len(m.pending) > 0 {
		m.kick <- struct{}{}
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

func bySpan(a, b span) int { return cmp.Compare(a.first, b.first) }

func sorted(found map[span]files) []span {
	list := make([]span, 0, len(found))
	for r := range found {
		list = append(list, r)
	}
	slices.SortFunc(list, func(a, b span) int { return cmp.Or(cmp.Compare(a.first, b.first), cmp.Compare(a.last, b.last)) })
	return list
}

// oldest returns the first record that the database still has, or will have.
func (m *Mirror) oldest(ctx context.Context) (uint64, error) {
	if m.o.Source.Head().Seq == 0 {
		return 1, nil
	}
	lines, upTo, err := m.o.Source.LinesAfter(ctx, 0)
	if err != nil {
		return 0, err
	}
	return upTo + 1 - uint64(len(lines)), nil
}

// disown sets aside the listed segments that do not belong to this database. Since each contains
// the hash of the one before, they are the last ones.
func (m *Mirror) disown(ctx context.Context, listed []Segment, found map[span]files) ([]Segment, error) {
	ours := len(listed)
	for ; ours > 0; ours-- {
		verdict, err := m.compare(ctx, &listed[ours-1])
		if err != nil {
			return nil, err
		}
		if verdict == nil {
			break
		}
		s := &listed[ours-1]
		m.fault("the segment %s is not of this database: %v", s.File, verdict)
		if err := m.disownFiles(s.span(), found[s.span()], verdict); err != nil {
			return nil, err
		}
		delete(found, s.span())
	}
	if ours == len(listed) {
		return listed, nil
	}
	listed = listed[:ours:ours]
	return listed, m.save(listed)
}

// disownFiles sets the files of a span aside.
func (m *Mirror) disownFiles(r span, f files, why error) error {
	if f.plain {
		if _, err := m.setAside(m.layout.path(m.layout.plain(r)), why); err != nil {
			return err
		}
	}
	if f.packed {
		if _, err := m.setAside(m.layout.path(m.layout.packed(r)), why); err != nil {
			return err
		}
	}
	return nil
}

// compare returns the reason that a segment cannot belong to this database. If retention has
// removed its last record, this is unknown.
func (m *Mirror) compare(ctx context.Context, s *Segment) (verdict, err error) {
	if head := m.o.Source.Head().Seq; s.Last > head {
		return fmt.Errorf("it ends at record %d, and the database at %d", s.Last, head), nil
	}
	line, err := m.stored(ctx, s.Last)
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
func (m *Mirror) checkListed(s *Segment, f files) {
	switch {
	case !f.packed:
		m.fault("the segment %s is listed and is not there", s.File)
	case f.packedBytes != s.PackedBytes:
		m.fault("the segment %s has %d bytes, and the manifest says %d", s.File, f.packedBytes, s.PackedBytes)
	}
}

// save replaces the manifest.
func (m *Mirror) save(list []Segment) error {
	text, err := encodeManifest(list)
	if err != nil {
		return err
	}
	return replaceFile(m.layout.manifest(), text, m.o.step)
}

// keepManifest writes the manifest again after its directory was removed.
func (m *Mirror) keepManifest() error {
	m.files.Lock()
	defer m.files.Unlock()
	if _, err := os.Lstat(m.layout.manifest()); len(m.segments) == 0 || !errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	m.fault("the manifest %s was removed; it was written again", m.layout.manifest())
	found, err := m.layout.scan()
	if err != nil {
		return err
	}
	for i := range m.segments {
		if s := &m.segments[i]; !s.Retired {
			m.checkListed(s, found[s.span()])
		}
	}
	return m.save(m.segments)
}

// enqueue adds a span to those that must be compressed.
func (m *Mirror) enqueue(r span) {
	m.mu.Lock()
	m.pending = append(m.pending, r)
	slices.SortFunc(m.pending, bySpan)
	m.mu.Unlock()
	select {
	case m.kick <- struct{}{}:
	default:
	}
}

// settled replaces a pending span by the rest of it.
func (m *Mirror) settled(r span, left ...span) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if at := slices.Index(m.pending, r); at >= 0 {
		m.pending = slices.Replace(m.pending, at, at+1, left...)
	}
}

// rotationDue returns the time at which the live file is old enough, or zero if age does not rotate
// it.
func (m *Mirror) rotationDue() time.Time {
	l := &m.live
	if m.o.RotateAge == 0 || l.size == 0 || l.file == nil {
		return time.Time{}
	}
	due := l.since.Add(m.o.RotateAge)
	if due.Before(l.rotateFrom) {
		due = l.rotateFrom
	}
	return due
}

// rotate makes the live file a segment and begins another. If that fails, the live file is used
// further for a while.
func (m *Mirror) rotate() bool {
	err := m.rotateFile()
	m.note("cannot rotate the audit mirror", &m.rotating, err)
	if err != nil {
		m.live.rotateFrom = m.o.Clock().Add(rotateAgain)
	}
	return err == nil
}

func (m *Mirror) rotateFile() error {
	l, step := &m.live, m.o.step
	r := span{l.base + 1, m.Mirrored()}
	plain := m.layout.path(m.layout.plain(r))
	if err := l.file.Sync(); err != nil {
		return fmt.Errorf("cannot sync the live file: %w", err)
	}
	var info unix.Stat_t
	if err := unix.Fstat(int(l.file.Fd()), &info); err != nil {
		return fmt.Errorf("cannot inspect the live file: %w", err)
	}
	step("live file synced")
	old := l.id.Swap(nil)
	if err := rename(m.layout.live, plain); err != nil {
		l.id.Store(old)
		return fmt.Errorf("cannot rename the live file: %w", err)
	}
	step("live file renamed")
	next, err := createLike(m.layout.live, &info)
	if err != nil {
		err = fmt.Errorf("cannot begin a live file: %w", err)
		if back := rename(plain, m.layout.live); back != nil {
			l.lose("could not be made again when it was rotated")
			l.base, l.size = r.last, 0
			m.enqueue(r)
			return errors.Join(err, back, l.close())
		}
		l.id.Store(old)
		return err
	}
	step("live file made")
	before := l.file
	l.file, l.size, l.begun, l.base, l.since = next, 0, 0, r.last, time.Time{}
	l.publish(&info)
	m.enqueue(r)
	return errors.Join(before.Close(), syncDir(m.layout.dir))
}

// createLike makes a file with the permissions of another. It replaces that one's description by
// the new file's.
func createLike(path string, info *unix.Stat_t) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	if err = f.Chmod(fs.FileMode(info.Mode & 0o777)); err == nil {
		err = unix.Fstat(int(f.Fd()), info)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close(), os.Remove(path))
	}
	return f, nil
}

const (
	// packAgain is the wait after a failed compression.
	packAgain = 10 * time.Second
	// Compression leaves the processor to a busy daemon: it begins when fewer than busyRecords were
	// written between two looks, or after busyLooks.
	look        = 200 * time.Millisecond
	busyRecords = 100
	busyLooks   = 300
)

// pack compresses pending segments until the mirror is closed.
func (m *Mirror) pack() {
	for {
		select {
		case <-m.kick:
		case <-m.closing.Done():
			return
		}
		for {
			r, ok := m.nextPending()
			if !ok {
				break
			}
			err := m.calm()
			if err == nil {
				err = m.settle(m.closing, r)
			}
			if m.closing.Err() != nil {
				return
			}
			m.note("cannot compress a segment of the audit mirror", &m.packing, err)
			again := packAgain
			if m.o.eager {
				again = retryAfter
			}
			if err != nil && !m.pause(again) {
				return
			}
		}
	}
}

func (m *Mirror) nextPending() (span, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.pending) == 0 {
		return span{}, false
	}
	return m.pending[0], true
}

// pause waits, and reports whether the mirror is still open.
func (m *Mirror) pause(d time.Duration) bool {
	wait, cancel := context.WithTimeout(m.closing, d)
	defer cancel()
	<-wait.Done()
	return m.closing.Err() == nil
}

// calm waits while the log grows fast.
func (m *Mirror) calm() error {
	for range busyLooks {
		before := m.o.Source.Head().Seq
		if m.o.eager {
			break
		}
		if !m.pause(look) {
			return m.closing.Err()
		}
		if m.o.Source.Head().Seq-before < busyRecords {
			break
		}
	}
	return nil
}

// settle takes a pending span one step further. It writes a missing segment from the database,
// compresses an uncompressed one, lists a compressed one, and sets a wrong one aside.
func (m *Mirror) settle(ctx context.Context, r span) error {
	plain, packed := m.layout.path(m.layout.plain(r)), m.layout.path(m.layout.packed(r))
	_, noPlain := os.Lstat(plain)
	_, noPacked := os.Lstat(packed)
	for _, err := range []error{noPlain, noPacked} {
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("cannot inspect a segment: %w", err)
		}
	}
	if noPacked == nil {
		done, err := m.adopt(ctx, r, packed)
		switch {
		case err != nil:
			return err
		case done:
			return m.dropPlain(r)
		case noPlain != nil:
			return nil
		}
	}
	if noPlain != nil {
		return m.rebuild(ctx, r)
	}
	return m.compress(ctx, r, plain, packed)
}

// adopt lists a correct compressed segment, and sets a wrong one aside.
func (m *Mirror) adopt(ctx context.Context, r span, packed string) (bool, error) {
	s, err := m.inspect(ctx, r, packed, true)
	var bad *unsound
	switch {
	case errors.As(err, &bad):
		m.fault("a compressed segment is not what it should be: %v", bad)
		_, err := m.setAside(packed, bad.cause)
		return false, err
	case err != nil:
		return false, err
	}
	return true, m.list(s)
}

// inspect reads a segment's file as a whole, and compares it with its name, the segment before it
// and the database.
func (m *Mirror) inspect(ctx context.Context, r span, path string, packed bool) (Segment, error) {
	s, err := examine(ctx, path, packed)
	if err != nil {
		return s, err
	}
	s.File = m.layout.packed(r)
	if s.span() != r {
		return s, &unsound{path, fmt.Errorf("it holds the records %d to %d", s.First, s.Last)}
	}
	m.mu.Lock()
	segments := m.segments
	m.mu.Unlock()
	for i := range segments {
		if p := &segments[i]; p.Last+1 == s.First && p.Hash != s.Prev {
			return s, &unsound{path, fmt.Errorf("it follows the hash %s, and record %d has %s", s.Prev, p.Last, p.Hash)}
		}
	}
	verdict, err := m.compare(ctx, &s)
	if verdict != nil {
		return s, &unsound{path, verdict}
	}
	return s, err
}

// list adds a segment to the manifest.
func (m *Mirror) list(s Segment) error {
	m.files.Lock()
	defer m.files.Unlock()
	list := insert(m.segments, s)
	if err := m.save(list); err != nil {
		return err
	}
	m.mu.Lock()
	m.segments = list
	m.mu.Unlock()
	return nil
}

// dropPlain removes the uncompressed file of a listed segment.
func (m *Mirror) dropPlain(r span) error {
	if err := os.Remove(m.layout.path(m.layout.plain(r))); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("cannot remove a segment that is compressed: %w", err)
	}
	m.o.step("plain segment removed")
	m.settled(r)
	return syncDir(m.layout.dir)
}

// compress makes the compressed file of a segment, reads it back and lists it.
func (m *Mirror) compress(ctx context.Context, r span, plain, packed string) error {
	if err := squeeze(ctx, plain, packed+temporaryExt); err != nil {
		return errors.Join(err, remove(packed+temporaryExt))
	}
	m.o.step("segment compressed")
	s, err := m.inspect(ctx, r, packed+temporaryExt, true)
	if bad, ok := errors.AsType[*unsound](err); ok {
		// Either the uncompressed file is wrong too, or the compressed one was not written
		// correctly.
		return errors.Join(remove(packed+temporaryExt), m.judge(ctx, r, plain, bad))
	}
	if err != nil {
		return errors.Join(err, remove(packed+temporaryExt))
	}
	m.o.step("segment verified")
	if err := os.Rename(packed+temporaryExt, packed); err != nil {
		return fmt.Errorf("cannot rename a compressed segment: %w", err)
	}
	m.o.step("compressed segment renamed")
	if err := syncDir(m.layout.dir); err != nil {
		return err
	}
	if err := m.list(s); err != nil {
		return err
	}
	m.log.Info("a segment of the audit mirror is complete", zap.String("file", s.File), zap.Uint64("first", s.First), zap.Uint64("last", s.Last),
		zap.Int64("bytes", s.Bytes), zap.Int64("compressed", s.PackedBytes))
	return m.dropPlain(r)
}

// judge checks an uncompressed segment whose compressed form is wrong.
func (m *Mirror) judge(ctx context.Context, r span, plain string, bad *unsound) error {
	_, err := m.inspect(ctx, r, plain, false)
	var worse *unsound
	switch {
	case err == nil:
		return fmt.Errorf("the compressed segment did not read back as it was written: %w", bad.cause)
	case !errors.As(err, &worse):
		return err
	}
	m.fault("a segment is not what was written: %v; it is written again from the database", worse)
	_, err = m.setAside(plain, worse.cause)
	return err
}

// createNew makes a file, in place of one that a crash may have left.
func createNew(path string) (*os.File, error) {
	if err := remove(path); err != nil {
		return nil, err
	}
	return os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
}

// squeeze compresses a file into another and syncs it.
func squeeze(ctx context.Context, from, to string) (err error) {
	in, err := os.Open(from)
	if err != nil {
		return fmt.Errorf("cannot compress a segment: %w", err)
	}
	defer in.Close()
	out, err := createNew(to)
	if err != nil {
		return fmt.Errorf("cannot compress a segment: %w", err)
	}
	defer func() {
		if err = errors.Join(err, out.Close()); err != nil {
			err = fmt.Errorf("cannot compress a segment: %w", err)
		}
	}()
	encoder, err := zstd.NewWriter(out, zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(packWindow), zstd.WithLowerEncoderMem(true))
	if err != nil {
		return err
	}
	if _, err := io.Copy(encoder, &interruptible{in, ctx}); err != nil {
		return errors.Join(err, encoder.Close())
	}
	if err := encoder.Close(); err != nil {
		return err
	}
	return out.Sync()
}

// packWindow is the window of the compression, in bytes.
const packWindow = 1 << 20

// interruptible ends with its context.
type interruptible struct {
	from io.Reader
	ctx  context.Context
}

func (i *interruptible) Read(p []byte) (int, error) {
	if err := i.ctx.Err(); err != nil {
		return 0, err
	}
	return i.from.Read(p)
}

func remove(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("cannot remove an unfinished file: %w", err)
	}
	return nil
}

// rebuild writes a missing segment from the database, up to the size of one segment.
func (m *Mirror) rebuild(ctx context.Context, r span) error {
	unfinished := m.layout.path(m.layout.plain(r)) + temporaryExt
	last, err := m.export(ctx, r, unfinished)
	if err != nil {
		return errors.Join(err, remove(unfinished))
	}
	if last < r.first {
		m.fault("the segment of the records %d to %d is missing, and the database does not have them", r.first, r.last)
		m.settled(r)
		return remove(unfinished)
	}
	m.fault("the segment of the records %d to %d was missing, and is written from the database", r.first, last)
	m.o.step("segment rebuilt")
	whole := span{r.first, last}
	plain := m.layout.path(m.layout.plain(whole))
	if err := rename(unfinished, plain); err != nil {
		return fmt.Errorf("cannot name a segment: %w", err)
	}
	m.o.step("rebuilt segment named")
	s, err := m.inspect(ctx, whole, plain, false)
	if bad, ok := errors.AsType[*unsound](err); ok {
		// Writing it again would not help: the database itself is damaged.
		m.fault("records of the database do not hold together: %v", bad)
		m.settled(r)
		return nil
	}
	if err != nil {
		return err
	}
	if s.Last < r.last {
		m.settled(r, whole, span{s.Last + 1, r.last})
	}
	return syncDir(filepath.Dir(plain))
}

// export writes records into a file, from the first of a span to its last or up to the size of one
// segment, and returns the last.
func (m *Mirror) export(ctx context.Context, r span, path string) (last uint64, err error) {
	f, err := createNew(path)
	if err != nil {
		return 0, fmt.Errorf("cannot write a segment: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	last = r.first - 1
	var size int64
	var text []byte
	for whole := false; last < r.last && !whole; {
		lines, upTo, err := m.o.Source.LinesAfter(ctx, last)
		if err != nil {
			return 0, err
		}
		if len(lines) == 0 || upTo+1-uint64(len(lines)) != last+1 {
			break
		}
		text = text[:0]
		for _, line := range lines {
			length := int64(len(line)) + 1
			if whole = last == r.last || size > 0 && m.o.RotateBytes > 0 && size+length > m.o.RotateBytes; whole {
				break
			}
			text = append(append(text, line...), '\n')
			size += length
			last++
		}
		if _, err := f.Write(text); err != nil {
			return 0, fmt.Errorf("cannot write a segment: %w", err)
		}
	}
	if err := f.Sync(); err != nil {
		return 0, fmt.Errorf("cannot write a segment: %w", err)
	}
	return last, nil
}
