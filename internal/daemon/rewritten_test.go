package daemon_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/evidence/checkpoints"
	"github.com/openclawos/ocipd/internal/store"
	"go.uber.org/zap"
)

// rewriteLog does what an attacker can do who can write all files of a stopped daemon but
// lacks its key: the log stays up to the first checkpoint, invented records follow, chained
// anew, and every trace of the rest is gone.
func (h *harness) rewriteLog(records int, apart time.Duration) {
	h.t.Helper()
	must := func(err error) {
		h.t.Helper()
		if err != nil {
			h.t.Fatal(err)
		}
	}
	ctx, database := context.WithoutCancel(h.t.Context()), h.path("state/ocipd.db")
	var now time.Time
	open := func(path string) *store.Store {
		h.t.Helper()
		s, err := store.Open(ctx, store.Options{Path: path, RowKey: h.rowKey, Clock: func() time.Time { return now }, Log: zap.NewNop()})
		must(err)
		return s
	}
	honest, forged := open(database), open(h.path("state/forged.db"))
	kept := store.Change{Drains: true}
	for _, name := range []string{"log-name", "checkpoint-key"} {
		value, err := honest.Meta(ctx, name)
		must(err)
		kept.Add(store.Meta{Key: name, Value: value})
	}
	values, err := honest.MetaUnder(ctx, "digest")
	must(err)
	for name, value := range values {
		kept.Add(store.Meta{Key: name, Value: value})
	}
	_, err = forged.Commit(&kept)
	must(err)
	var first string
	for seq := uint64(1); first == ""; seq++ {
		line, err := honest.Line(ctx, seq)
		must(err)
		e, err := audit.Parse(line)
		must(err)
		now = e.Time
		_, err = forged.Commit(&store.Change{Records: []*audit.Record{&e.Record}})
		must(err)
		if again, err := forged.Line(ctx, seq); err != nil || !bytes.Equal(again, line) {
			h.t.Fatalf("record %d is now\n%s, %v, and was\n%s", seq, again, err, line)
		}
		if e.ActionType == audit.ActionCheckpoint {
			first = e.Details["note"].(string)
		}
	}
	for range records {
		now = now.Add(apart)
		_, err := forged.Commit(&store.Change{Records: []*audit.Record{{ID: "forged", ActionType: audit.ActionExchange, PolicyResult: "allow"}}})
		must(err)
	}
	must(forged.Close())
	must(honest.Close())
	mirrors, err := filepath.Glob(h.path("state/audit*"))
	must(err)
	for _, file := range append(mirrors, h.path("state/ocipd.index.db")) {
		must(os.RemoveAll(file))
	}
	must(os.Rename(h.path("state/forged.db"), database))
	outside, err := checkpoints.Open(checkpoints.Options{Path: h.path("state/audit-checkpoints.jsonl"), Clock: time.Now, Log: zap.NewNop()})
	must(err)
	must(outside.Keep(first))
	must(os.Remove(h.path("state/keys/checkpoint.newest")))
}

// The next start signs a log that was rewritten without the key, because it cannot tell; it
// reports that on record and in the status, and a verifier of the log sees it.
func TestRewrittenLogIsNotLaundered(t *testing.T) {
	for name, forgery := range map[string]struct {
		records int
		apart   time.Duration
	}{"over minutes": {5, time.Minute}, "many at once": {1100, 0}} {
		t.Run(name, func(t *testing.T) {
			h := build(t, acme)
			alice := h.agent("@acme/alice")
			alice.refuse(api.Forbidden, "message.dispatch", map[string]any{"sessionKey": "telegram:eve", "content": "Hello"})
			h.stop()
			h.rewriteLog(forgery.records, forgery.apart)
			h.start()

			tails := h.records(audit.Filter{Like: audit.Record{ActionType: audit.ActionSecurity}})
			i := slices.IndexFunc(tails, func(e audit.Entry) bool { return e.Event == "unsigned_tail" })
			if i < 0 {
				t.Fatal("nothing on record says that it was not signed")
			}
			first, last := tails[i].Details["first"].(float64), tails[i].Details["last"].(float64)
			if last-first != float64(forgery.records-1) {
				t.Errorf("on record as %v", tails[i].Details)
			}
			var status api.Status
			h.operator("kernel.status", map[string]any{}, &status)
			if u := status.Audit.Unsigned; u == nil || float64(u.First) != first || float64(u.Last) != last {
				t.Errorf("the status has %+v", u)
			}
			for range 2 {
				var found api.AuditVerifyResult
				h.operator("audit.verify", map[string]any{}, &found)
				if found.OK || found.Fault == nil || float64(found.Fault.Seq) <= first {
					t.Errorf("it verifies: %+v", found)
				}
				h.stop()
				h.start()
			}
			// Once they are signed, the next start knows nothing of it.
			var later api.Status
			h.operator("kernel.status", map[string]any{}, &later)
			if later.Audit.Unsigned != nil {
				t.Errorf("after another start the status has %+v", later.Audit.Unsigned)
			}
		})
	}
}

// A killed daemon leaves unsigned records; that is no reason to doubt them.
func TestKilledDaemonIsNoForger(t *testing.T) {
	h := build(t, acme)
	h.agent("@acme/alice").dispatch("telegram:dave", "Hello", fresh(nil))
	// The state after a kill: the files as they are while it runs.
	copied := plot(t, acme)
	copyState(t, h, copied.path("state"))
	copied.start()
	t.Cleanup(copied.stop)
	var status api.Status
	copied.operator("kernel.status", map[string]any{}, &status)
	if status.Audit.Unsigned != nil {
		t.Errorf("the status has %+v", status.Audit.Unsigned)
	}
	var found api.AuditVerifyResult
	copied.operator("audit.verify", map[string]any{}, &found)
	if !found.OK {
		t.Errorf("%+v", found.Fault)
	}
}

// The newest checkpoint beside the key shows that a log was set back, even if the file of
// checkpoints went back with it.
func TestNewestBesideTheKey(t *testing.T) {
	h := build(t, acme)
	h.stop()
	read := func(name string) []byte {
		text, err := os.ReadFile(h.path(name))
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	database, checkpoints := read("state/ocipd.db"), read("state/audit-checkpoints.jsonl")
	h.start()
	h.agent("@acme/alice").dispatch("telegram:dave", "Hello", fresh(nil))
	h.stop()
	if err := os.WriteFile(h.path("state/ocipd.db"), database, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(h.path("state/audit-checkpoints.jsonl"), checkpoints, 0o600); err != nil {
		t.Fatal(err)
	}
	err := h.tryStart()
	if err == nil {
		t.Fatal("a daemon goes on with an older copy of its log")
	}
	contains(t, err.Error(), "keys/checkpoint.newest holds a signed checkpoint", "cut or replaced by an older copy")
	if err := os.WriteFile(h.path("state/keys/checkpoint.newest"), []byte("nothing\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err = h.tryStart(); err == nil {
		t.Fatal("a daemon goes on without the checkpoint beside its key")
	}
	contains(t, err.Error(), "checkpoint.newest", "move it aside")
}
