package daemon_test

import (
	"encoding/base64"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/ocip"
)

// refusedAs sends a message that must be refused.
func refusedAs(a *app, code ocip.Code, want, content string, metadata map[string]any) {
	a.t.Helper()
	e := a.refuse(api.Forbidden, "message.dispatch", map[string]any{"sessionKey": "telegram:dave", "content": content, "metadata": metadata})
	if got := ocipCode(a.t, e); got != string(code) {
		a.t.Errorf("%q, %v: got %s: %s", content, metadata, got, e.Message)
	}
	contains(a.t, e.Message, want)
}

// A file is sent only from a folder that is listed for the agent; its content is checked,
// and its hash is recorded. An address elsewhere is recorded.
func TestMediaAreAFlow(t *testing.T) {
	h := plot(t, "")
	for name, text := range map[string]string{"out/plan.txt": "the plan", "out/key.txt": "it is AKIAIOSFODNN7SAMPLED", "secret.txt": "x"} {
		if err := os.MkdirAll(h.path("out"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(h.path(name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	h.configure(strings.Replace(acme, "max_rounds: 3}", "max_rounds: 3, media: ["+h.path("out")+"]}", 1))
	h.start()
	t.Cleanup(h.stop)
	telegram, alice, bob := h.channel("@openclawos/telegram", "telegram"), h.agent("@acme/alice"), h.agent("@acme/bob")
	with := func(urls ...string) map[string]any {
		m := fresh(nil)
		m["mediaUrls"] = urls
		return m
	}
	refused := func(a *app, code ocip.Code, want string, urls ...string) {
		t.Helper()
		refusedAs(a, code, want, "See attached.", with(urls...))
	}
	refused(bob, ocip.MediaRefused, "agents[].media", h.path("out/plan.txt"))
	refused(alice, ocip.MediaRefused, "none of the folders", h.path("secret.txt"))
	refused(alice, ocip.MediaRefused, "none of the folders", "file://"+h.path("out/../secret.txt"))
	refused(alice, ocip.ClassificationViolation, "file metadata.mediaUrls[0]", h.path("out/key.txt"))

	// Media need no text.
	var sent api.DispatchResult
	alice.must("message.dispatch", map[string]any{"sessionKey": "telegram:dave", "content": "", "metadata": with(h.path("out/plan.txt"), "https://x.example/a.png?token=abc")}, &sent)
	telegram.message("hook:message_sending")
	r := h.records(audit.Filter{Like: audit.Record{DispatchID: sent.DispatchID}})
	list, _ := r[0].Details["media"].([]any)
	if len(list) != 2 {
		t.Fatalf("on record: %+v", r[0].Details)
	}
	file, _ := list[0].(map[string]any)
	address, _ := list[1].(map[string]any)
	if file["sha256"] != "aab8f06fecd1c041e9a3d5a86114f9e522b546918db8503a045fe4a423b3642a" || address["url"] != "https://x.example/a.png" {
		t.Errorf("on record: %+v", list)
	}
}

// A file is checked however a message names it, and however its content is encoded.
func TestEveryWayOfMedia(t *testing.T) {
	h := plot(t, "")
	const key = "AKIAIOSFODNN7SAMPLED"
	wide := func(s string) string { return strings.Join(strings.Split(s, ""), "\x00") + "\x00" }
	if err := os.MkdirAll(h.path("out"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"out/plan.txt": "the plan", "out/my plan.txt": "the plan", "secret.txt": "x",
		"out/late.txt": strings.Repeat("All is well.\n", 300<<10/13) + key,
		"out/wide.txt": "\xff\xfe" + wide("the key is "+key), "out/unmarked.txt": wide("the key is " + key),
		"out/picture.png": "\x89PNG\r\n\x1a\n" + strings.Repeat("\x00\xfe\xff\x01", 200<<10) + key,
		"out/vast.txt":    strings.Repeat("All is well.\n", 9<<20/13),
		"out/promise.txt": strings.Repeat("All is well.\n", 300<<10/13) + "We hereby sign the contract.",
	} {
		if err := os.WriteFile(h.path(name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	h.configure(strings.Replace(acme, "max_rounds: 3}", "max_rounds: 30, media: ["+h.path("out")+"]}", 1))
	h.start()
	t.Cleanup(h.stop)
	telegram, alice, bob := h.channel("@openclawos/telegram", "telegram"), h.agent("@acme/alice"), h.agent("@acme/bob")
	with := func(member string, value any) map[string]any {
		m := fresh(nil)
		m[member] = value
		return m
	}

	// A path counts as one whatever its member's name, and in a text in the places where clients look.
	secret := h.path("secret.txt")
	for _, value := range []any{secret, "file://" + secret, " \u200b" + secret, "~/.ssh/id_ed25519", "../x", `C:\x\y`, `\\host\x`, []any{map[string]any{"z": secret}}, "see file://" + secret, "media:" + secret} {
		refusedAs(alice, ocip.MediaRefused, "metadata.anything", "See attached.", with("anything", value))
	}
	refusedAs(alice, ocip.MediaRefused, "metadata.photo", "See attached.", with("photo", "a.png"))
	for _, content := range []string{"MEDIA:" + secret, "Here:\n MEDIA: `" + secret + "`", "see file://" + secret, "![plan](" + secret + ")", "[plan](<" + secret + ">)", "MEDIA:a.png"} {
		refusedAs(alice, ocip.MediaRefused, "content names a local file", content, fresh(nil))
		refusedAs(bob, ocip.MediaRefused, "agents[].media", content, fresh(nil))
	}

	// All of it is checked.
	for _, name := range []string{"late.txt", "wide.txt", "unmarked.txt", "picture.png"} {
		refusedAs(alice, ocip.ClassificationViolation, "file metadata.anything", "See attached.", with("anything", h.path("out/"+name)))
	}
	refusedAs(alice, ocip.MediaRefused, "as much as is weighed", "See attached.", with("anything", h.path("out/vast.txt")))
	// In UTF-16, which does not look like text within the message alone.
	inline := "data:text/plain;base64," + base64.StdEncoding.EncodeToString([]byte("\xff\xfe"+wide("it is "+key)))
	refusedAs(alice, ocip.ClassificationViolation, "file content", "![]("+inline+")", fresh(nil))
	refusedAs(alice, ocip.ClassificationViolation, "file metadata.anything", "See attached.", with("anything", inline))

	// A mentioned path is not a file of the message, nor is a command; sent files are recorded.
	content := "Look into /etc/hosts, or ~/notes.\nMEDIA:\"" + h.path("out/my plan.txt") + "\""
	m := with("button", "/model gpt")
	m["icon"] = "data:,the%20plan"
	sent := alice.dispatch("telegram:dave", content, m)
	telegram.message("hook:message_sending")
	list, _ := h.records(audit.Filter{Like: audit.Record{DispatchID: sent.DispatchID}})[0].Details["media"].([]any)
	if len(list) != 2 {
		t.Fatalf("on record: %+v", list)
	}
	const plan = "aab8f06fecd1c041e9a3d5a86114f9e522b546918db8503a045fe4a423b3642a"
	for i, want := range []map[string]any{{"member": "metadata.icon", "url": "data:…"}, {"member": "content", "path": h.path("out/my plan.txt")}} {
		got, _ := list[i].(map[string]any)
		if want["sha256"], want["bytes"] = plan, float64(8); !reflect.DeepEqual(got, want) {
			t.Errorf("on record: %v, want %v", got, want)
		}
	}
	alice.held(ocip.CommitmentRequiresHuman, "telegram:dave", "MEDIA:"+h.path("out/promise.txt"), fresh(nil))
}
