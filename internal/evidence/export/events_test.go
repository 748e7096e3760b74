package export

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/openclawos/ocipd/internal/audit"
)

// TestEveryEventHasAReading checks that the table has a row for each kind of
// record. An event without a row would be shown as one that needs nobody.
func TestEveryEventHasAReading(t *testing.T) {
	for _, kind := range kinds(t) {
		key := kind.ActionType
		if kind.Event != "" {
			key += " " + kind.Event
		}
		if _, ok := readings[key]; !ok && kind.ActionType != "unheard_of" && kind.Event != "" {
			t.Errorf("%q has no row in the table of events", key)
		}
	}
}

// event maps a record to OCSF, and checks it against the schema.
func event(t *testing.T, s *schema, rec *audit.Record) map[string]any {
	t.Helper()
	log := newMemory()
	log.add(t, rec)
	r := Read(log.lines[0])
	var o map[string]any
	if err := json.Unmarshal(mapping.OCSF(&r), &o); err != nil {
		t.Fatal(err)
	}
	for _, fault := range append(s.check("", s.Class.Attributes, nil, o), captions(s.Class.Attributes, o)...) {
		t.Errorf("%s %s: %s", rec.ActionType, rec.Event, fault)
	}
	return o
}

// at returns the value in an event at a path.
func at(o any, path ...string) any {
	for _, name := range path {
		m, _ := o.(map[string]any)
		o = m[name]
	}
	return o
}

// TestOCSFEvents checks the form of each event that somebody has to see, and that similar events do
// not get that form.
func TestOCSFEvents(t *testing.T) {
	s := loadSchema(t)
	const (
		success, failure, waits                   = 1.0, 2.0, 99.0
		informational, low, medium, high, gravest = 1.0, 2.0, 3.0, 4.0, 5.0
	)
	now := func(member, value string) map[string]any {
		return map[string]any{"now": map[string]any{member: value}}
	}
	for _, c := range []struct {
		action, event, result         string
		details                       map[string]any
		status, disposition, severity float64
		alert                         bool
		syslog                        int
	}{
		{"security", "witness_refused", "", nil, failure, 27, gravest, true, 2},
		{"security", "log_damaged", "", nil, failure, 27, gravest, true, 2},
		{"security", "altered_row", "", nil, failure, 27, gravest, true, 2},
		{"security", "undecided_message", "", nil, failure, 26, gravest, true, 2},
		{"security", "undecided_word", "", nil, failure, 26, gravest, true, 2},
		{"security", "unsigned_tail", "", nil, failure, 27, high, true, 3},
		{"security", "mirror_lost", "", nil, failure, 27, high, true, 3},
		{"security", "digest_key_lost", "", nil, failure, 27, high, true, 3},
		{"security", "digest_key_destroyed", "", nil, success, 17, medium, true, 4},
		{"security", "sending_paused", "", map[string]any{"by": "uid:1000"}, success, 17, high, true, 3},
		{"security", "sending_resumed", "", map[string]any{"by": "uid:1000"}, success, 17, low, false, 5},
		{"security", "binding_refused", "", nil, failure, 26, high, true, 3},
		{"security", "sender_refused", "", nil, failure, 26, medium, true, 4},
		{"security", "decision_refused", "", nil, failure, 26, high, true, 3},
		{"security", "gateway_ungated", "", nil, failure, 27, high, true, 3},
		{"security", "witness_removed", "", nil, success, 17, medium, true, 4},
		{"security", "task_permission", "require_approval", nil, waits, 14, low, false, 5},
		{"security", "daemon_started", "", nil, success, 17, informational, false, 6},
		{"config_change", "signers_changed", "", nil, success, 17, high, true, 3},
		{"config_change", "refused", "", nil, failure, 2, medium, true, 4},
		{"policy_change", "refused", "", nil, failure, 2, medium, true, 4},
		{"config_change", "loaded", "", nil, success, 17, informational, false, 6},
		{"task", "approval.requested", "allow", nil, waits, 14, low, false, 5},
		{"task", "approval.resolved", "allow", now("status", "approved"), success, 8, informational, false, 6},
		{"task", "approval.resolved", "allow", now("status", "rejected"), failure, 2, medium, true, 4},
		{"task", "effect.started", "allow", now("state", "started"), success, 1, informational, false, 6},
		{"task", "effect.finished", "allow", now("state", "done"), success, 1, informational, false, 6},
		{"task", "effect.finished", "allow", now("state", "failed"), failure, 27, medium, true, 4},
		{"task", "effect.unknown", "allow", now("state", "outcome_unknown"), failure, 27, medium, true, 4},
		{"task", "attempt.finished", "allow", now("status", "failed"), failure, 27, medium, true, 4},
		{"task", "attempt.finished", "allow", now("status", "succeeded"), success, 1, informational, false, 6},
		{"task", "circuit.opened", "allow", nil, waits, 14, medium, true, 4},
		{"task", "task.created", "allow", nil, success, 1, informational, false, 6},
		{"approval", "escalated", "", nil, waits, 14, medium, false, 4},
		{"approval", "expired", "", nil, failure, 17, low, false, 5},
		{"delivery", "outcome_unknown", "", nil, failure, 27, medium, true, 4},
		{"delivery", "asked_anew", "", nil, waits, 14, low, false, 5},
		{"delivery", "run_completed", "", map[string]any{"success": false}, failure, 27, medium, true, 4},
		{"delivery", "run_completed", "", map[string]any{"success": true}, success, 17, informational, false, 6},
		{"app_lifecycle", "lost", "", nil, failure, 17, low, false, 5},
		{"unheard_of", "thing", "deny", nil, failure, 2, medium, true, 4},
	} {
		rec := &audit.Record{ID: "1", ActionType: c.action, Event: c.event, PolicyResult: c.result, Details: c.details}
		o := event(t, s, rec)
		got := []any{o["status_id"], o["disposition_id"], o["severity_id"], o["is_alert"]}
		if want := []any{c.status, c.disposition, c.severity, c.alert}; !slices.Equal(got, want) {
			t.Errorf("%s.%s: status, disposition, severity, alert are %v, want %v", c.action, c.event, got, want)
		}
		log := newMemory()
		log.add(t, rec)
		if r := Read(log.lines[0]); syslogSeverity(&r) != c.syslog {
			t.Errorf("%s.%s: the severity in syslog is %d, want %d", c.action, c.event, syslogSeverity(&r), c.syslog)
		}
	}
}

// TestOCSFActors checks the actor of events: it is never the sender of a message if somebody else
// decided about it.
func TestOCSFActors(t *testing.T) {
	s := loadSchema(t)
	for _, c := range []struct {
		name, action, event string
		change              func(*audit.Record)
		user                any
		kind                any
		// sender is set if the agent of the message is a resource.
		sender bool
	}{
		{"a message", audit.ActionExchange, "", func(*audit.Record) {}, "alice", 1.0, false},
		{"an approver", audit.ActionApproval, "approved", func(r *audit.Record) { r.Details = map[string]any{"by": "ann@acme"} }, "ann@acme", 1.0, true},
		{"a person who denied", audit.ActionApproval, "denied", func(r *audit.Record) { r.Details = map[string]any{"by": "ann@acme"} }, "ann@acme", 1.0, true},
		{"nobody in time", audit.ActionApproval, "expired", func(*audit.Record) {}, nil, nil, true},
		{"an operator who paused an agent", audit.ActionSecurity, "sending_paused", func(r *audit.Record) { r.Details = map[string]any{"by": "uid:1000", "uid": 1000} }, "uid:1000", 2.0, true},
		{"a witness", audit.ActionSecurity, "sending_paused", func(r *audit.Record) { *r = audit.Record{ID: "1", Details: map[string]any{"by": "witness:w.example"}} }, "witness:w.example", 4.0, false},
		{"an operator's process", audit.ActionConfigChange, "loaded", func(r *audit.Record) {
			*r = audit.Record{ID: "1", Details: map[string]any{"by": "operator", "uid": 1000}}
		}, "uid:1000", 2.0, false},
		{"a start", audit.ActionConfigChange, "loaded", func(r *audit.Record) { *r = audit.Record{ID: "1", Details: map[string]any{"by": "start"}} }, nil, nil, false},
		{"an actor of a task", audit.ActionTask, "review.appended", func(r *audit.Record) { *r = audit.Record{ID: "1", Actor: "checker", Role: "spec_reviewer"} }, "checker", 1.0, false},
		{"an operator of tasks", audit.ActionTask, "approval.resolved", func(r *audit.Record) { *r = audit.Record{ID: "1", Actor: "ann@acme", Role: "operator"} }, "ann@acme", 2.0, false},
		{"the daemon", audit.ActionTask, "effect.unknown", func(r *audit.Record) { *r = audit.Record{ID: "1", Actor: "daemon", Role: "daemon"} }, nil, nil, false},
		{"who asked what would be decided", audit.ActionCheck, "decided", func(r *audit.Record) {
			r.AgentID, r.AppID, r.UserID = "", "", ""
			r.Details = map[string]any{"operator": map[string]any{"uid": 1000, "pid": 7}}
		}, "uid:1000", 2.0, false},
	} {
		rec := exchange("")
		c.change(rec)
		rec.ActionType, rec.Event = c.action, c.event
		o := event(t, s, rec)
		if user, kind := at(o, "actor", "user", "uid"), at(o, "actor", "user", "type_id"); user != c.user || kind != c.kind {
			t.Errorf("%s: who acted is %v (%v), want %v", c.name, user, kind, c.user)
		}
		sender := false
		resources, _ := o["resources"].([]any)
		for _, r := range resources {
			sender = sender || at(r, "uid") == "agent-alice-1" && at(r, "type") == "agent"
		}
		if sender != c.sender || c.sender && (at(o, "src_endpoint", "uid") != nil || at(o, "actor", "app_uid") != nil) {
			t.Errorf("%s: the sender is a resource: %v, and %v; the actor is %v", c.name, sender, o["src_endpoint"], o["actor"])
		}
	}
}
