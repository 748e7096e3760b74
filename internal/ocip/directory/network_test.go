package directory

import (
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/openclawos/ocipd/internal/ocip"
)

// TestDocumentedNetworks compares the page of channels with the table.
func TestDocumentedNetworks(t *testing.T) {
	want, err := Reference()
	if page, readErr := os.ReadFile("../../../docs/reference/protocol/channels.md"); err != nil || readErr != nil || string(page) != string(want) {
		t.Errorf("docs/reference/protocol/channels.md is stale: make reference writes it (%v, %v)", err, readErr)
	}
}

// TestForms: the first matching form reads a key, and every form of every channel can be reached.
func TestForms(t *testing.T) {
	for name, n := range networks() {
		if len(n.direct) == 0 || len(n.group) == 0 || len(n.forms) == 0 || !n.forms[len(n.forms)-1].name {
			t.Errorf("%s: %+v", name, n)
		}
		for i, f := range n.forms {
			parts := slices.Clone(f.parts)
			for j, part := range parts {
				switch part {
				case toPart:
					parts[j] = "T"
				case whoPart:
					parts[j] = "W"
				case anyPart:
					parts[j] = "x"
				}
			}
			key := strings.Join(parts, ":")
			for j := range n.forms {
				if c, ok := n.forms[j].match(key); ok {
					if j != i {
						t.Errorf("%s: %s is read as %v, not as %v", name, key, n.forms[j].parts, f.parts)
					}
					if slices.Contains(f.parts, toPart) && c.to != "T" || slices.Contains(f.parts, whoPart) && c.who != "W" {
						t.Errorf("%s: %s says %+v", name, key, c)
					}
					break
				}
			}
		}
	}
}

// TestSpellings checks names that are the same for a network, and names that are not.
func TestSpellings(t *testing.T) {
	all := networks()
	for _, tc := range []struct{ network, a, b string }{
		{"irc", "Nick[]", "nick{}"}, {"irc", "#TEAM", "#team"}, {"telegram", "+0012", "12"}, {"telegram", "-0012", "-12"}, {"telegram", "0", "-0"},
		{"whatsapp", "15@s.whatsapp.net", "15"}, {"whatsapp", "15:4@c.us", "+15"}, {"whatsapp", "15_1:4@S.WhatsApp.Net", "15"},
		{"googlechat", "spaces/A", "A"}, {"twitch", "#Show", "show"}, {"tlon", "~zod", "zod"}, {"discord", "007", "7"},
		{"msteams", "19:abc@thread.v2;messageid=1700", "19:abc@thread.v2"}, {"bluebubbles", "any;+;chat1", "iMessage;+;chat1"},
		{"bluebubbles", "SMS;-;+1555", "+1555"}, {"whatsapp", "15:4@lid", "15@LID"},
	} {
		n := all[tc.network]
		if n.folded(tc.a) != n.folded(tc.b) {
			t.Errorf("%s: %s is not %s", tc.network, tc.a, tc.b)
		}
	}
	for _, tc := range []struct{ network, a, b string }{
		{"irc", "a", "b"}, {"telegram", "12", "-12"}, {"telegram", "1a", "01a"}, {"whatsapp", "15@g.us", "15"}, {"whatsapp", "15@lid", "15"},
		{"matrix", "!A:h", "!a:h"}, {"googlechat", "A", "a"}, {"signal", "+1", "1"},
	} {
		n := all[tc.network]
		if n.folded(tc.a) == n.folded(tc.b) {
			t.Errorf("%s: %s is %s", tc.network, tc.a, tc.b)
		}
	}
	if got := slices.Sorted(maps.Keys(knownMembers())); !slices.Contains(got, "target") || !slices.Contains(got, "spaceId") || slices.Contains(got, "content") {
		t.Errorf("known members are %v", got)
	}
}

// TestIDs: a known network accepts only addresses in the form of its ids.
func TestIDs(t *testing.T) {
	all := networks()
	const hash = "4f1c0dc7a3c14cfd9b9f53f6b2fdb4a6"
	ids := map[string][]string{
		"irc":            {"zoe", "Zoe[]{}|^`_-", "r\u0456val", "#team", "&local", "#a.b/c", "1"},
		"telegram":       {"4711", "-1001234567890", "+02002", "@public_name", "dave", "from-gina"},
		"signal":         {"+15550001", "Zm9v/+8=", "550e8400-e29b-41d4-a716-446655440000", "me", "zoe.01"},
		"matrix":         {"!r:h", "!friends:acme.example", "!a_b:[::1]:8448", "!31hneApxJ_1o-63DmFrpeqnkFfWppnzWso1JvH3ogLM"},
		"discord":        {"10", "1234567890123456789"},
		"slack":          {"C7", "D200", "U024BE7LH", "#general", "@zoe.b", "general", "c1", "dave-2"},
		"whatsapp":       {"15550002", "+1555", "155:3@s.whatsapp.net", "15_1:4@S.WhatsApp.Net", "155@c.us", "12-3@g.us", "120363043211234567@g.us", "15:4@lid", "status@broadcast", "12@newsletter"},
		"mattermost":     {"c1", hash[:26]},
		"msteams":        {"19:abc@thread.v2", "19:abc@thread.tacv2;messageid=1700", "19:meeting_NjY-x@thread.v2", "a:1_x-Y", "29:1a", "19:" + hash + "_" + hash + "@unq.gbl.spaces", "x"},
		"nextcloud-talk": {"t0k3n"},
		"googlechat":     {"AAAA-x_1", "spaces/AAA"},
		"bluebubbles":    {"iMessage;-;+1555", "iMessage;+;chat9", "any;+;" + hash, "SMS;-;22000", "iMessage;-;zoe@acme.example", "+1555", "chat9"},
		"imessage":       {"+1555", "zoe+x@acme.example", "x", "urn:biz:550e8400-e29b"},
		"twitch":         {"#show", "show_1"},
		"tlon":           {"~zod", "zod", "~sampel-palnet", "~marzod", "~dozfed-datdux-sampel-palnet"},
		"nostr":          {"ab12", hash + hash, "npub1xyz"},
		"feishu":         {"ou_1", "oc_" + hash}, "line": {"U" + hash}, "zalo": {"7"}, "zalouser": {"7"},
	}
	// Texts that lead elsewhere in a URL or a script, add another number for a program that reads
	// numbers, or surround an id.
	around := []string{"ID/", "ID/x", "ID/../x", "./ID", "x/../ID", "//ID", "ID?", "ID?x", "ID#x", "%20ID", "ID%20", "ID\\", "ID;x", "ID,x", "ID x", "ID\"", "(ID)", "ID:x/y", "<ID>", "ID@", "@@ID"}
	strange := map[string][]string{
		"telegram":    {"-1001234567890.0", "-1.00123456789e12", "0x10", "1e3", "12_000", "\u22121001", "t.me/c/123/5", "--1", "-77_5", "1a"},
		"signal":      {"15550002", "+1 555 0002", "+0155", "uuid:550e8400"},
		"matrix":      {"#alias:h", "@zoe:h", "stranger", "%21r:h"},
		"discord":     {"channel", "-7", "7.0", "1/../900", "7e2"},
		"slack":       {"C1?", "C1.", "C1-", "C1_x", "C1:1.2"},
		"whatsapp":    {"15@", "15@evil.example", "zoe", "+", "12-3", "15.0", "15@s.whatsapp.net@g.us"},
		"msteams":     {"19%3Aabc@thread.v2", "19:abc@thread.v2/x", "19:abc@Thread.v2", "19:abc@thread.v2;messageid=1;messageid=2", "19:abc@thread.v2;x=1", "19:abc@thread.v2;messageid="},
		"googlechat":  {"spaces/BBB/../AAA", "spaces/%41AA", "spaces/AAA?x", "spaces/AAA/", "spaces//AAA", "spaces/spaces/AAA", "spaces/AAA/threads/1", "users/1"},
		"bluebubbles": {"any;+;chat1;x", "none;+;chat1", "iMessage;*;chat1", "5551234567", ";+;chat1"},
		"imessage":    {"5551234567", "tel:+1555", "+0155", "+1 555", `x"`},
		"twitch":      {"show,other", "##show"},
		"tlon":        {"sampelpalnet", "~~zod", "~sampel--palnet", "~host/name"},
		"nostr":       {"nostr:ab12", "xyz"},
	}
	for name, n := range all {
		if len(ids[name]) == 0 || n.refuse == nil {
			t.Errorf("%s: nothing says what its ids are", name)
			continue
		}
		for _, id := range ids[name] {
			if why := n.refuse(id); why != "" {
				t.Errorf("%s: %s is refused: %s", name, id, why)
			}
		}
		for _, id := range strange[name] {
			if n.refuse(id) == "" {
				t.Errorf("%s: %s is an id", name, id)
			}
		}
		if name == "irc" || name == "signal" {
			continue // a nick and a group's key contain backslashes
		}
		for _, form := range around {
			if id := strings.ReplaceAll(form, "ID", ids[name][0]); n.refuse(id) == "" {
				t.Errorf("%s: %s is an id", name, id)
			}
		}
	}
	if !all["bluebubbles"].many("chat9") || all["bluebubbles"].many("+1555") || !all["msteams"].many("19:a@thread.v2;messageid=1") {
		t.Error("what is a place of many")
	}
}

// TestOtherNamesOfARoom: no other name of a listed room leads there past its entry.
func TestOtherNamesOfARoom(t *testing.T) {
	cfg := world()
	cfg.Entries = append(cfg.Entries, group([]string{"agent-rival-1"}, "msteams:19:abc@thread.v2", "googlechat:group:AAA", "bluebubbles:iMessage;+;chat1",
		"slack:channel:C1", "telegram:group:-1001234567890", "whatsapp:15@lid"))
	d := directoryOf(t, cfg)
	self := d.Agent("alice")
	for _, key := range []string{
		"msteams:19:abc@thread.v2", "msteams:19:abc@thread.v2;messageid=1700", "msteams:group:19:abc@thread.v2;messageid=1", "msteams:direct:19:abc@thread.v2;messageid=1",
		"msteams:19%3Aabc@thread.v2", "msteams:19:abc@thread.v2/x", "googlechat:spaces/AAA", "googlechat:AAA", "googlechat:spaces/BBB/../AAA", "googlechat:spaces/%41AA",
		"googlechat:spaces/AAA?x", "googlechat:spaces/AAA/", "bluebubbles:iMessage;+;chat1", "bluebubbles:any;+;chat1", "bluebubbles:chat1", "bluebubbles:SMS;-;CHAT1",
		"slack:C1?", "slack:thread:C1:1.2", "telegram:-1001234567890.0", "telegram:-1.00123456789e12", "telegram:-01001234567890", "whatsapp:15:2@lid",
	} {
		r, err := d.Recipient(key, "", nil, self)
		if _, walled := ocip.Wall(self.Identity, r.Counterparty); err == nil && !walled {
			t.Errorf("%s goes to %s past the wall: %+v", key, r.Target, r.Counterparty)
		}
	}
}
