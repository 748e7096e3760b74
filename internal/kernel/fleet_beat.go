package kernel

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/fleet/beat"
	"github.com/openclawos/ocipd/internal/fleet/fleetapi"
	"github.com/openclawos/ocipd/internal/fleet/frame"
	"github.com/openclawos/ocipd/internal/fleet/roster"
	"github.com/openclawos/ocipd/internal/ocip"
	"github.com/openclawos/ocipd/internal/store"
)

// beatID is the id of beats, before the name of their host.
const beatID = "beat"

// beatsOf is the key of the beats of a host. New keys, which an operator signs, begin anew.
func beatsOf(host string, epoch int) string { return fmt.Sprintf("%s/%d", host, epoch) }

// vitals is what this daemon says of itself.
func (f *Fleet) vitals(ctx context.Context) (*fleetapi.Beat, error) {
	b, err := f.Vitals(ctx)
	b.Roster = f.Roster.Version
	return &b, err
}

// beat offers this host's beat to every other host when it is due, and returns when the next one is.
func (c *carrier) beat(ctx context.Context) (next time.Time, err error) {
	now, f := c.now(), c.rules().member
	if now.Before(c.beatAt) {
		return c.beatAt, nil
	}
	c.beatAt = now.Add(beat.Every)
	if f == nil || f.Self == nil {
		return c.beatAt, nil
	}
	now, said, err := c.says(ctx, f)
	if err != nil {
		// A database that cannot be read ends no carrier.
		said.Faults = append(said.Faults, "status: "+err.Error())
	}
	said.Attached = c.since
	body, err := beat.Write(said)
	if err != nil {
		return c.beatAt, err
	}
	for i := range f.Roster.Hosts {
		to := &f.Roster.Hosts[i]
		if to.Name == f.Self.Name {
			continue
		}
		made, err := f.seal(f.header(frame.Beat, to, uint64(now.UnixMilli()), frame.IDOf(beatID, f.Self.Name)), body, to)
		if err != nil {
			return c.beatAt, err
		}
		if err := c.out.Send(ctx, *made); err != nil {
			return c.beatAt, err
		}
	}
	return c.beatAt, nil
}

// says returns the content of a beat, and its time.
func (k *Hosts) says(ctx context.Context, f *Fleet) (now time.Time, said *fleetapi.Beat, err error) {
	k.beating.Lock()
	defer k.beating.Unlock()
	now = k.now()
	said, err = f.vitals(ctx)
	return now, said, err
}

// largestOf is the database key of the largest checkpoint that a host has shown.
func largestOf(key string) string { return "fleet-checkpoint/" + key }

// takeBeat takes a beat of another host. The first checkpoint that contradicts an earlier one goes on
// record with it.
func (k *Hosts) takeBeat(ctx context.Context, from *roster.Host, read *frame.Frame, body []byte) error {
	said, err := beat.Read(body)
	if err != nil {
		return k.refuseFrame(from.Name, "frame_refused", "", "the beat cannot be used: "+err.Error(), &read.Header)
	}
	key := beatsOf(from.Name, from.Epoch)
	defer k.lanes.Lock(largestOf(key))()
	known, err := k.beatsKnown(ctx, key)
	if err != nil {
		return err
	}
	now := *known
	shrunk := now.Take(read.Seq, &said, k.now())
	change := &store.Change{Drains: true}
	if now.Most != known.Most {
		// A daemon that starts again compares with it.
		change.Add(store.Meta{Key: largestOf(key), Value: now.Kept()})
	}
	if shrunk {
		change.Records = append(change.Records, &audit.Record{
			ID: k.newID(), ActionType: audit.ActionSecurity, Event: "peer_log_shrunk", PolicyResult: string(ocip.Deny),
			PolicyReason: "host " + from.Name + " has shown two checkpoints of its log that no log has both: the later one is smaller, has another root, or is of another log",
			Details:      map[string]any{"host": from.Name, "before": now.Shrunk.Before, "after": now.Shrunk.After},
		})
	}
	if len(change.Records) > 0 || len(change.Parts) > 0 {
		if _, err := k.commit(change); err != nil {
			return err
		}
	}
	if now.Heard != known.Heard {
		k.hear(from.Name, now.Heard)
	}
	k.mu.Lock()
	k.beats[key] = &now
	k.mu.Unlock()
	if !now.Attached.Equal(known.Attached) {
		k.ring()
	}
	return nil
}

// attachedAt is when the newest carrier of another host was attached, zero if no beat has said so.
func (k *Hosts) attachedAt(h *roster.Host) (at time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if known := k.beats[beatsOf(h.Name, h.Epoch)]; known != nil {
		at = known.Attached
	}
	return at
}

// beatsKnown returns what is known of the beats of a host. The caller has locked them.
func (k *Hosts) beatsKnown(ctx context.Context, key string) (*beat.Host, error) {
	k.mu.Lock()
	known := k.beats[key]
	if k.beats == nil {
		k.beats = make(map[string]*beat.Host)
	}
	k.mu.Unlock()
	if known != nil {
		return known, nil
	}
	kept, err := k.store.Meta(ctx, largestOf(key))
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return nil, err
	}
	return beat.Known(kept, k.now()), nil
}
