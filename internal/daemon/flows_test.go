package daemon_test

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/google/jsonschema-go/jsonschema"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/daemon"
)

// listedFlows returns the flows with a row in docs/security/flows.md: the members of each
// method, "" for a method without members, and the events.
func listedFlows(t *testing.T) (members map[string][]string, events []string) {
	t.Helper()
	page, err := os.ReadFile("../../docs/security/flows.md")
	if err != nil {
		t.Fatal(err)
	}
	members = make(map[string][]string)
	for row := range strings.Lines(string(page)) {
		first := row
		if strings.HasPrefix(row, "|") {
			first, _, _ = strings.Cut(row[1:], " | ")
		}
		for _, code := range regexp.MustCompile("`([^`]*)`").FindAllStringSubmatch(first, -1) {
			method, list, _ := strings.Cut(code[1], " ")
			switch {
			case slices.Contains(api.Events(), method):
				events = append(events, method)
			case slices.Contains(daemon.MethodNames(), method):
				members[method] = append(members[method], strings.Split(list, ", ")...)
			}
		}
	}
	return members, events
}

// docs/security/flows.md lists every input of apps and people to the daemon and
// every event, and nothing else.
func TestEveryFlowIsListed(t *testing.T) {
	h := build(t, acme)
	listed, events := listedFlows(t)
	known := make(map[string][]string)
	for _, socket := range []string{"kernel.sock", "operator.sock"} {
		var d struct {
			Methods []struct {
				Name   string             `json:"name"`
				Params *jsonschema.Schema `json:"params"`
			} `json:"methods"`
		}
		if err := json.Unmarshal(h.dialWire(socket).grant("kernel.describe", "{}").Result, &d); err != nil {
			t.Fatal(err)
		}
		for _, m := range d.Methods {
			known[m.Name] = append(known[m.Name], textMembers(m.Params, "")...)
		}
	}
	for _, method := range daemon.MethodNames() {
		if _, described := known[method]; !described {
			t.Errorf("method %s is not described", method)
		}
		if len(listed[method]) == 0 {
			t.Errorf("method %s has no row", method)
		}
		for _, member := range known[method] {
			if !slices.Contains(listed[method], member) && !slices.Contains(listed[method], "*") {
				t.Errorf("member %s of %s has no row", member, method)
			}
		}
	}
	for _, method := range slices.Sorted(maps.Keys(listed)) {
		for _, member := range listed[method] {
			if member != "" && member != "*" && !slices.ContainsFunc(known[method], func(is string) bool { return member == is || strings.HasPrefix(member, is+".") }) {
				t.Errorf("%s has no member %s", method, member)
			}
		}
	}
	for _, event := range api.Events() {
		if !slices.Contains(events, event) {
			t.Errorf("event %s has no row", event)
		}
	}
}
