package approvalsui

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/api/client"
	"github.com/openclawos/ocipd/internal/approval/describe"
	"github.com/openclawos/ocipd/internal/base/term"
	"github.com/openclawos/ocipd/internal/cli"
	"github.com/openclawos/ocipd/internal/ocip"
)

// Beyond is an approval of a message's exchange, in addition to the message: for the rounds
// and the time in the flags, or as the daemon offers.
type Beyond struct {
	Exchange bool
	// Words are the permitted words for the rest of the exchange, separated by commas, or
	// all. If it is empty, they are the words found in the message.
	Words string
	Round int
	For   time.Duration
}

// Check returns an error if flags contradict each other.
func (b *Beyond) Check() error {
	switch {
	case !b.Exchange && (b.Words != "" || b.Round != 0 || b.For != 0):
		return cli.Usagef("cannot use --words, --round or --for without --exchange")
	case b.Round < 0 || b.For < 0:
		return cli.Usagef("cannot approve an exchange for less than nothing")
	}
	return nil
}

// bounds returns the approved bounds, which are within the offered ones.
func (b *Beyond) bounds(a *api.Approval, now time.Time) (*api.Bounds, error) {
	if !b.Exchange {
		return nil, nil
	}
	if a.Exchange == nil {
		return nil, fmt.Errorf("cannot approve the exchange of %s: %s; approve the message alone, without --exchange", a.ApprovalID, cmp.Or(a.NoExchange, "it is not offered"))
	}
	some := *a.Exchange
	switch b.Words {
	case "":
	case "all":
		some.Words = ocip.AllGrantable()
	default:
		some.Words = strings.Split(b.Words, ",")
	}
	if b.Round > 0 {
		some.MaxRound = min(some.MaxRound, b.Round)
	}
	if b.For > 0 {
		some.Until = min(some.Until, now.Add(b.For).UnixMilli())
	}
	return &some, nil
}

// GrantOptions select pre-approvals for a list.
type GrantOptions struct {
	Agent, Kind string
	All, JSON   bool
}

// Grants prints the pre-approvals, which the protocol calls grants.
func (s *People) Grants(ctx context.Context, f GrantOptions) error {
	list, err := s.grants(ctx, api.GrantListParams{Agent: f.Agent, Kind: f.Kind, All: f.All})
	if err != nil {
		return fmt.Errorf("cannot list pre-approvals: %w", err)
	}
	if f.JSON {
		for i := range list {
			if err := s.PrintJSON(&list[i]); err != nil {
				return err
			}
		}
		return nil
	}
	if len(list) == 0 {
		fmt.Fprintln(s.Stderr, "no pre-approval is in force")
		return nil
	}
	now := time.Now()
	t := &term.Table{Columns: []term.Column{
		{Title: "PRE-APPROVAL", Whole: true}, {Title: "STATE", Whole: true}, {Title: "FROM", Whole: true}, {Title: "TO", Whole: true},
		{Title: "WITHIN", Whole: true, Below: true}, {Title: "USED", Least: 4, Right: true}, {Title: "BY", Whole: true},
	}}
	for i := range list {
		g := &list[i]
		used, to, state := strconv.Itoa(g.Uses), g.Receiver, g.State
		if g.MaxUses > 0 {
			used += " of " + strconv.Itoa(g.MaxUses)
		}
		if g.Kind == api.GrantOfExchange {
			to += " in " + g.ExchangeID
		}
		t.Add(term.Plain(g.GrantID), term.Plain(describe.State(state)), term.Plain(g.Agent), term.Plain(to), term.Plain(describe.Within(&g.Bounds, now)), term.Plain(used), term.Plain(g.By()))
	}
	return t.Write(s.Stdout, s.Screen())
}

// grants returns all pre-approvals that are asked for, page by page.
func (s *People) grants(ctx context.Context, p api.GrantListParams) (list []api.Grant, err error) {
	c, err := s.DialOperator(ctx)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	for {
		var page api.GrantListResult
		if err := s.AskPage(ctx, c.Call, "grant.list", &p, &page); err != nil {
			return nil, err
		}
		list, p.After = append(list, page.Grants...), page.Next
		if p.After == "" {
			return list, nil
		}
	}
}

// RevokeGrant revokes a pre-approval. name may be the beginning or end of one id.
func (s *People) RevokeGrant(ctx context.Context, name, note string) error {
	list, err := s.grants(ctx, api.GrantListParams{All: true})
	if err != nil {
		return fmt.Errorf("cannot revoke: %w", err)
	}
	var found []string
	for i := range list {
		g := &list[i]
		if g.GrantID == name {
			found = []string{name}
			break
		}
		if len(name) >= leastTyped && (strings.HasPrefix(g.GrantID, name) || strings.HasSuffix(g.GrantID, name)) {
			found = append(found, g.GrantID)
		}
	}
	switch len(found) {
	case 0:
		return fmt.Errorf("cannot revoke %s: there is no such pre-approval; ocipd preapprovals list shows them", name)
	case 1:
	default:
		return fmt.Errorf("cannot revoke %s: %d pre-approvals begin or end so; give more of the id", name, len(found))
	}
	var result api.GrantRevokeResult
	if err := s.Operate(ctx, "grant.revoke", &api.GrantRevokeParams{GrantID: found[0], Note: note}, &result); err != nil {
		return fmt.Errorf("cannot revoke %s: %w", found[0], err)
	}
	if !result.Changed {
		fmt.Fprintln(s.Stdout, "it was revoked before")
		return nil
	}
	fmt.Fprintf(s.Stdout, "revoked: nothing more goes with it (record %d)\n", result.AuditSeq)
	return nil
}

// NewGrant is a new pre-approval from one agent to one receiver.
type NewGrant struct {
	From, To, Level, Note string
	Words                 []string
	Uses                  int
	For                   time.Duration
	Yes, JSON             bool
	Key                   string
}

// Check returns an error if flags contradict each other.
func (g *NewGrant) Check(interactive bool) error {
	for _, w := range g.Words {
		if !slices.Contains(ocip.Keywords(), w) {
			return cli.Usagef("cannot approve %q beforehand: want some of %s", w, strings.Join(ocip.Keywords(), ", "))
		}
	}
	switch {
	case g.From == "" || g.To == "" || len(g.Words) == 0 || g.Uses == 0 || g.For == 0:
		return cli.Usagef("cannot make a pre-approval without --from, --to, --words, --uses and --for")
	case g.Uses < 0 || g.Uses > api.MaxGrantUses:
		return cli.Usagef("cannot pre-approve %d uses: want 1 to %d", g.Uses, api.MaxGrantUses)
	case g.For < 0 || g.For > api.MaxGrantTime:
		return cli.Usagef("cannot pre-approve it for so long: want at most 366d")
	case !g.Yes && !interactive:
		return cli.Usagef("cannot make a pre-approval where no terminal can ask: give --yes")
	}
	return nil
}

// AddGrant signs a pre-approval and puts it in force.
func (s *People) AddGrant(ctx context.Context, g *NewGrant) error {
	keys, err := s.OpenKey(g.Key)
	if err != nil {
		return err
	}
	c, err := s.DialOperator(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	now := time.Now()
	p := &api.GrantAddParams{
		GrantID: uuid.Must(uuid.NewV7()).String(), MaxUses: g.Uses, Note: g.Note,
		Bounds: api.Bounds{Words: slices.Sorted(slices.Values(g.Words)), Classification: g.Level, Until: now.Add(g.For).UnixMilli()},
	}
	if p.Agent, p.Receiver, err = ends(ctx, c, g.From, g.To); err != nil {
		return fmt.Errorf("cannot make a pre-approval: %w", err)
	}
	var list api.GrantListResult
	if err := c.Call(ctx, "grant.list", &api.GrantListParams{Kind: api.GrantStanding, Limit: new(1)}, &list); err != nil {
		return fmt.Errorf("cannot make a pre-approval: %w", err)
	}
	p.Restored = list.Restored
	page := &term.Page{Screen: s.Screen()}
	page.Heading("Pre-approval")
	page.Fact("from", p.Agent)
	page.Fact("to", p.Receiver)
	page.Fact("within", describe.Within(&p.Bounds, now))
	page.Fact("uses", strconv.Itoa(p.MaxUses))
	page.Say("  ", term.Dim, "What is held for these keywords alone goes without a question, as assisted by you. Never an answer to a request, an acceptance or money.")
	if !g.JSON {
		for _, line := range page.Lines {
			fmt.Fprintln(s.Stdout, line)
		}
	}
	if !g.Yes {
		if agreed, err := s.Ask(ctx, "Sign it and put it in force?"); err != nil || !agreed {
			return cmp.Or(err, errors.New("nothing was approved"))
		}
	}
	if p.Signature, err = keys.Sign(ctx, api.SignedNote(api.SignedGrant(p), p.Note)); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, cli.AnswerTime)
	defer cancel()
	var result api.GrantAddResult
	if err := c.Call(ctx, "grant.add", p, &result); err != nil {
		return fmt.Errorf("cannot make a pre-approval: %w", err)
	}
	if g.JSON {
		return s.PrintJSON(&result)
	}
	fmt.Fprintf(s.Stdout, "in force: %s (record %d); ocipd preapprovals revoke %s takes it back\n", result.Grant.GrantID, result.AuditSeq, cli.Argument(result.Grant.GrantID))
	return nil
}

// ends returns the instance ids of the agent and the receiver, which people may name as in
// session keys. A receiver that is not an agent of the daemon keeps its name.
func ends(ctx context.Context, c *client.Client, from, to string) (agent, receiver string, err error) {
	ctx, cancel := context.WithTimeout(ctx, cli.AnswerTime)
	defer cancel()
	var status api.Status
	if err := c.Call(ctx, "kernel.status", nil, &status); err != nil {
		return "", "", err
	}
	receiver = to
	for i := range status.Agents {
		a := &status.Agents[i]
		if from == a.ID || from == a.InstanceID {
			agent = a.InstanceID
		}
		if to == a.ID {
			receiver = a.InstanceID
		}
	}
	if agent == "" {
		return "", "", fmt.Errorf("there is no agent %q; ocipd status lists them", from)
	}
	return agent, receiver, nil
}
