package describe

import (
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/base/term"
	"github.com/openclawos/ocipd/internal/ocip"
)

func TestSendingIsShownNextToTheMessage(t *testing.T) {
	const says = "|  disclosure    Sent by user's OpenClaw assistant"
	for sending, want := range map[string]string{
		"Yes.":        "  the message above, as it is" + says,
		"Yes. By AI":  "  the message above, and right behind it|    │  By AI" + says,
		"By AI: Yes.": "  the message above, and right before it|    │ By AI: " + says,
		"No.":         "  this, which is not the message above|    │ No." + says,
		// Only the daemon's own line is folded, and only as it stands.
		"Yes.\n\n" + ocip.DisclosureLabel:       `  the message above, with the line "Sent by user's OpenClaw assistant"`,
		"Yes.\n\n" + ocip.DisclosureLabel + "!": "  the message above, and right behind it|    │ |    │ |    │ Sent by user's OpenClaw assistant!" + says,
	} {
		page := &term.Page{Screen: term.Screen{Terminal: true, Width: 80}}
		p := &Text{page}
		p.content("Yes.", &sent{Content: sending, Metadata: jsontext.Value(`{"aiDisclosure":"Sent by user's OpenClaw assistant"}`)}, false)
		if got := strings.Join(page.Lines, "|"); got != want {
			t.Errorf("%q is shown as %q, want %q", sending, got, want)
		}
	}
}

// Metadata from the daemon is folded until requested; metadata from the app never is.
func TestMetadataFold(t *testing.T) {
	for object, want := range map[string]string{
		`{"ocip":{"v":1},"exchange":{},"caption":"I promise"}`: `|Its metadata|    │ "caption": "I promise"|  folded        i shows what ocipd adds: ocip, exchange`,
		`{"ocip":{"v":1}}`: "  folded        i shows what ocipd adds: ocip",
		`{"ocipLog":{},"target":"dave","dispatchId":"1"}`: "  folded        i shows what ocipd adds: ocipLog, dispatchId, target",
		`{"target":"erin"}`: `|Its metadata|    │ "target": "erin"`,
		`{"caption":"x"}`:   `|Its metadata|    │ "caption": "x"`,
		"{\"ocip\":\x1b":    `|Its metadata|    │ {"ocip":‹U+001B›`,
		"":                  "",
	} {
		page := &term.Page{Screen: term.Screen{Terminal: true, Width: 80}}
		p := &Text{page}
		p.metadata(&api.Approval{ApprovalSummary: api.ApprovalSummary{Target: "dave"}}, jsontext.Value(object), false)
		if got := strings.Join(page.Lines, "|"); got != want {
			t.Errorf("%q is shown as %q, want %q", object, got, want)
		}
	}
}

func TestMembers(t *testing.T) {
	for object, want := range map[string]string{
		`{"a":[1,{"b":2}],"c":"\u202e"}`: `    │ "a": [1, {"b": 2}]|    │ "c": "\u202e"`,
		`{}`:                             "    │ ",
		`[1,2]`:                          "    │ [1, 2]",
		`{"a":1,`:                        `    │ {"a":1,`,
		"\x1b":                           "    │ ‹U+001B›",
		"{\"\u202e\":\"\u3164\"}":        `    │ "\u202e": "\u3164"`,
	} {
		page := &term.Page{Screen: term.Screen{Terminal: true, Width: 80}}
		p := &Text{page}
		p.members(jsontext.Value(object))
		if got := strings.Join(page.Lines, "|"); got != want {
			t.Errorf("%q is shown as %q, want %q", object, got, want)
		}
	}
}

// TestReasonInWords checks that the reason of a message that is held for its words is a sentence with
// these words.
func TestReasonInWords(t *testing.T) {
	const content = "Hello. I'll send it by Friday; see you. The meeting is off."
	found := func(rule string, start, end int, shadow bool) audit.Detection {
		return audit.Detection{Rule: rule, Start: start, End: end, Shadow: shadow}
	}
	for _, tt := range []struct {
		found []audit.Detection
		want  string
	}{
		{[]audit.Detection{found("commitment.first-person-future", 7, 16, false), found("commitment.meeting", 44, 51, false)}, "It seems to promise something: «I'll send it by Friday»"},
		{[]audit.Detection{found("commitment.meeting", 44, 51, false)}, "It has a word that can commit somebody: «meeting is off»"},
		{[]audit.Detection{found("commitment.first-person-future", 7, 16, true), found("commitment.meeting", 44, 51, false)}, "It has a word that can commit somebody: «meeting is off»"},
		{[]audit.Detection{found("commitment.de", 7, 900, false)}, "It seems to promise something in German"},
		{[]audit.Detection{{Rule: "commitment.money", Member: "metadata.note", Start: 0, End: 3}}, "It seems to spend or offer money"},
		{nil, "It has a word that can commit somebody"},
	} {
		a := &api.Approval{Content: content, Detections: tt.found}
		if got := ReasonOf(a, &ocip.Ground{Code: ocip.CommitmentRequiresHuman, Guess: ocip.Guess{Likelihood: "low"}}); got != tt.want {
			t.Errorf("%+v: %s, want %s", tt.found, got, tt.want)
		}
	}
}

// TestParts holds the parts of a description to what the terminal draws: the same texts in the same
// order, each with its characters as they are.
func TestParts(t *testing.T) {
	a := &api.Approval{Content: "I promise\u202e it.", Digest: "sha256:" + strings.Repeat("ab", 32), Detections: []audit.Detection{{Rule: "commitment.promise", Start: 2, End: 9}}}
	a.ApprovalID, a.State, a.Kind, a.Agent, a.SessionKey, a.Code, a.Approvable, a.Needed = "7", api.ApprovalPending, api.ApprovalOfMessage, "alice", "telegram:dave", string(ocip.RoundLimit), true, 1
	now := time.UnixMilli(1)
	shown := Show(a, now)
	page := &term.Page{Screen: term.Screen{Width: 400}}
	(&Text{page}).Request(a, now, true)
	drawn := strings.Join(page.Lines, "\n")
	at := 0
	for _, p := range shown.Parts {
		said := term.Printable(p.Text)
		if p.Kind == PartSay {
			said = p.Text // the program's own words
		}
		for line := range strings.SplitSeq(said, "‹U+000A›") {
			i := strings.Index(drawn[at:], line)
			if i < 0 {
				t.Fatalf("the terminal does not draw %q behind %q", line, drawn[:at])
			}
			at += i
		}
		if p.Kind == PartQuote && p.Text == a.Content && (len(p.Marks) != 1 || p.Marks[0] != Mark{2, 9, "promise"}) {
			t.Errorf("the marks are %+v", p.Marks)
		}
	}
	if len(shown.Parts) < 10 || shown.Title != "alice → telegram:dave" || shown.Why == "" || len(strings.Fields(shown.Words)) != 4 || len(shown.Decisions) != 4 || shown.Does[api.DecideDeny] == "" {
		t.Errorf("shown is %+v", shown)
	}
}
