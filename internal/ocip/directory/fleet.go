package directory

import (
	"strings"

	"github.com/openclawos/ocipd/internal/ocip"
)

// OfFleet returns the entry of an agent on another host of the fleet, which any session key of that
// agent reaches.
func OfFleet(host, id string, who ocip.Counterparty) Entry {
	return Entry{Counterparty: who, Sessions: []string{AgentChannel + ":" + id + ":*"}, Host: host, Agent: id}
}

// HostOf returns the host of the fleet that a session key leads to, and the instance of the agent there, ""
// for none. A local agent comes first.
func (d *Directory) HostOf(key string) (host, instance string) {
	if channel, _ := Split(key); channel != AgentChannel || d.LocalAgent(key) != nil {
		return "", ""
	}
	if e := d.reached(d.sessions.find(key)); e != nil && e.Host != "" {
		return e.Host, e.InstanceID
	}
	return "", ""
}

// Elsewhere returns the host and the id of an agent on another host of the fleet, "" for any other.
func (d *Directory) Elsewhere(instance string) (host, id string) {
	if e := d.remote[instance]; e != nil && d.local[instance] == nil {
		return e.Host, e.Agent
	}
	return "", ""
}

// hostApp begins the name that replaces the app of a message from another host. No app can register
// under it.
const hostApp = "@ocipd/host:"

// IsHosts reports whether an app id is the replacement for another host.
func IsHosts(app string) bool { return strings.HasPrefix(app, hostApp) }

// AppOfHost returns the replacement for the app of a message that another host of the fleet sent.
func AppOfHost(host string) string { return hostApp + host }
