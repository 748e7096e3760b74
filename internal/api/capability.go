package api

import (
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// capabilityConfig is an object. The protocol lets an app send anything: what is no object names no
// capability.
type capabilityConfig map[string]jsontext.Value

// UnmarshalJSON reads an object, and leaves anything else out.
func (c *capabilityConfig) UnmarshalJSON(text []byte) error {
	*c = nil
	if jsontext.Value(text).Kind() != '{' {
		return nil
	}
	return json.Unmarshal(text, (*map[string]jsontext.Value)(c))
}
