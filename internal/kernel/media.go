package kernel

import (
	"cmp"
	"context"
	"errors"

	"github.com/openclawos/ocipd/internal/kernel/attachments"
	"github.com/openclawos/ocipd/internal/kernel/exchangehints"
	"github.com/openclawos/ocipd/internal/ocip"
	"github.com/openclawos/ocipd/internal/ocip/media"
)

// look looks at the metadata and the attachments of a message. It refuses a file outside the
// agent's listed folders. After this, only the daemon may still change the message.
func (k *ruleset) look(ctx context.Context, m *outgoing) error {
	refused, err := k.lookAt(ctx, m, cmp.Or(m.approvalID, m.sender.ID))
	if refused != nil {
		return k.refuseEarly(m, refused)
	}
	return err
}

// lookAt is look that returns a refusal to its caller. Messages of one line are looked at one after
// another. New messages of an agent share a line; a person's release and the queue do not wait for
// them.
func (k *ruleset) lookAt(ctx context.Context, m *outgoing, line string) (*ocip.Verdict, error) {
	found, err := k.files.Look(ctx, &attachments.Message{
		Tenant: m.sender.TenantID, Agent: line,
		Content: m.content.Inspect(), Metadata: m.metadata, Folders: m.sender.Media, Rendering: m.recipient.Rendering,
		Known: func(member string) bool { return exchangehints.IsOwn(member) || m.recipient.IsAddress(member) },
	}, k.cfg.Rules)
	m.passages, m.media, m.files, m.extracts = found.Passages, found.Items, found.Files, found.Extracts
	if refused, ok := errors.AsType[*media.Refused](err); ok {
		return &ocip.Verdict{Result: ocip.Deny, Code: ocip.MediaRefused, Policy: "media", Reason: refused.Reason}, nil
	}
	return nil, err
}
