package measure

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/ocip"
	"github.com/openclawos/ocipd/internal/ocip/commitment"
)

// Decisions summarizes people's decisions about held messages.
type Decisions struct {
	// Since is when the first of the messages was held; zero for none.
	Since time.Time `json:"since,omitzero"`
	// Held counts the approval requests, and Open the undecided ones.
	Held int `json:"held"`
	Open int `json:"open"`
	Ends
	// Spare counts those that ocip.commitment.keywords: weigh would have sent.
	Spare Spare `json:"spare"`
	// Rules are the reasons for holding, the most frequent first. A message counts once for
	// each of its rules.
	Rules []DecidedRule `json:"rules"`
}

// Ends counts how approval requests ended.
type Ends struct {
	Approved  int `json:"approved"`
	Denied    int `json:"denied"`
	TakenOver int `json:"takenOver"`
	Resolved  int `json:"resolved"`
	Expired   int `json:"expired"`
	// Judged counts those that the operator's model released (ocip.judge), which no person decided.
	Judged int `json:"judged"`
	// Stopped is the share of people's decisions after which the message was not sent as
	// written: denied, taken over or resolved. It is a lower bound of the precision of
	// holding in people's view, because an approval can be a needed one too.
	Stopped Share `json:"stopped"`
}

// spareDetail is the detail of a held message that would be sent if keywords were weighed, see
// docs/reference/protocol/decision.md.
const spareDetail = "spare"

// byModel is the end of a request that the operator's model released.
const byModel = "judged"

// Spare counts the decided messages that would have been sent if keywords had been weighed.
type Spare struct {
	Decided int `json:"decided"`
	// Denied counts those of them that people did not let go as they were written.
	Denied int `json:"denied"`
}

// DecidedRule summarizes the decisions about messages that one rule held.
type DecidedRule struct {
	Name string `json:"name"`
	Held int    `json:"held"`
	// Alone counts the messages that nothing else held.
	Alone int `json:"alone"`
	Ends
}

// History gathers [Decisions] from records, which may come in any order.
type History struct {
	since time.Time
	held  map[string][]string
	spare map[string]bool
	ends  map[string]string
	// alone has the families that alone hold a message, own the messages between two agents of one
	// person, and acts the users who decided, by their numbers, each time they did.
	alone map[string]string
	own   map[string]bool
	acts  []act
}

// act is one decision of a person about a request.
type act struct {
	approval string
	uid      int
}

// NewHistory returns an empty history.
func NewHistory() *History {
	return &History{held: map[string][]string{}, spare: map[string]bool{}, ends: map[string]string{}, alone: map[string]string{}, own: map[string]bool{}}
}

// Filters find the records of a history from a time on.
func Filters(since time.Time) []audit.Filter {
	return []audit.Filter{
		{Since: since, Like: audit.Record{PolicyResult: audit.ResultApproval}},
		{Since: since, Like: audit.Record{ActionType: audit.ActionApproval}},
	}
}

// Add adds a record. It skips records that are not about held messages, such as those about
// tools and tasks.
func (h *History) Add(e *audit.Entry) {
	switch {
	case e.ApprovalID == "":
	case e.ActionType == audit.ActionApproval:
		switch e.Event {
		case "approved", "denied", "taken_over", "resolved", "expired":
			h.ends[e.ApprovalID] = e.Event
			if e.Details["proof"] == "judge" {
				h.ends[e.ApprovalID] = byModel
			}
		}
		if uid, is := e.Details["uid"].(float64); is && e.Details["decision"] != nil {
			h.acts = append(h.acts, act{e.ApprovalID, int(uid)})
		}
	case e.ActionType == audit.ActionExchange && e.PolicyResult == audit.ResultApproval && e.Side != audit.SideReceiver:
		h.held[e.ApprovalID] = reasons(&e.Record)
		if len(e.Codes()) == 1 {
			h.savable(e)
		}
		if h.since.IsZero() || e.Time.Before(h.since) {
			h.since = e.Time
		}
	}
}

// savable notes the settings by which a message that one rule holds would have been sent.
func (h *History) savable(e *audit.Entry) {
	if is, _ := e.Details[spareDetail].(bool); is {
		h.spare[e.ApprovalID] = true
	}
	if e.Code != string(ocip.CommitmentRequiresHuman) {
		return
	}
	if names := h.held[e.ApprovalID]; len(names) == 1 && slices.Contains(commitment.Families(), names[0]) {
		h.alone[e.ApprovalID] = names[0]
	}
	h.own[e.ApprovalID] = e.Counterparty.Kind == string(ocip.KindAgent) && e.UserID != "" && e.UserID == e.Counterparty.UserID && e.TenantID == e.Counterparty.TenantID
}

// Saving is the effect that one setting would have had on the acts of a person.
type Saving struct {
	// Setting is a key of the configuration with its value, empty if none would have saved any.
	Setting string
	// Saved counts the acts that would not have been asked for, and Stopped those of them by which the
	// message did not leave as it was written.
	Saved, Stopped int
}

// Acts counts the decisions of the user with a number, and names the one setting that would have saved
// most of them. A setting that would have sent a message which the person stopped comes after those
// that would not.
func (h *History) Acts(uid int) (acts int, most Saving) {
	savings := map[string]*Saving{}
	save := func(setting, approval string) {
		if savings[setting] == nil {
			savings[setting] = &Saving{Setting: setting}
		}
		savings[setting].Saved++
		if h.ends[approval] != "approved" {
			savings[setting].Stopped++
		}
	}
	for _, a := range h.acts {
		if a.uid != uid {
			continue
		}
		acts++
		if h.spare[a.approval] {
			save("ocip.commitment.keywords: weigh", a.approval)
		}
		if h.own[a.approval] {
			save("ocip.same_owner: record", a.approval)
		}
		if family := h.alone[a.approval]; family != "" {
			save("ocip.commitment.families."+family+": shadow", a.approval)
		}
	}
	for _, s := range savings {
		if most.Setting == "" || cmp.Or(cmp.Compare(min(s.Stopped, 1), min(most.Stopped, 1)), most.Saved-s.Saved, cmp.Compare(s.Setting, most.Setting)) < 0 {
			most = *s
		}
	}
	return acts, most
}

// reasons are the reasons for holding a message: the commitments found in it, or else the code.
func reasons(r *audit.Record) (names []string) {
	for _, d := range r.Detections {
		if name, commitment := strings.CutPrefix(d.Rule, "commitment."); commitment && !d.Shadow && slices.Contains(r.Codes(), string(ocip.CommitmentRequiresHuman)) {
			names = insert(names, name)
		}
	}
	if names == nil {
		names = []string{cmp.Or(r.Code, "unknown")}
	}
	return names
}

// Decisions returns the summary. It ignores decisions about messages that were held before
// the first record.
func (h *History) Decisions() Decisions {
	d := Decisions{Since: h.since, Rules: []DecidedRule{}}
	rules := map[string]*DecidedRule{}
	for id, names := range h.held {
		d.Held++
		end := h.ends[id]
		if end == "" {
			d.Open++
		}
		d.count(end)
		if h.spare[id] && end != "" && end != "expired" && end != byModel {
			d.Spare.Decided++
			if end != "approved" {
				d.Spare.Denied++
			}
		}
		for _, name := range names {
			if rules[name] == nil {
				rules[name] = &DecidedRule{Name: name}
			}
			r := rules[name]
			r.Held++
			if len(names) == 1 {
				r.Alone++
			}
			r.count(end)
		}
	}
	d.settle()
	for _, r := range rules {
		r.settle()
		d.Rules = append(d.Rules, *r)
	}
	slices.SortFunc(d.Rules, func(a, b DecidedRule) int { return cmp.Or(b.Held-a.Held, cmp.Compare(a.Name, b.Name)) })
	return d
}

func (e *Ends) count(end string) {
	switch end {
	case "approved":
		e.Approved++
	case "denied":
		e.Denied++
	case "taken_over":
		e.TakenOver++
	case "resolved":
		e.Resolved++
	case "expired":
		e.Expired++
	case byModel:
		e.Judged++
	}
}

func (e *Ends) settle() {
	stopped := e.Denied + e.TakenOver + e.Resolved
	e.Stopped = ShareOf(stopped, stopped+e.Approved)
}
