package integrate

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/openclawos/ocipd/internal/bridge/codexprobe"
)

// trials are the rows of [Runtime.Open] that a trial can close, with the way of Codex that
// each is about.
var trials = []struct {
	row string
	way codexprobe.Way
}{{typedOpen, codexprobe.Typing}, {codeOpen, codexprobe.Scripting}}

// StaysOpen lists the actions about which a version of the runtime asks no gate: all of
// [Runtime.Open], except those about which a trial saw that version ask.
func (r *Runtime) StaysOpen(p *Place, version string) ([]string, error) {
	k, err := r.kept(p)
	if err != nil || version == "" {
		return r.Open, err
	}
	return slices.DeleteFunc(slices.Clone(r.Open), func(row string) bool { return k.Asks[row] == version }), nil
}

// Tries reports whether [Runtime.TryAsks] can test a runtime.
func (r *Runtime) Tries() bool { return slices.Contains(r.Open, typedOpen) }

// TryAsks tests about which actions the installed runtime asks its gate, and notes the
// results. If a trial is inconclusive, it returns an error, and the action counts as open.
func (r *Runtime) TryAsks(ctx context.Context, p *Place, program string) (failed error) {
	version := Version(ctx, program)
	for _, t := range trials {
		asks, err := codexprobe.Asked(ctx, program, t.way)
		if err == nil || errors.Is(err, codexprobe.ErrUnknown) {
			err = errors.Join(err, r.asks(p, version, t.row, asks))
		}
		failed = errors.Join(failed, err)
	}
	return failed
}

// asks notes whether a version of an integrated runtime asks about the action of a row.
func (r *Runtime) asks(p *Place, version, row string, does bool) error {
	k, err := r.kept(p)
	if err != nil || len(k.Files) == 0 {
		return err
	}
	was := maps.Clone(k.Asks)
	if k.Asks == nil {
		k.Asks = make(map[string]string)
	}
	if k.Asks[row] = version; !does {
		delete(k.Asks, row)
	}
	if maps.Equal(k.Asks, was) {
		return nil
	}
	return r.keep(p, k)
}
