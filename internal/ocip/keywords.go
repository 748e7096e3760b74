package ocip

import "github.com/openclawos/ocipd/internal/ocip/commitment"

// The settings that weigh keywords, as records name them.
const (
	settingKeywords = "ocip.commitment.keywords"
	settingAgent    = "agents[].keywords"
	settingUnknown  = "ocip.unknown.keywords"
	settingPerson   = "ocip.person.keywords"
)

// sameOwner reports whether the words of a message are only recorded because both agents are one
// person's. Nobody else may read along, and the counterparty must be in the directory: its own word
// says nothing.
func (m *Outgoing) sameOwner() bool {
	return !m.To.Group && !m.Unconfirmed && m.Rules.sameOwner(m.Sender.Identity, m.To)
}

func (r *Rules) sameOwner(self Identity, other Counterparty) bool {
	return r != nil && r.RecordSameOwner && other.Kind == KindAgent && self.UserID != "" && self.UserID == other.UserID && self.SameTenant(other.Identity)
}

// weighs returns the setting by which a message is weighed that only keywords hold, empty if none
// is. Messages to groups, and those of a stranger's first exchange, are not weighed.
func (m *Outgoing) weighs(v *Verdict) string {
	if !m.weighable(v) {
		return ""
	}
	return m.Rules.weighs(&m.Sender, m.To.Kind, m.Unconfirmed)
}

func (m *Outgoing) weighable(v *Verdict) bool {
	stranger := m.To.Kind == KindUnknown || m.Unconfirmed
	return !m.To.Group && (!stranger || !m.First && (m.To.Kind != KindAgent || v.Before.Round > 0))
}

// detailSpare is the detail of a held message that would be sent if keywords were weighed.
const detailSpare = "spare"

// byKeywords weighs a message that waits for its words, if only keywords hold it. by is the setting
// that weighs keywords here. Without one, spare reports whether the message would be sent with it, if
// no other rule holds it.
func (m *Outgoing) byKeywords(read *commitment.Reading, v *Verdict) (weighed *commitment.Weighed, by string, spare bool) {
	if read == nil || len(m.Files.hits) > 0 || !m.weighable(v) {
		return nil, "", false
	}
	w := read.Keywords()
	if w == nil {
		return nil, "", false
	}
	if by = m.weighs(v); by == "" {
		return nil, "", !w.Binds
	}
	return w, by, false
}

// weighs returns the setting that weighs keywords between an agent and a counterparty, empty if
// none does. The agent's setting and that of the kind precede the common one; if they differ,
// enforce holds.
func (r *Rules) weighs(a *Agent, kind Kind, unconfirmed bool) (setting string) {
	if r == nil || r.Commitments == nil {
		return ""
	}
	of, name := r.Person.Keywords, settingPerson
	switch {
	case kind == KindUnknown || unconfirmed:
		of, name = r.Unknown.Keywords, settingUnknown
	case kind != KindPerson:
		of = ""
	}
	switch {
	case a.Keywords == commitment.Enforce || of == commitment.Enforce:
		return ""
	case of == commitment.Weigh:
		return name
	case a.Keywords == commitment.Weigh:
		return settingAgent
	case r.Keywords == commitment.Weigh:
		return settingKeywords
	}
	return ""
}

// weighedAway are the details of a message that only keywords would have held.
func weighedAway(w *commitment.Weighed, by string) map[string]any {
	return map[string]any{"keywords": w.Keywords, "weighed": map[string]any{"by": by, "reasons": w.Reasons}}
}
