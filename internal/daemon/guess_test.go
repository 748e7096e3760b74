package daemon_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
)

// An app sees none of others' secrets, however it asks, and hears of no change to them; it
// does see its own.
func TestConfigShowsNoSecrets(t *testing.T) {
	const mark = "s3cret"
	yaml := func(mark string) string {
		return acme + `
channels:
  telegram: {botToken: ` + mark + `-telegram, nested: {deep: [` + mark + `-deep]}}
  irc: {password: ` + mark + `-irc}
  "@acme/nosy": {password: ` + mark + `-namesake}
apps:
  "@acme/other": {key: ` + mark + `-other, list: [` + mark + `-list]}
  "@acme/nosy": {mine: own-` + strings.TrimPrefix(mark, "s3") + `}
  telegram: {key: ` + mark + `-section}
audit:
  sinks: [{name: siem, type: otlp, endpoint: "http://127.0.0.1:9/v1/logs", headers: {Authorization: ` + mark + `-header}}]
`
	}
	h := build(t, yaml(mark))
	// The owner of a channel; irc has none.
	h.channel("@acme/telegram", "telegram")
	nosy := h.registered("@acme/nosy", `{"channels":{"provides":["telegram","matrix"]}}`)
	paths := []string{"", "$", "*", "$..", "..", ".", "channels", "channels.*", "channels[*]", "channels.telegram", "channels.telegram.botToken", "channels['telegram']",
		"channels.telegram.nested.deep[0]", "channels.irc", "channels.irc.password", "channels['@acme/nosy']", "apps", "apps.*", "apps['@acme/other']", "apps['@acme/other'].key",
		"apps['@acme/other'].list[0]", "apps.telegram", "apps['@acme/nosy']['../@acme/other']", "apps['@acme/nosy'].mine", "audit", "audit.sinks", "audit.sinks[0].headers",
		"audit.sinks[0].headers.Authorization", "store", "store.url", "agents", "agents[0]", "directory", "ipc", "ipc.socket", "policy", "approvals", "CHANNELS.TELEGRAM", "Channels",
	}
	for _, path := range paths {
		m := nosy.ask("config.get", fmt.Sprintf(`{"path":%q}`, path))
		if strings.Contains(m.line, mark) || strings.Contains(m.line, h.dir) {
			t.Errorf("%q: %s", path, m.line)
		}
	}
	if own := nosy.grant("config.get", `{"path":"apps['@acme/nosy'].mine"}`); !strings.Contains(own.line, "own-cret") {
		t.Errorf("its own is %s", own.line)
	}
	var watched []string
	for i, path := range paths {
		id := fmt.Sprint("watch", i)
		nosy.write(nosy.request(id, "config.watch", fmt.Sprintf(`{"paths":[%q]}`, path)) + "\n")
		watched = append(watched, id)
	}
	nosy.alive()
	const after = "s3CRET"
	h.reloaded(yaml(after))
	// One of them hears of its own change, and the others of nothing more.
	own := nosy.wait(func(m *message) bool {
		return slices.Contains(watched, m.RequestID) && strings.Contains(m.line, "own-CRET")
	})
	nosy.alive()
	for _, m := range append(nosy.aside, own) {
		if strings.Contains(m.line, mark) || strings.Contains(m.line, after) {
			t.Errorf("it hears %s", m.line)
		}
	}
}

// A guessed token is refused, gives no identity, and displaces nobody. Its time reveals
// nothing: see the kernel's TestTokensAreComparedInConstantTime.
func TestGuessedTokens(t *testing.T) {
	h := build(t, acme)
	alice := h.registered("@acme/alice", `{}`)
	alice.grant("app.ready", "{}")
	if len(alice.token) != 43 {
		t.Fatalf("a token is %d characters long, and 32 random bytes are 43", len(alice.token))
	}
	other := h.registered("@acme/alike", `{}`)
	if other.token == alice.token {
		t.Fatal("two apps have one token")
	}
	guesses := []string{"x", strings.Repeat("A", 43), alice.token[:42], alice.token[1:], alice.token + "A", alice.token + "=", " " + alice.token, strings.ToUpper(alice.token),
		alice.token[:21] + other.token[21:], "@acme/alice", "null", "undefined"}
	for i := range len(alice.token) {
		wrong := byte('A')
		if alice.token[i] == wrong {
			wrong = 'B'
		}
		guesses = append(guesses, alice.token[:i]+string(wrong)+alice.token[i+1:])
	}
	for _, guess := range guesses {
		w := h.dialWire("kernel.sock")
		w.token = guess
		w.deny(api.AppNotRegistered, "app.heartbeat", "{}")
		w.deny(api.AppNotRegistered, "message.dispatch", `{"sessionKey":"telegram:dave","content":"Hello"}`)
		// It cannot take a live app's place.
		w.deny(api.Conflict, "app.register", wireManifest("@acme/alice", `{}`))
		w.token = ""
		w.deny(api.AppNotRegistered, "app.heartbeat", "{}")
		w.conn.Close()
		// Nor does another app's message, on its own connection, count as this one's.
		forged := *other
		forged.last, forged.token = forged.last+1000, guess
		forged.deny(api.Unauthorized, "app.heartbeat", "{}")
		other.last = forged.last
	}
	alice.alive()
	other.alive()
	s := h.status()
	if len(s.Apps) != 2 {
		t.Errorf("registered are %+v", s.Apps)
	}
	for _, r := range h.records(audit.Filter{Like: audit.Record{ActionType: audit.ActionAppLifecycle}}) {
		if r.Event != "registered" && r.Event != "ready" {
			t.Errorf("on record is %s of %s", r.Event, r.AppID)
		}
	}
	if r := h.records(audit.Filter{Like: audit.Record{ActionType: audit.ActionExchange}}); len(r) > 0 {
		t.Errorf("%d messages are on record", len(r))
	}
}

// However many messages of one exchange come at once, from both of its agents and through
// two sessions of one, no two share a round, and no round is skipped.
func TestConcurrentMessagesShareNoRound(t *testing.T) {
	const exchanges = 12
	h := build(t, strings.Replace(acme, `sessions: ["telegram:dave"]`, `sessions: ["telegram:dave", "slack:dave"]`, 1))
	alice, bob := h.agent("@acme/alice"), h.agent("@acme/bob")
	for _, tc := range []struct {
		name    string
		senders []func(id string) error
	}{
		{"two agents here", []func(string) error{
			func(id string) error { return sendIn(alice, "agent:bob:main", id) },
			func(id string) error { return sendIn(bob, "agent:alice:main", id) },
			func(id string) error { return sendIn(alice, "agent:bob:other", id) },
		}},
		{"two sessions of one agent", []func(string) error{
			func(id string) error { return sendIn(alice, "telegram:dave", id) },
			func(id string) error { return sendIn(alice, "slack:dave", id) },
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for n := range exchanges {
				id := fmt.Sprintf("%s %d", tc.name, n)
				begin := make(chan struct{})
				var all sync.WaitGroup
				for _, send := range tc.senders {
					for range 3 {
						all.Go(func() {
							<-begin
							// Further ones are held or refused.
							_ = send(id)
						})
					}
				}
				close(begin)
				all.Wait()
				var rounds []int
				for _, r := range h.records(audit.Filter{Like: audit.Record{ExchangeID: id, Side: audit.SideSender}}) {
					if r.PolicyResult == "allow" {
						rounds = append(rounds, r.Round)
					}
				}
				slices.Sort(rounds)
				if !slices.Equal(rounds, []int{1, 2, 3}) {
					t.Errorf("exchange %s: the rounds of what was let through are %v, want each of 3 once", id, rounds)
				}
				settle(t, h, id)
			}
		})
	}
}

func sendIn(a *app, session, exchange string) error {
	return a.call("message.dispatch", map[string]any{"sessionKey": session, "content": "What is the status?",
		"metadata": map[string]any{"exchange": map[string]any{"id": exchange, "classification": "public"}}}, nil)
}

// settle ends an exchange whose rounds are used up, so that its agents may begin
// another.
func settle(t *testing.T, h *harness, id string) {
	t.Helper()
	h.operates().must("exchange.resolve", map[string]any{"exchangeId": id, "outcome": "resolved"}, nil)
}
