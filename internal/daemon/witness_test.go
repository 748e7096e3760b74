package daemon_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/evidence/witness"
)

// A daemon shows its witnesses every checkpoint, also after a change of its key, and does
// not start on a log of which one has seen more.
func TestWitnessKeepsAnOlderLogClosed(t *testing.T) {
	h := build(t, acme)
	text, err := os.ReadFile(h.path("state/keys/checkpoint.pub"))
	if err != nil {
		t.Fatal(err)
	}
	first := strings.TrimSpace(string(text))
	ctx, stop := context.WithCancel(t.Context())
	w, err := witness.Open(t.TempDir(), "other.example", time.Now, first)
	if err != nil {
		t.Fatal(err)
	}
	at, ready, done := "unix:"+h.path("run/witness.sock"), make(chan string, 1), make(chan error, 1)
	go func() { done <- w.Serve(ctx, at, func(address string) { ready <- address }) }()
	<-ready
	defer func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	p, err := witness.ParsePlace(w.Key().String(), at)
	if err == nil {
		err = witness.AddPlace(h.path("state/keys"), p)
	}
	if err != nil {
		t.Fatal(err)
	}
	seen := func() uint64 {
		t.Helper()
		notes, err := witness.Kept(h.path("state/keys"))
		if err != nil || len(notes) != 1 {
			t.Fatalf("kept are %q, %v", notes, err)
		}
		c, err := audit.OpenCheckpoint(notes[0])
		if _, ok := p.Key.Cosigned(notes[0]); !ok || !errors.Is(err, audit.ErrUnsigned) {
			t.Fatalf("kept is %s, %v", notes[0], err)
		}
		return c.Size
	}
	// The daemon has noticed the witness.
	var status api.Status
	for len(status.Witnesses) == 0 || status.Witnesses[0].Signed == 0 {
		h.operator("kernel.status", map[string]any{}, &status)
	}
	h.stop()
	last := seen()
	if out, err := exec.Command("cp", "-r", h.path("state"), h.path("older")).CombinedOutput(); err != nil {
		t.Fatal(string(out))
	}
	h.start()
	status = api.Status{}
	if h.operator("kernel.status", nil, &status); len(status.Witnesses) != 1 || status.Witnesses[0].Name != "other.example" || status.Witnesses[0].Signed < last || status.Witnesses[0].Error != "" {
		t.Errorf("the witness is shown as %+v, and has seen %d records", status.Witnesses, last)
	}
	h.operates().must("audit.rotate_key", map[string]any{}, nil)
	h.stop()
	now := seen()
	if now <= last {
		t.Errorf("after a change of the key the witness has seen %d records, before %d", now, last)
	}
	h.start()
	h.stop()
	// Everything is set back, as from a backup: nothing here shows that there was more.
	if err := errors.Join(os.Rename(h.path("state"), h.path("newer")), os.Rename(h.path("older"), h.path("state"))); err != nil {
		t.Fatal(err)
	}
	err = h.tryStart()
	if err == nil {
		t.Fatal("it starts on an older log")
	}
	contains(t, err.Error(), "the witness other.example was shown", "it was cut, or is an older copy")
	// Without the witness it starts: only the witness prevents it.
	if err := os.Remove(filepath.Join(h.path("state"), "keys", "witnesses")); err != nil {
		t.Fatal(err)
	}
	h.start()
}

// Operators see a witness that does not answer, with the reason and the time.
func TestWitnessThatDoesNotAnswerIsShown(t *testing.T) {
	h := build(t, acme)
	h.stop()
	w, err := witness.Open(t.TempDir(), "gone.example", time.Now)
	if err != nil {
		t.Fatal(err)
	}
	p, err := witness.ParsePlace(w.Key().String(), "unix:"+h.path("run/nobody.sock"))
	if err == nil {
		err = witness.AddPlace(h.path("state/keys"), p)
	}
	if err != nil {
		t.Fatal(err)
	}
	h.start()
	var status api.Status
	h.operator("kernel.status", nil, &status)
	if len(status.Witnesses) != 1 || status.Witnesses[0].Name != "gone.example" || status.Witnesses[0].Error == "" || status.Witnesses[0].FailingSince.IsZero() || status.Witnesses[0].Signed != 0 {
		t.Errorf("it is shown as %+v", status.Witnesses)
	}
}
