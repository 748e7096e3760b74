package gate

import (
	"fmt"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Text is the text of a message from the moment it is decoded. It leaves by [Open] alone:
// printing one, into an error or a log, shows how long it is and nothing of what it says.
type Text struct{ said string }

// NewText is the text of somebody who sends a message of their own, such as a client.
func NewText(said string) Text { return Text{said} }

// Inspect is what the text says, for those who weigh, record or change it before it is
// decided. test/archtest lists them.
func (t Text) Inspect() string { return t.said }

// Len is its length in bytes.
func (t Text) Len() int { return len(t.said) }

// Format shows the length of the text, whatever the verb.
func (t Text) Format(f fmt.State, _ rune) { fmt.Fprintf(f, "(a text of %d bytes)", len(t.said)) }

// MarshalJSONTo writes the text as a JSON string, in the request of a client.
func (t Text) MarshalJSONTo(e *jsontext.Encoder) error { return e.WriteToken(jsontext.String(t.said)) }

// UnmarshalJSONFrom reads a JSON string.
func (t *Text) UnmarshalJSONFrom(d *jsontext.Decoder) error { return json.UnmarshalDecode(d, &t.said) }
