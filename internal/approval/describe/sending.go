package describe

import (
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/base/term"
)

// sent is the message as it would be sent.
type sent struct {
	SessionKey string         `json:"sessionKey"`
	Content    string         `json:"content"`
	Metadata   jsontext.Value `json:"metadata"`
}

// sending shows the message as it would be sent, and the parts that would not be. It
// returns the metadata.
func (p *Text) sending(a *api.Approval, unfolded bool) (metadata jsontext.Value) {
	if len(a.Sending) > 0 {
		p.Heading("What would be sent")
		var s sent
		if err := json.Unmarshal(a.Sending, &s); err != nil {
			p.members(a.Sending)
		} else {
			p.Fact("to", s.SessionKey)
			p.content(a.Content, &s, unfolded)
			metadata = s.Metadata
		}
	}
	p.along(a)
	p.data(a.DataShared, a.DataWithheld)
	return metadata
}

// content shows a text to be sent, compared with the text already shown, and the disclosure of its
// sender.
func (p *Text) content(shown string, s *sent, unfolded bool) {
	var says struct {
		Label string `json:"aiDisclosure"`
	}
	// Metadata without a readable label has none.
	_ = json.Unmarshal(s.Metadata, &says)
	sending, label := s.Content, says.Label
	rest, more := strings.CutPrefix(sending, shown)
	begin, behind := strings.CutSuffix(sending, shown)
	switch {
	case sending == shown:
		p.Say("  ", term.NoColour, "the message above, as it is")
	case !unfolded && shown != "" && label != "" && (rest == "\n\n"+label || begin == label+"\n\n"):
		p.Say("  ", term.NoColour, "the message above, with the line "+strconv.Quote(label))
		return
	case shown != "" && more:
		p.Say("  ", term.NoColour, "the message above, and right behind it")
		p.Quote(rest)
	case shown != "" && behind:
		p.Say("  ", term.NoColour, "the message above, and right before it")
		p.Quote(begin)
	default:
		p.Say("  ", term.NoColour, "this, which is not the message above")
		p.Quote(sending)
	}
	if label != "" {
		p.Fact("disclosure", label)
	}
}
