package daemon_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/evidence/mirror"
	"github.com/openclawos/ocipd/internal/store"
)

// TestMirrorLost takes the mirror away under a running daemon. The next message is refused,
// the loss is recorded, and then everything continues.
func TestMirrorLost(t *testing.T) {
	changes := map[string]func(path string) error{
		"was removed":        os.Remove,
		"was truncated":      func(path string) error { return os.Truncate(path, 10) },
		"was made read-only": func(path string) error { return os.Chmod(path, 0o400) },
		"was replaced": func(path string) error {
			if err := os.Rename(path, path+".1"); err != nil {
				return err
			}
			return os.WriteFile(path, []byte("{}\n"), 0o600)
		},
	}
	for what, change := range changes {
		t.Run(what, func(t *testing.T) {
			h := build(t, acme)
			alice, telegram := h.agent("@acme/alice"), h.channel("@acme/telegram", "telegram")
			alice.dispatch("telegram:dave", "Hello", fresh(nil))
			telegram.message("hook:message_sending")
			// Otherwise the mirror notices it first, and has repaired it.
			h.statusUntil("all is mirrored", func(s api.Status) bool { return s.Audit.Mirrored == s.Audit.Seq })
			if err := change(h.path("state/audit.jsonl")); err != nil {
				t.Fatal(err)
			}
			refused := alice.refuse(api.InternalError, "message.dispatch", map[string]any{"sessionKey": "telegram:dave", "content": "Are you there?"})
			contains(t, refused.Message, "audit.jsonl", what)

			var lost []audit.Entry
			for len(lost) == 0 {
				lost = slices.DeleteFunc(h.records(audit.Filter{Like: audit.Record{ActionType: audit.ActionSecurity}}), func(e audit.Entry) bool { return e.Event != "mirror_lost" })
			}
			if problem, ok := lost[0].Details["problem"].(string); len(lost) != 1 || !ok || !strings.Contains(problem, what) {
				t.Errorf("%d records: %v", len(lost), lost[0].Details)
			}
			alice.dispatch("telegram:dave", "And now?", fresh(nil))
			if got := telegram.message("hook:message_sending"); !strings.Contains(got.Content, "And now?") {
				t.Errorf("the channel got %q", got.Content)
			}
			h.stop()
			if entries := h.verify(); entries.Seq == 0 {
				t.Error("the mirror is empty")
			}
		})
	}
}

// TestMirrorRotates checks that segments and live file contain the whole log, up to the
// record of the stop, and continue from there.
func TestMirrorRotates(t *testing.T) {
	h := build(t, acme+"audit: {rotate: {bytes: 8192}}\n")
	for range 2 {
		alice, telegram := h.agent("@acme/alice"), h.channel("@acme/telegram", "telegram")
		for range 20 {
			alice.dispatch("telegram:dave", "How far are you?", fresh(nil))
			telegram.message("hook:message_sending")
		}
		var status api.Status
		for status.Audit.Seq == 0 || status.Audit.Mirrored < status.Audit.Seq {
			h.operator("kernel.status", map[string]any{}, &status)
		}
		if len(status.Audit.Mirror.Problems) > 0 || status.Audit.Mirror.Segments+status.Audit.Mirror.Pending == 0 {
			t.Errorf("%+v", status.Audit.Mirror)
		}
		h.stop()
		var v audit.Verifier
		if err := mirror.Walk(h.path("state"), 0, v.Add); err != nil {
			t.Fatal(err)
		}
		database, err := store.OpenReader(t.Context(), h.path("state/ocipd.db"))
		if err != nil {
			t.Fatal(err)
		}
		last, err := database.LastSeq(t.Context())
		if err != nil || v.Head().Seq != last || last <= status.Audit.Seq {
			t.Errorf("the mirror ends at record %d, the database at %d, the last status at %d: %v", v.Head().Seq, last, status.Audit.Seq, err)
		}
		if err := database.Close(); err != nil {
			t.Fatal(err)
		}
		h.start()
	}
}
