package describe

import (
	"bytes"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/base/term"
)

// metadata shows the metadata of the text. The kernel takes the folded members out of what apps say,
// or has read them: exchange has an app's wishes. The target is folded if it is that of the request.
func (p *Text) metadata(a *api.Approval, object jsontext.Value, unfolded bool) {
	if len(object) == 0 {
		return
	}
	var members map[string]jsontext.Value
	if unfolded || json.Unmarshal(object, &members) != nil {
		p.Heading("Its metadata")
		p.members(object)
		return
	}
	var ours []string
	for _, name := range []string{"ocip", "ocipChain", "ocipLog", "exchange", "aiDisclosure", "dispatchId", "target"} {
		value, there := members[name]
		if said, _ := api.Text(value); there && (name != "target" || said == a.Target) {
			ours = append(ours, name)
			delete(members, name)
		}
	}
	if len(members) > 0 {
		p.Heading("Its metadata")
		if rest, err := json.Marshal(members, json.Deterministic(true)); err == nil {
			p.members(rest)
		} else {
			p.members(object)
		}
	}
	if len(ours) > 0 {
		p.Tinted("folded", term.Dim, "i shows what ocipd adds: "+strings.Join(ours, ", "))
	}
}

// members writes a JSON object, one member a line.
func (p *Text) members(object jsontext.Value) {
	shown := term.PrintableJSON(object.Clone())
	if err := shown.Format(jsontext.PreserveRawStrings(true), jsontext.SpaceAfterColon(true), jsontext.SpaceAfterComma(true)); err != nil {
		shown = object
	}
	var lines []string
	in := jsontext.NewDecoder(bytes.NewReader(shown))
	if _, err := in.ReadToken(); err == nil {
		for in.PeekKind() == '"' {
			name, err := in.ReadValue()
			if err != nil {
				break
			}
			line := string(name)
			value, err := in.ReadValue()
			if err != nil {
				break
			}
			lines = append(lines, line+": "+string(value))
		}
	}
	if _, err := in.ReadToken(); err != nil || shown.Kind() != '{' {
		lines = []string{string(shown)}
	}
	p.Quote(strings.Join(lines, "\n"))
}
