package peercheck

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/api/caller"
	"github.com/openclawos/ocipd/internal/api/consoleapi"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/base/peer"
	"github.com/openclawos/ocipd/internal/ocip"
	"github.com/openclawos/ocipd/internal/store"
)

// Options holds the dependencies of a judge.
type Options struct {
	// Look describes a running process ([peer.Look]). Nil sees none.
	Look func(process string) (peer.Seen, error)
	// MayOperate reports why a process with these ancestors may not use the operator socket.
	MayOperate func(line []string) error
	// Signs reports whether people sign their decisions, and Clicks whether a person may decide on a
	// page without a signature if they do not.
	Signs, Clicks func() bool
	// Commit makes a change durable. Callers may be told its error.
	Commit func(*store.Change) (store.Receipt, error)
	Now    func() time.Time
	NewID  func() string
}

// Judge judges processes. Its methods are safe for concurrent use.
type Judge struct {
	o      Options
	recent recent
}

// New makes a judge.
func New(o Options) *Judge {
	return &Judge{o: o}
}

// Check answers peer.check. A refusal is on record before the caller learns it.
func (j *Judge) Check(_ context.Context, who api.Peer, p *consoleapi.PeerCheckParams) (result consoleapi.PeerCheckResult, err error) {
	for _, process := range p.Processes {
		seen, why := j.judge(who, process)
		if why == "" {
			continue
		}
		if err := j.refused(who, process, seen, why); err != nil {
			return result, err
		}
		return consoleapi.PeerCheckResult{Refused: &consoleapi.RefusedProcess{Process: process, Why: why}}, nil
	}
	return result, nil
}

// For returns a caller as the deputy of a process, for one call. It refuses a process that Check
// refuses, on record. If people do not sign their decisions, it refuses a call that decides or
// loosens something too, unless clicks are enough: nothing would prove that a person asked.
func (j *Judge) For(who api.Peer, process, method string, signing api.Signing) (api.Peer, error) {
	seen, why := j.judge(who, process)
	if why != "" {
		if err := j.refused(who, process, seen, why); err != nil {
			return nil, err
		}
		return nil, api.Errorf(api.Forbidden, "cannot call %s on behalf of this process: %s", method, why)
	}
	deputy := caller.Deputy{Peer: who, Asking: api.Asking{Via: api.ViaConsole, Client: clientOf(seen)}}
	if signing != api.Signed && signing != api.SignedParams || j.o.Signs() {
		return deputy, nil
	}
	if !j.o.Clicks() {
		why = method + " on a page takes a passkey of approvals.allowed_signers, which is not set: use the ocipd command, or allow clicks with console.decide: session"
		details := caller.Details(deputy)
		details["decision"] = method
		if err := j.record("decision_refused", process+" "+method, why, details); err != nil {
			return nil, err
		}
		return nil, api.Errorf(api.Forbidden, "%s", why)
	}
	deputy.Proof = api.ProofNone
	return deputy, nil
}

// judge describes a process, and says why the caller may not ask for it, or "".
func (j *Judge) judge(who api.Peer, process string) (seen peer.Seen, why string) {
	if j.o.Look == nil {
		return seen, "the daemon sees no processes here"
	}
	seen, err := j.o.Look(process)
	switch uid, _, _ := who.Credentials(); {
	case errors.Is(err, peer.ErrGone):
		return seen, fmt.Sprintf("process %s has ended", process)
	case err != nil:
		return seen, err.Error()
	case seen.UID != uid:
		return seen, fmt.Sprintf("process %s is of user %d, and the caller is user %d", process, seen.UID, uid)
	}
	if err := j.o.MayOperate(seen.Line); err != nil {
		return seen, api.AsError(err).Message
	}
	return seen, ""
}

// refusedPeer is the event of a refused process, or of a peer without one.
const refusedPeer = "console_refused"

// refused records that a process was refused, unless it was within the last minute.
func (j *Judge) refused(who api.Peer, process string, seen peer.Seen, why string) error {
	details := caller.Details(who)
	details["process"] = process
	if seen.PID != 0 {
		details["client"] = clientOf(seen)
	}
	return j.record(refusedPeer, process, why, details)
}

// clientOf is a process in a record.
func clientOf(seen peer.Seen) *api.ClientProcess {
	return &api.ClientProcess{PID: seen.PID, UID: seen.UID, Exe: seen.Exe}
}

// record makes a record, unless there was one of the same event and key within the last minute. A
// reason makes it a refusal.
func (j *Judge) record(event, key, reason string, details map[string]any) error {
	key = event + " " + key
	due, missed := j.recent.due(key, j.o.Now())
	if !due {
		return nil
	}
	r := &audit.Record{ID: j.o.NewID(), ActionType: audit.ActionSecurity, Event: event, PolicyReason: reason, Details: details}
	if reason != "" {
		r.PolicyResult = string(ocip.Deny)
	}
	if missed > 0 {
		details["unrecorded"] = missed
	}
	_, err := j.o.Commit(&store.Change{Records: []*audit.Record{r}})
	if err != nil {
		j.recent.forget(key)
	}
	return err
}
