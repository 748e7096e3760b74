package gate

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
)

// A text that is printed by mistake, alone, in an error or within a value, is not shown.
func TestTextIsNotPrinted(t *testing.T) {
	said := NewText("the price is 12")
	within := struct {
		To      string
		Content Text
	}{"bob", said}
	for _, shown := range []string{
		fmt.Sprint(said), fmt.Sprintf("%s", said), fmt.Sprintf("%q", said), fmt.Sprintf("%+v", within), fmt.Sprintf("%#v", within), fmt.Sprintf("%x", &within),
		errors.Join(fmt.Errorf("cannot send %v", said)).Error(),
	} {
		if strings.Contains(shown, "price") || strings.Contains(shown, fmt.Sprintf("%x", "price")) {
			t.Errorf("%s", shown)
		}
	}
}

// In JSON a text is a string, as its sender wrote it.
func TestTextIsAString(t *testing.T) {
	for _, c := range []struct{ in, says, not string }{
		{in: `"é\n<"`, says: "é\n<"},
		{in: `""`},
		{in: `null`},
		{in: `12`, not: "number"},
		{in: `{"a":"b"}`, not: "object"},
	} {
		var read struct{ Content Text }
		err := json.Unmarshal([]byte(`{"Content":`+c.in+`}`), &read)
		if c.not != "" {
			if err == nil || !strings.Contains(err.Error(), c.not) {
				t.Errorf("%s: %v", c.in, err)
			}
			continue
		}
		if err != nil || read.Content.Inspect() != c.says || read.Content.Len() != len(c.says) {
			t.Errorf("%s says %q: %v", c.in, read.Content.Inspect(), err)
		}
		if written, err := json.Marshal(read); c.says != "" && (err != nil || string(written) != `{"Content":`+c.in+`}`) {
			t.Errorf("%s is written as %s: %v", c.in, written, err)
		}
	}
}
