package daemon

import (
	"slices"
	"time"

	"github.com/openclawos/ocipd/internal/ipc"
)

// MethodTable is the table of methods, without a daemon behind it.
func MethodTable() []ipc.Method { return methodTable() }

// LookAtGateways looks at the processes now, and grants none any time to connect.
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

// Sign has a checkpoint made now, which a running daemon makes within a minute.
func (d *Daemon) Sign() error { return d.store.Sign() }

// AwaitWitnesses has the stop wait this long for the witnesses. On a busy machine they can
// take longer than a stop waits otherwise.
func (d *Daemon) AwaitWitnesses(limit time.Duration) { d.seenBy.lastWord = limit }
