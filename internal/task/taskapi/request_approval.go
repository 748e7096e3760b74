package taskapi

import (
	"time"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/base/ids"
	"github.com/openclawos/ocipd/internal/task"
)

// RequestApprovalParams asks a person about an effect (task.request_approval).
// For an effect that is planned, the key is enough besides what is required.
type RequestApprovalParams struct {
	Write
	AttemptID string `json:"attempt_id,omitzero"`
	task.Planned
	RequestedBy string `json:"requested_by"`
	// Undo asks about undoing the effect of the key, which is done or failed.
	Undo bool `json:"undo,omitzero"`
	// Status is of the published protocol, and ignored.
	Status string `json:"status,omitzero"`
}

// Validate names the fields that are wrong.
func (p *RequestApprovalParams) Validate() []api.FieldError {
	var f fields
	p.validate(&f)
	f.Maybe("attempt_id", ids.Attempt, p.AttemptID)
	f.planned("", &p.Planned, true)
	if p.Undo && (p.Command != nil || len(p.Params) > 0 || p.Compensation != nil) {
		f.Add("undo", "leave out command, params and compensation: an effect is undone by what was approved with it")
	}
	f.Text("requested_action", p.RequestedAction, task.MaxText)
	f.Text("side_effect_kind", p.Kind, 64)
	f.UpTo("requested_by", p.RequestedBy, api.MaxName)
	f.UpTo("status", p.Status, api.MaxName)
	return f.Fields
}

// ApprovalRequested is the answer of task.request_approval.
type ApprovalRequested struct {
	Changed
	ApprovalID    string    `json:"approval_id"`
	EffectID      string    `json:"effect_id"`
	Status        string    `json:"status"`
	RequestDigest string    `json:"request_digest"`
	ExpiresAt     time.Time `json:"expires_at"`
}
