package retention

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/evidence/checkpoints"
	"github.com/openclawos/ocipd/internal/evidence/index"
	"github.com/openclawos/ocipd/internal/evidence/keyring"
	"github.com/openclawos/ocipd/internal/evidence/mirror"
	"github.com/openclawos/ocipd/internal/store"
	"github.com/openclawos/ocipd/internal/store/logstore"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"golang.org/x/mod/sumdb/note"
)

var began = time.Date(2026, 3, 13, 10, 0, 0, 0, time.UTC)

// minutes returns the moment that many minutes after the log began.
func minutes(n int) time.Time { return began.Add(time.Duration(n) * time.Minute) }

// fixture is a log with a record a minute, mirrored in segments of a few records, and indexed.
type fixture struct {
	t *testing.T
	Options
	index    string
	now      atomic.Int64
	keep     atomic.Int64
	followed atomic.Uint64
}

func newFixture(t *testing.T, records int) *fixture {
	t.Helper()
	dir := t.TempDir()
	database := filepath.Join(dir, "ocipd.db")
	f := &fixture{t: t, index: index.Path(database)}
	f.now.Store(began.UnixNano())
	clock := func() time.Time { return time.Unix(0, f.now.Load()).UTC() }
	var ids atomic.Int64
	s, err := store.Open(t.Context(), store.Options{Path: database, Clock: clock, Log: zap.NewNop(), Signing: &logstore.Signing{
		NewID: func() string { return fmt.Sprint("id-", ids.Add(1)) },
		Every: time.Hour,
		Open: func(name, inForce string) (note.Signer, string, error) {
			signer, err := keyring.OpenSigner(filepath.Join(dir, "keys"), name, rand.Reader)
			if err != nil {
				return nil, "", err
			}
			return signer.Note(), signer.Verifier(), signer.Settle(inForce)
		},
	}})
	if err != nil {
		t.Fatal(err)
	}
	mirrored := filepath.Join(dir, "mirror", "audit.jsonl")
	m, err := mirror.Open(t.Context(), mirror.Options{Path: mirrored, Source: s, Database: database, Clock: clock, Log: zap.NewNop(), RotateBytes: 2000})
	if err != nil {
		t.Fatal(err)
	}
	x := index.Open(t.Context(), index.Options{Path: f.index, Log: s, Now: clock, Logger: zap.NewNop()})
	t.Cleanup(func() {
		if err := errors.Join(x.Close(), m.Close(t.Context()), s.Close()); err != nil {
			t.Error(err)
		}
	})
	f.Options = Options{
		Store: s, Mirror: m, Index: x, Dir: filepath.Dir(mirrored), Now: clock, Log: zap.NewNop(),
		Removes: func(uint64) error { return nil }, Followed: f.followed.Load, Keep: func() time.Duration { return time.Duration(f.keep.Load()) },
	}
	for i := range records {
		f.now.Store(minutes(i).UnixNano())
		_, err := s.Commit(&store.Change{Records: []*audit.Record{{
			ID: fmt.Sprint("r", i+1), ActionType: audit.ActionSecurity, PolicyReason: reason(i+1) + strings.Repeat(" x", 100),
		}}})
		if err != nil {
			t.Fatal(err)
		}
	}
	f.followed.Store(s.Head().Seq)
	f.eventually("the segments", func() bool {
		return len(m.Segments()) >= 4 && m.Mirrored() == s.Head().Seq && x.Indexed() == s.Head().Seq
	})
	return f
}

// reason returns the unique reason of one record.
func reason(record int) string { return fmt.Sprintf("because of %04d", record) }

// holds reports whether the index's files contain a text.
func (f *fixture) holds(text string) bool {
	f.t.Helper()
	files, err := filepath.Glob(f.index + "*")
	if err != nil || len(files) == 0 {
		f.t.Fatal(files, err)
	}
	for _, name := range files {
		content, err := os.ReadFile(name)
		if err != nil {
			f.t.Fatal(err)
		}
		if bytes.Contains(content, []byte(text)) {
			return true
		}
	}
	return false
}

func (f *fixture) eventually(what string, ready func() bool) {
	f.t.Helper()
	tick, limit := time.NewTicker(time.Millisecond), time.NewTimer(20*time.Second)
	defer tick.Stop()
	defer limit.Stop()
	for !ready() {
		select {
		case <-tick.C:
		case <-limit.C:
			f.t.Fatalf("%s: not in time", what)
		}
	}
}

func (f *fixture) start() *Keeper {
	f.t.Helper()
	k := Start(f.t.Context(), f.Options)
	f.t.Cleanup(func() {
		if err := k.Close(); err != nil {
			f.t.Error(err)
		}
	})
	return k
}

// inForce returns the segments that are not retired.
func (f *fixture) inForce() (list []mirror.Segment) {
	for _, s := range f.Mirror.Segments() {
		if !s.Retired {
			list = append(list, s)
		}
	}
	return list
}

// wantGone compares everything that follows the log with the retired records.
func (f *fixture) wantGone(upTo uint64) {
	f.t.Helper()
	if got := f.Store.Retired(); got != upTo {
		f.t.Errorf("retired up to record %d, want %d", got, upTo)
	}
	first, err := f.Store.FirstSeq(f.t.Context())
	if err != nil || first != upTo+1 {
		f.t.Errorf("the database begins at record %d, %v", first, err)
	}
	if list := f.inForce(); len(list) == 0 || list[0].First != upTo+1 {
		f.t.Errorf("the mirror's segments are %+v", list)
	}
	signed, err := os.ReadFile(filepath.Join(f.Dir, checkpoints.TombstoneFile))
	if tomb, openErr := audit.OpenTombstone(string(signed)); err != nil || !errors.Is(openErr, audit.ErrUnsigned) || tomb.Head.Seq != upTo {
		f.t.Errorf("the tombstone beside the mirror: %+v, %v, %v", tomb, err, openErr)
	}
	if _, err := f.Store.Verify(f.t.Context(), audit.Proof{}); err != nil {
		f.t.Errorf("the log: %v", err)
	}
	f.eventually("the index", func() bool { return !f.holds(reason(1)) })
	if !f.holds(reason(int(upTo) + 1)) {
		f.t.Error("the index lacks a record that is kept")
	}
}

func retire(f *fixture, k *Keeper, before time.Time) (api.AuditRetireResult, error) {
	return k.Retire(f.t.Context(), nil, &api.AuditRetireParams{Before: before})
}

// Retire removes whole segments that are older than the requested time, everywhere, and keeps the
// rest.
func TestRetire(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 40)
	k := f.start()
	list := f.Mirror.Segments()
	// The last record of the second segment is as old as the limit.
	r, err := retire(f, k, list[1].LastTime)
	if err != nil || r.Retired != list[0].Last || r.Segments != 1 {
		t.Fatalf("retired: %+v, %v", r, err)
	}
	f.wantGone(list[0].Last)
	if r, err := retire(f, k, list[1].LastTime); err != nil || r.Retired != 0 {
		t.Errorf("again: %+v, %v", r, err)
	}
	if r, err := retire(f, k, list[1].LastTime.Add(time.Microsecond)); err != nil || r.Retired != list[1].Last {
		t.Errorf("the next one: %+v, %v", r, err)
	}
	f.wantGone(list[1].Last)
}

// Records that a follower of the log has not read yet are kept for it.
func TestFollowersComeFirst(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 40)
	k := f.start()
	list := f.Mirror.Segments()
	f.followed.Store(list[2].Last - 1)
	if r, err := retire(f, k, minutes(1000)); err != nil || r.Retired != list[1].Last {
		t.Errorf("retired: %+v, %v", r, err)
	}
	f.wantGone(list[1].Last)
	f.followed.Store(0)
	if r, err := retire(f, k, minutes(1000)); err != nil || r.Retired != 0 {
		t.Errorf("nobody has anything: %+v, %v", r, err)
	}
}

// A changed segment is not removed, and neither are its records.
func TestDamagedSegmentStays(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 40)
	k := f.start()
	list := f.Mirror.Segments()
	damaged := filepath.Join(f.Dir, list[1].File)
	if err := os.Truncate(damaged, list[1].PackedBytes-1); err != nil {
		t.Fatal(err)
	}
	_, err := retire(f, k, minutes(1000))
	if err == nil || !strings.Contains(err.Error(), list[1].File) {
		t.Errorf("it says %v", err)
	}
	f.wantGone(list[0].Last)
	if _, err := os.Stat(damaged); err != nil {
		t.Error(err)
	}
}

// The next start finishes a removal that was interrupted between the database and its followers.
func TestBrokenOffRemovalIsFinished(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 40)
	list := f.Mirror.Segments()
	if err := f.Store.Sign(); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Store.Retire(t.Context(), list[1].Last); err != nil {
		t.Fatal(err)
	}
	f.start()
	f.eventually("the mirror", func() bool { return f.inForce()[0].First == list[2].First })
	f.wantGone(list[1].Last)
}

// blockTombstone puts a folder in the tombstone's place, and returns it.
func (f *fixture) blockTombstone() string {
	f.t.Helper()
	inTheWay := filepath.Join(f.Dir, checkpoints.TombstoneFile)
	if err := os.MkdirAll(filepath.Join(inTheWay, "x"), 0o700); err != nil {
		f.t.Fatal(err)
	}
	return inTheWay
}

// If the tombstone cannot be written, the segments stay, and the next start continues.
func TestNoPlaceForTheTombstone(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 40)
	list := f.Mirror.Segments()
	inTheWay := f.blockTombstone()
	k := Start(t.Context(), f.Options)
	if _, err := retire(f, k, list[2].FirstTime); err == nil || !strings.Contains(err.Error(), "cannot write the tombstone") {
		t.Errorf("it says %v", err)
	}
	if err := k.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(f.Dir, list[0].File)); err != nil {
		t.Errorf("the segment: %v", err)
	}
	retired := f.Store.Retired()
	if retired == 0 {
		t.Error("nothing is retired")
	}
	if err := os.RemoveAll(inTheWay); err != nil {
		t.Fatal(err)
	}
	f.start()
	f.eventually("the mirror", func() bool { return f.inForce()[0].First == retired+1 })
	f.wantGone(retired)
}

// A removal that failed after the database is tried again, and not only at the next start.
func TestFailedRemovalIsTriedAgain(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 40)
	list := f.Mirror.Segments()
	inTheWay := f.blockTombstone()
	k := f.start()
	if _, err := retire(f, k, list[2].FirstTime); err == nil {
		t.Error("it has not failed")
	}
	if err := os.RemoveAll(inTheWay); err != nil {
		t.Fatal(err)
	}
	k.Look()
	f.eventually("the mirror", func() bool { return f.inForce()[0].First == f.Store.Retired()+1 })
	f.wantGone(f.Store.Retired())
}

// The keeper removes expired records by itself, and looks again when the period changes.
func TestKeep(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 40)
	list := f.Mirror.Segments()
	k := f.start()
	k.Look()
	f.now.Store(minutes(100).UnixNano())
	f.keep.Store(int64(minutes(100).Sub(list[2].LastTime)))
	k.Look()
	f.eventually("the removal", func() bool { return f.inForce()[0].First == list[2].First })
	f.wantGone(list[1].Last)
}

// A period below the advised one causes one warning, and another one when it changes.
func TestShortKeepIsWarnedOf(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 40)
	core, logged := observer.New(zap.WarnLevel)
	f.Log, f.Advised = zap.New(core), 48*time.Hour
	k := f.start()
	warned := func(n int) {
		t.Helper()
		f.eventually("the warning", func() bool { return logged.Len() == n })
	}
	for i, keep := range []time.Duration{24 * time.Hour, 24 * time.Hour, 47 * time.Hour, 48 * time.Hour, 0} {
		f.keep.Store(int64(keep))
		k.Look()
		warned(min(1+(i+1)/3, 2))
	}
	if got := logged.All()[0]; !strings.Contains(got.Message, "audit.keep") || got.ContextMap()["keep"] != 24*time.Hour {
		t.Errorf("said is %q of %v", got.Message, got.ContextMap())
	}
}
