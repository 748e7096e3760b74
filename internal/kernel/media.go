package kernel

import (
	"cmp"
	"context"
	"errors"

	"github.com/openclawos/ocipd/internal/kernel/attachments"
	"github.com/openclawos/ocipd/internal/kernel/hints"
	"github.com/openclawos/ocipd/internal/ocip"
	"github.com/openclawos/ocipd/internal/ocip/media"
)

// look looks at what a message says besides its content, and at what it sends along. A
// file out of no folder that is listed for the agent is refused. Nothing of the message may
// change after this but what the daemon writes.
func (k *ruleset) look(ctx context.Context, m *outgoing) error {
	refused, err := k.lookAt(ctx, m, cmp.Or(m.approvalID, m.sender.ID))
	if refused != nil {
		return k.refuseEarly(m, refused)
	}
	return err
}

// lookAt is look that leaves a refusal to its caller. Messages of one line are looked at
// one after another: new ones of an agent have one line, and a person and a queue wait for
// none of these.
func (k *ruleset) lookAt(ctx context.Context, m *outgoing, line string) (*ocip.Verdict, error) {
	found, err := k.files.Look(ctx, &attachments.Message{
		Tenant: m.sender.TenantID, Agent: line,
		Content: m.content.Inspect(), Metadata: m.metadata, Folders: m.sender.Media, Rendering: m.recipient.Rendering,
		Known: func(member string) bool { return hints.IsOwn(member) || m.recipient.IsAddress(member) },
	}, k.cfg.Rules)
	m.passages, m.media, m.files, m.extracts = found.Passages, found.Items, found.Files, found.Extracts
	if refused, ok := errors.AsType[*media.Refused](err); ok {
		return &ocip.Verdict{Result: ocip.Deny, Code: ocip.MediaRefused, Policy: "media", Reason: refused.Reason}, nil
	}
	return nil, err
}
