package daemon_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/config"
	"github.com/openclawos/ocipd/internal/daemon"
	"go.uber.org/zap"
)

// told is everything that the daemon reveals about its configuration: the record, the
// status and the log.
func (h *harness) told(more ...any) string {
	h.t.Helper()
	var all bytes.Buffer
	for _, r := range h.records(audit.Filter{}) {
		fmt.Fprintf(&all, "%+v\n", r.Record)
	}
	fmt.Fprintf(&all, "%+v\n", h.status())
	for _, m := range more {
		text, err := json.Marshal(m)
		if err != nil {
			h.t.Fatal(err)
		}
		all.Write(text)
	}
	return all.String()
}

// Secrets that are added to a configuration, changed and removed appear in no record,
// answer, status or log; that they changed appears in all of them.
func TestNoSecretInAReload(t *testing.T) {
	h := plot(t, acme+"\npolicy: {watch: false}\n")
	logged := h.observe()
	h.start()
	base := acme + "\npolicy: {watch: false, data: {own: %[1]s%[1]s%[1]s, salt: MARKER%[1]s, h: \"Authorization: Bearer MARKER%[1]s\", deep: [{pin: MARKER%[1]s}]}}\n" +
		"channels: {c: {pwd: MARKER%[1]s, dsn: \"MARKER%[1]s\", webhook: \"https://h/MARKER%[1]s\", list: [{auth: MARKER%[1]s}], url: \"https://h/?token=MARKER%[1]s\"}}\n" +
		"apps: {\"@a/b\": {header: \"Authorization: Bearer MARKER%[1]s\", private: \"-----BEGIN PRIVATE KEY-----\\nMARKER%[1]s\"}}\n" +
		"approvals: {notify: {command: [/bin/true, -H, \"Authorization: Bearer MARKER%[1]s\"]}}\n" +
		"audit: {sinks: [{name: c, type: otlp, endpoint: \"http://u:MARKER%[1]s@127.0.0.1:1/v1?k=MARKER%[1]s\", headers: {A: MARKER%[1]s}}]}\n"
	var all strings.Builder
	for _, text := range []string{fmt.Sprintf(base, "a"), fmt.Sprintf(base, "b"), acme + "\npolicy: {watch: false}\n"} {
		h.edit(text)
		var diff api.ConfigDiffResult
		h.operator("config.diff", nil, &diff)
		result, err := h.reload()
		if err != nil {
			t.Fatal(err)
		}
		all.WriteString(h.told(diff, result))
	}
	for _, refused := range []string{
		"channels: MARKER", "approvals: {notify: {command: curl -H MARKER}}", "approvals: {notify: {command: [MARKER]}}",
		"apps: {\"@a/b\": {k: !!int MARKER}}", "apps: {k: *MARKER}", "policy: {data: MARKER}",
		"audit: {sinks: [{name: a, type: otlp, endpoint: \"http://x\", headers: Bearer MARKER}]}",
	} {
		h.edit(refused)
		_, err := h.reload()
		var fault *api.Error
		if !errors.As(err, &fault) || fault.Code != api.Conflict {
			t.Fatalf("%s: %v", refused, err)
		}
		all.WriteString(h.told(fault))
	}
	for _, entry := range logged.All() {
		fmt.Fprintf(&all, "%s %v\n", entry.Message, entry.ContextMap())
	}
	if before, after, found := strings.Cut(all.String(), "MARKER"); found {
		t.Errorf("a secret is told: …%s MARKER %s…", before[max(0, len(before)-200):], after[:min(len(after), 40)])
	}
	for _, line := range []string{
		"channels.c.pwd: *** -> ***", "channels.c.webhook: *** -> ***", "channels.c.list: [map[auth:***]] -> [map[auth:***]]",
		"policy.data.own: aaa -> bbb", "policy.data.salt: *** -> ***", `apps["@a/b"].header: *** -> ***`,
		"approvals.notify.command: [/bin/true *** ***] -> [/bin/true *** ***]",
	} {
		said := false
		for _, r := range h.configRecords() {
			said = said || strings.Contains(strings.Join(diffOf(r), "\n")+"\n", line+"\n")
		}
		if !said {
			t.Errorf("not on record: %s", line)
		}
	}
}

// A reload refuses everything that would fail the next start, also keys that need a
// restart; and the faults of a check are those of a start.
func TestReloadRefusesWhatAStartWould(t *testing.T) {
	for _, tt := range []struct {
		name, text, says string
		// check is set for faults that a check alone finds too.
		check bool
	}{
		{"another database", "store: {url: \"postgres://u:SECRETPW@h/db\"}", `store.url: want a file, as a path or behind sqlite:, or nothing, because this daemon keeps its store in SQLite; got "postgres://***@h/db"`, false},
		{"certificate", "audit: {sinks: [{name: c, type: otlp, endpoint: \"https://h/v1\", tls: {ca: DIR/none.pem}}]}", "cannot start the sink c: cannot read tls.ca", true},
		{"keys where none can be written", "audit: {keys: DIR/file/keys}", "DIR/file", false},
		{"policy", "policy: {path: DIR/none}", "DIR/none", true},
		{"policy that does not compile", "policy: {path: DIR/bad.rego}", "bad.rego", true},
		{"signers", "approvals: {allowed_signers: DIR/none}", "cannot read approvals.allowed_signers", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := plot(t, acme)
			h.flags = map[string]any{"store.url": nil, "audit.mirror": h.path("state/a.jsonl")}
			h.configure(acme + "\nstore: {url: " + h.path("state/ocipd.db") + "}\n")
			h.start()
			for name, text := range map[string]string{"file": "x", "bad.rego": "package x\nallow {"} {
				if err := os.WriteFile(h.path(name), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			text := strings.ReplaceAll(tt.text, "DIR", h.dir)
			if !strings.Contains(text, "store:") {
				text += "\nstore: {url: " + h.path("state/ocipd.db") + "}"
			}
			says := strings.ReplaceAll(tt.says, "DIR", h.dir)
			h.edit(acme + "\n" + text + "\n")
			_, err := h.reload()
			var refused *api.Error
			if !errors.As(err, &refused) || refused.Code != api.Conflict || !strings.Contains(refused.Message, says) || strings.Contains(refused.Message, "SECRETPW") {
				t.Errorf("a reload says %v, want %s", err, says)
			}
			if pending := h.status().PendingRestart; len(pending) > 0 {
				t.Errorf("waiting for a start that fails: %q", pending)
			}
			h.stop()
			if err := h.tryStart(); err == nil {
				t.Error("the daemon starts with it")
			}
			if !tt.check {
				return
			}
			cfg, err := config.Load(config.Options{File: h.path("ocipd.yaml")})
			if err != nil {
				t.Fatal(err)
			}
			err = daemon.Check(t.Context(), cfg)
			var faults config.Errors
			if !errors.As(err, &faults) || len(faults) != 1 || faults[0].Line == 0 || filepath.Base(faults[0].File) != "ocipd.yaml" || !strings.Contains(err.Error(), says) {
				t.Errorf("a check says %v, want %s", err, says)
			}
		})
	}
}

// An invalid store URL is refused before anything is touched, without revealing its password.
func TestStoreURLIsNotTold(t *testing.T) {
	cfg := config.Default()
	cfg.Store.URL = "postgres://u:SECRETPW@h/db?x=SECRETPW"
	_, err := daemon.New(daemon.Options{Config: cfg, Getenv: func(string) string { return "" }, Log: zap.NewNop()})
	if err == nil || strings.Contains(err.Error(), "SECRETPW") || !strings.Contains(err.Error(), `"postgres://***@h/db?***"`) {
		t.Errorf("got %v", err)
	}
}
