package daemon_test

import "testing"

// If a member of the metadata has almost the name of the address, it must have the
// address's value; otherwise the message is refused.
func TestNearlyTheAddress(t *testing.T) {
	h := build(t, patient)
	telegram, alice := h.channel("@openclawos/telegram", "telegram"), h.agent("@acme/alice")
	for _, member := range []string{"chat_id", "ChatId", "chat-id", "CHATID", "_chatId"} {
		err := alice.call("message.dispatch", map[string]any{"sessionKey": "telegram:dave", "content": "All well here", "metadata": map[string]any{member: "eve"}}, nil)
		if err == nil {
			t.Errorf("%s of another goes", member)
		}
		if sent := alice.dispatch("telegram:dave", "All well here", map[string]any{member: "dave"}); sent.Held {
			t.Errorf("%s that says the same is held: %+v", member, sent)
		}
		telegram.message("hook:message_sending")
	}
	if alice.dispatch("telegram:dave", "All well here", map[string]any{"chatty": "eve"}).Held {
		t.Error("another name is an address")
	}
	telegram.message("hook:message_sending")
}
