package taskservice

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	lru "github.com/hashicorp/golang-lru/v2"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/approval"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/base/ids"
	"github.com/openclawos/ocipd/internal/store"
	"github.com/openclawos/ocipd/internal/task"
	"github.com/openclawos/ocipd/internal/task/taskapi"
	"github.com/openclawos/ocipd/internal/task/taskstore"
	"go.uber.org/zap"
)

// matrix is who may call what, told once more: O an orchestrator, E an executor, S and Q
// reviewers of specs and of quality, L a lobster, P an operator.
const matrix = `
create OP
get OESQLP
transition OP
start_attempt OP
record_checkpoint OESQL
record_artifact OESQL
append_review SQ
request_approval OLP
resolve_approval OLP
open_circuit OP
list_ready OP
claim OP
update OP
finish_attempt OEP
plan_effect OELP
run_effect OLP
finish_effect OLP
settle_effect P
kill_effect P
cancel_effect OP
close_circuit P
ask_permission ESQ
grant OP
revoke_grant OP
grants P
import P
list P
watch P
`

var letters = map[task.Role]string{
	task.Orchestrator: "O", task.Executor: "E", task.SpecReviewer: "S", task.QualityReviewer: "Q", task.Lobster: "L", task.Operator: "P",
}

func TestMatrix(t *testing.T) {
	want := map[string]string{}
	for line := range strings.Lines(strings.TrimSpace(matrix)) {
		method, who, _ := strings.Cut(strings.TrimSpace(line), " ")
		want["task."+method] = who
	}
	for method, roles := range Matrix() {
		for role, letter := range letters {
			if roles.Has(role) != strings.Contains(want[method], letter) {
				t.Errorf("%s: %s may call it: %v", method, role, roles.Has(role))
			}
		}
		if roles.Has(task.Daemon) {
			t.Errorf("%s is called by nobody", method)
		}
		delete(want, method)
	}
	for _, method := range slices.Sorted(maps.Keys(want)) {
		t.Errorf("%s is not there", method)
	}
	// A tool is what its role may call, and asking for permissions is for bridges.
	for role, letter := range letters {
		for _, name := range ToolsOf(role) {
			if name == "task_ask_permission" || !Matrix()["task."+strings.TrimPrefix(name, "task_")].Has(role) {
				t.Errorf("%s has the tool %s", letter, name)
			}
		}
	}
}

func TestLeases(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	l := leases{until: map[string]time.Time{}}
	l.renew("a", now.Add(time.Second))
	l.renew("b", now.Add(time.Minute))
	if over := l.over(now); len(over) != 0 {
		t.Errorf("over %v", over)
	}
	// It has ended at its end, and not after it.
	if over := l.over(now.Add(time.Second)); !slices.Equal(over, []string{"a"}) {
		t.Errorf("over %v", over)
	}
	l.renew("a", now.Add(2*time.Minute))
	l.end("b")
	if over := l.over(now.Add(time.Minute)); len(over) != 0 || !l.of("b").IsZero() || !l.of("a").Equal(now.Add(2*time.Minute)) {
		t.Errorf("over %v", over)
	}
}

// A watcher is told once, and one that has left is not waited for.
func TestWatchers(t *testing.T) {
	w := watchers{set: map[string]map[chan struct{}]struct{}{}}
	one, leave := w.watch("a")
	two, _ := w.watch("a")
	leave()
	w.tell("a")
	w.tell("a")
	<-two
	select {
	case <-one:
		t.Error("who has left is told")
	default:
	}
	leave()
	if len(w.set) != 0 {
		t.Errorf("left: %v", w.set)
	}
}

// A pause waits for nothing that takes as long as an actor likes, as the digest of a large file.
func TestBuildingHoldsNoPause(t *testing.T) {
	tasks := &Tasks{}
	deciding := 0
	tasks.o.Deciding = func() func() {
		deciding++
		return func() { deciding-- }
	}
	tasks.cache, _ = lru.New[string, *task.Task](1)
	tasks.cache.Add("tsk_a", &task.Task{})
	_, _, err := tasks.act(t.Context(), "tsk_a", &task.Actor{Name: "lead", Role: task.Orchestrator}, func(*task.Task) (task.Command, error) {
		if deciding != 0 {
			t.Error("a pause cannot begin while a command is built")
		}
		return nil, io.EOF
	}, nil)
	if !errors.Is(err, io.EOF) {
		t.Error(err)
	}
}

// A long list takes no room from a short one, and what is left out is named.
func TestFit(t *testing.T) {
	list := func(n, size int) []string {
		l := make([]string, n)
		for i := range l {
			l[i] = strings.Repeat("x", size-2) // and two quotes
		}
		return l
	}
	for _, tc := range []struct {
		room                int
		long, short, none   []string
		wantLong, wantShort int
		more                []string
	}{
		{1000, list(5, 10), list(5, 10), nil, 5, 5, nil},
		{100, list(50, 10), list(2, 10), nil, 8, 2, []string{"long"}},
		{100, list(50, 10), list(50, 10), nil, 5, 5, []string{"long", "short"}},
		{100, list(1, 1000), list(3, 10), nil, 0, 3, []string{"long"}},
		{1 << 20, list(150, 10), nil, nil, newest, 0, []string{"long"}},
	} {
		var long, short, none []string
		more := fit(tc.room, newestOf("long", tc.long, &long), newestOf("short", tc.short, &short), newestOf("none", tc.none, &none))
		if len(long) != tc.wantLong || len(short) != tc.wantShort || none == nil || !slices.Equal(more, tc.more) {
			t.Errorf("%d bytes for %d and %d: %d, %d, %v, more of %v", tc.room, len(tc.long), len(tc.short), len(long), len(short), none, more)
		}
	}
}

// What counts for a task's classification is all that somebody wrote, however deep.
func TestTexts(t *testing.T) {
	const id = "tsk_01a1fe46-d68f-77d6-9611-d5a7674802c7"
	got := texts(task.PlanEffect{Planned: task.Planned{
		Key: "k", Kind: "deployment", RequestedAction: "Deploy", Params: jsontext.Value(`{"to":["ops",{"deep":"down"}],"n":7,"of":"` + id + `"}`),
		Command: &task.Action{Argv: []string{"bin/deploy", "staging"}, Env: map[string]string{"NAME": "value"}, Inputs: []string{"sha256:" + strings.Repeat("0", 64)}},
	}})
	for _, want := range []string{"k", "deployment", "Deploy", "to", "ops", "deep", "down", "bin/deploy", "staging", "NAME", "value"} {
		if !slices.Contains(got, want) {
			t.Errorf("%q is missing in %q", want, got)
		}
	}
	if slices.Contains(got, id) || slices.ContainsFunc(got, func(s string) bool { return strings.HasPrefix(s, "sha256:") }) {
		t.Errorf("ids and digests say nothing: %q", got)
	}
}

// All strings and names of a JSON text are found, and what is no JSON harms nobody.
func FuzzCollectJSON(f *testing.F) {
	for _, seed := range []string{`{"a":["b",{"c":"d"}]}`, `"x"`, `[1,null,true]`, `{"a":"\u0000\ud800"}`, `{`, `{"a":"b","a":"c"}`, "\"\xff\""} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var found []string
		collectJSON(text, &found)
		var value any
		if !jsontext.Value(text).IsValid() || json.Unmarshal(text, &value) != nil {
			return
		}
		var walk func(any)
		want := func(s string) {
			if !saysNothing(s) && !slices.Contains(found, s) {
				t.Errorf("%q: %q is not found in %q", text, s, found)
			}
		}
		walk = func(v any) {
			switch v := v.(type) {
			case string:
				want(v)
			case []any:
				for _, e := range v {
					walk(e)
				}
			case map[string]any:
				for name, e := range v {
					want(name)
					walk(e)
				}
			}
		}
		walk(value)
	})
}

// A line of the log is an event, or none.
func FuzzEventOf(f *testing.F) {
	f.Add([]byte(`{"seq":7,"time":"2026-11-22T09:14:03.120931Z","id":"r","actionType":"task","event":"task.created","taskId":"tsk_1","taskSeq":1,"details":{"was":{"phase":"a"},"now":7,"reason":["x"]}}`))
	f.Add([]byte(`{"actionType":"task"}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		if e, ok := eventOf(line); ok && !strings.Contains(string(line), "task") {
			t.Errorf("%q is the event %+v", line, e)
		}
	})
}

// Without a policy for them, tools that leave the workspace alone need nobody, and
// effects always do.
func TestBuiltIn(t *testing.T) {
	for _, tt := range []struct {
		tool taskapi.ToolCall
		asks bool
	}{
		{taskapi.ToolCall{Kind: "read", InWorkspace: true}, false},
		{taskapi.ToolCall{Kind: "edit", InWorkspace: true}, false},
		{taskapi.ToolCall{Kind: "read"}, true},
		{taskapi.ToolCall{Kind: "execute", InWorkspace: true}, true},
		{taskapi.ToolCall{Kind: "Read", InWorkspace: true}, true},
		{taskapi.ToolCall{Kind: "other", Server: ownServer}, false},
		{taskapi.ToolCall{Kind: "other", Server: "ocipd2"}, true},
	} {
		a := BuiltIn(&Question{Question: task.Question{Action: task.AskPermission}, Tool: &tt.tool})
		if !a.Allow || a.RequireApproval != tt.asks {
			t.Errorf("%+v: %+v", tt.tool, a)
		}
	}
	if a := BuiltIn(&Question{Question: task.Question{Action: task.AskEffect}}); !a.RequireApproval {
		t.Errorf("effect: %+v", a)
	}
}

// A line of a list is cut at the end of a character: what is not UTF-8 cannot be stored.
func TestSummaryIsUTF8(t *testing.T) {
	for cut := range 4 {
		got := summary("", strings.Repeat("x", cut)+strings.Repeat("日本", 40)+"\nmore")
		if !utf8.ValidString(got) || len(got) > maxSummary || strings.Contains(got, "more") {
			t.Errorf("%d bytes, UTF-8: %v: %q", len(got), utf8.ValidString(got), got)
		}
	}
}

// numbered is a log of a task's events, which tells how many lines were asked for at once.
type numbered struct{ events, most int }

func (l *numbered) Query(_ context.Context, _ audit.Filter, before uint64, limit int) (lines [][]byte, next uint64, err error) {
	l.most = max(l.most, limit)
	from := l.events
	if before > 0 {
		from = int(before) - 1
	}
	for n := from; n > 0 && len(lines) < limit; n-- {
		line, err := jsonv2.Marshal(&audit.Entry{Seq: uint64(n), Record: audit.Record{ActionType: audit.ActionTask, TaskSeq: n}})
		if err != nil {
			return nil, 0, err
		}
		lines, next = append(lines, line), uint64(n)
	}
	return lines, next, nil
}

// An actor pages a task's events by their own numbers, and has no more of them read into memory
// at once than it is given.
func TestEventsByTheirNumbers(t *testing.T) {
	log := &numbered{events: 1000}
	own := &Tasks{o: Options{Search: log}}
	at := &task.Task{Head: task.Head{ID: "tsk_1", Seq: log.events}}
	for below, want := range map[int][2]int{301: {101, 300}, 50: {1, 49}, 2: {1, 1}, 2000: {801, 1000}} {
		got, err := own.events(t.Context(), at, 0, below, maxEvents)
		if err != nil || len(got) != want[1]-want[0]+1 || got[0].N != want[0] || got[len(got)-1].N != want[1] {
			t.Errorf("below %d: %d events, %v", below, len(got), err)
		}
	}
	if got, err := own.events(t.Context(), at, 0, 1, maxEvents); err != nil || len(got) > 0 {
		t.Errorf("below the first: %v, %v", got, err)
	}
	if log.most > maxEvents {
		t.Errorf("%d lines are asked for at once", log.most)
	}
}

// A list of tasks is as many as a client can read, whatever their actors have written, and all of
// them are on its pages.
func TestListsFitALine(t *testing.T) {
	rows, err := store.Open(t.Context(), store.Options{Path: filepath.Join(t.TempDir(), "ocipd.db"), Clock: time.Now, Log: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	requests, err := approval.New(t.Context(), approval.Options{Store: rows, Commit: rows.Commit, Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	own := &Tasks{o: Options{Now: time.Now, Approvals: func() *approval.Decider { return requests.Under(approval.Rules{}) }}, rows: taskstore.In(rows)}
	own.config.Store(&Config{Tenants: []string{"acme"}})
	const all = 800
	change := &store.Change{Records: []*audit.Record{{ID: "id-0", ActionType: audit.ActionTask}}}
	for i := range all {
		head := task.Head{ID: fmt.Sprintf("%s01a20361-8e6c-7390-aa3f-%012d", ids.Task, i), Tenant: "acme", Phase: task.SpecDraft, CircuitReason: strings.Repeat("\x01", task.MaxText)}
		text, err := jsonv2.Marshal(&head)
		if err != nil {
			t.Fatal(err)
		}
		change.Add((&taskstore.Task{ID: head.ID, Tenant: head.Tenant, Phase: string(head.Phase), Open: true, ReadyAt: time.UnixMilli(1), Seq: 1, Head: text}).Rows())
	}
	if _, err := rows.Commit(change); err != nil {
		t.Fatal(err)
	}
	s := &Session{t: own}
	fits := func(list *taskapi.List) {
		t.Helper()
		if text, err := jsonv2.Marshal(list); err != nil || len(text) > 3*maxList/2 {
			t.Errorf("a list of %d tasks has %d bytes, %v", len(list.Tasks), len(text), err)
		}
	}
	found := 0
	for p := (taskapi.ListParams{Open: true}); ; {
		list, err := s.List(t.Context(), &p)
		if err != nil {
			t.Fatal(err)
		}
		fits(&list)
		found += len(list.Tasks)
		if p.After = list.Next; p.After == "" {
			break
		}
	}
	if found != all {
		t.Errorf("%d of %d tasks are listed", found, all)
	}
	limit, who := api.MaxPage, &caller{Actor: task.Actor{Name: "lead", Role: task.Orchestrator, Tenant: "acme"}}
	list, err := s.ListReady(context.WithValue(t.Context(), callKey{}, who), &taskapi.ListReadyParams{Limit: &limit})
	if err != nil || len(list.Tasks) == 0 {
		t.Errorf("%d are ready, %v", len(list.Tasks), err)
	}
	fits(&list)
}

// An approval says that its time is over as soon as it is, whether or not anybody has recorded that.
func TestStatusByNow(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	at := []task.Approval{
		{Status: task.ApprovalApproved, ExpiresAt: now}, {Status: task.ApprovalApproved, ExpiresAt: now.Add(1)}, {Status: task.ApprovalApproved, ExpiresAt: now, Used: true},
		{Status: task.ApprovalPending, ExpiresAt: now}, {Status: task.ApprovalRevoked, ExpiresAt: now},
	}
	var got []string
	for _, a := range decided(at, now) {
		got = append(got, a.Status)
	}
	if want := []string{"expired", "approved", "approved", "expired", "revoked"}; !slices.Equal(got, want) || at[0].Status != task.ApprovalApproved {
		t.Errorf("got %q, want %q", got, want)
	}
}
