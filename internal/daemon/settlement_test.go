package daemon_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/ocip"
	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"
)

// settlement is the signed call of a person who has looked at an exchange and settles it.
func (h *harness) settlement(name, id string) map[string]any {
	h.t.Helper()
	var saw api.ExchangeResult
	h.operator("exchange.get", map[string]any{"exchangeId": id}, &saw)
	state := saw.Exchanges[0].State
	return map[string]any{
		"exchangeId": id, "outcome": "resolved", "state": state,
		"signature": signs(h.t, name, api.SignedSettlement(id, "", state), api.ApprovalNamespace),
	}
}

// Attack: a process without a key repeats a person's signed settlement from the log before
// every message of a loop.
func TestSettlementCountsOnce(t *testing.T) {
	h := guarded(t, team("ann", "ben")+"ocip: {chain: {max_hops: 6}}\n", rego(true, "ok"), listed(t, "carol", ""))
	ann, ben, person := h.agent("@acme/ann"), h.agent("@acme/ben"), h.operates()
	sent := ann.dispatch("agent:ben:main", "How far is it?", nil).OCIP
	settlement := h.settlement("carol", sent.ExchangeID)
	person.must("exchange.resolve", settlement, nil)

	passed := 0
	for hop := range 12 {
		contains(t, person.refuse(api.Conflict, "exchange.resolve", settlement).Message, "resolved already")
		from, to := ann, "ben"
		if hop%2 == 1 {
			from, to = ben, "ann"
		}
		var result api.DispatchResult
		from.must("message.dispatch", map[string]any{"sessionKey": "agent:" + to + ":main", "content": "Pass it on", "metadata": fresh(nil)}, &result)
		if !result.Held {
			passed++
		} else if passed == hop && result.OCIP.Code != ocip.ChainLimit {
			t.Errorf("message %d is held for %s", hop, result.OCIP.Code)
		}
	}
	if passed != 5 {
		t.Errorf("%d messages of the loop went, want 5", passed)
	}
}

// Attack: somebody without a key puts the rows of a settled exchange back, with the seals that they had when
// its person saw it, and repeats the settlement from the log. It would begin chains anew.
func TestSettlementOfOldRowsCountsOnce(t *testing.T) {
	h := guarded(t, team("ann", "ben"), rego(true, "ok"), listed(t, "carol", ""))
	ann, person := h.agent("@acme/ann"), h.operates()
	h.agent("@acme/ben")
	held := ann.held(ocip.CommitmentRequiresHuman, "agent:ben:main", "I promise the harbour by Friday", fresh(map[string]any{"replyPolicy": "human-only"}))
	id := held.OCIP.ExchangeID
	person.must("approval.resolve", signed(t, "carol", api.DecideTakeover, new(h.shown(held.ApprovalID))), nil)
	h.stop()
	conn, err := sqlite.OpenConn(h.path("state/ocipd.db"), sqlite.OpenReadOnly)
	if err != nil {
		t.Fatal(err)
	}
	before := "DELETE FROM exchanges"
	err = sqlitex.ExecuteTransient(conn, `SELECT quote(agent), quote(id), quote(conversation_id), quote(counterparty), quote(outcome), quote(expires_at), quote(state), quote(seal) FROM exchanges`, &sqlitex.ExecOptions{ResultFunc: func(stmt *sqlite.Stmt) error {
		var row []string
		for i := range stmt.ColumnCount() {
			row = append(row, stmt.ColumnText(i))
		}
		before += "; INSERT INTO exchanges VALUES (" + strings.Join(row, ", ") + ")"
		return nil
	}})
	if err := errors.Join(err, conn.Close()); err != nil {
		t.Fatal(err)
	}
	h.start()
	settlement := h.settlement("carol", id)
	person = h.operates()
	person.must("exchange.resolve", settlement, nil)
	h.stop()
	h.editRows(before)
	h.start()
	contains(t, h.operates().refuse(api.Conflict, "exchange.resolve", settlement).Message, "was settled with this signature before")
}

// A settlement is of the state that its person saw: one message later it has no effect,
// with or without a signature.
func TestSettlementOfAStateThatMovedOn(t *testing.T) {
	h := guarded(t, team("ann", "ben"), rego(true, "ok"), listed(t, "carol", ""))
	ann, ben, person := h.agent("@acme/ann"), h.agent("@acme/ben"), h.operates()
	sent := ann.dispatch("agent:ben:main", "How far is it?", nil).OCIP
	old := h.settlement("carol", sent.ExchangeID)
	ben.dispatch("agent:ann:main", "Ten miles.", nil)
	contains(t, person.refuse(api.Conflict, "exchange.resolve", old).Message, "no longer in the state that you saw")
	held := ann.held(ocip.CommitmentRequiresHuman, "agent:ben:main", "I promise the harbour by Friday", nil)
	seen := h.settlement("carol", sent.ExchangeID)
	params := signed(t, "carol", api.DecideDeny, new(h.shown(held.ApprovalID)))
	person.must("approval.resolve", params, nil)
	person.refuse(api.Conflict, "exchange.resolve", seen)
	// The denial has ended both sides, and both agents begin anew.
	if side := h.outcomeOf(sent.ExchangeID, "agent-ben-1"); side.Outcome != "denied" {
		t.Errorf("ben's side is %+v", side)
	}
	ben.message("hook:message_received")
	sent = ben.dispatch("agent:ann:main", "Is that so?", nil).OCIP

	// A signature names the state that its person saw.
	blind := map[string]any{"exchangeId": sent.ExchangeID, "outcome": "resolved", "signature": signs(t, "carol", api.SignedSettlement(sent.ExchangeID, "", ""), api.ApprovalNamespace)}
	contains(t, person.refuse(api.InvalidParams, "exchange.resolve", blind).Message, "state")
	person.must("exchange.resolve", h.settlement("carol", sent.ExchangeID), nil)
	if side := h.outcomeOf(sent.ExchangeID, "agent-ben-1"); side.Outcome != "resolved" {
		t.Errorf("ben's side is %+v", side)
	}
}

// An owed answer stays owed if a person names an ended exchange, because nothing of it is
// left to settle.
func TestSettlementOfNothingForgivesNothing(t *testing.T) {
	h := build(t, team("ann", "ben"))
	ann, ben := h.agent("@acme/ann"), h.agent("@acme/ben")
	said := ann.dispatch("agent:ben:main", "The build is green.", wish(map[string]any{"replyPolicy": "no-reply-needed"}))
	ben.message("hook:message_received")
	ann.must("exchange.resolve", map[string]any{"exchangeId": said.OCIP.ExchangeID, "outcome": "resolved"}, nil)
	ben.refuse(api.Conflict, "exchange.resolve", map[string]any{"exchangeId": said.OCIP.ExchangeID, "outcome": "resolved"})
	h.operates().refuse(api.Conflict, "exchange.resolve", map[string]any{"exchangeId": said.OCIP.ExchangeID, "outcome": "resolved"})
	ben.held(ocip.ReplyNotExpected, "agent:ann:main", "Fine with us.", fresh(nil))
}
