package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/api/client"
	"github.com/openclawos/ocipd/internal/config"
	"github.com/openclawos/ocipd/test/roundtest"
)

// TestKilledRoundsAreLinearizable kills the running daemon while senders compete for
// rounds. Every answer stays true afterwards, and an unanswered call has happened
// completely or not at all.
func TestKilledRoundsAreLinearizable(t *testing.T) {
	t.Parallel()
	for seed := range uint64(2) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			l := roundtest.NewLoad(seed)
			// Socket addresses are limited in length, so the directory's name must be short.
			dir, err := os.MkdirTemp("", "ocipd")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { os.RemoveAll(dir) })
			if err := os.WriteFile(filepath.Join(dir, "ocipd.yaml"), []byte(l.Config()), 0o600); err != nil {
				t.Fatal(err)
			}
			k := &killTest{dir: dir, socket: filepath.Join(dir, "run", "kernel.sock")}
			for run := range 3 {
				// Each run ends at another point.
				k.rounds(t, l, 40+25*run)
			}
			k.rounds(t, l, 0)
			l.History.Check(t, l.Rules())
		})
	}
}

// rounds lets everybody work until a number of messages is answered and kills the daemon.
// With 0 it only checks the remaining state.
func (k *killTest) rounds(t *testing.T, l *roundtest.Load, messages int) {
	t.Helper()
	cmd := k.start(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	kill := func() {
		if err := cmd.Process.Kill(); err != nil {
			t.Error(err)
		}
		_ = cmd.Wait()
	}
	lines, err := k.lines(ctx, t, l)
	if err != nil {
		kill()
		t.Fatal(err)
	}
	if messages == 0 {
		err = l.Look(ctx, lines)
		kill()
	} else {
		err = l.Run(ctx, lines, messages, kill)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// lines connects the agents of a load, which read their messages, and a person.
func (k *killTest) lines(ctx context.Context, t *testing.T, l *roundtest.Load) (lines roundtest.Lines, err error) {
	for _, id := range l.Agents() {
		app, err := k.app(ctx, id, api.Capabilities{})
		if err != nil {
			return lines, err
		}
		t.Cleanup(func() { app.Close() })
		go func() {
			for range app.Events() {
			}
		}()
		if err := app.Call(ctx, "app.ready", map[string]any{}, nil); err != nil {
			return lines, err
		}
		lines.Agents = append(lines.Agents, app)
	}
	operator, err := client.Dial(ctx, config.OperatorPath(k.socket))
	if err != nil {
		return lines, err
	}
	t.Cleanup(func() { operator.Close() })
	lines.Operator = operator
	return lines, nil
}
