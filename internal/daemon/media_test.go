package daemon_test

import (
	"os"
	"strings"
	"testing"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/ocip"
)

// A file goes along only out of a folder that is listed for the agent; what it says
// is weighed, and what it was is on record. An address elsewhere is on record.
func TestMediaAreAFlow(t *testing.T) {
	h := plot(t, "")
	for name, text := range map[string]string{"out/plan.txt": "the plan", "out/key.txt": "it is AKIAIOSFODNN7EXAMPLE", "secret.txt": "x"} {
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
		e := a.refuse(api.Forbidden, "message.dispatch", map[string]any{"sessionKey": "telegram:dave", "content": "See attached.", "metadata": with(urls...)})
		if got := ocipCode(t, e); got != string(code) {
			t.Errorf("%q: got %s: %s", urls, got, e.Message)
		}
		contains(t, e.Message, want)
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
