package approval_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/approval"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/ocip"
	"github.com/openclawos/ocipd/internal/store"
	"github.com/openclawos/ocipd/internal/store/db"
	"go.uber.org/zap"
)

const hour = time.Hour

// world is requests over a real store, about subjects that only report their calls.
type world struct {
	t *testing.T
	*approval.Requests
	store *store.Store
	path  string
	rules approval.Rules
	now   atomic.Int64
	ids   atomic.Int64
	lock  sync.Mutex

	// effect is the effect of an approval, blocked why it is impossible, and failing why a release
	// fails.
	effect, blocked string
	needed          int
	failing         error
	// asks, if set, is the question that must be answered before a release.
	asks   approval.Unanswered
	answer any
	// did lists the subjects' calls, and told the outcomes for the apps that asked.
	did, told []string
	// altered has the tables of altered rows.
	altered chan string
}

func open(t *testing.T) *world {
	t.Helper()
	o := &world{t: t, path: filepath.Join(t.TempDir(), "ocipd.db"), effect: "deploy", needed: 1, altered: make(chan string, 8)}
	o.now.Store(1_000_000)
	o.rules.Subject = func(r *approval.Request) (approval.Subject, error) { return &effect{o, r}, nil }
	o.start()
	t.Cleanup(func() { _ = o.store.Close() })
	return o
}

func (o *world) start() {
	o.t.Helper()
	var err error
	o.store, err = store.Open(o.t.Context(), store.Options{Path: o.path, Clock: o.clock, Log: zap.NewNop(), Altered: func(table, _ string) *store.Change {
		o.altered <- table
		return &store.Change{Records: []*audit.Record{{ID: o.newID(), ActionType: audit.ActionSecurity, Event: "altered_row"}}}
	}})
	if err != nil {
		o.t.Fatal(err)
	}
	o.Requests, err = approval.New(o.t.Context(), approval.Options{
		Store: o.store, Commit: o.store.Commit, Now: o.clock,
		Search: func(ctx context.Context, f audit.Filter, before uint64, limit int) ([][]byte, uint64, error) {
			return o.store.Query(ctx, f, 0, before, limit)
		},
		Keyed:   func(tenant, text string) (string, error) { return "keyed:" + tenant + "/" + text, nil },
		Answers: func(tenant, asked string) (string, error) { return "answers:" + tenant + "/" + asked, nil },
		NewID:   o.newID,
	})
	if err != nil {
		o.t.Fatal(err)
	}
}

func (o *world) newID() string        { return fmt.Sprintf("id-%06d", o.ids.Add(1)) }
func (o *world) clock() time.Time     { return time.UnixMilli(o.now.Load()) }
func (o *world) pass(d time.Duration) { o.now.Add(d.Milliseconds()) }

// ask makes a request that waits for an hour.
func (o *world) ask(what string) *approval.Request {
	o.t.Helper()
	r := &approval.Request{Asked: approval.Asked("effect", what)}
	r.ApprovalID, r.Kind, r.Agent, r.AppID, r.Content = o.newID(), "effect", "builder-1", "@acme/builder", what
	r.AskedAt, r.ExpiresAt, r.Needed = o.now.Load(), o.clock().Add(hour).UnixMilli(), o.needed
	s := &effect{o, r}
	if err := s.Preview(o.t.Context(), o.clock()); err != nil {
		o.t.Fatal(err)
	}
	change := &store.Change{Records: []*audit.Record{{ID: o.newID(), ActionType: audit.ActionApproval, Event: "asked"}}}
	if err := o.Add(r, s, change); err != nil {
		o.t.Fatal(err)
	}
	if _, err := o.store.Commit(change); err != nil {
		o.t.Fatal(err)
	}
	return r
}

// decide is one person's decision about what is shown now.
func (o *world) decide(uid uint32, what, id string) (api.ApprovalResolveResult, error) {
	o.t.Helper()
	r, err := o.Get(o.t.Context(), id)
	if err != nil {
		o.t.Fatal(err)
	}
	return o.says(uid, &api.ApprovalResolveParams{ApprovalID: id, Decision: what, Digest: r.Digest})
}

func (o *world) says(uid uint32, p *api.ApprovalResolveParams) (api.ApprovalResolveResult, error) {
	return o.Under(o.rules).Resolve(o.t.Context(), person{uid: uid}, p)
}

// conflict expects an obstacle.
func (o *world) conflict(err error, code ocip.Code) api.Obstacle {
	o.t.Helper()
	obstacle := api.DetailsOf[api.Obstacle](err)
	if api.AsError(err).Code != api.Conflict || obstacle.Code != code {
		o.t.Errorf("it is %v (%+v), want %s", err, obstacle, code)
	}
	return obstacle
}

func (o *world) want(did ...string) {
	o.t.Helper()
	if !slices.Equal(o.did, did) {
		o.t.Errorf("what was done is %q, want %q", o.did, did)
	}
}

// effect is a subject that an approval runs.
type effect struct {
	o *world
	r *approval.Request
}

func (s *effect) Lock() func() { s.o.lock.Lock(); return s.o.lock.Unlock }

func (s *effect) Takes(decision string) error {
	if decision == api.DecideTakeover {
		return api.Obstacle{}.Conflict(api.ApprovalBlocked, "an effect is not taken over")
	}
	return nil
}

func (s *effect) Preview(context.Context, time.Time) error {
	s.r.Summary, s.r.Blocked, s.r.Needed, s.r.Approvable = s.o.effect, s.o.blocked, s.o.needed, s.o.blocked == ""
	return nil
}

func (s *effect) Shown() approval.View {
	return approval.View{Asked: []string{s.r.Content}, Effect: s.r.Summary, Approvable: "may run", Refused: "it may not run any more", Instead: "cancel it"}
}

func (s *effect) Release(_ context.Context, d *approval.Decision) error {
	if s.o.failing != nil {
		return s.o.failing
	}
	if s.o.asks != nil && d.Answer != s.o.answer {
		return s.o.asks
	}
	if err := d.Conclude(api.ApprovalApproved, nil); err != nil {
		return err
	}
	if _, err := s.o.store.Commit(d.Change); err != nil {
		return err
	}
	s.o.did = append(s.o.did, "ran "+s.r.Content)
	return nil
}

func (s *effect) End(_ context.Context, _ *approval.Decision, state string) error {
	s.o.did = append(s.o.did, state+" "+s.r.Content)
	return nil
}

func (s *effect) Record() *audit.Record {
	return &audit.Record{AgentID: s.r.Agent, TenantID: "acme", ApprovalID: s.r.ApprovalID}
}

func (s *effect) Tell(change *store.Change, outcome api.ApprovalOutcome) error {
	change.OnDurable(func(store.Receipt) { s.o.told = append(s.o.told, outcome.Resolution) })
	return nil
}

// person is a user of the operator socket.
type person struct {
	api.Peer
	uid uint32
}

func (p person) Credentials() (uid, gid uint32, pid int32) { return p.uid, p.uid, 1 }

// signers accept "NAME signs TEXT" as a signature of the names that they list.
type signers []string

func (s signers) Verify(armored, text []byte, _ time.Time) (principal, fingerprint string, err error) {
	name, signed, _ := strings.Cut(string(armored), " signs ")
	if !slices.Contains(s, name) || signed != string(text) {
		return "", "", errors.New("not of a listed key")
	}
	return name, "SHA256:" + name, nil
}

// An approval takes the needed number of people, each once, and a decision is final.
func TestQuorum(t *testing.T) {
	o := open(t)
	o.needed = 2
	r := o.ask("deploy staging")
	if got, err := o.decide(1, api.DecideApprove, r.ApprovalID); err != nil || got.State != api.ApprovalPending || got.Given != 1 || got.AuditSeq == 0 {
		t.Errorf("the first: %+v, %v", got, err)
	}
	_, err := o.decide(1, api.DecideApprove, r.ApprovalID)
	o.conflict(err, api.ApprovedTwice)
	o.want()
	if got, err := o.decide(2, api.DecideApprove, r.ApprovalID); err != nil || got.State != api.ApprovalApproved || got.Given != 2 {
		t.Errorf("the second: %+v, %v", got, err)
	}
	for _, what := range []string{api.DecideApprove, api.DecideDeny, api.DecideResolve} {
		_, err = o.decide(3, what, r.ApprovalID)
		if got := o.conflict(err, api.AlreadyDecided); got.State != api.ApprovalApproved || got.By != "uid:2" {
			t.Errorf("%s after it was decided: %+v", what, got)
		}
	}
	o.want("ran deploy staging")
	if len(o.told) != 1 || o.told[0] != api.ApprovalApproved || o.Count() != 0 {
		t.Errorf("who asked heard %q, and %d wait", o.told, o.Count())
	}
	if got, err := o.Get(t.Context(), r.ApprovalID); err != nil || !got.Forgotten || got.Content != "" || len(got.Approvals) != 2 {
		t.Errorf("what stays is %+v, %v", got, err)
	}
}

// A release that needs an answer asks with no lock held, and the decision is taken again with the
// answer. An answer that never fits releases nothing.
func TestOthersAreAskedFirst(t *testing.T) {
	o := open(t)
	r := o.ask("deploy staging")
	asked := 0
	o.answer = "go on"
	o.asks = func(context.Context) (any, error) {
		asked++
		o.lock.Lock()
		defer o.lock.Unlock()
		return "go on", nil
	}
	if got, err := o.decide(1, api.DecideApprove, r.ApprovalID); err != nil || got.State != api.ApprovalApproved || asked != 1 {
		t.Errorf("asked %d times it is %+v, %v", asked, got, err)
	}
	o.want("ran deploy staging")

	r = o.ask("deploy production")
	o.answer = "something else"
	_, err := o.decide(1, api.DecideApprove, r.ApprovalID)
	o.conflict(err, api.ApprovalStale)
	o.asks = func(context.Context) (any, error) { return nil, errors.New("nobody is there") }
	if _, err := o.decide(1, api.DecideApprove, r.ApprovalID); err == nil || err.Error() != "nobody is there" {
		t.Errorf("got %v", err)
	}
	if got, err := o.Get(t.Context(), r.ApprovalID); err != nil || got.State != api.ApprovalPending || got.Given != 0 {
		t.Errorf("it is %+v, %v", got, err)
	}
	o.want("ran deploy staging")
}

// Of many concurrent decisions, one counts.
func TestDecidedOnce(t *testing.T) {
	o := open(t)
	r := o.ask("deploy")
	var (
		all  sync.WaitGroup
		good atomic.Int32
	)
	for i := range 16 {
		all.Go(func() {
			if _, err := o.decide(uint32(i+1), []string{api.DecideApprove, api.DecideDeny}[i%2], r.ApprovalID); err == nil {
				good.Add(1)
			}
		})
	}
	all.Wait()
	if good.Load() != 1 || len(o.did) != 1 || len(o.told) != 1 {
		t.Errorf("%d decided it; what came of it is %q, told %q", good.Load(), o.did, o.told)
	}
}

// If signatures are required, a decision without one is on record and does not count, and neither
// does a signer who was removed from the list.
func TestSignatures(t *testing.T) {
	o := open(t)
	o.needed, o.rules.Signers = 2, signers{"ann", "bob", "eve"}
	r := o.ask("deploy")
	sign := func(name string) (api.ApprovalResolveResult, error) {
		return o.says(1, &api.ApprovalResolveParams{
			ApprovalID: r.ApprovalID, Decision: api.DecideApprove, Digest: r.Digest,
			Signature: name + " signs " + api.SignedText(r.ApprovalID, api.DecideApprove, r.Digest),
		})
	}
	before, err := o.store.LastSeq(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := o.decide(1, api.DecideApprove, r.ApprovalID); api.AsError(err).Code != api.Forbidden {
		t.Errorf("without a signature: %v", err)
	}
	if _, err := sign("mallory"); api.AsError(err).Code != api.Forbidden {
		t.Errorf("signed by nobody listed: %v", err)
	}
	if after, err := o.store.LastSeq(t.Context()); err != nil || after != before+2 {
		t.Errorf("%d of the two are on record, %v", after-before, err)
	}
	if got, err := sign("eve"); err != nil || got.Given != 1 {
		t.Errorf("eve: %+v, %v", got, err)
	}
	o.rules.Signers = signers{"ann", "bob"}
	if got, err := sign("ann"); err != nil || got.Given != 1 || got.State != api.ApprovalPending {
		t.Errorf("ann, once eve is not listed: %+v, %v", got, err)
	}
	if got, err := sign("bob"); err != nil || got.State != api.ApprovalApproved {
		t.Errorf("bob: %+v, %v", got, err)
	}
	o.want("ran deploy")
}

// A signature releases something only if it approves the known content of the request and its
// signer may sign now, regardless of what the record of the decision says was signed.
func TestStillSigned(t *testing.T) {
	for _, decision := range []string{api.DecideApprove, api.DecideDeny} {
		o := open(t)
		o.rules.Signers = signers{"ann"}
		r := o.ask("deploy")
		text := api.SignedText(r.ApprovalID, decision, r.Digest)
		if _, err := o.says(1, &api.ApprovalResolveParams{ApprovalID: r.ApprovalID, Decision: decision, Digest: r.Digest, Signature: "ann signs " + text}); err != nil {
			t.Fatal(err)
		}
		for name, tc := range map[string]struct {
			change  func(e *audit.Entry)
			signers signers
			want    bool
		}{
			"as it was":            {func(*audit.Entry) {}, signers{"ann"}, decision == api.DecideApprove},
			"no signer any more":   {func(*audit.Entry) {}, signers{"bob"}, false},
			"another digest":       {func(e *audit.Entry) { e.Details["digest"] = "sha256:other" }, signers{"ann"}, false},
			"another request":      {func(e *audit.Entry) { e.ApprovalID = "other" }, signers{"ann"}, false},
			"signature of another": {func(e *audit.Entry) { e.Details["signature"] = "ann signs other"; e.Details["signedText"] = "other" }, signers{"ann"}, false},
			"forged to approve":    {func(e *audit.Entry) { e.Event, e.Details["decision"] = api.ApprovalApproved, api.DecideApprove }, signers{"ann"}, decision == api.DecideApprove},
		} {
			e := &audit.Entry{Record: audit.Record{
				ApprovalID: r.ApprovalID, ActionType: audit.ActionApproval, Event: api.ApprovalApproved,
				Details: map[string]any{"decision": decision, "digest": r.Digest, "signature": "ann signs " + text, "signedText": text},
			}}
			tc.change(e)
			rules := o.rules
			rules.Signers = tc.signers
			if got, err := o.Under(rules).StillSigned(t.Context(), e); err != nil || got != tc.want {
				t.Errorf("%s, %s: %v, %v", decision, name, got, err)
			}
		}
	}
}

// An approval is for the shown text. If that has changed, nothing is decided, earlier approvals do
// not count any more, and a person must look again.
func TestAskedAnew(t *testing.T) {
	o := open(t)
	o.needed = 2
	r := o.ask("deploy")
	first := r.Digest
	if _, err := o.decide(1, api.DecideApprove, r.ApprovalID); err != nil {
		t.Fatal(err)
	}
	o.effect = "drop the database"
	_, err := o.decide(2, api.DecideApprove, r.ApprovalID)
	got := o.conflict(err, api.ApprovalStale)
	if len(got.Changed) != 1 || got.Changed[0].Was != "deploy" || got.Changed[0].Now != "drop the database" || got.Digest == first {
		t.Errorf("a person is told %+v", got)
	}
	o.effect = "deploy"
	_, err = o.decide(2, api.DecideApprove, r.ApprovalID)
	if got := o.conflict(err, api.ApprovalStale); got.Digest == first {
		t.Error("a digest that was good once is good again")
	}
	_, err = o.says(2, &api.ApprovalResolveParams{ApprovalID: r.ApprovalID, Decision: api.DecideApprove, Digest: first})
	o.conflict(err, api.ApprovalStale)
	for uid := range uint32(2) {
		if got, err := o.decide(uid, api.DecideApprove, r.ApprovalID); err != nil || got.Given != int(uid)+1 {
			t.Errorf("approved anew: %+v, %v", got, err)
		}
	}
	o.want("ran deploy")

	r = o.ask("again")
	o.blocked = "the disk is read-only"
	_, err = o.decide(1, api.DecideApprove, r.ApprovalID)
	got = o.conflict(err, api.ApprovalStale)
	if want := "something changed since this was held, and it may not run any more: the disk is read-only"; got.Reason != want || len(got.Changed) != 1 || got.Changed[0].Was != "may run" {
		t.Errorf("a person is told %+v", got)
	}
}

// A blocked request names the alternatives, and can be denied.
func TestBlocked(t *testing.T) {
	o := open(t)
	o.blocked = "the disk is read-only"
	r := o.ask("deploy")
	_, err := o.decide(1, api.DecideApprove, r.ApprovalID)
	if got := o.conflict(err, api.ApprovalBlocked); got.Blocked != o.blocked || got.Reason != "this effect cannot be approved: the disk is read-only; cancel it" {
		t.Errorf("a person is told %+v", got)
	}
	_, err = o.decide(1, api.DecideTakeover, r.ApprovalID)
	o.conflict(err, api.ApprovalBlocked)
	if got, err := o.decide(1, api.DecideDeny, r.ApprovalID); err != nil || got.State != api.ApprovalDenied {
		t.Errorf("denied: %+v, %v", got, err)
	}
	o.want("denied deploy")
}

// A release that fails does not change the request.
func TestReleaseFails(t *testing.T) {
	o := open(t)
	r := o.ask("deploy")
	o.failing = errors.New("no such program")
	if _, err := o.decide(1, api.DecideApprove, r.ApprovalID); !errors.Is(err, o.failing) {
		t.Errorf("it is %v", err)
	}
	if got, err := o.Get(t.Context(), r.ApprovalID); err != nil || got.State != api.ApprovalPending || got.Given != 0 || o.Count() != 1 {
		t.Errorf("it is %+v, %v", got, err)
	}
	o.failing = nil
	if got, err := o.decide(1, api.DecideApprove, r.ApprovalID); err != nil || got.State != api.ApprovalApproved {
		t.Errorf("then it is %+v, %v", got, err)
	}
}

// Expiry ends a request, regardless of who looks first, and never approves one.
func TestExpiry(t *testing.T) {
	o := open(t)
	late, swept := o.ask("late"), o.ask("swept")
	o.pass(hour - time.Millisecond)
	if err := o.Under(o.rules).Sweep(t.Context()); err != nil || o.Count() != 2 {
		t.Errorf("before its time %d wait, %v", o.Count(), err)
	}
	o.pass(time.Millisecond)
	_, err := o.decide(1, api.DecideApprove, late.ApprovalID)
	if got := o.conflict(err, api.AlreadyDecided); got.State != api.ApprovalExpired || got.By != "expiry" {
		t.Errorf("who is late is told %+v", got)
	}
	if err := o.Under(o.rules).Sweep(t.Context()); err != nil || o.Count() != 0 {
		t.Errorf("after its time %d wait, %v", o.Count(), err)
	}
	o.want("expired late", "expired swept")
	if got, err := o.Get(t.Context(), swept.ApprovalID); err != nil || got.State != api.ApprovalExpired {
		t.Errorf("it is %+v, %v", got, err)
	}
}

// The places of an agent are counted per kind, also after a restart.
func TestPlaces(t *testing.T) {
	o := open(t)
	r := o.ask("deploy")
	if err := o.store.Close(); err != nil {
		t.Fatal(err)
	}
	o.start()
	if got := o.Waiting(r.Kind, r.Agent, func() string { return r.Asked }); got != r.ApprovalID {
		t.Errorf("after a restart it waits as %q", got)
	}
	like := func(kind, what string) *approval.Request {
		other := *r
		other.ApprovalID, other.Kind, other.Asked = o.newID(), kind, approval.Asked(kind, what)
		return &other
	}
	if o.Reserve(like("effect", "another"), 1) || o.Room(r.Kind, r.Agent, r.Asked, 5) {
		t.Error("there is a place too many")
	}
	message := like(api.ApprovalOfMessage, "hello")
	if !o.Reserve(message, 1) || o.Reserve(like(api.ApprovalOfMessage, "once more"), 1) {
		t.Error("messages are counted with effects")
	}
	o.Free(message)
	if !o.Room(message.Kind, message.Agent, message.Asked, 1) || o.Count() != 1 {
		t.Errorf("%d places are taken", o.Count())
	}
}

// A decision about something else can end a request too: once that is durable, and not before.
func TestEndWith(t *testing.T) {
	o := open(t)
	r := o.ask("deploy")
	end := func(commit func(*store.Change) error) {
		t.Helper()
		change := &store.Change{Last: true}
		seen, err := o.Get(t.Context(), r.ApprovalID)
		if err != nil {
			t.Fatal(err)
		}
		if err := o.Under(o.rules).EndWith(seen, &api.ApprovalDecision{Decision: api.DecideApprove, By: "ann"}, change); err != nil {
			t.Fatal(err)
		}
		if err := commit(change); err != nil {
			t.Fatal(err)
		}
	}
	end(func(*store.Change) error { return nil })
	if got, err := o.Get(t.Context(), r.ApprovalID); err != nil || got.State != api.ApprovalPending || o.Count() != 1 {
		t.Errorf("before it is durable it is %+v, %v", got, err)
	}
	end(func(c *store.Change) error { _, err := o.store.Commit(c); return err })
	if got, err := o.Get(t.Context(), r.ApprovalID); err != nil || got.State != api.ApprovalResolved || got.Decision.By != "ann" || o.Count() != 0 {
		t.Errorf("then it is %+v, %v", got, err)
	}
}

// A watcher gets the pending requests, then the changes.
func TestWatch(t *testing.T) {
	o := open(t)
	first := o.ask("deploy")
	news := make(stream)
	ctx, leave := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- o.Watch(ctx, news) }()
	want := func(id, state string) {
		t.Helper()
		got := <-news
		if id == "" && !got.Caught || id != "" && (got.Approval == nil || got.Approval.ApprovalID != id || got.Approval.State != state) {
			t.Errorf("news of %+v, want %s %s", got, id, state)
		}
	}
	want(first.ApprovalID, api.ApprovalPending)
	want("", "")
	second := o.ask("again")
	want(second.ApprovalID, api.ApprovalPending)
	if _, err := o.decide(1, api.DecideDeny, first.ApprovalID); err != nil {
		t.Fatal(err)
	}
	want(first.ApprovalID, api.ApprovalDenied)
	leave()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("it ends with %v", err)
	}
	list, err := o.List(t.Context(), &api.ApprovalListParams{})
	if err != nil || list.Total != 1 || !strings.Contains(string(list.Approvals[0]), `"approvalId":"`+second.ApprovalID+`"`) {
		t.Errorf("the list is %s, %v", list.Append(nil), err)
	}
}

// A request whose row somebody else has changed, deleted or made unreadable is on record, and ends no
// stream of others.
func TestWatchPassesAlteredRows(t *testing.T) {
	unreadable := func(w *db.Writer, id string) error {
		_, err := w.Amend("a row", "approvals", func(row []db.Value) {
			const body = 8
			row[body] = db.Text(`{"v":77}`)
		}, `id = ?`, db.Text(id))
		return err
	}
	script := func(text string) func(*db.Writer, string) error {
		return func(w *db.Writer, id string) error { return w.Exec("a row", text, db.Text(id)) }
	}
	for what, edit := range map[string]func(w *db.Writer, id string) error{
		"changed": script(`UPDATE main.approvals SET app_id = 'x' WHERE id = ?`), "deleted": script(`DELETE FROM main.approvals WHERE id = ?`), "unreadable": unreadable,
	} {
		o := open(t)
		news, done := make(stream), make(chan error, 1)
		ctx, leave := context.WithCancel(t.Context())
		go func() { done <- o.Watch(ctx, news) }()
		<-news
		// The stream waits for its reader with this one.
		o.ask("first")
		broken := o.ask("of another tenant")
		_, err := o.store.Commit(&store.Change{Records: []*audit.Record{{ID: o.newID(), ActionType: audit.ActionSecurity, Event: "edited"}},
			Parts: []store.Part{store.Rows{Put: func(w *db.Writer) error { return edit(w, broken.ApprovalID) }}}})
		if err != nil {
			t.Fatal(err)
		}
		last := o.ask("last")
		for told := ""; told != last.ApprovalID; {
			select {
			case one := <-news:
				if told = one.Approval.ApprovalID; told == broken.ApprovalID {
					t.Errorf("%s: it is shown", what)
				}
			case err := <-done:
				t.Fatalf("%s: the stream ends: %v", what, err)
			}
		}
		if table := <-o.altered; table != "approvals" {
			t.Errorf("%s: on record is a row of %s", what, table)
		}
		leave()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("%s: it ends with %v", what, err)
		}
	}
}

type stream chan api.ApprovalNews

func (s stream) Send(ctx context.Context, chunks ...any) error {
	for _, chunk := range chunks {
		select {
		case s <- chunk.(api.ApprovalNews):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// The digest of a request cannot be computed without its salt, and the salt is deleted with the
// text.
func TestDigestIsSalted(t *testing.T) {
	o := open(t)
	r := o.ask("pay 500")
	parts := []string{r.ApprovalID, r.Content, r.Summary, r.Code, r.PolicyRevision, r.Blocked, "0"}
	if r.Digest == approval.Digest(parts...) || r.Digest != approval.Digest(append([]string{r.Salt}, parts...)...) || len(r.Salt) != 64 {
		t.Errorf("with the salt %q the digest is %s", r.Salt, r.Digest)
	}
	if _, err := o.decide(1, api.DecideApprove, r.ApprovalID); err != nil {
		t.Fatal(err)
	}
	after, err := o.Get(t.Context(), r.ApprovalID)
	if err != nil || after.Salt != "" || after.Asked != "" || after.Digest != r.Digest {
		t.Errorf("decided it has the salt %q and what was asked for as %q, %v", after.Salt, after.Asked, err)
	}
}

// An expired request that cannot be read does not block others, and is tried again.
func TestSweepPassesWhatItCannotEnd(t *testing.T) {
	o := open(t)
	first := o.ask("first")
	o.pass(time.Minute)
	second := o.ask("second")
	o.pass(2 * hour)
	subject, broken := o.rules.Subject, errors.New("it cannot be read")
	o.rules.Subject = func(r *approval.Request) (approval.Subject, error) {
		if r.ApprovalID == first.ApprovalID {
			return nil, broken
		}
		return subject(r)
	}
	if err := o.Under(o.rules).Sweep(t.Context()); !errors.Is(err, broken) {
		t.Errorf("the sweep says %v", err)
	}
	for r, want := range map[*approval.Request]string{first: api.ApprovalPending, second: api.ApprovalExpired} {
		if got, err := o.Get(t.Context(), r.ApprovalID); err != nil || got.State != want {
			t.Errorf("%s is %s, want %s (%v)", r.ApprovalID, got.State, want, err)
		}
	}
	o.rules.Subject = subject
	if err := o.Under(o.rules).Sweep(t.Context()); err != nil {
		t.Error(err)
	}
	if got, err := o.Get(t.Context(), first.ApprovalID); err != nil || got.State != api.ApprovalExpired {
		t.Errorf("it is %s (%v)", got.State, err)
	}
}
