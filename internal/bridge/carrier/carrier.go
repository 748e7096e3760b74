// Package carrier carries the frames of a fleet between the operator sockets of two daemons. It has
// no keys, and neither daemon believes it anything: see internal/fleet/frame. If it loses a frame or
// ends, the daemon offers the message again.
package carrier

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-json-experiment/json"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/api/client"
	"github.com/openclawos/ocipd/internal/fleet/fleetapi"
	"golang.org/x/sync/errgroup"
)

// Options are the inputs of a carrier.
type Options struct {
	// Dial connects to the operator socket of one of the two daemons. Each call makes a new
	// connection.
	Dial [2]func(context.Context) (*client.Client, error)
	// Say tells a person of a change.
	Say func(format string, args ...any)
}

// errSame means that both daemons are the same host.
var errSame = errors.New("both sockets are of one host")

// Run carries frames until the context ends, even if a daemon restarts. The error is that of two sockets of
// one host.
func Run(ctx context.Context, o Options) error {
	return Repeat(ctx, "nothing is carried", errSame, o.Say, func() (bool, error) { return carry(ctx, &o) })
}

// end is one of the two daemons.
type end struct {
	*client.Client
	host   string
	stream *client.Stream
}

// open connects to a daemon.
func open(ctx context.Context, dial func(context.Context) (*client.Client, error)) (*end, error) {
	c, err := dial(ctx)
	if err != nil {
		return nil, err
	}
	e := &end{Client: c}
	var status fleetapi.FleetStatus
	if err = c.Call(ctx, "fleet.status", &api.Empty{}, &status); err == nil {
		e.host = status.Host
		e.stream, err = c.Stream(ctx, "fleet.attach", &fleetapi.FleetAttachParams{})
	}
	if err != nil {
		c.Close() //nolint:errcheck // the call's error says more
		return nil, err
	}
	return e, nil
}

// carry carries frames both ways until one connection ends. Carried is set once both are open.
func carry(ctx context.Context, o *Options) (carried bool, err error) {
	var ends [2]*end
	for i, dial := range o.Dial {
		if ends[i], err = open(ctx, dial); err != nil {
			return false, err
		}
		defer ends[i].Close()
	}
	if ends[0].host == ends[1].host {
		return false, fmt.Errorf("%w: %s", errSame, ends[0].host)
	}
	o.Say("carries between %s and %s", ends[0].host, ends[1].host)
	group, ctx := errgroup.WithContext(ctx)
	for i := range ends {
		group.Go(func() error { return pump(ctx, ends[i], ends[1-i], o.Say) })
	}
	return true, group.Wait()
}

// pump carries the frames of one daemon to the other, and the receipts back.
func pump(ctx context.Context, from, to *end, say func(string, ...any)) error {
	for {
		raw, err := from.stream.Next(ctx)
		if err != nil {
			return err
		}
		var f fleetapi.FleetFrame
		if err := json.Unmarshal(raw, &f); err != nil {
			return fmt.Errorf("cannot read a frame of %s: %w", from.host, err)
		}
		if f.To != to.host {
			continue // for another carrier
		}
		receipt, err := bring(ctx, to, f.Frame, say)
		if err != nil {
			return err
		}
		if receipt == nil {
			continue // it comes again
		}
		if _, err := bring(ctx, from, receipt.Frame, say); err != nil {
			return err
		}
	}
}

// bring brings a frame to a daemon. A refusal is said, and ends nothing: the message is offered again.
func bring(ctx context.Context, to *end, frame string, say func(string, ...any)) (*fleetapi.FleetFrame, error) {
	var result fleetapi.FleetBringResult
	err := to.Call(ctx, "fleet.bring", &fleetapi.FleetBringParams{Frame: frame}, &result)
	if failure := api.AsError(err); err != nil && failure.Code != api.UnknownError && failure.Code != api.ConnectionClosed {
		say("%s refuses a frame: %s", to.host, failure.Message)
		return nil, nil
	}
	return result.Receipt, err
}
