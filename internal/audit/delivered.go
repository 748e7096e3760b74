package audit

import (
	"fmt"
	"slices"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/base/jsonline"
)

// Labels of the keys for digests in records. The key of a label is derived from the tenant's key,
// so that no text of an agent can have the digest of something else: see
// docs/for-auditors/digests.md.
const (
	// LabelContent stands for the tenant's key itself: digests of message texts, and of redacted
	// members.
	LabelContent = ""
	// LabelDelivered is the label of the digests of delivered messages.
	LabelDelivered = "ocipd delivered message v1"
	// LabelEvent is the label of the digests of events that answer a request of their receiver.
	LabelEvent = "ocipd delivered event v1"
	// LabelAnswers is the label of the digests of questions, in the records of their answers.
	LabelAnswers = "ocipd answers v1"
)

// LabelTask is the label of the digests in details.digests of records of tasks, by their name
// there, such as "artifact" or "spec".
func LabelTask(name string) string { return "ocipd task " + name + " v1" }

// DeliveredForm is the input of a delivered message's digest: the JSON object of its target, its
// content and its metadata, in the canonical form of RFC 8785. So the holder of a message can check
// whether it is the one on record, however its JSON was written. Metadata may be empty; anything
// but an object is refused.
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
