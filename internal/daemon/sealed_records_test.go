package daemon_test

import (
	"testing"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
)

// No text of an agent has the digest of a delivery, even if it imitates the form of such a
// digest's input.
func TestTextHasNoDigestOfADelivery(t *testing.T) {
	h := build(t, acme)
	telegram, alice := h.channel("@openclawos/telegram", "telegram"), h.agent("@acme/alice")
	sent := alice.dispatch("telegram:dave", "the blue folder", fresh(nil))
	var m api.Message
	telegram.decode(telegram.message("hook:message_sending").Data, &m)
	_, delivered := m.Write(nil)
	form, err := audit.DeliveredForm(nil, delivered.Target, delivered.Content.Inspect(), delivered.Metadata)
	if err != nil {
		t.Fatal(err)
	}
	alice.refuse(api.Forbidden, "message.dispatch", map[string]any{"sessionKey": "telegram:eve", "content": string(form)})
	var said string
	for _, r := range h.records(audit.Filter{Like: audit.Record{Counterparty: audit.Counterparty{InstanceID: "agent-eve-1"}}}) {
		said = r.ContentDigest
	}
	r := h.records(audit.Filter{Like: audit.Record{DispatchID: sent.DispatchID, ActionType: audit.ActionExchange}})
	if len(r) == 0 || said == "" || r[0].DeliveredDigest == "" || said == r[0].DeliveredDigest {
		t.Errorf("the text has the digest %q, the message %+v", said, r)
	}
}
