package gate

import (
	"fmt"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Text is the text of a message from the moment it is decoded. It leaves only by [Open]: printing
// it, into an error or a log, shows its length and nothing of its content.
type Text struct{ said string }

// NewText returns the text of a sender's own message, such as a client's.
func NewText(said string) Text { return Text{said} }

// Inspect returns the content, for code that weighs, records or changes it before the decision.
// test/archtest lists the callers.
func (t Text) Inspect() string { return t.said }

// Len returns its length in bytes.
func (t Text) Len() int { return len(t.said) }

// Format prints the length of the text, for every verb.
func (t Text) Format(f fmt.State, _ rune) { fmt.Fprintf(f, "(a text of %d bytes)", len(t.said)) }

// MarshalJSONTo writes the text as a JSON string, in the request of a client.
func (t Text) MarshalJSONTo(e *jsontext.Encoder) error { return e.WriteToken(jsontext.String(t.said)) }

// UnmarshalJSONFrom reads a JSON string.
func (t *Text) UnmarshalJSONFrom(d *jsontext.Decoder) error { return json.UnmarshalDecode(d, &t.said) }
