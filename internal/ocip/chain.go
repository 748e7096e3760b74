package ocip

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/openclawos/ocipd/internal/base/jsonline"
)

// Chain is the causal chain of a message: the message that caused it, the one that caused that, and
// so on, back to the first. A limit per pair of agents does not stop three agents that pass one
// thing around. A chain grows with every message.
//
// It travels beside the envelope as metadata.ocipChain. The word of another daemon can only make a
// chain longer than this one knows it to be, never shorter.
type Chain struct {
	// ID is the dispatch that began the chain.
	ID string `json:"id"`
	// Hops counts the messages of the chain, including this one.
	Hops int `json:"hops"`
	// Path lists the addressed agents, beginning with the agent that began the chain. An answer
	// goes back to the agent that asked and adds nobody. Only the last [MaxChainPath] are kept.
	Path []string `json:"path"`
	// StartedAt is the time at which the chain began.
	StartedAt Time `json:"startedAt"`
	// OwnTurn is set if the runtime of the agent that began the chain said that no message of
	// another agent had led to it. Only answers within its exchange continue this chain. OwnTurn
	// does not travel.
	OwnTurn bool `json:"ownTurn,omitzero"`
}

// MaxChainPath bounds the agents that a chain lists, and so its limit of hops.
const MaxChainPath = 64

// BeginChain returns the chain of a message that no other message caused, before its first hop.
func BeginChain(id, agent string, now time.Time) Chain {
	return Chain{ID: id, Path: []string{agent}, StartedAt: Time{now}}
}

// Extend returns the chain with one more message: to an agent, or back to it if the message is an
// answer. It copies the path.
func (c Chain) Extend(to string, answer bool) Chain {
	c.Hops++
	if answer {
		return c
	}
	path := c.Path[max(0, len(c.Path)+1-MaxChainPath):]
	c.Path = append(append(make([]string, 0, len(path)+1), path...), to)
	return c
}

// Longer returns the known chain, or the claimed one if that is longer, for a message that either
// may have caused. The result has the earlier start of the two, and the path with more returns: a
// claim of a longer chain cannot reset the chain's age or its returns.
func (c Chain) Longer(said Chain) Chain {
	if said.Hops <= c.Hops {
		return c
	}
	if c.ID != "" && c.StartedAt.Before(said.StartedAt.Time) {
		said.StartedAt = c.StartedAt
	}
	if c.returns() > said.returns() {
		said.Path = c.Path
	}
	said.OwnTurn = false
	return said
}

// returns is the number of repeated visits to the most visited agent of the chain.
func (c Chain) returns() (most int) {
	for i, agent := range c.Path {
		n := 0
		for _, earlier := range c.Path[:i] {
			if earlier == agent {
				n++
			}
		}
		most = max(most, n)
	}
	return most
}

// revisits counts how often an agent was addressed again.
func (c Chain) revisits(agent string) int {
	n := -1
	for _, a := range c.Path {
		if a == agent {
			n++
		}
	}
	return n
}

// ChainLimits bound a causal chain. A limit of zero does not apply.
type ChainLimits struct {
	MaxHops, MaxRevisits int
	MaxAge               time.Duration
	// Monitor records a chain that is too long, and lets it go on.
	Monitor bool
}

// broken returns the rule and the reason of the limit that a chain exceeds, or nothing.
func (l ChainLimits) broken(c *Chain, now time.Time) (rule, reason string) {
	if c.ID == "" {
		return "", ""
	}
	last := c.Path[len(c.Path)-1]
	defer func() {
		if rule != "" {
			reason += ": " + strings.Join(c.Path, " → ")
		}
	}()
	switch {
	case l.MaxHops > 0 && c.Hops > l.MaxHops:
		return "chain.hops", fmt.Sprintf("chain %s has come to message %d, the limit is %d", c.ID, c.Hops, l.MaxHops)
	case l.MaxRevisits > 0 && c.revisits(last) > l.MaxRevisits:
		return "chain.revisits", fmt.Sprintf("chain %s comes back to agent %s for the %s time, the limit is %d",
			c.ID, last, ordinal(c.revisits(last)), l.MaxRevisits)
	case l.MaxAge > 0 && now.Sub(c.StartedAt.Time) > l.MaxAge:
		return "chain.age", fmt.Sprintf("chain %s began %s ago, the limit is %s",
			c.ID, now.Sub(c.StartedAt.Time).Truncate(time.Second), l.MaxAge)
	}
	return "", ""
}

func ordinal(n int) string {
	suffix := "th"
	switch {
	case n%100 >= 11 && n%100 <= 13:
	case n%10 == 1:
		suffix = "st"
	case n%10 == 2:
		suffix = "nd"
	case n%10 == 3:
		suffix = "rd"
	}
	return fmt.Sprintf("%d%s", n, suffix)
}

// weigh stops a chain that is too long: a person has to look before it goes on.
func (l ChainLimits) weigh(now time.Time, v *Verdict) {
	rule, reason := l.broken(&v.Chain, now)
	switch {
	case rule == "":
		return
	case l.Monitor:
		v.Detections = append(v.Detections, Detection{Rule: rule, Shadow: true})
		return
	}
	v.escalate(ChainLimit, ruleChain, reason)
	v.Details = map[string]any{"chain": v.Chain, "rule": rule}
	v.Exchange = v.Exchange.close(now, Escalated)
}

// chain weighs the chain with the message added.
func chain(_ context.Context, m *Outgoing, _ Policy, v *Verdict) {
	if m.To.Kind != KindAgent {
		return
	}
	v.Chain = m.Cause.Extend(m.To.InstanceID, v.Exchange.Awaiting != "")
	m.Rules.chainLimits().weigh(m.Now, v)
}

// chainInbound weighs the chain by this side's own limits.
func chainInbound(_ context.Context, m *Incoming, _ Policy, v *Verdict) {
	v.Chain = m.Chain
	m.Rules.chainLimits().weigh(m.Now, v)
}

// ParseChain reads the chain beside an envelope. It returns the zero Chain if there is none, and an
// [*EnvelopeError] with the name of an invalid field. If a chain claims to begin in the future, its
// start becomes now.
func ParseChain(raw []byte, now time.Time) (Chain, error) {
	if len(raw) == 0 || string(raw) == "null" {
		return Chain{}, nil
	}
	p := envelopeParser{}
	root := p.object("ocipChain", raw)
	c := Chain{ID: p.text(root, "ocipChain.id"), Hops: p.count(root, "ocipChain.hops", 1)}
	for i, agent := range p.list("ocipChain.path", p.member(root, "ocipChain.path")) {
		if i == MaxChainPath {
			p.fail("ocipChain.path", fmt.Sprintf("more than %d agents", MaxChainPath))
			break
		}
		c.Path = append(c.Path, p.string(fmt.Sprintf("ocipChain.path[%d]", i), agent))
	}
	if p.err == nil && len(c.Path) == 0 {
		p.fail("ocipChain.path", "empty")
	}
	if at := p.text(root, "ocipChain.startedAt"); p.err == nil {
		if err := c.StartedAt.UnmarshalText([]byte(at)); err != nil {
			p.fail("ocipChain.startedAt", err.Error())
		}
	}
	if p.err != nil {
		return Chain{}, p.err
	}
	if c.StartedAt.After(now) {
		c.StartedAt.Time = now
	}
	return c, nil
}

// Annotation encodes the chain for the message, in the form of the JSON library.
func (c Chain) Annotation() []byte {
	b := make([]byte, 0, 128+40*len(c.Path))
	b = jsonline.Text(append(b, '{'), "id", c.ID)
	b = jsonline.Int(b, "hops", c.Hops)
	b = append(jsonline.Key(b, "path"), '[')
	for i, agent := range c.Path {
		if i > 0 {
			b = append(b, ',')
		}
		b = jsonline.Quote(b, agent)
	}
	b = append(b, ']')
	b = c.StartedAt.UTC().AppendFormat(jsonline.Key(b, "startedAt"), `"`+timeLayout+`"`)
	return append(b, '}')
}
