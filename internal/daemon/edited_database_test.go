package daemon_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/evidence/verify"
	"github.com/openclawos/ocipd/internal/store"
	"github.com/openclawos/ocipd/internal/store/db"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"
)

// fillLog writes so many records to the log of a stopped daemon that a start does not check
// those before them.
func (h *harness) fillLog() {
	h.t.Helper()
	s, err := store.Open(context.WithoutCancel(h.t.Context()), store.Options{Path: h.path("state/ocipd.db"), RowKey: h.rowKey, Clock: time.Now, Log: zap.NewNop()})
	if err != nil {
		h.t.Fatal(err)
	}
	c := &store.Change{}
	for i := range 300 {
		c.Records = append(c.Records, &audit.Record{ID: fmt.Sprint("note-", i), ActionType: audit.ActionSecurity, Event: "note"})
	}
	_, err = s.Commit(c)
	if err := errors.Join(err, s.Close()); err != nil {
		h.t.Fatal(err)
	}
}

// A person's denial of a tool call that an attacker turns into an approval in the log, long
// ago or just now, allows nothing.
func TestForgedDecision(t *testing.T) {
	const forged = `UPDATE records SET line = replace(replace(line, '"event":"denied"', '"event":"approved"'), '"decision":"deny"', '"decision":"approve"')
		WHERE line LIKE '%"event":"denied"%'; UPDATE approvals SET state = 'approved' WHERE false`
	for _, long := range []bool{false, true} {
		t.Run(fmt.Sprint("long ago ", long), func(t *testing.T) {
			h := ruled(t, ungoverned+"\ntools: enforce\n", toolRules(t))
			ann := h.speaker("ann")
			h.decides(api.DecideDeny, str(ann.tool(h, "make deploy", "require_approval"), "approvalId"))
			h.stop()
			if long {
				h.fillLog()
			}
			h.editRows(forged)
			logged := h.observe()
			if err := h.tryStart(); err != nil {
				if _, ok := errors.AsType[*audit.Fault](err); long || !ok {
					t.Errorf("the start: %v", err)
				}
				return
			}
			if !long {
				t.Fatal("it starts")
			}
			ann = h.speaker("ann")
			if answer, err := ann.call("agent.emit", shellCall("make deploy")); err == nil && answer["allowed"] != false {
				t.Errorf("answered %v", answer)
			}
			// Either the decision is looked up first, or the check of the whole log reaches
			// it and pauses sending. The log itself cannot be searched any more.
			waitFor(t, "it is told", func() bool {
				return logged.FilterMessageSnippet("the audit log in the database is not what was written").Len() > 0 ||
					slices.ContainsFunc(logged.FilterMessageSnippet("a row of the database was changed").All(), func(e observer.LoggedEntry) bool {
						return e.ContextMap()["table"] == "records"
					})
			})
		})
	}
}

// An approval for a runtime that was used, withdrawn or has expired does not count any
// more, whatever its row says: the daemon refuses to start.
func TestEditedReleaseCountsForNothing(t *testing.T) {
	ready := func(v []db.Value) { v[2], v[5] = db.Text("ready"), db.Time(time.Now().Add(time.Hour)) }
	for name, tc := range map[string]struct {
		before func(h *harness, alice *app, id string)
		edit   func(h *harness, id string)
	}{
		"used up": {func(_ *harness, alice *app, id string) { alice.redeem(id) }, func(h *harness, _ string) { h.editRows(`UPDATE releases SET state = 'ready', claim = ''`) }},
		"taken back": {func(h *harness, _ *app, id string) { h.decides(api.DecideDeny, id) }, func(h *harness, _ string) {
			h.editRows(`UPDATE releases SET state = 'ready'`)
		}},
		"good for longer": {func(*harness, *app, string) {}, func(h *harness, _ string) { h.editRows(`UPDATE releases SET expires_at = expires_at + 31536000000`) }},
		"taken back, and sealed anew": {func(h *harness, _ *app, id string) { h.decides(api.DecideDeny, id) }, func(h *harness, id string) {
			h.rewriteRelease(id, ready)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := build(t, acme)
			alice := h.redeems()
			id := h.approved(alice)
			tc.before(h, alice, id)
			h.stop()
			tc.edit(h, id)
			if fault, ok := errors.AsType[*audit.Fault](h.tryStart()); !ok || !strings.Contains(fault.Problem, "release of approval "+id) {
				t.Errorf("the start: %v", fault)
			}
		})
	}
}

// A waiting message goes to nobody else than it was decided for, even if records name its
// receiver only by a digest, and even if the attacker has the key of rows.
func TestMovedMessageIsNotDelivered(t *testing.T) {
	const redacted = "audit: {redact: {members: [sessionKey, appId, counterparty.instanceId, counterparty.tenantId]}}\n"
	move := func(v []db.Value) {
		v[0], v[6] = db.Int(99<<40+7), db.Text("agent:alice")
		v[5] = db.Text(strings.Replace(v[5].String(), "agent-bob-1", "agent-alice-1", 1))
	}
	for name, edit := range map[string]func(h *harness){
		"edited": func(h *harness) {
			h.editRows(`INSERT INTO queues (no, name) VALUES (99, 'agent:alice'); UPDATE outbox SET id = (99 << 40) + 7, queue = 'agent:alice', message = replace(message, 'agent-bob-1', 'agent-alice-1')`)
		},
		"renamed queue": func(h *harness) {
			h.editRows(`UPDATE queues SET name = 'agent:alice' WHERE name = 'agent:bob'`)
		},
		"sealed anew": func(h *harness) {
			h.rewriteRows(func(w *db.Writer) error {
				var moved []db.Value
				_, err := w.Amend("a message", "outbox", func(v []db.Value) { moved = slices.Clone(v) }, "queue = 'agent:bob'")
				if err != nil {
					return err
				}
				move(moved)
				return errors.Join(w.Insert("a queue", "queues", db.Int(99), db.Text("agent:alice")), w.Insert("a message", "outbox", moved...))
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := build(t, redacted+acme)
			h.agent("@acme/alice").dispatch("agent:bob:main", "the blue folder", fresh(nil))
			h.stop()
			edit(h)
			if err := h.tryStart(); err != nil {
				if !strings.Contains(err.Error(), "somebody else than the daemon") {
					t.Error(err)
				}
				return
			}
			alice := h.agent("@acme/alice")
			waitFor(t, "it is on record", func() bool {
				return slices.ContainsFunc(h.records(audit.Filter{Like: audit.Record{ActionType: audit.ActionSecurity}}), func(r audit.Entry) bool {
					return r.Event == "undecided_message" || r.Event == "altered_row"
				})
			})
			alice.must("app.heartbeat", nil, nil)
			alice.silent("hook:message_received")
		})
	}
}

// copyRows copies the tables of a stopped daemon, each row with its seal, and returns a function that
// puts the rows of a table back.
func (h *harness) copyRows() (putBack func(table string)) {
	h.t.Helper()
	path := filepath.Join(h.t.TempDir(), "before.db")
	run := func(query string, args ...any) {
		h.t.Helper()
		conn, err := sqlite.OpenConn(h.path("state/ocipd.db"), sqlite.OpenReadWrite)
		if err != nil {
			h.t.Fatal(err)
		}
		if len(args) > 0 {
			err = sqlitex.ExecuteTransient(conn, "ATTACH ? AS before", &sqlitex.ExecOptions{Args: args})
		}
		if err = errors.Join(err, sqlitex.ExecuteTransient(conn, query, nil), conn.Close()); err != nil {
			h.t.Fatal(query, err)
		}
	}
	run("VACUUM INTO '" + path + "'")
	return func(table string) {
		h.t.Helper()
		run("INSERT OR REPLACE INTO main."+table+" SELECT * FROM before."+table, path)
	}
}

// faultOf returns what ocipd audit verify finds in the database of a stopped daemon, nil if it is
// intact.
func (h *harness) faultOf() *audit.Fault {
	h.t.Helper()
	found, err := (&verify.Log{Path: h.path("state/ocipd.db"), InDatabase: true}).Verify(h.t.Context())
	if err != nil {
		h.t.Fatal(err)
	}
	return found.Fault
}

// A message that a record ended does not leave again if somebody puts its row back, with its own
// seal. A verification of the stopped daemon's database finds the row, and the next start removes
// it, on record.
func TestRowOfAnEndedMessageThatIsPutBack(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		session string
		end     func(h *harness, sent api.DispatchResult)
		event   string
	}{
		"dropped": {"telegram:dave", func(h *harness, sent api.DispatchResult) {
			h.operator("queue.drop", m{"dispatchIds": []string{sent.DispatchID}}, nil)
		}, "dropped"},
		"dropped, agent's": {"agent:bob:main", func(h *harness, sent api.DispatchResult) {
			h.operator("queue.drop", m{"dispatchIds": []string{sent.DispatchID}}, nil)
		}, "dropped"},
		"withdrawn": {"telegram:dave", func(h *harness, _ api.DispatchResult) {
			h.reloaded(theirs)
			h.channel("@openclawos/telegram", "telegram")
			waitFor(t, "it is withdrawn", func() bool { return len(h.waits(nil).Messages) == 0 })
			h.reloaded(acme)
		}, "withdrawn CROSS_ENTERPRISE_BLOCKED"},
		"failed": {"telegram:dave", func(h *harness, _ api.DispatchResult) {
			telegram := h.channel("@openclawos/telegram", "telegram")
			telegram.answer(telegram.message("hook:message_sending").EventID, m{"delivered": false, "error": "no such number"})
		}, "failed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := build(t, acme)
			sent := h.agent("@acme/alice").dispatch(tc.session, "the blue folder", fresh(nil))
			h.stop()
			putBack := h.copyRows()
			if fault := h.faultOf(); fault != nil {
				t.Errorf("before: %v", fault)
			}
			h.start()
			tc.end(h, sent)
			h.stop()
			if fault := h.faultOf(); fault != nil {
				t.Errorf("after its end: %v", fault)
			}
			putBack("outbox")
			if fault := h.faultOf(); fault == nil || !strings.Contains(fault.Problem, "message "+sent.DispatchID+" waits again") {
				t.Errorf("with its row put back: %v", fault)
			}
			h.start()
			receiver, event := h.receiverOf(tc.session)
			waitFor(t, "its row is taken out", func() bool { return len(h.waits(nil).Messages) == 0 })
			receiver.must("app.heartbeat", nil, nil)
			receiver.silent(event)
			rejected := h.records(audit.Filter{Like: audit.Record{Event: "undecided_message", DispatchID: sent.DispatchID}})
			if got := h.eventsOf(sent.DispatchID); !slices.Equal(got, []string{tc.event}) || len(rejected) != 1 || !strings.Contains(rejected[0].PolicyReason, "somebody has put its row back") {
				t.Errorf("on record are %q and %+v", got, rejected)
			}
			h.stop()
			if fault := h.faultOf(); fault != nil {
				t.Errorf("at the end: %v", fault)
			}
		})
	}
}

// A debt that only a person may settle does not go away with its row, nor with an older row: the
// daemon does not start, and a verification finds the difference.
func TestDebtWhoseRowIsGone(t *testing.T) {
	t.Parallel()
	for _, table := range []string{"owed", "owed and current_exchanges", "owed, older"} {
		t.Run(table, func(t *testing.T) {
			t.Parallel()
			h := build(t, team("ann", "ben"))
			ask := func(text, policy string) {
				h.agent("@acme/ann").dispatch("agent:ben:main", text, wish(map[string]any{"replyPolicy": policy}))
				h.stop()
			}
			edit := "DELETE FROM owed"
			if table == "owed and current_exchanges" {
				edit += "; DELETE FROM current_exchanges"
			}
			ask("The build is green.", "no-reply-needed")
			putBack := h.copyRows()
			h.start()
			ask("Who is on call?", "human-only")
			if fault := h.faultOf(); fault != nil {
				t.Fatalf("before: %v", fault)
			}
			h.editRows(edit)
			if table == "owed, older" {
				putBack("owed")
			}
			if fault := h.faultOf(); fault == nil || !strings.Contains(fault.Problem, "debt of agent agent-ben-1") {
				t.Errorf("without the row: %v", fault)
			}
			if err := h.tryStart(); err == nil || !strings.Contains(err.Error(), "debt of agent agent-ben-1") {
				t.Errorf("the start: %v", err)
			}
		})
	}
}

// A process that was an app's does not become an operator's with its row: the daemon does not start, and a
// verification finds the difference.
func TestProcessWhoseRowIsGone(t *testing.T) {
	t.Parallel()
	h := build(t, acme)
	h.agent("@acme/alice")
	h.stop()
	if fault := h.faultOf(); fault != nil {
		t.Fatalf("before: %v", fault)
	}
	h.editRows("DELETE FROM app_processes; DELETE FROM meta WHERE key LIKE 'app:%'")
	if fault := h.faultOf(); fault == nil || !strings.Contains(fault.Problem, "process of an app ") {
		t.Errorf("without the row: %v", fault)
	}
	if err := h.tryStart(); err == nil || !strings.Contains(err.Error(), "process of an app ") {
		t.Errorf("the start: %v", err)
	}
}

// A daemon does not start on a database with a changed schema.
func TestSchemaThatSomebodyChanged(t *testing.T) {
	h := build(t, acme)
	h.stop()
	h.editRows(`CREATE TRIGGER planted AFTER INSERT ON paused BEGIN DELETE FROM paused; END`)
	err := h.tryStart()
	if _, ok := errors.AsType[*audit.Fault](err); !ok || !strings.Contains(err.Error(), `the trigger "planted" of the database was not made by the daemon`) {
		t.Errorf("the start: %v", err)
	}
}

// A message whose exchange a person has ended does not leave if somebody deletes the row of that
// exchange, which the log does not determine any more.
func TestDeletedExchangeLetsNothingGo(t *testing.T) {
	for _, session := range []string{"telegram:dave", "agent:bob:main"} {
		t.Run(session, func(t *testing.T) {
			h := build(t, acme)
			sent := h.agent("@acme/alice").dispatch(session, "the blue folder", fresh(nil))
			h.operator("exchange.resolve", m{"exchangeId": sent.OCIP.ExchangeID, "outcome": "resolved"}, nil)
			h.stop()
			h.fillLog()
			h.editRows("DELETE FROM exchanges; DELETE FROM current_exchanges")
			h.start()
			receiver, event := h.receiverOf(session)
			waitFor(t, "it is taken out, on record", func() bool { return len(h.waits(nil).Messages) == 0 && len(h.eventsOf(sent.DispatchID)) > 0 })
			receiver.must("app.heartbeat", nil, nil)
			receiver.silent(event)
			if got := h.eventsOf(sent.DispatchID); !slices.Equal(got, []string{"withdrawn EXCHANGE_CLOSED"}) {
				t.Errorf("on record is %q", got)
			}
		})
	}
}

// Whichever column of whichever row is edited in a stopped database, to whatever value,
// only decided messages are delivered, and only a person's approvals count.
func TestNoEditLetsAnythingThrough(t *testing.T) {
	if testing.Short() {
		t.Skip("it starts a daemon for each column")
	}
	h := build(t, acme)
	alice := h.redeems()
	emit := func(text string) string {
		return alice.emitHeld(map[string]any{"sessionKey": "telegram:dave", "content": promise + text, "metadata": fresh(nil)}).ApprovalID
	}
	approved, revoked, denied, pending := emit(" red"), emit(" green"), emit(" black"), emit(" white")
	h.decides(api.DecideApprove, approved)
	h.decides(api.DecideApprove, revoked)
	h.decides(api.DecideDeny, revoked)
	h.decides(api.DecideDeny, denied)
	alice.dispatch("agent:bob:main", "the blue folder for bob", fresh(nil))
	alice.dispatch("telegram:stranger", "the blue folder for carol", fresh(nil))
	h.stop()
	h.fillLog()
	whole := t.TempDir()
	if err := os.CopyFS(whole, os.DirFS(h.path("state"))); err != nil {
		t.Fatal(err)
	}
	for _, edit := range append([]string{""}, editsOf(t, h.path("state/ocipd.db"))...) {
		err := errors.Join(os.RemoveAll(h.path("state")), os.CopyFS(h.path("state"), os.DirFS(whole)), filepath.WalkDir(h.path("state"), func(path string, d fs.DirEntry, err error) error {
			mode := fs.FileMode(0o600)
			if d.IsDir() {
				mode = 0o700
			}
			return errors.Join(err, os.Chmod(path, mode))
		}))
		if err != nil {
			t.Fatal(err)
		}
		h.editRows(edit)
		if err := h.tryStart(); err != nil {
			if !strings.Contains(err.Error(), "somebody else") && !strings.Contains(err.Error(), "damaged") && !strings.Contains(err.Error(), "another key") && !strings.Contains(err.Error(), "no seals") {
				t.Errorf("%s: the start: %v", edit, err)
			}
			continue
		}
		if n := h.nothingWrongLeaves(edit, approved, revoked, denied, pending); edit == "" && n != 3 {
			t.Fatalf("without an edit %d of 3 are given", n)
		}
		h.stop()
	}
}

// editsOf makes edits of each column of all tables with rows, one at a time.
func editsOf(t *testing.T, path string) (edits []string) {
	t.Helper()
	conn, err := sqlite.OpenConn(path, sqlite.OpenReadOnly)
	if err != nil {
		t.Fatal(err)
	}
	type column struct{ table, name, kind string }
	var columns []column
	err = sqlitex.ExecuteTransient(conn, `SELECT m.name, x.name, x.type FROM sqlite_schema AS m, pragma_table_xinfo(m.name) AS x WHERE m.type = 'table' AND m.name NOT LIKE 'sqlite%' ORDER BY 1, 2`,
		&sqlitex.ExecOptions{ResultFunc: func(stmt *sqlite.Stmt) error {
			columns = append(columns, column{stmt.ColumnText(0), stmt.ColumnText(1), stmt.ColumnText(2)})
			return nil
		}})
	for _, c := range columns {
		n := 0
		if err == nil {
			n, err = db.QueryInt(conn, "SELECT count(*) FROM "+c.table)
		}
		if n == 0 {
			continue
		}
		values := []string{"(SELECT o." + c.name + " FROM " + c.table + " AS o WHERE o." + c.name + " <> " + c.table + "." + c.name + " LIMIT 1)"}
		switch {
		case c.name == "state":
			values = append(values, "'ready'", "'approved'", "'pending'")
		case c.kind == "INTEGER":
			values = append(values, c.name+" + 31536000000")
		case c.kind == "TEXT":
			values = append(values, "replace(replace(replace(replace("+c.name+", 'denied', 'approved'), '\"deny\"', '\"approve\"'), 'require_approval', 'allow'), 'blue folder', 'grey folder')")
		}
		for _, value := range values {
			edits = append(edits, fmt.Sprintf("UPDATE OR IGNORE %s SET %s = %s WHERE %[3]s IS NOT NULL", c.table, c.name, value))
		}
	}
	if err := errors.Join(err, conn.Close()); err != nil {
		t.Fatal(err)
	}
	return edits
}

// nothingWrongLeaves connects all apps, checks everything they get, and counts it.
func (h *harness) nothingWrongLeaves(edit, approved, revoked, denied, pending string) (given int) {
	h.t.Helper()
	c, err := h.tryApp("@acme/alice", "", redeeming)
	if err != nil {
		return 0 // its app cannot register: nothing is given to it
	}
	for id, text := range map[string]string{approved: " red", revoked: "", denied: "", pending: ""} {
		var r api.Redeemed
		err := c.call("approval.redeem", map[string]any{"approvalId": id}, &r)
		if err == nil && (text == "" || !strings.Contains(string(r.Data), promise+text)) {
			h.t.Errorf("%s: %s is redeemed as %s", edit, id, r.Data)
		}
		if err == nil {
			given++
		}
	}
	for _, app := range []struct{ id, channel, event, text string }{
		{"@acme/bob", "", "message_received", "the blue folder for bob"}, {"@openclawos/telegram", "telegram", "message_sending", "the blue folder for carol"},
	} {
		able := api.Capabilities{Hooks: api.HookDeclaration{Subscribes: []string{app.event}}}
		if app.channel != "" {
			able.Channels.Provides = []string{app.channel}
		}
		a, err := h.tryApp(app.id, app.channel, able)
		if err != nil {
			continue
		}
		limit := 2 * time.Second
		if edit == "" {
			limit = patience
		}
		h.drained(app.id, limit)
		// The answer stands behind the handed messages on the connection.
		if err := a.call("app.heartbeat", nil, nil); err != nil {
			h.t.Logf("%s: %s is not answered: %v", edit, app.id, err)
		}
		for len(a.Events()) > 0 {
			in := <-a.Events()
			if strings.Contains(string(in.Payload), "folder") && (in.Event != "hook:"+app.event || !strings.Contains(string(in.Payload), app.text)) || strings.Contains(string(in.Payload), promise) {
				h.t.Errorf("%s: %s is given %s %s", edit, app.id, in.Event, in.Payload)
			}
			if in.Event == "hook:"+app.event {
				given++
			}
		}
	}
	return given
}

// drained waits until no message waits that its app can take, for at most the limit: an altered
// message may wait forever.
func (h *harness) drained(id string, limit time.Duration) {
	h.t.Helper()
	person := h.operates()
	queue := map[string]string{"@acme/bob": "agent:bob", "@openclawos/telegram": "channel:telegram"}[id]
	for end := time.Now().Add(limit); time.Now().Before(end); {
		var list api.QueueListResult
		if err := person.call("queue.list", map[string]any{}, &list); err != nil {
			return
		}
		if !slices.ContainsFunc(list.Messages, func(m api.QueuedMessage) bool { return m.Queue == queue && !m.Handed }) {
			return
		}
	}
}

// tryApp connects an app, which gets its waiting messages. An altered row may prevent that.
func (h *harness) tryApp(id, channel string, able api.Capabilities) (*app, error) {
	h.t.Helper()
	a := h.connect()
	a.id = id
	ctx, cancel := context.WithTimeout(h.t.Context(), patience)
	defer cancel()
	_, err := a.Register(ctx, manifest(id, able))
	if err == nil && channel != "" {
		err = a.call("capability.register", map[string]any{"type": "channel", "config": map[string]any{"channelId": channel}}, nil)
	}
	if err == nil && channel != "" {
		err = a.call("hook.subscribe", map[string]any{"events": able.Hooks.Subscribes}, nil)
	}
	for _, method := range []string{"app.ready", "app.heartbeat"} {
		if err == nil {
			err = a.call(method, nil, nil)
		}
	}
	return a, err
}
