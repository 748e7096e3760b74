package backup

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/base/peer"
	"github.com/openclawos/ocipd/internal/evidence/checkpoints"
	"github.com/openclawos/ocipd/internal/evidence/keyring"
	"github.com/openclawos/ocipd/internal/store"
	"github.com/openclawos/ocipd/internal/store/logstore"
	"go.uber.org/zap"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/sys/unix"
)

// state is the state of a daemon.
type state struct {
	Places
	t *testing.T
}

func newState(t *testing.T) *state {
	t.Helper()
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	return &state{t: t, Places: Places{
		Database: at("ocipd.db"), Checkpoints: at("audit-checkpoints.jsonl"), Keys: at("keys"), Mirror: at("audit.jsonl"),
		Socket: func() (string, error) { return at("nobody.sock"), nil },
	}}
}

func (s *state) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// open opens the database like a daemon, with its signing key.
func (s *state) open() (*store.Store, *keyring.Signer) {
	s.t.Helper()
	var signer *keyring.Signer
	ids := 0
	opened, err := store.Open(s.t.Context(), store.Options{Path: s.Database, Clock: time.Now, Log: zap.NewNop(), Signing: &logstore.Signing{
		NewID: func() string { ids++; return fmt.Sprint("id-", ids) },
		Open: func(name, inForce string) (note.Signer, string, error) {
			var err error
			if signer, err = keyring.OpenSigner(s.Keys, name, rand.Reader); err != nil {
				return nil, "", err
			}
			return signer.Note(), signer.Verifier(), signer.Settle(inForce)
		},
	}})
	s.must(err)
	return opened, signer
}

// run writes records and a checkpoint, which is also kept outside, and stops.
func (s *state) run(records int) {
	s.t.Helper()
	opened, signer := s.open()
	for i := range records {
		_, err := opened.Commit(&store.Change{Records: []*audit.Record{{ID: fmt.Sprint("r", i), ActionType: audit.ActionSecurity}}})
		s.must(err)
	}
	s.must(opened.Sign())
	outside, err := checkpoints.Open(checkpoints.Options{Path: s.Checkpoints, Clock: time.Now, Log: zap.NewNop()})
	s.must(err)
	s.must(errors.Join(outside.Keep(opened.Checkpoint().Note), signer.KeepNewest(opened.Checkpoint().Note)))
	digests, err := keyring.OpenDigests(s.Keys, rand.Reader, time.Now)
	s.must(err)
	s.must(errors.Join(digests.Prepare("acme"), opened.Close()))
	s.must(os.WriteFile(s.Mirror, []byte("mirrored\n"), 0o600))
}

// last returns the last record of the database.
func (s *state) last() uint64 {
	s.t.Helper()
	r, err := store.OpenReader(s.t.Context(), s.Database)
	s.must(err)
	last, err := r.LastSeq(s.t.Context())
	s.must(errors.Join(err, r.Close()))
	return last
}

// names returns the files below a directory.
func names(t *testing.T, dir string) (found []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			name, _ := filepath.Rel(dir, path)
			found = append(found, name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(found)
	return found
}

func content(t *testing.T, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestMake(t *testing.T) {
	s := newState(t)
	s.run(5)
	signing := []string{"keys/checkpoint.key"}
	outside := []string{"audit-checkpoints.jsonl", "keys/checkpoint.newest"}
	all := []string{"audit-checkpoints.jsonl", "keys/checkpoint.key", "keys/checkpoint.newest", "keys/checkpoint.pub", "keys/digest.json", "ocipd.db"}
	for name, tc := range map[string]struct {
		without Without
		lacks   []string
		made    Contents
	}{
		"everything":              {made: Contents{Records: 6, Witnessed: 5, SigningKey: true, DigestKeys: true}},
		"without the signing key": {Without{SigningKey: true}, signing, Contents{Records: 6, Witnessed: 5, DigestKeys: true}},
		"without digest keys":     {Without{DigestKeys: true}, []string{"keys/digest.json"}, Contents{Records: 6, Witnessed: 5, SigningKey: true}},
		"without checkpoints":     {Without{Checkpoints: true}, outside, Contents{Records: 6, SigningKey: true, DigestKeys: true}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "below", "backup")
			made, err := Make(t.Context(), s.Places, dir, tc.without)
			if err != nil {
				t.Fatal(err)
			}
			if tc.made.Bytes = made.Bytes; made != tc.made || made.Bytes == 0 {
				t.Errorf("made %+v, want %+v", made, tc.made)
			}
			want := slices.DeleteFunc(slices.Clone(all), func(name string) bool { return slices.Contains(tc.lacks, name) })
			if got := names(t, dir); !slices.Equal(got, want) {
				t.Errorf("it has %q, want %q", got, want)
			}
			if info, err := os.Stat(filepath.Join(dir, "ocipd.db")); err != nil || info.Mode().Perm() != 0o600 {
				t.Errorf("others may read it: %v, %v", info.Mode(), err)
			}
		})
	}
}

// An incomplete backup leaves nothing behind.
func TestMakeIsWholeOrNotAtAll(t *testing.T) {
	for name, tc := range map[string]struct {
		spoil func(s *state, dir string) error
		says  string
	}{
		"the directory is not empty": {func(_ *state, dir string) error {
			return errors.Join(os.MkdirAll(dir, 0o700), os.WriteFile(filepath.Join(dir, "mine"), nil, 0o600))
		}, "is not empty"},
		"there is no database": {func(s *state, _ string) error { return os.Remove(s.Database) }, "there is no database at "},
		"the database is cut":  {func(s *state, _ string) error { return os.Truncate(s.Database, 3*4096+17) }, "cannot"},
		"the log lacks what a checkpoint is of": {func(s *state, _ string) error {
			before := content(s.t, s.Database)
			s.run(3)
			return os.WriteFile(s.Database, before, 0o600)
		}, "the log in"},
		"a pipe has the name of the checkpoints": {func(s *state, _ string) error {
			return errors.Join(os.Remove(s.Checkpoints), unix.Mkfifo(s.Checkpoints, 0o600))
		}, "it is no file"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newState(t)
			s.run(2)
			parent := t.TempDir()
			dir := filepath.Join(parent, "backup")
			if err := tc.spoil(s, dir); err != nil {
				t.Fatal(err)
			}
			before := names(t, parent)
			if made, err := Make(t.Context(), s.Places, dir, Without{}); err == nil || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("made %+v, %v", made, err)
			}
			if left := names(t, parent); !slices.Equal(left, before) {
				t.Errorf("it leaves %q", left)
			}
		})
	}
}

func TestRestore(t *testing.T) {
	s := newState(t)
	s.run(5)
	dir := filepath.Join(t.TempDir(), "backup")
	_, err := Make(t.Context(), s.Places, dir, Without{})
	s.must(err)
	s.must(os.WriteFile(s.Database, []byte("damaged"), 0o600))
	s.must(os.WriteFile(s.Database+".latched", []byte("damaged"), 0o600))
	now := time.Date(2026, 3, 13, 10, 0, 0, 0, time.UTC)
	done, err := Restore(t.Context(), s.Places, dir, false, now)
	if err != nil {
		t.Fatal(err)
	}
	if done.Records != 6 || done.Lost != 0 || !done.Kept || done.Aside != "before-restore-20260313T100000Z" {
		t.Errorf("done: %+v", done)
	}
	if got := string(content(t, filepath.Join(filepath.Dir(s.Database), done.Aside, "ocipd.db"))); got != "damaged" {
		t.Errorf("aside is %q", got)
	}
	aside := names(t, filepath.Join(filepath.Dir(s.Database), done.Aside))
	if !slices.Equal(aside, []string{"audit.jsonl", "ocipd.db", "ocipd.db.latched"}) {
		t.Errorf("aside are %q", aside)
	}
	if m, err := Marked(s.Database); err != nil || m == nil || !restoredHere(m) || !reflect.DeepEqual(*m, Mark{At: now, Records: 6, Witnessed: 6}) {
		t.Errorf("marked: %+v, %v", m, err)
	}
	s.run(1)
	if last := s.last(); last != 8 {
		t.Errorf("it goes on to record %d, want 8", last)
	}
}

// A backup beside the mirror, with a name that begins like its files, stays there. The names of
// directories make no difference.
func TestRestoreFromBesideTheMirror(t *testing.T) {
	t.Parallel()
	s := newState(t)
	s.Mirror = filepath.Join(t.TempDir(), "logs[1]", "audit.jsonl")
	s.must(os.MkdirAll(filepath.Dir(s.Mirror), 0o700))
	s.run(5)
	dir := filepath.Join(filepath.Dir(s.Mirror), "audit-monday")
	_, err := Make(t.Context(), s.Places, dir, Without{})
	s.must(err)
	for _, name := range []string{"audit-000000000001-000000000002.jsonl.zst", "audit-manifest.jsonl", "audit.jsonl.foreign-1", "audits.txt"} {
		s.must(os.WriteFile(filepath.Join(filepath.Dir(s.Mirror), name), nil, 0o600))
	}
	done, err := Restore(t.Context(), s.Places, dir, false, time.Now())
	if err != nil || done.Records != 6 {
		t.Fatalf("done: %+v, %v", done, err)
	}
	aside := names(t, filepath.Join(filepath.Dir(s.Mirror), done.Aside))
	if want := []string{"audit-000000000001-000000000002.jsonl.zst", "audit-manifest.jsonl", "audit.jsonl", "audit.jsonl.foreign-1"}; !slices.Equal(aside, want) {
		t.Errorf("aside are %q, want %q", aside, want)
	}
}

// An empty machine gets everything, including keys.
func TestRestoreOnAnEmptyMachine(t *testing.T) {
	s, other := newState(t), newState(t)
	s.run(5)
	// The present key of rows belongs to other rows.
	s.must(os.MkdirAll(other.Keys, 0o700))
	s.must(errors.Join(os.WriteFile(filepath.Join(s.Keys, "rows.json"), []byte("its"), 0o600), os.WriteFile(filepath.Join(other.Keys, "rows.json"), []byte("other"), 0o600)))
	dir := filepath.Join(t.TempDir(), "backup")
	_, err := Make(t.Context(), s.Places, dir, Without{})
	s.must(err)
	done, err := Restore(t.Context(), other.Places, dir, false, time.Now())
	if err != nil || done.Kept || !done.SigningKey {
		t.Fatalf("done: %+v, %v", done, err)
	}
	if got := string(content(t, filepath.Join(other.Keys, done.Aside, "rows.json"))); got != "other" {
		t.Errorf("aside is %q", got)
	}
	for _, name := range []string{"checkpoint.key", "digest.json", "rows.json"} {
		if !bytes.Equal(content(t, filepath.Join(s.Keys, name)), content(t, filepath.Join(other.Keys, name))) {
			t.Errorf("%s is another one", name)
		}
	}
	other.run(1)
	if last := other.last(); last != 8 {
		t.Errorf("it goes on to record %d, want 8", last)
	}
}

// The key of rows in a backup without the signing key is not used: anybody who can write the backup
// could have sealed its rows with it. The daemon's own key stays.
func TestRestoreTakesNoForeignRowKey(t *testing.T) {
	for name, own := range map[string]string{"own key": "its", "no key": ""} {
		t.Run(name, func(t *testing.T) {
			s := newState(t)
			s.run(5)
			dir := filepath.Join(t.TempDir(), "backup")
			_, err := Make(t.Context(), s.Places, dir, Without{SigningKey: true})
			s.must(err)
			rows := filepath.Join(s.Keys, "rows.json")
			if s.must(os.WriteFile(rows, []byte(own), 0o600)); own == "" {
				s.must(os.Remove(rows))
			}
			planted := filepath.Join(t.TempDir(), "planted")
			_, err = keyring.OpenSigner(planted, "ocipd/id-1", rand.Reader)
			s.must(err)
			s.must(errors.Join(os.WriteFile(filepath.Join(dir, "keys", "rows.json"), []byte("planted"), 0o600), os.WriteFile(filepath.Join(dir, "keys", "checkpoint.key"), content(t, filepath.Join(planted, "checkpoint.key")), 0o600)))
			done, err := Restore(t.Context(), s.Places, dir, false, time.Now())
			if err != nil || !done.Kept || done.SigningKey || !done.RowKeyLeft {
				t.Fatalf("done: %+v, %v", done, err)
			}
			if got, _ := os.ReadFile(rows); string(got) != own {
				t.Errorf("the key of rows is %q", got)
			}
		})
	}
}

// A backup that is older than the witnessed checkpoints is restored only on purpose, and marked for
// the next start.
func TestRestoreOfAnOlderState(t *testing.T) {
	s := newState(t)
	s.run(5)
	dir := filepath.Join(t.TempDir(), "backup")
	_, err := Make(t.Context(), s.Places, dir, Without{})
	s.must(err)
	s.run(4)
	before := content(t, s.Database)
	_, err = Restore(t.Context(), s.Places, dir, false, time.Now())
	if older, ok := errors.AsType[*OlderError](err); !ok || *older != (OlderError{Has: 6, Witnessed: 10}) {
		t.Fatalf("it says %v", err)
	}
	if !bytes.Equal(content(t, s.Database), before) {
		t.Error("a refused restoration changed the database")
	}
	now := time.Date(2026, 3, 13, 10, 0, 0, 0, time.UTC)
	done, err := Restore(t.Context(), s.Places, dir, true, now)
	if err != nil || done.Lost != 4 {
		t.Fatalf("done: %+v, %v", done, err)
	}
	if m, err := Marked(s.Database); err != nil || m == nil || !restoredHere(m) || !reflect.DeepEqual(*m, Mark{At: now, Records: 6, Witnessed: 10, Known: true}) {
		t.Errorf("marked: %+v, %v", m, err)
	}
	// The checkpoints of the newer log are aside, so that a start does not miss its records.
	s.run(1)
	s.must(os.WriteFile(MarkPath(s.Database), []byte("{"), 0o600))
	if m, err := Marked(s.Database); err == nil || !strings.Contains(err.Error(), "remove it to start without") {
		t.Errorf("a damaged mark: %+v, %v", m, err)
	}
}

// If a restoration is refused, the present state is not moved.
func TestRestoreRefuses(t *testing.T) {
	for name, tc := range map[string]struct {
		spoil func(s *state, dir string) error
		says  string
	}{
		"a damaged backup": {func(_ *state, dir string) error { return os.Truncate(filepath.Join(dir, "ocipd.db"), 3*4096+17) }, "cannot"},
		"no backup":        {func(_ *state, dir string) error { return os.RemoveAll(dir) }, "it is no backup"},
		"a log without key": {func(s *state, dir string) error {
			return errors.Join(os.RemoveAll(s.Keys), os.Remove(filepath.Join(dir, "keys", "checkpoint.key")))
		}, "neither the backup nor"},
		"a public key that is not the log's": {func(_ *state, dir string) error {
			other, err := keyring.OpenSigner(filepath.Join(dir, "other"), "ocipd/other", rand.Reader)
			return errors.Join(err, os.WriteFile(filepath.Join(dir, "keys", "checkpoint.pub"), []byte(other.Verifier()+"\n"), 0o644))
		}, "another signing key"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newState(t)
			s.run(2)
			dir := filepath.Join(t.TempDir(), "backup")
			_, err := Make(t.Context(), s.Places, dir, Without{})
			s.must(err)
			s.must(tc.spoil(s, dir))
			before := names(t, filepath.Dir(s.Database))
			if done, err := Restore(t.Context(), s.Places, dir, true, time.Now()); err == nil || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("done %+v, %v", done, err)
			}
			if left := names(t, filepath.Dir(s.Database)); !slices.Equal(left, before) {
				t.Errorf("there is %q, there was %q", left, before)
			}
		})
	}
}

func TestRestoreBesideADaemon(t *testing.T) {
	s := newState(t)
	s.run(2)
	dir := filepath.Join(t.TempDir(), "backup")
	_, err := Make(t.Context(), s.Places, dir, Without{})
	s.must(err)
	running, _ := s.open()
	if _, err := Restore(t.Context(), s.Places, dir, true, time.Now()); err == nil || !strings.Contains(err.Error(), "the daemon is running") {
		t.Errorf("it says %v", err)
	}
	s.must(running.Close())
}

// An interrupted restoration leaves no database with which a start would continue, and the whole
// earlier state in a directory that the error names.
func TestRestoreIsBrokenOff(t *testing.T) {
	s := newState(t)
	s.run(5)
	dir := filepath.Join(t.TempDir(), "backup")
	_, err := Make(t.Context(), s.Places, dir, Without{})
	s.must(err)
	before := content(t, s.Database)
	inTheWay := s.Database + ".restoring"
	s.must(os.MkdirAll(filepath.Join(inTheWay, "x"), 0o700))
	now := time.Date(2026, 3, 13, 10, 0, 0, 0, time.UTC)
	_, err = Restore(t.Context(), s.Places, dir, false, now)
	if err == nil || !strings.Contains(err.Error(), "what was there is in the directories before-restore-20260313T100000Z") {
		t.Fatalf("it says %v", err)
	}
	if _, err := os.Stat(s.Database); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("there is a database: %v", err)
	}
	if !bytes.Equal(content(t, filepath.Join(filepath.Dir(s.Database), "before-restore-20260313T100000Z", "ocipd.db")), before) {
		t.Error("what was there is not aside")
	}
	s.must(os.RemoveAll(inTheWay))
	if done, err := Restore(t.Context(), s.Places, dir, false, now.Add(time.Second)); err != nil || done.Records != 6 {
		t.Errorf("again: %+v, %v", done, err)
	}
}

// restoredHere reports whether a mark names the process that started this test as the one from which
// somebody restored the state, and takes such processes out of it.
func restoredHere(m *Mark) bool {
	parent, err := peer.NameOf(os.Getppid())
	here := err == nil && slices.ContainsFunc(m.Processes, func(p store.AppProcess) bool { return p.Name == parent && p.App == store.RestoringSession })
	m.Processes = slices.DeleteFunc(m.Processes, func(p store.AppProcess) bool { return p.App == store.RestoringSession })
	if len(m.Processes) == 0 {
		m.Processes = nil
	}
	return here
}
