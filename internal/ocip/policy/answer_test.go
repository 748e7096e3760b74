package policy

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/openclawos/ocipd/internal/ocip"
)

// with returns a good answer with one part replaced.
func with(old, replacement string) string {
	const good = `{"allow":true,"require_approval":false,"reason":"ok","constraints":{"max_classification":"internal","max_rounds":2}}`
	return strings.Replace(good, old, replacement, 1)
}

type answerCase struct {
	name, json string
	want       ocip.PolicyAnswer
	fault      string // a part of the error
}

func answerCases() []answerCase {
	good := ocip.PolicyAnswer{Allow: true, Reason: "ok", MaxClassification: ocip.Internal, HasMaxClassification: true, MaxRounds: 2}
	approval, unlimited, open, denied := good, good, good, good
	approval.RequireApproval = true
	unlimited.MaxRounds = 0
	open.MaxClassification, open.HasMaxClassification = 0, false
	denied.Allow = false
	both := unlimited
	both.MaxClassification, both.HasMaxClassification = 0, false
	return []answerCase{
		{"whole", with("", ""), good, ""},
		{"approval", with(`"require_approval":false`, `"require_approval":true`), approval, ""},
		{"denial", with(`"allow":true`, `"allow":false`), denied, ""},
		{"no rounds", with(`,"max_rounds":2`, ""), unlimited, ""},
		{"no classification", with(`"max_classification":"internal",`, ""), open, ""},
		{"no constraint", with(`"max_classification":"internal","max_rounds":2`, ""), both, ""},
		{"rounds with a zero fraction", with(`"max_rounds":2`, `"max_rounds":2.0`), good, ""},
		{"rounds with an exponent", with(`"max_rounds":2`, `"max_rounds":0.2e1`), good, ""},

		{"null", `null`, ocip.PolicyAnswer{}, "the answer is null"},
		{"true", `true`, ocip.PolicyAnswer{}, "the answer is a boolean"},
		{"number", `1`, ocip.PolicyAnswer{}, "the answer is a number"},
		{"array", `[true]`, ocip.PolicyAnswer{}, "the answer is an array"},
		{"empty", `{}`, ocip.PolicyAnswer{}, "allow is missing"},
		{"allow missing", with(`"allow":true,`, ""), ocip.PolicyAnswer{}, "allow is missing"},
		{"allow null", with(`"allow":true`, `"allow":null`), ocip.PolicyAnswer{}, "allow is null"},
		{"allow text", with(`"allow":true`, `"allow":"true"`), ocip.PolicyAnswer{}, "allow is a string"},
		{"allow one", with(`"allow":true`, `"allow":1`), ocip.PolicyAnswer{}, "allow is a number"},
		{"allow in capitals", with(`"allow":true`, `"Allow":true`), ocip.PolicyAnswer{}, `unknown member "Allow"`},
		{"approval missing", with(`"require_approval":false,`, ""), ocip.PolicyAnswer{}, "require_approval is missing"},
		{"approval null", with(`"require_approval":false`, `"require_approval":null`), ocip.PolicyAnswer{}, "require_approval is null"},
		{"reason missing", with(`"reason":"ok",`, ""), ocip.PolicyAnswer{}, "reason is missing"},
		{"reason array", with(`"reason":"ok"`, `"reason":["ok"]`), ocip.PolicyAnswer{}, "reason is an array"},
		{"constraints missing", with(`,"constraints":{"max_classification":"internal","max_rounds":2}`, ""), ocip.PolicyAnswer{}, "constraints is missing"},
		{"constraints null", with(`{"max_classification":"internal","max_rounds":2}`, "null"), ocip.PolicyAnswer{}, "constraints is null"},
		{"constraints array", with(`{"max_classification":"internal","max_rounds":2}`, "[]"), ocip.PolicyAnswer{}, "constraints is an array"},
		{"classification null", with(`"internal"`, "null"), ocip.PolicyAnswer{}, "constraints.max_classification is null"},
		{"classification unknown", with(`"internal"`, `"Internal"`), ocip.PolicyAnswer{}, "constraints.max_classification: unknown classification"},
		{"classification number", with(`"internal"`, `1`), ocip.PolicyAnswer{}, "constraints.max_classification is a number"},
		{"rounds null", with(`:2`, ":null"), ocip.PolicyAnswer{}, "constraints.max_rounds"},
		{"rounds zero", with(`:2`, ":0"), ocip.PolicyAnswer{}, "constraints.max_rounds"},
		{"rounds negative", with(`:2`, ":-1"), ocip.PolicyAnswer{}, "constraints.max_rounds"},
		{"rounds in part", with(`:2`, ":1.5"), ocip.PolicyAnswer{}, "constraints.max_rounds"},
		{"rounds text", with(`:2`, `:"2"`), ocip.PolicyAnswer{}, "constraints.max_rounds"},
		{"rounds huge", with(`:2`, ":1e400"), ocip.PolicyAnswer{}, "constraints.max_rounds"},
		{"rounds too many", with(`:2`, ":2147483648"), ocip.PolicyAnswer{}, "constraints.max_rounds"},
		{"constraint misspelled", with(`max_rounds`, `max_round`), ocip.PolicyAnswer{}, `constraints has an unknown member "max_round"`},
		{"member unknown", with(`"allow"`, `"also":1,"allow"`), ocip.PolicyAnswer{}, `the answer has an unknown member "also"`},
		{"member without a name", with(`"allow"`, `"":1,"allow"`), ocip.PolicyAnswer{}, `the answer has an unknown member ""`},
	}
}

// fromJSON decodes one JSON value like OPA.
func fromJSON(data []byte) (any, error) {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	var value any
	if err := dec.Decode(&value); err != nil {
		return nil, err
	}
	if _, err := dec.Token(); err != io.EOF {
		return nil, errors.New("more than one value")
	}
	return value, nil
}

func TestDecodeAnswer(t *testing.T) {
	for _, tt := range answerCases() {
		t.Run(tt.name, func(t *testing.T) {
			value, err := fromJSON([]byte(tt.json))
			if err != nil {
				t.Fatal(err)
			}
			got, err := decodeAnswer(value)
			if got != tt.want {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
			var shape *shapeError
			switch {
			case tt.fault == "" && err != nil:
				t.Error(err)
			case tt.fault != "" && (!errors.As(err, &shape) || !strings.Contains(err.Error(), tt.fault)):
				t.Errorf("got error %v, want %q", err, tt.fault)
			}
		})
	}
}

func TestLongReason(t *testing.T) {
	for _, r := range []string{"x", "é", "語", "😀"} {
		for pad := range 4 {
			long := strings.Repeat("a", pad) + strings.Repeat(r, maxReason+1)
			value, err := fromJSON([]byte(with(`"ok"`, strconv.Quote(long))))
			if err != nil {
				t.Fatal(err)
			}
			got, err := decodeAnswer(value)
			if err != nil {
				t.Fatal(err)
			}
			body, cutOff := strings.CutSuffix(got.Reason, "…")
			if len(got.Reason) > maxReason || len(got.Reason) < maxReason-utf8.UTFMax || !cutOff || !utf8.ValidString(got.Reason) || !strings.HasPrefix(long, body) {
				t.Errorf("got %d bytes of %q after %d", len(got.Reason), r, pad)
			}
		}
	}
}

// FuzzDecodeAnswer compares the decoder with a second reading of the same value: an accepted value
// must be a complete and well-typed answer, and a refused one must give the zero answer.
func FuzzDecodeAnswer(f *testing.F) {
	for _, tt := range answerCases() {
		f.Add([]byte(tt.json))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		value, err := fromJSON(data)
		if err != nil {
			return
		}
		got, err := decodeAnswer(value)
		if err != nil {
			if got != (ocip.PolicyAnswer{}) {
				t.Fatalf("refused with %v, and yet %+v", err, got)
			}
			return
		}
		var second struct {
			Allow           *bool   `json:"allow"`
			RequireApproval *bool   `json:"require_approval"`
			Reason          *string `json:"reason"`
			Constraints     *struct {
				MaxClassification *ocip.Level  `json:"max_classification"`
				MaxRounds         *json.Number `json:"max_rounds"`
			} `json:"constraints"`
		}
		again, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		dec := json.NewDecoder(bytes.NewReader(again))
		dec.DisallowUnknownFields()
		if err := dec.Decode(&second); err != nil {
			t.Fatalf("accepted %s: %v", again, err)
		}
		if second.Allow == nil || second.RequireApproval == nil || second.Reason == nil || second.Constraints == nil {
			t.Fatalf("accepted %s, which is incomplete", again)
		}
		if got.Allow != *second.Allow || got.RequireApproval != *second.RequireApproval || got.Reason != cut(*second.Reason, maxReason) {
			t.Fatalf("read %s as %+v", again, got)
		}
		if level := second.Constraints.MaxClassification; got.HasMaxClassification != (level != nil) || level != nil && got.MaxClassification != *level {
			t.Fatalf("read %s as %+v", again, got)
		}
		rounds := second.Constraints.MaxRounds
		if got.MaxRounds < 0 || (got.MaxRounds > 0) != (rounds != nil) {
			t.Fatalf("read %s as %+v", again, got)
		}
		if rounds != nil {
			if n, err := rounds.Float64(); err != nil || n != float64(got.MaxRounds) {
				t.Fatalf("read %s as %+v", again, got)
			}
		}
	})
}
