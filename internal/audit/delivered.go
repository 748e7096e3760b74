package audit

import (
	"fmt"
	"slices"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/jsonline"
)

// DeliveredForm is what the digest of a message as it is handed over is taken of:
// the JSON object of its target, its content and its metadata, in the canonical form
// of RFC 8785. So whoever has the message can tell whether it is the one on record,
// however its JSON was written. Metadata may be empty; anything but an object is
// refused.
//
// It is appended to a buffer.
func DeliveredForm(b []byte, target, content string, metadata jsontext.Value) ([]byte, error) {
	if len(metadata) == 0 {
		metadata = jsontext.Value("{}")
	}
	if kind := metadata.Kind(); kind != '{' {
		return nil, fmt.Errorf("cannot take the digest of a message: its metadata are %s, not an object", kind)
	}
	b = slices.Grow(b, 2*(len(target)+len(content)+len(metadata))+64)
	b = jsonline.Text(append(b, '{'), "content", content)
	b, err := appendCanonical(jsonline.Key(b, "metadata"), metadata)
	if err != nil {
		return nil, fmt.Errorf("cannot take the digest of a message: %w", err)
	}
	return append(jsonline.Text(b, "target", target), '}'), nil
}
