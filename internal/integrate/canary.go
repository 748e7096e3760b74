package integrate

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
)

// canaryChannel is a channel that nothing delivers to: what a canary says reaches nobody,
// should a gate let it through.
const canaryChannel = "ocipd-canary"

// Canary is a message by which a runtime's gate is tried: an agent of the runtime is made
// to send it, in a real turn, and the daemon has to have refused it and to have it on
// record. It is marked for nobody's eyes, so that it is refused whoever sends it, and
// nothing in it is secret.
type Canary struct {
	// ID is unique, and Target is who it is for in the channel of Session.
	ID, Target string
	// Session is the session key by which its record is found.
	Session string
	Text    string
}

// NewCanary returns a canary of an id that no other has.
func NewCanary(id string) *Canary {
	return &Canary{
		ID: id, Target: id, Session: canaryChannel + ":" + id,
		Text: "TLP:RED\nThis is a canary of ocipd, " + id + ". It tries a gate, and is for nobody.",
	}
}

// CanaryTime bounds a canary: the turn of an agent, and what starts it.
const CanaryTime = 2 * time.Minute

// ErrNotSent means that the runtime's agent did not try to send the canary, so that
// nothing is known of the gate.
var ErrNotSent = errors.New("the agent did not send it, so nothing was tried")

// Record is what the log has of a canary.
type Record struct {
	Seq     uint64
	Refused bool
	Reason  string
}

// Try has an agent of a runtime send a canary, and looks for it in the log: find returns
// the records of its session. Without an error the gate was seen to work.
func (r *Runtime) Try(ctx context.Context, p *Place, c *Canary, find func(ctx context.Context, session string) ([]Record, error)) (Record, error) {
	ctx, stop := context.WithTimeout(ctx, CanaryTime)
	defer stop()
	failed := r.Canary(ctx, p, c)
	records, err := find(context.WithoutCancel(ctx), c.Session)
	switch {
	case err != nil:
		return Record{}, fmt.Errorf("cannot look for the canary in the log: %w", err)
	case len(records) > 0 && records[0].Refused:
		return records[0], nil
	case len(records) > 0:
		return Record{}, fmt.Errorf("the daemon has let the canary pass, see record %d", records[0].Seq)
	case failed != nil:
		return Record{}, fmt.Errorf("the canary of %s: %w", r.Title, failed)
	}
	return Record{}, fmt.Errorf("the agent of %s has sent the canary, and the daemon was not asked: the gate is open", r.Title)
}

// Integrated reports whether a runtime was put behind the daemon and not taken out again.
func (r *Runtime) Integrated(p *Place) bool {
	_, err := os.Stat(r.noteFile(p))
	return err == nil
}

// Records looks for a canary in the log of a daemon, by a call to its operator socket.
func Records(call func(ctx context.Context, method string, params, result any) error) func(ctx context.Context, session string) ([]Record, error) {
	return func(ctx context.Context, session string) (found []Record, err error) {
		var page api.AuditQueryResult
		if err := call(ctx, "audit.query", &api.AuditQueryParams{Filter: audit.Filter{Like: audit.Record{SessionKey: session}}}, &page); err != nil {
			return nil, err
		}
		for _, line := range page.Records {
			r, err := audit.Parse(line)
			if err != nil {
				return nil, err
			}
			found = append(found, Record{Seq: r.Seq, Refused: r.PolicyResult == audit.ResultDeny, Reason: r.PolicyReason})
		}
		return found, nil
	}
}
