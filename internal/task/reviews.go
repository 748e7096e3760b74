package task

import "slices"

// AppendReview is a reviewer's word about what is reviewed now.
type AppendReview struct {
	AttemptID, Type, Verdict, Summary, ClaimedBy string
	Findings                                     []Finding
	// Revision, where set, is the subject's as the reviewer has it.
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
	if len(t.Reviews) >= MaxReviews {
		return refuse(Limit, "a task has %d reviews at most", MaxReviews)
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
	if err := d.independent(); err != nil {
		return err
	}
	r := Review{
		ID: d.w.NewID(ReviewID), AttemptID: c.AttemptID, Type: c.Type, Actor: d.who.Name, Verdict: c.Verdict, Findings: slices.Clone(c.Findings), Summary: c.Summary,
		Subject: subject, ClaimedBy: c.ClaimedBy, At: d.now,
	}
	t.Reviews = append(t.Reviews, r)
	touch(d, KindReview, t.Reviews, len(t.Reviews)-1, r.ID)
	e := d.event("review.appended").made("review_id", r.ID).made("review_type", r.Type).made("verdict", r.Verdict).made("spec_version", r.Subject.Spec).
		made("artifact_revision", r.Subject.Artifact).made("findings", len(r.Findings))
	e.AttemptID = c.AttemptID
	e.Details["stale"] = t.Stale(&r)
	e.Texts["summary"] = r.Summary
	d.out.Review = r.ID
	return nil
}

func reviewPhases(kind string) string {
	if kind == ReviewSpec {
		return "spec_review and spec_gate"
	}
	return "quality_gate"
}

// subject is what the review is of: what the reviewer's grant is for, else what the
// reviewer has read. One that nobody can have read yet is none.
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

// independent refuses to review one's own.
func (d *draft) independent() error {
	t := d.t
	if t.Phase == SpecReview {
		if t.Spec().Author == d.who.Name {
			return refuse(SameActor, "%s wrote this version of the spec", d.who.Name)
		}
		return nil
	}
	if last := t.Last(); last != nil && last.Actor == d.who.Name {
		return refuse(SameActor, "%s made attempt %d", d.who.Name, last.Ordinal)
	}
	if slices.ContainsFunc(t.Artifacts, func(a Artifact) bool { return a.Work && a.Current && a.Actor == d.who.Name }) {
		return refuse(SameActor, "%s made what is to be reviewed", d.who.Name)
	}
	return nil
}
