package task

import (
	"fmt"
	"slices"
	"time"

	"github.com/openclawos/ocipd/internal/base/ids"
)

// Create makes a task.
type Create struct {
	Title, Workspace, Tenant, Classification string
	Phase                                    Phase
	Labels, DependsOn                        []string
	Priority                                 int
	NotBefore                                time.Time
	Spec                                     Spec
	Effects                                  []Planned
	Origin                                   string
	// As, for an import alone, is the phase the task begins in without the gates. Details and
	// Reason describe its origin in its event. Artifacts are its files from there, each with its
	// URI, digest and size.
	As        Phase
	Details   map[string]any
	Reason    string
	Artifacts []Artifact
}

func (c Create) decide(d *draft) error {
	t := &Task{Head: Head{
		ID: d.w.NewID(ids.Task), Tenant: c.Tenant, Title: c.Title, Workspace: c.Workspace, Phase: c.Phase, Circuit: CircuitClosed, Priority: c.Priority,
		Labels: tidy(c.Labels), DependsOn: tidy(c.DependsOn), Classification: c.Classification, NotBefore: c.NotBefore.UTC(), CreatedAt: d.now, CreatedBy: d.who.Name, Origin: c.Origin,
	}}
	if c.NotBefore.IsZero() {
		t.NotBefore = time.Time{}
	}
	d.t = t
	c.Spec.Version, c.Spec.Author, c.Spec.By, c.Spec.At = 1, d.who.Name, d.who.By, d.now
	t.Specs = []Spec{c.Spec}
	touch(d, KindSpec, t.Specs, 0, "1")
	if c.Phase == SpecReview && c.As == "" {
		if err := d.guards("no task begins in spec_review", Complete); err != nil {
			return err
		}
	}
	if err := d.ask(Question{Action: AskTransition, To: c.Phase}); err != nil {
		return err
	}
	kind := "task.created"
	if c.As != "" {
		if t.Phase, kind = c.As, "task.imported"; t.Phase == CircuitOpen {
			t.Circuit, t.CircuitReason = CircuitStopped, c.Reason
		}
	}
	e := d.event(kind).made("phase", t.Phase).made("priority", t.Priority).made("spec_version", 1)
	if c.Details != nil {
		e.Details = c.Details
	}
	e.Reason = c.Reason
	e.Texts["title"], e.Digests["spec"] = c.Title, t.Spec().Text()
	if len(t.DependsOn) > 0 {
		e.made("depends_on", t.DependsOn)
	}
	for i := range c.Effects {
		if _, err := d.plan(&c.Effects[i], originSpec); err != nil {
			return err
		}
	}
	for i := range c.Artifacts {
		d.brought(c.Artifacts[i])
	}
	return nil
}

// brought adds an artifact that an import brings along. It is nobody's work here.
func (d *draft) brought(a Artifact) {
	a.ID, a.Kind, a.Actor, a.Current, a.By, a.At = d.w.NewID(ids.Artifact), OtherArtifact, d.who.Name, true, d.who.By, d.now
	d.t.Artifacts = append(d.t.Artifacts, a)
	touch(d, KindArtifact, d.t.Artifacts, len(d.t.Artifacts)-1, a.ID)
	e := d.event("artifact.recorded").made("artifact_id", a.ID).made("kind", a.Kind).made("verified", a.Verified)
	e.Texts["uri"], e.Digests["artifact"] = a.URI, a.Digest
}

// tidy returns a list sorted, each entry once, and never nil.
func tidy(list []string) []string {
	list = slices.Clone(list)
	slices.Sort(list)
	return append([]string{}, slices.Compact(list)...)
}

// Update changes what a task says of itself. Members that are nil stay unchanged.
type Update struct {
	Expected          *int
	Title             *string
	Labels, DependsOn *[]string
	Priority          *int
	NotBefore         *time.Time
	Spec              *Spec
}

func (c Update) decide(d *draft) error {
	if err := d.revision(c.Expected); err != nil {
		return err
	}
	t := d.t
	if t.Phase.Final() {
		return refuse(PhaseMismatch, "the task is %s: nothing of it changes any more", t.Phase)
	}
	e := d.event("task.updated")
	changed := false
	if c.Title != nil && *c.Title != t.Title {
		t.Title, changed = *c.Title, true
		e.Texts["title"] = t.Title
	}
	if c.Labels != nil && !slices.Equal(tidy(*c.Labels), t.Labels) {
		e.Was["labels"], e.Now["labels"] = len(t.Labels), len(tidy(*c.Labels))
		t.Labels, changed = tidy(*c.Labels), true
	}
	if c.DependsOn != nil && !slices.Equal(tidy(*c.DependsOn), t.DependsOn) {
		if t.Phase != SpecDraft && t.Phase != SpecReview && t.Phase != ExecutionReady {
			return refuse(PhaseMismatch, "dependencies change before executing alone, and the task is in %s", t.Phase)
		}
		e.Was["depends_on"], e.Now["depends_on"] = t.DependsOn, tidy(*c.DependsOn)
		t.DependsOn, changed = tidy(*c.DependsOn), true
	}
	if c.Priority != nil && *c.Priority != t.Priority {
		e.set("priority", t.Priority, *c.Priority)
		t.Priority, changed = *c.Priority, true
	}
	if c.NotBefore != nil && !c.NotBefore.Equal(t.NotBefore) {
		e.Was["not_before"], e.Now["not_before"] = t.NotBefore, *c.NotBefore
		t.NotBefore, changed = *c.NotBefore, true
	}
	if !changed {
		d.out.Events = d.out.Events[:len(d.out.Events)-1]
	}
	if c.Spec == nil {
		return nil
	}
	if t.Phase != SpecDraft {
		return refuse(PhaseMismatch, "a spec changes in spec_draft alone, and the task is in %s", t.Phase)
	}
	d.revise(*c.Spec)
	return nil
}

// revise adds a version of the spec.
func (d *draft) revise(s Spec) {
	t := d.t
	was := t.Spec().Version
	s.Version, s.Author, s.By, s.At = was+1, d.who.Name, d.who.By, d.now
	t.Specs = append(t.Specs, s)
	touch(d, KindSpec, t.Specs, len(t.Specs)-1, fmt.Sprint(s.Version))
	d.event("spec.revised").set("spec_version", was, s.Version).made("missing", len(t.Missing())).Digests["spec"] = s.Text()
}

// SpecFile is the present content of the file of a spec.
type SpecFile struct{ Spec Spec }

// decide takes a changed file as a new version, in any phase: the reviewed version is not the
// present one.
//
//nolint:unparam // it is a Command
func (c SpecFile) decide(d *draft) error {
	if c.Spec.Digest == d.t.Spec().Digest || d.t.Phase.Final() {
		return nil
	}
	before := *d.t.Spec()
	d.revise(c.Spec)
	// Nobody knows who changed the file: the author of the version before cannot review this one
	// either.
	now := d.t.Spec()
	now.Author, now.By = before.Author, before.By
	return nil
}

// Claiming keeps the task for an orchestrator, or gives it back.
type Claiming struct{ For time.Duration }

func (c Claiming) decide(d *draft) error {
	d.silent = true
	t := d.t
	claim := t.Claim
	if claim != nil && !d.now.Before(claim.Until) {
		claim = nil
	}
	if claim != nil && claim.Actor != d.who.Name && d.who.Role != Operator {
		return &Refusal{Code: Claimed, Message: fmt.Sprintf("%s has claimed the task until %s", claim.Actor, claim.Until.Format(time.RFC3339)), At: claim.Until}
	}
	if c.For <= 0 {
		if t.Claim == nil {
			return nil
		}
		d.event("task.released").made("actor", t.Claim.Actor)
		t.Claim = nil
		return nil
	}
	if t.Phase.Final() {
		return refuse(PhaseMismatch, "the task is %s", t.Phase)
	}
	t.Claim = &Claim{Actor: d.who.Name, Until: d.now.Add(c.For), LeaseMS: c.For.Milliseconds()}
	d.event("task.claimed").made("until", t.Claim.Until)
	return nil
}
