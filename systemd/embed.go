// Package systemd holds the units that run the daemon, and beside it the runner, as services of one user,
// for `ocipd service install` to write. They name the program as /usr/bin/ocipd
// ([Program]); a program that writes them replaces the path with its own.
package systemd

import (
	_ "embed"
	"strings"
)

// Names of the units.
const (
	SocketName  = "ocipd.socket"
	ServiceName = "ocipd.service"
	// RunnerName is of the unit that runs approved commands. It is written with the
	// others, and enabled where that is asked for.
	RunnerName = "ocipd-runner.service"
	// ConsoleSocketName and ConsoleName are of the units that hold the console's address and serve
	// its page. They are written if that is asked for.
	ConsoleSocketName = "ocipd-console.socket"
	ConsoleName       = "ocipd-console.service"
)

// Program is the path of the program in the units.
const Program = "/usr/bin/ocipd"

//go:embed ocipd.socket
var socket string

//go:embed ocipd.service
var service string

//go:embed ocipd-runner.service
var runner string

//go:embed ocipd-console.socket
var consoleSocket string

//go:embed ocipd-console.service
var console string

// Socket is the unit that opens the sockets.
func Socket() string { return socket }

// Service is the unit that runs the daemon.
func Service() string { return service }

// Runner is the unit that runs the commands of approved effects.
func Runner() string { return runner }

// ConsoleSocket is the unit that opens the console's sockets: the addresses of its page, as
// 127.0.0.1:80 and [::1]:80, and the socket for commands.
func ConsoleSocket(addresses []string) string {
	var listen strings.Builder
	for _, a := range addresses {
		listen.WriteString("ListenStream=" + a + "\n")
	}
	return strings.Replace(consoleSocket, "ListenStream=127.0.0.1:0\nListenStream=[::1]:0\n", listen.String(), 1)
}

// Console is the unit that serves the console's page.
func Console() string { return console }
