package main

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/openclawos/ocipd/internal/integrate"
	"github.com/openclawos/ocipd/internal/term"
)

// tryGate has an agent of a runtime send a canary, and says what became of it.
func (s *shell) tryGate(ctx context.Context, r *integrate.Runtime, p *integrate.Place) error {
	id, err := uuid.NewV7()
	if err != nil {
		return err
	}
	fmt.Fprintf(s.Stdout, "trying the gate: an agent of %s sends a canary\n", r.Title)
	record, err := r.Try(ctx, p, integrate.NewCanary(id.String()), integrate.Records(s.Operate))
	if err != nil {
		return fmt.Errorf("%w; to try it again: ocipd doctor", err)
	}
	fmt.Fprintf(s.Stdout, "ok: it was refused, see record %d (%s)\n", record.Seq, term.Printable(record.Reason))
	return nil
}

// tryUnless says what of a runtime is open still, and tries its gate, unless it was taken
// out.
func (s *shell) tryUnless(ctx context.Context, out bool, r *integrate.Runtime, p *integrate.Place) error {
	if err := s.sayOpen(r, p, out); err != nil || out || r.Canary == nil {
		return err
	}
	return s.tryGate(ctx, r, p)
}
