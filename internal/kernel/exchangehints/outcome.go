package exchangehints

import (
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/ocip"
)

// Outcome returns the new metadata.exchange: the exchange's state, and the data that were included
// and withheld.
func Outcome(v *ocip.Verdict) jsontext.Value {
	b := make([]byte, 0, 192)
	b = append(append(b, `{"id":`...), api.String(v.Exchange.ID)...)
	b = append(append(b, `,"type":`...), api.String(string(v.Exchange.Type))...)
	b = append(append(b, `,"outcome":`...), api.String(string(v.Exchange.Outcome))...)
	b = appendList(append(b, `,"dataShared":`...), v.Shared)
	b = appendList(append(b, `,"dataWithheld":`...), v.Told())
	return append(b, '}')
}

// appendList writes data items, of which most messages have none.
func appendList[T any](b []byte, items []T) []byte {
	if len(items) == 0 {
		return append(b, '[', ']')
	}
	encoded, err := json.Marshal(items, jsontext.AllowInvalidUTF8(true))
	if err != nil {
		panic("hints: data items cannot fail to encode: " + err.Error())
	}
	return append(b, encoded...)
}
