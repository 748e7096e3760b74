package ocip

import (
	"strings"
	"testing"
)

// TestSays checks that a message which is held for its words says these words in a list.
func TestSays(t *testing.T) {
	for _, tt := range []struct{ content, want string }{
		{"I promise it.", "I promise it."},
		{"Two bugs here:\n\n1. The first.\n2. I'll send you the fix tomorrow.", "I'll send you the fix tomorrow."},
		{"The meeting was long. We could do it. Deal, I accept your offer.", "Deal, I accept your offer."},
		{"Hello there. " + strings.Repeat("word ", 40) + "I promise it.", "… "},
		{DisclosureLabel + "\n\nI promise it.", "I promise it."},
		{"\n\nHello.\n> We promise it.", "> We promise it."},
	} {
		m := question()
		m.Content, m.Rules = tt.content, detectors(t)
		v := Decide(t.Context(), &m, yes)
		if got := v.Says(m.Content, DisclosureLabel); v.Code != CommitmentRequiresHuman || !strings.HasPrefix(got, tt.want) || !strings.Contains(got, "promise") && strings.Contains(tt.want, "…") {
			t.Errorf("%.40q: %s, says %q", tt.content, v.Code, got)
		}
	}
	m := question()
	m.Content, m.Rules, m.AskPerson = "Hello.\nWe promise it.", detectors(t), true
	m.Rules.Monitor = true
	if v := Decide(t.Context(), &m, yes); v.Code != CommitmentRequiresHuman || v.Says(m.Content, DisclosureLabel) != "Hello." {
		t.Errorf("%s, says %q", v.Code, v.Says(m.Content, DisclosureLabel))
	}
}
