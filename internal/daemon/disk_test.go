package daemon_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/ocip"
)

// smallDisk tells the test that it runs in a separate process, which can have a small disk.
const smallDisk = "OCIPD_DAEMON_TEST_SMALL_DISK"

// withDisk runs a test in a process that may have its own disk.
func withDisk(t *testing.T, body func(*testing.T)) {
	t.Helper()
	if os.Getenv(smallDisk) != "" {
		body(t)
		return
	}
	if testing.Short() {
		t.Skip("starts a process")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self, "-test.v", "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), smallDisk+"=1", "GORACE=atexit_sleep_ms=0")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
	}
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	switch {
	case err != nil && !errors.As(err, &exit):
		t.Skipf("cannot start a process with a disk of its own here: %v", err)
	case bytes.Contains(out, []byte("--- SKIP: "+t.Name())):
		t.Skipf("%s", out)
	case err != nil || !bytes.Contains(out, []byte("--- PASS: "+t.Name())):
		t.Errorf("%s (%v)", out, err)
	}
}

// TestLevelsOfAFillingDisk: new things are refused, waiting ones can be ended, and with
// space again everything continues, without a restart.
func TestLevelsOfAFillingDisk(t *testing.T) { withDisk(t, onFillingDisk) }

func onFillingDisk(t *testing.T) {
	h := onDisk(t, acme+"store: {warn_free_bytes: 20971520, min_free_bytes: 8388608, reserve_bytes: 1048576}\n", "40m")
	h.start()
	t.Cleanup(h.stop)
	telegram, alice := h.channel("@openclawos/telegram", "telegram"), h.agent("@acme/alice")
	if s := h.disk("ok"); !s.Reserve || s.FreeBytes <= 20<<20 {
		t.Errorf("it begins with %+v", s)
	}
	held := alice.held(ocip.CommitmentRequiresHuman, "telegram:dave", "I promise to do it by Friday", fresh(nil))
	shown := h.shown(held.ApprovalID)
	var unread [8]api.DispatchResult
	for i := range unread {
		unread[i] = alice.held(ocip.CommitmentRequiresHuman, "telegram:dave", fmt.Sprintf("I promise to do number %d by Friday", i), fresh(nil))
	}

	h.leaveFree(12 << 20)
	h.disk("warn")
	alice.dispatch("telegram:dave", "Hello", fresh(nil))
	telegram.message("hook:message_sending")

	h.leaveFree(6 << 20)
	h.disk("refuse")
	failure := alice.refuse(api.InternalError, "message.dispatch", map[string]any{"sessionKey": "telegram:dave", "content": "Hello again", "metadata": fresh(nil)})
	if code := ocipCode(t, failure); code != string(ocip.AuditWriteFailed) {
		t.Errorf("got %s", code)
	}
	contains(t, failure.Message, "the disk is nearly full", "MiB are free", "store.min_free_bytes asks for 8")

	// A person ends the waiting request, and the message is sent.
	var result api.ApprovalResolveResult
	h.operates().must("approval.resolve", map[string]any{"approvalId": held.ApprovalID, "decision": api.DecideApprove, "digest": shown.Digest}, &result)
	got := telegram.message("hook:message_sending")
	if result.State != api.ApprovalApproved || got.DispatchID != held.DispatchID {
		t.Errorf("the held message: %+v, delivered %s", result, got.DispatchID)
	}
	telegram.must("hook.result", map[string]any{"eventId": got.EventID, "result": map[string]any{"delivered": true}}, nil)
	// New apps wait, or they would fill the rest.
	late := h.connect()
	failure = late.refuse(api.InternalError, "app.register", map[string]any{"manifest": manifest("@acme/bob", api.Capabilities{})})
	contains(t, failure.Message, "the disk is nearly full")
	late.Close()

	// Completely full: the reserve holds what people still read and decide, and the last records.
	h.leaveFree(0)
	for _, held := range unread {
		if result := h.decides(api.DecideDeny, held.ApprovalID); result.State != api.ApprovalDenied {
			t.Errorf("decided on a full disk: %+v", result)
		}
	}
	if events := h.decisions(unread[0].ApprovalID); !slices.Equal(events, []string{api.ApprovalDenied}) {
		t.Errorf("on record: %v", events)
	}
	h.stop()
	h.freeDisk()
	h.start()
	events := make(map[string]int)
	for _, e := range h.records(audit.Filter{Like: audit.Record{ActionType: audit.ActionSecurity}}) {
		events[e.Event]++
	}
	if events["disk_low"] != 2 || events["daemon_stopped"] != 1 || events["daemon_started"] != 2 {
		t.Errorf("on record: %v", events)
	}
	telegram, alice = h.channel("@openclawos/telegram", "telegram"), h.agent("@acme/alice")

	// With space again it continues, without a restart.
	h.leaveFree(6 << 20)
	h.disk("refuse")
	h.freeDisk()
	if s := h.disk("ok"); !s.Reserve {
		t.Errorf("the reserve is not made again: %+v", s)
	}
	alice.dispatch("telegram:dave", "Hello at last", fresh(nil))
	telegram.message("hook:message_sending")
}

// disk waits until the disk has a level.
func (h *harness) disk(level string) api.StoreStatus {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(h.t.Context(), patience)
	defer cancel()
	again := time.NewTicker(10 * time.Millisecond)
	defer again.Stop()
	for {
		var status api.Status
		h.operator("kernel.status", map[string]any{}, &status)
		if status.Store.Disk == level {
			return status.Store
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			h.t.Fatalf("the disk is %+v, want %s", status.Store, level)
		}
	}
}

// leaveFree fills the small disk up to a number of free bytes.
func (h *harness) leaveFree(free int64) {
	h.t.Helper()
	f, err := os.OpenFile(h.path("state/ballast"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		h.t.Fatal(err)
	}
	defer f.Close()
	block := make([]byte, 64<<10)
	for {
		var st syscall.Statfs_t
		if err := syscall.Statfs(h.path("state"), &st); err != nil {
			h.t.Fatal(err)
		}
		if int64(st.Bavail)*st.Bsize <= free {
			return
		}
		if _, err := f.Write(block); err != nil {
			if free == 0 && errors.Is(err, syscall.ENOSPC) {
				return
			}
			h.t.Fatal(err)
		}
	}
}

// TestLostDatabase: if the database is taken away under the daemon, the next message
// notices it and is refused with the reason, and so are all later ones.
func TestLostDatabase(t *testing.T) {
	h := build(t, acme)
	telegram, alice := h.channel("@openclawos/telegram", "telegram"), h.agent("@acme/alice")
	first := alice.dispatch("telegram:dave", "Hello", fresh(nil)).DispatchID
	telegram.message("hook:message_sending")
	if err := os.Rename(h.path("state/ocipd.db"), h.path("state/ocipd.db.old")); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		failure := alice.refuse(api.InternalError, "message.dispatch", map[string]any{"sessionKey": "telegram:dave", "content": "Hello again", "metadata": fresh(nil)})
		if code := ocipCode(t, failure); code != string(ocip.AuditWriteFailed) {
			t.Errorf("got %s", code)
		}
		contains(t, failure.Message, "ocipd.db is gone under the running daemon", "until the daemon is restarted")
	}
	var status api.Status
	h.operator("kernel.status", map[string]any{}, &status)
	contains(t, status.Audit.Fault, "ocipd.db is gone")
	err := h.daemon.Stop()
	h.daemon = nil
	if err == nil || !strings.Contains(err.Error(), "is gone") {
		t.Errorf("it stops with %v", err)
	}
	if err := os.Rename(h.path("state/ocipd.db.old"), h.path("state/ocipd.db")); err != nil {
		t.Fatal(err)
	}
	h.start()
	// Nothing of the refused messages was released.
	alice, telegram = h.agent("@acme/alice"), h.channel("@openclawos/telegram", "telegram")
	marker := alice.dispatch("telegram:dave", "Hello at last", fresh(nil)).DispatchID
	got := telegram.message("hook:message_sending")
	if got.DispatchID == first {
		// The record of its arrival may be lost.
		got = telegram.message("hook:message_sending")
	}
	if got.DispatchID != marker {
		t.Errorf("%q arrives, want %s", got.Content, marker)
	}
}

// The first reader notices that the write-ahead log was cut, and gets an error; the status
// still answers.
func TestCutLogIsNoticedByReading(t *testing.T) {
	h := build(t, acme)
	alice := h.agent("@acme/alice")
	alice.dispatch("telegram:dave", "Hello", fresh(nil))
	if err := os.Truncate(h.path("state/ocipd.db-wal"), 0); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		failure := alice.refuse(api.InternalError, "message.dispatch", map[string]any{"sessionKey": "telegram:dave", "content": "Hello again", "metadata": fresh(nil)})
		if code := ocipCode(t, failure); code != string(ocip.AuditWriteFailed) {
			t.Errorf("got %s", code)
		}
		contains(t, failure.Message, "ocipd.db-wal was cut from", "under the running daemon", "until the daemon is restarted")
		var status api.Status
		h.operator("kernel.status", map[string]any{}, &status)
		contains(t, status.Audit.Fault, "ocipd.db-wal was cut from")
	}
	if _, err := os.Stat(h.path("state/ocipd.db.latched")); err != nil {
		t.Error(err)
	}
	err := h.daemon.Stop()
	h.daemon = nil
	if err == nil || !strings.Contains(err.Error(), "was cut from") {
		t.Errorf("it stops with %v", err)
	}
}

// A database that ends before its mirror has lost records: every start is refused until one
// of them is moved.
func TestMirrorHasMoreThanTheDatabase(t *testing.T) {
	h := build(t, acme)
	alice := h.agent("@acme/alice")
	alice.dispatch("telegram:dave", "Hello", fresh(nil))
	h.stop()
	database, mirror := h.path("state/ocipd.db"), h.path("state/audit.jsonl")
	older, err := os.ReadFile(database)
	if err != nil {
		t.Fatal(err)
	}
	h.start()
	h.agent("@acme/alice").dispatch("telegram:dave", "Hello again", fresh(nil))
	h.stop()
	// A start also checks these.
	if err := errors.Join(os.Rename(database, database+".right"), os.WriteFile(database, older, 0o600), os.Remove(h.path("state/audit-checkpoints.jsonl")), os.Remove(h.path("state/keys/checkpoint.newest"))); err != nil {
		t.Fatal(err)
	}
	had, err := os.ReadFile(mirror)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		err := h.tryStart()
		if err == nil {
			t.Fatal("it starts without records that the mirror has")
		}
		contains(t, err.Error(), database+" ends at record ", mirror+" goes on from that very record", "put the right database back", "move "+mirror+" aside")
		if now, err := os.ReadFile(mirror); err != nil || string(now) != string(had) {
			t.Errorf("the mirror has changed: %v", err)
		}
	}
	if err := os.Rename(mirror, mirror+".aside"); err != nil {
		t.Fatal(err)
	}
	h.start()
	h.verify()
}
