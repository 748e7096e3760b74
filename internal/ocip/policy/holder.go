package policy

import (
	"context"
	"sync/atomic"

	"github.com/openclawos/ocipd/internal/ocip"
)

// Holder is the policy in force. The zero Holder holds none and answers every question with
// [ErrNotLoaded]. It implements [ocip.Policy].
//
// If a question is asked before a swap, the earlier policy answers it, with its revision.
type Holder struct {
	current atomic.Pointer[Policy]
}

// NewHolder returns a Holder of p.
func NewHolder(p *Policy) *Holder {
	h := new(Holder)
	h.Swap(p)
	return h
}

// Load returns the policy in force, nil if there is none.
func (h *Holder) Load() *Policy { return h.current.Load() }

// Swap puts p in force and returns the policy that it replaces, or nil. A nil p puts none in force.
func (h *Holder) Swap(p *Policy) (old *Policy) { return h.current.Swap(p) }

// Lasts reports whether the same question has the same answer as long as the policy in force stays,
// see [ocip.Policy].
func (h *Holder) Lasts() bool {
	p := h.current.Load()
	return p != nil && p.Lasts()
}

// Lasts reports whether answers depend on the question alone, see [ocip.Policy].
func (p *Policy) Lasts() bool { return p.lasts }

// Evaluate asks the policy in force, see [Policy.Evaluate].
func (h *Holder) Evaluate(ctx context.Context, in ocip.PolicyInput) (answer ocip.PolicyAnswer, name, revision string, err error) {
	p := h.current.Load()
	if p == nil {
		return ocip.PolicyAnswer{}, "", "", ErrNotLoaded
	}
	return p.Evaluate(ctx, in)
}
