package task

import (
	"slices"

	"github.com/openclawos/ocipd/internal/base/ids"
)

// AppendReview is a reviewer's verdict on the present subject.
type AppendReview struct {
	AttemptID, Type, Verdict, Summary, ClaimedBy string
	Findings                                     []Finding
	// Revision, if set, is the subject's as the reviewer has it.
	Revision *int
}

func (c AppendReview) decide(d *draft) error {
	t := d.t
	own := ReviewSpec
	if d.who.Role == QualityReviewer {
		own = ReviewQuality
	}
	if c.Type != own {
		return refuse(NotPermitted, "%s writes %s reviews, and no %s reviews", d.who.Name, own, c.Type)
	}
	if len(t.Reviews) >= maxReviews {
		return refuse(Limit, "a task has %d reviews at most", maxReviews)
	}
	switch {
	case c.Type == ReviewSpec && (t.Phase == SpecReview || t.Phase == SpecGate), c.Type == ReviewQuality && t.Phase == QualityGate:
	default:
		return refuse(PhaseMismatch, "a %s review is written in %s, and the task is in %s", c.Type, reviewPhases(c.Type), t.Phase)
	}
	if t.Phase != SpecReview && c.AttemptID == "" {
		return refuse(Invalid, "attempt_id: required but in spec_review")
	}
	if c.AttemptID != "" && t.Attempt(c.AttemptID) == nil {
		return refuse(Absent, "the task has no attempt %s", c.AttemptID)
	}
	subject, err := c.subject(d)
	if err != nil {
		return err
	}
	shared, err := d.independent()
	if err != nil {
		return err
	}
	r := Review{
		ID: d.w.NewID(ids.Review), AttemptID: c.AttemptID, Type: c.Type, Actor: d.who.Name, Verdict: c.Verdict, Findings: slices.Clone(c.Findings), Summary: c.Summary,
		Subject: subject, ClaimedBy: c.ClaimedBy, Shared: shared, At: d.now,
	}
	t.Reviews = append(t.Reviews, r)
	touch(d, KindReview, t.Reviews, len(t.Reviews)-1, r.ID)
	e := d.event("review.appended").made("review_id", r.ID).made("review_type", r.Type).made("verdict", r.Verdict).made("spec_version", r.Subject.Spec).
		made("artifact_revision", r.Subject.Artifact).made("findings", len(r.Findings))
	e.AttemptID = c.AttemptID
	e.Details["stale"] = t.Stale(&r)
	if shared != "" {
		e.Details["shared_principal"] = shared
	}
	e.Texts["summary"], e.Digests["findings"] = r.Summary, r.Findings
	if s := t.spec(subject.Spec); s != nil {
		e.Digests["spec"] = s.Text()
	}
	if subject.Gate {
		e.Digests["artifacts"] = t.worked(subject.Artifact)
	}
	d.out.Review = r.ID
	return nil
}

func reviewPhases(kind string) string {
	if kind == ReviewSpec {
		return "spec_review and spec_gate"
	}
	return "quality_gate"
}

// subject is the subject of the review: what the reviewer's grant is for, else what the reviewer
// has read. One that nobody can have read yet is none.
func (c AppendReview) subject(d *draft) (Subject, error) {
	now := d.t.Subject()
	var s Subject
	switch g := d.who.Grant; {
	case g != nil && g.Subject != Subject{}:
		s = g.Subject
	case d.who.Seen != Subject{}:
		s = d.who.Seen
	case c.Revision == nil:
		return s, refuse(ReadFirst, "say what the review is of: read the task first, or give subject_revision")
	default:
		s = now
	}
	if s.Gate != now.Gate {
		return s, refuse(ReadFirst, "the task is in %s by now: read it first", d.t.Phase)
	}
	if c.Revision != nil {
		if s.Gate {
			s.Artifact = *c.Revision
		} else {
			s.Spec = *c.Revision
		}
	}
	if s.Spec < 1 || s.Artifact < 0 || s.Spec > now.Spec || s.Artifact > now.Artifact {
		return s, refuse(RevisionMismatch, "there is no such revision yet: the spec is at %d and the artifacts are at %d", now.Spec, now.Artifact)
	}
	return s, nil
}

// independent refuses to review one's own, also under another name. If the configuration lets one
// principal do both, it names the shared principal.
func (d *draft) independent() (shared string, err error) {
	t := d.t
	var workers []Principal
	what := "made what is to be reviewed"
	if t.Phase == SpecReview {
		s := t.Spec()
		workers, what = []Principal{as(s.By, s.Author)}, "wrote this version of the spec"
	} else {
		if last := t.Last(); last != nil {
			workers = append(workers, Principal{Name: last.Actor})
			workers = append(workers, last.By...)
		}
		for i := range t.Artifacts {
			if a := &t.Artifacts[i]; a.Work && a.Current {
				workers = append(workers, as(a.By, a.Actor))
			}
		}
	}
	me := as(d.who.By, d.who.Name)
	for _, w := range workers {
		if w.Name == me.Name {
			return "", refuse(SameActor, "%s %s", w.Name, what)
		}
		how, same := me.Is(w)
		switch {
		case !same:
		case d.w.Rules.SharedPrincipals:
			shared = how
		default:
			return "", refuse(SameActor, "%s %s, and %s may be the same: %s. A reviewer has a grant of a person's, in a process of its own, or a user or program of its own", w.Name, what, me.Name, how)
		}
	}
	return shared, nil
}

// as is a principal that has a name, also where nothing else is known of it.
func as(p Principal, name string) Principal {
	p.Name = name
	return p
}
