package runner

import (
	"os"
	"os/signal"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/openclawos/ocipd/internal/task/ledger"
	"github.com/openclawos/ocipd/internal/task/taskapi"
)

// A run that is to end before its shim has claimed it ends once the shim has. A run that is over has
// nothing to end.
func TestKillWaitsForTheShim(t *testing.T) {
	ref := taskapi.RunnerRef{TaskID: "tsk_1", EffectID: "eff_1", Run: 1}
	l, err := ledger.Open(t.TempDir(), nil, time.Unix(0, 0))
	if err != nil {
		t.Fatal(err)
	}
	run := l.Of(ref, time.Unix(0, 0))
	told := make(chan os.Signal, 1)
	signal.Notify(told, syscall.SIGTERM)
	defer signal.Stop(told)
	synctest.Test(t, func(t *testing.T) {
		r := &runner{o: Options{Say: t.Logf}, ctx: t.Context(), running: map[taskapi.RunnerRef]*ledger.Run{ref: run}}
		over := make(chan struct{})
		go func() {
			r.kill(ref)
			close(over)
		}()
		synctest.Wait()
		// This process stands in for the shim.
		claim, err := run.Claim()
		if err != nil {
			t.Fatal(err)
		}
		defer claim.Close()
		<-over
	})
	<-told
	r := &runner{o: Options{Say: t.Logf}, ctx: t.Context(), running: make(map[taskapi.RunnerRef]*ledger.Run)}
	r.kill(ref)
	select {
	case <-told:
		t.Error("a run that is over is ended")
	default:
	}
}
