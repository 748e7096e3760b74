package audit

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"
)

// StatsPair are the messages from an agent to a receiver, by what became of them. To is the instance
// id of an agent; Kind is the kind of the receiver, for all of a kind together if To is empty.
type StatsPair struct {
	From string `json:"from"`
	To   string `json:"to,omitzero"`
	Kind string `json:"kind"`
	// Sent were allowed, Held waited for a person, Refused were denied, and Wall are those of them
	// that the tenant wall stopped.
	Sent    int `json:"sent"`
	Held    int `json:"held"`
	Refused int `json:"refused"`
	Wall    int `json:"wall"`
}

// total is the number of messages.
func (p *StatsPair) total() int { return p.Sent + p.Held + p.Refused }

// StatsTime is how long people took to decide, from the request to the decision. P50 and P90 are
// upper bounds in seconds: at most the 1.42-fold of the exact percentile.
type StatsTime struct {
	Name    string  `json:"name"`
	Decided int     `json:"decided"`
	P50     float64 `json:"p50"`
	P90     float64 `json:"p90"`
}

// The forms of [Subject.About]: a receiver, and the time of a decision as a step of [stepOf], with
// the request's kind and the rule that held it.
const (
	aboutReceiver = "to"
	aboutDecision = "after"
)

// tenantWall is the rule that stops messages between tenants.
const tenantWall = "tenant-wall"

// aboutOf returns [Subject.About] of a record, "" if it is about neither.
func aboutOf(r *Record) string {
	switch {
	case r.ActionType == ActionExchange && r.Side == SideSender && r.PolicyResult != "" && r.AgentID != "":
		return about(aboutReceiver, r.Counterparty.Kind, r.Counterparty.InstanceID)
	case r.ActionType == ActionApproval:
		waited, known := r.Details["waitedMs"].(float64)
		kind, _ := r.Details["kind"].(string)
		rule, _ := r.Details["heldBy"].(string)
		if known && kind != "" {
			return about(aboutDecision, kind, strconv.Itoa(stepOf(waited/1000)), rule)
		}
	}
	return ""
}

// about joins the parts of [Subject.About]. The index cannot store a zero byte.
func about(parts ...string) string { return strings.ReplaceAll(strings.Join(parts, "\t"), "\x00", "") }

// lastStep is the step of a year and more.
const lastStep = 50

// stepOf returns the step of a time in seconds. Step n ends at the n-th power of the root of 2.
func stepOf(seconds float64) int {
	switch {
	case !(seconds > 1):
		return 0
	case seconds >= endOf(lastStep):
		return lastStep
	}
	return min(int(math.Ceil(2*math.Log2(seconds))), lastStep)
}

// endOf returns the end of a step, in seconds, to the millisecond.
func endOf(step int) float64 { return math.Round(1000*math.Pow(2, float64(step)/2)) / 1000 }

// times counts decisions by a name and by steps.
type times map[string]*[lastStep + 1]int

func (t times) add(name string, step, n int) {
	if name == "" {
		return
	}
	if t[name] == nil {
		t[name] = new([lastStep + 1]int)
	}
	t[name][step] += n
}

// rows lists the times, most decisions first.
func (t times) rows() []StatsTime {
	rows := make([]StatsTime, 0, len(t))
	for name, steps := range t {
		all := 0
		for _, n := range steps {
			all += n
		}
		row := StatsTime{Name: name, Decided: all}
		below := 0
		for step, n := range steps {
			for _, p := range []struct {
				of *float64
				at float64
			}{{&row.P50, 0.5}, {&row.P90, 0.9}} {
				if least := int(math.Ceil(p.at * float64(all))); below < least && below+n >= least {
					*p.of = endOf(step)
				}
			}
			below += n
		}
		rows = append(rows, row)
	}
	slices.SortFunc(rows, func(a, b StatsTime) int {
		return cmp.Or(cmp.Compare(b.Decided, a.Decided), cmp.Compare(a.Name, b.Name))
	})
	return rows[:min(len(rows), StatsRows)]
}

// addAbout counts n records of a subject for its pair or its time.
func (t *Tally) addAbout(s Subject, n int) {
	parts := strings.Split(s.About, "\t")
	switch {
	case parts[0] == aboutReceiver && len(parts) == 3:
		key := StatsPair{From: s.Agent, To: parts[2], Kind: parts[1]}
		p := t.pairs[key]
		if p == nil {
			p = &StatsPair{From: key.From, To: key.To, Kind: key.Kind}
			t.pairs[key] = p
		}
		switch s.Result {
		case ResultAllow:
			p.Sent += n
		case ResultApproval:
			p.Held += n
		case ResultDeny:
			p.Refused += n
			if s.Rule == tenantWall {
				p.Wall += n
			}
		}
	case parts[0] == aboutDecision && len(parts) == 4:
		if step, err := strconv.Atoi(parts[2]); err == nil && step >= 0 && step <= lastStep {
			t.kinds.add(parts[1], step, n)
			t.held.add(parts[3], step, n)
		}
	}
}

// pairRows lists the pairs, most messages first.
func (t *Tally) pairRows() []StatsPair {
	rows := make([]StatsPair, 0, len(t.pairs))
	for _, p := range t.pairs {
		rows = append(rows, *p)
	}
	slices.SortFunc(rows, func(a, b StatsPair) int {
		return cmp.Or(cmp.Compare(b.total(), a.total()), cmp.Compare(a.From, b.From), cmp.Compare(a.To, b.To), cmp.Compare(a.Kind, b.Kind))
	})
	return rows[:min(len(rows), StatsPairs)]
}
