// Package systemd holds the units that run the daemon, and beside it the runner, as services of one user,
// for `ocipd service install` to write. They name the program as /usr/bin/ocipd
// ([Program]); whoever writes them puts its own path there.
package systemd

import _ "embed"

// Names of the units.
const (
	SocketName  = "ocipd.socket"
	ServiceName = "ocipd.service"
	// RunnerName is of the unit that runs approved commands. It is written with the
	// others, and enabled where that is asked for.
	RunnerName = "ocipd-runner.service"
)

// Program is the path of the program in the units.
const Program = "/usr/bin/ocipd"

//go:embed ocipd.socket
var socket string

//go:embed ocipd.service
var service string

//go:embed ocipd-runner.service
var runner string

// Socket is the unit that opens the sockets.
func Socket() string { return socket }

// Service is the unit that runs the daemon.
func Service() string { return service }

// Runner is the unit that runs the commands of approved effects.
func Runner() string { return runner }
