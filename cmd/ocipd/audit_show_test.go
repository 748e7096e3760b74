package main

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"filippo.io/age"
	"github.com/go-json-experiment/json"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/cli"
)

// Decrypting a text with audit show is recorded before the text is shown; a record without its text
// is shown to anybody who may read the log. Without a daemon the command says that nobody records it.
func TestShowingATextIsOnRecord(t *testing.T) {
	t.Parallel()
	reader, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	d := newStaged(t, `
agents:
  - {id: alice, app: "@acme/alice", instance_id: agent-alice-1, user_id: alice, org_unit: engineering, tenant_id: acme-corp}
audit: {content: full, recipients: ["`+reader.Recipient().String()+`"]}
`)
	if err := os.WriteFile(d.at("identity"), []byte(reader.String()+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	d.begin(t, "@acme/alice", "@acme/link")
	const text = "Where do we stand with item 3?"
	if _, err := d.say(t, "link:dave", text, nil); err != nil {
		t.Fatal(err)
	}
	records := func(args ...string) (list []audit.Entry) {
		t.Helper()
		r := d.ocipd(t, append([]string{"audit", "query", "--json"}, args...)...)
		for line := range strings.Lines(r.stdout) {
			var e audit.Entry
			if err := json.Unmarshal([]byte(line), &e); err != nil {
				t.Fatal(err)
			}
			list = append(list, e)
		}
		if r.code != cli.ExitDone {
			t.Fatalf("%+v", r)
		}
		return list
	}
	said := records("--type", audit.ActionExchange)
	if len(said) != 1 || said[0].Content == "" {
		t.Fatalf("on record are %+v", said)
	}
	seq := fmt.Sprint(said[0].Seq)
	if r := d.ocipd(t, "audit", "show", seq); r.code != cli.ExitDone || strings.Contains(r.stdout, text) || len(records("--event", "log_exported")) != 0 {
		t.Errorf("without the text: %+v, on record are %+v", r, records("--event", "log_exported"))
	}
	if r := d.ocipd(t, "audit", "show", seq, "--identity", d.at("identity")); r.code != cli.ExitDone || !strings.Contains(r.stdout, text) || r.said != "" {
		t.Errorf("with the text: %+v", r)
	}
	list := records("--event", "log_exported")
	if len(list) != 1 {
		t.Fatalf("on record are %+v", list)
	}
	filter, _ := list[0].Details["filter"].(map[string]any)
	if filter["record"] != said[0].ID || list[0].Details["by"] != fmt.Sprintf("uid:%d", os.Geteuid()) {
		t.Errorf("on record is %+v", list[0])
	}
	d.end(t)
	if r := d.ocipd(t, "audit", "show", seq, "--identity", d.at("identity")); r.code != cli.ExitDone || !strings.Contains(r.stdout, text) || r.said != "the text is not on record: the daemon does not run\n" {
		t.Errorf("without a daemon: %+v", r)
	}
}
