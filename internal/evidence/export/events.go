package export

import (
	"cmp"

	"github.com/openclawos/ocipd/internal/audit"
)

// severity is the urgency with which somebody should look at a record.
type severity int

const (
	byKind   severity = iota // according to its kind
	info                     // nothing to do
	low                      // a person is asked, or something went away
	medium                   // refused or failed
	high                     // somebody should look at it today
	critical                 // the log or the daemon may be wrong
	unknown                  // a line that could not be read
)

// kind is the outcome of a record's event.
type kind int

const (
	byVerdict    kind = iota // according to the policy's result, otherwise kindDone
	kindDone                 // it happened, without any decision
	kindAllowed              // a policy allowed it
	kindApproved             // a person allowed it
	kindWaits                // it waits for a person
	kindRefused              // it was refused
	kindFailed               // it was allowed or begun, and failed or has an unknown result
	kindEnded                // it went away or ran out of time
)

// severities gives the severity of each kind.
var severities = map[kind]severity{kindDone: info, kindAllowed: info, kindApproved: info, kindWaits: low, kindRefused: medium, kindFailed: medium, kindEnded: low}

// reading is the form of one kind of record for monitoring systems.
type reading struct {
	kind     kind
	severity severity
	// alert is set if somebody has to look at the record although nothing was refused and nothing
	// failed. Refusals and failures are alerts anyway.
	alert bool
	// alone is set if the daemon or time acted, and not the subject of the record.
	alone bool
	// of returns the kind if the event alone does not determine it.
	of func(*audit.Entry) kind
}

// readings lists all kinds of records, by type and event. Severities, alerts, statuses and actors
// of OCSF, OTLP, syslog and the journal come from this table.
var readings = map[string]reading{
	"agent_exchange":                    {},
	"agent_exchange malformed_envelope": {kind: kindRefused},
	"agent_exchange envelope_refused":   {kind: kindRefused},
	"agent_exchange task_refused":       {kind: kindRefused},
	"agent_exchange resolved":           {kind: kindDone},
	"agent_exchange denied":             {kind: kindDone},
	"agent_exchange escalated":          {kind: kindDone},
	"agent_exchange expired":            {kind: kindEnded, alone: true},
	"check decided":                     {},

	"approval approved":         {kind: kindApproved},
	"approval taken_over":       {kind: kindApproved},
	"approval judged":           {kind: kindWaits},
	"approval denied":           {kind: kindRefused},
	"approval request_changes":  {kind: kindRefused},
	"approval resolved":         {kind: kindDone},
	"approval revoked":          {kind: kindDone},
	"approval escalated":        {kind: kindWaits, severity: medium, alone: true},
	"approval approved_in_part": {kind: kindWaits},
	"approval asked_anew":       {kind: kindWaits, alone: true},
	"approval asked_again":      {kind: kindWaits},
	"approval not_released":     {kind: kindFailed},
	"approval expired":          {kind: kindEnded, alone: true},
	"approval grant_made":       {kind: kindApproved, severity: low},
	"approval grant_revoked":    {kind: kindDone},

	"delivery delivered":           {kind: kindDone},
	"delivery read":                {kind: kindDone},
	"delivery redeemed":            {kind: kindDone},
	"delivery human_message":       {kind: kindDone},
	"delivery unannotated_message": {kind: kindDone},
	"delivery failed":              {kind: kindFailed},
	"delivery not_taken":           {kind: kindFailed},
	"delivery outcome_unknown":     {kind: kindFailed},
	"delivery withdrawn":           {kind: kindRefused, alone: true},
	"delivery asked_anew":          {kind: kindWaits, alone: true},
	"delivery approved_not_sent":   {kind: kindEnded, alone: true},
	"delivery approved_not_used":   {kind: kindEnded, alone: true},
	"delivery expired":             {kind: kindEnded, alone: true},
	"delivery dropped":             {kind: kindEnded},
	"delivery run_completed":       {of: ran},
	"delivery receipt":             {of: received},
	"delivery lane_renewed":        {},
	"delivery message_refused":     {kind: kindRefused},
	"delivery message_expired":     {kind: kindEnded},
	"delivery message_void":        {kind: kindEnded},
	"delivery message_repeated":    {},

	"task task.created":        {},
	"task task.transitioned":   {},
	"task task.updated":        {},
	"task task.imported":       {},
	"task task.claimed":        {},
	"task task.released":       {},
	"task spec.revised":        {},
	"task attempt.started":     {},
	"task attempt.checkpoint":  {},
	"task attempt.finished":    {of: finished},
	"task artifact.recorded":   {},
	"task review.appended":     {},
	"task approval.requested":  {kind: kindWaits},
	"task approval.resolved":   {of: resolved},
	"task circuit.opened":      {kind: kindWaits, severity: medium, alert: true},
	"task circuit.closed":      {},
	"task effect.planned":      {},
	"task effect.started":      {},
	"task effect.begun":        {},
	"task effect.withdrawn":    {},
	"task effect.spawned":      {},
	"task effect.finished":     {of: finished},
	"task effect.unknown":      {kind: kindFailed},
	"task effect.settled":      {},
	"task effect.kill_asked":   {severity: low},
	"task effect.cancelled":    {kind: kindEnded},
	"task grant.issued":        {},
	"task grant.revoked":       {},
	"security effect_process":  {kind: kindDone},
	"security grant.issued":    {},
	"security grant.revoked":   {},
	"security grant.attached":  {kind: kindDone},
	"security task_refused":    {kind: kindRefused},
	"security task_permission": {},
	"security tool_executing":  {},
	"security tool_completed":  {},
	"security agent_starting":  {},
	"security agent_completed": {},
	"security session_start":   {},
	"security session_end":     {},

	"security daemon_started":          {kind: kindDone, alone: true},
	"security daemon_stopped":          {kind: kindDone, alone: true},
	"security sender_refused":          {kind: kindRefused},
	"security exchange_refused":        {kind: kindRefused},
	"security settling_refused":        {kind: kindRefused},
	"security bringing_refused":        {kind: kindRefused},
	"security process_refused":         {kind: kindRefused, severity: high},
	"security decision_refused":        {kind: kindRefused, severity: high},
	"security runner_attached":         {kind: kindDone, severity: low},
	"security runner_refused":          {kind: kindRefused, severity: high},
	"security frame_refused":           {kind: kindRefused, severity: high},
	"security frame_walled":            {kind: kindRefused, severity: high},
	"security lane_rolled_back":        {kind: kindRefused, severity: high, alone: true},
	"security peer_log_shrunk":         {kind: kindRefused, severity: high, alone: true},
	"security binding_refused":         {kind: kindRefused, severity: high},
	"security call_signed":             {kind: kindDone},
	"security sending_paused":          {kind: kindDone, severity: high, alert: true},
	"security sending_resumed":         {kind: kindDone, severity: low},
	"security contact_forgotten":       {kind: kindDone},
	"security held_text_read":          {kind: kindDone},
	"security log_exported":            {kind: kindDone},
	"security backup_begun":            {kind: kindDone, severity: low},
	"security witness_refused":         {kind: kindFailed, severity: critical, alone: true},
	"security log_damaged":             {kind: kindFailed, severity: critical, alone: true},
	"security witness_added":           {kind: kindDone, severity: low, alone: true},
	"security witness_removed":         {kind: kindDone, severity: medium, alert: true, alone: true},
	"security unsigned_tail":           {kind: kindFailed, severity: high, alone: true},
	"security undecided_message":       {kind: kindRefused, severity: critical, alone: true},
	"security undecided_word":          {kind: kindRefused, severity: critical, alone: true},
	"security altered_row":             {kind: kindFailed, severity: critical, alone: true},
	"security rows_sealed":             {kind: kindDone, severity: medium, alert: true, alone: true},
	"security state_restored":          {kind: kindDone, severity: medium, alert: true, alone: true},
	"security state_adopted":           {kind: kindDone, severity: medium, alert: true, alone: true},
	"security state_kept":              {kind: kindDone, alone: true},
	"security digest_key_destroyed":    {kind: kindDone, severity: medium, alert: true},
	"security digest_key_kept":         {kind: kindFailed, severity: high},
	"security digest_key_lost":         {kind: kindFailed, severity: high, alone: true},
	"security key_rotation":            {kind: kindDone, severity: low},
	"security mirror_lost":             {kind: kindFailed, severity: high, alone: true},
	"security disk_low":                {kind: kindDone, severity: medium, alone: true},
	"security disk_full":               {kind: kindFailed, severity: high, alone: true},
	"security disk_ok":                 {kind: kindDone, alone: true},
	"security gateway_ungated":         {kind: kindFailed, severity: high, alone: true},
	"security gateway_gated":           {kind: kindDone, alone: true},
	"security gateway_gone":            {kind: kindEnded, alone: true},
	"security console_opened":          {kind: kindDone},
	"security console_enrolled":        {kind: kindDone, severity: high, alert: true},
	"security console_link_reused":     {kind: kindRefused, severity: high},
	"security console_host_refused":    {kind: kindRefused},
	"security console_origin_refused":  {kind: kindRefused},
	"security console_session_refused": {kind: kindRefused},
	"security console_refused":         {kind: kindRefused, severity: high},
	"security gateway_unbound":         {kind: kindEnded, alone: true},

	"config_change loaded":          {kind: kindDone},
	"config_change refused":         {kind: kindRefused},
	"config_change signers_changed": {kind: kindDone, severity: high, alert: true, alone: true},
	"policy_change loaded":          {kind: kindDone},
	"policy_change refused":         {kind: kindRefused},

	"app_lifecycle registered": {kind: kindDone},
	"app_lifecycle resumed":    {kind: kindDone},
	"app_lifecycle shutdown":   {kind: kindDone},
	"app_lifecycle left":       {kind: kindDone},
	"app_lifecycle lost":       {kind: kindEnded},
	"app_lifecycle unhealthy":  {kind: kindEnded},
	"app_lifecycle healthy":    {kind: kindDone},

	"checkpoint signed":      {kind: kindDone, alone: true},
	"checkpoint key_rotated": {kind: kindDone, severity: low, alone: true},
	"checkpoint retired":     {kind: kindDone, severity: low, alone: true},
}

// readingOf returns the row of a record. An event without a row has that of its verdict.
func readingOf(e *audit.Entry) reading {
	key := e.ActionType
	if e.Event != "" {
		key += " " + e.Event
	}
	return readings[key]
}

// kindOf returns the outcome of a record's event.
func kindOf(e *audit.Entry) kind {
	r := readingOf(e)
	k := r.kind
	if r.of != nil {
		k = r.of(e)
	}
	switch {
	case k != byVerdict && k != kindDone:
	case e.PolicyResult == audit.ResultDeny:
		k = kindRefused
	case e.PolicyResult == audit.ResultApproval:
		k = kindWaits
	case k == byVerdict && e.PolicyResult == audit.ResultAllow:
		k = kindAllowed
	default:
		k = kindDone
	}
	return k
}

// severityOf returns the severity of a record, and whether it is an alert.
func severityOf(r *Record) (s severity, alert bool) {
	if !r.Known {
		return unknown, true
	}
	row, kind := readingOf(&r.Entry), kindOf(&r.Entry)
	if s = row.severity; s == byKind {
		s = severities[kind]
	}
	return s, row.alert || kind == kindRefused || kind == kindFailed
}

// ran returns the kind for the end of an agent's turn.
func ran(e *audit.Entry) kind {
	if ok, isBool := e.Details["success"].(bool); isBool && !ok {
		return kindFailed
	}
	return kindDone
}

// received returns the kind for the decision of another host about a message.
func received(e *audit.Entry) kind {
	switch e.Outcome {
	case "allow":
		return kindDone
	case "deny":
		return kindRefused
	}
	return kindEnded
}

// now returns the new value of a task's member in a record.
func now(e *audit.Entry, member string) string {
	details, _ := e.Details["now"].(map[string]any)
	value, _ := details[member].(string)
	return value
}

// finished returns the kind for the end of an attempt, or of a run of an effect.
func finished(e *audit.Entry) kind {
	switch cmp.Or(now(e, "state"), now(e, "status")) {
	case "failed", "retrying", "outcome_unknown":
		return kindFailed
	case "aborted", "cancelled":
		return kindEnded
	}
	return byVerdict
}

// resolved returns the kind for the end of a task's request, by people or by time.
func resolved(e *audit.Entry) kind {
	switch now(e, "status") {
	case "approved":
		return kindApproved
	case "rejected", "request_changes":
		return kindRefused
	case "revoked", "expired":
		return kindEnded
	}
	return kindDone
}
