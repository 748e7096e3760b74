package main_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/uuid"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
)

// question is a harmless text.
const question = "What is the status of ticket ENG-1234?"

// field is one row of the table of the envelope.
type field struct {
	path string
	// kind is the JSON kind of the row's type.
	kind jsontext.Kind
	// wrong are invalid values of the field.
	wrong []any
	// check checks the row's description, with its own pair.
	check func(t *testing.T, w *world, p *pair)
}

// envelopeFormat goes through the table of the envelope. Each field arrives with its type in
// the other installation; there, an envelope without it, or with an invalid value, is refused.
func envelopeFormat(t *testing.T, w *world) {
	for _, f := range []field{
		{"version", '"', []any{1.0, "2.0", ""}, func(t *testing.T, _ *world, p *pair) {
			same(t, "version", stamped(t, p, nil, "version"), `"1.0"`)
		}},
		{"message_type", '"', []any{"robot", true}, messageType},
		{"source_agent", '{', []any{"agent-alice", []string{}}, func(t *testing.T, _ *world, p *pair) {
			same(t, "members", membersOf(t, stamped(t, p, nil, "source_agent")), []string{"instance_id", "user_id", "org_unit", "tenant_id"})
		}},
		{"source_agent.instance_id", '"', []any{7, ""}, func(t *testing.T, _ *world, p *pair) {
			same(t, "instance_id", stamped(t, p, nil, "source_agent.instance_id"), `"`+p.alice.instance+`"`)
			mismatch(t, p, "source_agent.instance_id", "agent-somebody", "ENVELOPE_FORGED")
		}},
		{"source_agent.user_id", '"', []any{7, ""}, func(t *testing.T, _ *world, p *pair) {
			same(t, "user_id", stamped(t, p, nil, "source_agent.user_id"), `"`+p.alice.user+`"`)
			mismatch(t, p, "source_agent.user_id", "somebody", "ENVELOPE_FORGED")
		}},
		{"source_agent.org_unit", '"', []any{7, ""}, func(t *testing.T, _ *world, p *pair) {
			same(t, "org_unit", stamped(t, p, nil, "source_agent.org_unit"), `"engineering"`)
			mismatch(t, p, "source_agent.org_unit", "marketing", "ENVELOPE_FORGED")
		}},
		{"source_agent.tenant_id", '"', []any{7, ""}, func(t *testing.T, _ *world, p *pair) {
			same(t, "tenant_id", stamped(t, p, nil, "source_agent.tenant_id"), `"acme-corp"`)
			mismatch(t, p, "source_agent.tenant_id", "globex-inc", "CROSS_ENTERPRISE_BLOCKED")
		}},
		{"classification", '"', []any{"secret", "Public", 1}, func(t *testing.T, w *world, _ *pair) {
			p := w.pair(t, sharing+"restricted")
			for _, level := range levels() {
				same(t, "classification", stamped(t, p, map[string]any{"new": true, "classification": level}, "classification"), `"`+level+`"`)
			}
		}},
		{"conversation_id", '"', []any{7, ""}, conversationID},
		{"exchange_round", '0', []any{"1", 1.5, -1}, func(t *testing.T, _ *world, p *pair) {
			for i, from := range []*end{p.alice, p.bob, p.alice} {
				m := p.pass(t, from, question, nil)
				same(t, "exchange_round", at(t, m.arrived.Metadata["ocip"], "exchange_round"), i+1)
			}
		}},
		{"max_rounds", '0', []any{"3", 0, 2.5}, func(t *testing.T, _ *world, p *pair) {
			same(t, "max_rounds", stamped(t, p, nil, "max_rounds"), 3)
		}},
		{"capabilities", '{', []any{"none", []string{}}, func(t *testing.T, _ *world, p *pair) {
			same(t, "members", membersOf(t, stamped(t, p, nil, "capabilities")), []string{"can_commit", "can_share"})
		}},
		{"capabilities.can_commit", 'f', []any{"false", 0}, func(t *testing.T, _ *world, p *pair) {
			forged := jsontext.Value(`{"version":"1.0","capabilities":{"can_commit":true,"can_share":["restricted"]}}`)
			if _, err := p.alice.dispatchTo(t, p.alice.to, question, map[string]any{"ocip": forged}); err != nil {
				t.Fatal(err)
			}
			same(t, "can_commit of a forged envelope", at(t, p.alice.crossed(t).Metadata["ocip"], "capabilities.can_commit"), false)
			p.bob.received(t)
			same(t, "can_commit", stamped(t, p, nil, "capabilities.can_commit"), false)
			// Another installation's contrary claim is not believed.
			t.Run("received", func(t *testing.T) {
				m := p.intercept(t, question, map[string]any{"new": true})
				m.Metadata["ocip"] = alter(t, m.Metadata["ocip"], "capabilities.can_commit", true)
				if queued, err := bring(t.Context(), p.bob, p.alice, m.Content.Inspect(), m.Metadata); err == nil && !queued.Held {
					same(t, "can_commit of an agent-generated message", at(t, p.bob.received(t).Metadata["ocip"], "capabilities.can_commit"), false)
				}
			})
		}},
		{"capabilities.can_share", '[', []any{"public", []string{"secret"}, []int{1}}, func(t *testing.T, _ *world, p *pair) {
			same(t, "can_share", stamped(t, p, nil, "capabilities.can_share"), `["public","internal"]`)
		}},
		{"reply_policy", '"', []any{"robots-only", false}, replyPolicyField},
		{"requires_commitment", 'f', []any{"false", 0}, func(t *testing.T, w *world, p *pair) {
			same(t, "requires_commitment of a query", stamped(t, p, fresh("information_query"), "requires_commitment"), false)
			asked := stamped(t, w.pair(t, monitored), fresh("commitment_request"), "requires_commitment")
			same(t, "requires_commitment of a request", asked, true)
		}},
		{"expires_at", '"', []any{"tomorrow", 1773482400, "2026-03-14"}, expiresAt},
	} {
		t.Run(f.path, func(t *testing.T) {
			f.check(t, w, w.pair(t, ordinary))
			f.required(t, w.pair(t, ordinary))
		})
	}
	t.Run("Example Envelope", func(t *testing.T) { exampleEnvelope(t, w) })
}

// stamped sends a message and returns a value of the arrived envelope.
func stamped(t *testing.T, p *pair, exchange map[string]any, path string) jsontext.Value {
	t.Helper()
	return at(t, p.pass(t, p.alice, question, exchange).arrived.Metadata["ocip"], path)
}

// required gives the receiver a real envelope without the field, and with invalid values.
func (f *field) required(t *testing.T, p *pair) {
	t.Helper()
	m := p.intercept(t, question, nil)
	envelope := m.Metadata["ocip"]
	if got := at(t, envelope, f.path).Kind(); got != f.kind {
		t.Errorf("%s is of kind %q, want %q", f.path, got, f.kind)
	}
	for i, value := range append([]any{nil}, f.wrong...) {
		m.Metadata["ocip"] = alter(t, envelope, f.path, value)
		queued, err := bring(t.Context(), p.bob, p.alice, m.Content.Inspect(), m.Metadata)
		j := refused(t, queued, err, "MALFORMED_ENVELOPE")
		if !strings.Contains(j.Reason, f.path) || i == 0 && !strings.Contains(j.Reason, "missing") {
			t.Errorf("with %s set to %v the reason is %q", f.path, value, j.Reason)
		}
	}
	p.bob.gotNothing(t)
	r := p.bob.installation.records(t, audit.Filter{Like: audit.Record{ActionType: audit.ActionExchange, AgentID: p.bob.instance}})
	if len(r) != 1+len(f.wrong) {
		t.Fatalf("%d records of envelopes that are none, want %d", len(r), 1+len(f.wrong))
	}
	for _, e := range r {
		if e.Event != "malformed_envelope" || e.PolicyResult != "deny" || e.Code != "MALFORMED_ENVELOPE" {
			t.Errorf("the record is %+v", e)
		}
	}
}

// intercept sends a message of alice that leaves her installation and is not delivered.
func (p *pair) intercept(t *testing.T, content string, exchange map[string]any) crossing {
	t.Helper()
	p.alice.keep.Store(true)
	defer p.alice.keep.Store(false)
	p.alice.send(t, content, exchange)
	return p.alice.crossed(t)
}

// mismatch gives the receiver an envelope with a false claim of identity.
func mismatch(t *testing.T, p *pair, path, claim, code string) {
	t.Helper()
	m := p.intercept(t, question, map[string]any{"new": true})
	m.Metadata["ocip"] = alter(t, m.Metadata["ocip"], path, claim)
	queued, err := bring(t.Context(), p.bob, p.alice, m.Content.Inspect(), m.Metadata)
	refused(t, queued, err, code)
	p.bob.gotNothing(t)
}

// membersOf lists an object's members in their order.
func membersOf(t *testing.T, object jsontext.Value) (names []string) {
	t.Helper()
	d := jsontext.NewDecoder(strings.NewReader(string(object)))
	if _, err := d.ReadToken(); err != nil {
		t.Fatalf("%s: %v", object, err)
	}
	for d.PeekKind() == '"' {
		name, err := d.ReadToken()
		if err == nil {
			names = append(names, name.String())
			err = d.SkipValue()
		}
		if err != nil {
			t.Fatalf("%s: %v", object, err)
		}
	}
	return names
}

// messageType: agent-generated, agent-assisted, or human. An app cannot claim that a person
// wrote its message; a person's own message arrives.
func messageType(t *testing.T, _ *world, p *pair) {
	same(t, "message_type", stamped(t, p, fresh("information_query"), "message_type"), `"agent-generated"`)
	assisted := map[string]any{"new": true, "messageType": "agent-assisted"}
	same(t, "message_type", stamped(t, p, assisted, "message_type"), `"agent-assisted"`)

	_, err := p.alice.dispatch(t, question, map[string]any{"new": true, "messageType": "human"})
	if api.AsError(err).Code != api.InvalidParams {
		t.Errorf("a human message of an app: %v", err)
	}
	m := p.intercept(t, question, map[string]any{"new": true})
	m.Metadata["ocip"] = alter(t, m.Metadata["ocip"], "message_type", "human")
	if _, err := bring(t.Context(), p.bob, p.alice, m.Content.Inspect(), m.Metadata); err != nil {
		t.Fatal(err)
	}
	same(t, "message_type", at(t, p.bob.received(t).Metadata["ocip"], "message_type"), `"human"`)
}

// conversationID: a UUID that groups messages into a conversation.
func conversationID(t *testing.T, _ *world, p *pair) {
	first, reply, next := p.pass(t, p.alice, question, nil), p.pass(t, p.bob, "It is done.", nil), p.pass(t, p.alice, "Thank you.", nil)
	other := p.pass(t, p.alice, question, map[string]any{"new": true})
	id := func(m passage) string { return string(at(t, m.arrived.Metadata["ocip"], "conversation_id")) }
	if _, err := uuid.Parse(strings.Trim(id(first), `"`)); err != nil {
		t.Errorf("%s is no UUID: %v", id(first), err)
	}
	if id(reply) != id(first) || id(next) != id(first) || id(other) == id(first) {
		t.Errorf("a message, its reply and the answer have %s, %s and %s, a new conversation has %s", id(first), id(reply), id(next), id(other))
	}
	same(t, "what the sender is told", `"`+first.answer.OCIP.ConversationID+`"`, id(first))
}

// replyPolicyField: agent-ok, human-only, or no-reply-needed.
func replyPolicyField(t *testing.T, w *world, p *pair) {
	same(t, "reply_policy", stamped(t, p, fresh("information_query"), "reply_policy"), `"agent-ok"`)
	same(t, "reply_policy", stamped(t, w.pair(t, monitored), fresh("meeting_scheduling"), "reply_policy"), `"human-only"`)
	m := p.intercept(t, question, map[string]any{"new": true})
	m.Metadata["ocip"] = alter(t, m.Metadata["ocip"], "reply_policy", "no-reply-needed")
	if _, err := bring(t.Context(), p.bob, p.alice, m.Content.Inspect(), m.Metadata); err != nil {
		t.Fatal(err)
	}
	same(t, "reply_policy", at(t, p.bob.received(t).Metadata["ocip"], "reply_policy"), `"no-reply-needed"`)
}

// expiresAt: an ISO 8601 time, 24 hours from now, after which the exchange has
// expired.
func expiresAt(t *testing.T, _ *world, p *pair) {
	const day = 24 * time.Hour
	before := time.Now().Truncate(time.Millisecond)
	text, _ := api.Text(stamped(t, p, nil, "expires_at"))
	after := time.Now()
	when, err := time.Parse(time.RFC3339, text)
	if err != nil || !regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$`).MatchString(text) {
		t.Errorf("%q is not written as the reference does: %v", text, err)
	}
	if when.Before(before.Add(day)) || when.After(after.Add(day)) {
		t.Errorf("sent between %v and %v, it expires at %v", before, after, when)
	}
	m := p.intercept(t, question, map[string]any{"new": true})
	m.Metadata["ocip"] = alter(t, m.Metadata["ocip"], "expires_at", moments(-time.Second))
	queued, err := bring(t.Context(), p.bob, p.alice, m.Content.Inspect(), m.Metadata)
	refused(t, queued, err, "EXCHANGE_EXPIRED")
	p.bob.gotNothing(t)
}

// exampleEnvelope: the reference's own example is accepted, and the daemon's envelope has
// its members in the same order.
func exampleEnvelope(t *testing.T, w *world) {
	example := jsontext.Value(`{
  "version": "1.0",
  "message_type": "agent-generated",
  "source_agent": {
    "instance_id": "agent-abc-123",
    "user_id": "alice",
    "org_unit": "engineering",
    "tenant_id": "acme-corp"
  },
  "classification": "internal",
  "conversation_id": "conv-789-xyz",
  "exchange_round": 1,
  "max_rounds": 3,
  "capabilities": {
    "can_commit": false,
    "can_share": ["public", "internal"]
  },
  "reply_policy": "agent-ok",
  "requires_commitment": false,
  "expires_at": "2026-03-14T10:00:00.000Z"
}`)
	p := w.pair(t, ordinary)
	written := p.pass(t, p.alice, question, nil).arrived.Metadata["ocip"]
	for _, path := range []string{"", "source_agent", "capabilities"} {
		got, want := written, example
		if path != "" {
			got, want = at(t, got, path), at(t, want, path)
		}
		if !slices.Equal(membersOf(t, got), membersOf(t, want)) {
			t.Errorf("the envelope is %s", written)
		}
	}
	// Its sender is unknown here.
	example = alter(t, example, "expires_at", moments(time.Hour))
	var queued sent
	must(t, p.bob.installation.carrier, "agent.queue", map[string]any{
		"sessionKey": "agent:" + p.bob.id + ":example", "text": question, "metadata": map[string]any{"ocip": example},
	}, &queued)
	m := p.bob.received(t)
	var got, want map[string]any
	if err := json.Unmarshal(m.Metadata["ocip"], &got); err != nil || m.RunID != queued.RunID {
		t.Fatalf("%s got %+v: %v", p.bob.id, m, err)
	}
	if err := json.Unmarshal(example, &want); err != nil {
		t.Fatal(err)
	}
	same(t, "the example", got, want)
}

// moments is a time from now, in the reference's format.
func moments(from time.Duration) string {
	return time.Now().Add(from).UTC().Format("2006-01-02T15:04:05.000Z")
}
