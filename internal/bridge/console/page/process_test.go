package page_test

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
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
func signed(t *testing.T) (w *world, control string, end func() (port string)) {
	t.Helper()
	w, control, end = served(t, false, func(dir, origin string) string {
		other := passkeytest.New("elsewhere.localhost", "http://elsewhere.localhost:1")
		line := fmt.Sprintf("someone %s %s\n", other.PublicKey().Type(), base64.StdEncoding.EncodeToString(other.PublicKey().Marshal()))
		if err := os.WriteFile(filepath.Join(dir, "signers"), []byte(line), 0o600); err != nil {
			t.Fatal(err)
		}
		return acme + fmt.Sprintf("approvals: {allowed_signers: %q, origins: [%q]}\n", filepath.Join(dir, "signers"), origin)
	})
	w.do(chromedp.Func(func(ctx context.Context, _ *chromedp.Target) error {
		if _, err := chromedp.Call(ctx, webauthn.Enable, webauthn.EnableParams{}); err != nil {
			return err
		}
		_, err := chromedp.Call(ctx, webauthn.AddVirtualAuthenticator, webauthn.AddVirtualAuthenticatorParams{Options: &webauthn.VirtualAuthenticatorOptions{
			Protocol: webauthn.AuthenticatorProtocolCtap2, Transport: webauthn.AuthenticatorTransportUsb, HasUserVerification: true, IsUserVerified: true, AutomaticPresenceSimulation: true,
		}})
		return err
	}))
	return w, control, end
}

// served is a world with the real process behind the page, which shows what waits.
func served(t *testing.T, clicks bool, made func(dir, origin string) string) (w *world, control string, end func() (port string)) {
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
		return made(dir, place.Origin())
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
		Place: place, Runtime: w.path("run"), Passkeys: w.path("passkeys.json"), Dial: w.operator, Now: time.Now, Clicks: func() bool { return clicks },
		Signers: func() string {
			if _, err := os.Stat(w.path("signers")); err != nil {
				return ""
			}
			return w.path("signers")
		},
		Health: func(context.Context) (any, error) {
			return []map[string]string{{"check": "socket", "health": "pass", "text": "the operator socket answers"}}, nil
		},
		Log: slog.New(slog.DiscardHandler),
	})
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- process.Serve(ctx, pages, commands) }()
	end = sync.OnceValue(func() string {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		return place.Authority()[strings.LastIndex(place.Authority(), ":"):]
	})
	t.Cleanup(func() { end() })
	w.link = func() string {
		told, err := console.Link(t.Context(), control)
		if err != nil {
			t.Fatal(err)
		}
		return told.Link
	}
	w.people()
	w.browse(1280, 900, "light", "/waiting")
	return w, control, end
}

// enrolled adds a passkey on the page, with the code of the terminal.
func (w *world) enrolled(control string) {
	w.Helper()
	w.visit("/enrol")
	w.until(`document.querySelector("input[inputmode]")`)
	code, added := make(chan string, 1), make(chan error, 1)
	go func() {
		added <- console.Enrol(w.Context(), control, func(told console.Told) { code <- told.Code }, func(key string) (console.Added, error) {
			line := "me@laptop " + key
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
		w.Fatal(err)
	}
	w.until(`document.querySelector(".said")?.textContent.includes("me@laptop")`)
}

// approve opens the first request, and asks for a signature of its approval once all of the
// expressions hold.
func (w *world) approve(shown ...string) {
	w.Helper()
	w.visit("/waiting")
	w.until(`document.querySelectorAll(".list .row").length === 2`)
	w.do(click(".list .row"))
	w.until(`document.querySelector(".decide")`)
	// The end may move while the request is drawn.
	w.until(`(() => { ` + end + `; return !document.querySelector(".decide .primary").disabled })()`)
	w.do(press("a"))
	w.until(`document.querySelector("dialog .primary:not(:disabled)")?.textContent.includes("passkey")`)
	for _, expression := range shown {
		w.until(expression)
	}
	w.do(click("dialog .primary"))
	w.until(`document.querySelector(".said")?.textContent.includes("approved") || document.querySelector("dialog .fault")`)
}

// TestAnotherProgram has another program take the port of a console that ended, while a request of the
// open page is on its way. It gets no key, and its answers are not shown: the page forgets what it
// showed, and says what has happened.
func TestAnotherProgram(t *testing.T) {
	w, _, over := signed(t)
	w.until(`document.querySelectorAll(".list .row").length === 2`)
	key := eval[string](w, `sessionStorage.getItem("ocipd.key")`)
	// The page sends this request while its stream is open, and it arrives when the console has ended.
	w.do(chromedp.Evaluate[chromedp.Void](`{
		window.held = false;
		const real = window.fetch, wait = new Promise((go) => window.go = go);
		window.fetch = async (path, init) => { if (path === "/call") { window.held = true; await wait; } return real(path, init); };
	} undefined`), click(".list .row"))
	w.until(`window.held`)
	address := "127.0.0.1" + over()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	type got struct{ path, all string }
	asked := make(chan got, 64)
	impostor := &http.Server{ReadHeaderTimeout: patience, Handler: http.HandlerFunc(func(out http.ResponseWriter, in *http.Request) {
		whole, _ := httputil.DumpRequest(in, true)
		asked <- got{in.URL.Path, string(whole)}
		out.Header().Set("Ocipd-Proof", strings.Repeat("A", 43))
		put(out, map[string]any{"kind": "status", "result": map[string]any{}})
	})}
	go func() { _ = impostor.Serve(l) }()
	t.Cleanup(func() { _ = impostor.Close() })
	w.do(chromedp.Evaluate[chromedp.Void](`window.go(); undefined`))
	w.until(`document.querySelector("main.out")?.textContent.includes("Another program answers at this address, or the console was started anew. Run: ocipd console")`)
	if kept := eval[string](w, `JSON.stringify(sessionStorage) + document.body.textContent`); strings.Contains(kept, "alice") || strings.Contains(kept, key) {
		t.Errorf("the page still has %s", kept)
	}
	called := false
	for range len(asked) {
		one := <-asked
		called = called || one.path == "/call"
		if strings.Contains(one.all, key) || strings.Contains(one.all, "Bearer") {
			t.Errorf("the page sent %s", one.all)
		}
		if one.path != "/prove" && one.path != "/call" {
			t.Errorf("the page asked %s without a proof of the console's", one.path)
		}
	}
	if !called {
		t.Error("no request was on its way")
	}
}

// TestLinkAtAnotherProgram opens a link at another program. It gets nothing of the link's key, and the
// page shows nothing that it answers.
func TestLinkAtAnotherProgram(t *testing.T) {
	w := begin(t, acme)
	asked := make(chan string, 64)
	name := sha256.Sum256([]byte("zebrafish"))
	w.instead = func(out http.ResponseWriter, in *http.Request) bool {
		if !strings.Contains(in.Header.Get("Authorization"), hex.EncodeToString(name[:])) {
			return false
		}
		whole, _ := httputil.DumpRequest(in, true)
		asked <- string(whole)
		out.Header().Set("Ocipd-Proof", strings.Repeat("A", 43))
		put(out, map[string]any{"person": "mallory"})
		return true
	}
	w.browse(1280, 900, "light", "")
	w.do(chromedp.Evaluate[chromedp.Void](`sessionStorage.clear(); undefined`), chromedp.Navigate("about:blank"), chromedp.Navigate(w.server.URL+"/#zebrafish"))
	w.until(`document.querySelector("main.out")?.textContent.includes("Another program answers at this address")`)
	if text := <-asked; strings.Contains(text, "zebrafish") {
		t.Errorf("the page sent %s", text)
	}
	if shown := eval[string](w, `JSON.stringify(sessionStorage) + document.body.textContent`); strings.Contains(shown, "mallory") || strings.Contains(shown, "zebrafish") {
		t.Errorf("the page has %s", shown)
	}
}

// TestAnotherText changes what the console wants signed: the key is asked for no signature.
func TestAnotherText(t *testing.T) {
	w, control, _ := signed(t)
	w.enrolled(control)
	for name, change := range map[string]string{
		"the challenge": `said.challenge = "A" + said.challenge.slice(1)`,
		"the text":      `said.text = said.text.replace("\napprove\n", "\ndeny\n")`,
		// Both belong together, and are of another request.
		"both": `said.text = said.text.replace(/\n.*\n/, "\nanother\n"); said.challenge = await packed(said.text)`,
		"more": `said.text += "note sha256:" + "0".repeat(64) + "\n"; said.challenge = await packed(said.text)`,
	} {
		w.do(chromedp.Evaluate[chromedp.Void](`window.asked = 0; undefined`), chromedp.Evaluate[chromedp.Void](`{
			window.real ??= window.fetch; window.get ??= navigator.credentials.get.bind(navigator.credentials);
			navigator.credentials.get = (o) => { window.asked++; return window.get(o); };
			const packed = async (text) => {
				const sum = new Uint8Array(await crypto.subtle.digest("SHA-512", new TextEncoder().encode(text))), s = (t) => "\0\0\0" + String.fromCharCode(t.length) + t;
				return btoa("SSHSIG" + s("approval@ocipd") + s("") + s("sha512") + s(String.fromCharCode(...sum))).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
			};
			window.fetch = async (path, init) => {
				const answer = await window.real(path, init);
				if (path !== "/texts") return answer;
				const said = await answer.json();
				if (said.challenge !== await packed(said.text)) throw new Error("this test packs a text in another way");
				`+change+`;
				return new Response(JSON.stringify(said), { status: answer.status, headers: answer.headers });
			};
		} undefined`))
		w.approve()
		fault := eval[string](w, `document.querySelector("dialog .fault")?.textContent ?? ""`)
		if n := eval[int](w, `window.asked`); n != 0 || !strings.Contains(fault, "is not the decision on this screen") {
			t.Errorf("%s: the key was asked %d times, and the page says %q", name, n, fault)
		}
		w.do(press("\x1b"))
		w.until(`!document.querySelector("dialog")`)
	}
}

// TestPasskey adds a passkey on the page with the code of the terminal, and approves a held message
// by it. The daemon takes the signature, and ssh-keygen says that it is good.
func TestPasskey(t *testing.T) {
	w, control, _ := signed(t)
	w.do(chromedp.Evaluate[chromedp.Void](instrument))
	w.until(`document.querySelectorAll(".list .row").length === 2`)
	w.until(`document.querySelector("header .person").textContent.includes("uid:")`)
	w.enrolled(control)
	// The page has the name of the record, also where there is little room, and after it is loaded anew.
	w.until(`document.querySelector("header .person bdi").textContent === "me@laptop"`)
	w.browse(900, 700, "light", "")
	w.until(`document.querySelector("header .person bdi").textContent === "me@laptop" && document.querySelector("header .person").clientWidth > 40`)
	w.browse(1280, 900, "light", "")
	w.do(chromedp.Evaluate[chromedp.Void](instrument))
	w.approve(`document.querySelector("dialog .muted.small").textContent.includes("Recorded as me@laptop, signed by your passkey") && [...document.querySelectorAll(".fact .fv")].some((e) => e.textContent === "me@laptop")`)
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
