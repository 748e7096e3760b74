package directory

import (
	"strings"
	"testing"

	"github.com/openclawos/ocipd/internal/ocip"
)

// TestClients10Origin: the author of a message is found from the session, the address and the
// sender that the channel's app names, without an envelope.
func TestClients10Origin(t *testing.T) {
	d := directoryOf(t, world())
	alice := d.Agent("alice")
	for _, tc := range []struct {
		name, key, metadata string
		who                 string
		kind                ocip.Kind
		walled, listed      bool
		like                string
	}{
		{name: "an agent of another tenant", key: "irc:direct:rival", metadata: `{"target":"rival"}`, who: "agent-rival-1", kind: ocip.KindAgent, walled: true, listed: true},
		{name: "in capitals", key: "irc:direct:RIVAL", metadata: `{"target":"RIVAL"}`, who: "agent-rival-1", kind: ocip.KindAgent, walled: true, listed: true},
		{name: "in a channel", key: "irc:direct:rival", metadata: `{"target":"#team","senderNick":"rival","isGroup":true}`, who: "agent-rival-1", kind: ocip.KindAgent, walled: true, listed: true},
		{name: "by the channel's session", key: "irc:#team", metadata: `{"target":"#team","senderNick":"Rival"}`, who: "agent-rival-1", kind: ocip.KindAgent, walled: true, listed: true},
		{name: "by the address alone", key: "chat:whoever", metadata: `{"chatId":"rival"}`, who: "agent-rival-1", kind: ocip.KindAgent, walled: true, listed: true},
		{name: "by the chat's id", key: "telegram:direct:5", metadata: `{"chatId":2002}`, who: "agent-rival-1", kind: ocip.KindAgent, walled: true, listed: true},
		{name: "by the sender's", key: "matrix:!q:h", metadata: `{"roomId":"!q:h","senderId":"@rival:globex.example"}`, who: "agent-rival-1", kind: ocip.KindAgent, walled: true, listed: true},
		{name: "a friend", key: "irc:direct:friend", metadata: `{"target":"friend"}`, who: "agent-friend-1", kind: ocip.KindAgent, listed: true},
		{name: "the owner", key: "irc:direct:alice", metadata: `{"target":"alice"}`, who: "alice", kind: ocip.KindOwner, listed: true},
		{name: "the owner, where a rival reads", key: "irc:direct:alice", metadata: `{"target":"#mixed","isGroup":true}`, who: "alice", kind: ocip.KindOwner, listed: true},
		{name: "somebody where a rival reads", key: "irc:#mixed", metadata: `{"target":"#mixed","senderNick":"zoe"}`, kind: ocip.KindUnknown},
		{name: "nobody knows who, where a rival reads", key: "irc:#mixed", metadata: `{"target":"#mixed"}`, who: "agent-rival-1", kind: ocip.KindAgent, walled: true, listed: true},
		{name: "a stranger", key: "irc:direct:zoe", metadata: `{"target":"zoe"}`, kind: ocip.KindUnknown},
		{name: "one that looks like a friend", key: "irc:direct:fr\u0456end", metadata: `{}`, kind: ocip.KindUnknown, like: "irc:direct:friend"},
		{name: "an agent's own session", key: "agent:alice:main", metadata: `{"target":"rival"}`, kind: ocip.KindUnknown},
	} {
		o, err := d.Origin(tc.key, object(t, tc.metadata), alice)
		if err != nil {
			t.Errorf("%s: %v", tc.name, err)
			continue
		}
		_, walled := ocip.Wall(alice.Identity, o.Counterparty)
		who := o.Counterparty.InstanceID
		if who == "" {
			who = o.Counterparty.UserID
		}
		if who != tc.who || o.Counterparty.Kind != tc.kind || walled != tc.walled || o.Listed != tc.listed || o.LooksLike != tc.like {
			t.Errorf("%s: %q %s, walled %v, listed %v, looks like %q", tc.name, who, o.Counterparty.Kind, walled, o.Listed, o.LooksLike)
		}
	}
	for _, tc := range []struct{ key, metadata, want string }{
		{"irc:direct:zoe\u200b", `{}`, "U+200B"},
		{"irc:direct:zoe", `{"target":"#te\u200bam"}`, "metadata.target"},
		{"irc:direct:zoe", `{"target":["#team"]}`, "a text or a whole number"},
		{"irc:direct:zoe", `{"target":true}`, "a text or a whole number"},
		{"telegram:1", `{"chatId":1e3}`, "a text or a whole number"},
		{"zoe", `{}`, "channel:name"},
		{"chat:zoe", `{"target":"` + strings.Repeat("x", 1025) + `"}`, "1025 bytes"},
		{"chat:zoe", `{"target":"` + strings.Repeat("x", 1000) + `","chatId":"` + strings.Repeat("x", 1000) + `","roomId":"` + strings.Repeat("x", 1000) + `","openId":"` + strings.Repeat("x", 1000) + `"}`, "more than 4000 bytes"},
	} {
		_, err := d.Origin(tc.key, object(t, tc.metadata), alice)
		expect(t, tc.key+" "+tc.metadata, err, tc.want)
	}
}

// A member that is an address for one app can have any meaning for another.
func TestBroughtOfUnknownApps(t *testing.T) {
	d := directoryOf(t, world())
	brought, err := d.Brought("chat:zoe", object(t, `{"sender":{"name":"Zoe"},"to":["a"],"roomId":7,"channelId":"chat","from":"zoe","isGroup":false}`))
	if err != nil || len(brought) != 1 || brought["roomId"] != "7" {
		t.Errorf("%v, %v", brought, err)
	}
}

// TestAttack08And18Compare: an envelope's claims about its sender are compared with the directory
// if the instance, the session or the address is known.
func TestAttack08And18Compare(t *testing.T) {
	cfg := world()
	sales := person("sam", "acme", "irc:direct:sam")
	sales.OrgUnit = "sales"
	cfg.Entries = append(cfg.Entries, sales)
	d := directoryOf(t, cfg)
	alice := d.Agent("alice")
	friend := ocip.Identity{InstanceID: "agent-friend-1", UserID: "friend", OrgUnit: "engineering", TenantID: "acme"}
	rival := ocip.Identity{InstanceID: "agent-rival-1", UserID: "rival", OrgUnit: "engineering", TenantID: "globex"}
	stranger := ocip.Identity{InstanceID: "agent-zoe-1", UserID: "zoe", OrgUnit: "x", TenantID: "acme"}
	with := func(id ocip.Identity, change func(*ocip.Identity)) ocip.Identity { change(&id); return id }
	for _, tc := range []struct {
		name, key, metadata string
		source              ocip.Identity
		want                Claim
		forged              string
	}{
		{name: "who is there", key: "irc:direct:friend", source: friend, want: Claim{Confirmed: true}},
		{name: "another tenant, who is there", key: "irc:direct:rival", source: rival, want: Claim{Confirmed: true, Foreign: true}},
		{name: "a tenant that is not its own", key: "irc:direct:rival", source: with(rival, func(i *ocip.Identity) { i.TenantID = "acme" }), forged: `its tenant is "acme", and the directory has "globex"`},
		{name: "the same under an agent's key", key: "agent:alice:x", source: with(rival, func(i *ocip.Identity) { i.TenantID = "acme" }), forged: "agent agent-rival-1"},
		{name: "a unit that is not its own", key: "agent:alice:x", source: with(friend, func(i *ocip.Identity) { i.OrgUnit = "marketing" }), forged: "its org unit"},
		{name: "a user that is not its own", key: "irc:direct:friend", source: with(friend, func(i *ocip.Identity) { i.UserID = "boss" }), forged: "its user"},
		{name: "an agent of this daemon", key: "irc:direct:zoe", source: ocip.Identity{InstanceID: "agent-bob-1", UserID: "bob", OrgUnit: "engineering", TenantID: "globex"}, forged: "agent agent-bob-1"},
		{name: "at a session of another", key: "irc:direct:friend", source: stranger, forged: "the directory has agent agent-friend-1 at session irc:direct:friend"},
		{name: "at an address of another", key: "chat:any", metadata: `{"chatId":"rival"}`, source: stranger, forged: "the directory has agent agent-rival-1"},
		{name: "by a sender of another name", key: "irc:#team", metadata: `{"senderNick":"rival"}`, source: stranger, forged: "the directory has agent agent-rival-1"},
		{name: "from the owner's session, another tenant", key: "irc:direct:alice", source: with(stranger, func(i *ocip.Identity) { i.TenantID = "evilcorp" }), forged: "session irc:direct:alice"},
		{name: "from a person's session, another unit", key: "irc:direct:sam", source: with(stranger, func(i *ocip.Identity) { i.UserID = "sam" }), forged: "its org unit"},
		{name: "the owner's own other agent", key: "irc:direct:alice", source: ocip.Identity{InstanceID: "agent-phone", UserID: "alice", OrgUnit: "home", TenantID: "acme"}, want: Claim{}},
		{name: "known, and elsewhere", key: "irc:direct:zoe", source: friend, want: Claim{Elsewhere: true}},
		{name: "known, under an agent's key", key: "agent:alice:x", source: friend, want: Claim{Elsewhere: true}},
		{name: "a stranger's claim of ours", key: "irc:direct:zoe", source: stranger, want: Claim{}},
		{name: "a stranger's claim of another", key: "irc:direct:zoe", source: with(stranger, func(i *ocip.Identity) { i.TenantID = "evilcorp" }), want: Claim{Foreign: true}},
		{name: "one of many who may have written", key: "irc:#mixed", source: friend, want: Claim{Confirmed: true}},
	} {
		if tc.metadata == "" {
			tc.metadata = `{}`
		}
		o, err := d.Origin(tc.key, object(t, tc.metadata), alice)
		if err != nil {
			t.Errorf("%s: %v", tc.name, err)
			continue
		}
		got, err := d.Compare(&ocip.Envelope{SourceAgent: tc.source}, &o, alice)
		expect(t, tc.name, err, tc.forged)
		if tc.forged == "" && got != tc.want {
			t.Errorf("%s: %+v, want %+v", tc.name, got, tc.want)
		}
	}
}
