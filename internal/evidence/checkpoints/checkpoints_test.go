package checkpoints

import (
	"crypto/rand"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/openclawos/ocipd/internal/audit"
	"go.uber.org/zap"
	"golang.org/x/mod/sumdb/note"
)

const logName = "ocipd/018f0000-0000-7000-8000-00000000abcd"

// notes are signed checkpoints of logs of these sizes.
func notes(tb testing.TB, sizes ...uint64) (signed []string) {
	tb.Helper()
	secret, _, err := note.GenerateKey(rand.Reader, logName)
	if err != nil {
		tb.Fatal(err)
	}
	signer, err := note.NewSigner(secret)
	if err != nil {
		tb.Fatal(err)
	}
	for _, size := range sizes {
		c := audit.Checkpoint{Origin: logName, Size: size, Root: audit.Hash{byte(size)}}
		text, err := c.Sign(signer)
		if err != nil {
			tb.Fatal(err)
		}
		signed = append(signed, text)
	}
	return signed
}

func open(tb testing.TB, path string, journal func(Entry, *audit.Checkpoint) error) *File {
	tb.Helper()
	w, err := Open(Options{Path: path, Journal: journal, Clock: time.Now, Log: zap.NewNop()})
	if err != nil {
		tb.Fatal(err)
	}
	return w
}

func TestKeep(t *testing.T) {
	path := filepath.Join(t.TempDir(), "deep", "checkpoints.jsonl")
	var told []uint64
	w := open(t, path, func(_ Entry, c *audit.Checkpoint) error {
		told = append(told, c.Size)
		return errors.New("no journal can stop it")
	})
	if w.Newest().Size != 0 {
		t.Errorf("of nothing there is a checkpoint of %d records", w.Newest().Size)
	}
	all := notes(t, 3, 7, 9)
	// A checkpoint that does not cover more records is skipped.
	for _, signed := range []string{"", all[0], all[1], all[0], all[1]} {
		if err := w.Keep(signed); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Keep("nonsense"); err == nil {
		t.Error("nonsense is kept")
	}
	if got, err := Read(path); err != nil || !slices.Equal(got, all[:2]) {
		t.Errorf("kept %q, %v", got, err)
	}
	if !slices.Equal(told, []uint64{3, 7}) {
		t.Errorf("the journal was told of %v", told)
	}
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	w = open(t, path, nil)
	if newest := w.Newest(); newest.Size != 7 || newest.Root != (audit.Hash{7}) {
		t.Errorf("taken up at %+v", newest)
	}
	// A new file is made after the old one was moved away.
	if err := os.Rename(path, path+".1"); err != nil {
		t.Fatal(err)
	}
	if err := w.Keep(all[2]); err != nil {
		t.Fatal(err)
	}
	if got, err := Read(path); err != nil || !slices.Equal(got, all[2:]) {
		t.Errorf("kept %q, %v", got, err)
	}
}

// TestTornLine truncates the file at every byte of its last line: whole lines stay, and the next
// line begins at the right place.
func TestTornLine(t *testing.T) {
	all := notes(t, 3, 7, 9)
	dir := t.TempDir()
	path := filepath.Join(dir, "checkpoints.jsonl")
	w := open(t, path, nil)
	for _, signed := range all[:2] {
		if err := w.Keep(signed); err != nil {
			t.Fatal(err)
		}
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	first := strings.IndexByte(string(whole), '\n') + 1
	for cut := first; cut < len(whole); cut++ {
		if err := os.WriteFile(path, whole[:cut], 0o600); err != nil {
			t.Fatal(err)
		}
		w := open(t, path, nil)
		if w.Newest().Size != 3 {
			t.Fatalf("cut at %d: the newest is of %d records", cut, w.Newest().Size)
		}
		if err := w.Keep(all[2]); err != nil {
			t.Fatal(err)
		}
		if got, err := Read(path); err != nil || !slices.Equal(got, []string{all[0], all[2]}) {
			t.Fatalf("cut at %d: %q, %v", cut, got, err)
		}
	}
}

func TestForeignFile(t *testing.T) {
	for name, text := range map[string]string{
		"prose": "what is this\n", "no note": `{"size":3}` + "\n", "a long line": strings.Repeat("x", 2*maxLine) + "\n",
	} {
		path := filepath.Join(t.TempDir(), "checkpoints.jsonl")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(Options{Path: path, Clock: time.Now, Log: zap.NewNop()}); err == nil || !strings.Contains(err.Error(), "line 1") {
			t.Errorf("%s: %v", name, err)
		}
		if left, err := os.ReadFile(path); err != nil || string(left) != text {
			t.Errorf("%s: the file was changed", name)
		}
	}
}

func TestWriteTombstone(t *testing.T) {
	dir := t.TempDir()
	for _, text := range []string{"first", "second"} {
		if err := WriteTombstone(dir, &audit.Tombstone{Signed: text}); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(filepath.Join(dir, TombstoneFile)); err != nil || string(got) != text {
			t.Errorf("%q, %v", got, err)
		}
	}
	if err := WriteTombstone(filepath.Join(dir, "nowhere"), &audit.Tombstone{}); err == nil {
		t.Error("written nowhere")
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte("{}\n"))
	dir := f.TempDir()
	path := filepath.Join(dir, "checkpoints.jsonl")
	w := open(f, path, nil)
	for _, signed := range notes(f, 3, 7) {
		if err := w.Keep(signed); err != nil {
			f.Fatal(err)
		}
	}
	text, err := os.ReadFile(path)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Fuzz(func(t *testing.T, text []byte) {
		found := 0
		whole, err := read(strings.NewReader(string(text)), func(Entry, *audit.Checkpoint) error { found++; return nil })
		if err == nil && (whole > int64(len(text)) || whole > 0 && text[whole-1] != '\n' || found > strings.Count(string(text), "\n")) {
			t.Errorf("%d checkpoints in %d of %d bytes", found, whole, len(text))
		}
	})
}

// An incomplete line after a crash is removed; a line that never was a checkpoint is not.
func TestKeepsWhatIsNoCheckpoint(t *testing.T) {
	for _, tc := range []struct {
		name, text string
		refused    bool
	}{
		{"the beginning of a line", `{"time":"2026-01-01T`, false},
		{"zeros in a line's place", "\x00\x00\x00\x00", false},
		{"one line of somebody's", "precious", true},
		{"several", "precious\nwords\n", true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "checkpoints.jsonl")
			if err := os.WriteFile(path, []byte(tc.text), 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := Open(Options{Path: path, Clock: time.Now, Log: zap.NewNop()})
			if (err != nil) != tc.refused {
				t.Errorf("got %v", err)
			}
			want := ""
			if tc.refused {
				want = tc.text
			}
			if got, err := os.ReadFile(path); err != nil || string(got) != want {
				t.Errorf("the file holds %q, %v, want %q", got, err, want)
			}
		})
	}
}
