package daemon_test

import (
	"context"
	"strings"
	"testing"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/api/client"
)

// chunk is the next change in a stream.
func chunk(t *testing.T, s *client.Stream) (c api.ConfigChange, line string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	raw, err := s.Next(ctx)
	if err != nil {
		t.Fatal(err)
	}
	a := &app{t: t}
	a.decode(raw, &c)
	return c, string(raw)
}

// The rights of an app are checked at each change: a stream opened with other rights shows
// what the app may see now.
func TestWatchShowsWhatTheAppMaySeeNow(t *testing.T) {
	const agent = `agents: [{id: alice, app: "@acme/alice", instance_id: agent-alice-1, user_id: alice, org_unit: eng, tenant_id: acme}]` + "\n"
	const granted = agent + `access: {apps: {"@acme/chat": {channels: [telegram]}}}` + "\n"
	const taken = agent + `access: {apps: {"@acme/chat": {channels: [irc]}}}` + "\n"
	const token = `channels: {telegram: {botToken: TOKEN}, irc: {server: irc.example}}` + "\n"
	h := build(t, granted+strings.Replace(token, "TOKEN", "first", 1))
	chat := h.register("@acme/chat", api.Capabilities{Channels: api.Provides{Provides: []string{"telegram", "irc"}}})
	s, err := chat.Stream(t.Context(), "config.watch", map[string]any{})
	if err != nil {
		t.Fatal(err)
	}
	chat.must("config.get", map[string]any{}, nil) // is answered after the stream is open
	h.reloaded(granted + strings.Replace(token, "TOKEN", "second", 1))
	if c, line := chunk(t, s); c.Path != "channels.telegram.botToken" || c.NewValue != "second" {
		t.Errorf("told %s", line)
	}
	h.reloaded(taken + strings.Replace(token, "TOKEN", "third", 1))
	seen := map[string]api.ConfigChange{}
	for range 2 {
		c, line := chunk(t, s)
		seen[c.Path] = c
		if strings.Contains(line, "third") {
			t.Errorf("what it may see no more is told: %s", line)
		}
	}
	if c, ok := seen["channels.telegram.botToken"]; !ok || c.NewValue != nil {
		t.Errorf("it is not told that it may see a section no more: %v", seen)
	}
	if c, ok := seen["channels.irc.server"]; !ok || c.OldValue != nil || c.NewValue == nil {
		t.Errorf("it is not told of a section that it may see now: %v", seen)
	}
}

// An app that may not run any more reads nothing, and its stream shows nothing.
func TestAppThatMayNotRunReadsNoSettings(t *testing.T) {
	const agent = `agents: [{id: alice, app: "@acme/alice", EXE instance_id: agent-alice-1, user_id: alice, org_unit: eng, tenant_id: acme}]` + "\n"
	const secret = `apps: {"@acme/alice": {key: TOKEN}}` + "\n"
	h := build(t, strings.Replace(agent+secret, "EXE ", "", 1))
	alice := h.register("@acme/alice", api.Capabilities{})
	s, err := alice.Stream(t.Context(), "config.watch", map[string]any{})
	if err != nil {
		t.Fatal(err)
	}
	alice.must("config.get", map[string]any{}, nil) // is answered after the stream is open
	h.reloaded(strings.NewReplacer("EXE ", "exe: /usr/bin/true, ", "TOKEN", "second").Replace(agent + secret))
	for gone := false; !gone; {
		c, line := chunk(t, s)
		if gone = strings.HasSuffix(c.Path, "key") && c.NewValue == nil; strings.Contains(line, "second") {
			t.Fatalf("told %s", line)
		}
	}
	alice.refuse(api.Forbidden, "config.get", map[string]any{})
	alice.refuse(api.Forbidden, "config.watch", map[string]any{})
}
