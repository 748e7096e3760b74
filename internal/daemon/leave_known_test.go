package daemon_test

import (
	"slices"
	"testing"
)

// A message waiting for a room or a stranger is checked again once the daemon learns who
// reads there: while a pause holds it back, and after a restart.
func TestWhatWaitsMeetsWhoReadsThere(t *testing.T) {
	t.Parallel()
	const rivals = "withdrawn CROSS_ENTERPRISE_BLOCKED"
	rivalSpeaks := func(_ *harness, irc *app) { irc.overheard("rival", "#team", nil) }
	for name, tc := range map[string]struct {
		session string
		restart bool
		learn   func(h *harness, irc *app)
		want    string
	}{
		"speaker of another tenant":                {"irc:#team", false, rivalSpeaks, rivals},
		"speaker of another tenant, and a restart": {"irc:#team", true, rivalSpeaks, rivals},
		"stranger who is an agent by now": {"irc:direct:zed", false, func(_ *harness, irc *app) {
			irc.must("agent.queue", map[string]any{"sessionKey": "irc:direct:zed", "text": "Hello", "metadata": map[string]any{
				"channelId": "irc", "from": "zed", "target": "zed", "senderNick": "zed", "ocip": foreign("conv-1", 1, "acme-corp"),
			}}, nil)
		}, "withdrawn RECIPIENT_MISMATCH"},
		"agent that was forgotten": {"irc:direct:yan", false, func(h *harness, _ *app) { h.forgets("irc:direct:yan") }, "withdrawn RECIPIENT_MISMATCH"},
		"speaker of the own tenant": {"irc:#team", false, func(_ *harness, irc *app) {
			irc.says("dana", "#team", "Hello")
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := build(t, onIRC)
			alice, irc := h.agent("@acme/alice"), h.channel("@openclawos/irc", "irc")
			irc.must("agent.queue", map[string]any{"sessionKey": "irc:direct:yan", "text": "Hello", "metadata": map[string]any{
				"channelId": "irc", "from": "yan", "target": "yan", "senderNick": "yan", "ocip": foreign("conv-0", 1, "acme-corp"),
			}}, nil)
			h.leaves(irc)
			sent := alice.dispatch(tc.session, "the blue folder", fresh(nil))
			h.pause("pause", map[string]any{"agent": "alice"})
			irc = h.channel("@openclawos/irc", "irc")
			irc.quiet("hook:message_sending")
			tc.learn(h, irc)
			if tc.restart {
				h.restart()
				irc = h.channel("@openclawos/irc", "irc")
			}
			h.pause("resume", map[string]any{"agent": "alice"})
			if tc.want == "" {
				contains(t, irc.message("hook:message_sending").Content, "blue folder")
				return
			}
			// The queue is read from the database: a moment later the record can be found too.
			waitFor(t, "it is taken out, on record", func() bool {
				return len(h.waits(map[string]any{"channel": "irc"}).Messages) == 0 && len(h.eventsOf(sent.DispatchID)) > 0
			})
			irc.quiet("hook:message_sending")
			if got := h.eventsOf(sent.DispatchID); !slices.Equal(got, []string{tc.want}) {
				t.Errorf("on record is %q, want %q", got, tc.want)
			}
			h.verify()
		})
	}
}
