package daemon_test

import (
	"errors"
	"io/fs"
	"os"
	"testing"
	"time"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/api/client"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/evidence/logreader"
	"github.com/openclawos/ocipd/internal/store"
	"github.com/openclawos/ocipd/internal/store/logstore"
)

// A log reads the same through a running daemon and in its file afterwards, and the
// daemon's copy of it exists as long as it is read.
func TestLogIsReadThroughTheDaemon(t *testing.T) {
	h := build(t, acme)
	alice := h.agent("@acme/alice")
	alice.dispatch("agent:bob:main", "one", nil)
	var rotated api.AuditRotateKeyResult
	h.operator("audit.rotate_key", map[string]any{}, &rotated)
	database := h.path("state/ocipd.db")
	socket := func() (string, error) { return h.path("run/operator.sock"), nil }
	log, err := logreader.Open(t.Context(), database, socket)
	if err != nil {
		t.Fatal(err)
	}
	path, copied, err := logreader.Copy(t.Context(), database, socket)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the copy: %v, %v", info, err)
	}
	whole, err := logreader.OpenWhole(t.Context(), database, socket)
	if err != nil {
		t.Fatal(err)
	}
	newest, err := log.Checkpoint(t.Context())
	if err != nil || newest.Seq == 0 {
		t.Fatalf("the newest checkpoint: %+v, %v", newest, err)
	}
	seen := map[string]logreader.Log{"the daemon": log, "a copy": whole}
	for name, log := range seen {
		sameLog(t, name, log, newest, h.publicKey().Name())
	}
	if err := errors.Join(log.Close(), copied.Close(), whole.Close()); err != nil {
		t.Error(err)
	}
	for gone := time.Now().Add(10 * time.Second); ; {
		_, err := os.Stat(path)
		if errors.Is(err, fs.ErrNotExist) {
			break
		}
		if time.Now().After(gone) {
			t.Fatalf("the copy is still there: %v", err)
		}
		h.operator("kernel.status", map[string]any{}, new(api.Status))
	}
	h.stop()
	r, err := logreader.Open(t.Context(), database, socket)
	if err != nil {
		t.Fatal(err)
	}
	sameLog(t, "the file", r, newest, h.publicKey().Name())
	if err := r.Close(); err != nil {
		t.Error(err)
	}
}

// sameLog asks a log all possible questions; newest is, or was, its newest checkpoint.
func sameLog(t *testing.T, name string, log logreader.Log, newest logstore.Signed, origin string) {
	t.Helper()
	ctx := t.Context()
	fail := func(what string, got any, err error) { t.Helper(); t.Errorf("%s: %s: %+v, %v", name, what, got, err) }
	last, err := log.LastSeq(ctx)
	if err != nil || last < newest.Seq {
		fail("the last record", last, err)
	}
	if head, err := log.CheckTail(ctx); err != nil || head.Seq != last || head.Time.IsZero() {
		fail("its end", head, err)
	}
	key, err := log.PublicKey(ctx)
	if err != nil || key == "" {
		fail("its key", key, err)
	}
	if now, err := log.Checkpoint(ctx); err != nil || now.Seq < newest.Seq {
		fail("the newest checkpoint", now, err)
	}
	if stone, err := log.Tombstone(ctx); !errors.Is(err, store.ErrNotFound) {
		fail("a tombstone", stone, err)
	}
	c, err := audit.OpenCheckpoint(newest.Note)
	if !errors.Is(err, audit.ErrUnsigned) || c.Origin != origin {
		t.Fatal(c, err)
	}
	if root, err := log.RootAt(ctx, c.Size); err != nil || root != c.Root {
		fail("the root", root, err)
	}
	if root, err := log.RootAt(ctx, last+1000); !errors.Is(err, store.ErrNotFound) {
		fail("the root of more", root, err)
	}
	count := uint64(0)
	if err := log.EachLine(ctx, 0, func(seq uint64, line []byte) error {
		if count++; seq != count {
			t.Errorf("%s: record %d comes as number %d", name, seq, count)
		}
		if same, err := log.Line(ctx, seq); err != nil || string(same) != string(line) {
			fail("the same record", string(same), err)
		}
		if seq < newest.Seq {
			r, err := log.ProveRecord(ctx, seq)
			if err != nil || r.Seq != seq {
				fail("a receipt", r, err)
			}
		}
		return nil
	}); err != nil || count < last {
		fail("each record", count, err)
	}
	if line, err := log.Line(ctx, last+1000); !errors.Is(err, store.ErrNotFound) {
		fail("no record", string(line), err)
	}
	lines, next, err := log.Query(ctx, audit.Filter{}, 0, 0, 2)
	if err != nil || len(lines) != 2 || next != last-1 {
		fail("the newest two", next, err)
	}
}

// A daemon with another file is not asked.
func TestLogOfAnotherDaemon(t *testing.T) {
	h, other := build(t, acme), build(t, acme)
	socket := func() (string, error) { return other.path("run/operator.sock"), nil }
	_, err := logreader.Open(t.Context(), h.path("state/ocipd.db"), socket)
	contains(t, err.Error(), "a daemon is using it, and the one that answers at", "--config")
	_, err = logreader.OpenWhole(t.Context(), h.path("state/ocipd.db"), socket)
	contains(t, err.Error(), "a daemon is using it, and the one that answers at", "--config")
	socket = func() (string, error) { return h.path("nobody.sock"), nil }
	if _, err = logreader.Open(t.Context(), h.path("state/ocipd.db"), socket); errors.Is(err, client.ErrNotRunning) {
		t.Errorf("a daemon runs: %v", err)
	}
	contains(t, err.Error(), "a daemon is using it, and none answers at")
}
