package daemon

import (
	"context"
	"slices"
	"time"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/ipc"
)

// MethodTable is the table of methods, without a daemon behind it.
func MethodTable() []ipc.Method { return methodTable() }

// LookAtGateways checks the processes now, without a time of grace.
func (d *Daemon) LookAtGateways() { d.gateways.Look(0) }

// MethodNames lists the names of all methods, each once.
func MethodNames() (names []string) {
	for _, m := range MethodTable() {
		if !slices.Contains(names, m.Name) {
			names = append(names, m.Name)
		}
	}
	return names
}

// Sign makes a checkpoint now, which a running daemon makes within a minute.
func (d *Daemon) Sign() error { return d.store.Sign() }

// AwaitWitnesses sets the stop's wait for the witnesses. On a busy machine they can take
// longer than the usual limit.
func (d *Daemon) AwaitWitnesses(limit time.Duration) { d.witnesses.lastWord = limit }

// FeedRunner attaches a runner without a connection, and sends it the runs.
func (d *Daemon) FeedRunner(ctx context.Context, out api.Stream) error {
	d.runner.occupy(struct{ api.Peer }{})
	return d.runner.feed(ctx, out, nil)
}
