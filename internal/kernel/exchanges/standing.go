package exchanges

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/approval"
	"github.com/openclawos/ocipd/internal/ocip"
	"github.com/openclawos/ocipd/internal/store"
)

// standing is the state of an exchange, for the person who settles it.
type standing struct {
	sides []side
	// escalated is set while the two agents may not exchange messages because the rounds of this
	// exchange are used up.
	escalated bool
	// restored is [store.Restored].
	restored string
}

// side is one agent's side of an exchange, with its requests that wait for a person.
type side struct {
	ocip.Exchange
	held []*approval.Request
}

// standingLocked reads the state of an exchange. The caller holds the pair's lock.
func (x *Exchanges) standingLocked(ctx context.Context, of *ocip.Exchange) (*standing, error) {
	sides, err := x.o.State.SidesLocked(ctx, of)
	if err != nil {
		return nil, err
	}
	escalated, err := x.o.State.EscalationLocked(ctx, store.PairOf(of.Agent, of.Counterparty))
	if err != nil {
		return nil, err
	}
	st := &standing{restored: store.Restored(x.o.Store)}
	for _, e := range sides {
		held, err := x.o.Requests.OfExchange(ctx, e.ID, e.Agent)
		if err != nil {
			return nil, err
		}
		st.sides = append(st.sides, side{e, held})
		st.escalated = st.escalated || escalated == e.ID
	}
	return st, nil
}

// unsettled reports whether a person has something to settle on a side.
func (s *side) unsettled() bool {
	return s.Outcome == ocip.InProgress || s.Outcome == ocip.Escalated || len(s.held) > 0
}

// unsettled reports whether a person has something to settle at all.
func (st *standing) unsettled() bool {
	return st.escalated || slices.ContainsFunc(st.sides, func(s side) bool { return s.unsettled() })
}

// digest names the state: every message, decision, settlement and restoration changes it.
func (st *standing) digest() string {
	lines := []string{fmt.Sprint("escalated ", st.escalated)}
	for i := range st.sides {
		s := &st.sides[i]
		lines = append(lines, fmt.Sprintf("side %q %q %q %s %d %d", s.Agent, s.ID, s.ConversationID, s.Outcome, s.Round, s.UpdatedAt.UnixMilli()))
		for _, r := range s.held {
			lines = append(lines, fmt.Sprintf("held %q", r.ApprovalID))
		}
	}
	if st.restored != "" {
		lines = append(lines, "restored "+st.restored)
	}
	slices.Sort(lines)
	sum := sha256.Sum256([]byte(strings.Join(lines, "\n")))
	return "sha256:" + hex.EncodeToString(sum[:])
}

// state returns the digest of the state of a side's exchange.
func (x *Exchanges) state(ctx context.Context, of *ocip.Exchange) (string, error) {
	defer x.o.State.Lock(of.Agent, of.Counterparty)()
	st, err := x.standingLocked(ctx, of)
	if err != nil {
		return "", err
	}
	return st.digest(), nil
}

// maySettle refuses a person who would settle an exchange that needs none, or whose state is not the
// one that the person saw.
func (st *standing) maySettle(of *ocip.Exchange, seen string) error {
	switch {
	case !st.unsettled():
		return api.Errorf(api.Conflict, "exchange %s is %s already: nothing of it is open, escalated or held", of.ID, of.Outcome)
	case seen != "" && seen != st.digest():
		return api.Errorf(api.Conflict, "exchange %s is no longer in the state that you saw: look at it again, and settle what it is now", of.ID)
	}
	return nil
}
