package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/openclawos/ocipd/internal/task"
)

// Whatever another program of the user does to the runner's ledger, no command counts as done that did
// not run, and none runs twice under one approval.
func TestLedgerOfAnotherProgram(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("starts and kills processes")
	}
	w := newTaskWorld(t)
	commands := make(map[string]object)
	for _, key := range []string{"forged", "taken", "lost", "claimed"} {
		commands[key] = object{"argv": []any{"/bin/sh", "-c", "echo " + key + " >> effects; until test -e go-" + key + "; do sleep 0.05; done"}}
	}
	w.resume(commands)
	file := func(key, kind string) string {
		return filepath.Join(w.dir, "openclawos", "runner", w.effects[key]+".1."+kind)
	}
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	goes := func(key string) { write(filepath.Join(w.dir, "go-"+key), "") }
	// begins starts a run, waits for its command, and kills the runner.
	begins := func(key string) {
		t.Helper()
		w.runs(key)
		for w.lines(key) == 0 {
			w.soon("nothing of " + key + " happens")
		}
		w.appears(key, "pid")
		w.kill(w.runner)
	}
	removes := func(key string) {
		t.Helper()
		for _, kind := range []string{"claim", "pid", "out", "err", "result"} {
			if err := os.Remove(file(key, kind)); err != nil && kind != "result" {
				t.Fatal(err)
			}
		}
	}
	ended := func(key, state, evidence string) {
		t.Helper()
		if r := w.ends(key); r.State != state || !strings.Contains(r.Evidence, evidence) || w.lines(key) != 1 {
			t.Errorf("%s is %s after %d times: %s %s", key, r.State, w.lines(key), r.Evidence, r.Receipt)
		}
	}

	// A result from elsewhere does not keep the command from its run.
	goes("forged")
	write(file("forged", "result"), `{"state":"failed","receipt":{"started_at":"2026-01-01T00:00:00Z","ended_at":"2026-01-01T00:00:00Z"}}`)
	w.runs("forged")
	ended("forged", task.EffectDone, "")

	// Without the files of a run under way, its process is still on record.
	begins("taken")
	removes("taken")
	w.startRunner()
	goes("taken")
	ended("taken", task.EffectDone, "")

	// If the process is gone too, a person has to find out.
	begins("lost")
	shim, _, _ := strings.Cut(w.last("lost").Begun, "@")
	w.signals(shim)
	removes("lost")
	goes("lost")
	w.startRunner()
	ended("lost", task.EffectUncertain, "it has begun as process "+w.last("lost").Begun)

	// A claim of somebody else, with its lock, is none.
	begins("claimed")
	claim, err := os.ReadFile(file("claimed", "claim"))
	if err != nil {
		t.Fatal(err)
	}
	write(file("claimed", "claim"), strings.Replace(string(claim), "\n", "1\n", 1))
	w.startRunner()
	ended("claimed", task.EffectUncertain, "without the runner's seal")
	goes("claimed")
}
