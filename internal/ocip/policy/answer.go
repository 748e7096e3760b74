package policy

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"unicode/utf8"

	"github.com/openclawos/ocipd/internal/ocip"
)

// maxReason bounds a reason, in bytes. It goes into records and to callers, and may repeat text
// from a counterparty.
const maxReason = 1024

// shapeError describes the fault in a policy's value.
type shapeError struct{ fault string }

func (e *shapeError) Error() string { return e.fault }

func malformed(format string, args ...any) error {
	return &shapeError{fmt.Sprintf(format, args...)}
}

// decodeAnswer reads the value of a decision, as encoding/json decodes it, with numbers as
// json.Number. It returns only complete answers without a fault. With an error, the answer is the
// zero value, which denies. Unknown members are faults, since a misspelled constraint would
// otherwise have no effect.
func decodeAnswer(value any) (ocip.PolicyAnswer, error) {
	var a ocip.PolicyAnswer
	object, err := members("the answer", value, "allow", "require_approval", "reason", "constraints")
	if err != nil {
		return ocip.PolicyAnswer{}, err
	}
	if a.Allow, err = member[bool](object, "allow", "a boolean"); err != nil {
		return ocip.PolicyAnswer{}, err
	}
	if a.RequireApproval, err = member[bool](object, "require_approval", "a boolean"); err != nil {
		return ocip.PolicyAnswer{}, err
	}
	if a.Reason, err = member[string](object, "reason", "a string"); err != nil {
		return ocip.PolicyAnswer{}, err
	}
	a.Reason = cut(a.Reason, maxReason)

	value, ok := object["constraints"]
	if !ok {
		return ocip.PolicyAnswer{}, malformed("constraints is missing")
	}
	constraints, err := members("constraints", value, "max_classification", "max_rounds", "approvers")
	if err != nil {
		return ocip.PolicyAnswer{}, err
	}
	if value, ok := constraints["max_classification"]; ok {
		text, ok := value.(string)
		if !ok {
			return ocip.PolicyAnswer{}, malformed("constraints.max_classification is %s, want a string", kind(value))
		}
		if a.MaxClassification, err = ocip.ParseLevel(text); err != nil {
			return ocip.PolicyAnswer{}, malformed("constraints.max_classification: %v", err)
		}
		a.HasMaxClassification = true
	}
	if value, ok := constraints["max_rounds"]; ok {
		// Zero would mean no limit in the answer, so it is no valid value here.
		if a.MaxRounds, ok = wholeNumber(value); !ok || a.MaxRounds < 1 {
			return ocip.PolicyAnswer{}, malformed("constraints.max_rounds is not a whole number from 1 to %d", math.MaxInt32)
		}
	}
	if value, ok := constraints["approvers"]; ok {
		if a.Approvers, ok = wholeNumber(value); !ok || a.Approvers < 1 || a.Approvers > maxApprovers {
			return ocip.PolicyAnswer{}, malformed("constraints.approvers is not a whole number from 1 to %d", maxApprovers)
		}
	}
	return a, nil
}

// maxApprovers bounds the people that a policy may require for one message.
const maxApprovers = 10

// members checks that value is an object with only the known members.
func members(name string, value any, known ...string) (map[string]any, error) {
	object, ok := value.(map[string]any)
	if !ok {
		return nil, malformed("%s is %s, want an object", name, kind(value))
	}
	var unknown []string
	for key := range object {
		if !slices.Contains(known, key) {
			unknown = append(unknown, key)
		}
	}
	if len(unknown) > 0 {
		return nil, malformed("%s has an unknown member %.64q", name, slices.Min(unknown))
	}
	return object, nil
}

func member[T any](object map[string]any, name, want string) (T, error) {
	var zero T
	value, ok := object[name]
	if !ok {
		return zero, malformed("%s is missing", name)
	}
	typed, ok := value.(T)
	if !ok {
		return zero, malformed("%s is %s, want %s", name, kind(value), want)
	}
	return typed, nil
}

// wholeNumber reads a number without a fraction that fits 32 bits, however it is written: Rego
// keeps 3.0 unchanged.
func wholeNumber(value any) (int, bool) {
	n, ok := value.(json.Number)
	if !ok {
		return 0, false
	}
	f, err := n.Float64()
	if err != nil || f != math.Trunc(f) || math.Abs(f) > math.MaxInt32 {
		return 0, false
	}
	return int(f), true
}

// kind names the JSON type of a value.
func kind(value any) string {
	switch value.(type) {
	case nil:
		return "null"
	case bool:
		return "a boolean"
	case string:
		return "a string"
	case json.Number:
		return "a number"
	case []any:
		return "an array"
	case map[string]any:
		return "an object"
	}
	return fmt.Sprintf("a %T", value)
}

// cut shortens s to at most limit bytes, at a character's end.
func cut(s string, limit int) string {
	const mark = "…"
	if len(s) <= limit {
		return s
	}
	end := limit - len(mark)
	for end > 0 && !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end] + mark
}
