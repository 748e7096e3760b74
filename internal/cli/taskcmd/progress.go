package taskcmd

import (
	"fmt"
	"time"

	"github.com/openclawos/ocipd/internal/base/term"
	"github.com/openclawos/ocipd/internal/task/taskapi"
)

// going describes how a running attempt goes: for how long, its checkpoints a minute, when it was last
// heard of, and what is left of its lease.
func going(p *taskapi.Progress, now time.Time) string {
	since := now.Sub(p.StartedAt)
	text := fmt.Sprintf("attempt %d for %s: %s", p.Attempt, term.Age(since), term.Count(p.Checkpoints, "checkpoint"))
	if since >= time.Minute && p.Checkpoints > 0 {
		text += fmt.Sprintf(" (%.1f a minute)", float64(p.Checkpoints)/since.Minutes())
	}
	left := "its lease is over"
	if l := p.LeaseExpiresAt.Sub(now); l > 0 {
		left = term.Age(l) + " of its lease left"
	}
	return text + ", heard of " + term.Age(max(0, now.Sub(p.HeardAt))) + " ago, " + left
}
