package approvalsui

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"time"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/approval/describe"
	"github.com/openclawos/ocipd/internal/base/term"
	"github.com/openclawos/ocipd/internal/cli"
)

// Show prints one held message, or the text to sign for a decision about it.
func (s *People) Show(ctx context.Context, name, decision, content, note string, with Beyond, asJSON bool) error {
	content, err := s.words(ctx, content)
	if err != nil {
		return err
	}
	c, err := s.DialOperator(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	a, err := findApproval(ctx, c, name)
	if err != nil {
		return fmt.Errorf("cannot show the request: %w", err)
	}
	switch {
	case asJSON:
		_, err = s.Stdout.Write(s.Screen().JSONLine(a.raw))
	case decision != "":
		var text string
		bounds, failed := with.bounds(&a.Approval, time.Now())
		if failed != nil {
			return failed
		}
		if text, err = a.TextToSign(decision, content, note, bounds); err == nil {
			_, err = io.WriteString(s.Stdout, text)
		}
	default:
		err = writeApproval(s.Stdout, s.Screen(), &a.Approval, time.Now())
	}
	return err
}

// writeApproval shows a held message to a person who may have to decide.
func writeApproval(out io.Writer, scr term.Screen, a *api.Approval, now time.Time) error {
	w := bufio.NewWriter(out)
	advice := &term.Page{Screen: scr}
	writeAdvice(advice, a)
	for _, line := range append(approvalPage(scr, a, now, true), advice.Lines...) {
		fmt.Fprintln(w, line)
	}
	return w.Flush()
}

// approvalPage describes a held message without the advice, see [describe.Text.Request].
func approvalPage(scr term.Screen, a *api.Approval, now time.Time, unfolded bool) []string {
	p := &term.Page{Screen: scr}
	(&describe.Text{Writer: p}).Request(a, now, unfolded)
	return p.Lines
}

// writeAdvice says how to decide.
func writeAdvice(p *term.Page, a *api.Approval) {
	id := cli.Argument(a.ApprovalID)
	if describe.CanTakeBack(a) {
		p.Line()
		if a.Kind == api.ApprovalOfEffect {
			p.Line("To take it back, unless it has begun:")
		} else {
			p.Line("To take it back:")
		}
		p.Line("  ocipd approvals deny " + id)
		return
	}
	if a.State != api.ApprovalPending {
		return
	}
	p.Line()
	p.Line("To decide:")
	for _, decision := range api.DecisionsOf(a.Kind) {
		if decision == api.DecideApprove && !a.Approvable {
			continue
		}
		command := "  ocipd approvals " + CommandOf(decision) + " " + id
		p.Line(command)
		p.Say("      ", term.Dim, describe.WordsOf(a.Kind).Does[decision])
		if decision == api.DecideApprove && a.Exchange != nil {
			p.Line(command + " --exchange")
			p.Say("      ", term.Dim, "send it, and what follows in its exchange within the bounds above")
		}
	}
}
