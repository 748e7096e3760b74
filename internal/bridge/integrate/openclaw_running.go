package integrate

import "github.com/openclawos/ocipd/internal/base/peer"

// GatewayProcess is the process name of OpenClaw's Gateway, as the system shortens it.
const GatewayProcess = "openclaw-gatewa"

// GatewayRuns reports whether a Gateway of OpenClaw runs on this machine.
func GatewayRuns() bool {
	for _, p := range peer.Processes() {
		if p.Name == GatewayProcess {
			return true
		}
	}
	return false
}
