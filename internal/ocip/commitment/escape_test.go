package commitment

import (
	"strings"
	"testing"
	"unicode"

	"github.com/openclawos/ocipd/internal/base/text"
)

// TestAttack21EscapesEndAndBeginWords checks that the keywords are found as by the reference
// plugin's plain match: after a JSON escape, a hump, a terminal sequence.
func TestAttack21EscapesEndAndBeginWords(t *testing.T) {
	d := detector(t, Options{})
	for s, want := range map[string]string{
		`\nconfirm`:                        ":confirm:confirm",
		`done.\n\tagree\r\napprove\n`:      ":agree:agree|:approve:approve",
		`\bbook \fcommit \vbook`:           ":book:book|:commit:commit|:book:book",
		`C:\reserve\book\nbook`:            ":reserve:reserve|:book:book|:book:book",
		`\u000aconfirm`:                    ":confirm:confirm",
		`x\u0020confirm\u0020x`:            ":confirm:confirm",
		`pro\u200bmise`:                    `:promise:pro\u200bmise`,
		`\u0070romise`:                     `:promise:\u0070romise`,
		`\x70romise`:                       `:promise:\x70romise`,
		`\ud835\udc29romise`:               `:promise:\ud835\udc29romise`,
		`\\nconfirm`:                       ":confirm:confirm",
		`pleaseConfirm`:                    ":confirm:Confirm",
		`confirmPlease`:                    ":confirm:confirm",
		`onMeetingConfirmed()`:             ":meeting:Meeting|:confirm:Confirmed",
		`HTTPApproveJSON`:                  ":approve:Approve",
		`iPROMISE`:                         ":promise:PROMISE",
		`pRoMiSe`:                          ":promise:pRoMiSe",
		"\x1b[1mpromise":                   ":promise:promise",
		"\x1b[1;31mpromise\x1b[0m":         ":promise:promise",
		"please\x1b[31mapprove\x1b[0mthis": ":approve:approve",
		"pro\x1b[1mmise":                   ":promise:pro\x1b[1mmise",
		"com\x1b[mit":                      ":commit:com\x1b[mit",
		"\x1b[meeting":                     ":meeting:meeting",
		`\x1b[1mpromise\x1b[0m`:            ":promise:promise",
		`\u001b[1mpromise`:                 ":promise:promise",
		`\033[1mpromise \e[1magree`:        ":promise:promise|:agree:agree",
		"I\u3164promise":                   ":promise:promise",
		"I\ue000promise":                   ":promise:promise",
		"pro\u3164mise":                    ":promise:pro\u3164mise",

		"facebook committee ebook FaceBook MacBook eBook SubCommittee QuickBooks": "",
		"myMacBookPro":       "",
		"BookMark, Bookable": "",
		"disAgree":           "",
		`\facebook`:          "",
	} {
		p := []text.Passage{{Text: s, Prose: true}}
		if got := said(p, d.Scan(p)); got != want {
			t.Errorf("%q: got %q, want %q", s, got, want)
		}
	}
}

// TestSeeds19SolidWordsAreHeld checks the rule in docs/reference/protocol/decision.md for words
// that are run together.
func TestSeeds19SolidWordsAreHeld(t *testing.T) {
	for _, match := range []Match{MatchWord, MatchSubstring} {
		p := []text.Passage{{Text: "pleaseapprove", Prose: true}}
		if got := said(p, detector(t, Options{Match: match}).Scan(p)); got != ":approve:approve" {
			t.Errorf("%s: got %q", match, got)
		}
	}
}

// TestClients05KeywordsBehindTheAppsEscapes checks that the keywords are found if the IRC app would
// have shown them.
func TestClients05KeywordsBehindTheAppsEscapes(t *testing.T) {
	d := detector(t, Options{})
	for _, s := range []string{`I \x70\x72omise to pay`, `pro\0mise`, `I \u0070romise`, "pro\x02mise", `\x5cu0070romise`} {
		if hits := d.Scan([]text.Passage{{Text: s, Prose: true}}, text.RenderIRC); len(hits) != 1 || hits[0].Keyword != "promise" {
			t.Errorf("%q: %v", s, hits)
		}
	}
}

// TestWhatDoesNotShowHidesNoKeyword puts every invisible character into a keyword and before one.
func TestWhatDoesNotShowHidesNoKeyword(t *testing.T) {
	d := detector(t, Options{})
	for r := range rune(unicode.MaxRune + 1) {
		if text.Shows(r) || r > 0x20000 && r%997 != 0 && r>>12 != 0xe0 {
			continue // most of the higher planes is unassigned, and alike
		}
		inside := "I pro" + string(r) + "mise it"
		if hits := d.Detect(inside); !blankOrEnd(r) && (len(hits) == 0 || hits[0].Keyword != "promise") {
			t.Errorf("U+%04X inside: %v", r, hits)
		}
		before := "I " + string(r) + "promise" + string(r)
		if hits := d.Detect(before); len(hits) == 0 || hits[0].Keyword != "promise" {
			t.Errorf("U+%04X before: %v", r, hits)
		}
	}
}

// blankOrEnd reports whether a character also separates words for a reader.
func blankOrEnd(r rune) bool {
	return unicode.IsSpace(r) || unicode.Is(unicode.Zs, r) || r == '\u2800'
}

// TestWhatDoesNotShowHidesNoYes puts such characters around an acceptance that counts only if it is
// alone.
func TestWhatDoesNotShowHidesNoYes(t *testing.T) {
	d := detector(t, Options{})
	for _, s := range []string{"Deal.", "\u2060Deal\u2060.", "\ufeffDeal\U000e0041!", "ok.\n\u200bDeal\u034f\n"} {
		if hits := d.Detect(s); len(hits) != 1 || hits[0].Rule != Acceptance {
			t.Errorf("%q: %v", s, hits)
		}
	}
}

// TestSeamsAreBounded checks that a text of nothing but terminal sequences takes linear time,
// although the walk could take many ways through it.
func TestSeamsAreBounded(t *testing.T) {
	d := detector(t, Options{})
	for _, unit := range []string{"\x1b[m", "co\x1b[m", "c\x1b[o", "\x1b[", `\x1b[1m`, `\u001b`, "m\x1b[mee\x1b[t"} {
		d.Detect(strings.Repeat(unit, 256<<10/len(unit)))
	}
}
