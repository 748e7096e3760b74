package daemon_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/evidence/checkpoints"
	"github.com/openclawos/ocipd/internal/evidence/mirror"
	"github.com/openclawos/ocipd/internal/store"
	"go.uber.org/zap"
	"golang.org/x/mod/sumdb/note"
)

// publicKey is the log's public key, as it stands in its file.
func (h *harness) publicKey() note.Verifier {
	h.t.Helper()
	text, err := os.ReadFile(h.path("state/keys/checkpoint.pub"))
	if err != nil {
		h.t.Fatal(err)
	}
	key, err := note.NewVerifier(strings.TrimSpace(string(text)))
	if err != nil {
		h.t.Fatal(err)
	}
	return key
}

// verified checks the mirror, from its tombstone on, against the key and all
// checkpoints that were kept outside.
func (h *harness) verified(more ...string) audit.Report {
	h.t.Helper()
	held, err := checkpoints.Read(h.path("state/audit-checkpoints.jsonl"))
	if err != nil {
		h.t.Fatal(err)
	}
	p := audit.Proof{Keys: []note.Verifier{h.publicKey()}, Held: append(held, more...)}
	if text, err := os.ReadFile(h.path("state/" + checkpoints.TombstoneFile)); err == nil {
		tomb, err := audit.OpenTombstone(string(text), h.publicKey())
		if err != nil {
			h.t.Fatal(err)
		}
		p.Tombstone = &tomb
	}
	v, err := audit.NewVerifier(p)
	if err != nil {
		h.t.Fatal(err)
	}
	if err := mirror.Walk(h.path("state"), 0, v.Add); err != nil {
		h.t.Fatal(err)
	}
	r, err := v.Finish()
	if err != nil {
		h.t.Fatal(err)
	}
	return r
}

// TestStopIsSigned checks that a stopped log is signed to its last record before the
// checkpoint itself, and that the checkpoint is also kept outside.
func TestStopIsSigned(t *testing.T) {
	h := build(t, acme)
	alice, telegram := h.agent("@acme/alice"), h.channel("@acme/telegram", "telegram")
	alice.dispatch("telegram:dave", "Hello", nil)
	telegram.message("hook:message_sending")
	var found api.AuditVerifyResult
	h.operator("audit.verify", map[string]any{}, &found)
	if !found.OK || found.Checkpoints != 1 || found.Held != 1 || found.Seq <= found.Signed || found.Log == "" {
		t.Errorf("the daemon found %+v", found)
	}
	h.stop()
	if r := h.verified(); r.Signed != r.Head.Seq-1 || r.Held != 2 || r.Origin != found.Log {
		t.Errorf("%+v", r)
	}
}

// TestCheckpointIsTriedAgain checks that a checkpoint that could not be kept outside the log is kept
// soon afterwards, without another one.
func TestCheckpointIsTriedAgain(t *testing.T) {
	h := plot(t, acme)
	logged := h.observe()
	h.start()
	t.Cleanup(h.stop)
	path := h.path("state/audit-checkpoints.jsonl")
	newest := func() (size uint64) {
		notes, err := checkpoints.Read(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, signed := range notes {
			if c, err := audit.OpenCheckpoint(signed); errors.Is(err, audit.ErrUnsigned) {
				size = max(size, c.Size)
			}
		}
		return size
	}
	if err := errors.Join(os.Rename(path, path+".away"), os.Mkdir(path, 0o700)); err != nil {
		t.Fatal(err)
	}
	h.operator("audit.rotate_key", map[string]any{}, nil)
	waitFor(t, "the failure is logged", func() bool {
		return logged.FilterMessageSnippet("a new checkpoint is missing from the checkpoints outside the log").Len() > 0
	})
	if err := errors.Join(os.Remove(path), os.Rename(path+".away", path)); err != nil {
		t.Fatal(err)
	}
	var now api.AuditVerifyResult
	h.operator("audit.verify", map[string]any{}, &now)
	waitFor(t, "the checkpoint is kept", func() bool { return newest() == now.Signed })
}

// TestLogHeadTravels checks that each side gets and keeps evidence of the other's log.
func TestLogHeadTravels(t *testing.T) {
	h := build(t, acme)
	alice, telegram, bob := h.agent("@acme/alice"), h.channel("@acme/telegram", "telegram"), h.agent("@acme/bob")
	alice.dispatch("telegram:dave", "Hello", map[string]any{"ocipLog": "forged"})
	sent := telegram.message("hook:message_sending")
	var head audit.Annotation
	alice.decode(sent.Metadata["ocipLog"], &head)
	signed, err := head.Note()
	if err != nil {
		t.Fatal(err)
	}
	if c, err := audit.OpenCheckpoint(signed, h.publicKey()); err != nil || c.Size == 0 {
		t.Errorf("%+v, %v", c, err)
	}
	entry := h.records(audit.Filter{Like: audit.Record{DispatchID: sent.DispatchID, ActionType: audit.ActionExchange}})[0]
	if by, ok := entry.Details["changedBy"].([]any); !ok || len(by) != 1 || by[0] != "kernel: metadata.ocipLog replaced" {
		t.Errorf("the forged one is on record as %v", entry.Details["changedBy"])
	}
	// Within one installation there is nothing to keep.
	alice.dispatch("agent:bob:main", "Hello", nil)
	if got := bob.message("hook:message_received"); got.Metadata["ocipLog"] != nil {
		t.Errorf("bob got %s", got.Metadata["ocipLog"])
	}

	// An incoming checkpoint is recorded, and other texts change nothing.
	for round, said := range []any{head, "nonsense", map[string]any{"origin": strings.Repeat("x", 5000)}} {
		metadata := map[string]any{"ocip": foreign("01890000-0000-7000-8000-00000000000"+string(rune('1'+round)), 1, "acme-corp"), "ocipLog": said}
		telegram.must("agent.queue", map[string]any{"sessionKey": "telegram:zed", "text": "Hello", "metadata": metadata}, nil)
	}
	entries := h.records(audit.Filter{Like: audit.Record{Side: audit.SideReceiver, SessionKey: "telegram:zed"}})
	if len(entries) != 3 || entries[0].Details["peerLog"] != signed {
		t.Fatalf("%d records, the first with %v", len(entries), entries[0].Details)
	}
	for _, e := range entries[1:] {
		if e.Details["peerLogMalformed"] != true || e.PolicyResult != "allow" {
			t.Errorf("record %d: %s, %v", e.Seq, e.PolicyResult, e.Details)
		}
	}
	// The counterparty's copy proves the log, or a cut.
	h.stop()
	h.verified(signed)
}

// TestOlderCopyIsRefused replaces the log by an older copy of the state.
func TestOlderCopyIsRefused(t *testing.T) {
	h := build(t, acme)
	h.stop()
	older, err := os.ReadFile(h.path("state/ocipd.db"))
	if err != nil {
		t.Fatal(err)
	}
	h.start()
	alice := h.agent("@acme/alice")
	alice.dispatch("telegram:dave", "Hello", nil)
	h.stop()
	newer, err := os.ReadFile(h.path("state/ocipd.db"))
	if err != nil {
		t.Fatal(err)
	}
	put := func(database []byte) {
		t.Helper()
		if err := os.WriteFile(h.path("state/ocipd.db"), database, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put(older)
	var fault *audit.Fault
	if err := h.tryStart(); !errors.As(err, &fault) {
		t.Fatalf("a daemon goes on with an older copy of its log: %v", err)
	} else {
		contains(t, err.Error(), "audit-checkpoints.jsonl", "cut or replaced by an older copy")
	}
	put(newer)
	h.start()
	h.stop()
	h.verified()
}

func TestRotateKeyMethod(t *testing.T) {
	h := build(t, acme)
	old := h.publicKey()
	var result api.AuditRotateKeyResult
	h.operator("audit.rotate_key", map[string]any{}, &result)
	if key := h.publicKey(); key.KeyHash() == old.KeyHash() || !strings.Contains(result.Verifier, key.Name()) {
		t.Errorf("%+v", result)
	}
	h.stop()
	h.verified()
	h.start()
	h.stop()
	r := h.verified()
	if r.Signed != r.Head.Seq-1 {
		t.Errorf("%+v", r)
	}
	// A lost key is not replaced.
	if err := os.Remove(h.path("state/keys/checkpoint.key")); err != nil {
		t.Fatal(err)
	}
	if err := h.tryStart(); err == nil {
		t.Error("a daemon goes on without its key")
	}
}

// TestRetention removes whole segments, while the daemon works, and after an interrupted removal.
func TestRetention(t *testing.T) {
	h := build(t, "audit: {rotate: {bytes: 8192, age: 24h}}\n"+acme)
	alice, telegram := h.agent("@acme/alice"), h.channel("@acme/telegram", "telegram")
	for range 30 {
		alice.dispatch("telegram:dave", "Hello", fresh(nil))
		telegram.message("hook:message_sending")
	}
	var status api.Status
	for status.Audit.Mirror.Segments < 3 || status.Audit.Mirror.Pending > 0 || status.Audit.Mirrored < status.Audit.Seq {
		h.operator("kernel.status", map[string]any{}, &status)
	}
	var removed api.AuditRetireResult
	h.operator("audit.retire", map[string]any{"before": time.Now().Add(-time.Hour)}, &removed)
	if removed != (api.AuditRetireResult{}) {
		t.Errorf("what is young was removed: %+v", removed)
	}
	h.operator("audit.rotate_key", map[string]any{}, nil)
	h.operator("audit.retire", map[string]any{"before": time.Now().Add(time.Hour)}, &removed)
	if removed.Segments < 3 || removed.Retired == 0 {
		t.Fatalf("%+v", removed)
	}
	if entries := h.records(audit.Filter{}); entries[0].Seq != removed.Retired+1 {
		t.Errorf("the first record is %d, retired are those up to %d", entries[0].Seq, removed.Retired)
	}
	alice.dispatch("telegram:dave", "Hello again", fresh(nil))
	telegram.message("hook:message_sending")
	h.stop()
	if r := h.verified(); r.Retired != removed.Retired {
		t.Errorf("%+v", r)
	}
	if err := os.Remove(h.path("state/" + checkpoints.TombstoneFile)); err != nil {
		t.Fatal(err)
	}
	h.start()
	var found api.AuditVerifyResult
	h.operator("audit.verify", map[string]any{}, &found)
	if !found.OK || found.Retired != removed.Retired {
		t.Errorf("%+v", found)
	}
	h.stop()
	h.verified()
}

// A record is returned byte for byte, including its escapes: its hash is of its bytes.
func TestLinesAreHandedOutAsSealed(t *testing.T) {
	h := build(t, acme)
	hard := "del\u007f, \u0085, \u2028, <&>/ \U000e0001"
	h.agent("@acme/alice").dispatch("agent:bob:main", "Hello", map[string]any{"exchange": map[string]any{
		"data": []map[string]any{{"source": hard, "fields": []string{hard}, "classification": "internal"}},
	}})
	operator := h.dialWire("operator.sock")
	queried := operator.grant("audit.query", `{"limit":1000}`).line
	operator.write(operator.request("t", "audit.tail", `{"last":1000}`) + "\n")
	var tailed strings.Builder
	for m := operator.read(); m.Type == "stream" && !m.Done; m = operator.read() {
		tailed.WriteString(m.line)
	}
	h.stop()
	escaped := 0
	err := mirror.Walk(h.path("state"), 0, func(line []byte) error {
		if !strings.Contains(string(line), `\u007f`) {
			return nil
		}
		escaped++
		if !strings.Contains(queried, string(line)) || !strings.Contains(tailed.String(), string(line)) {
			return fmt.Errorf("it is not handed out as it stands: %s", line)
		}
		return nil
	})
	if err != nil || escaped == 0 {
		t.Errorf("%d records with escapes: %v", escaped, err)
	}
}

// A record that was changed in the file is returned to nobody, and the error names it.
func TestChangedRecordIsHandedToNobody(t *testing.T) {
	h := build(t, acme)
	alice := h.agent("@acme/alice")
	alice.refuse(api.Forbidden, "message.dispatch", map[string]any{"sessionKey": "telegram:carol", "content": "Hello"})
	r := h.records(audit.Filter{Like: audit.Record{PolicyResult: "deny"}})
	if len(r) != 1 {
		t.Fatalf("on record: %+v", r)
	}
	h.stop()
	// A start does not check a record so far before the end.
	s, err := store.Open(t.Context(), store.Options{Path: h.path("state/ocipd.db"), RowKey: h.rowKey, Clock: time.Now, Log: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	c := &store.Change{}
	for i := range 300 {
		c.Records = append(c.Records, &audit.Record{ID: fmt.Sprint("note-", i), ActionType: audit.ActionSecurity})
	}
	_, err = s.Commit(c)
	if err := errors.Join(err, s.Close()); err != nil {
		t.Fatal(err)
	}
	h.editRows(fmt.Sprintf(`UPDATE records SET line = replace(line, '"deny"', '"allow"') WHERE seq = %d`, r[0].Seq))
	// The index may have counted the record before it was changed, and would not read it again.
	if err := os.RemoveAll(h.path("state/ocipd.index.db")); err != nil {
		t.Fatal(err)
	}
	h.start()
	for method, params := range map[string]any{
		"audit.query": map[string]any{"limit": 1000}, "audit.stats": map[string]any{"since": r[0].Time, "until": r[0].Time.Add(1)},
	} {
		failure := h.operates().refuse(api.InternalError, method, params)
		if ocipCode(t, failure) != string(api.AuditDamaged) {
			t.Errorf("%s: %+v", method, failure)
		}
		contains(t, failure.Message, fmt.Sprintf("audit record %d", r[0].Seq), "ocipd audit verify")
	}
}
