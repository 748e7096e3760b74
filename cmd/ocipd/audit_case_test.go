package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"filippo.io/age"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/cli"
)

// caseFolder is a folder from audit case, with the verifier in it.
type caseFolder struct {
	*testing.T
	dir string
}

// check runs the folder's own verify.py on the folder alone.
func (c *caseFolder) check(args ...string) (code int, found struct {
	OK              bool
	Problem         string
	Records, Proven int
	NotProven       []int
	KeyFrom         string
	SHA256          string
	HeldByThatAlone []string
}) {
	c.Helper()
	cmd := exec.CommandContext(c.Context(), "python3", append([]string{"-I", filepath.Join(c.dir, "verify.py")}, args...)...)
	cmd.Dir = c.TempDir()
	out, err := cmd.Output()
	var ended *exec.ExitError
	if err != nil && !errors.As(err, &ended) {
		c.Fatal(err)
	}
	if err := json.Unmarshal(out, &found, json.MatchCaseInsensitiveNames(true)); err != nil {
		c.Fatalf("verify.py prints %s, %v", out, err)
	}
	return cmd.ProcessState.ExitCode(), found
}

func (c *caseFolder) files() (names []string) {
	c.Helper()
	err := filepath.WalkDir(c.dir, func(path string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			name, _ := filepath.Rel(c.dir, path)
			names = append(names, name)
		}
		return err
	})
	if err != nil {
		c.Fatal(err)
	}
	return names
}

func (c *caseFolder) read(name string) []byte {
	c.Helper()
	text, err := os.ReadFile(filepath.Join(c.dir, name))
	if err != nil {
		c.Fatal(err)
	}
	return text
}

func (c *caseFolder) write(name string, text []byte) {
	c.Helper()
	if err := os.WriteFile(filepath.Join(c.dir, name), text, 0o600); err != nil {
		c.Fatal(err)
	}
}

// restate makes case.json and case.sha256 fit the changed files, like an attacker who knows the format.
func (c *caseFolder) restate() {
	c.Helper()
	var listed map[string]jsontext.Value
	if err := json.Unmarshal(c.read("case.json"), &listed); err != nil {
		c.Fatal(err)
	}
	sums := map[string]string{}
	for _, name := range c.files() {
		if name != "case.json" && name != "case.sha256" {
			sum := sha256.Sum256(c.read(name))
			sums[name] = hex.EncodeToString(sum[:])
		}
	}
	var err error
	if listed["files"], err = json.Marshal(sums); err != nil {
		c.Fatal(err)
	}
	text, err := json.Marshal(listed)
	if err != nil {
		c.Fatal(err)
	}
	c.write("case.json", text)
	sum := sha256.Sum256(text)
	c.write("case.sha256", []byte(hex.EncodeToString(sum[:])+"  case.json\n"))
}

// TestAuditCase makes folders of a real daemon's log, and checks each with the verify.py in it:
// unchanged, after an edit of any file, and after one with all digests beside the log made to fit.
func TestAuditCase(t *testing.T) {
	t.Parallel()
	for _, tool := range []string{"python3", "ssh-keygen"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("there is no %s", tool)
		}
	}
	reader, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	d := newStaged(t, `
agents:
  - {id: alice, app: "@acme/alice", instance_id: agent-alice-1, user_id: alice, org_unit: engineering, tenant_id: acme-corp}
  - {id: bob, app: "@acme/bob", instance_id: agent-bob-1, user_id: bob, org_unit: engineering, tenant_id: acme-corp}
channels: {link: {token: sesame-4711}}
tasks: {actors: [{name: lead, role: orchestrator, tenant_id: acme-corp}]}
audit: {content: full, recipients: ["`+reader.Recipient().String()+`"]}
`)
	if err := os.WriteFile(d.at("identity"), []byte(reader.String()+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	sign := func(args ...string) {
		t.Helper()
		if out, err := exec.CommandContext(t.Context(), "ssh-keygen", args...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	sign("-q", "-t", "ed25519", "-N", "", "-f", d.at("ann"))
	public, err := os.ReadFile(d.at("ann.pub"))
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := os.ReadFile(d.at("ocipd.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	with := strings.Replace(string(cfg), "approvals: {", fmt.Sprintf("approvals: {allowed_signers: %q, ", d.at("signers")), 1)
	if err := errors.Join(os.WriteFile(d.at("signers"), []byte("ann@acme "+string(public)), 0o600), os.WriteFile(d.at("ocipd.yaml"), []byte(with), 0o600)); err != nil {
		t.Fatal(err)
	}
	d.begin(t, "@acme/alice", "@acme/link")
	first, err := d.say(t, "agent:bob:main", "Where do we stand?", nil)
	if err != nil {
		t.Fatal(err)
	}
	var task struct {
		ID string `json:"task_id"`
	}
	d.must(t, d.operator, "task.create", map[string]any{"title": "Export", "spec_markdown": "## Goal\nA file.", "workspace": d.dir, "initial_phase": "spec_draft", "tenant_id": "acme-corp"}, &task)
	const secret = "ghp_16C7e42F292c6912E7710c838347Ae178B4a"
	if _, err := d.say(t, "agent:bob:main", "<b>Use</b> "+secret, nil); err == nil {
		t.Fatal("a secret was sent")
	}
	held, err := d.say(t, "agent:bob:main", "I promise to deliver it by Friday.", nil)
	if err != nil || !held.Held {
		t.Fatalf("it is not held: %+v, %v", held, err)
	}
	var saw api.Approval
	d.must(t, d.operator, "approval.get", map[string]any{"approvalId": held.ApprovalID}, &saw)
	if err := os.WriteFile(d.at("decision"), []byte(saw.ToSign[api.DecideApprove]), 0o600); err != nil {
		t.Fatal(err)
	}
	sign("-q", "-Y", "sign", "-f", d.at("ann"), "-n", api.ApprovalNamespace, d.at("decision"))
	signature, err := os.ReadFile(d.at("decision.sig"))
	if err != nil {
		t.Fatal(err)
	}
	d.must(t, d.operator, "approval.resolve", map[string]any{"approvalId": held.ApprovalID, "decision": api.DecideApprove, "digest": saw.Digest, "signature": string(signature)}, nil)
	d.end(t)
	// The signature at the daemon's stop covers everything before the stop.
	d.begin(t, "@acme/alice", "@acme/link")

	build := func(name string, args ...string) (*caseFolder, ran) {
		t.Helper()
		c := &caseFolder{t, d.at(name)}
		return c, d.ocipd(t, append([]string{"audit", "case", c.dir, "--json"}, args...)...)
	}
	c, r := build("approval", "--approval", held.ApprovalID, "--identity", d.at("identity"))
	var made struct {
		Records, Context, Unsigned int
		SHA256                     string
	}
	if err := json.Unmarshal([]byte(r.stdout), &made, json.MatchCaseInsensitiveNames(true)); r.code != cli.ExitDone || err != nil || made.Records < 3 || made.Context < 4 || made.Unsigned != 0 {
		t.Fatalf("audit case: %+v, %v", r, err)
	}
	exports := d.ocipd(t, "audit", "query", "--event", "log_exported", "--json").stdout
	if !strings.Contains(exports, `"filter":{`) || !strings.Contains(exports, held.ApprovalID) {
		t.Errorf("the case is on record as %q", exports)
	}
	code, found := c.check()
	if code != 0 || found.SHA256 != made.SHA256 || found.Proven != made.Records+made.Context || found.KeyFrom != "the folder" {
		t.Fatalf("its verify.py ends with %d: %+v, made %+v", code, found, made)
	}
	if code, found := c.check(filepath.Join(d.at("openclawos"), "keys", "checkpoint.pub")); code != 0 || found.KeyFrom != "outside" {
		t.Errorf("with the key from outside: %d, %+v", code, found)
	}
	if code, _ := c.check("ocipd/other+" + strings.SplitN(string(c.read("log.pub")), "+", 2)[1]); code != 4 {
		t.Errorf("with another's key: %d", code)
	}
	for _, name := range c.files() {
		if bytes.Contains(c.read(name), []byte("sesame-4711")) || bytes.Contains(c.read(name), []byte(secret)) {
			t.Errorf("%s holds a secret", name)
		}
	}
	page := string(c.read("case.html"))
	for _, want := range []string{"ann@acme", "A person approved the request", "held until a person decides", "A message of agent-alice-1 to agent-bob-1", "SHA256:"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page does not say %q:\n%s", want, page)
		}
	}
	signed := filepath.Join(c.dir, "case.sha256.sig")
	if err := os.WriteFile(signed, []byte("a signature"), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, found := c.check(); code != 0 || !found.OK {
		t.Errorf("with a signature beside it: %d, %+v", code, found)
	}
	if err := os.Remove(signed); err != nil {
		t.Fatal(err)
	}
	texts, signers, policies := 0, 0, 0
	for _, name := range c.files() {
		whole := c.read(name)
		texts += strings.Count(name, "texts/")
		signers += strings.Count(name, "signers/")
		policies += strings.Count(name, ".rego")
		if bytes.Contains(whole, []byte("I promise to deliver it by Friday.")) != strings.HasPrefix(name, "texts/") {
			t.Errorf("%s holds the text, or does not", name)
		}
		changed := bytes.Clone(whole)
		changed[len(whole)/2] ^= 1
		if name == "verify.py" {
			changed = append(slices.Clip(whole), "# nothing\n"...) // one that still runs
		}
		c.write(name, changed)
		if code, found := c.check(); code != 4 || found.OK {
			t.Errorf("%s was changed: %d, %+v", name, code, found)
		}
		c.write(name, whole)
	}
	if texts == 0 || signers != 1 || policies == 0 {
		t.Errorf("the folder holds %q", c.files())
	}
	c.write("more.txt", nil)
	if code, found := c.check(); code != 4 || !strings.Contains(found.Problem, "more.txt is not listed") {
		t.Errorf("with a file more: %d, %+v", code, found)
	}
	if err := os.Remove(filepath.Join(c.dir, "more.txt")); err != nil {
		t.Fatal(err)
	}

	t.Run("all digests made to fit", func(t *testing.T) { c.forge(t, made.SHA256) })

	// Records after the last checkpoint have no receipt, and texts are omitted without a key.
	if _, err := d.say(t, "agent:bob:main", "Use "+secret, nil); err == nil {
		t.Fatal("a secret was sent")
	}
	for name, of := range map[string][2]string{"exchange": {"--exchange", first.OCIP.ExchangeID}, "task": {"--task", task.ID}} {
		c, r := build(name, of[0], of[1])
		if err := json.Unmarshal([]byte(r.stdout), &made, json.MatchCaseInsensitiveNames(true)); r.code != cli.ExitDone || err != nil || made.Records == 0 {
			t.Errorf("of an %s: %+v, %v", name, r, err)
		}
		if code, found := c.check(); code != 0 || found.Records != made.Records+made.Context || found.SHA256 != made.SHA256 {
			t.Errorf("of an %s: %d, %+v, made %+v", name, code, found, made)
		}
		if !bytes.Contains(c.read("records.jsonl"), []byte(of[1])) {
			t.Errorf("of an %s: its records do not name it", name)
		}
	}
	c, r = build("agent", "--agent", "agent-alice-1")
	if err := json.Unmarshal([]byte(r.stdout), &made, json.MatchCaseInsensitiveNames(true)); r.code != cli.ExitDone || err != nil || made.Unsigned == 0 {
		t.Errorf("of an agent: %+v, %v", r, err)
	}
	if code, found := c.check(); code != 0 || found.Proven != found.Records-made.Unsigned || len(found.NotProven) != made.Unsigned {
		t.Errorf("of an agent: %d, %+v", code, found)
	}
	if !bytes.Contains(c.read("case.html"), []byte("no checkpoint yet")) || bytes.Contains(c.read("case.json"), []byte(`"file": "texts/`)) {
		t.Errorf("of an agent, the page is\n%s", c.read("case.html"))
	}
	c, r = build("masked", "--since", "1h", "--identity", d.at("identity"))
	if code, found := c.check(); r.code != cli.ExitDone || code != 0 || !bytes.Contains(c.read("case.json"), []byte(`"masked": true`)) {
		t.Errorf("with texts that hold a secret: %+v, %d, %+v", r, code, found)
	}
	for _, name := range c.files() {
		if bytes.Contains(c.read(name), []byte(secret)) {
			t.Errorf("%s holds a secret", name)
		}
	}
	if _, r := build("masked", "--since", "1h"); r.code != cli.ExitFailed || !strings.Contains(r.said, "file already exists") {
		t.Errorf("over a folder that is there: %+v", r)
	}
	if _, r := build("none", "--task", "nobody"); r.code != cli.ExitFailed || !strings.Contains(r.said, "no record matches") {
		t.Errorf("of nothing: %+v", r)
	}
}

// forge edits a record, and makes all digests beside it fit.
func (c *caseFolder) forge(t *testing.T, stands string) {
	whole := t.TempDir()
	copyTree(t, c.dir, whole)
	edit := func(name, was, now string) func() {
		return func() {
			text := c.read(name)
			if !bytes.Contains(text, []byte(was)) {
				t.Fatalf("%s does not hold %q", name, was)
			}
			c.write(name, bytes.ReplaceAll(text, []byte(was), []byte(now)))
		}
	}
	var listed struct {
		Configurations, Policies, Signers []struct{ Files []string }
	}
	if err := json.Unmarshal(c.read("case.json"), &listed, json.MatchCaseInsensitiveNames(true)); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		change func()
		passes bool
	}{
		"a record, with its hash": {change: func() {
			lines := bytes.SplitAfter(c.read("records.jsonl"), []byte("\n"))
			for i, line := range lines {
				if at := bytes.Index(line, []byte(`ann@acme`)); at > 0 {
					line = bytes.Replace(line, []byte("ann@acme"), []byte("bob@acme"), 1)
					body := line[:bytes.LastIndex(line, []byte(`","hash":"`))]
					sum := sha256.Sum256(body)
					lines[i] = []byte(string(body) + `","hash":"` + hex.EncodeToString(sum[:]) + "\"}\n")
					break
				}
			}
			c.write("records.jsonl", bytes.Join(lines, nil))
		}},
		"a record, with its hash and without its receipt": {change: func() {
			// A record whose hash no other names.
			lines := bytes.SplitAfter(c.read("records.jsonl"), []byte("\n"))
			last := len(lines) - 2
			line := bytes.Replace(lines[last], []byte(`"id":"0`), []byte(`"id":"1`), 1)
			body := line[:bytes.LastIndex(line, []byte(`","hash":"`))]
			sum := sha256.Sum256(body)
			lines[last] = []byte(string(body) + `","hash":"` + hex.EncodeToString(sum[:]) + "\"}\n")
			c.write("records.jsonl", bytes.Join(lines, nil))
			var seq struct{ Seq int }
			if err := json.Unmarshal(lines[last], &seq, json.MatchCaseInsensitiveNames(true)); err != nil {
				t.Fatal(err)
			}
			name := fmt.Sprintf("receipts/%d.receipt", seq.Seq)
			if err := os.Remove(filepath.Join(c.dir, name)); err != nil {
				t.Fatal(err)
			}
			text := c.read("case.json")
			at := bytes.Index(text, []byte(`"receipt": "`+name+`"`))
			from := bytes.LastIndexByte(text[:at], ',')
			c.write("case.json", append(text[:from:from], text[at+len(`"receipt": "`+name+`"`):]...))
		}},
		"the configuration": {change: edit(listed.Configurations[0].Files[0], "acme-corp", "evil-corp")},
		"the policy":        {change: edit(listed.Policies[0].Files[0], "allow", "alloy")},
		"the signers":       {change: edit(listed.Signers[0].Files[0], "ann@acme", "bob@acme")},
		"the key":           {change: edit("log.pub", "+", "-")},
		"the checkpoint's signature": {change: func() {
			for _, name := range c.files() {
				if strings.HasPrefix(name, "receipts") {
					text := c.read(name)
					text[len(text)-8] ^= 1
					c.write(name, text)
				}
			}
		}},
		// Only the digest of the whole folder protects the page.
		"the page": {change: edit("case.html", "ann@acme", "bob@acme"), passes: true},
	} {
		if err := os.RemoveAll(c.dir); err != nil {
			t.Fatal(err)
		}
		copyTree(t, whole, c.dir)
		tc.change()
		c.restate()
		code, found := c.check()
		if (code == 0) != tc.passes || found.SHA256 == stands {
			t.Errorf("%s: %d, %+v", name, code, found)
		}
	}
	if err := os.RemoveAll(c.dir); err != nil {
		t.Fatal(err)
	}
	copyTree(t, whole, c.dir)
}

// TestAuditCaseOfSeveralTimes makes a case over a change of the configuration and the
// policy while the daemon was stopped, and over a rotation of the key: each record has the
// configuration of its time, and either key checks the folder.
func TestAuditCaseOfSeveralTimes(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("there is no python3")
	}
	d := newStaged(t, `
agents:
  - {id: alice, app: "@acme/alice", instance_id: agent-alice-1, user_id: alice, org_unit: engineering, tenant_id: acme-corp, max_rounds: 3}
  - {id: bob, app: "@acme/bob", instance_id: agent-bob-1, user_id: bob, org_unit: engineering, tenant_id: acme-corp}
directory_file: DIR/contacts.jsonl
`)
	put := func(name, text string) {
		t.Helper()
		if err := errors.Join(os.MkdirAll(filepath.Dir(d.at(name)), 0o700), os.WriteFile(d.at(name), []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	put("contacts.jsonl", `{"instance_id":"agent-dave-1","user_id":"dave","org_unit":"engineering","tenant_id":"acme-corp","sessions":["link:dave"]}`+"\n")
	for _, name := range []string{"agent_exchange.rego", "cross_org.rego"} {
		text, err := os.ReadFile(filepath.Join("../../configs/policies", name))
		if err != nil {
			t.Fatal(err)
		}
		put("policy/"+name, string(text))
	}
	cfg, err := os.ReadFile(d.at("ocipd.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	with := strings.Replace(string(cfg), "policy: {", "policy: {path: "+d.at("policy")+", ", 1)
	put("ocipd.yaml", with)
	d.begin(t, "@acme/alice", "@acme/link")
	if _, err := d.say(t, "agent:bob:main", "Where do we stand?", nil); err != nil {
		t.Fatal(err)
	}
	d.end(t)
	before, err := os.ReadFile(filepath.Join(d.at("openclawos"), "keys", "checkpoint.pub"))
	if err != nil {
		t.Fatal(err)
	}
	put("before.pub", string(before))
	put("ocipd.yaml", strings.Replace(with, "max_rounds: 3", "max_rounds: 5", 1))
	more, err := os.ReadFile(d.at("policy/cross_org.rego"))
	if err != nil {
		t.Fatal(err)
	}
	put("policy/cross_org.rego", string(more)+"\n# Another one.\n")
	d.begin(t, "@acme/alice", "@acme/link")
	if _, err := d.say(t, "agent:bob:main", "And now?", nil); err != nil {
		t.Fatal(err)
	}
	d.must(t, d.operator, "audit.rotate_key", nil, nil)
	c := &caseFolder{t, d.at("case")}
	if r := d.ocipd(t, "audit", "case", c.dir, "--agent", "agent-alice-1"); r.code != cli.ExitDone {
		t.Fatalf("audit case: %+v", r)
	}
	for _, key := range []string{"before.pub", "openclawos/keys/checkpoint.pub"} {
		if code, found := c.check(d.at(key)); code != 0 || found.Proven < 8 {
			t.Errorf("with %s: %d, %+v", key, code, found)
		}
	}
	type held struct {
		Record uint64
		Files  []string
		Why    string
	}
	var listed struct {
		Records []struct {
			Seq     uint64
			Context bool
		}
		Configurations, Policies []held
	}
	if err := json.Unmarshal(c.read("case.json"), &listed, json.MatchCaseInsensitiveNames(true)); err != nil {
		t.Fatal(err)
	}
	if len(listed.Configurations) != 2 || len(listed.Policies) != 2 {
		t.Fatalf("in force were %+v", listed)
	}
	for i, rounds := range []string{"max_rounds: 3\n", "max_rounds: 5\n"} {
		h := listed.Configurations[i]
		if len(h.Files) != 1 || !bytes.Contains(c.read(h.Files[0]), []byte(rounds)) {
			t.Errorf("configuration %d is %+v", i, h)
		}
		if entries := c.read(fmt.Sprintf("configuration/%d.directory.jsonl", h.Record)); !bytes.Contains(entries, []byte("link:dave")) {
			t.Errorf("its directory is %s", entries)
		}
	}
	if first, second := listed.Policies[0], listed.Policies[1]; len(first.Files) != 0 || first.Why == "" || len(second.Files) != 3 {
		t.Errorf("the policies are %+v, %+v", first, second)
	}
	code, found := c.check()
	if code != 0 || !strings.Contains(strings.Join(found.HeldByThatAlone, " "), "directory.jsonl") {
		t.Errorf("what no record holds: %d, %+v", code, found)
	}
}
