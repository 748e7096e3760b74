package kernel

import (
	"errors"
	"strings"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/media"
	"github.com/openclawos/ocipd/internal/ocip"
)

// look reads what a message says besides its content, and looks at what it sends
// along: addresses elsewhere are put on record, and local files and inline bytes are
// hashed and all text in them weighed. A file out of no folder that is listed for the
// agent is refused. Nothing of the message may change after this but what the daemon
// writes.
func (k *ruleset) look(m *outgoing) error {
	m.media, m.files = nil, ocip.Weighed{}
	var references []media.Reference
	m.passages, references = media.Read(m.metadata, func(member string) bool { return isOurs(member) || m.recipient.IsAddress(member) })
	references, err := media.InText(references, "content", m.content)
	if err == nil && len(references) == 0 {
		return nil
	}
	weigher := k.cfg.Rules.Weigher(m.recipient.Rendering)
	looking := media.Look{Folders: m.sender.Media, Text: weigher}
	for _, r := range references {
		item := api.MediaItem{Member: clipped(r.Member)}
		if r.Path == "" {
			item.URL = clipped(r.Address())
		}
		if r.Path != "" || r.Inline != nil || r.Refused != "" {
			weigher.Begin("file " + item.Member)
			var file media.File
			if file, err = looking.At(r); err != nil {
				break
			}
			item.Path, item.SHA256, item.Bytes = file.Path, file.SHA256, file.Bytes
		}
		m.media = append(m.media, item)
	}
	if refused, ok := errors.AsType[*media.Refused](err); ok {
		return k.refuseEarly(m, &ocip.Verdict{Result: ocip.Deny, Code: ocip.MediaRefused, Policy: "media", Reason: refused.Reason})
	}
	m.files = weigher.Found()
	return err
}

// clipped bounds a text that a caller chose for a record.
func clipped(s string) string {
	const longest = 512
	if len(s) <= longest {
		return s
	}
	return strings.ToValidUTF8(s[:longest], "") + "…"
}
