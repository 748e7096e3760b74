// Package systemd holds the units that run the daemon as a service of one user,
// for `ocipd service install` to write. They name the program as /usr/bin/ocipd
// ([Program]); whoever writes them puts its own path there.
package systemd

import _ "embed"

// Names of the units.
const (
	SocketName  = "ocipd.socket"
	ServiceName = "ocipd.service"
)

// Program is the path of the program in the units.
const Program = "/usr/bin/ocipd"

//go:embed ocipd.socket
var socket string

//go:embed ocipd.service
var service string

// Socket is the unit that opens the sockets.
func Socket() string { return socket }

// Service is the unit that runs the daemon.
func Service() string { return service }
