package kernel

import (
	"errors"

	"github.com/openclawos/ocipd/internal/attachments"
	"github.com/openclawos/ocipd/internal/hints"
	"github.com/openclawos/ocipd/internal/media"
	"github.com/openclawos/ocipd/internal/ocip"
)

// look looks at what a message says besides its content, and at what it sends along. A
// file out of no folder that is listed for the agent is refused. Nothing of the message may
// change after this but what the daemon writes.
func (k *ruleset) look(m *outgoing) error {
	found, err := attachments.Look(&attachments.Message{
		Content: m.content, Metadata: m.metadata, Folders: m.sender.Media, Rendering: m.recipient.Rendering,
		Known: func(member string) bool { return hints.IsOwn(member) || m.recipient.IsAddress(member) },
	}, k.cfg.Rules)
	m.passages, m.media, m.files = found.Passages, found.Items, found.Files
	if refused, ok := errors.AsType[*media.Refused](err); ok {
		return k.refuseEarly(m, &ocip.Verdict{Result: ocip.Deny, Code: ocip.MediaRefused, Policy: "media", Reason: refused.Reason})
	}
	return err
}
