package peercheck

import (
	"context"
	"strconv"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/api/caller"
	"github.com/openclawos/ocipd/internal/api/consoleapi"
)

// reasonOf says why a console refused something, "" if it did not.
func reasonOf(event string) string {
	switch event {
	case consoleapi.LinkReused:
		return "a link to the console was used again, or after its end"
	case consoleapi.HostRefused:
		return "a request to the console was for another host"
	case consoleapi.OriginRefused:
		return "another page or a frame sent a request to the console"
	case consoleapi.SessionRefused:
		return "a request to the console had no valid session"
	case consoleapi.PeerRefused:
		return "the other end of a connection to the console has no process that can be seen"
	}
	return ""
}

// Report answers console.report. The caller learns nothing of whether the event had been recorded
// within the last minute.
func (j *Judge) Report(_ context.Context, who api.Peer, p *consoleapi.ConsoleReportParams) (api.OK, error) {
	event, key, details := "console_"+p.Event, p.Process+" "+p.Digest, caller.Details(who)
	if p.Event == consoleapi.PeerRefused {
		event = refusedPeer
	}
	for name, value := range map[string]string{"process": p.Process, "value": p.Value, "digest": p.Digest, "fingerprint": p.Fingerprint} {
		if value != "" {
			details[name] = value
		}
	}
	if p.UID != nil {
		key += " uid " + strconv.FormatInt(*p.UID, 10)
		details["client"] = map[string]any{"uid": *p.UID}
	}
	if p.Process != "" && j.o.Look != nil {
		if seen, err := j.o.Look(p.Process); err == nil {
			details["client"] = clientOf(seen)
		}
	}
	return api.OK{OK: true}, j.record(event, key, reasonOf(p.Event), details)
}
