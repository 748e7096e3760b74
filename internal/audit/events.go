package audit

import "slices"

// Events returns the events of each action type, as records name them. The event "" stands for
// records without one. docs/reference/records.md has a row for each.
func Events() map[string][]string {
	return map[string][]string{
		ActionExchange: {"", "malformed_envelope", "envelope_refused", "task_refused", "denied", "resolved", "escalated", "expired"},
		ActionCheck:    {"decided"},
		ActionApproval: {
			"approved", "approved_in_part", "asked_again", "asked_anew", "denied", "escalated", "expired", "grant_made", "grant_revoked", "not_released", "request_changes", "resolved", "revoked", "taken_over",
		},
		ActionPolicyChange: {"loaded", "refused"},
		ActionConfigChange: {"loaded", "refused", "signers_changed"},
		ActionAppLifecycle: {"healthy", "left", "lost", "registered", "resumed", "shutdown", "unhealthy"},
		ActionDelivery: {
			"approved_not_sent", "approved_not_used", "asked_anew", "delivered", "dropped", "expired", "failed", "human_message", "not_taken", "outcome_unknown", "read", "redeemed", "run_completed",
			"unannotated_message", "withdrawn",
		},
		ActionSecurity: {
			"agent_completed", "agent_starting", "altered_row", "backup_begun", "binding_refused", "bringing_refused", "call_signed", "contact_forgotten", EventStarted, "daemon_stopped", "decision_refused",
			"digest_key_destroyed", "digest_key_kept", "digest_key_lost", "disk_full", "disk_low", "disk_ok", "effect_process", "exchange_refused", "gateway_gated", "gateway_gone", "gateway_unbound",
			"gateway_ungated", "grant.attached", "grant.issued", "grant.revoked", "held_text_read", "key_rotation", "log_damaged", "log_exported", "mirror_lost", "process_refused", "rows_sealed", "runner_attached", "runner_refused", "sender_refused", "sending_paused",
			"sending_resumed", "session_end", "session_start", "settling_refused", "state_adopted", "state_kept", "state_restored", "task_permission", "task_refused", "tool_completed", "tool_executing", "undecided_message",
			"undecided_word", "unsigned_tail", "witness_added", "witness_refused", "witness_removed",
		},
		ActionCheckpoint: {EventSigned, EventRotated, EventRetired},
		ActionTask: {
			"approval.requested", "approval.resolved", "artifact.recorded", "attempt.checkpoint", "attempt.finished", "attempt.started", "circuit.closed", "circuit.opened", "effect.cancelled",
			"effect.finished", "effect.kill_asked", "effect.planned", "effect.settled", "effect.spawned", "effect.started", "effect.unknown", "grant.issued", "grant.revoked", "review.appended",
			"spec.revised", "task.claimed", "task.created", "task.imported", "task.released", "task.transitioned", "task.updated",
		},
	}
}

// KnownEvent reports whether records of an action type have such an event.
func KnownEvent(actionType, event string) bool { return slices.Contains(Events()[actionType], event) }
