package fold

import (
	"crypto/sha256"
	"encoding/base64"
	"strconv"
)

// Parts makes one text of what belongs to a task and is decided by: the versions of its spec,
// attempts, artifacts, reviews, approvals, effects and their runs. It holds no text that somebody
// wrote, only ids, states and numbers, most of which are on record by themselves. The caller
// adds approvals, artifacts, attempts, effects, reviews and specs in the order of these names, each
// list in its own order, and an effect's runs behind it. The zero value is ready for use.
type Parts struct{ text []byte }

func (p *Parts) add(texts ...string) {
	for _, s := range texts {
		p.text = append(strconv.AppendInt(p.text, int64(len(s)), 10), ':')
		p.text = append(append(p.text, s...), ',')
	}
}

// Approval is a person's or a reviewer's approval of an effect.
func (p *Parts) Approval(id, effect, status string, used, void bool) {
	p.add("approval", id, effect, status, Bool(used), Bool(void))
}

// Artifact is one that was recorded.
func (p *Parts) Artifact(id, attempt string, current bool) {
	p.add("artifact", id, attempt, Bool(current))
}

// Attempt is one to do the work.
func (p *Parts) Attempt(id, status string, fence int64) { p.add("attempt", id, status, Int(fence)) }

// Effect is what a task wants to do in the world.
func (p *Parts) Effect(id, state string) { p.add("effect", id, state) }

// Run is one start of the effect before it, or of its compensation.
func (p *Parts) Run(number int, compensation bool, state, approval string) {
	p.add("run", Int(number), Bool(compensation), state, approval)
}

// Review is a verdict.
func (p *Parts) Review(id, verdict string) { p.add("review", id, verdict) }

// Spec is a version of the spec.
func (p *Parts) Spec(version int) { p.add("spec", Int(version)) }

// String is the column parts: the first 12 bytes of the SHA-256 of all entries in base64, as in
// URLs. Each text of an entry is its length in bytes, a colon, the text and a comma.
func (p *Parts) String() string {
	sum := sha256.Sum256(p.text)
	return base64.RawURLEncoding.EncodeToString(sum[:12])
}
