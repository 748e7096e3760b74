package approvalsui

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/api/client"
	"github.com/openclawos/ocipd/internal/approval/describe"
	"github.com/openclawos/ocipd/internal/base/term"
	"github.com/openclawos/ocipd/internal/cli"
)

func sortBy(all []listed, order string) {
	compare := before(order)
	slices.SortFunc(all, func(a, b listed) int { return compare(&a.ApprovalSummary, &b.ApprovalSummary) })
}

// People is the common part of the commands about approvals.
type People struct{ *cli.Process }

// ListOptions select held messages for a list.
type ListOptions struct {
	State, Agent string
	// Order is one of [Orders]. If it is empty, pending requests are ordered by likelihood
	// and decided ones by age.
	Order      string
	Flat, JSON bool
}

// listed is one held message in a list, with its original JSON.
type listed struct {
	api.ApprovalSummary
	raw jsontext.Value
}

// List prints held messages.
func (s *People) List(ctx context.Context, f ListOptions) error {
	c, err := s.DialOperator(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	all, altered, err := approvalsIn(ctx, c, f.State, f.Agent)
	if err != nil {
		return fmt.Errorf("cannot list requests: %w", err)
	}
	defer s.NoteAltered(altered)
	order := cmp.Or(f.Order, OrderAge)
	if f.Order == "" && (f.State == "" || f.State == api.ApprovalPending) {
		order = OrderLikelihood
	}
	sortBy(all, order)
	scr := s.Screen()
	w := bufio.NewWriter(s.Stdout)
	if f.JSON {
		for i := range all {
			if _, err := w.Write(scr.JSONLine(all[i].raw)); err != nil {
				return err
			}
		}
		return w.Flush()
	}
	if len(all) == 0 {
		fmt.Fprintln(s.Stderr, emptyList(f))
		return nil
	}
	messages := summaries(all)
	t := newTable(messages, f.State, time.Now())
	switch {
	case f.Flat:
		t.rows = inTurn(alone(messages))
	case f.Agent != "":
		t.rows = inTurn(alike(messages))
	default:
		t.rows, t.more = fair(alike(messages), s.RowsShown()-listFrame)
	}
	for _, line := range t.lines(scr) {
		fmt.Fprintln(w, line)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if waiting := slices.IndexFunc(all, func(l listed) bool { return l.State == api.ApprovalPending }); waiting >= 0 {
		fmt.Fprintf(s.Stderr, "To read one and to decide: ocipd approvals show %s\n", cli.Argument(t.short(all[waiting].ApprovalID)))
	}
	return nil
}

// Lines draws the pending requests as in the live list, shortened fairly to a number of
// rows, and returns how many are pending.
func (s *People) Lines(ctx context.Context, scr term.Screen, rows int) (lines []string, pending int, err error) {
	c, err := s.DialOperator(ctx)
	if err != nil {
		return nil, 0, err
	}
	defer c.Close()
	all, _, err := approvalsIn(ctx, c, "", "")
	if err != nil || len(all) == 0 {
		return nil, 0, err
	}
	sortBy(all, OrderLikelihood)
	messages := summaries(all)
	t := newTable(messages, "", time.Now())
	t.rows, t.more = fair(alike(messages), rows-1)
	return t.lines(scr), len(all), nil
}

// Pending returns the ids of an agent's pending requests, oldest first.
func (s *People) Pending(ctx context.Context, agent string) (ids []string, err error) {
	c, err := s.DialOperator(ctx)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	all, _, err := approvalsIn(ctx, c, "", agent)
	for i := range all {
		ids = append(ids, all[i].ApprovalID)
	}
	return ids, err
}

// listFrame is the number of screen lines outside a list: its titles, the advice, and the
// shell's lines before and after it.
const listFrame = 4

func emptyList(f ListOptions) string {
	switch {
	case f.State == "" && f.Agent == "", f.State == api.ApprovalPending && f.Agent == "":
		return "nothing waits for a person"
	case f.Agent == "":
		return "no requests in this state"
	}
	return "no such requests of agent " + term.Printable(f.Agent)
}

// listPage is the number of held messages in one call. It is small enough that the daemon
// finds the next page while this one is read.
const listPage = 1000

// approvalsIn returns all held messages in a state, oldest first. An empty state means
// pending ones, and an empty agent all agents.
func approvalsIn(ctx context.Context, c *client.Client, state, agent string) (all []listed, altered []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, cli.AnswerTime)
	defer cancel()
	type page struct {
		api.ApprovalListResult
		err error
	}
	ask := func(after string) <-chan page {
		answer, size := make(chan page, 1), listPage
		params := api.ApprovalListParams{State: state, Agent: agent, Limit: &size, After: after}
		go func() {
			var p page
			p.err = c.Call(ctx, "approval.list", params, &p.ApprovalListResult)
			answer <- p
		}()
		return answer
	}
	for next := ask(""); next != nil; {
		p := <-next
		if p.err != nil {
			return nil, nil, p.err
		}
		altered = append(altered, p.Altered...)
		next = nil
		if n := len(p.Approvals); n == listPage {
			last, err := read(p.Approvals[n-1])
			if err != nil {
				return nil, nil, err
			}
			next = ask(last.ApprovalID)
		}
		for _, raw := range p.Approvals {
			l, err := read(raw)
			if err != nil {
				return nil, nil, err
			}
			all = append(all, l)
		}
	}
	return all, altered, nil
}

func read(raw jsontext.Value) (l listed, err error) {
	l.raw = raw
	if err = json.Unmarshal(raw, &l.ApprovalSummary); err != nil {
		err = fmt.Errorf("cannot read a held message of the daemon: %w", err)
	}
	return l, err
}

// found is one held message, with its original JSON.
type found struct {
	api.Approval
	raw jsontext.Value
}

// findApproval returns a held message by its id, or by the beginning or the end of its id.
// It searches pending ones first.
func findApproval(ctx context.Context, c *client.Client, name string) (*found, error) {
	a, err := getApproval(ctx, c, name)
	if refused, ok := errors.AsType[*api.Error](err); !ok || refused.Code != api.NotFound {
		return a, err
	}
	part := strings.Trim(name, "…")
	unknown := fmt.Errorf("there is no approval %q; ocipd approvals list shows what waits", name)
	if len(part) < leastTyped {
		return nil, unknown
	}
	for _, state := range []string{api.ApprovalPending, "all"} {
		all, _, err := approvalsIn(ctx, c, state, "")
		if err != nil {
			return nil, err
		}
		var ids []string
		for i := range all {
			if id := all[i].ApprovalID; strings.HasPrefix(id, part) || strings.HasSuffix(id, part) {
				ids = append(ids, id)
			}
		}
		switch len(ids) {
		case 0:
			continue
		case 1:
			return getApproval(ctx, c, ids[0])
		}
		return nil, fmt.Errorf("%q is the beginning or the end of %d, such as %s and %s", name, len(ids), ids[0], ids[1])
	}
	return nil, unknown
}

func getApproval(ctx context.Context, c *client.Client, id string) (*found, error) {
	ctx, cancel := context.WithTimeout(ctx, cli.AnswerTime)
	defer cancel()
	a := new(found)
	if err := c.Call(ctx, "approval.get", api.ApprovalParams{ApprovalID: id}, &a.raw); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(a.raw, &a.Approval); err != nil {
		return nil, fmt.Errorf("cannot read a held message of the daemon: %w", err)
	}
	return a, nil
}

// heldNow returns held messages for a completion, or nil if there is no daemon.
func (s *People) heldNow(ctx context.Context, state string) []listed {
	c, err := s.DialOperator(ctx)
	if err != nil {
		return nil
	}
	defer c.Close()
	all, _, err := approvalsIn(ctx, c, state, "")
	if err != nil {
		return nil
	}
	return all
}

// Named is a held message for a completion.
type Named struct{ ID, About string }

// Names returns the held messages in a state for a completion: by the end of the id, as
// listed, or by the whole id if the person has begun to type it.
func (s *People) Names(ctx context.Context, state, begun string) (all []Named) {
	held := summaries(s.heldNow(ctx, state))
	t := newTable(held, state, time.Now())
	for _, row := range inTurn(alone(held)) {
		a := row.oldest()
		id := t.short(a.ApprovalID)
		if begun != "" && strings.HasPrefix(a.ApprovalID, begun) {
			id = a.ApprovalID
		}
		if cli.PlainWord(id) {
			all = append(all, Named{id, term.Printable(a.Agent + " → " + a.To() + ": " + cmp.Or(a.Summary, describe.State(a.State)))})
		}
	}
	return all
}

// Agents returns both ids of each agent with pending requests.
func (s *People) Agents(ctx context.Context) (ids []string) {
	for _, part := range byAgent(alone(summaries(s.heldNow(ctx, "")))) {
		a := part[0].oldest()
		for _, id := range []string{a.AgentID, a.Agent} {
			if cli.PlainWord(id) && !slices.Contains(ids, id) {
				ids = append(ids, id)
			}
		}
	}
	return ids
}
