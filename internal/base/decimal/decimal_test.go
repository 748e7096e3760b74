package decimal

import (
	"math/big"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
)

// A number is refused only if its canonical form is another decimal number.
func TestInexact(t *testing.T) {
	for text, where := range map[string]string{
		"1":                         "exact",
		"1.0":                       "exact",
		"1e2":                       "exact",
		"1E+2":                      "exact",
		"100e-2":                    "exact",
		"0.1":                       "exact",
		"0.10000000000000000":       "exact",
		"-0":                        "exact",
		"-0.0e5":                    "exact",
		"0e99999999999999999999999": "exact",
		"1e23":                      "exact",
		"5e-324":                    "exact",
		"1.7976931348623157e308":    "exact",
		"9007199254740991":          "exact",
		"9007199254740992":          "exact",
		"10000000000000000000":      "exact",
		"1000000000000000000":       "exact",
		"123456789012345":           "exact",
		"0.000001":                  "exact",
		`{"a":["1000000000000000001",true,null,{}]}`: "exact",
		`{"a":`:                            "exact",
		"9007199254740993":                 "",
		"1000000000000000001":              "",
		"1000000000000000064":              "",
		"-1000000000000000001":             "",
		"0.1000000000000000055":            "",
		"0.30000000000000001":              "",
		"1e309":                            "",
		"1e-400":                           "",
		"1e99999999999999999999999":        "",
		"1.00000000000000000000001e23":     "",
		`{"wei":1000000000000000001}`:      "/wei",
		`{"a":[1,{"b/c":0.1,"d":1e400}]}`:  "/a/1/d",
		`[1, 2, 12345678901234567890, 1]`:  "/2",
		`{"a":1,"a":9007199254740993,"b":`: "/a",
	} {
		got, number, found := Inexact(jsontext.Value(text))
		if found != (where != "exact") || found && (got != where || !strings.Contains(text, number)) {
			t.Errorf("%s: %q at %q, %v", text, number, got, found)
		}
	}
}

// What is exact has, in its canonical form, the value that it had.
func FuzzInexact(f *testing.F) {
	for _, seed := range []string{"1", "-0", "1.50", "1e2", "9007199254740993", "0.1", "1e-7", "12345678901234567e-3", "1e400", "100000000000000000000000"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		v := jsontext.Value(text)
		if len(text) > 40 || v.Kind() != '0' || !v.IsValid() {
			return
		}
		text = strings.TrimSpace(text)
		// The exact arithmetic of a large exponent takes long, and such a number is no double.
		if digits, e, ok := decimal(text); !ok || digits == "" || e > 400 || e < -500 {
			return
		}
		was, ok := new(big.Rat).SetString(text)
		if !ok {
			t.Fatalf("%q is no number", text)
		}
		canonical := v.Clone()
		if err := canonical.Canonicalize(); err != nil {
			t.Fatal(err)
		}
		is, ok := new(big.Rat).SetString(string(canonical))
		if !ok {
			t.Fatalf("%q is no number", canonical)
		}
		if _, _, found := Inexact(v); found == (was.Cmp(is) == 0) {
			t.Errorf("%s is %s in canonical form, and inexact: %v", text, canonical, found)
		}
	})
}
