package task

import (
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// The approval of a run lets it be undone for as long after the start as it let the effect be started.
// After that, people are asked.
func TestPermissionToUndoEnds(t *testing.T) {
	for name, tc := range map[string]struct {
		after time.Duration
		may   bool
	}{"before its end": {time.Hour - time.Second, true}, "at its end": {time.Hour, false}} {
		d := newDesk(t)
		d.to(ReadyToResume, deploy())
		id := d.task.Effects[0].ID
		d.do(gate, RunEffect{EffectID: id, Digest: zero})
		until, _ := d.last.Events[0].Now["undo_until"].(time.Time)
		if want := d.now.Add(time.Hour); !until.Equal(want) {
			t.Errorf("%s: on record it ends at %s, want %s", name, until, want)
		}
		d.finishRun(id, d.last.Run, EffectDone)
		d.now = d.now.Add(tc.after)
		undo := RunEffect{EffectID: id, Digest: zero, Compensation: true}
		if tc.may {
			d.do(gate, undo)
		} else {
			d.refused(gate, undo, GuardFailed, Approved)
			d.do(gate, RequestApproval{Planned: Planned{Key: "deploy"}, Undo: true, Digest: sum(8), ID: d.w.NewID("apr_"), ExpiresAt: d.now.Add(time.Hour)})
		}
	}
}

// There is nothing to undo of a command that did not begin, and an earlier one that did can be undone.
func TestWhatDidNotBeginIsNotUndone(t *testing.T) {
	d := newDesk(t)
	d.to(ReadyToResume, deploy())
	id := d.task.Effects[0].ID
	undo := RunEffect{EffectID: id, Digest: zero, Compensation: true}
	anew := func() {
		d.move(AwaitingApproval)
		d.approve(d.task.Effect(id))
		d.move(ReadyToResume)
	}
	d.do(gate, RunEffect{EffectID: id, Digest: zero})
	d.do(daemon, BeginRun{EffectID: id, Run: 1, Process: "7@1", Signed: true})
	d.do(daemon, FinishRun{EffectID: id, Run: 1, State: EffectFailed, Receipt: jsontext.Value(`{"not_begun":true,"error":"no program"}`)})
	if d.last.Events[0].Now["not_begun"] != true || !d.task.Effect(id).Run(1).NotBegun {
		t.Errorf("on record is %v", d.last.Events[0])
	}
	d.refused(gate, undo, PhaseMismatch)
	if d.task.Undoing(d.task.Effect(id)) != nil {
		t.Error("it can be undone")
	}
	anew()
	d.run(id, EffectFailed)
	anew()
	d.do(gate, RunEffect{EffectID: id, Digest: zero})
	d.do(person, KillRun{EffectID: id})
	d.do(daemon, BeginRun{EffectID: id, Run: 3, Signed: true})
	if r := d.task.Undoing(d.task.Effect(id)); r == nil || r.Number != 2 || !d.task.Effect(id).Run(3).NotBegun {
		t.Errorf("can be undone: %+v", r)
	}
	d.do(gate, undo)
}
