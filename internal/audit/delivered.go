package audit

import (
	"fmt"
	"slices"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/base/jsonline"
)

// Labels of the keys that digests in records are made with. The key of a label is derived
// from the tenant's key, so that no text that an agent writes has a digest that stands for
// something else: see docs/for-auditors/digests.md.
const (
	// LabelContent is that of the tenant's key itself: digests of texts as they were said,
	// and of members that are redacted.
	LabelContent = ""
	// LabelDelivered is that of the digests of messages as they are handed over.
	LabelDelivered = "ocipd delivered message v1"
	// LabelEvent is that of the digests of events that answer a request of their receiver.
	LabelEvent = "ocipd delivered event v1"
	// LabelAnswers is that of the digests of what was asked for, in the records of answers.
	LabelAnswers = "ocipd answers v1"
)

// LabelTask is the label of the digests in details.digests of records of tasks, by their
// name there, such as "artifact" or "spec".
func LabelTask(name string) string { return "ocipd task " + name + " v1" }

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
