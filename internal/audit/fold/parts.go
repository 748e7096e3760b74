package fold

import (
	"crypto/sha256"
	"encoding/base64"
	"slices"
	"strconv"
)

// Parts computes the columns of a task that stand for the rows which belong to it: the versions of
// its spec, attempts, artifacts, reviews, approvals, effects and their runs, and its dependencies.
// It holds no text that somebody wrote, only ids, states, numbers and digests that cannot be
// guessed. The caller adds approvals, artifacts, attempts, effects, reviews and specs in the order
// of these names, each list in its own order, an effect's runs after it, and the dependencies last.
// The zero value is ready for use.
type Parts struct {
	text, bound texts
	// unsettled counts the effects before the last one. undo says whether the last one has a
	// compensation, and run and state describe its last run.
	unsettled int
	undo, run bool
	state     string
}

// texts are written one after another, each as its length in bytes, a colon, the text and a comma.
type texts []byte

func (b *texts) add(list ...string) {
	for _, s := range list {
		*b = append(strconv.AppendInt(*b, int64(len(s)), 10), ':')
		*b = append(append(*b, s...), ',')
	}
}

// short returns the first 12 bytes of their SHA-256 in base64, as in URLs.
func (b *texts) short() string {
	sum := sha256.Sum256(*b)
	return base64.RawURLEncoding.EncodeToString(sum[:12])
}

// Kept is the stored part of an entry: the number of the task's event that last wrote its row, so
// that an older row differs, and a digest: the request's for an approval and an effect, the keyed
// one for a spec. In a stored row it is the member kept, with the keyed digest alone.
type Kept struct {
	Seq    int    `json:"seq,omitzero"`
	Digest string `json:"keyed,omitzero"`
}

func (p *Parts) add(kept Kept, kind, id string, more ...string) {
	p.text.add(append([]string{kind, id}, more...)...)
	p.bound.add(kind, id, Int(kept.Seq), kept.Digest)
}

// Approval adds a person's or a reviewer's approval of an effect.
func (p *Parts) Approval(kept Kept, id, effect, status string, used, void bool) {
	p.add(kept, "approval", id, effect, status, Bool(used), Bool(void))
}

// Artifact adds a recorded artifact.
func (p *Parts) Artifact(kept Kept, id, attempt string, current bool) {
	p.add(kept, "artifact", id, attempt, Bool(current))
}

// Attempt adds an attempt to do the work.
func (p *Parts) Attempt(kept Kept, id, status string, fence int64) {
	p.add(kept, "attempt", id, status, Int(fence))
}

// Effect adds an effect that the task wants in the world. Undo says that it has a compensation.
func (p *Parts) Effect(kept Kept, id, state string, undo bool) {
	p.add(kept, "effect", id, state)
	p.unsettled = p.Unsettled()
	p.undo, p.run, p.state = undo, false, ""
}

// Run adds one start of the effect before it, or of its compensation.
func (p *Parts) Run(number int, compensation bool, state, approval string) {
	p.text.add("run", Int(number), Bool(compensation), state, approval)
	p.run, p.state = !compensation, state
}

// Review adds a verdict.
func (p *Parts) Review(kept Kept, id, verdict string) { p.add(kept, "review", id, verdict) }

// Spec adds a version of the spec.
func (p *Parts) Spec(kept Kept, version int) { p.add(kept, "spec", Int(version)) }

// Dependencies adds the tasks that the task depends on, in any order.
func (p *Parts) Dependencies(ids []string) {
	for _, id := range slices.Sorted(slices.Values(ids)) {
		p.bound.add("dependency", id)
	}
}

// String returns the column parts, from the states of all entries.
func (p *Parts) String() string { return p.text.short() }

// Bound returns the column bound, from the stored parts of the entries and the dependencies.
func (p *Parts) Bound() string { return p.bound.short() }

// Unsettled returns the column of that name: the number of effects with a run that is in progress
// or has an unknown outcome, or that can still be compensated. Decisions depend on them even after
// the task has ended.
func (p *Parts) Unsettled() int {
	if p.state == "started" || p.state == "outcome_unknown" || p.undo && p.run {
		return p.unsettled + 1
	}
	return p.unsettled
}

// Digest stands in a column for texts that are not written into the log themselves.
func Digest(list ...string) string {
	var b texts
	b.add(list...)
	return b.short()
}
