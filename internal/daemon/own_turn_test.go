package daemon_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/openclawos/ocipd/internal/ocip"
)

// talks has two agents, whose runtimes deliver by themselves, write to each other in turn.
// next returns the wishes of each message after the first, given the exchange of the previous
// one. It returns the number of sent messages, and the code of the next one's refusal.
func talks(alice, bob *app, wish map[string]any, next func(exchange string) map[string]any, many int) (went int, code string) {
	alice.t.Helper()
	for ; went < many; went++ {
		from, to, session := alice, bob, "agent:bob:main"
		if went%2 == 1 {
			from, to, session = bob, alice, "agent:alice:main"
		}
		sent := from.emit("message_sending", map[string]any{"sessionKey": session, "content": fmt.Sprintf("Part %d", went), "metadata": map[string]any{"exchange": wish}}, nil)
		if !sent.Allowed {
			return went, sent.OCIP.Code
		}
		if got := to.emit("message_received", map[string]any{"sessionKey": session, "content": sent.Data.Content, "metadata": sent.Data.Metadata}, nil); !got.Allowed {
			alice.t.Fatalf("message %d is not taken: %+v", went, got)
		}
		wish = next(sent.OCIP.ExchangeID)
	}
	return went, ""
}

// believed is acme with agents whose runtimes are trusted about their own turns, and with
// exchanges of some rounds.
var believed = strings.ReplaceAll(acme, "max_rounds: 3", "max_rounds: 8, own_turns: true") + "ocip: {max_rounds: 8}\n"

// An agent can ask another often: each question from a turn that no other agent's message
// began is a separate chain, and so are the turns that answer it.
func TestQuestionsOfOwnTurnsAreAnswered(t *testing.T) {
	h := build(t, believed)
	alice, bob := h.agent("@acme/alice"), h.agent("@acme/bob")
	within := func(exchange string) map[string]any { return map[string]any{"id": exchange} }
	for question := range 10 {
		if went, code := talks(alice, bob, map[string]any{"new": true, "ownTurn": true}, within, 7); went != 7 {
			t.Fatalf("of question %d %d messages went, then %s", question, went, code)
		}
	}
	h.verify()
}

// Messages that lead to each other are stopped, in whichever exchanges: those of a turn
// that another agent's message began, and those of a runtime that is not trusted.
func TestChainOfMessagesIsStopped(t *testing.T) {
	for name, tc := range map[string]struct {
		yaml string
		wish map[string]any
	}{
		"turns that a message began":     {believed, map[string]any{"new": true}},
		"a runtime that is not believed": {strings.ReplaceAll(believed, ", own_turns: true", ""), map[string]any{"new": true, "ownTurn": true}},
	} {
		t.Run(name, func(t *testing.T) {
			h := build(t, tc.yaml)
			alice, bob := h.agent("@acme/alice"), h.agent("@acme/bob")
			again := func(string) map[string]any { return tc.wish }
			if went, code := talks(alice, bob, tc.wish, again, 10); code != string(ocip.ChainLimit) || went > 6 {
				t.Errorf("after %d messages stopped by %q", went, code)
			}
		})
	}
}
