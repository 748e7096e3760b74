package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/openclawos/ocipd/internal/cli"
	"github.com/openclawos/ocipd/internal/evidence/witness"
)

// Without PATH, verify also checks the log against the files beside it: the daemon's keys,
// the list of witnesses, the file of checkpoints.
func TestVerifyLooksBesideTheLog(t *testing.T) {
	t.Parallel()
	d := newStaged(t, `
agents:
  - {id: alice, app: "@acme/alice", instance_id: agent-alice-1, user_id: alice, org_unit: engineering, tenant_id: acme-corp}
`)
	d.begin(t, "@acme/alice", "@acme/link")
	w, err := witness.Open(t.TempDir(), "gone.example", time.Now)
	if err != nil {
		t.Fatal(err)
	}
	if r := d.ocipd(t, "audit", "witness", "add", w.Key().String(), "unix:/nowhere"); r.code != cli.ExitDone {
		t.Fatalf("%+v", r)
	}
	d.end(t)
	d.begin(t, "@acme/alice", "@acme/link")
	d.end(t)
	found, err := filepath.Glob(filepath.Join(d.dir, "*", "keys"))
	if more, _ := filepath.Glob(filepath.Join(d.dir, "*", "*", "keys")); err == nil {
		found = append(found, more...)
	}
	if len(found) != 1 {
		t.Fatalf("the keys are one of %q, %v", found, err)
	}
	keys := found[0]
	for _, test := range []struct {
		name, file string
		change     func([]byte) []byte
		code       int
		says       string
	}{
		{"nothing", "keys/checkpoint.pub", func(b []byte) []byte { return b }, cli.ExitDone, ": intact, "},
		{"the signing key is damaged", "keys/checkpoint.key", func(b []byte) []byte { b[len(b)/2] ^= 1; return b }, cli.ExitFault, "the log's signing key: "},
		{"the signing key is gone", "keys/checkpoint.key", nil, cli.ExitFault, "the log's signing key: "},
		{"the digest keys are damaged", "keys/digest.json", func(b []byte) []byte { return b[:len(b)/2] }, cli.ExitFault, "the digest keys: "},
		{"a digest key is another one", "keys/digest.json", func(b []byte) []byte {
			at := bytes.Index(b, []byte(`"key"`)) + 20
			if b[at]++; b[at] == 'z'+1 || b[at] == 'Z'+1 || b[at] == '9'+1 {
				b[at] = 'b'
			}
			return b
		}, cli.ExitFault, "is not there, or is not the one that the database remembers"},
		{"the digest keys are gone", "keys/digest.json", nil, cli.ExitFault, "of acme-corp is not there"},
		{"the witness is taken off", "keys/witnesses", nil, cli.ExitFault, "the witness gone.example is on record, and "},
		{"the checkpoints are cut", "audit-checkpoints.jsonl", func(b []byte) []byte { return b[:bytes.IndexByte(b, '\n')+1] }, cli.ExitDone, " checkpoints behind that, up to record "},
		{"the checkpoints are gone", "audit-checkpoints.jsonl", nil, cli.ExitDone, "audit-checkpoints.jsonl is not there, or holds none, and the log has "},
	} {
		path := filepath.Join(filepath.Dir(keys), test.file)
		kept, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if test.change == nil {
			err = os.Remove(path)
		} else {
			err = os.WriteFile(path, test.change(bytes.Clone(kept)), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		if r := d.ocipd(t, "audit", "verify"); r.code != test.code || !strings.Contains(r.stdout+r.said, test.says) {
			t.Errorf("%s: %+v", test.name, r)
		}
		if err := os.WriteFile(path, kept, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// A proof and a receipt from before rotations of the key are checked in one step, with the
// key of that time and with the current one.
func TestProofsOverKeyRotations(t *testing.T) {
	t.Parallel()
	d := newStaged(t, `
agents:
  - {id: alice, app: "@acme/alice", instance_id: agent-alice-1, user_id: alice, org_unit: engineering, tenant_id: acme-corp}
`)
	d.begin(t, "@acme/alice", "@acme/link")
	file := func(name string) string { return filepath.Join(d.dir, name) }
	keep := func(name string, args ...string) {
		t.Helper()
		r := d.ocipd(t, args...)
		if err := os.WriteFile(file(name), []byte(r.stdout), 0o600); r.code != cli.ExitDone || err != nil {
			t.Fatalf("%q: %+v, %v", args, r, err)
		}
	}
	keep("old.pub", "audit", "key", "show")
	keep("then", "audit", "receipt", "1")
	for range 2 {
		if r := d.ocipd(t, "audit", "key", "rotate"); r.code != cli.ExitDone {
			t.Fatalf("%+v", r)
		}
	}
	keep("new.pub", "audit", "key", "show")
	keep("proof", "audit", "prove", file("then"))
	keep("receipt", "audit", "receipt", "2")
	keep("line", "audit", "show", "2", "--json")
	d.end(t)
	for _, key := range []string{"old.pub", "new.pub"} {
		if r := d.ocipd(t, "audit", "prove", "--check", file("proof"), "--key", file(key), file("then")); r.code != cli.ExitDone || !strings.Contains(r.stdout, "good, the first ") {
			t.Errorf("the proof, with %s: %+v", key, r)
		}
		if r := d.ocipd(t, "audit", "receipt", "--check", file("receipt"), "--line", file("line"), "--key", file(key)); r.code != cli.ExitDone || !strings.Contains(r.stdout, "good, record 2 is among the first ") {
			t.Errorf("the receipt, with %s: %+v", key, r)
		}
	}
	// Without the checkpoints that hand over, the earlier key does not lead to the current one.
	proof, err := os.ReadFile(file("proof"))
	if err != nil {
		t.Fatal(err)
	}
	parts := bytes.Split(proof, []byte("\n\n"))
	alone := append(bytes.Join(parts[:3], []byte("\n\n")), '\n')
	if err := os.WriteFile(file("alone"), alone, 0o600); err != nil || len(parts) != 7 {
		t.Fatalf("the proof has %d parts, %v", len(parts), err)
	}
	if r := d.ocipd(t, "audit", "prove", "--check", file("alone"), "--key", file("old.pub"), file("then")); r.code != cli.ExitFault {
		t.Errorf("alone: %+v", r)
	}
}
