package daemon_test

import (
	"testing"

	"github.com/openclawos/ocipd/internal/ocip"
)

// A promise in two messages is found in the second, in any exchange.
func TestHalvesOfAPromise(t *testing.T) {
	h := build(t, acme)
	alice := h.agent("@acme/alice")
	h.agent("@acme/bob")
	alice.dispatch("agent:bob:main", "I pro", fresh(nil))
	alice.held(ocip.CommitmentRequiresHuman, "agent:bob:main", "mise it", fresh(nil))
	alice.dispatch("agent:bob:main", "I saw it.", fresh(nil))
	alice.dispatch("agent:bob:main", "mise en place", fresh(nil))
}

// A yes binds if the other agent asked for a commitment.
func TestYesToAQuestion(t *testing.T) {
	h := build(t, acme)
	alice, bob := h.agent("@acme/alice"), h.agent("@acme/bob")
	alice.dispatch("agent:bob:main", "It rains here.", fresh(nil))
	bob.dispatch(bob.message("hook:message_received").ReplyTo, "Yes.", nil)
	alice.dispatch("agent:bob:main", "Is the red one fine for you?", fresh(nil))
	bob.held(ocip.CommitmentRequiresHuman, bob.message("hook:message_received").ReplyTo, "Yes.", nil)
}
