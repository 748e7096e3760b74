package store

import (
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/audit/fold"
	"github.com/openclawos/ocipd/internal/ocip"
	"github.com/openclawos/ocipd/internal/store/db"
	"github.com/openclawos/ocipd/internal/store/foldrows"
	"github.com/openclawos/ocipd/internal/store/rowseal"
	"github.com/openclawos/ocipd/test/buildtest"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"
)

// lived is a store in which each of the ten tables of the fold has open rows, some changed rows,
// and some ended ones.
func lived(t *testing.T, o Options) *Store {
	t.Helper()
	s := open(t, o)
	said := func(r audit.Record, parts ...Part) {
		t.Helper()
		r.ID = "x"
		commit(t, s, &Change{Records: []*audit.Record{&r}, Parts: parts})
	}
	for _, id := range []string{"e1", "e2", "e3"} {
		e := exchange("agent-alice-1", id, "c-"+id)
		e.Round = 1
		for ; e.Round < 4; e.Round++ {
			said(audit.Record{
				ActionType: audit.ActionExchange, Side: audit.SideSender, AgentID: e.Agent, ExchangeID: e.ID, ConversationID: e.ConversationID, Round: e.Round, MaxRounds: e.MaxRounds,
				ExchangeType: string(e.Type), Outcome: string(e.Outcome), PolicyResult: audit.ResultAllow,
			}, &Exchange{Exchange: e})
		}
		if id == "e3" {
			e.Outcome = ocip.Denied
			said(audit.Record{ActionType: audit.ActionApproval, Event: "denied", AgentID: e.Agent, ExchangeID: e.ID}, &Exchange{Exchange: e})
		}
	}
	said(audit.Record{ActionType: audit.ActionExchange}, Escalation{Pair: PairOf("b", "a"), ExchangeID: "e1", OpenedAt: someTime}, Escalation{Pair: PairOf("c", "a"), ExchangeID: "e2", OpenedAt: someTime})
	said(audit.Record{ActionType: audit.ActionExchange}, Settled(PairOf("a", "c")))
	for _, id := range []string{"a1", "a2", "a3"} {
		a := Approval{ID: id, Kind: "message", Agent: "a", Asked: id, State: PendingApproval, ExpiresAt: someTime, Summary: []byte(`{}`), Body: []byte(`{"digest":"sha256:1"}`), New: true}
		said(audit.Record{ActionType: audit.ActionExchange, ApprovalID: id}, &a)
		a.New, a.Summary, a.Body = false, []byte(`{"given":1}`), []byte(`{"digest":"sha256:2"}`)
		if id == "a3" {
			a.State = "denied"
		}
		said(audit.Record{ActionType: audit.ActionApproval, ApprovalID: id}, &a)
	}
	for _, id := range []string{"g1", "g2"} {
		said(audit.Record{ActionType: audit.ActionApproval, Event: "grant_made"}, &CommitmentGrant{ID: id, Agent: "a", Kind: "standing", Until: someTime.Add(time.Hour), MaxUses: 5, Body: []byte(`{}`)}, UsedSignature{SignedGrant(id), someTime.Add(time.Hour)})
		said(audit.Record{ActionType: audit.ActionExchange, Side: audit.SideSender, PolicyResult: audit.ResultAllow}, GrantUse{ID: id, At: someTime})
	}
	said(audit.Record{ActionType: audit.ActionApproval, Event: "grant_revoked"}, GrantEnded("g2"))
	for _, to := range []string{"b", "c", "d"} {
		said(audit.Record{ActionType: audit.ActionExchange}, Owed{Agent: "a", Counterparty: to, Value: `{"replyPolicy":"no-reply-needed"}`, Until: someTime.Add(time.Hour)})
	}
	said(audit.Record{ActionType: audit.ActionExchange}, Owed{Agent: "a", Counterparty: "b", Value: `{"replyPolicy":"human-only"}`, Until: someTime.Add(time.Hour)}, Owed{Agent: "a", Counterparty: "d"})
	said(audit.Record{ActionType: audit.ActionSecurity}, Paused{Scope: "all", At: someTime, By: "p"})
	said(audit.Record{ActionType: audit.ActionSecurity}, Paused{Scope: "agent:a", At: someTime, By: "p"})
	said(audit.Record{ActionType: audit.ActionSecurity}, Resumed("agent:a"))
	for _, id := range []string{"r1", "r2"} {
		said(audit.Record{ActionType: audit.ActionApproval, ApprovalID: id}, &Release{Approval: id, AppID: "app", State: ReleaseReady, ExpiresAt: someTime, Data: []byte("x")})
		said(audit.Record{ActionType: audit.ActionApproval, ApprovalID: id}, &Release{Approval: id, AppID: "app", State: ReleaseClaimed, Claim: "c", ExpiresAt: someTime, From: ReleaseReady})
	}
	said(audit.Record{ActionType: audit.ActionApproval, ApprovalID: "r2"}, &Release{Approval: "r2", AppID: "app", State: ReleaseAbandoned, ExpiresAt: someTime, From: ReleaseClaimed, FromClaim: "c"})
	for id, steps := range map[string][]taskStep{
		"t1": {{phase: "executing", state: "planned"}, {phase: "ready_to_resume", state: "started", runs: 1}},
		"t2": {{phase: "ready_to_resume", state: "started", runs: 1}, {phase: "completed", state: "done", runs: 1}},
		"t3": {{phase: "completed", state: "done", runs: 1}, {phase: "completed", state: "done", runs: 2}},
		"t4": {{phase: "executing", state: "planned"}, {phase: "failed", state: "cancelled"}},
	} {
		for i, step := range steps {
			said(audit.Record{ActionType: audit.ActionTask, TaskID: id}, step.part(id, i+1))
		}
	}
	for _, id := range []string{"k1", "k2"} {
		said(audit.Record{ActionType: audit.ActionTask}, actorGrant(id, `{"actor":"claude","role":"executor"}`))
		said(audit.Record{ActionType: audit.ActionTask}, actorGrant(id, `{"actor":"claude","holder":{"uid":7},"role":"executor"}`))
	}
	for seq := uint64(1); seq <= 2; seq++ {
		said(audit.Record{ActionType: audit.ActionDelivery}, laneTaken(seq))
	}
	for _, boot := range []string{"earlier", "boot"} {
		for _, name := range []string{"1@1", "2@2"} {
			said(audit.Record{ActionType: audit.ActionSecurity}, AppProcess{Boot: boot, Name: name, App: "a", At: someTime})
		}
	}
	said(audit.Record{ActionType: audit.ActionSecurity}, EndedProcesses{{"earlier", "1@1"}})
	said(audit.Record{ActionType: audit.ActionTask}, actorGrant("k2", `{"actor":"claude","holder":{"uid":7},"revoked_at":"2026-01-01T00:00:00Z","role":"executor"}`))
	return s
}

// laneTaken is a message that was taken from another host.
func laneTaken(seq uint64) *LaneTaken {
	return &LaneTaken{Lane: "from/h/1/1", Host: "h", Seq: seq, DispatchID: fmt.Sprint("d", seq), Result: "allow", ForgetAt: someTime}
}

// taskStep is a task with a spec, an effect that has a compensation, and a dependency, as
// internal/task/taskstore writes it: its state at an event.
type taskStep struct {
	phase, state string
	// runs is the number of the effect's runs, of which the second is its compensation.
	runs int
}

func (s taskStep) part(id string, seq int) Part {
	var parts fold.Parts
	parts.Effect(fold.Kept{Seq: seq, Digest: "sha256:1"}, "eff-"+id, s.state, true)
	var runs []string
	for n := 1; n <= s.runs; n++ {
		parts.Run(n, n == 2, s.state, "a")
		runs = append(runs, fmt.Sprintf(`{"approval_id":"a","compensation":%t,"run":%d,"state":%q}`, n == 2, n, s.state))
	}
	parts.Spec(fold.Kept{Seq: seq, Digest: "hmac-sha256:1"}, 1)
	parts.Dependencies([]string{"on-" + id})
	open := s.phase != "completed" && s.phase != "failed"
	return Rows{
		Folded: &FoldedRow{fold.Tasks, id, foldrows.Task("acme", s.phase, seq, &parts)},
		Put: func(tx *db.Writer) error {
			head := fmt.Sprintf(`{"phase":%q,"seq":%d,"task_id":%q,"tenant_id":"acme"}`, s.phase, seq, id)
			effect := fmt.Sprintf(`{"compensation":{},"effect_id":%q,"kept":{"seq":%d},"request_digest":"sha256:1","runs":[%s],"state":%q}`, "eff-"+id, seq, strings.Join(runs, ","), s.state)
			return errors.Join(
				tx.Put("a task", "tasks", db.Text(id), db.Text("acme"), db.Text(s.phase), db.Bool(open), db.Int(0), db.Null(), db.Int(0), db.Int(0), db.Int(0), db.Int(int64(seq)), db.Text(""), db.Text(head)),
				tx.Put("a spec", "task_parts", db.Text(id), db.Text("spec"), db.Int(0), db.Text("1"), db.Text(fmt.Sprintf(`{"kept":{"keyed":"hmac-sha256:1","seq":%d},"version":1}`, seq))),
				tx.Put("an effect", "effects", db.Text(id), db.Int(0), db.Text("eff-"+id), db.Text("k"), db.Int(0), db.Text(effect)),
				tx.Put("a dependency", "task_deps", db.Text(id), db.Text("on-"+id)))
		},
	}
}

func actorGrant(id, body string) Part {
	until := someTime.Add(time.Hour)
	return Rows{
		Folded: &FoldedRow{fold.TaskGrants, id, foldrows.TaskGrant([]byte(id), "t1", until, []byte(body))},
		Put: func(tx *db.Writer) error {
			return tx.Put("a grant", "grants", db.Text(id), db.Bytes([]byte(id)), db.Text("t1"), db.Time(until), db.Text(body))
		},
	}
}

// foldOptions returns the options of a signed store at one moment.
func foldOptions(t *testing.T) Options {
	o, _ := signed(t, t.TempDir())
	o.Clock = func() time.Time { return someTime }
	return o
}

// faultOf opens a store, and returns the fault that the start names, "" for none.
func faultOf(t *testing.T, o Options) string {
	t.Helper()
	s, err := Open(t.Context(), o)
	if err == nil {
		shut(t, s)
		return ""
	}
	fault, ok := errors.AsType[*audit.Fault](err)
	if !ok {
		t.Fatal(err)
	}
	return fault.Problem
}

// sweptOf returns the tables of the rows that the search for expired exchanges reports as altered
// after a start that succeeds, "" for none.
func sweptOf(t *testing.T, o Options) (found string) {
	t.Helper()
	o.Altered = func(table, row string) *Change {
		found += table
		return &Change{Alarm: true, Records: []*audit.Record{{ID: "altered", ActionType: audit.ActionSecurity, Event: "altered_row"}}}
	}
	s := open(t, o)
	defer shut(t, s)
	if _, _, err := s.Expired(t.Context(), ExchangeKey{}, 1000, someTime); err != nil {
		t.Fatal(err)
	}
	s.alterations.Settle()
	return found
}

// The rows match the log at each start, with the newest records after a checkpoint or before it,
// and after rows were stated for retention.
func TestRowsAreTheFoldOfTheLog(t *testing.T) {
	o := foldOptions(t)
	s := lived(t, o)
	wantFold(t, s)
	for _, step := range []func() error{
		func() error { return nil }, func() error { return s.Sign() },
		func() error { _, err := s.Retire(t.Context(), s.Checkpoint().Seq-3); return err },
	} {
		if err := step(); err != nil {
			t.Fatal(err)
		}
		shut(t, s)
		s = open(t, o)
		wantFold(t, s)
	}
	if first, err := s.FirstSeq(t.Context()); err != nil || first < 10 {
		t.Errorf("nothing was retired: %d, %v", first, err)
	}
	shut(t, s)
}

// wantFold replays the whole log of a store, and compares its rows.
func wantFold(tb testing.TB, s *Store) {
	tb.Helper()
	first, err := s.FirstSeq(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	replay, differences, err := foldrows.Replay(tb.Context(), s.db, s.Log, first, s.clock())
	if err != nil || !replay.Whole() || replay.Silent() {
		tb.Fatalf("the log does not say all: %v, %v, %v", replay.Whole(), replay.Silent(), err)
	}
	for i := range differences {
		tb.Errorf("%s", &differences[i])
	}
	if got, want := replay.Set().State(s.clock()), s.state.State(s.clock()); !slices.Equal(got, want) {
		tb.Errorf("the log has %v, the daemon %v", got, want)
	}
}

// Every column of the fold, of every row that decisions can depend on, is edited in a stopped
// database, by an attacker who even has the key of the rows.
func TestEditedRowsAreFoundAtTheStart(t *testing.T) {
	for name, edit := range map[string]struct{ script, want string }{
		"round":              {`UPDATE exchanges SET state = json_set(state, '$.round', 1) WHERE id = 'e1'`, "exchange e1 of agent agent-alice-1: the row says round 1, record 3 says 3"},
		"rounds":             {`UPDATE exchanges SET state = json_set(state, '$.maxRounds', 500) WHERE id = 'e1'`, "the row says maxRounds 500"},
		"type":               {`UPDATE exchanges SET state = json_set(state, '$.type', 'x') WHERE id = 'e1'`, "the row says type x"},
		"for a person":       {`UPDATE exchanges SET state = json_set(state, '$.forPerson', json('true')) WHERE id = 'e1'`, "forPerson 1"},
		"no state":           {`UPDATE exchanges SET state = 'x' WHERE id = 'e1'`, "round"},
		"ended":              {`UPDATE exchanges SET outcome = 'resolved' WHERE id = 'e1'`, "exchange e1"},
		"open again":         {`UPDATE exchanges SET outcome = 'in_progress' WHERE id = 'e3'`, "exchange e3 of agent agent-alice-1"},
		"never expires":      {`UPDATE exchanges SET expires_at = 9e12 WHERE id = 'e1'`, "expiresAt"},
		"other conversation": {`UPDATE exchanges SET conversation_id = 'x' WHERE id = 'e1'`, "conversation x"},
		"not listed":         {`DELETE FROM listed_exchanges; UPDATE exchanges SET outcome = 'resolved' WHERE id = 'e1'`, "exchange e1"},
		"another's exchange": {`UPDATE exchanges SET agent = 'x' WHERE id = 'e1'`, "exchange e1 of agent"},
		"exchange gone":      {`DELETE FROM exchanges WHERE id = 'e1'`, "exchange e1 of agent agent-alice-1: there is no such row"},
		"exchange made up":   {`INSERT INTO exchanges SELECT agent, 'new', conversation_id, counterparty, outcome, expires_at, state, seal FROM exchanges WHERE id = 'e1'`, "exchange new of agent agent-alice-1: the row says that it is in_progress, and no record does"},
		"settled":            {`DELETE FROM escalations`, "escalation of exchange e1"},
		"escalated":          {`INSERT INTO escalations VALUES ('x', 'y', 'e9', 0, x'')`, "escalation of exchange e9"},
		"other escalation":   {`UPDATE escalations SET exchange_id = 'e9'`, "escalation of exchange"},
		"denied":             {`UPDATE approvals SET state = 'denied' WHERE id = 'a1'`, "approval a1"},
		"waits again":        {`UPDATE approvals SET state = 'pending' WHERE id = 'a3'`, "approval a3"},
		"other digest":       {`UPDATE approvals SET body = '{"digest":"sha256:1"}' WHERE id = 'a1'`, `approval a1: the row says digest "sha256:1"`},
		"given":              {`UPDATE approvals SET summary = '{"given":2}' WHERE id = 'a1'`, "given 2"},
		"approval expires":   {`UPDATE approvals SET expires_at = 9e12 WHERE id = 'a1'`, "expiresAt"},
		"kind":               {`UPDATE approvals SET kind = 'task' WHERE id = 'a1'`, "kind task"},
		"agent":              {`UPDATE approvals SET agent = 'x' WHERE id = 'a1'`, "agent x"},
		"exchange":           {`UPDATE approvals SET exchange_id = 'x' WHERE id = 'a1'`, "exchange x"},
		"approval gone":      {`DELETE FROM approvals WHERE id = 'a1'`, "approval a1: there is no such row"},
		"fewer uses":         {`UPDATE commitment_grants SET uses = -100 WHERE id = 'g1'`, "grant g1: the row says uses"},
		"more uses":          {`UPDATE commitment_grants SET max_uses = 0 WHERE id = 'g1'`, "maxUses 0"},
		"longer":             {`UPDATE commitment_grants SET until = 9e12 WHERE id = 'g1'`, "until"},
		"in force again":     {`UPDATE commitment_grants SET state = 'in_force' WHERE id = 'g2'`, "grant g2"},
		"grant gone":         {`DELETE FROM commitment_grants WHERE id = 'g1'`, "grant g1: there is no such row"},
		"grant's agent":      {`UPDATE commitment_grants SET agent = 'x' WHERE id = 'g1'`, "agent x"},
		"grant's kind":       {`UPDATE commitment_grants SET kind = 'x' WHERE id = 'g1'`, "kind x"},
		"resumed":            {`DELETE FROM paused`, "pause of all: there is no such row"},
		"paused":             {`INSERT INTO paused VALUES ('agent:a', 1, 'x', x'')`, "pause of agent:a"},
		"paused since":       {`UPDATE paused SET at = 1`, "at 1"},
		"ready again":        {`UPDATE releases SET state = 'ready' WHERE approval = 'r1'`, "release of approval r1: the row says state ready"},
		"release ended":      {`UPDATE releases SET state = 'abandoned' WHERE approval = 'r1'`, "release of approval r1"},
		"release's time":     {`UPDATE releases SET expires_at = 9e12 WHERE approval = 'r1'`, "expiresAt"},
		"release gone":       {`DELETE FROM releases WHERE approval = 'r1'`, "release of approval r1: there is no such row"},
		"task's phase":       {`UPDATE tasks SET phase = 'executing' WHERE id = 't1'`, "task t1: the row says phase executing"},
		"task's effect":      {`UPDATE effects SET body = json_set(body, '$.state', 'planned', '$.runs', json('[]')) WHERE task_id = 't1'`, "task t1: the row says parts"},
		"undone effect":      {`UPDATE effects SET body = json_remove(body, '$.runs[1]') WHERE task_id = 't3'`, "task t3: the row says"},
		"effect gone":        {`DELETE FROM effects WHERE task_id = 't2'`, "task t2: "},
		"dependency gone":    {`DELETE FROM task_deps WHERE task_id = 't1'`, "task t1: the row says bound"},
		"actor's role":       {`UPDATE grants SET body = json_set(body, '$.role', 'operator') WHERE id = 'k1'`, "grant of an actor k1: the row says role operator"},
		"actor's holder":     {`UPDATE grants SET body = json_remove(body, '$.holder') WHERE id = 'k1'`, "grant of an actor k1: the row says holder"},
	} {
		for _, checkpoint := range []bool{false, true} {
			t.Run(fmt.Sprint(name, checkpoint), func(t *testing.T) {
				o, key := signed(t, t.TempDir())
				o.Clock = func() time.Time { return someTime }
				s := lived(t, o)
				if checkpoint {
					if err := s.Sign(); err != nil {
						t.Fatal(err)
					}
				}
				lines := linesOf(t, s)
				shut(t, s)
				if checkpoint {
					if got := buildtest.VerifyPy(t, key.public, lines, o.Path); got != "" {
						t.Fatalf("before the edit verify.py says %q", got)
					}
				}
				change(t, o.Path, edit.script)
				reseal(t, o.Path)
				if name == "open again" && checkpoint || name == "exchange made up" {
					if found := sweptOf(t, o); found != "exchanges" {
						t.Errorf("found altered are %q, want one of exchanges", found)
					}
				} else if got := faultOf(t, o); !strings.Contains(got, edit.want) {
					t.Errorf("the start says %q, want %q", got, edit.want)
				}
				if !checkpoint {
					// No checkpoint is signed for a verifier to read.
					return
				}
				// The documentation's program names the table and the row.
				row := regexp.MustCompile(` ([a-z]+[0-9]|all|agent:a|new)\b`).FindString(edit.want)
				if got := buildtest.VerifyPy(t, key.public, lines, o.Path); got == "" || !strings.Contains(got, row) {
					t.Errorf("verify.py says %q, want %q", got, row)
				}
			})
		}
	}
}

// linesOf returns all records of a store.
func linesOf(t *testing.T, s *Store) (lines [][]byte) {
	t.Helper()
	err := s.EachLine(t.Context(), 0, func(_ uint64, line []byte) error {
		lines = append(lines, slices.Clone(line))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return lines
}

// reseal seals all rows of a stopped database as they are, as somebody with the key can.
func reseal(t *testing.T, path string) {
	t.Helper()
	w, err := db.OpenWriter(path)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	version, newest, err := schema().Versions(w.Conn)
	if err == nil {
		key := rowseal.Key{Key: make([]byte, 32), Accept: true}
		_, err = key.Settle(t.Context(), w, version, newest, func(seal func() error) error { return w.Together(seal) })
	}
	if err == nil {
		err = w.Run(`DELETE FROM main.meta WHERE key IN ('rows-sealed', 'records-sealed-from')`)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// An exchange that ends and is opened again after the newest checkpoint does not keep the daemon
// from starting. An edit of the row does.
func TestReopenedRowStarts(t *testing.T) {
	for _, edited := range []bool{false, true} {
		o := foldOptions(t)
		s := open(t, o)
		e := exchange("agent-alice-1", "e1", "c-e1")
		commit(t, s, with(&Exchange{Exchange: e}))
		if err := s.Sign(); err != nil {
			t.Fatal(err)
		}
		ended := e
		ended.Outcome = ocip.Escalated
		commit(t, s, with(&Exchange{Exchange: ended}))
		e.Round = 3
		commit(t, s, with(&Exchange{Exchange: e}))
		shut(t, s)
		want := ""
		if edited {
			change(t, o.Path, `UPDATE exchanges SET state = json_set(state, '$.round', 2) WHERE id = 'e1'`)
			reseal(t, o.Path)
			want = "exchange e1"
		}
		if got := faultOf(t, o); got != want && (want == "" || !strings.Contains(got, want)) {
			t.Errorf("edited %t: the start says %q, want %q", edited, got, want)
		}
	}
}

// The list of open exchanges has no seals. A start that finds it wrong makes it anew, and the state that
// the daemon signs has all open exchanges.
func TestListOfOpenExchangesIsMadeAnew(t *testing.T) {
	o := foldOptions(t)
	s := open(t, o)
	for _, id := range []string{"e1", "e2", "e3"} {
		commit(t, s, with(&Exchange{Exchange: exchange("agent-alice-1", id, "c-"+id)}))
	}
	shut(t, s)
	for _, edit := range []string{`DELETE FROM listed_exchanges`, `DELETE FROM listed_exchanges WHERE id = 'e2'`, `INSERT INTO listed_exchanges VALUES ('e9', 'nobody')`} {
		change(t, o.Path, edit)
		s = open(t, o)
		wantFold(t, s)
		further := exchange("agent-alice-1", "e2", "c-e2")
		further.Round++
		commit(t, s, with(&Exchange{Exchange: further}))
		if err := s.Sign(); err != nil {
			t.Fatal(edit, err)
		}
		wantFold(t, s)
		shut(t, s)
	}
	core, logged := observer.New(zap.WarnLevel)
	o.Log = zap.New(core)
	shut(t, open(t, o))
	if logged.Len() > 0 {
		t.Errorf("the start after it warns: %v", logged.All())
	}
}

// Old rows of a table that are put back with their valid old seals are found.
func TestOldRowsAreFoundAtTheStart(t *testing.T) {
	for _, table := range []string{"exchanges", "escalations", "approvals", "commitment_grants", "paused", "releases", "tasks", "effects", "task_parts", "task_deps", "grants", "lanes", "used_signatures"} {
		for _, checkpoint := range []bool{false, true} {
			t.Run(fmt.Sprint(table, checkpoint), func(t *testing.T) {
				o := foldOptions(t)
				shut(t, lived(t, o))
				rows := readAll(t, o.Path, table)
				s := open(t, o)
				e := exchange("agent-alice-1", "e1", "c-e1")
				e.Round, e.Outcome = 4, ocip.Resolved
				commit(t, s, with(&Exchange{Exchange: e}, laneTaken(3), UsedSignature{Act: SignedSettlement("sha256:1")}, Settled(PairOf("a", "b")), Resumed("all"), GrantEnded("g1"),
					&Release{Approval: "r1", AppID: "app", State: ReleaseAbandoned, ExpiresAt: someTime, From: ReleaseClaimed, FromClaim: "c"}, &Approval{ID: "a1", Kind: "message", Agent: "a", State: "denied", ExpiresAt: someTime},
					taskStep{phase: "completed", state: "done", runs: 1}.part("t1", 3), taskStep{phase: "completed", state: "done", runs: 2}.part("t2", 3),
					Rows{Put: func(tx *db.Writer) error { return tx.Put("a dependency", "task_deps", db.Text("t5"), db.Text("t1")) }, Folded: &FoldedRow{fold.Tasks, "t5", dependent()}},
					Rows{Put: func(tx *db.Writer) error {
						return tx.Put("a task", "tasks", db.Text("t5"), db.Text("acme"), db.Text("executing"), db.Bool(true), db.Int(0), db.Null(), db.Int(0), db.Int(0), db.Int(0), db.Int(1), db.Text(""), db.Text("{}"))
					}},
					actorGrant("k1", `{"actor":"claude","holder":{"uid":7},"revoked_at":"2026-01-01T00:00:00Z","role":"executor"}`)))
				if checkpoint {
					if err := s.Sign(); err != nil {
						t.Fatal(err)
					}
				}
				shut(t, s)
				if got := faultOf(t, o); got != "" {
					t.Fatalf("before: %s", got)
				}
				putBack(t, o.Path, table, rows)
				if table == "exchanges" && checkpoint {
					if found := sweptOf(t, o); found != table {
						t.Errorf("found altered are %q, want one of %s", found, table)
					}
				} else if got := faultOf(t, o); !strings.Contains(got, "record") {
					t.Errorf("the start says %q", got)
				}
			})
		}
	}
}

// dependent returns a task that depends only on t1.
func dependent() fold.Row {
	var parts fold.Parts
	parts.Dependencies([]string{"t1"})
	return foldrows.Task("acme", "executing", 1, &parts)
}

// readAll returns the rows of a table, each as SQL values.
func readAll(t *testing.T, path, table string) (rows []string) {
	t.Helper()
	conn, err := sqlite.OpenConn(path, sqlite.OpenReadWrite)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	var columns []string
	collect := func(into *[]string) *sqlitex.ExecOptions {
		return &sqlitex.ExecOptions{ResultFunc: func(stmt *sqlite.Stmt) error { *into = append(*into, stmt.ColumnText(0)); return nil }}
	}
	if err := sqlitex.ExecuteTransient(conn, `SELECT 'quote(' || name || ')' FROM pragma_table_info('`+table+`')`, collect(&columns)); err != nil {
		t.Fatal(err)
	}
	if err := sqlitex.ExecuteTransient(conn, `SELECT `+strings.Join(columns, ` || ', ' || `)+` FROM `+table, collect(&rows)); err != nil {
		t.Fatal(err)
	}
	return rows
}

// putBack replaces all rows of a table.
func putBack(t *testing.T, path, table string, rows []string) {
	t.Helper()
	script := `DELETE FROM ` + table + `;`
	for _, row := range rows {
		script += `INSERT INTO ` + table + ` VALUES (` + row + `);`
	}
	change(t, path, script)
}

// A row that is edited while the daemon runs is not used when it is read.
func TestEditedRowIsNotReadAsItWas(t *testing.T) {
	o := foldOptions(t)
	s := lived(t, o)
	defer shut(t, s)
	change(t, o.Path, `UPDATE exchanges SET state = json_set(state, '$.round', 1) WHERE id = 'e1'; UPDATE approvals SET state = 'pending' WHERE id = 'a3';
		UPDATE commitment_grants SET uses = 0 WHERE id = 'g1'; UPDATE releases SET state = 'ready' WHERE approval = 'r1'; DELETE FROM exchanges WHERE id = 'e2';
		UPDATE exchanges SET outcome = 'in_progress' WHERE id = 'e3'; UPDATE commitment_grants SET state = 'in_force' WHERE id = 'g2'`)
	reseal(t, o.Path)
	for name, read := range map[string]func() error{
		"exchange": func() error { _, err := s.Exchange(t.Context(), "agent-alice-1", "e1"); return err },
		"conversation": func() error {
			_, err := s.ExchangeByConversation(t.Context(), "agent-alice-1", "c-e1")
			return err
		},
		"one that is gone": func() error { _, err := s.Exchange(t.Context(), "agent-alice-1", "e2"); return err },
		"approval":         func() error { _, err := s.Approval(t.Context(), "a3"); return err },
		"grant":            func() error { _, err := s.CommitmentGrant(t.Context(), "g1"); return err },
		// These have ended, and the rows claim that they are open.
		"ended exchange":         func() error { _, err := s.Exchange(t.Context(), "agent-alice-1", "e3"); return err },
		"revoked grant":          func() error { _, err := s.CommitmentGrant(t.Context(), "g2"); return err },
		"use of a grant":         func() error { return useOf(s, "g1") },
		"use of a revoked grant": func() error { return useOf(s, "g2") },
		"release":                func() error { _, err := s.Release(t.Context(), "r1"); return err },
	} {
		if _, altered := errors.AsType[*AlteredError](read()); !altered {
			t.Errorf("%s: %v", name, read())
		}
	}
	if _, err := s.Approval(t.Context(), "a2"); err != nil {
		t.Error(err)
	}
}

func useOf(s *Store, grant string) error {
	_, err := s.Commit(&Change{Records: []*audit.Record{{ID: "x", ActionType: audit.ActionExchange, Side: audit.SideSender, PolicyResult: audit.ResultAllow}}, Parts: []Part{GrantUse{ID: grant, At: someTime}}})
	return err
}

// A log without statements about rows, such as an earlier version's, adopts them once. From then on
// they are compared with it.
func TestRowsOfBeforeAreAdopted(t *testing.T) {
	o := foldOptions(t)
	s := open(t, o)
	commit(t, s, noted("n"))
	shut(t, s)
	change(t, o.Path, `INSERT INTO paused (scope, at, by) VALUES ('all', 7, 'p'); INSERT INTO escalations (first, second, exchange_id, opened_at) VALUES ('a', 'b', 'e', 7)`)
	reseal(t, o.Path)
	s = open(t, o)
	head := s.Head()
	if lines, _, err := s.LinesAfter(t.Context(), head.Seq-2); err != nil || len(lines) != 2 || !strings.Contains(string(lines[0]), `"event":"state_adopted"`) || !strings.Contains(string(lines[1]), `"state":[`) {
		t.Errorf("the log ends with %s, %v", lines, err)
	}
	wantFold(t, s)
	shut(t, s)
	s = open(t, o)
	if s.Head() != head {
		t.Error("the rows were adopted twice")
	}
	shut(t, s)
	change(t, o.Path, `UPDATE paused SET at = 8`)
	reseal(t, o.Path)
	if got := faultOf(t, o); !strings.Contains(got, "the row says at 8") {
		t.Errorf("the start says %q", got)
	}
}

// Changes that were rolled back are not folded.
func TestFoldAfterRollback(t *testing.T) {
	s := open(t, foldOptions(t))
	defer shut(t, s)
	boom := errors.New("boom")
	if _, err := s.Commit(with(Paused{Scope: "all", At: someTime}, Rows{Put: func(*db.Writer) error { return boom }})); !errors.Is(err, boom) {
		t.Fatal(err)
	}
	if row, _ := s.state.Get(fold.Paused, []string{"all"}); row != nil {
		t.Error("a pause that was not written is folded")
	}
	commit(t, s, with(Paused{Scope: "all", At: someTime}))
	wantFold(t, s)
}

// If an operator accepts the rows as they are, the log adopts them again.
func TestAcceptedRowsAreAdopted(t *testing.T) {
	o := foldOptions(t)
	s := lived(t, o)
	if err := s.Sign(); err != nil {
		t.Fatal(err)
	}
	shut(t, s)
	change(t, o.Path, `UPDATE exchanges SET state = json_set(state, '$.round', 1) WHERE id = 'e1'; DELETE FROM paused`)
	o.RowKey = func() (*rowseal.Key, error) { return &rowseal.Key{Key: make([]byte, 32), Accept: true}, nil }
	s = open(t, o)
	wantFold(t, s)
	if e, err := s.Exchange(t.Context(), "agent-alice-1", "e1"); err != nil || e.Round != 1 {
		t.Errorf("%+v, %v", e, err)
	}
	shut(t, s)
}

// That rows were accepted is believed from the operator alone, in the same start: a sealed row that
// says so has no effect.
func TestDatabaseAcceptsNoRowsItself(t *testing.T) {
	o := foldOptions(t)
	s := lived(t, o)
	if err := s.Sign(); err != nil {
		t.Fatal(err)
	}
	shut(t, s)
	change(t, o.Path, `DELETE FROM paused; INSERT INTO meta (key, value, seal) VALUES ('rows-sealed', CAST('accepted' AS BLOB), x'')`)
	sealed(t, o.Path)
	if s, err := Open(t.Context(), o); err == nil {
		shut(t, s)
		t.Error("the rows are adopted")
	} else if !strings.Contains(err.Error(), "pause of all") {
		t.Error(err)
	}
}

// BenchmarkTakeUp compares 1000 open rows with a log whose last checkpoint is 1000 records ago, and
// with one that is ten times as long. The records are of messages, which nearly all records of a log
// are, or state the changes of their rows, which takes longer to read.
func BenchmarkTakeUp(b *testing.B) {
	for _, bc := range []struct {
		ended  int
		states bool
	}{{0, false}, {0, true}, {20_000, false}, {20_000, true}} {
		ended := bc.ended
		name := "messages"
		if bc.states {
			name = "rows"
		}
		b.Run(fmt.Sprint(ended, "-ended-", name), func(b *testing.B) {
			o, _ := signed(b, b.TempDir())
			s := open(b, o)
			defer shut(b, s)
			expires := time.Now().Add(time.Hour)
			write := func(n int, outcome ocip.Outcome, from int) {
				for i := 0; i < n; {
					c := new(Change)
					for ; i < n && len(c.Records) < 64; i++ {
						e := exchange("agent-alice-1", fmt.Sprintf("018f0000-0000-7000-8000-%012d", from+i), "c")
						e.Outcome, e.ExpiresAt = outcome, expires
						c.Records = append(c.Records, &audit.Record{ID: "x", ActionType: audit.ActionExchange, AgentID: e.Agent, ExchangeID: e.ID, ConversationID: "c", Round: 1, MaxRounds: 3, ExchangeType: string(e.Type), Outcome: string(outcome), PolicyResult: audit.ResultAllow})
						c.Add(&Exchange{Exchange: e})
					}
					commit(b, s, c)
				}
			}
			write(ended, ocip.Resolved, 100_000)
			write(1000, ocip.InProgress, 0)
			if err := s.Sign(); err != nil {
				b.Fatal(err)
			}
			for i := range 1000 {
				e := exchange("agent-alice-1", fmt.Sprintf("018f0000-0000-7000-8000-%012d", i), "c")
				e.Round, e.ExpiresAt = 2, expires
				r := &audit.Record{ID: "x", ActionType: audit.ActionExchange}
				if !bc.states {
					r.AgentID, r.ExchangeID, r.ConversationID, r.Round, r.MaxRounds = e.Agent, e.ID, "c", e.Round, 3
					r.ExchangeType, r.Outcome, r.PolicyResult = string(e.Type), string(e.Outcome), audit.ResultAllow
				}
				commit(b, s, &Change{Records: []*audit.Record{r}, Parts: []Part{&Exchange{Exchange: e}}})
			}
			for b.Loop() {
				if adopt, err := foldrows.TakeUp(b.Context(), s.db, s.Log, fold.NewSet(), s.clock(), false, s.logger); adopt || err != nil {
					b.Fatal(adopt, err)
				}
			}
		})
	}
}

// sealed seals all rows of a closed database as they are.
func sealed(t *testing.T, path string) {
	t.Helper()
	w, err := db.OpenWriter(path)
	if err == nil {
		var seals *db.Seals
		if seals, err = db.NewSeals(w.Conn, make([]byte, 32), rowseal.Tables(), false); err == nil {
			err = w.Together(func() error { return seals.SealAll(w) })
		}
		err = errors.Join(err, w.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
}

// A row that somebody without the key has written gets no seal, although the log has some of its
// columns: it is named, and counts for nothing in the new database.
func TestRowsOfOthersStayUnsealed(t *testing.T) {
	o := foldOptions(t)
	s := lived(t, o)
	if err := s.Sign(); err != nil {
		t.Fatal(err)
	}
	shut(t, s)
	change(t, o.Path, `UPDATE grants SET body = json_set(body, '$.agent', 'x', '$.tenant', 'globex', '$.role', 'operator') WHERE id = 'k1';
		UPDATE commitment_grants SET body = '{"words":["promise"]}', uses = 0 WHERE id = 'g1'; DELETE FROM escalations; UPDATE exchanges SET counterparty = 'x' WHERE id = 'e1';
		UPDATE tasks SET phase = 'executing', head = json_set(head, '$.phase', 'executing', '$.title', 'x') WHERE id = 't1'`)
	r, err := OpenReader(t.Context(), o.Path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	path := filepath.Join(t.TempDir(), "new.db")
	made, err := r.Rebuild(t.Context(), path, make([]byte, 32))
	if err != nil || len(made.Left) > 0 {
		t.Fatalf("left are %s, %v", foldrows.Words(made.Left), err)
	}
	var altered []string
	for _, row := range made.Altered {
		altered = append(altered, row.Table+" "+row.Key)
	}
	// The counterparty of an exchange is not on record: nothing but the seal shows its edit.
	if want := []string{"commitment_grants g1", "escalations agent-alice-1 x", "exchanges agent-alice-1 e1", "grants k1", "tasks t1"}; !slices.Equal(altered, want) {
		t.Errorf("altered are %q, want %q", altered, want)
	}
	o.Path = path
	s = open(t, o)
	defer shut(t, s)
	wantFold(t, s)
	wantAltered := func(what string, err error) {
		t.Helper()
		if _, altered := errors.AsType[*AlteredError](err); !altered {
			t.Errorf("%s is used: %v", what, err)
		}
	}
	_, err = s.CommitmentGrant(t.Context(), "g1")
	wantAltered("the grant", err)
	for what, query := range map[string]string{"the token": `SELECT body FROM grants WHERE id = 'k1'`, "the task": `SELECT head FROM tasks WHERE id = 't1'`, "the escalation": `SELECT exchange_id FROM escalations`} {
		_, err = db.Row(t.Context(), s.db, what, query, nil, db.ScanText)
		wantAltered(what, err)
	}
}

// Edited and added rows are corrected by the log in a new database with which the daemon starts; a
// missing request is named.
func TestRowsAreMadeAnew(t *testing.T) {
	o := foldOptions(t)
	s := lived(t, o)
	if err := s.Sign(); err != nil {
		t.Fatal(err)
	}
	shut(t, s)
	edits := `UPDATE exchanges SET state = json_set(state, '$.round', 1), expires_at = 7, conversation_id = 'x' WHERE id = 'e1';
		UPDATE exchanges SET outcome = 'resolved' WHERE id = 'e2'; UPDATE exchanges SET outcome = 'in_progress' WHERE id = 'e3';
		DELETE FROM escalations; INSERT INTO escalations VALUES ('x', 'y', 'e9', 0, x'');
		UPDATE approvals SET state = 'denied', asked = '', expires_at = 1, body = '{"digest":"x"}', summary = '{"given":7}' WHERE id = 'a1'; UPDATE approvals SET state = 'pending' WHERE id = 'a3';
		UPDATE commitment_grants SET uses = -100, max_uses = 0, until = 9e12 WHERE id = 'g1'; UPDATE commitment_grants SET state = 'in_force' WHERE id = 'g2';
		UPDATE paused SET at = 1; INSERT INTO paused VALUES ('agent:z', 1, 'x', x'');
		UPDATE releases SET state = 'ready', expires_at = 1 WHERE approval = 'r1'; INSERT INTO releases SELECT 'r9', app_id, 'claimed', claim, request_key, expires_at, origin, data, record_seq, seal FROM releases WHERE approval = 'r2';
		UPDATE tasks SET phase = 'executing', seq = 1, tenant = 'other', head = json_set(head, '$.phase', 'executing', '$.seq', 1) WHERE id = 't1'; UPDATE tasks SET is_open = 1, phase = 'executing' WHERE id = 't4';
		UPDATE grants SET body = json_set(body, '$.role', 'operator', '$.actor', 'x'), task_id = 'x' WHERE id = 'k1'`
	change(t, o.Path, edits)
	// Rows of before have seals that were good.
	sealed(t, o.Path)
	rebuilt := func(more string) (differed, left []fold.Difference, path string) {
		t.Helper()
		change(t, o.Path, more)
		r, err := OpenReader(t.Context(), o.Path)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		path = filepath.Join(t.TempDir(), "new.db")
		made, err := r.Rebuild(t.Context(), path, make([]byte, 32))
		if err != nil {
			t.Fatal(err)
		}
		return made.Differed, made.Left, path
	}
	differed, left, path := rebuilt(`SELECT 1`)
	if len(differed) < 23 || len(left) > 0 {
		t.Errorf("%d differed, left are %s", len(differed), foldrows.Words(left))
	}
	again := o
	again.Path = path
	s = open(t, again)
	wantFold(t, s)
	if e, err := s.Exchange(t.Context(), "agent-alice-1", "e1"); err != nil || e.Round != 3 || e.Counterparty != "agent-bob-1" || len(e.Transcript) != 1 {
		t.Errorf("%+v, %v", e, err)
	}
	for _, want := range []struct{ query, row string }{
		{`SELECT tenant || ' ' || phase || ' ' || is_open || ' ' || seq || ' ' || head FROM tasks WHERE id = 't1'`, `acme ready_to_resume 1 2 {"phase":"ready_to_resume","seq":2,"task_id":"t1","tenant_id":"acme"}`},
		{`SELECT phase || ' ' || is_open FROM tasks WHERE id = 't4'`, `failed 0`},
		{`SELECT task_id || ' ' || body FROM grants WHERE id = 'k1'`, `t1 {"actor":"claude","holder":{"uid":7},"role":"executor"}`},
	} {
		if got, err := db.Row(t.Context(), s.db, "the row", want.query, nil, db.ScanText); err != nil || got != want.row {
			t.Errorf("%s is %s, want %s, %v", want.query, got, want.row, err)
		}
	}
	if altered, err := s.CheckRows(t.Context()); err != nil || altered != 0 {
		t.Errorf("%d rows are altered, %v", altered, err)
	}
	shut(t, s)
	if _, left, _ := rebuilt(`DELETE FROM approvals WHERE id = 'a2'`); len(left) != 1 || !strings.Contains(left[0].String(), "approval a2: there is no such row") {
		t.Errorf("left are %s", foldrows.Words(left))
	}
	// The parts of a task are on record only as digests: the command names them, and cannot make
	// them.
	if _, left, _ := rebuilt(`UPDATE effects SET body = json_set(body, '$.state', 'planned') WHERE task_id = 't1'`); !slices.ContainsFunc(left, func(d fold.Difference) bool { return strings.HasPrefix(d.String(), "task t1: the row says parts ") }) {
		t.Errorf("left are %s", foldrows.Words(left))
	}
}
