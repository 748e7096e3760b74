package task

import (
	"slices"
	"time"
)

// tries is how often something is tried in all, and how long each further try waits: Base, and then
// Factor times as long for each one.
type tries struct {
	Attempts int
	Base     time.Duration
	Factor   int
}

// longestWait bounds the wait between two tries.
const longestWait = 24 * time.Hour

// wait is how long the next try waits after n earlier ones.
func (t tries) wait(n int) time.Duration {
	wait := t.Base
	for range n - 1 {
		if wait = wait * time.Duration(t.Factor); wait > longestWait {
			return longestWait
		}
	}
	return wait
}

// counts are the numbers that bound the attempts of a task, since its circuit was last closed.
type counts struct {
	// failures are the failed attempts since the last success, and reworks the attempts after a
	// success: a reviewer or a person asked for changes.
	failures, reworks int
	// delivered is set if the last attempt succeeded, so that the next one is a rework.
	delivered bool
}

// counts counts the attempts. An attempt that a person or the orchestrator aborted counts as none.
func (t *Task) counts() (c counts) {
	for i := range t.Attempts[min(t.Counted, len(t.Attempts)):] {
		a := &t.Attempts[t.Counted+i]
		if a.Status == AttemptAborted && a.EndedBy != Executor {
			continue
		}
		if c.delivered {
			c.reworks++
		}
		switch c.delivered = a.Status == AttemptSucceeded; {
		case c.delivered:
			c.failures = 0
		case a.Status != AttemptRunning:
			c.failures++
		}
	}
	return c
}

// exhausted is why no attempt may be started before a person has looked, nil if one may.
func exhausted(t *Task, r *Rules) *Refusal {
	const then = "open the circuit, or let the task fail"
	c := t.counts()
	switch {
	case c.failures >= r.Retry.Attempts:
		return refuse(RetriesExhausted, "%d attempts in a row have failed (tasks.retry.attempts): %s", c.failures, then)
	case c.delivered && c.reworks >= r.Rework.Attempts:
		return refuse(RetriesExhausted, "the task was reworked %d times, and changes are asked for again (tasks.rework.attempts): %s", c.reworks, then)
	}
	return nil
}

// nextAt is the earliest time of the next attempt.
func (t *Task) nextAt(r *Rules) time.Time {
	at := t.NotBefore
	last := t.Last()
	switch c := t.counts(); {
	case last == nil:
	case last.Status == AttemptRetrying:
		at = latest(at, last.RetryAt)
	case c.delivered && r.Rework.Base > 0:
		at = latest(at, sentBack(t).Add(r.Rework.wait(c.reworks+1)))
	}
	return at
}

// sentBack is the time of the newest request for changes, or the end of the last attempt if that is
// later.
func sentBack(t *Task) (at time.Time) {
	if last := t.Last(); last != nil {
		at = last.EndedAt
	}
	if i := len(t.Reviews) - 1; i >= 0 && t.Reviews[i].Verdict != VerdictApproved {
		at = latest(at, t.Reviews[i].At)
	}
	for i := range slices.Backward(t.Approvals) {
		if a := &t.Approvals[i]; a.Status == ApprovalChanges {
			return latest(at, a.ResolvedAt)
		}
	}
	return at
}

// Left is how many attempts may still fail in a row, and how many reworks may still be started.
// Escalate is set if the next attempt is the last one after failures.
func (t *Task) Left(r *Rules) (retries, reworks int, escalate bool) {
	c := t.counts()
	return max(0, r.Retry.Attempts-c.failures), max(0, r.Rework.Attempts-c.reworks), c.failures > 0 && c.failures == r.Retry.Attempts-1
}
