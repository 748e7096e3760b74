package main

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/openclawos/ocipd/internal/cli"
	"github.com/openclawos/ocipd/internal/config"
)

// audit config prints the configuration in force at a record, from the log alone, with the
// digest on record: of a running daemon, of a stopped one, and of a copy of its mirror.
func TestAuditConfig(t *testing.T) {
	t.Parallel()
	const agents = `
agents:
  - {id: alice, app: "@acme/alice", instance_id: agent-alice-1, user_id: alice, org_unit: engineering, tenant_id: acme-corp, max_rounds: %d}
`
	d := newStaged(t, fmt.Sprintf(agents, 3))
	d.begin(t, "@acme/alice", "@acme/link")
	d.end(t)
	file := filepath.Join(d.dir, "ocipd.yaml")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(strings.Replace(string(text), "max_rounds: 3", "max_rounds: 500", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	d.begin(t, "@acme/alice", "@acme/link")
	r := d.ocipd(t, "audit", "query", "--type", "config_change", "--event", "loaded", "--json")
	var digests []string
	var seqs []uint64
	for line := range strings.Lines(r.stdout) {
		var e struct {
			Seq     uint64
			Details struct{ Digest string }
		}
		if err := json.Unmarshal([]byte(line), &e, json.MatchCaseInsensitiveNames(true)); err != nil {
			t.Fatal(err)
		}
		digests, seqs = append(digests, e.Details.Digest), append(seqs, e.Seq)
	}
	if len(seqs) != 2 {
		t.Fatalf("on record are %s", r.stdout)
	}
	check := func(rounds, digest string, args ...string) {
		t.Helper()
		r := d.ocipd(t, append([]string{"audit", "config"}, args...)...)
		sum := sha256.Sum256([]byte(r.stdout))
		if _, err := config.Parse("printed", []byte(r.stdout)); r.code != cli.ExitDone || err != nil || !strings.Contains(r.stdout, "max_rounds: "+rounds+"\n") || digest != "sha256:"+hex.EncodeToString(sum[:]) || !strings.Contains(r.said, digest) {
			t.Errorf("%q: %+v, %v; want %s", args, r, err, digest)
		}
	}
	all := func(args ...string) {
		t.Helper()
		check("500", digests[0], args...)
		check("500", digests[0], append(args, "--at", fmt.Sprint(seqs[0]))...)
		check("3", digests[1], append(args, "--at", fmt.Sprint(seqs[0]-1))...)
		check("3", digests[1], append(args, "--at", fmt.Sprint(seqs[1]))...)
	}
	all()
	d.end(t)
	all()
	database, err := filepath.Glob(filepath.Join(d.dir, "*", "*", "audit.jsonl"))
	if err != nil || len(database) == 0 {
		database, _ = filepath.Glob(filepath.Join(d.dir, "*", "audit.jsonl"))
	}
	if len(database) != 1 {
		t.Fatalf("the mirror is one of %q", database)
	}
	all(database[0])
	if r := d.ocipd(t, "audit", "config", "--at", "1"); r.code != cli.ExitFailed || !strings.Contains(r.said, "cannot tell which configuration was in force at record 1") {
		t.Errorf("before the first one: %+v", r)
	}
	if r := d.ocipd(t, "audit", "config", "--at", "100000"); r.code != cli.ExitFailed || !strings.Contains(r.said, "there is no record 100000") {
		t.Errorf("behind the last one: %+v", r)
	}
}
