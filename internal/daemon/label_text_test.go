package daemon_test

import (
	"strings"
	"testing"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/config"
	"github.com/openclawos/ocipd/internal/daemon"
	"github.com/openclawos/ocipd/internal/ocip"
)

// aliceSays is the label of the texts of alice's agent, whose runtime is not known.
const aliceSays = "Sent by alice's assistant"

// A message has the label of its agent, and a message that was decided keeps it. A person is shown
// the label of now, and signs it: after another one the request is asked anew.
func TestLabelOfAnAgent(t *testing.T) {
	h := build(t, acme+"ocip: {disclosure: prefix}\n")
	telegram, alice, bob := h.channel("@openclawos/telegram", "telegram"), h.agent("@acme/alice"), h.agent("@acme/bob")
	sent := alice.dispatch("agent:bob:main", "The tests pass.", nil)
	got := bob.message("hook:message_received")
	if label, _ := api.Text(got.Metadata["aiDisclosure"]); label != aliceSays || got.Content != aliceSays+"\n\nThe tests pass." {
		t.Errorf("the label is %q in %q", label, got.Content)
	}
	if side := h.outcomeOf(sent.OCIP.ExchangeID, "agent-bob-1"); len(side.Transcript) != 1 || side.Transcript[0].Summary != "The tests pass." {
		t.Errorf("the receiver's transcript is %+v", side.Transcript)
	}
	held := alice.held(ocip.CommitmentRequiresHuman, "telegram:dave", "I promise it.", nil)
	saw := h.shown(held.ApprovalID)
	contains(t, string(saw.Sending), `"aiDisclosure":"`+aliceSays+`"`)

	const bot = "Written by the build robot of alice"
	h.reloaded(strings.Replace(acme, "max_rounds: 3}", "max_rounds: 3, disclosure_text: 'Written by the build robot of {user}'}", 1))
	if err := h.operates().call("approval.resolve", decision(api.DecideApprove, &saw), nil); err == nil {
		t.Error("an approval of the former label counts")
	}
	now := h.shown(held.ApprovalID)
	contains(t, changed(t, now.Changed, "sending").Now, bot)
	if now.Digest == saw.Digest {
		t.Error("the digest does not cover the label")
	}
	h.operates().must("approval.resolve", decision(api.DecideApprove, &now), nil)
	m := telegram.message("hook:message_sending")
	if label, _ := api.Text(m.Metadata["aiDisclosure"]); label != bot || m.Content != "I promise it.\n\n"+bot {
		t.Errorf("the label is %q in %q", label, m.Content)
	}
	// Another label than the former one counts for nothing: an agent cannot take another's place.
	alice.dispatch("telegram:dave", "All is well.\n\n"+aliceSays, fresh(nil))
	if m := telegram.message("hook:message_sending"); m.Content != "All is well.\n\n"+aliceSays+"\n\n"+bot {
		t.Errorf("with another's label it is %q", m.Content)
	}
}

// A label in which the rules find something is refused at a check, a start and a reload.
func TestLabelIsSilent(t *testing.T) {
	for text, want := range map[string]string{
		"I promise that {user} reads this": `the rules find promise in "I promise that alice reads this"`,
		"Falcon, by {user}":                `the rules find operator.falcon in "Falcon, by alice"`,
	} {
		const rules = "ocip: {content: {patterns: [{name: falcon, regexp: '(?i)falcon', level: confidential}]}}\n"
		yaml := strings.Replace(acme+rules, "max_rounds: 3}", "max_rounds: 3, disclosure_text: '"+text+"'}", 1)
		h := plot(t, yaml)
		cfg, err := config.Load(config.Options{File: h.path("ocipd.yaml")})
		if err != nil {
			t.Fatal(err)
		}
		if err := daemon.Check(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: the check says %v", text, err)
		}
		h = build(t, acme)
		h.edit(yaml)
		if _, err := h.reload(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: the reload says %v", text, err)
		}
	}
}
