package api

import (
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
)

// A signature covers one call: parameters with a number that is another one in the signed form are not
// signed, and not taken.
func TestSignedNumbersAreExact(t *testing.T) {
	for text, where := range map[string]string{
		``: "", `{"seq":9007199254740992}`: "", `{"a":[1.0,0.1,-0]}`: "",
		`{"seq":9007199254740993}`:          "of audit.forget: seq: the number 9007199254740993",
		`{"a":[{"b":0.30000000000000001}]}`: "of audit.forget: a.0.b: the number",
	} {
		_, err := SignedCall("audit.forget", "nonce", jsontext.Value(text))
		if (err == nil) != (where == "") || err != nil && !strings.Contains(err.Error(), where) {
			t.Errorf("%s: %v", text, err)
		}
	}
}
