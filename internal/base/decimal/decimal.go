// Package decimal compares the numbers of JSON with their canonical form (RFC 8785), that of doubles.
package decimal

import (
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// Inexact finds a number in a JSON text whose canonical form is another decimal number: a digest or a
// signature over that form would count for both. The canonical form of a number is the shortest one
// of its nearest double. The first result is the number's place, as a JSON pointer. In a text with a
// fault, Inexact reads up to the fault.
func Inexact(text jsontext.Value) (where, number string, found bool) {
	d := jsontext.NewDecoder(strings.NewReader(string(text)), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	for {
		t, err := d.ReadToken()
		if err != nil {
			return "", "", false
		}
		if t.Kind() != '0' {
			continue
		}
		if number = t.String(); !exact(number) {
			return string(d.StackPointer()), number, true
		}
	}
}

// shortDigits is the number of digits that every double holds exactly.
const shortDigits = 15

// exact reports whether a number of JSON is the same decimal number in the canonical form.
func exact(number string) bool {
	if len(number) <= shortDigits && !strings.ContainsAny(number, "eE") {
		return true
	}
	double, err := strconv.ParseFloat(number, 64)
	if err != nil {
		return false
	}
	digits, exponent, ok := decimal(number)
	canonical, of, _ := decimal(strconv.FormatFloat(double, 'e', -1, 64))
	return ok && digits == canonical && exponent == of
}

// decimal takes a number of JSON apart: its sign and digits without zeros at either end, and the power
// of ten that they are multiplied by. Zero has no digits, and no sign.
func decimal(number string) (digits string, exponent int, ok bool) {
	rest, minus := strings.CutPrefix(number, "-")
	if i := strings.IndexAny(rest, "eE"); i >= 0 {
		var err error
		if exponent, err = strconv.Atoi(rest[i+1:]); err != nil {
			return "", 0, strings.Trim(rest[:i], "0.") == ""
		}
		rest = rest[:i]
	}
	whole, part, _ := strings.Cut(rest, ".")
	exponent -= len(part)
	digits = strings.TrimLeft(whole+part, "0")
	exponent += len(digits)
	digits = strings.TrimRight(digits, "0")
	if exponent -= len(digits); digits == "" {
		return "", 0, true
	}
	if minus {
		digits = "-" + digits
	}
	return digits, exponent, true
}
