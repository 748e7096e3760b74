package directory

import (
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/openclawos/ocipd/internal/text"
)

// TestDocumentedNetworks holds the table that people read against the one that is
// used.
func TestDocumentedNetworks(t *testing.T) {
	doc, err := os.ReadFile("../../docs/PROTOCOL.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := make(map[string]string)
	for line := range strings.Lines(string(doc)) {
		cells := strings.Split(line, "|")
		if len(cells) < 3 || !strings.HasPrefix(line, "| `") {
			continue
		}
		for name := range strings.SplitSeq(cells[1], ",") {
			rows[strings.Trim(name, " `")] += line
		}
	}
	for name, n := range networks() {
		row := rows[name]
		for _, member := range slices.Concat(n.direct, n.group) {
			if !strings.Contains(row, "`"+member+"`") {
				t.Errorf("%s: docs/PROTOCOL.md does not say that it reads %s", name, member)
			}
		}
		for _, r := range n.rendering {
			if !strings.Contains(row, "`"+string(r)+"`") {
				t.Errorf("%s: docs/PROTOCOL.md does not say that it undoes %s", name, r)
			}
		}
		if capitals := n.fold == text.CaseASCII || n.fold == text.CaseRFC1459; capitals != strings.Contains(row, "capitals") {
			t.Errorf("%s: docs/PROTOCOL.md says otherwise of its capitals", name)
		}
	}
}

// TestForms: a key is read by the first form that fits, and every form of every
// channel can be met.
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

// TestSpellings holds names that are one to each other, and those that are not apart.
func TestSpellings(t *testing.T) {
	all := networks()
	for _, tc := range []struct{ network, a, b string }{
		{"irc", "Nick[]", "nick{}"}, {"irc", "#TEAM", "#team"}, {"telegram", "+0012", "12"}, {"telegram", "-0012", "-12"}, {"telegram", "0", "-0"},
		{"whatsapp", "15@s.whatsapp.net", "15"}, {"whatsapp", "15:4@c.us", "+15"}, {"whatsapp", "15_1:4@S.WhatsApp.Net", "15"},
		{"googlechat", "spaces/A", "A"}, {"twitch", "#Show", "show"}, {"tlon", "~zod", "zod"}, {"discord", "007", "7"},
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
