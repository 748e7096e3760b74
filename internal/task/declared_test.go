package task

import (
	"errors"
	"strings"
	"testing"
)

// An artifact whose name the spec does not declare is marked, and alone is no delivery.
func TestUndeclared(t *testing.T) {
	d := newDesk(t)
	d.to(Executing)
	record := func(who Actor, kind, uri string) Artifact {
		t.Helper()
		d.do(who, RecordArtifact{AttemptID: d.task.CurrentAttempt, Kind: kind, URI: uri, Digest: sum(1)})
		return d.task.Artifacts[len(d.task.Artifacts)-1]
	}
	if a := record(builder, PrimaryOutput, "undeclared.sh"); !a.Undeclared || d.last.Events[0].Now["undeclared"] != true {
		t.Errorf("recorded is %+v", a)
	}
	reviewer := checker
	reviewer.Grant = &Grant{TaskID: d.task.ID, Role: SpecReviewer}
	if a := record(reviewer, ReviewReport, "r"); a.Undeclared {
		t.Errorf("a reviewer's report is %+v", a)
	}
	d.do(builder, FinishAttempt{AttemptID: d.task.CurrentAttempt, Outcome: AttemptSucceeded})
	err := d.try(lead, Move{From: Executing, To: SpecGate})
	if r, ok := errors.AsType[*Refusal](err); !ok || r.Code != GuardFailed || !strings.Contains(r.Message, "internal/evidence/export/*.go, out.go") {
		t.Errorf("the move is answered with %v", err)
	}

	d = newDesk(t)
	d.to(Executing)
	record(builder, PrimaryOutput, "undeclared.sh")
	if a := record(builder, PrimaryOutput, "internal/evidence/export/csv.go"); a.Undeclared {
		t.Errorf("a declared output is %+v", a)
	}
	d.do(builder, FinishAttempt{AttemptID: d.task.CurrentAttempt, Outcome: AttemptSucceeded})
	d.move(SpecGate)
}

// An attempt of kind research reads, says how it goes, reports and finishes. It makes no work, and
// plans nothing.
func TestResearch(t *testing.T) {
	for name, executor := range map[string]Actor{"an executor": builder, "the orchestrator itself": lead} {
		t.Run(name, func(t *testing.T) {
			d := newDesk(t)
			d.to(ExecutionReady)
			d.do(lead, StartAttempt{Runtime: "local", Executor: "research", WorkerRef: executor.Name})
			d.move(Executing)
			at := d.task.CurrentAttempt
			d.do(executor, RecordCheckpoint{AttemptID: at, Type: "progress"})
			for _, kind := range []string{PrimaryOutput, Diff} {
				d.refused(executor, RecordArtifact{AttemptID: at, Kind: kind, URI: "out.go", Digest: sum(1)}, NotPermitted)
			}
			d.refused(executor, PlanEffect{Planned: deploy()}, NotPermitted)
			d.do(executor, RecordArtifact{AttemptID: at, Kind: OtherArtifact, URI: "out.go", Digest: sum(1)})
			d.do(executor, FinishAttempt{AttemptID: at, Outcome: AttemptSucceeded})
			d.move(SpecGate)
		})
	}
}
