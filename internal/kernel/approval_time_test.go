package kernel_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/audit/gate"
	"github.com/openclawos/ocipd/internal/kernel"
	"github.com/openclawos/ocipd/internal/kernel/registry"
	"github.com/openclawos/ocipd/internal/ocip"
	"github.com/openclawos/ocipd/internal/store"
)

// waiting runs a test in a world in which commitments wait for a person for so long.
func waiting(t *testing.T, hold, exchange time.Duration, run func(w *world, alice *app)) {
	t.Helper()
	bubble(t, func(c *kernel.Config) {
		c.HoldFor, c.ExpiresAfter, c.AppsMayOperate = hold, exchange, true
		c.Directory.Agents[0].Types = nil
	}, func(w *world) {
		alice := w.register("@acme/alice", api.Capabilities{})
		if _, err := alice.Ready(w.t.Context(), &api.ReadyParams{}); err != nil {
			w.t.Fatal(err)
		}
		run(w, alice)
		alice.Gone()
	})
}

// asks dispatches a message that waits for a person.
func (a *app) asks(content string) api.DispatchResult {
	a.w.t.Helper()
	r, _, err := a.Dispatch(a.w.t.Context(), &api.DispatchParams{
		SessionKey: "telegram:dave", Content: gate.NewText(content), Metadata: api.Object{"exchange": jsontext.Value(`{"new":true,"type":"commitment_request"}`)},
	})
	if err != nil || !r.Held {
		a.w.t.Fatalf("not held: %+v, %v", r, err)
	}
	return r
}

// sees returns what a person sees of a held message.
func (w *world) sees(id string) api.Approval {
	w.t.Helper()
	a, err := w.ApprovalGet(w.t.Context(), &api.ApprovalParams{ApprovalID: id})
	if err != nil {
		w.t.Fatal(err)
	}
	return a
}

// decides returns the result of a person's decision.
func (w *world) decides(what string, saw api.Approval) (string, error) {
	r, err := w.ApprovalResolve(w.t.Context(), somebody{}, &api.ApprovalResolveParams{ApprovalID: saw.ApprovalID, Decision: what, Digest: saw.Digest})
	return r.State, err
}

// conflicts expects that a decision comes too late.
func (w *world) conflicts(err error, code ocip.Code) {
	w.t.Helper()
	e := api.AsError(err)
	if e.Code != api.Conflict || api.DetailsOf[api.Obstacle](err).Code != code {
		w.t.Errorf("got %v with %v, want %s", err, e.Details, code)
	}
}

// outcomes lists the outcomes of its requests that an app was told.
func (l *link) outcomes(t *testing.T) (list []api.ApprovalOutcome) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.events {
		if s.event != api.ApprovalEvent {
			continue
		}
		var o api.ApprovalOutcome
		if err := json.Unmarshal([]byte(s.payload), &o); err != nil {
			t.Fatal(err)
		}
		list = append(list, o)
	}
	return list
}

// Until its last millisecond a held message can be approved, and from then on it has expired,
// regardless of a person's decision and of who looks first: expiry is a decision and never an
// approval.
func TestHoldExpires(t *testing.T) {
	// A sweep looks every minute, so that time is up between two of them.
	const hold = 90 * time.Second
	for _, what := range api.DecisionsOf(api.ApprovalOfMessage) {
		waiting(t, hold, 24*time.Hour, func(w *world, alice *app) {
			last, late := alice.asks("decided at the last moment"), alice.asks("decided too late")
			saw := []api.Approval{w.sees(last.ApprovalID), w.sees(late.ApprovalID)}
			if left := time.UnixMilli(saw[0].ExpiresAt).Sub(w.began); left != hold {
				t.Errorf("it waits for %s", left)
			}
			w.pass(hold - time.Millisecond)
			if state, err := w.decides(what, saw[0]); err != nil || state == api.ApprovalPending || state == api.ApprovalExpired {
				t.Errorf("%s at the last moment: %s, %v", what, state, err)
			}
			w.pass(time.Millisecond)
			_, err := w.decides(what, saw[1])
			w.conflicts(err, "APPROVAL_DECIDED")
			now := w.sees(late.ApprovalID)
			if now.State != api.ApprovalExpired || now.Decision == nil || now.Decision.By != "expiry" || now.DecidedAt != now.ExpiresAt {
				t.Errorf("after %s it is %+v with %+v", what, now.ApprovalSummary, now.Decision)
			}
			w.pass(time.Minute)
			told := alice.link.outcomes(t)
			if len(told) != 2 || told[1].ApprovalID != late.ApprovalID || told[1].Resolution != api.ApprovalExpired || len(told[1].Data) > 0 {
				t.Errorf("the app is told %+v", told)
			}
			r := w.records(audit.Filter{Like: audit.Record{ApprovalID: late.ApprovalID}})
			if len(r) != 2 || r[0].PolicyResult != "require_approval" || r[1].Event != "expired" || r[1].ActionType != audit.ActionApproval || r[1].Details["by"] != "expiry" {
				t.Errorf("on record: %+v", r)
			}
		})
	}
}

// The next sweep ends expired requests, once, without a caller. After that the same bytes are a new
// request.
func TestHoldsAreSwept(t *testing.T) {
	waiting(t, 90*time.Second, 24*time.Hour, func(w *world, alice *app) {
		const n = 150 // more than a page
		var ids []string
		for i := range n {
			ids = append(ids, alice.asks(fmt.Sprint("request ", i)).ApprovalID)
			if i == 99 {
				// As many as may wait; the others follow when these are done.
				w.pass(2 * time.Minute)
			}
		}
		first := alice.asks("request 0")
		if slices.Contains(ids, first.ApprovalID) {
			t.Errorf("asked again after it expired, it waits as %s", first.ApprovalID)
		}
		w.pass(2 * time.Minute)
		open, total, err := w.store.Summaries(w.t.Context(), store.ApprovalFilter{State: api.ApprovalPending}, 10, nil)
		if err != nil || total != 0 {
			t.Errorf("%d still wait: %s, %v", total, open, err)
		}
		w.pass(10 * time.Minute)
		expired := make(map[string]int)
		for _, o := range alice.link.outcomes(t) {
			if o.Resolution == api.ApprovalExpired {
				expired[o.ApprovalID]++
			}
		}
		for _, id := range append(ids, first.ApprovalID) {
			if expired[id] != 1 {
				t.Errorf("%s expired %d times", id, expired[id])
			}
		}
	})
}

// A request waits no longer than its exchange, which ends with it. If the exchange lasts longer, it
// stays with a person.
func TestHoldAndExchangeExpire(t *testing.T) {
	for _, tc := range []struct {
		hold, exchange, lasts time.Duration
		outcome               ocip.Outcome
	}{
		{24 * time.Hour, 10 * time.Minute, 10 * time.Minute, ocip.Expired},
		{10 * time.Minute, 10 * time.Minute, 10 * time.Minute, ocip.Expired},
		{5 * time.Minute, 10 * time.Minute, 5 * time.Minute, ocip.Escalated},
	} {
		waiting(t, tc.hold, tc.exchange, func(w *world, alice *app) {
			held := alice.asks("Can you do it?")
			if lasts := time.UnixMilli(w.sees(held.ApprovalID).ExpiresAt).Sub(w.began); lasts != tc.lasts {
				t.Errorf("it waits for %s, want %s", lasts, tc.lasts)
			}
			w.pass(tc.lasts + time.Minute)
			if now := w.sees(held.ApprovalID); now.State != api.ApprovalExpired {
				t.Errorf("it is %s", now.State)
			}
			e, err := w.store.Exchange(w.t.Context(), "agent-alice-1", held.OCIP.ExchangeID)
			if err != nil || e.Outcome != tc.outcome {
				t.Errorf("the exchange is %s, %v, want %s", e.Outcome, err, tc.outcome)
			}
			for _, r := range w.records(audit.Filter{Like: audit.Record{DispatchID: held.DispatchID}}) {
				if r.PolicyResult == string(ocip.Allow) {
					t.Errorf("it was let go: %+v", r)
				}
			}
		})
	}
}

// The message to be sent stays as it was shown while it waits: only the causal chain begins when a
// person approves it.
func TestHeldMessageKeepsItsDigest(t *testing.T) {
	waiting(t, 24*time.Hour, 48*time.Hour, func(w *world, alice *app) {
		held := alice.asks("Can you do it?")
		saw := w.sees(held.ApprovalID)
		w.pass(5 * time.Hour)
		if now := w.sees(held.ApprovalID); now.Digest != saw.Digest {
			t.Errorf("after a while its digest is %s, was %s", now.Digest, saw.Digest)
		}
		if state, err := w.decides(api.DecideApprove, saw); err != nil || state != api.ApprovalApproved {
			t.Fatalf("%s, %v", state, err)
		}
		page, err := w.store.Messages(w.t.Context(), "channel:telegram", 0, 10)
		if err != nil || len(page) != 1 {
			t.Fatalf("%d messages, %v", len(page), err)
		}
		var m struct {
			Metadata struct {
				OCIPChain struct{ StartedAt time.Time }
				OCIP      jsontext.Value
			}
		}
		_, data, _ := bytes.Cut(page[0].Body, []byte("\n"))
		if err := json.Unmarshal(data, &m, json.MatchCaseInsensitiveNames(true)); err != nil {
			t.Fatal(err)
		}
		if began := m.Metadata.OCIPChain.StartedAt.Sub(w.began); began != 5*time.Hour {
			t.Errorf("the chain began after %s", began)
		}
		e, err := ocip.ParseEnvelope(m.Metadata.OCIP)
		if err != nil {
			t.Fatal(err)
		}
		if left := e.ExpiresAt.Sub(w.began); left != 48*time.Hour || !e.Capabilities.CanCommit || e.MessageType != ocip.AgentAssisted {
			t.Errorf("the envelope is %+v, it expires after %s", e, left)
		}
	})
}

// A half-approved request expires like any other.
func TestHalfAnApprovalExpires(t *testing.T) {
	bubble(t, func(c *kernel.Config) {
		c.HoldFor, c.Approvers, c.AppsMayOperate, c.Directory.Agents[0].Types = 10*time.Minute, 2, true, nil
	}, func(w *world) {
		alice := w.register("@acme/alice", api.Capabilities{})
		held := alice.asks("Can you do it?")
		saw := w.sees(held.ApprovalID)
		if state, err := w.decides(api.DecideApprove, saw); err != nil || state != api.ApprovalPending {
			t.Errorf("%s, %v", state, err)
		}
		w.pass(11 * time.Minute)
		if now := w.sees(held.ApprovalID); now.State != api.ApprovalExpired || now.Given != 1 || now.Decision.By != "expiry" {
			t.Errorf("it is %+v with %+v", now.ApprovalSummary, now.Decision)
		}
		_, err := w.decides(api.DecideApprove, saw)
		w.conflicts(err, "APPROVAL_DECIDED")
		alice.Gone()
	})
}

// A round limit that nobody decided about still stops the two agents, until a person settles it.
func TestRoundLimitOutlivesItsHold(t *testing.T) {
	waiting(t, 10*time.Minute, 24*time.Hour, func(w *world, alice *app) {
		say := func() api.DispatchResult {
			r, _, err := alice.Dispatch(w.t.Context(), &api.DispatchParams{SessionKey: "telegram:dave", Content: gate.NewText("ping")})
			if err != nil {
				t.Fatal(err)
			}
			return r
		}
		for range 3 {
			if r := say(); r.Held {
				t.Fatalf("held: %+v", r.OCIP)
			}
		}
		held := say()
		saw := w.sees(held.ApprovalID)
		_, err := w.decides(api.DecideApprove, saw)
		w.conflicts(err, "APPROVAL_BLOCKED")
		w.pass(11 * time.Minute)
		if now := w.sees(held.ApprovalID); now.State != api.ApprovalExpired {
			t.Errorf("it is %s", now.State)
		}
		if r := say(); !r.Held || r.OCIP.Code != ocip.RoundLimit || r.ApprovalID == held.ApprovalID {
			t.Errorf("after its hold expired: %+v %+v", r, r.OCIP)
		}
		if _, err := w.ExchangeResolve(w.t.Context(), somebody{}, &api.ExchangeResolveParams{ExchangeID: held.OCIP.ExchangeID, Outcome: "resolved"}); err != nil {
			t.Fatal(err)
		}
		if r, _, err := alice.Dispatch(w.t.Context(), &api.DispatchParams{
			SessionKey: "telegram:dave", Content: gate.NewText("anew"), Metadata: api.Object{"exchange": jsontext.Value(`{"new":true}`)},
		}); err != nil || r.Held {
			t.Errorf("after it was settled: %+v, %v", r, err)
		}
	})
}

// An app that is away is told when it comes back, within a week.
func TestOutcomeWaitsForItsApp(t *testing.T) {
	waiting(t, 24*time.Hour, 24*time.Hour, func(w *world, alice *app) {
		held := alice.asks("Can you do it?")
		alice.Gone()
		if _, err := w.decides(api.DecideDeny, w.sees(held.ApprovalID)); err != nil {
			t.Fatal(err)
		}
		page, err := w.store.Messages(w.t.Context(), "app:@acme/alice", 0, 10)
		if err != nil || len(page) != 1 || page[0].ExpiresAt.Sub(w.began) != 7*24*time.Hour {
			t.Fatalf("what waits for it is %+v, %v", page, err)
		}
		w.pass(time.Hour)
		back := w.register("@acme/alice", api.Capabilities{})
		w.pass(time.Second)
		if got := back.link.outcomes(t); len(got) != 0 {
			t.Errorf("told %+v before it is ready", got)
		}
		if _, err := back.Ready(w.t.Context(), &api.ReadyParams{}); err != nil {
			t.Fatal(err)
		}
		w.pass(time.Second)
		if got := back.link.outcomes(t); len(got) != 1 || got[0].ApprovalID != held.ApprovalID || got[0].Resolution != api.ApprovalDenied {
			t.Errorf("it is told %+v", got)
		}
		back.Gone()
	})
}

// other is another person than somebody.
type other struct{ somebody }

func (other) Credentials() (uid, gid uint32, pid int32) { return 2, 2, 1 }

// A half-approved request in the first form of an earlier daemon is asked again: people were not
// shown everything that the digest covers now.
func TestRequestOfTheFirstForm(t *testing.T) {
	bubble(t, func(c *kernel.Config) {
		c.HoldFor, c.Approvers, c.AppsMayOperate, c.Directory.Agents[0].Types = 10*time.Minute, 2, true, nil
	}, func(w *world) {
		alice := w.register("@acme/alice", api.Capabilities{})
		held := alice.asks("Can you do it?")
		row, err := w.store.Approval(w.t.Context(), held.ApprovalID)
		if err != nil {
			t.Fatal(err)
		}
		for name, text := range map[string]*[]byte{"first_summary.json": &row.Summary, "first_body.json": &row.Body} {
			if *text, err = os.ReadFile(filepath.Join("..", "approval", "testdata", name)); err != nil {
				t.Fatal(err)
			}
		}
		record := &audit.Record{ID: "as-before", ActionType: audit.ActionApproval}
		if _, err := w.store.Commit(&store.Change{Records: []*audit.Record{record}, Parts: []store.Part{&row}}); err != nil {
			t.Fatal(err)
		}
		saw := w.sees(held.ApprovalID)
		if saw.Given != 1 || saw.Digest != "sha256:e1785c3b20c6777f987b21ee12b9eeabe0ed0ba601a5dd85685dc5439d78ada6" {
			t.Errorf("it is %+v", saw)
		}
		_, err = w.decides(api.DecideApprove, saw)
		w.conflicts(err, api.ApprovalStale)
		anew := w.sees(held.ApprovalID)
		if anew.Given != 0 || anew.Digest == saw.Digest || anew.Address.Channel != "telegram" || anew.CounterpartyTenantID != "acme-corp" || len(anew.Changed) == 0 {
			t.Errorf("asked anew it is %+v", anew)
		}
		for given, who := range []api.Peer{somebody{}, other{}} {
			r, err := w.ApprovalResolve(w.t.Context(), who, &api.ApprovalResolveParams{ApprovalID: saw.ApprovalID, Decision: api.DecideApprove, Digest: anew.Digest})
			if err != nil || r.Given != given+1 {
				t.Errorf("it is %+v, %v", r, err)
			}
		}
		if page, err := w.store.Messages(w.t.Context(), "channel:telegram", 0, 10); err != nil || len(page) != 1 {
			t.Errorf("%d messages wait for the channel, %v", len(page), err)
		}
		alice.Gone()
	})
}

// A required interceptor that does not answer in time keeps a message back at its release: nothing
// is decided, and its answer counts the next time.
func TestSilenceAtARelease(t *testing.T) {
	bubble(t, func(c *kernel.Config) {
		c.AppsMayOperate, c.Directory.Agents[0].Types = true, nil
		c.HookApps["@acme/dlp"], c.Directory.Required = registry.HookTimes{Required: true}, []string{"@acme/dlp"}
	}, func(w *world) {
		alice, dlp := w.register("@acme/alice", api.Capabilities{}), w.interceptor("@acme/dlp", false)
		dlp.answers(0, "{}")
		saw := w.sees(alice.asks("Can you do it?").ApprovalID)
		began := time.Now()
		_, err := w.decides(api.DecideApprove, saw)
		w.conflicts(err, api.ApprovalBlocked)
		if took := time.Since(began); took != 5*time.Second {
			t.Errorf("the interceptor is waited for %s", took)
		}
		<-dlp.link.arrived
		if now := w.sees(saw.ApprovalID); now.State != api.ApprovalPending || now.Digest != saw.Digest {
			t.Errorf("it is %+v", now)
		}
		dlp.answers(time.Second, "{}")
		if state, err := w.decides(api.DecideApprove, saw); err != nil || state != api.ApprovalApproved {
			t.Errorf("%s, %v", state, err)
		}
		alice.Gone()
		dlp.Gone()
	})
}
