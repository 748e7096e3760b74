package ocip

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/base/jsonline"
	"github.com/openclawos/ocipd/internal/base/text"
)

// Envelope is the annotation that every outgoing message carries as metadata.ocip. Its JSON form is
// the one of the OCIP reference, field by field.
type Envelope struct {
	Version            string       `json:"version"`
	MessageType        MessageType  `json:"message_type"`
	SourceAgent        Identity     `json:"source_agent"`
	Classification     Level        `json:"classification"`
	ConversationID     string       `json:"conversation_id"`
	ExchangeRound      int          `json:"exchange_round"`
	MaxRounds          int          `json:"max_rounds"`
	Capabilities       Capabilities `json:"capabilities"`
	ReplyPolicy        ReplyPolicy  `json:"reply_policy"`
	RequiresCommitment bool         `json:"requires_commitment"`
	ExpiresAt          Time         `json:"expires_at"`
}

// Capabilities lists the sender's rights in an exchange.
type Capabilities struct {
	CanCommit bool    `json:"can_commit"`
	CanShare  []Level `json:"can_share"`
}

// Time is a moment on the wire: ISO 8601 in UTC with milliseconds.
type Time struct{ time.Time }

// timeLayout is the form in the reference's examples.
const timeLayout = "2006-01-02T15:04:05.000Z"

// MarshalText writes the moment in UTC with milliseconds.
func (t Time) MarshalText() ([]byte, error) {
	return t.UTC().AppendFormat(make([]byte, 0, len(timeLayout)), timeLayout), nil
}

// MarshalJSON writes the form of [Time.MarshalText]. Without it, encoders would use the method of
// the embedded time, which has another form.
func (t Time) MarshalJSON() ([]byte, error) {
	return t.UTC().AppendFormat(make([]byte, 0, len(timeLayout)+2), `"`+timeLayout+`"`), nil
}

// UnmarshalJSON reads the form of [Time.UnmarshalText].
func (t *Time) UnmarshalJSON(b []byte) error {
	var text string
	if err := json.Unmarshal(b, &text); err != nil {
		return err
	}
	return t.UnmarshalText([]byte(text))
}

// UnmarshalText reads any RFC 3339 moment whose year has four digits in UTC too, so that it can be
// written again.
func (t *Time) UnmarshalText(b []byte) error {
	parsed, err := time.Parse(time.RFC3339, string(b))
	if year := parsed.UTC().Year(); err != nil || year < 0 || year > 9999 {
		return fmt.Errorf("%.64q is not an ISO 8601 time", b)
	}
	t.Time = parsed
	return nil
}

// annotate encodes an envelope in the form of the JSON library. The daemon writes one for every
// message, and no field of it can fail to encode. Invalid UTF-8 in an identity is replaced.
func annotate(e Envelope) []byte {
	b := make([]byte, 0, 640)
	b = jsonline.Text(append(b, '{'), "version", e.Version)
	b = jsonline.Text(b, "message_type", string(e.MessageType))
	b = append(jsonline.Key(b, "source_agent"), '{')
	b = jsonline.Text(b, "instance_id", e.SourceAgent.InstanceID)
	b = jsonline.Text(b, "user_id", e.SourceAgent.UserID)
	b = jsonline.Text(b, "org_unit", e.SourceAgent.OrgUnit)
	b = append(jsonline.Text(b, "tenant_id", e.SourceAgent.TenantID), '}')
	b = jsonline.Text(b, "classification", e.Classification.String())
	b = jsonline.Text(b, "conversation_id", e.ConversationID)
	b = jsonline.Int(b, "exchange_round", e.ExchangeRound)
	b = jsonline.Int(b, "max_rounds", e.MaxRounds)
	b = append(jsonline.Key(b, "capabilities"), '{')
	b = jsonline.Bool(b, "can_commit", e.Capabilities.CanCommit)
	b = append(jsonline.Key(b, "can_share"), '[')
	for i, level := range e.Capabilities.CanShare {
		if i > 0 {
			b = append(b, ',')
		}
		b = jsonline.Quote(b, level.String())
	}
	b = append(b, "]}"...)
	b = jsonline.Text(b, "reply_policy", string(e.ReplyPolicy))
	b = jsonline.Bool(b, "requires_commitment", e.RequiresCommitment)
	b = e.ExpiresAt.UTC().AppendFormat(jsonline.Key(b, "expires_at"), `"`+timeLayout+`"`)
	return append(b, '}')
}

// EnvelopeError names the invalid field of an envelope. Path is empty if the annotation is no
// envelope at all.
type EnvelopeError struct {
	Path    string
	Problem string
}

func (e *EnvelopeError) Error() string {
	if e.Path == "" {
		return "malformed envelope: " + e.Problem
	}
	return "malformed envelope: " + e.Path + ": " + e.Problem
}

// ErrNoEnvelope means that there was no annotation, or a null one: the message
// is a human message (ADR-007).
var ErrNoEnvelope = errors.New("no envelope")

// maxEnvelopeRounds bounds the counters in a foreign envelope, so that no arithmetic on them can
// wrap.
const maxEnvelopeRounds = 1 << 20

// maxEnvelopeText bounds each text of a foreign envelope. maxProblem bounds the quotation of one in
// an error. Both go into records, and a record that is too large could not be written at all.
const (
	maxEnvelopeText = 1024
	maxProblem      = 256
)

// ParseEnvelope reads an annotation. It returns [ErrNoEnvelope] if there is none, and an
// [*EnvelopeError] with the name of the first missing or invalid field. It ignores unknown fields,
// so that it can read a newer minor version.
func ParseEnvelope(annotation []byte) (Envelope, error) {
	annotation = bytes.TrimSpace(annotation)
	if len(annotation) == 0 || string(annotation) == "null" {
		return Envelope{}, ErrNoEnvelope
	}
	p := envelopeParser{}
	root := p.object("", annotation)
	e := Envelope{
		Version:     p.text(root, "version"),
		MessageType: MessageType(p.oneOf(root, "message_type", string(AgentGenerated), string(AgentAssisted), string(Human))),
	}
	if p.err == nil && !readable(e.Version) {
		p.fail("version", fmt.Sprintf("%.64q is not supported, want %q", e.Version, Version))
	}
	source := p.object("source_agent", p.member(root, "source_agent"))
	e.SourceAgent = Identity{
		InstanceID: p.text(source, "source_agent.instance_id"),
		UserID:     p.text(source, "source_agent.user_id"),
		OrgUnit:    p.text(source, "source_agent.org_unit"),
		TenantID:   p.text(source, "source_agent.tenant_id"),
	}
	if p.err == nil && text.IsPattern(e.SourceAgent.InstanceID) {
		p.fail("source_agent.instance_id", "ends in a star: that is a pattern and no name")
	}
	e.Classification = p.level("classification", p.member(root, "classification"))
	e.ConversationID = p.text(root, "conversation_id")
	e.ExchangeRound = p.count(root, "exchange_round", 1)
	e.MaxRounds = p.count(root, "max_rounds", 1)
	capabilities := p.object("capabilities", p.member(root, "capabilities"))
	e.Capabilities.CanCommit = p.flag(capabilities, "capabilities.can_commit")
	if p.err == nil && e.Capabilities.CanCommit && e.MessageType == AgentGenerated {
		p.fail("capabilities.can_commit", "true, but an agent cannot commit its person by itself")
	}
	for i, raw := range p.list("capabilities.can_share", p.member(capabilities, "capabilities.can_share")) {
		e.Capabilities.CanShare = append(e.Capabilities.CanShare, p.level("capabilities.can_share["+strconv.Itoa(i)+"]", raw))
	}
	if p.err == nil && gaps(e.Capabilities.CanShare) {
		p.fail("capabilities.can_share", "leaves out a level below another")
	}
	if p.err == nil && !slices.Contains(e.Capabilities.CanShare, e.Classification) {
		p.fail("classification", e.Classification.String()+" is not among the levels of capabilities.can_share")
	}
	e.ReplyPolicy = ReplyPolicy(p.oneOf(root, "reply_policy", string(AgentOK), string(HumanOnly), string(NoReplyNeeded)))
	e.RequiresCommitment = p.flag(root, "requires_commitment")
	if at := p.text(root, "expires_at"); p.err == nil {
		if err := e.ExpiresAt.UnmarshalText([]byte(at)); err != nil {
			p.fail("expires_at", err.Error())
		}
	}
	if p.err != nil {
		return Envelope{}, p.err
	}
	return e, nil
}

// gaps reports whether a list of levels leaves out one below another: a sender that may share a
// level may share all below it.
func gaps(levels []Level) bool {
	listed, highest := [Restricted + 1]bool{}, Public
	for _, l := range levels {
		listed[l], highest = true, max(highest, l)
	}
	return len(levels) > 0 && slices.Contains(listed[:highest+1], false)
}

// Looser compares two envelopes of one message: this one and the one that was sent. It returns the
// first member in which this one asks less of its receiver or claims more for its sender, or "".
func (e *Envelope) Looser(sent *Envelope) (member string) {
	switch trust := [...]MessageType{AgentGenerated, AgentAssisted, Human}; {
	case slices.Index(trust[:], e.MessageType) > slices.Index(trust[:], sent.MessageType):
		return "message_type"
	case e.Classification < sent.Classification:
		return "classification"
	case e.MaxRounds > sent.MaxRounds:
		return "max_rounds"
	case e.Capabilities.CanCommit && !sent.Capabilities.CanCommit:
		return "capabilities.can_commit"
	case slices.ContainsFunc(e.Capabilities.CanShare, func(l Level) bool { return !slices.Contains(sent.Capabilities.CanShare, l) }):
		return "capabilities.can_share"
	case e.ReplyPolicy != sent.ReplyPolicy.tighten(e.ReplyPolicy):
		return "reply_policy"
	case sent.RequiresCommitment && !e.RequiresCommitment:
		return "requires_commitment"
	case e.ExpiresAt.After(sent.ExpiresAt.Time):
		return "expires_at"
	}
	return ""
}

// readable reports whether a version is 1.0 or a later minor one.
func readable(version string) bool {
	minor, ok := strings.CutPrefix(version, "1.")
	return ok && minor != "" && strings.Trim(minor, "0123456789") == ""
}

// envelopeParser reads fields one by one and keeps the first fault, so that the error names the
// field that the reference lists first.
type envelopeParser struct{ err error }

func (p *envelopeParser) fail(path, problem string) {
	if p.err == nil {
		p.err = &EnvelopeError{Path: path, Problem: clip(problem)}
	}
}

// clip bounds a text in bytes, at the end of a character.
func clip(s string) string {
	if len(s) <= maxProblem {
		return s
	}
	return strings.ToValidUTF8(s[:maxProblem], "") + "…"
}

func (p *envelopeParser) object(path string, raw []byte) map[string]jsontext.Value {
	if p.err != nil {
		return nil
	}
	var members map[string]jsontext.Value
	if raw[0] != '{' {
		p.fail(path, "not an object")
	} else if err := json.Unmarshal(raw, &members); err != nil {
		p.fail(path, "not a JSON object: "+err.Error())
	}
	return members
}

// member finds the value at the last part of path.
func (p *envelopeParser) member(in map[string]jsontext.Value, path string) []byte {
	if p.err != nil {
		return nil
	}
	raw, ok := in[path[strings.LastIndexByte(path, '.')+1:]]
	if !ok {
		p.fail(path, "missing")
	}
	return raw
}

func (p *envelopeParser) text(in map[string]jsontext.Value, path string) string {
	return p.string(path, p.member(in, path))
}

// string reads a text that is shown to people.
func (p *envelopeParser) string(path string, raw []byte) string {
	if p.err != nil {
		return ""
	}
	var s string
	switch {
	case raw[0] != '"' || json.Unmarshal(raw, &s) != nil:
		p.fail(path, "not a string")
	case s == "":
		p.fail(path, "empty")
	case len(s) > maxEnvelopeText:
		p.fail(path, fmt.Sprintf("longer than %d bytes", maxEnvelopeText))
	case strings.ContainsFunc(s, misleading):
		// People must decide by these texts.
		p.fail(path, "holds characters that cannot be shown")
	}
	return s
}

func (p *envelopeParser) oneOf(in map[string]jsontext.Value, path string, allowed ...string) string {
	s := p.text(in, path)
	if p.err != nil {
		return ""
	}
	if slices.Contains(allowed, s) {
		return s
	}
	p.fail(path, fmt.Sprintf("%.64q is not one of %s", s, strings.Join(allowed, ", ")))
	return ""
}

func (p *envelopeParser) level(path string, raw []byte) Level {
	if p.err != nil {
		return Restricted
	}
	var l Level
	if raw[0] != '"' {
		p.fail(path, "not a string")
	} else if err := json.Unmarshal(raw, &l); err != nil {
		p.fail(path, "not one of public, internal, confidential, restricted")
	}
	return l
}

func (p *envelopeParser) count(in map[string]jsontext.Value, path string, least int) int {
	raw := p.member(in, path)
	if p.err != nil {
		return 0
	}
	n, err := strconv.Atoi(string(raw))
	if err != nil {
		p.fail(path, "not a whole number")
	} else if n < least || n > maxEnvelopeRounds {
		p.fail(path, fmt.Sprintf("%d is not between %d and %d", n, least, maxEnvelopeRounds))
	}
	return n
}

func (p *envelopeParser) flag(in map[string]jsontext.Value, path string) bool {
	raw := p.member(in, path)
	if p.err != nil {
		return false
	}
	switch string(raw) {
	case "true":
		return true
	case "false":
		return false
	}
	p.fail(path, "not true or false")
	return false
}

func (p *envelopeParser) list(path string, raw []byte) []jsontext.Value {
	if p.err != nil {
		return nil
	}
	var items []jsontext.Value
	if raw[0] != '[' || json.Unmarshal(raw, &items) != nil {
		p.fail(path, "not a list")
	}
	return items
}
