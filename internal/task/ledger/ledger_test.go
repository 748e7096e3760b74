package ledger

import (
	"errors"
	"os"
	"testing"
	"time"

	"github.com/openclawos/ocipd/internal/task/taskapi"
)

// A file counts for the run and as the kind that its seal says, and unchanged.
func TestSeals(t *testing.T) {
	started := time.Unix(1, 5)
	l, err := Open(t.TempDir(), []byte("one key"), started)
	if err != nil {
		t.Fatal(err)
	}
	ref := taskapi.RunnerRef{TaskID: "tsk_1", EffectID: "eff_1", Run: 1}
	run := l.Of(ref, started)
	if err := run.Put(ResultFile, &Withdrawal{Process: "7@1"}); err != nil {
		t.Fatal(err)
	}
	file, err := os.ReadFile(run.Path(ResultFile))
	if err != nil {
		t.Fatal(err)
	}
	other := ref
	other.Run = 2
	for name, tt := range map[string]struct {
		run  *Run
		kind string
		text string
		good bool
	}{
		"as it was":          {run, ResultFile, string(file), true},
		"in another zone":    {l.Of(ref, started.In(time.FixedZone("", 60))), ResultFile, string(file), true},
		"without a seal":     {run, ResultFile, `{"process":"7@1"}`, false},
		"an empty file":      {run, ResultFile, "", false},
		"one line":           {run, ResultFile, "\n", false},
		"changed":            {run, ResultFile, "{\"process\":\"8@1\"}" + string(file[len(`{"process":"7@1"}`):]), false},
		"without its end":    {run, ResultFile, string(file[:len(file)-1]), false},
		"another kind":       {run, WithdrawnFile, string(file), false},
		"another run":        {l.Of(other, started), ResultFile, string(file), false},
		"another start":      {l.Of(ref, started.Add(1)), ResultFile, string(file), false},
		"another ledger key": {At(l.Dir(), []byte("another key")).Of(ref, started), ResultFile, string(file), false},
	} {
		if err := os.WriteFile(tt.run.Path(tt.kind), []byte(tt.text), 0o600); err != nil {
			t.Fatal(err)
		}
		var got Withdrawal
		found, err := tt.run.Get(tt.kind, &got)
		if found != tt.good || tt.good && (err != nil || got.Process != "7@1") || !tt.good && !errors.Is(err, ErrUnsealed) {
			t.Errorf("%s: %v %+v %v", name, found, got, err)
		}
	}
}

// A claim names its shim only with the run's seal, whoever has the lock.
func TestClaimHasASeal(t *testing.T) {
	l, err := Open(t.TempDir(), []byte("one key"), time.Unix(1, 0))
	if err != nil {
		t.Fatal(err)
	}
	run := l.Of(taskapi.RunnerRef{TaskID: "tsk_1", EffectID: "eff_1", Run: 1}, time.Unix(1, 5))
	claim, err := run.Claim()
	if err != nil {
		t.Fatal(err)
	}
	defer claim.Close()
	if h, err := run.Holder(); err != nil || !h.There || !h.Held || h.Shim != os.Getpid() {
		t.Errorf("the holder is %+v, %v", h, err)
	}
	if _, err := run.Claim(); !errors.Is(err, ErrClaimed) {
		t.Errorf("claimed again: %v", err)
	}
	if _, err := claim.WriteAt([]byte("1\n"), 0); err != nil {
		t.Fatal(err)
	}
	if h, err := run.Holder(); err != nil || !h.Held || h.Shim != 0 {
		t.Errorf("the holder of a changed claim is %+v, %v", h, err)
	}
}
