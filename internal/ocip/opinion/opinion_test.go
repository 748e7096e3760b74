package opinion

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
)

func TestParse(t *testing.T) {
	for answer, want := range map[string]string{
		`{"commits": false, "reason": "It reports."}`:           "",
		" {\"commits\": true, \"reason\": \"It promises.\"}\n":  "",
		`{"commits": false}`:                                    "reason is missing",
		`{"reason": "It reports."}`:                             "commits is missing",
		`{"commits": null, "reason": "It reports."}`:            "commits is missing",
		`{"commits": false, "reason": " "}`:                     "reason is missing",
		`{"commits": "false", "reason": "x"}`:                   "no JSON object",
		`{"commits": 0, "reason": "x"}`:                         "no JSON object",
		`{"Commits": false, "reason": "x"}`:                     "no JSON object",
		`{"commits": false, "commits": true, "reason": "x"}`:    "no JSON object",
		`{"commits": false, "reason": "x", "sure": 1}`:          "no JSON object",
		"```json\n{\"commits\": false, \"reason\": \"x\"}\n```": "no JSON object",
		`{"commits": false, "reason": "x"} {}`:                  "no JSON object",
		`[]`:                                                    "no JSON object",
		``:                                                      "no JSON object",
		"{\"commits\": false, \"reason\": \"\xff\"}":            "no JSON object",
		`{"commits": false, "reason": "` + strings.Repeat("x", MaxReason+1) + `"}`: "the limit is",
		`{"commits": false, "reason": "x"}` + strings.Repeat(" ", MaxAnswer):       "the limit is",
		`{"commits": false, "reason": "` + strings.Repeat("x", MaxReason) + `"}`:   "",
	} {
		a, err := Parse(answer)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want) || a != Answer{}) {
			t.Errorf("%.60q is %+v, %v, want the error %q", answer, a, err, want)
		}
	}
}

// A message can neither contain its fence nor end it.
func TestFence(t *testing.T) {
	if _, err := Fence("text 4f2a text", "4f2a"); err == nil {
		t.Error("a message with its own fence is fenced")
	}
	if _, err := Fence("text", ""); err == nil {
		t.Error("a message is fenced without a random number")
	}
	got, err := Fence("END\nEND 1234", "4f2a")
	if err != nil || got != "TEXT 4f2a\nEND\nEND 1234\nEND 4f2a\n" {
		t.Errorf("the fenced message is %q, %v", got, err)
	}
}

// The prompt's digest is on record: a change of the prompt or the schema is a change of the constant.
func TestPromptDigest(t *testing.T) {
	sum := sha256.Sum256([]byte(Prompt + Schema))
	if got := "sha256:" + hex.EncodeToString(sum[:]); got != PromptDigest {
		t.Errorf("the prompt's digest is %s, want %s", got, PromptDigest)
	}
	if strings.Contains(Prompt, "\r") || !strings.HasSuffix(Prompt, "\n") {
		t.Error("the prompt has other line ends than its digest is of")
	}
	var schema any
	if err := json.Unmarshal([]byte(Schema), &schema); err != nil {
		t.Errorf("the schema is no JSON: %v", err)
	}
}

// Whatever a model says, an accepted answer has the schema's form.
func FuzzParse(f *testing.F) {
	f.Add(`{"commits": false, "reason": "It reports."}`)
	f.Add(`{"commits": true, "reason": "\u202e"}`)
	f.Fuzz(func(t *testing.T, answer string) {
		a, err := Parse(answer)
		if err != nil {
			return
		}
		if a.Reason == "" || len(a.Reason) > MaxReason || len(answer) > MaxAnswer {
			t.Fatalf("%q is accepted as %+v", answer, a)
		}
		again, err := json.Marshal(map[string]any{"commits": a.Commits, "reason": a.Reason})
		if err != nil {
			t.Fatal(err)
		}
		if b, err := Parse(string(again)); len(again) <= MaxAnswer && (err != nil || a != b) {
			t.Fatalf("%q is read as %+v, and again as %+v, %v", answer, a, b, err)
		}
	})
}
