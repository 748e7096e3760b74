package daemon_test

import (
	"os"
	"strings"
	"testing"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/ocip"
	"github.com/openclawos/ocipd/internal/store/db"
)

// A person hears of each approved message that is not sent after all: one that waits for
// its runtime or for a channel's app, and is now forbidden or edited.
func TestPersonIsToldWhatWasNotSent(t *testing.T) {
	h := ruled(t, acme, rego(true, "ok"))
	h.stop()
	file := h.path("told")
	h.configure(acme + policySection(h.path("policy"), "watch: false") + `approvals: {notify: {command: ["/bin/sh", "-c", "cat >>\"$0\"; echo >>\"$0\"", "` + file + `"]}}` + "\n")
	h.start()
	alice := h.redeems()
	emitted := func() string {
		held := alice.emitHeld(map[string]any{"sessionKey": "telegram:dave", "content": promise + " the blue folder", "metadata": fresh(nil)})
		h.decides(api.DecideApprove, held.ApprovalID)
		return held.ApprovalID
	}
	waiting := func() string {
		held := alice.held(ocip.CommitmentRequiresHuman, "telegram:dave", promise+" the blue folder", fresh(nil))
		h.decides(api.DecideApprove, held.ApprovalID)
		return held.ApprovalID
	}
	forbidden, edited := []string{emitted(), waiting()}, []string{emitted(), waiting()}
	h.stop()
	h.rewriteRelease(edited[0], func(v []db.Value) { v[7] = db.Text(strings.Replace(v[7].String(), "blue", "grey", 1)) })
	last := h.waitsOnDisk("channel:telegram")
	h.rewriteRows(func(w *db.Writer) error {
		_, err := w.Amend("a message", "outbox", func(v []db.Value) { v[5] = db.Text(strings.Replace(v[5].String(), "blue", "grey", 1)) }, "id = ?", db.Int(last))
		return err
	})
	h.start()
	h.enact(rego(false, "not any more"))
	alice = h.redeems()
	for _, id := range []string{forbidden[0], edited[0]} {
		alice.refuse(api.Forbidden, "approval.redeem", map[string]any{"approvalId": id})
	}
	telegram := h.channel("@openclawos/telegram", "telegram")
	for _, id := range append(forbidden, edited...) {
		waitFor(t, "a person is told of "+id, func() bool {
			text, _ := os.ReadFile(file)
			for notice := range strings.Lines(string(text)) {
				if strings.Contains(notice, "A message that you approved was not sent") && strings.Contains(notice, `"`+id+`"`) {
					return true
				}
			}
			return false
		})
	}
	telegram.quiet("hook:message_sending")
	h.verify()
}

// waitsOnDisk is the newest row of a stopped daemon's queue.
func (h *harness) waitsOnDisk(queue string) (id int64) {
	h.t.Helper()
	h.rewriteRows(func(w *db.Writer) error {
		var err error
		id, err = w.Scalar("the newest message", `SELECT max(id) FROM main.outbox WHERE id > (SELECT no FROM queues WHERE name = ?) << 40`, db.Text(queue))
		return err
	})
	return id
}
