package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/evidence/verify"
)

// TestRecipes runs the recipes of docs/for-auditors/recipes.md, as printed, on a daemon's files.
func TestRecipes(t *testing.T) {
	t.Parallel()
	for _, tool := range []string{"sh", "python3", "jq", "openssl", "sqlite3", "ssh-keygen", "zstd", "sha256sum"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("there is no %s", tool)
		}
	}
	page, err := os.ReadFile("../../docs/for-auditors/recipes.md")
	if err != nil {
		t.Fatal(err)
	}
	script, err := os.ReadFile("../../docs/verify.py")
	if err != nil {
		t.Fatal(err)
	}
	d := newStaged(t, `
agents:
  - {id: alice, app: "@acme/alice", instance_id: agent-alice-1, user_id: alice, org_unit: engineering, tenant_id: acme-corp}
  - {id: bob, app: "@acme/bob", instance_id: agent-bob-1, user_id: bob, org_unit: engineering, tenant_id: acme-corp}
directory:
  - {instance_id: agent-dave-1, user_id: dave, org_unit: engineering, tenant_id: acme-corp, accepts: [public, internal], sessions: ["link:dave"]}
audit: {rotate: {bytes: 24576}}
`)
	state := d.at("openclawos")
	put := func(name string, text []byte) {
		t.Helper()
		if err := errors.Join(os.MkdirAll(filepath.Dir(filepath.Join(state, name)), 0o700), os.WriteFile(filepath.Join(state, name), text, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	tool := func(stdin string, args ...string) []byte {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
		cmd.Stdin = strings.NewReader(stdin)
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%q: %v", args, err)
		}
		return out
	}
	tool("", "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", d.at("ann"))
	public, err := os.ReadFile(d.at("ann.pub"))
	if err != nil {
		t.Fatal(err)
	}
	put("allowed_signers", []byte("ann@acme "+string(public)))

	cfg, err := os.ReadFile(d.at("ocipd.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	with := strings.Replace(string(cfg), "approvals: {", fmt.Sprintf("approvals: {allowed_signers: %q, ", filepath.Join(state, "allowed_signers")), 1)
	if err := os.WriteFile(d.at("ocipd.yaml"), []byte(with), 0o600); err != nil {
		t.Fatal(err)
	}
	d.begin(t, "@acme/alice", "@acme/link")
	for i := range 40 {
		if _, err := d.say(t, "agent:bob:main", fmt.Sprintf("Where do we stand with item %d?", i), nil); err != nil {
			t.Fatal(err)
		}
	}
	for _, what := range []string{api.DecideTakeover, api.DecideApprove} {
		held, err := d.say(t, "agent:bob:main", "I promise to deliver it by Friday, "+what, nil)
		if err != nil || !held.Held {
			t.Fatalf("it is not held: %+v, %v", held, err)
		}
		var saw api.Approval
		d.must(t, d.operator, "approval.get", map[string]any{"approvalId": held.ApprovalID}, &saw)
		params := map[string]any{"approvalId": held.ApprovalID, "decision": what, "digest": saw.Digest}
		text := saw.ToSign[what]
		if what == api.DecideTakeover {
			params["content"] = "I shall see to it."
			text = api.SignedContent(text, saw.Salt, "I shall see to it.")
		} else {
			params["note"] = "as we agreed"
			text = api.SignedNote(text, "as we agreed")
		}
		params["signature"] = string(tool(text, "ssh-keygen", "-q", "-Y", "sign", "-f", d.at("ann"), "-n", api.ApprovalNamespace))
		d.must(t, d.operator, "approval.resolve", params, nil)
	}
	if _, err := d.say(t, "link:dave", "What is the status?", nil); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), commandPatience)
	defer cancel()
	for head := ""; head == ""; {
		in, err := d.channel.Next(ctx)
		if err != nil {
			t.Fatal(err)
		}
		var e struct {
			Data struct {
				Metadata struct {
					OCIPLog jsontext.Value `json:"ocipLog"`
				}
			}
		}
		if in.Event == "hook:message_sending" && json.Unmarshal(in.Payload, &e, json.MatchCaseInsensitiveNames(true)) == nil {
			if head = string(e.Data.Metadata.OCIPLog); head != "" {
				put("ocipLog.json", []byte(head))
			}
		}
	}
	d.settled(t)
	d.end(t)
	mirrorTo := func(name string) {
		t.Helper()
		for _, pattern := range []string{"audit.jsonl", "audit-0*", "audit-manifest.jsonl", "audit-tombstone.note"} {
			files, err := filepath.Glob(filepath.Join(state, pattern))
			if err != nil {
				t.Fatal(err)
			}
			for _, file := range files {
				text, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				put(filepath.Join(name, filepath.Base(file)), text)
			}
		}
	}
	mirrorTo("copy")
	work := t.TempDir()
	copyTree(t, state, work)
	// Without signers, nobody has to sign the removal of records.
	if err := os.WriteFile(d.at("ocipd.yaml"), cfg, 0o600); err != nil {
		t.Fatal(err)
	}
	d.begin(t, "@acme/alice", "@acme/link")
	d.must(t, d.operator, "audit.retire", map[string]any{"before": time.Now().Add(time.Hour)}, nil)
	d.end(t)
	if err := os.RemoveAll(filepath.Join(state, "copy")); err != nil {
		t.Fatal(err)
	}
	mirrorTo("retired")
	copyTree(t, filepath.Join(state, "retired"), filepath.Join(work, "retired"))
	if err := os.RemoveAll(state); err != nil {
		t.Fatal(err)
	}
	copyTree(t, work, state)
	put("verify.py", script)
	put("then.note", []byte(firstNote(t, filepath.Join(state, "audit-checkpoints.jsonl"))))
	put("bin/ocipd", fmt.Appendf(nil, "#!/bin/sh\nexec env %s=1 XDG_STATE_HOME=%q %q --config %q --socket %q \"$@\"\n", asProgram, d.dir, os.Args[0], d.at("ocipd.yaml"), d.socket))
	if err := os.Chmod(filepath.Join(state, "bin/ocipd"), 0o700); err != nil {
		t.Fatal(err)
	}

	blocks := strings.Split(string(page), "```sh\n")[1:]
	if len(blocks) < 8 {
		t.Fatalf("there are %d recipes", len(blocks))
	}
	for _, block := range blocks {
		block, _, _ = strings.Cut(block, "```")
		cmd := exec.CommandContext(t.Context(), "sh", "-eu", "-c", block)
		cmd.Dir, cmd.Env = state, append(os.Environ(), "PATH="+filepath.Join(state, "bin")+":"+os.Getenv("PATH"), "TZ=America/New_York")
		out, err := cmd.CombinedOutput()
		if err != nil || len(out) == 0 && !strings.Contains(block, "cmp -") && !strings.Contains(block, "test ") {
			t.Errorf("%v:\n%s\n%s", err, block, out)
		}
	}
	// The recipe for decisions uses the last one; the recipe for texts another.
	r := d.ocipd(t, "audit", "query", "--type", "approval", "--event", "taken_over", "--json")
	if e, err := audit.Parse([]byte(strings.TrimSpace(r.stdout))); err != nil || e.Details["signedText"] == nil {
		t.Errorf("taken over: %+v, %v", r, err)
	}
}

// firstNote is the first checkpoint in a file.
func firstNote(t *testing.T, path string) string {
	t.Helper()
	notes, err := verify.Held(path)
	if err != nil {
		t.Fatal(err)
	}
	return notes[0]
}
