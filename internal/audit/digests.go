package audit

import (
	"fmt"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Keys makes the digests in records that stand for texts and other guessable values: of the bytes
// that form appends to a buffer, under the key that is derived for a label from a tenant's.
type Keys func(tenant, label string, form func([]byte) ([]byte, error)) (string, error)

// Text returns the digest of a text.
func (k Keys) Text(tenant, label, text string) (string, error) {
	return k(tenant, label, func(b []byte) ([]byte, error) { return append(b, text...), nil })
}

// Task returns the digest of a value under its name in details.digests of a record of a task: of a
// text as it is, of anything else in the canonical form of its JSON (RFC 8785).
func (k Keys) Task(tenant, name string, value any) (string, error) {
	text, ok := value.(string)
	if !ok {
		encoded, err := json.Marshal(value, json.Deterministic(true))
		if err == nil {
			err = (*jsontext.Value)(&encoded).Canonicalize()
		}
		if err != nil {
			return "", fmt.Errorf("cannot take the digest of %s: %w", name, err)
		}
		text = string(encoded)
	}
	return k.Text(tenant, LabelTask(name), text)
}
