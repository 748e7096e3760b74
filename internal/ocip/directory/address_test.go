package directory

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/base/text"
	"github.com/openclawos/ocipd/internal/ocip"
)

func peer(name, tenant string, sessions ...string) Entry {
	return Entry{Sessions: sessions, Counterparty: ocip.Counterparty{Kind: ocip.KindAgent, Accepts: ocip.Internal, Identity: ocip.Identity{
		InstanceID: "agent-" + name + "-1", UserID: name, OrgUnit: "engineering", TenantID: tenant,
	}}}
}

func person(user, tenant string, sessions ...string) Entry {
	return Entry{Sessions: sessions, Counterparty: ocip.Counterparty{Kind: ocip.KindPerson, Accepts: ocip.Confidential, Identity: ocip.Identity{UserID: user, TenantID: tenant}}}
}

func group(members []string, sessions ...string) Entry {
	return Entry{Sessions: sessions, Group: true, Members: members, Counterparty: ocip.Counterparty{Accepts: ocip.Restricted}}
}

// world is the directory of most tests, from the view of alice's agent.
func world() Config {
	cfg := onePerson()
	marketing := peer("mark", "acme", "irc:direct:mark")
	marketing.OrgUnit = "marketing"
	cfg.Entries = []Entry{
		peer("friend", "acme", "irc:direct:friend", "telegram:1001", "matrix:direct:@friend:acme.example", "matrix:!friends:acme.example", "signal:+15550001", "chat:friend"),
		peer("rival", "globex", "irc:direct:rival", "telegram:direct:2002", "matrix:direct:@rival:globex.example", "signal:direct:+15550002",
			"slack:slack:direct:D200:U200", "discord:direct:900:901", "whatsapp:whatsapp:direct:15550002", "chat:rival", "twitch:direct:77", "agent:rival:*"),
		person("alice", "", "irc:direct:alice", "telegram:4711", "chat:alice", "matrix:direct:@alice:acme.example"),
		person("dana", "acme", "irc:direct:dana"),
		person("ceo", "globex", "telegram:777"),
		marketing,
		group([]string{"agent-friend-1", "irc:direct:dana"}, "irc:group:#friends"),
		group([]string{"agent-friend-1", "agent-rival-1"}, "irc:group:#mixed"),
		group([]string{"agent-friend-1", "agent-mark-1"}, "irc:#units"),
		group([]string{"agent-alice-1", "irc:direct:alice"}, "irc:#home"),
		group(nil, "irc:#open"),
		group([]string{"irc:direct:alice", "irc:direct:dana"}, "telegram:group:-100"),
		group([]string{"irc:direct:alice", "irc:direct:nobody"}, "chat:group:office"),
	}
	return cfg
}

func TestRecipient(t *testing.T) {
	d := directoryOf(t, world())
	alice := d.Agent("alice")
	irc := func(target string) map[string]string { return map[string]string{"target": target} }
	chat := func(id string) map[string]string { return map[string]string{"chatId": id} }
	for _, tc := range []struct {
		name, key string
		brought   map[string]string
		target    string
		who       string // instance, user or ""
		kind      ocip.Kind
		walled    bool
		accepts   ocip.Level
		group     bool
		strangers bool
	}{
		{name: "an agent", key: "irc:direct:friend", target: "friend", who: "agent-friend-1", kind: ocip.KindAgent, accepts: ocip.Internal},
		{name: "an agent of another tenant", key: "irc:direct:rival", target: "rival", who: "agent-rival-1", kind: ocip.KindAgent, walled: true, accepts: ocip.Internal},
		{name: "the same, without its form", key: "irc:rival", target: "rival", who: "agent-rival-1", kind: ocip.KindAgent, walled: true, accepts: ocip.Internal},
		{name: "the same, as a group", key: "irc:group:rival", target: "rival", who: "agent-rival-1", kind: ocip.KindAgent, walled: true, accepts: ocip.Internal},
		{name: "another form", key: "irc:dm:friend", target: "friend", who: "agent-friend-1", kind: ocip.KindAgent, accepts: ocip.Internal},
		{name: "the owner", key: "irc:direct:alice", target: "alice", who: "alice", kind: ocip.KindOwner, accepts: ocip.Confidential},
		{name: "a person", key: "irc:direct:dana", target: "dana", who: "dana", kind: ocip.KindPerson, accepts: ocip.Confidential},
		{name: "a person of another tenant", key: "telegram:777", target: "777", who: "ceo", kind: ocip.KindPerson, walled: true, accepts: ocip.Confidential},
		{name: "a stranger", key: "irc:direct:zoe", target: "zoe", kind: ocip.KindUnknown, strangers: true},

		{name: "an answer where it was asked", key: "irc:direct:friend", brought: irc("friend"), target: "friend", who: "agent-friend-1", kind: ocip.KindAgent, accepts: ocip.Internal},
		{name: "an answer to a channel nobody knows", key: "irc:direct:friend", brought: irc("#team"), target: "#team", who: "agent-friend-1", kind: ocip.KindAgent, group: true, strangers: true},
		{name: "the owner's question in one", key: "irc:direct:alice", brought: irc("#team"), target: "#team", kind: ocip.KindUnknown, group: true, strangers: true},
		{name: "a question among friends", key: "irc:direct:dana", brought: irc("#friends"), target: "#friends", who: "agent-friend-1", kind: ocip.KindAgent, accepts: ocip.Internal, group: true},
		{name: "a stranger's question among friends", key: "irc:direct:zoe", brought: irc("#friends"), target: "#friends", who: "agent-friend-1", kind: ocip.KindAgent, group: true, strangers: true},
		{name: "a question where a rival reads", key: "irc:direct:dana", brought: irc("#mixed"), target: "#mixed", who: "agent-rival-1", kind: ocip.KindAgent, walled: true, accepts: ocip.Internal, group: true},
		{name: "a group", key: "irc:#mixed", target: "#mixed", who: "agent-rival-1", kind: ocip.KindAgent, walled: true, accepts: ocip.Internal, group: true},
		{name: "a group of two units", key: "irc:group:#units", target: "#units", who: "agent-mark-1", kind: ocip.KindAgent, accepts: ocip.Internal, group: true},
		{name: "a group of its own", key: "irc:#home", target: "#home", who: "alice", kind: ocip.KindOwner, accepts: ocip.Confidential, group: true},
		{name: "a group of people", key: "telegram:-100", target: "-100", who: "dana", kind: ocip.KindPerson, accepts: ocip.Confidential, group: true},
		{name: "a group without members", key: "irc:#open", target: "#open", kind: ocip.KindUnknown, group: true, strangers: true},
		{name: "a group nobody lists", key: "irc:#other", target: "#other", kind: ocip.KindUnknown, group: true, strangers: true},
		{name: "a member nobody knows", key: "chat:group:office", target: "group:office", kind: ocip.KindUnknown, group: true, strangers: true},

		{name: "a chat of another id", key: "telegram:direct:4711", brought: chat("2002"), target: "2002", who: "agent-rival-1", kind: ocip.KindAgent, walled: true, accepts: ocip.Internal},
		{name: "a chat of an id nobody knows", key: "telegram:direct:4711", brought: chat("5"), target: "5", kind: ocip.KindUnknown, strangers: true},
		{name: "a group's id", key: "telegram:direct:1001", brought: chat("-100"), target: "-100", who: "agent-friend-1", kind: ocip.KindAgent, accepts: ocip.Internal, group: true},
		{name: "the id in another spelling", key: "telegram:direct:+02002", target: "+02002", who: "agent-rival-1", kind: ocip.KindAgent, walled: true, accepts: ocip.Internal},

		{name: "a room that came", key: "matrix:direct:@friend:acme.example", brought: map[string]string{"roomId": "!x:acme.example"}, target: "!x:acme.example", who: "agent-friend-1", kind: ocip.KindAgent, accepts: ocip.Internal},
		{name: "a room with others in it", key: "matrix:direct:@alice:acme.example", brought: map[string]string{"roomId": "!x:acme.example", "isGroup": "true"}, target: "!x:acme.example", kind: ocip.KindUnknown, group: true, strangers: true},
		{name: "a room that is listed", key: "matrix:direct:@friend:acme.example", target: "!friends:acme.example", who: "agent-friend-1", kind: ocip.KindAgent, accepts: ocip.Internal},
		{name: "a room of another", key: "matrix:direct:@rival:globex.example", brought: map[string]string{"roomId": "!friends:acme.example"}, target: "!friends:acme.example", who: "agent-rival-1", kind: ocip.KindAgent, walled: true, accepts: ocip.Internal},

		{name: "a room of another, where a stranger wrote", key: "matrix:direct:@zoe:h", brought: map[string]string{"roomId": "!friends:acme.example"}, target: "!friends:acme.example", who: "agent-friend-1", kind: ocip.KindAgent, strangers: true},
		{name: "a signal group", key: "signal:+15550001", brought: map[string]string{"sender": "+15550001", "groupId": "Zm9v"}, target: "Zm9v", who: "agent-friend-1", kind: ocip.KindAgent, group: true, strangers: true},
		{name: "slack", key: "slack:slack:direct:D200:U200", target: "D200", who: "agent-rival-1", kind: ocip.KindAgent, walled: true, accepts: ocip.Internal},
		{name: "slack, the same chat for somebody else", key: "slack:slack:channel:D200:U9", target: "D200", who: "agent-rival-1", kind: ocip.KindAgent, walled: true, accepts: ocip.Internal},
		{name: "slack, a channel where a rival asked", key: "slack:slack:channel:C1:U200", target: "C1", who: "agent-rival-1", kind: ocip.KindAgent, walled: true, group: true, strangers: true},
		{name: "slack, to a person's id", key: "slack:U200", target: "U200", kind: ocip.KindAgent, who: "agent-rival-1", walled: true, accepts: ocip.Internal},
		{name: "discord, as a guild", key: "discord:guild:1:900", target: "900", who: "agent-rival-1", kind: ocip.KindAgent, walled: true, group: true, strangers: true},
		{name: "whatsapp, with its server", key: "whatsapp:direct:15550002@s.whatsapp.net", target: "15550002@s.whatsapp.net", who: "agent-rival-1", kind: ocip.KindAgent, walled: true, accepts: ocip.Internal},
		{name: "twitch is read by all", key: "twitch:direct:77", brought: map[string]string{"channel": "#show"}, target: "#show", who: "agent-rival-1", kind: ocip.KindAgent, walled: true, group: true, strangers: true},

		{name: "a channel nobody knows", key: "chat:friend", target: "friend", who: "agent-friend-1", kind: ocip.KindAgent, accepts: ocip.Internal},
		{name: "its owner, by another id", key: "chat:alice", brought: chat("99"), target: "alice", who: "alice", kind: ocip.KindOwner, accepts: ocip.Confidential},
		{name: "its owner, where a rival is", key: "chat:alice", brought: chat("rival"), target: "alice", who: "agent-rival-1", kind: ocip.KindAgent, walled: true, accepts: ocip.Internal},
		{name: "its owner, among many", key: "chat:alice", brought: map[string]string{"chatId": "99", "isGroup": "true"}, target: "alice", kind: ocip.KindUnknown, group: true, strangers: true},
		{name: "as a group", key: "chat:group:alice", target: "group:alice", kind: ocip.KindUnknown, group: true, strangers: true},

		{name: "an agent of this daemon", key: "agent:bob:main", target: "bob:main", who: "agent-bob-1", kind: ocip.KindAgent, accepts: ocip.Internal},
		{name: "an agent's key, listed", key: "agent:rival:x", target: "rival:x", who: "agent-rival-1", kind: ocip.KindAgent, walled: true, accepts: ocip.Internal},
		{name: "an agent's key, not listed", key: "agent:zed:x", target: "zed:x", kind: ocip.KindUnknown},
	} {
		r, err := d.Recipient(tc.key, "", tc.brought, alice)
		if err != nil {
			t.Errorf("%s: %v", tc.name, err)
			continue
		}
		_, walled := ocip.Wall(alice.Identity, r.Counterparty)
		who := r.Counterparty.InstanceID
		if who == "" {
			who = r.Counterparty.UserID
		}
		accepts := tc.accepts
		if r.Target != tc.target || who != tc.who || r.Counterparty.Kind != tc.kind || walled != tc.walled || r.Counterparty.Accepts != accepts || r.Group != tc.group {
			t.Errorf("%s: %s is target %q, %s %q, walled %v, accepts %v, group %v, strangers %v, want %+v", tc.name, tc.key, r.Target, r.Counterparty.Kind, who, walled, r.Counterparty.Accepts, r.Group, r.Strangers, tc)
		}
		if tc.kind != ocip.KindUnknown && r.Strangers != tc.strangers {
			t.Errorf("%s: strangers %v", tc.name, r.Strangers)
		}
		if r.LooksLike != "" {
			t.Errorf("%s: looks like %s", tc.name, r.LooksLike)
		}
	}
}

// TestClients06NoAddressIsRefused: without its address a message would be counted and lost.
func TestClients06NoAddressIsRefused(t *testing.T) {
	cfg := world()
	cfg.Channels = map[string]Profile{"rooms": {Address: []string{"room"}}}
	d := directoryOf(t, cfg)
	for _, tc := range []struct {
		key, want string
		sentinel  error
	}{
		{"matrix:direct:@zoe:acme.example", "metadata.roomId", ErrAddress},
		{"mattermost:direct:u1", "metadata.channelId", ErrAddress},
		{"discord:direct:902", "metadata.channelId", ErrAddress},
		{"nextcloud-talk:direct:Dana", "metadata.conversationId", ErrAddress},
		{"twitch:direct:5", "metadata.channel", ErrAddress},
		{"matrix:#alias:acme.example", "sent to rooms", ErrAddress},
		{"irc", "channel:name", ErrAddress},
		{"irc:", "channel:name", ErrAddress},
		{":x", "channel:name", ErrAddress},
		{"irc:direct:friend,rival", "more than one", ErrAddress},
		{"irc:direct:rival@irc.globex.example", "no nick", ErrAddress},
		{"irc:direct:rival!u@h", "no nick", ErrAddress},
		{"irc:@#team", "no nick", ErrAddress},
		{"irc:+#team", "no nick", ErrAddress},
		{"irc:$*.example", "no nick", ErrAddress},
		{`irc:direct:\x72ival`, "escape", ErrAddress},
		{`irc:direct:riva\u006c`, "escape", ErrAddress},
		{"irc:direct:a b", "more than one", ErrAddress},
		{"signal:direct:15550002", "country first", ErrAddress},
		{"signal:direct:+1 555 0002", "country first", ErrAddress},
		{"signal:Direct: +15550002", "country first", ErrAddress},
		{"telegram:@globex_public", "list it in directory", ErrAddress},
		{"slack:#general", "list it in directory", ErrAddress},
		{"slack:general", "list it in directory", ErrAddress},
		{"nostr:npub1xyz", "list it in directory", ErrAddress},
		{"discord:channel:1/../900", "an id there is a number", ErrAddress},
		{`imessage:direct:x"`, "an id there is", ErrAddress},
		{"irc:direct:rival\u200b", "U+200B", ErrSpelling},
		{"telegram:rival ", "ends with a blank", ErrSpelling},
		{"irc:direct:e\u0301ve", "NFC", ErrSpelling},
		{"irc:" + strings.Repeat("x", 1100), "1104 bytes", ErrSpelling},
		{"chat:*", "every ending", ErrSpelling},
		{"chat:dave*", "every ending", ErrSpelling},
		{"agent:bob:*", "every ending", ErrSpelling},
		{"AGENT:bob:main", "looks like agent", ErrSpelling},
		{"\uff41gent:bob:main", "looks like agent", ErrSpelling},
		{"\u0430gent:bob:main", "looks like agent", ErrSpelling},
	} {
		_, err := d.Recipient(tc.key, "", nil, d.Agent("alice"))
		expect(t, tc.key, err, tc.want)
		if !errors.Is(err, tc.sentinel) {
			t.Errorf("%s: %v is not %v", tc.key, err, tc.sentinel)
		}
	}
	// A channel's profile in the configuration applies.
	r, err := d.Recipient("rooms:7", "", nil, d.Agent("alice"))
	if err != nil {
		t.Fatal(err)
	}
	if bound, _ := r.Bind(nil); string(bound["room"]) != `"7"` {
		t.Errorf("bound %s", bound)
	}
}

// TestBind checks the address that an app receives, and the caller's members that are refused
// (clients 1: the address is in the metadata, which the agent writes).
func TestBind(t *testing.T) {
	d := directoryOf(t, world())
	for _, tc := range []struct {
		name, key string
		brought   map[string]string
		account   string
		given     string
		want      string
		mismatch  string
	}{
		{name: "irc", key: "irc:direct:friend", given: `{"a":1}`, want: `a=1 target="friend"`},
		{name: "irc, the same in capitals", key: "irc:direct:friend", given: `{"target":"FRIEND"}`, want: `target="friend"`},
		{name: "irc, elsewhere", key: "irc:direct:friend", given: `{"target":"rival"}`, mismatch: "target"},
		{name: "irc, to a channel", key: "irc:direct:friend", given: `{"target":"#team"}`, mismatch: "target"},
		{name: "irc, where it was asked", key: "irc:direct:friend", brought: map[string]string{"target": "#team"}, given: `{"target":"#team"}`, want: `isGroup=true target="#team"`},
		{name: "irc, elsewhere than it was asked", key: "irc:direct:dana", brought: map[string]string{"target": "#team"}, given: `{"target":"dana"}`, mismatch: "target"},
		{name: "irc, a list", key: "irc:direct:friend", given: `{"target":["rival"]}`, mismatch: "target"},
		{name: "irc, nothing", key: "irc:direct:friend", given: `{"target":null}`, want: `target="friend"`},
		{name: "irc, empty", key: "irc:direct:friend", given: `{"target":""}`, want: `target="friend"`},
		{name: "irc does not read it", key: "irc:direct:friend", given: `{"chatId":"9"}`, want: `chatId="9" target="friend"`},
		{name: "telegram", key: "telegram:direct:1001", given: `{"chatId":1001}`, want: `chatId="1001"`},
		{name: "telegram, elsewhere", key: "telegram:direct:1001", given: `{"chatId":2002}`, mismatch: "chatId"},
		{name: "telegram, nearly", key: "telegram:direct:1001", given: `{"chatId":1001.5}`, mismatch: "chatId"},
		{name: "telegram, a group", key: "telegram:direct:1001", brought: map[string]string{"chatId": "-100"}, given: `{"threadId":4}`, want: `chatId="-100" isGroup=true threadId=4`},
		{name: "signal", key: "signal:+15550001", given: `{}`, want: `recipient="+15550001" sender="+15550001"`},
		{name: "signal, elsewhere", key: "signal:+15550001", given: `{"recipient":"+15550002"}`, mismatch: "recipient"},
		{name: "signal, into a group", key: "signal:+15550001", given: `{"groupId":"Zm9v"}`, mismatch: "groupId"},
		{name: "signal, in a group", key: "signal:+15550001", brought: map[string]string{"sender": "+15550001", "groupId": "Zm9v"},
			given: `{"sender":"+15550001","groupId":"Zm9v"}`, want: `groupId="Zm9v" isGroup=true`},
		{name: "signal, out of a group", key: "signal:+15550001", brought: map[string]string{"sender": "+15550001", "groupId": "Zm9v"},
			given: `{"recipient":"+15550001"}`, mismatch: "recipient"},
		{name: "whatsapp", key: "whatsapp:direct:15550009", given: `{"jid":"15550009@s.whatsapp.net"}`, want: `jid="15550009" remoteJid="15550009"`},
		{name: "matrix", key: "matrix:!r:h", given: `{"roomId":"!R:h"}`, mismatch: "roomId"},
		{name: "an account", key: "irc:direct:friend", account: "libera", given: `{"accountId":"libera"}`, want: `accountId="libera" target="friend"`},
		{name: "an account of its own choice", key: "irc:direct:friend", given: `{"accountId":"libera"}`, want: `accountId="libera" target="friend"`},
		{name: "another account than it was asked on", key: "irc:direct:friend", brought: map[string]string{"accountId": "libera"}, given: `{"accountId":"oftc"}`, mismatch: "accountId"},
		{name: "unknown", key: "chat:friend", given: `{"note":"x"}`, want: `note="x"`},
		{name: "unknown, its target", key: "chat:friend", given: `{"target":"friend","channelId":"chat"}`, want: `channelId="chat" target="friend"`},
		{name: "unknown, a part of the key", key: "chat:direct:friend", given: `{"to":"friend"}`, want: `to="friend"`},
		{name: "unknown, elsewhere", key: "chat:friend", given: `{"roomId":"rival"}`, mismatch: "roomId"},
		{name: "unknown, what came", key: "chat:friend", brought: map[string]string{"roomId": "r9", "isGroup": "true"}, given: `{"roomId":"r9","isGroup":false}`, want: `isGroup=true roomId="r9"`},
		{name: "unknown, what came and is left out", key: "chat:friend", brought: map[string]string{"roomId": "r9"}, given: `{}`, want: `roomId="r9"`},
		{name: "unknown, what came and more", key: "chat:friend", brought: map[string]string{"roomId": "r9"}, given: `{"chatId":"7"}`, mismatch: "chatId"},
		{name: "unknown, its own name elsewhere", key: "chat:friend", given: `{"target":"chat"}`, mismatch: "target"},
		{name: "by way of JavaScript", key: "irc:direct:friend", given: `{"__proto__":{"target":"rival"}}`, mismatch: "__proto__"},
		{name: "a thread", key: "telegram:direct:1001:thread:9", given: `{}`, want: `chatId="1001"`},
		{name: "an agent", key: "agent:bob:main", given: `{"target":"x"}`, want: `target="x"`},
	} {
		r, err := d.Recipient(tc.key, tc.account, tc.brought, d.Agent("alice"))
		if err != nil {
			t.Errorf("%s: %v", tc.name, err)
			continue
		}
		bound, mismatch := r.Bind(object(t, tc.given))
		if mismatch != tc.mismatch || mismatch == "" && show(bound) != tc.want {
			t.Errorf("%s: bound %s, mismatch %q, want %s, %q", tc.name, show(bound), mismatch, tc.want, tc.mismatch)
		}
	}
}

func object(t testing.TB, s string) map[string]jsontext.Value {
	t.Helper()
	members := make(map[string]jsontext.Value)
	dec := jsontext.NewDecoder(strings.NewReader(s))
	if _, err := dec.ReadToken(); err != nil {
		t.Fatal(err)
	}
	for dec.PeekKind() != '}' {
		name, err := dec.ReadToken()
		if err != nil {
			t.Fatal(err)
		}
		key := name.String()
		value, err := dec.ReadValue()
		if err != nil {
			t.Fatal(err)
		}
		members[key] = value.Clone()
	}
	return members
}

func show(o map[string]jsontext.Value) string {
	parts := make([]string, 0, len(o))
	for _, member := range slices.Sorted(maps.Keys(o)) {
		parts = append(parts, fmt.Sprintf("%s=%s", member, o[member]))
	}
	return strings.Join(parts, " ")
}

// TestStockApps checks every channel app of the OpenClawOS repository: the members that it brings
// in, and the destination of an answer. The member that it reads contains the place from which the
// question came.
func TestStockApps(t *testing.T) {
	d := directoryOf(t, world())
	for _, tc := range []struct {
		key, metadata string
		group         bool
		want          string // metadata of an answer that repeats nothing
	}{
		{"irc:direct:zoe", `{"channelId":"irc","from":"zoe","target":"zoe","senderNick":"zoe","isGroup":false}`, false, `target="zoe"`},
		{"irc:direct:zoe", `{"channelId":"irc","from":"zoe","target":"#team","senderNick":"zoe","isGroup":true}`, true, `target="#team"`},
		{"telegram:direct:5", `{"channelId":"telegram","from":"5","chatId":"5","chatType":"private","messageId":1}`, false, `chatId="5"`},
		{"telegram:direct:5", `{"channelId":"telegram","from":"5","chatId":"-1005","chatType":"supergroup"}`, true, `chatId="-1005"`},
		{"signal:direct:+1555", `{"channelId":"signal","from":"+1555","sender":"+1555","isGroup":false}`, false, `recipient="+1555" sender="+1555"`},
		{"signal:direct:+1555", `{"channelId":"signal","from":"+1555","sender":"+1555","isGroup":true,"groupId":"Zz=="}`, true, `groupId="Zz=="`},
		{"matrix:direct:@z:h", `{"channelId":"matrix","from":"@z:h","roomId":"!r:h","senderId":"@z:h","isGroup":false}`, false, `roomId="!r:h"`},
		{"matrix:direct:@z:h", `{"channelId":"matrix","from":"@z:h","roomId":"!r:h","senderId":"@z:h","isGroup":true}`, true, `roomId="!r:h"`},
		{"discord:discord:direct:10:20", `{"channelId":"10","from":"discord:direct:10:20","userId":"20","chatType":"direct"}`, false, `channelId="10"`},
		{"discord:discord:guild:7:10", `{"channelId":"10","from":"discord:guild:7:10","guildId":"7","userId":"20","chatType":"guild"}`, true, `channelId="10"`},
		{"slack:slack:direct:D1:U1", `{"channelId":"slack","channel":"D1","user":"U1","chatType":"direct","team":"T1"}`, false, `channel="D1"`},
		{"slack:slack:thread:C1:17.3", `{"channelId":"slack","channel":"C1","user":"U1","threadTs":"17.3","chatType":"channel"}`, true, `channel="C1"`},
		{"whatsapp:whatsapp:direct:1555", `{"channelId":"whatsapp","remoteJid":"1555@s.whatsapp.net","isGroup":false}`, false, `jid="1555@s.whatsapp.net" remoteJid="1555@s.whatsapp.net"`},
		{"whatsapp:whatsapp:group:12-3@g.us", `{"channelId":"whatsapp","remoteJid":"12-3@g.us","participant":"1555@s.whatsapp.net","isGroup":true}`, true, `jid="12-3@g.us" remoteJid="12-3@g.us"`},
		{"mattermost:direct:u1", `{"channelId":"c1","from":"u1","userId":"u1","isDirectMessage":false}`, true, `channelId="c1"`},
		{"mattermost:direct:u1", `{"channelId":"c1","from":"u1","userId":"u1","isDirectMessage":true}`, false, `channelId="c1"`},
		{"msteams:direct:a:1", `{"channelId":"msteams","conversationId":"a:1","senderId":"s"}`, false, `conversationId="a:1"`},
		{"msteams:direct:x", `{"channelId":"19:t@thread.tacv2","conversationId":"19:t@thread.tacv2","teamId":"t"}`, true, `channelId="19:t@thread.tacv2" conversationId="19:t@thread.tacv2"`},
		{"nextcloud-talk:direct:Zoe", `{"channelId":"nextcloud-talk","conversationId":"tok","senderDisplayName":"Zoe","senderId":"zoe","isGroup":true}`, true, `conversationId="tok"`},
		{"googlechat:direct:spaces/A", `{"channelId":"googlechat","spaceId":"spaces/A","senderId":"users/1"}`, false, `spaceId="spaces/A"`},
		{"bluebubbles:direct:iMessage;-;+1555", `{"channelId":"bluebubbles","chatId":"iMessage;-;+1555","senderId":"+1555"}`, false, `chatId="iMessage;-;+1555"`},
		{"bluebubbles:direct:iMessage;+;chat9", `{"channelId":"bluebubbles","chatId":"iMessage;+;chat9","senderId":"+1555"}`, true, `chatId="iMessage;+;chat9"`},
		{"imessage:direct:+1555", `{"channelId":"imessage","handle":"+1555","messageId":"1"}`, false, `handle="+1555"`},
		{"twitch:direct:9", `{"channelId":"twitch","channel":"show","userId":"9","isGroup":true}`, true, `channel="show"`},
		{"tlon:direct:~zod", `{"channelId":"tlon","ship":"~zod"}`, false, `ship="~zod"`},
		{"nostr:direct:ab12", `{"channelId":"nostr","pubkey":"ab12"}`, false, `pubkey="ab12"`},
		{"feishu:direct:ou_1", `{"channelId":"feishu","openId":"ou_1","chatType":"p2p"}`, false, `openId="ou_1"`},
		{"line:direct:U1", `{"channelId":"line","userId":"U1","replyToken":"r"}`, false, `userId="U1"`},
		{"zalo:direct:7", `{"channelId":"zalo","userId":"7"}`, false, `userId="7"`},
		{"zalouser:direct:7", `{"channelId":"zalouser","recipientId":"7","senderName":"Z"}`, false, `recipientId="7"`},
	} {
		channel, _ := Split(tc.key)
		given := object(t, tc.metadata)
		o, err := d.Origin(tc.key, given, d.Agent("alice"))
		if err != nil {
			t.Errorf("%s: %v", tc.key, err)
			continue
		}
		r, err := d.Recipient(tc.key, "", o.Brought, d.Agent("alice"))
		if err != nil {
			t.Errorf("%s: %v", tc.key, err)
			continue
		}
		if r.Group != tc.group || o.Group != tc.group {
			t.Errorf("%s: group %v, %v", tc.key, r.Group, o.Group)
		}
		empty, mismatch := r.Bind(nil)
		if mismatch != "" {
			t.Errorf("%s: mismatch %s", tc.key, mismatch)
		}
		// An agent may return all the members that came.
		echoed, mismatch := r.Bind(given)
		if mismatch != "" {
			t.Errorf("%s: an echo does not match: %s", tc.key, mismatch)
		}
		n := d.network(channel)
		for _, member := range slices.Concat(n.direct, n.group) {
			if string(empty[member]) != string(echoed[member]) {
				t.Errorf("%s: %s is %s, with an echo %s", tc.key, member, empty[member], echoed[member])
			}
		}
		if delete(empty, groupMember); channel != "msteams" && show(empty) != tc.want {
			t.Errorf("%s: an answer has %s, want %s", tc.key, show(empty), tc.want)
		}
		// The daemon sets the members to which the app would send, whatever the caller gives.
		for _, member := range slices.Concat(n.direct, n.group) {
			if _, mismatch := r.Bind(map[string]jsontext.Value{member: jsontext.Value(`"somebody-else"`)}); mismatch != member {
				t.Errorf("%s: metadata.%s can be given", tc.key, member)
			}
		}
	}
	for channel := range networks() {
		if !slices.Contains([]string{"irc", "telegram", "signal", "matrix", "discord", "slack", "whatsapp", "mattermost", "msteams", "nextcloud-talk",
			"googlechat", "bluebubbles", "imessage", "twitch", "tlon", "nostr", "feishu", "line", "zalo", "zalouser"}, channel) {
			t.Errorf("%s has no row", channel)
		}
	}
}

// TestAttack24AndClients02Spelling: a key that differs from a listed one only in its spelling is
// not a stranger's.
func TestAttack24AndClients02Spelling(t *testing.T) {
	d := directoryOf(t, world())
	alice := d.Agent("alice")
	for _, tc := range []struct {
		key, who, like string
		brought        map[string]string
	}{
		{key: "irc:direct:RIVAL", who: "agent-rival-1"},
		{key: "irc:Direct:Rival", who: "agent-rival-1"},
		{key: "irc:dm:rIVAl", who: "agent-rival-1"},
		{key: "irc:direct:r\u0456val", like: "irc:direct:rival"}, // Cyrillic i
		{key: "irc:direct:rivaI", like: "irc:direct:rival"},      // a capital i for the l
		{key: "irc:direct:ｒｉｖａｌ", like: "irc:direct:rival"},
		{key: "irc:direct:rlval", like: "irc:direct:rival"},
		{key: "irc:r\u0456val", like: "irc:direct:rival"},
		{key: "irc:direct:zoe", brought: map[string]string{"target": "r\u0456val"}, like: "irc:direct:rival"},
		{key: "matrix:direct:@RIVAL:globex.example", like: "matrix:direct:@rival:globex.example", brought: map[string]string{"roomId": "!q:h"}},
		{key: "matrix:!FRIENDS:acme.example", like: "matrix:!friends:acme.example"},
		{key: "chat:Rival", like: "chat:rival"},
		{key: "agent:Rival:x", like: "agent:rival:*"},
		{key: "agent:r\u0456val:y", like: "agent:rival:*"},
		{key: "irc:direct:rivals"},
		{key: "irc:direct:zoe"},
		{key: "telegram:4712"},
	} {
		r, err := d.Recipient(tc.key, "", tc.brought, alice)
		if err != nil {
			t.Errorf("%s: %v", tc.key, err)
			continue
		}
		if r.Counterparty.InstanceID != tc.who || r.LooksLike != tc.like {
			t.Errorf("%s is %q and looks like %q, want %q, %q", tc.key, r.Counterparty.InstanceID, r.LooksLike, tc.who, tc.like)
		}
	}
}

// TestBoundSaysAll: the decision about a message that waited is about the address to which it was
// bound, wherever the session's last message came from meanwhile.
func TestBoundSaysAll(t *testing.T) {
	d := directoryOf(t, world())
	alice := d.Agent("alice")
	for _, tc := range []struct {
		key     string
		brought map[string]string
	}{
		{"irc:direct:dana", map[string]string{"target": "#mixed"}},
		{"irc:direct:dana", nil},
		{"irc:#friends", nil},
		{"matrix:direct:@alice:acme.example", map[string]string{"roomId": "!x:h", "isGroup": "true"}},
		{"matrix:direct:@friend:acme.example", nil},
		{"signal:+15550001", map[string]string{"sender": "+15550001", "groupId": "Zm9v"}},
		{"discord:discord:guild:7:900", map[string]string{"accountId": "bot"}},
		{"slack:slack:channel:C1:U200", nil},
		{"chat:alice", map[string]string{"chatId": "99", "isGroup": "true"}},
		{"chat:alice", map[string]string{"chatId": "rival", "accountId": "work"}},
		{"chat:group:office", nil},
		{"twitch:direct:77", map[string]string{"channel": "show"}},
	} {
		first, err := d.Recipient(tc.key, "", tc.brought, alice)
		if err != nil {
			t.Fatal(err)
		}
		bound, _ := first.Bind(object(t, `{"note":"x"}`))
		kept, err := d.Brought(tc.key, bound)
		if err != nil {
			t.Fatal(err)
		}
		again, err := d.Recipient(tc.key, "", kept, alice)
		if err != nil || again.Address != first.Address || again.Counterparty != first.Counterparty || again.Group != first.Group || again.Strangers != first.Strangers {
			t.Errorf("%s, %v: %+v, then %+v, %v", tc.key, tc.brought, first, again, err)
		}
		if rebound, mismatch := again.Bind(bound); mismatch != "" || show(rebound) != show(bound) {
			t.Errorf("%s: bound %s, then %s, %s", tc.key, show(bound), show(rebound), mismatch)
		}
	}
}

// TestPlace: messages to one place are counted together, however a key names it.
func TestPlace(t *testing.T) {
	d := directoryOf(t, world())
	for want, keys := range map[string][]string{
		"irc:zoe{}":    {"irc:zoe{}", "irc:direct:Zoe[]", "irc:DM:ZOE{]", "irc:group:zoe{}"},
		"telegram:7":   {"telegram:7", "telegram:direct:+007", "telegram:dm:7"},
		"matrix:!a:h":  {"matrix:!a:h", "matrix:room:!a:h"},
		"chat:zoe":     {"chat:zoe"},
		"agent:bob:x":  {"agent:bob:x"},
		"discord:10":   {"discord:discord:direct:10:20", "discord:guild:1:10"},
		"whatsapp:155": {"whatsapp:155@c.us", "whatsapp:direct:155:3@s.whatsapp.net"},
	} {
		for _, key := range keys {
			r, err := d.Recipient(key, "", nil, d.Agent("alice"))
			if err != nil || r.Place() != want {
				t.Errorf("%s is at %s, %v, want %s", key, r.Place(), err, want)
			}
		}
	}
}

// TestSeveralRooms: if the directory has several addresses for somebody whose key names none, none
// is preferred.
func TestSeveralRooms(t *testing.T) {
	cfg := world()
	cfg.Entries = append(cfg.Entries, peer("many", "acme", "matrix:direct:@many:h", "matrix:!one:h", "matrix:!two:h"))
	d := directoryOf(t, cfg)
	_, err := d.Recipient("matrix:direct:@many:h", "", nil, d.Agent("alice"))
	expect(t, "two rooms", err, "metadata.roomId")
}

func TestPatterns(t *testing.T) {
	cfg := world()
	cfg.Entries = append(cfg.Entries, peer("bots", "acme", "irc:direct:bot-*"), peer("guild", "globex", "slack:slack:channel:C7:*"), person("alice", "", "sms:*"))
	cfg.Routes = []Route{{"irc:direct:Zoe*", "bob"}, {"irc:*", "alice"}}
	d := directoryOf(t, cfg)
	alice := d.Agent("alice")
	for _, tc := range []struct{ key, who, like string }{
		{"irc:direct:bot-1", "agent-bots-1", ""},
		{"irc:direct:BOT-1", "agent-bots-1", ""},
		{"irc:bot-9", "agent-bots-1", ""},
		{"irc:direct:b\u043et-1", "", "irc:direct:bot-*"},
		{"slack:slack:channel:C7:U4", "agent-guild-1", ""},
		{"slack:slack:thread:C7:1.2", "agent-guild-1", ""},
		{"slack:C7", "agent-guild-1", ""},
		{"sms:+1555", "alice", ""},
	} {
		r, err := d.Recipient(tc.key, "", nil, alice)
		who := r.Counterparty.InstanceID
		if who == "" {
			who = r.Counterparty.UserID
		}
		if err != nil || who != tc.who || r.LooksLike != tc.like {
			t.Errorf("%s is %q and looks like %q, %v, want %q, %q", tc.key, who, r.LooksLike, err, tc.who, tc.like)
		}
	}
	for key, want := range map[string]string{"irc:direct:zoe": "bob", "irc:direct:ZOE2": "bob", "irc:direct:yan": "alice"} {
		if a, ok := d.Routed(key); !ok || a.ID != want {
			t.Errorf("%s is routed to %v", key, a)
		}
	}
}

// A name from an app never reads as a pattern, so that a person who lists it lists no other name
// with it.
func TestNoNameIsAPattern(t *testing.T) {
	d := directoryOf(t, world())
	alice := d.Agent("alice")
	for _, tc := range []struct{ key, metadata string }{
		{"chat:*", `{}`}, {"agent:bob:*", `{}`}, {"chat:dave", `{"chatId":"d*"}`}, {"chat:dave", `{"accountId":"*"}`}, {"irc:direct:dave", `{"target":"#d*"}`},
	} {
		_, err := d.Origin(tc.key, object(t, tc.metadata), alice)
		expect(t, tc.key+" "+tc.metadata, err, "every ending")
	}
	_, err := d.Recipient("chat:dave", "work*", nil, alice)
	expect(t, "an account", err, "every ending")
	// Only the star of the configuration itself makes a session a pattern. No spelling of a network
	// does.
	cfg := world()
	cfg.Channels = map[string]Profile{"wide": {Address: []string{"to"}}}
	cfg.Entries = append(cfg.Entries, peer("wide", "acme", "wide:d\uff0a"))
	if r, err := directoryOf(t, cfg).Recipient("wide:dave", "", nil, alice); err != nil || r.Counterparty.InstanceID != "" || r.LooksLike != "" {
		t.Errorf("wide:dave is %q and looks like %q: %v", r.Counterparty.InstanceID, r.LooksLike, err)
	}
}

// TestOneAddressOneEntry: two entries cannot claim one address.
func TestOneAddressOneEntry(t *testing.T) {
	for _, entries := range [][]Entry{
		{peer("a", "acme", "irc:direct:bob"), peer("b", "acme", "irc:BOB")},
		{peer("a", "acme", "telegram:7"), person("b", "", "telegram:direct:007")},
		{peer("a", "acme", "matrix:direct:@x:h"), person("b", "", "matrix:dm:@x:h")},
		{peer("a", "acme", "irc:direct:b\u200bob")},
		{peer("a", "acme", "irc:direct:bob**")},
		{group(nil, "irc:#a"), group([]string{"irc:#a"}, "irc:#b")},
	} {
		cfg := onePerson()
		cfg.Entries = entries
		if _, err := New(&cfg); err == nil {
			t.Errorf("%+v is taken", entries)
		}
	}
	cfg := onePerson()
	cfg.Entries = []Entry{peer("a", "acme", "irc:direct:bob", "irc:bob"), person("b", "", "chat:direct:bob"), group(nil, "chat:group:bob")}
	directoryOf(t, cfg)
}

// TestSeeds07TenantOfPeople: a configured tenant counts for every kind, and a person of another
// tenant owns nothing here.
func TestSeeds07TenantOfPeople(t *testing.T) {
	cfg := onePerson()
	cfg.Entries = []Entry{person("alice", "globex", "sms:1"), person("alice", "acme", "sms:2"), person("alice", "", "sms:3"), person("", "globex", "sms:4")}
	d := directoryOf(t, cfg)
	alice := d.Agent("alice")
	for key, want := range map[string]struct {
		kind   ocip.Kind
		walled bool
	}{"sms:1": {ocip.KindPerson, true}, "sms:2": {ocip.KindOwner, false}, "sms:3": {ocip.KindOwner, false}, "sms:4": {ocip.KindPerson, true}} {
		r, err := d.Recipient(key, "", nil, alice)
		if err != nil {
			t.Fatal(err)
		}
		c := r.Counterparty
		if _, walled := ocip.Wall(alice.Identity, c); walled != want.walled || c.Kind != want.kind {
			t.Errorf("%s: %+v", key, c)
		}
	}
}

func TestProfiles(t *testing.T) {
	cfg := world()
	cfg.Channels = map[string]Profile{
		"irc":  {Address: []string{"nick"}, Case: text.CaseNone, Rendering: []text.Rendering{}},
		"mail": {Address: []string{"mailbox"}, Case: text.CaseUnicode, Rendering: []text.Rendering{text.RenderHTML}},
	}
	cfg.Entries = append(cfg.Entries, peer("zoe", "acme", "mail:zoe@EXAMPLE.com"))
	d := directoryOf(t, cfg)
	if r := d.Rendering("irc"); len(r) != 0 {
		t.Errorf("irc renders %v", r)
	}
	if r := d.Rendering("telegram"); !slices.Equal(r, []text.Rendering{text.RenderHTML}) {
		t.Errorf("telegram renders %v", r)
	}
	r, err := d.Recipient("irc:direct:RIVAL", "", nil, d.Agent("alice"))
	if err != nil || r.LooksLike != "irc:direct:rival" {
		t.Errorf("%+v, %v", r, err)
	}
	if bound, mismatch := r.Bind(object(t, `{"target":"x"}`)); show(bound) != `nick="RIVAL" target="x"` || mismatch != "" {
		t.Errorf("bound %s, %s", show(bound), mismatch)
	}
	if r, err = d.Recipient("mail:ZOE@example.COM", "", nil, d.Agent("alice")); err != nil || r.Counterparty.InstanceID != "agent-zoe-1" || !r.IsAddress("mailbox") || r.IsAddress("target") {
		t.Errorf("%+v, %v", r, err)
	}
}

// FuzzKey: any key is refused, or has an address that its app receives and that a second look finds
// again.
func FuzzKey(f *testing.F) {
	for _, key := range []string{"irc:direct:friend", "slack:slack:thread:C1:1", "telegram:group:-1:topic:2", "agent:bob:x", "a:", ":", "irc:\\x41", "matrix:!r:h", "discord:guild:1:2", "chat:group:ü", "signal:+1 5"} {
		f.Add(key, "x")
	}
	d := directoryOf(f, world())
	alice := d.Agent("alice")
	f.Fuzz(func(t *testing.T, key, given string) {
		r, err := d.Recipient(key, "", nil, alice)
		if err != nil {
			if !errors.Is(err, ErrSpelling) && !errors.Is(err, ErrAddress) {
				t.Fatal(err)
			}
			return
		}
		if r.Target == "" || text.Canonical(key) != nil {
			t.Fatalf("%q has target %q", key, r.Target)
		}
		bound, mismatch := r.Bind(nil)
		if mismatch != "" {
			t.Fatalf("nothing does not match: %s", mismatch)
		}
		if r.network == nil {
			return
		}
		for _, member := range r.network.direct {
			value, ok := plainText(bound[member])
			if !r.Group && (!ok || value != r.Target) {
				t.Fatalf("metadata.%s is %s, want %q", member, bound[member], r.Target)
			}
		}
		// The target alone, through the same app, reaches the same.
		if r.network.known() && r.Counterparty.Kind == ocip.KindUnknown && r.LooksLike == "" {
			if e := d.at(r.Channel, r.Target, r.Group); e != nil && !e.Group {
				t.Fatalf("%q is a stranger, and %q is %s", key, r.Target, d.nameOf(e))
			}
		}
		brought, err := d.Brought(key, bound)
		if err != nil {
			t.Fatal(err)
		}
		again, err := d.Recipient(key, "", brought, alice)
		if err != nil {
			t.Fatalf("%q cannot be answered: %v", key, err)
		}
		if again.Target != r.Target {
			t.Fatalf("%q goes to %q, and an answer to %q", key, r.Target, again.Target)
		}
		if raw, err := jsontext.AppendQuote(nil, given); err == nil && r.network.known() && !r.Group {
			member := r.network.direct[0]
			if bound, mismatch := r.Bind(map[string]jsontext.Value{member: raw}); mismatch == "" {
				if value, _ := plainText(bound[member]); value != r.Target {
					t.Fatalf("given %q, the app gets %q, not %q", given, value, r.Target)
				}
			}
		}
	})
}

// An entry of a network that ignores case is found by either spelling.
func TestCapitalsOfServers(t *testing.T) {
	t.Parallel()
	d, err := New(&Config{Entries: []Entry{{Counterparty: ocip.Counterparty{Kind: ocip.KindPerson, Identity: ocip.Identity{UserID: "eve", TenantID: "globex"}}, Sessions: []string{"github:Globex/Plans", "email:Eve@Globex.example", "chat:Eve"}}}})
	if err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]bool{"github:globex/plans": true, "github:Globex/Plans": true, "github:globex/other": false, "email:eve@globex.example": true, "chat:eve": false, "chat:Eve": true} {
		if got := d.Lists(key); got != want {
			t.Errorf("%s is listed: %t", key, got)
		}
	}
}
