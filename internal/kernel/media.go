package kernel

import (
	"errors"
	"strings"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/media"
	"github.com/openclawos/ocipd/internal/ocip"
)

// lookAtMedia looks at what a message sends along besides its text: addresses
// elsewhere are put on record, and local files are hashed and their texts weighed
// with the message. A file out of no folder that is listed for the agent is refused.
func (k *ruleset) lookAtMedia(m *outgoing) error {
	m.media, m.mediaTexts = nil, nil
	references, err := media.References(m.metadata)
	for _, r := range references {
		if r.Path == "" {
			m.media = append(m.media, api.MediaItem{Member: clipped(r.Member), URL: clipped(r.Address())})
			continue
		}
		file, failed := media.Look(r, m.sender.Media)
		if failed != nil {
			err = failed
			break
		}
		m.media = append(m.media, api.MediaItem{Member: clipped(r.Member), Path: file.Path, SHA256: file.SHA256, Bytes: file.Bytes})
		if file.Text != "" {
			m.mediaTexts = append(m.mediaTexts, ocip.Passage{Member: "file " + clipped(r.Member), Text: file.Text, Prose: true})
		}
	}
	if refused, ok := errors.AsType[*media.Refused](err); ok {
		return k.refuseEarly(m, &ocip.Verdict{Result: ocip.Deny, Code: ocip.MediaRefused, Policy: "media", Reason: refused.Reason})
	}
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
