package api

import "github.com/openclawos/ocipd/internal/fleet/fleetapi"

// The events that the kernel sends apps by itself, besides [ApprovalEvent].
const (
	AppUnhealthy  = "app:unhealthy"
	AppHealthy    = "app:healthy"
	AppLeft       = "app:left"
	AppLost       = "app:lost"
	KernelLagging = "kernel:lagging"
	// KernelResumed comes first to a connection that is taken for an app's before it
	// has said anything.
	KernelResumed = "kernel:resumed"
)

// Events lists the names of all events, those of hooks by their canonical names.
func Events() []string {
	names := []string{AppUnhealthy, AppHealthy, AppLeft, AppLost, KernelLagging, KernelResumed, ApprovalEvent, fleetapi.ReceiptEvent}
	for _, hook := range Hooks() {
		names = append(names, "hook:"+string(hook))
	}
	return names
}
