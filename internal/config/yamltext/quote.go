package yamltext

import (
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// Quote quotes any text for YAML.
func Quote(text string) string {
	out, err := jsontext.AppendQuote(nil, strings.ToValidUTF8(text, "\ufffd"))
	if err != nil {
		panic("yamltext: valid text cannot fail to be quoted: " + err.Error())
	}
	return string(out)
}

// List formats a list of texts on one line.
func List(values []string) string {
	out := make([]string, len(values))
	for i, v := range values {
		out[i] = Quote(v)
	}
	return "[" + strings.Join(out, ", ") + "]"
}
