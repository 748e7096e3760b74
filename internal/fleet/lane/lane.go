// Package lane holds the rules for the order of messages from one daemon to another, as a pure state
// machine.
//
// A lane is named by its two hosts and the epochs of their keys ([Name]). Its messages have the
// numbers 1, 2, 3 and so on; the commit that allows a message gives it the next. The receiver takes
// each number once, in this order ([Place]), and gives the same receipt to a repetition. The sender
// offers up to [Window] messages that have no receipt, and offers each again until it has one
// ([Offers]). So a carrier may lose, repeat, hold back and reorder frames: each message takes effect
// once, in order.
//
// New keys begin a new lane. A host whose database was put back from a copy gives a number twice,
// and the receiver notices: see [Behind].
package lane

import (
	"fmt"
	"strings"
	"time"
)

// Window is how many messages of a lane may be on their way without a receipt.
const Window = 64

// The directions of a lane, from the point of view of the daemon that keeps it.
const (
	out = "to"
	in  = "from"
)

// To names the lane to a host, with that host's epoch and the epoch of this one.
func To(host string, theirs, ours int) string { return of(AllTo(host), theirs, ours) }

// From names the lane from a host.
func From(host string, theirs, ours int) string { return of(AllFrom(host), theirs, ours) }

// AllTo names all lanes to a host, of any epochs.
func AllTo(host string) string { return out + "/" + host }

// AllFrom names all lanes from a host, of any epochs.
func AllFrom(host string) string { return in + "/" + host }

func of(all string, theirs, ours int) string { return fmt.Sprintf("%s/%d/%d", all, theirs, ours) }

// Host returns the other host of a lane.
func Host(lane string) string {
	_, rest, _ := strings.Cut(lane, "/")
	host, _, _ := strings.Cut(rest, "/")
	return host
}

// Step is the receiver's act on a frame.
type Step int

// The receiver takes the next number; repeats the receipt of one that it has taken; waits for the
// numbers before one that comes early; and refuses a number that it has taken for another message.
const (
	Take Step = iota
	Repeat
	Wait
	Behind
)

// Place returns the act for the message of a number and an id. Last is the last number that was
// taken, 0 for none. Taken is the id of the message that was taken under the number, "" if it is
// not known any more. A number at or before the last that is not known belongs to a sender whose
// state is older than the lane, since receipts are kept for longer than a sender repeats.
func Place(last, seq uint64, id, taken string) Step {
	switch {
	case seq == last+1:
		return Take
	case seq > last:
		return Wait
	case taken == id:
		return Repeat
	}
	return Behind
}

// The wait before a message is offered again: firstWait, then twice as long each time up to
// lastWait.
const (
	firstWait = time.Second
	lastWait  = 5 * time.Minute
)

// Offers remembers when the messages of one lane were offered to a carrier. It is memory only: a
// new carrier is offered everything again. The zero value is ready for use.
type Offers struct {
	last map[uint64]offer
}

type offer struct {
	made, due time.Time
	wait      time.Duration
}

// Due reports whether a message without a receipt is to be offered now.
func (o *Offers) Due(seq uint64, now time.Time) bool {
	before, offered := o.last[seq]
	return !offered || !now.Before(before.due)
}

// Made notes that a message was offered. Jitter, from 0 to 1, lengthens the wait by up to a quarter,
// so that many lanes do not repeat together.
func (o *Offers) Made(seq uint64, now time.Time, jitter float64) {
	if o.last == nil {
		o.last = make(map[uint64]offer)
	}
	wait := firstWait
	if before, offered := o.last[seq]; offered {
		wait = min(2*before.wait, lastWait)
	}
	o.last[seq] = offer{now, now.Add(wait + time.Duration(jitter*float64(wait/4))), wait}
}

// Anew begins again with the first wait after each message's last offer, because the receiver is there again.
func (o *Offers) Anew() {
	for seq, last := range o.last {
		o.last[seq] = offer{last.made, last.made.Add(firstWait), firstWait / 2}
	}
}

// Keep forgets all messages but those that still have no receipt, and returns when the next of them
// is due, zero for never.
func (o *Offers) Keep(open []uint64) (next time.Time) {
	kept := make(map[uint64]offer, len(open))
	for _, seq := range open {
		made, offered := o.last[seq]
		if !offered {
			continue
		}
		kept[seq] = made
		if next.IsZero() || made.due.Before(next) {
			next = made.due
		}
	}
	o.last = kept
	return next
}
