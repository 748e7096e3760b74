package daemon_test

import (
	"strings"
	"testing"

	"github.com/openclawos/ocipd/internal/config"
	"github.com/openclawos/ocipd/internal/daemon"
)

// The check reports two entries with one address, in two spellings of their network, before
// a start or a reload does.
func TestCheckFindsOneAddressTwice(t *testing.T) {
	h := plot(t, `
directory:
  - {kind: person, user_id: bob, sessions: ["irc:direct:bob"]}
  - {kind: person, user_id: rob, sessions: ["irc:BOB"]}
`)
	cfg, err := config.Load(config.Options{File: h.path("ocipd.yaml")})
	if err != nil {
		t.Fatal(err)
	}
	const want = "cannot list session irc:BOB for irc:BOB: it is one address with a session of irc:direct:bob"
	if err := daemon.Check(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %q", err, want)
	}
}
