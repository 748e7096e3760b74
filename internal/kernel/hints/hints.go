// Package hints reads the caller's hints about a message's exchange from metadata.exchange: which
// exchange it belongs to, its type, level and number of rounds. Hints are wishes, not decisions.
// Interceptors may tighten them, see [Hints.After]. The package also removes members from the
// metadata that only the daemon may write, see [WithoutOwn].
package hints

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/base/text"
	"github.com/openclawos/ocipd/internal/ocip"
)

// Hints are the caller's wishes about the exchange.
type Hints struct {
	ID             string
	ConversationID string
	New            bool
	Type           ocip.ExchangeType
	Level          ocip.Level
	hasLevel       bool
	MaxRounds      int
	MessageType    ocip.MessageType
	// ReplyPolicy, if set, is tighter than the type's.
	ReplyPolicy ocip.ReplyPolicy
	// OwnTurn is set if the caller says that no message of another agent led to this one.
	OwnTurn bool
	// AskPerson is set if the caller wants a person to approve the message.
	AskPerson bool
	Summary   string
	Data      []ocip.DataItem
}

// MaxData bounds the data items of a message.
const MaxData = 64

// maxExchangeID bounds the ids that callers give, in bytes.
const maxExchangeID = 128

// wishes is metadata.exchange as callers write it.
type wishes struct {
	ID             string     `json:"id,omitzero"`
	ConversationID string     `json:"conversationId,omitzero"`
	New            bool       `json:"new,omitzero"`
	Type           string     `json:"type,omitzero"`
	Classification string     `json:"classification,omitzero"`
	MaxRounds      int        `json:"maxRounds,omitzero"`
	MessageType    string     `json:"messageType,omitzero"`
	ReplyPolicy    string     `json:"replyPolicy,omitzero"`
	OwnTurn        bool       `json:"ownTurn,omitzero"`
	AskPerson      bool       `json:"askPerson,omitzero"`
	Summary        string     `json:"summary,omitzero"`
	Data           []wishItem `json:"data,omitempty"`
}

type wishItem struct {
	Source         string   `json:"source"`
	Fields         []string `json:"fields"`
	Classification string   `json:"classification"`
	Description    string   `json:"description"`
}

// Object encodes hints as a caller would.
func (h *Hints) Object() jsontext.Value {
	w := wishes{
		ID: h.ID, ConversationID: h.ConversationID, New: h.New, Type: string(h.Type), MaxRounds: h.MaxRounds,
		MessageType: string(h.MessageType), ReplyPolicy: string(h.ReplyPolicy), OwnTurn: h.OwnTurn, AskPerson: h.AskPerson, Summary: h.Summary,
	}
	if h.hasLevel {
		w.Classification = h.Level.String()
	}
	for _, item := range h.Data {
		w.Data = append(w.Data, wishItem{item.Source, item.Fields, item.Level.String(), item.Description})
	}
	encoded, err := json.Marshal(w, jsontext.AllowInvalidUTF8(true))
	if err != nil {
		panic("hints: what was read cannot fail to encode: " + err.Error())
	}
	return encoded
}

// Decided returns the hints of an allowed message, from its record and its envelope.
func Decided(exchangeID string, t ocip.ExchangeType, e *ocip.Envelope) Hints {
	return Hints{ID: exchangeID, Type: t, Level: e.Classification, hasLevel: true, MessageType: e.MessageType, ReplyPolicy: e.ReplyPolicy}
}

// Parse reads metadata.exchange. An error names the wrong member.
func Parse(raw jsontext.Value) (Hints, error) {
	var in wishes
	h := Hints{MessageType: ocip.AgentGenerated}
	if len(raw) == 0 || raw.Kind() == 'n' {
		return h, nil
	}
	wrong := func(member, problem string) (Hints, error) {
		path := "metadata.exchange"
		if member != "" {
			path += "." + member
		}
		return h, api.Invalid([]api.FieldError{{Path: path, Message: problem}})
	}
	if err := json.Unmarshal(raw, &in); err != nil {
		var semantic *json.SemanticError
		if errors.As(err, &semantic) && len(semantic.JSONPointer) > 1 {
			return wrong(string(semantic.JSONPointer[1:]), "has the wrong type")
		}
		return wrong("", "not an object")
	}
	h.ID, h.ConversationID, h.New, h.OwnTurn, h.AskPerson, h.Summary = in.ID, in.ConversationID, in.New, in.OwnTurn, in.AskPerson, ocip.Summarize(in.Summary)
	for _, id := range [...]struct{ member, value string }{{"id", h.ID}, {"conversationId", h.ConversationID}} {
		switch {
		case len(id.value) > maxExchangeID:
			return wrong(id.member, "longer than 128 bytes")
		case id.value == "":
		default:
			if err := text.Canonical(id.value); err != nil {
				return wrong(id.member, "is not spelled as ids are: "+err.Error())
			}
		}
	}
	if in.MaxRounds < 0 || in.MaxRounds > 1<<20 {
		return wrong("maxRounds", "not between 1 and 1048576")
	}
	h.MaxRounds = in.MaxRounds
	var err error
	if in.Type != "" {
		if h.Type, err = ocip.ParseExchangeType(in.Type); err != nil {
			return wrong("type", err.Error())
		}
	}
	if in.Classification != "" {
		if h.Level, err = ocip.ParseLevel(in.Classification); err != nil {
			return wrong("classification", err.Error())
		}
		h.hasLevel = true
	}
	switch p := ocip.ReplyPolicy(in.ReplyPolicy); p {
	case "", ocip.AgentOK, ocip.HumanOnly, ocip.NoReplyNeeded:
		h.ReplyPolicy = p
	default:
		return wrong("replyPolicy", "unknown reply policy, want agent-ok, human-only or no-reply-needed")
	}
	if len(in.Data) > MaxData {
		return wrong("data", "more than 64 items")
	}
	for i, item := range in.Data {
		level, err := ocip.ParseLevel(item.Classification)
		if err != nil {
			return wrong(fmt.Sprintf("data[%d].classification", i), err.Error())
		}
		h.Data = append(h.Data, ocip.DataItem{Source: item.Source, Fields: item.Fields, Level: level, Description: item.Description})
	}
	switch t := ocip.MessageType(in.MessageType); t {
	case "", ocip.AgentGenerated:
	case ocip.AgentAssisted:
		h.MessageType = t
	case ocip.Human:
		return wrong("messageType", "an app cannot vouch that a person wrote the message; want agent-generated or agent-assisted")
	default:
		return wrong("messageType", "unknown message type, want agent-generated or agent-assisted")
	}
	return h, nil
}

// After applies the hints that interceptors left; members that they left out stay. Interceptors can
// only tighten the caller's hints: a higher level, a stricter type or reply policy, fewer rounds.
// They cannot change which exchange the message belongs to. After names a change that is not
// allowed. Unsaid is the level of a message without a hint about it.
func (h *Hints) After(left Hints, unsaid ocip.Level) (wrong string) {
	left.inherit(h)
	switch {
	case left.ID != h.ID || left.ConversationID != h.ConversationID || left.New != h.New || left.OwnTurn != h.OwnTurn:
		return "changed the exchange that the message belongs to"
	case left.MessageType != h.MessageType:
		return "changed who wrote the message"
	case left.Claimed(unsaid) < h.Claimed(unsaid):
		return "lowered the message's level"
	case left.Type != h.Type && strictness(left.Type) <= strictness(h.Type):
		return "made the exchange's type no stricter"
	case left.ReplyPolicy != h.ReplyPolicy && left.ReplyPolicy != ocip.HumanOnly && h.ReplyPolicy != "":
		return "loosened the reply policy"
	case h.MaxRounds > 0 && left.MaxRounds > h.MaxRounds:
		return "raised the round limit"
	}
	for _, item := range left.Data {
		if slices.ContainsFunc(h.Data, func(was ocip.DataItem) bool { return was.Source == item.Source && item.Level < was.Level }) {
			return "lowered the level of a data item"
		}
	}
	*h = left
	return ""
}

// inherit fills members that hints leave out from earlier hints.
func (h *Hints) inherit(from *Hints) {
	h.ID, h.ConversationID = cmp.Or(h.ID, from.ID), cmp.Or(h.ConversationID, from.ConversationID)
	h.New, h.AskPerson = h.New || from.New, h.AskPerson || from.AskPerson
	h.Type, h.ReplyPolicy = cmp.Or(h.Type, from.Type), cmp.Or(h.ReplyPolicy, from.ReplyPolicy)
	h.MaxRounds, h.Summary = cmp.Or(h.MaxRounds, from.MaxRounds), cmp.Or(h.Summary, from.Summary)
	if !h.hasLevel {
		h.Level, h.hasLevel = from.Level, from.hasLevel
	}
	if from.MessageType == ocip.AgentAssisted {
		h.MessageType = from.MessageType
	}
	if len(h.Data) == 0 {
		h.Data = from.Data
	}
}

// Claimed returns the level that the hints claim, or unsaid if they claim none.
func (h *Hints) Claimed(unsaid ocip.Level) ocip.Level {
	if h.hasLevel {
		return h.Level
	}
	return unsaid
}

// strictness orders the exchange types by how much a person must do. An absent type counts as the
// mildest.
func strictness(t ocip.ExchangeType) int {
	n := 0
	if t.RequiresCommitment() {
		n++
	}
	if t.ReplyPolicy() == ocip.HumanOnly {
		n++
	}
	return n
}

// ParseInbound reads an annotated message's hints about its exchange. Without a type, the envelope
// gives one, and without an id, the exchange takes its conversation's id.
func ParseInbound(raw []byte, e *ocip.Envelope) (Hints, error) {
	h := Hints{ID: e.ConversationID, Type: ocip.InformationQuery}
	switch {
	case e.ReplyPolicy == ocip.HumanOnly:
		h.Type = ocip.MeetingScheduling
	case e.RequiresCommitment:
		h.Type = ocip.CommitmentRequest
	}
	if len(raw) == 0 {
		return h, nil
	}
	given, err := Parse(raw)
	if err != nil {
		return h, err
	}
	if given.ID != "" {
		h.ID = given.ID
	}
	// Hints beside the envelope cannot weaken it.
	if t := given.Type; t != "" && (t.ReplyPolicy() == ocip.HumanOnly || e.ReplyPolicy != ocip.HumanOnly) && (t.RequiresCommitment() || !e.RequiresCommitment) {
		h.Type = t
	}
	return h, nil
}

// ParseTracked reads the sender's lists of included and withheld data. It leaves out malformed
// lists: they are only the sender's word, for the record.
func ParseTracked(raw []byte) (shared []ocip.Shared, withheld []ocip.Withheld) {
	var in struct {
		Shared   []ocip.Shared   `json:"dataShared"`
		Withheld []ocip.Withheld `json:"dataWithheld"`
	}
	if len(raw) == 0 || json.Unmarshal(raw, &in) != nil {
		return nil, nil
	}
	for _, s := range in.Shared[:min(len(in.Shared), MaxData)] {
		fields := make([]string, 0, len(s.Fields))
		for _, field := range s.Fields[:min(len(s.Fields), MaxData)] {
			fields = append(fields, ocip.Summarize(field))
		}
		shared = append(shared, ocip.Shared{Source: ocip.Summarize(s.Source), Fields: fields})
	}
	for _, w := range in.Withheld[:min(len(in.Withheld), MaxData)] {
		withheld = append(withheld, ocip.Withheld{Reason: ocip.Summarize(w.Reason), Description: ocip.Summarize(w.Description)})
	}
	return shared, withheld
}
