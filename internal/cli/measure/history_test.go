package measure

import (
	"reflect"
	"testing"
	"time"

	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/ocip"
)

func TestCompare(t *testing.T) {
	texts := []Text{{ID: "1", Text: "one", Commitment: true, Lenient: true}, {ID: "2", Text: "two"}, {ID: "3", Text: "three", Lenient: true}}
	now := []Seen{{Text: &texts[0], Held: true, Names: []string{"promise"}}, {Text: &texts[1]}, {Text: &texts[2], Held: true, Names: []string{"book"}}}
	other := []Seen{{Text: &texts[0]}, {Text: &texts[1], Held: true, Names: []string{"deal"}}, {Text: &texts[2], Held: true, Names: []string{"book"}}}
	c := Compare(now, other)
	if want := (Difference{1, 1, 1, []DifferentQuote{{Quote{ID: "1", Rules: []string{"promise"}, Text: "one"}, true, ""}}}); !reflect.DeepEqual(c.Freed, want) {
		t.Errorf("freed %+v, want %+v", c.Freed, want)
	}
	if want := (Difference{1, 0, 0, []DifferentQuote{{Quote{ID: "2", Rules: []string{"deal"}, Text: "two"}, false, ""}}}); !reflect.DeepEqual(c.Caught, want) {
		t.Errorf("caught %+v, want %+v", c.Caught, want)
	}
	mail := []string{"personal.email"}
	now[0].Level, now[1].Level, now[2].Level = "internal", "public", "restricted"
	other[0].Level, other[1].Level, other[2].Level = "internal", "confidential", "confidential"
	other[1].Findings, now[2].Findings = mail, mail
	leveled := Compare(now, other)
	if want := (Difference{1, 0, 0, []DifferentQuote{{Quote{ID: "2", Rules: mail, Text: "two"}, false, "confidential"}}}); !reflect.DeepEqual(leveled.Raised, want) {
		t.Errorf("raised %+v, want %+v", leveled.Raised, want)
	}
	if want := (Difference{1, 0, 1, []DifferentQuote{{Quote{ID: "3", Rules: mail, Text: "three"}, false, "confidential"}}}); !reflect.DeepEqual(leveled.Lowered, want) {
		t.Errorf("lowered %+v, want %+v", leveled.Lowered, want)
	}
	if same := Compare(now, now); c.Raised.Texts != 0 || c.Same() || !same.Same() {
		t.Errorf("of levels alone %+v, of the same %+v", c.Raised, same)
	}
	if c.Now.Held.Part != 2 || c.Other.Strict.Recall.Part != 0 {
		t.Errorf("reports %+v, %+v", c.Now, c.Other)
	}
}

func TestHistory(t *testing.T) {
	began := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	at := 0
	record := func(r audit.Record) *audit.Entry {
		at++
		return &audit.Entry{Time: began.Add(time.Duration(at) * time.Minute), Record: r}
	}
	held := func(approval string, code ocip.Code, rules ...audit.Detection) *audit.Entry {
		return record(audit.Record{
			ActionType: audit.ActionExchange, Side: audit.SideSender, PolicyResult: audit.ResultApproval,
			ApprovalID: approval, Code: string(code), Detections: rules,
		})
	}
	decided := func(approval, event string) *audit.Entry {
		return record(audit.Record{ActionType: audit.ActionApproval, ApprovalID: approval, Event: event})
	}
	spare := func(e *audit.Entry) *audit.Entry {
		e.Details = map[string]any{spareDetail: true}
		return e
	}
	book := audit.Detection{Rule: "commitment.book"}
	entries := []*audit.Entry{
		// Neither is about a message: an agent's request for a tool, and a person's decision about it.
		record(audit.Record{ActionType: audit.ActionSecurity, Event: "task_permission", PolicyResult: audit.ResultApproval, ApprovalID: "tool"}),
		decided("tool", "approved"),
		held("a", ocip.CommitmentRequiresHuman, book, book, audit.Detection{Rule: "commitment.money", Shadow: true}),
		held("b", ocip.CommitmentRequiresHuman, book, audit.Detection{Rule: "commitment.promise"}),
		held("c", ocip.RoundLimit, book),
		held("d", ocip.CommitmentRequiresHuman, audit.Detection{Rule: "credential.assignment"}),
		spare(held("h", ocip.CommitmentRequiresHuman, book)), spare(held("i", ocip.CommitmentRequiresHuman, book)), spare(held("j", ocip.CommitmentRequiresHuman, book)),
		held("e", ocip.CommitmentRequiresHuman, book),
		held("f", ocip.CommitmentRequiresHuman, book),
		spare(held("k", ocip.CommitmentRequiresHuman, book)),
		held("g", ocip.CommitmentRequiresHuman, book),
		record(audit.Record{ActionType: audit.ActionExchange, Side: audit.SideReceiver, PolicyResult: audit.ResultApproval, ApprovalID: "a", Code: "X"}),
		record(audit.Record{ActionType: audit.ActionExchange, PolicyResult: audit.ResultAllow}),
		decided("a", "asked_again"), decided("a", "approved"), decided("b", "denied"), decided("c", "taken_over"),
		decided("d", "resolved"), decided("e", "expired"), decided("f", "approved_in_part"), decided("f", "approved"),
		decided("h", "approved"), decided("i", "denied"), decided("held before", "approved"),
		record(audit.Record{ActionType: audit.ActionApproval, ApprovalID: "k", Event: "judged", Details: map[string]any{"proof": "judge", "decision": "judge"}}),
		record(audit.Record{ActionType: audit.ActionApproval, ApprovalID: "k", Event: "approved", Details: map[string]any{"proof": "judge", "decision": "approve"}}),
	}
	want := Decisions{
		Since: entries[2].Time, Held: 11, Open: 2, Spare: Spare{Decided: 2, Denied: 1},
		Ends: Ends{Approved: 3, Denied: 2, TakenOver: 1, Resolved: 1, Expired: 1, Judged: 1, Stopped: ShareOf(4, 7)},
		Rules: []DecidedRule{
			{"book", 9, 8, Ends{Approved: 3, Denied: 2, Expired: 1, Judged: 1, Stopped: ShareOf(2, 5)}},
			{"COMMITMENT_REQUIRES_HUMAN", 1, 1, Ends{Resolved: 1, Stopped: ShareOf(1, 1)}},
			{"EXCHANGE_ROUND_LIMIT", 1, 1, Ends{TakenOver: 1, Stopped: ShareOf(1, 1)}},
			{"promise", 1, 0, Ends{Denied: 1, Stopped: ShareOf(1, 1)}},
		},
	}
	for _, backwards := range []bool{false, true} {
		h := NewHistory()
		for i := range entries {
			if backwards {
				i = len(entries) - 1 - i
			}
			h.Add(entries[i])
		}
		if got := h.Decisions(); !reflect.DeepEqual(got, want) {
			t.Errorf("backwards %v: decisions\n%+v, want\n%+v", backwards, got, want)
		}
	}
}

// TestActs counts one person's decisions, and names the setting that would have saved most of them.
func TestActs(t *testing.T) {
	h := NewHistory()
	held := func(approval string, r audit.Record) {
		r.ActionType, r.Side, r.PolicyResult, r.ApprovalID, r.Code = audit.ActionExchange, audit.SideSender, audit.ResultApproval, approval, string(ocip.CommitmentRequiresHuman)
		h.Add(&audit.Entry{Record: r})
	}
	decided := func(approval, event string, uid float64) {
		h.Add(&audit.Entry{Record: audit.Record{ActionType: audit.ActionApproval, ApprovalID: approval, Event: event, Details: map[string]any{"uid": uid, "decision": "approve"}}})
	}
	spare := map[string]any{spareDetail: true}
	cue := []audit.Detection{{Rule: "commitment.first-person-future"}}
	for _, id := range []string{"k1", "k2"} {
		held(id, audit.Record{Details: spare, Detections: []audit.Detection{{Rule: "commitment.book"}}})
		decided(id, "approved", 7)
	}
	for _, id := range []string{"c1", "c2", "c3"} {
		held(id, audit.Record{Detections: cue})
		decided(id, map[string]string{"c1": "denied"}[id]+map[string]string{"c2": "approved", "c3": "approved"}[id], 7)
	}
	held("o1", audit.Record{UserID: "a", Counterparty: audit.Counterparty{Kind: "agent", UserID: "a"}, Detections: []audit.Detection{{Rule: "commitment.book"}}})
	decided("o1", "approved", 7)
	decided("effect", "approved", 7)
	decided("k1", "approved", 8)
	h.Add(&audit.Entry{Record: audit.Record{ActionType: audit.ActionApproval, ApprovalID: "late", Event: "expired"}})
	if acts, most := h.Acts(7); acts != 7 || most != (Saving{"ocip.commitment.keywords: weigh", 2, 0}) {
		t.Errorf("%d acts, %+v", acts, most)
	}
	h.spare = nil
	if _, most := h.Acts(7); most != (Saving{"ocip.same_owner: record", 1, 0}) {
		t.Errorf("without spare ones %+v", most)
	}
	h.own = nil
	if _, most := h.Acts(7); most != (Saving{"ocip.commitment.families.first-person-future: shadow", 3, 1}) {
		t.Errorf("without one owner %+v", most)
	}
	if acts, most := h.Acts(9); acts != 0 || most != (Saving{}) {
		t.Errorf("of nobody %d, %+v", acts, most)
	}
}
