package main

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
)

// TestReloadSurvivesKill kills the daemon during reloads of its configuration and messages,
// at random points, including between the record and the swap. The next start uses the
// file; and every message is decided by a value of the start, or one recorded before.
func TestReloadSurvivesKill(t *testing.T) {
	t.Parallel()
	k := newKillTest(t)
	file := filepath.Join(k.dir, "ocipd.yaml")
	agents, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	rounds := 10 // of a new exchange: another number with each edit
	edit := func() {
		t.Helper()
		rounds++
		text := fmt.Appendf(slices.Clone(agents), "ocip: {max_rounds: %d}\n", rounds)
		if err := os.WriteFile(file+"~", text, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(file+"~", file); err != nil {
			t.Fatal(err)
		}
	}
	edit()
	var atStart []int
	for round := range 8 {
		atStart = append(atStart, rounds)
		cmd := k.start(t)
		var sending sync.WaitGroup
		said := make(chan int, 1024)
		for n := range senders {
			sending.Go(func() {
				app, err := k.app(t.Context(), fmt.Sprintf("@kill/a%d", n), api.Capabilities{})
				if err != nil {
					t.Error(err)
					return
				}
				defer app.Close()
				for {
					var sent api.DispatchResult
					err := app.Call(t.Context(), "message.dispatch", map[string]any{
						"sessionKey": fmt.Sprintf("chat:p%d", n), "content": "x", "metadata": map[string]any{"exchange": map[string]any{"new": true, "classification": "internal"}},
					}, &sent)
					if err != nil {
						return
					}
					select {
					case said <- sent.OCIP.MaxRounds:
					default: // the test looks elsewhere
					}
				}
			})
		}
		late := time.NewTimer(patience)
		next := func() int {
			t.Helper()
			select {
			case got := <-said:
				return got
			case <-late.C:
				t.Fatal("no message is answered")
				return 0
			}
		}
		if got := next(); got != rounds {
			t.Errorf("after start %d an exchange has %d rounds, the file says %d", round, got, rounds)
		}
		for n := range 4 {
			edit()
			if err := cmd.Process.Signal(syscall.SIGHUP); err != nil {
				t.Fatal(err)
			}
			for n < 3 && next() != rounds {
			}
		}
		// The last edit happens at a different moment each time.
		for range 2 * round {
			next()
		}
		late.Stop()
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait()
		sending.Wait()
	}
	cmd := k.start(t)
	atStart = append(atStart, rounds)
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	k.rowsAgree(t)

	mirror, err := os.Open(filepath.Join(k.dir, "openclawos", "audit.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer mirror.Close()
	lines := bufio.NewScanner(mirror)
	lines.Buffer(nil, 1<<20)
	starts, decided, changed := 0, 0, 0
	var announced []int
	for lines.Scan() {
		r, err := audit.Parse(slices.Clone(lines.Bytes()))
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case r.Event == "daemon_started":
			announced = []int{atStart[starts]}
			starts++
		case r.ActionType == audit.ActionConfigChange:
			changed++
			diff, _ := r.Details["diff"].([]any)
			for _, item := range diff {
				if d, _ := item.(map[string]any); d["key"] == "ocip.max_rounds" {
					now, _ := d["now"].(float64)
					announced = append(announced, int(now))
				}
			}
		case r.ActionType == audit.ActionExchange:
			if decided++; !slices.Contains(announced, r.MaxRounds) {
				t.Fatalf("record %d has %d rounds; announced were %v", r.Seq, r.MaxRounds, announced)
			}
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	if starts != len(atStart) || decided < 8*senders || changed == 0 {
		t.Errorf("%d starts, %d messages, %d changes", starts, decided, changed)
	}
	t.Logf("%d starts, %d messages, %d changes of %d edits", starts, decided, changed, rounds-10)
}
