package page_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/webauthn"
	"github.com/chromedp/chromedp"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/bridge/console"
	"github.com/openclawos/ocipd/test/passkeytest"
)

// signed is a world whose decisions are signed, with the real process behind the page, and a browser
// with a virtual authenticator.
func signed(t *testing.T) (w *world, control string) {
	t.Helper()
	if _, err := exec.LookPath("chromium"); err != nil {
		t.Skip("chromium is not installed")
	}
	var place console.Place
	w = beginIn(t, func(dir string) string {
		var err error
		if place, err = console.OpenPlace(t.Context(), filepath.Join(dir, "console.json")); err != nil {
			t.Fatal(err)
		}
		other := passkeytest.New("elsewhere.localhost", "http://elsewhere.localhost:1")
		line := fmt.Sprintf("someone %s %s\n", other.PublicKey().Type(), base64.StdEncoding.EncodeToString(other.PublicKey().Marshal()))
		if err := os.WriteFile(filepath.Join(dir, "signers"), []byte(line), 0o600); err != nil {
			t.Fatal(err)
		}
		return acme + fmt.Sprintf("approvals: {allowed_signers: %q, origins: [%q]}\n", filepath.Join(dir, "signers"), place.Origin())
	})
	pages, err := place.Listen(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	control = w.path("run/console.sock")
	commands, err := console.ListenControl(t.Context(), control)
	if err != nil {
		t.Fatal(err)
	}
	process := console.New(console.Options{
		Place: place, Runtime: w.path("run"), Passkeys: w.path("passkeys.json"), Dial: w.operator, Now: time.Now, Clicks: func() bool { return false },
		Health: func(context.Context) (any, error) {
			return []map[string]string{{"check": "socket", "health": "pass", "text": "the operator socket answers"}}, nil
		},
		Log: slog.New(slog.DiscardHandler),
	})
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- process.Serve(ctx, pages, commands) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	w.link = func() string {
		told, err := console.Link(t.Context(), control)
		if err != nil {
			t.Fatal(err)
		}
		return told.Link
	}
	w.people()
	w.browse(1280, 900, "light", "/waiting")
	w.do(chromedp.Func(func(ctx context.Context, _ *chromedp.Target) error {
		if _, err := chromedp.Call(ctx, webauthn.Enable, webauthn.EnableParams{}); err != nil {
			return err
		}
		_, err := chromedp.Call(ctx, webauthn.AddVirtualAuthenticator, webauthn.AddVirtualAuthenticatorParams{Options: &webauthn.VirtualAuthenticatorOptions{
			Protocol: webauthn.AuthenticatorProtocolCtap2, Transport: webauthn.AuthenticatorTransportUsb, HasUserVerification: true, IsUserVerified: true, AutomaticPresenceSimulation: true,
		}})
		return err
	}))
	return w, control
}

// TestPasskey adds a passkey on the page with the code of the terminal, and approves a held message
// by it. The daemon takes the signature, and ssh-keygen says that it is good.
func TestPasskey(t *testing.T) {
	w, control := signed(t)
	w.do(chromedp.Evaluate[chromedp.Void](instrument))
	w.until(`document.querySelectorAll(".list .row").length === 2`)
	w.visit("/enrol")
	w.until(`document.querySelector("input[inputmode]")`)
	code, added := make(chan string, 1), make(chan error, 1)
	var line string
	go func() {
		added <- console.Enrol(t.Context(), control, func(told console.Told) { code <- told.Code }, func(key string) (console.Added, error) {
			line = "me@laptop " + key
			f, err := os.OpenFile(w.path("signers"), os.O_APPEND|os.O_WRONLY, 0)
			if err == nil {
				_, err = fmt.Fprintln(f, line)
				err = errors.Join(err, f.Close())
			}
			return console.Added{Line: line}, err
		})
	}()
	w.do(chromedp.SendKeys("input[inputmode]", <-code), click("form .primary"))
	if err := <-added; err != nil {
		t.Fatal(err)
	}
	w.until(`document.querySelector(".said")?.textContent.includes("me@laptop")`)
	w.visit("/waiting")
	w.until(`document.querySelectorAll(".list .row").length === 2`)
	w.do(click(".list .row"))
	w.until(`document.querySelector(".decide")`)
	w.do(chromedp.Evaluate[chromedp.Void](end))
	w.until(`!document.querySelector(".decide .primary").disabled`)
	w.do(press("a"))
	w.until(`document.querySelector("dialog .primary:not(:disabled)")?.textContent.includes("passkey")`)
	w.do(click("dialog .primary"))
	w.until(`document.querySelector(".said")?.textContent.includes("approved") || document.querySelector("dialog .fault")`)
	if fault := eval[string](w, `document.querySelector("dialog .fault")?.textContent ?? ""`); fault != "" {
		t.Fatal(fault)
	}
	var page api.AuditQueryResult
	w.ask("audit.query", map[string]any{"filter": map[string]any{"event": "approved"}}, &page)
	if len(page.Records) != 1 {
		t.Fatalf("%d records of an approval", len(page.Records))
	}
	record, err := audit.Parse(page.Records[0])
	if err != nil {
		t.Fatal(err)
	}
	signature, _ := record.Details["signature"].(string)
	text, _ := record.Details["signedText"].(string)
	if record.Details["by"] != "me@laptop" || record.Details["via"] != "console" || !strings.HasPrefix(text, "ocipd approval v1\n") {
		t.Errorf("the record has %v", record.Details)
	}
	verify(t, w, signature, text)
	for _, found := range eval[[]string](w, "reports") {
		t.Error(found)
	}
}

// verify has OpenSSH check a signature.
func verify(t *testing.T, w *world, signature, text string) {
	t.Helper()
	if _, err := exec.LookPath("ssh-keygen"); err != nil {
		t.Skip("ssh-keygen is not installed")
	}
	if err := os.WriteFile(w.path("signature"), []byte(signature), 0o600); err != nil {
		t.Fatal(err)
	}
	c := exec.CommandContext(t.Context(), "ssh-keygen", "-Y", "verify", "-f", w.path("signers"), "-I", "me@laptop", "-n", api.ApprovalNamespace, "-s", w.path("signature"))
	c.Stdin = strings.NewReader(text)
	if said, err := c.CombinedOutput(); err != nil || !strings.HasPrefix(string(said), "Good ") {
		t.Errorf("ssh-keygen says %s: %v", said, err)
	}
}
