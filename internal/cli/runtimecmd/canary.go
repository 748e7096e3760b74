package runtimecmd

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/openclawos/ocipd/internal/base/term"
	"github.com/openclawos/ocipd/internal/bridge/codexprobe"
	"github.com/openclawos/ocipd/internal/bridge/integrate"
)

// tryGate sends a canary through a runtime's gate, and prints the result.
func (s *command) tryGate(ctx context.Context, r *integrate.Runtime, p *integrate.Place) error {
	id, err := uuid.NewV7()
	if err != nil {
		return err
	}
	fmt.Fprintf(s.Stdout, "trying the gate of %s: a canary is sent\n", r.Title)
	record, err := r.Try(ctx, p, integrate.NewCanary(id.String()), integrate.Records(s.Operate))
	if err != nil {
		return fmt.Errorf("%w; to try it again: ocipd doctor", err)
	}
	fmt.Fprintf(s.Stdout, "ok: it was refused, see record %d (%s)\n", record.Seq, term.Printable(record.Reason))
	return nil
}

// tryAsks tests about which actions a runtime asks, and notes the results, so that an
// action counts as closed once a version asks about it.
func (s *command) tryAsks(ctx context.Context, r *integrate.Runtime, p *integrate.Place, out bool) error {
	program := r.Installed(p)
	if out || !p.Tools || program == "" || !r.Tries() {
		return nil
	}
	err := r.TryAsks(ctx, p, program)
	if errors.Is(err, codexprobe.ErrUnknown) {
		s.Say("%v", err)
		err = nil
	}
	return err
}

// tryUnless lists a runtime's open actions, and tests its gate, unless the runtime was taken out.
func (s *command) tryUnless(ctx context.Context, out bool, r *integrate.Runtime, p *integrate.Place) error {
	if err := s.tryAsks(ctx, r, p, out); err != nil {
		return err
	}
	if err := s.sayOpen(ctx, r, p, out); err != nil || out {
		return err
	}
	switch live, err := s.runningDaemon(ctx); {
	case err != nil:
		return err
	case live == nil:
		s.Say("no daemon runs: nothing is sent until one does. Start it (ocipd service install), then try the gate: ocipd doctor")
		return nil
	}
	err := s.tryGate(ctx, r, p)
	if errors.Is(err, integrate.ErrNoGate) {
		s.Say("%v", integrate.ErrNoGate)
		return nil
	}
	return err
}
