package daemon_test

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/openclawos/ocipd/internal/audit"
	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"
)

// The configuration of each start is recorded before anything is decided under it: the
// first as a whole, a later one as the changes while the daemon was stopped. The record of
// the start names the program.
func TestConfigurationIsOnRecordAtTheStart(t *testing.T) {
	h := build(t, acme)
	program, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(program)
	if d := h.records(audit.Filter{Like: audit.Record{Event: audit.EventStarted}})[0].Details; d["program"] != "sha256:"+hex.EncodeToString(sum[:]) {
		t.Errorf("the start is %v", d)
	}
	h.agent("@acme/alice")
	h.stop()
	changed := strings.Replace(acme, "max_classification_shared: internal, max_rounds: 3", "max_classification_shared: restricted, max_rounds: 500", 1)
	changed = strings.Replace(changed, `org_unit: marketing, tenant_id: acme-corp, accepts: [public, internal]`, `org_unit: marketing, tenant_id: acme-corp, accepts: [public, internal, confidential]`, 1)
	h.configure(changed + "\nchannels:\n  telegram: {token: one-secret}\n")
	h.start()
	h.stop()
	h.configure(changed + "\nchannels:\n  telegram: {token: another-secret}\n")
	h.start()
	all := h.records(audit.Filter{})
	var loaded []audit.Entry
	for i := range all {
		if all[i].Event == audit.EventStarted {
			rest := all[i:]
			at := slices.IndexFunc(rest, func(e audit.Entry) bool { return e.ActionType == audit.ActionConfigChange })
			for _, e := range rest[:max(at, 0)] {
				if e.Event != audit.EventStarted && e.ActionType != audit.ActionPolicyChange {
					t.Errorf("before the configuration stands %s %s", e.ActionType, e.Event)
				}
			}
			if at < 0 || rest[at].Event != "loaded" || rest[at].Details["by"] != "start" {
				t.Fatalf("behind the start of record %d is no configuration", all[i].Seq)
			}
			loaded = append(loaded, rest[at])
		}
	}
	if len(loaded) != 3 {
		t.Fatalf("%d configurations are on record", len(loaded))
	}
	first, second, third := loaded[0].Details, loaded[1].Details, loaded[2].Details
	if first["whole"] != true || first["was"] != nil || !strings.Contains(fmt.Sprint(first["configEdits"]), "agent-alice-1") {
		t.Errorf("the first one is %v", first)
	}
	if second["whole"] != nil || second["was"] != first["digest"] || second["digest"] == first["digest"] {
		t.Errorf("the second one is %v", second)
	}
	diff := diffOf(loaded[1])
	for _, want := range []string{"agents.alice.max_classification_shared: internal -> restricted", "agents.alice.max_rounds: 3 -> 500", "directory.agent-carol-1.accepts: [public internal] -> [public internal confidential]"} {
		if !slices.Contains(diff, want) {
			t.Errorf("the difference is %q, without %q", diff, want)
		}
	}
	if third["maskedChanged"] != true || third["digest"] != second["digest"] || third["keyedDigest"] == second["keyedDigest"] {
		t.Errorf("with another secret it is %v", third)
	}
	for _, e := range all {
		if text := fmt.Sprint(e.Details); strings.Contains(text, "one-secret") || strings.Contains(text, "another-secret") {
			t.Errorf("record %d has a secret", e.Seq)
		}
	}
}

// A start finds the difference to the configuration before it in the log, also if somebody has
// deleted that configuration from the database, or put an older one back with its seal.
func TestFormerConfigurationIsThatOfTheLog(t *testing.T) {
	t.Parallel()
	h := build(t, acme)
	h.stop()
	before := filepath.Join(t.TempDir(), "before.db")
	edit := func(queries ...string) {
		t.Helper()
		conn, err := sqlite.OpenConn(h.path("state/ocipd.db"), sqlite.OpenReadWrite)
		if err != nil {
			t.Fatal(err)
		}
		for _, query := range queries {
			err = errors.Join(err, sqlitex.ExecuteTransient(conn, query, nil))
		}
		if err = errors.Join(err, conn.Close()); err != nil {
			t.Fatal(err)
		}
	}
	edit("VACUUM INTO '" + before + "'")
	const row = " WHERE key = 'configuration'"
	for _, tt := range []struct {
		queries    []string
		yaml, want string
	}{
		{[]string{"DELETE FROM meta" + row}, strings.Replace(acme, "max_rounds: 3", "max_rounds: 500", 1), "agents.alice.max_rounds: 3 -> 500"},
		{[]string{"ATTACH '" + before + "' AS before", "REPLACE INTO main.meta SELECT * FROM before.meta" + row}, acme, "agents.alice.max_rounds: 500 -> 3"},
	} {
		edit(tt.queries...)
		h.configure(tt.yaml)
		h.start()
		noted := h.records(audit.Filter{Like: audit.Record{ActionType: audit.ActionConfigChange, Event: "loaded"}})
		if diff := diffOf(noted[len(noted)-1]); !slices.Contains(diff, tt.want) {
			t.Errorf("after %s the difference is %q", tt.queries, diff)
		}
		h.stop()
	}
}
