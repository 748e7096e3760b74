package console

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/api/client"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/config"
	"github.com/openclawos/ocipd/internal/daemon"
	"go.uber.org/zap"
)

// patience bounds every wait of these tests. Only a fault takes that long.
const patience = 30 * time.Second

const acme = `
agents:
  - {id: alice, app: "@acme/alice", instance_id: agent-alice-1, user_id: alice, org_unit: engineering, tenant_id: acme-corp, max_classification_shared: internal}
  - {id: bob, app: "@acme/bob", instance_id: agent-bob-1, user_id: bob, org_unit: engineering, tenant_id: acme-corp, max_classification_shared: internal}
  - {id: carol, app: "@acme/carol", instance_id: agent-carol-1, user_id: carol, org_unit: engineering, tenant_id: acme-corp}
`

// world is a daemon and a console.
type world struct {
	*testing.T
	dir     string
	flags   map[string]any
	daemon  *daemon.Daemon
	console *Console
	place   Place
	control string
	log     logged
	clock   clock
	clicks  bool
	app     *client.Client
}

// clock is a clock that a test can set forward.
type clock struct {
	mu    sync.Mutex
	ahead time.Duration
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Now().Add(c.ahead)
}

func (c *clock) forward(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ahead += d
}

// logged is the console's log.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logged) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// begin starts a daemon, from whose operator socket apps are kept, and a console.
func begin(t *testing.T, yaml string) *world {
	t.Helper()
	dir, err := os.MkdirTemp("", "console")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	w := &world{T: t, dir: dir, flags: map[string]any{"ipc.socket": filepath.Join(dir, "run", "kernel.sock"), "store.url": filepath.Join(dir, "state", "ocipd.db"), "approvals.notify.desktop": false, "policy.timeout": patience}}
	if err := os.MkdirAll(w.path("state"), 0o700); err != nil {
		t.Fatal(err)
	}
	if w.place, err = OpenPlace(t.Context(), w.path("state/console.json")); err != nil {
		t.Fatal(err)
	}
	w.write("signers", "")
	w.write("ocipd.yaml", strings.NewReplacer("DIR", dir, "ORIGIN", w.place.Origin()).Replace(yaml))
	w.start()
	t.Cleanup(w.stop)
	w.serve()
	return w
}

func (w *world) path(name string) string { return filepath.Join(w.dir, name) }

func (w *world) write(name, text string) {
	w.Helper()
	if err := os.WriteFile(w.path(name), []byte(text), 0o600); err != nil {
		w.Fatal(err)
	}
}

// start starts the daemon.
func (w *world) start() {
	w.Helper()
	cfg, err := config.Load(config.Options{File: w.path("ocipd.yaml"), Flags: w.flags})
	if err != nil {
		w.Fatal(err)
	}
	d, err := daemon.New(daemon.Options{Config: cfg, Getenv: func(string) string { return "" }, Version: "test", Log: zap.NewNop()})
	if err == nil {
		err = d.Start(w.Context())
	}
	if err != nil {
		w.Fatal(err)
	}
	w.daemon = d
}

func (w *world) stop() {
	if w.daemon != nil {
		if err := w.daemon.Stop(); err != nil {
			w.Error(err)
		}
		w.daemon = nil
	}
}

// serve starts the console.
func (w *world) serve() {
	w.Helper()
	pages, err := w.place.Listen(w.Context())
	if err != nil {
		w.Fatal(err)
	}
	w.control = w.path("run/console.sock")
	control, err := ListenControl(w.Context(), w.control)
	if err != nil {
		w.Fatal(err)
	}
	w.console = New(Options{
		Place: w.place, Runtime: w.path("run"), Passkeys: w.path("state/console-passkeys.json"),
		Dial: func(ctx context.Context) (*client.Client, error) {
			return client.Dial(ctx, w.path("run/operator.sock"), client.WithDropEvents())
		},
		Health: func(context.Context) (any, error) { return []map[string]string{{"check": "machine"}}, nil },
		Clicks: func() bool { return w.clicks }, Signers: func() string { return w.path("signers") },
		Log: slog.New(slog.NewTextHandler(&w.log, nil)), Now: w.clock.now,
	})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- w.console.Serve(ctx, pages, control) }()
	w.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			w.Error(err)
		}
	})
}

// code asks for a link and returns its secret.
func (w *world) code() string {
	w.Helper()
	told, err := Link(w.Context(), w.control)
	if err != nil {
		w.Fatal(err)
	}
	_, code, ok := strings.Cut(told.Link, "#")
	if !ok || !strings.HasPrefix(told.Link, w.place.Origin()+"/#") {
		w.Fatalf("the link is %q", told.Link)
	}
	return code
}

// session begins a session and returns its key.
func (w *world) session() (key string) {
	w.Helper()
	code := w.code()
	r := w.request(begins, `{}`, code)
	status, body := w.send(r)
	of, ok := claimOf(r)
	if status != http.StatusOK || !ok {
		w.Fatalf("no session: %d %s", status, body)
	}
	return of.session(code)
}

// proof is a header with a proof by a key, as the page makes it.
func proof(key, method, path, body string) string {
	raw := make([]byte, nonceSize)
	_, _ = rand.Read(raw) // it never fails
	nonce := base64.RawURLEncoding.EncodeToString(raw)
	return fmt.Sprintf("Proof %x.%s.%s", digestOf(key), nonce, base64.RawURLEncoding.EncodeToString(macOf(key, requestProof, method+"\n"+path+"\n"+nonce+"\n"+body)))
}

// request makes a request as the page does.
func (w *world) request(path, body, key string) *http.Request {
	w.Helper()
	r, err := http.NewRequestWithContext(w.Context(), http.MethodPost, w.place.Origin()+path, strings.NewReader(body))
	if err != nil {
		w.Fatal(err)
	}
	r.Header.Set("Origin", w.place.Origin())
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	if key != "" {
		r.Header.Set("Authorization", proof(key, http.MethodPost, path, body))
	}
	return r
}

// browser dials the console, which no name server knows.
func (w *world) browser() *http.Client {
	t := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", w.address())
	}}
	w.Cleanup(t.CloseIdleConnections)
	return &http.Client{Transport: t}
}

func (w *world) address() string {
	_, port, _ := strings.Cut(w.place.Authority(), ":")
	return "127.0.0.1:" + port
}

func (w *world) post(path, body, key string) (int, []byte) {
	w.Helper()
	return w.send(w.request(path, body, key))
}

// send makes a request.
func (w *world) send(r *http.Request) (int, []byte) {
	w.Helper()
	answer, err := w.browser().Do(r)
	if err != nil {
		w.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		w.Fatal(err)
	}
	return answer.StatusCode, text
}

// call makes a call in a session.
func (w *world) call(key, method string, params, result any) {
	w.Helper()
	body, err := json.Marshal(map[string]any{"method": method, "params": params})
	if err != nil {
		w.Fatal(err)
	}
	status, text := w.post("/call", string(body), key)
	var answer struct {
		Result jsontext.Value `json:"result"`
		Error  *api.Error     `json:"error"`
		Shown  jsontext.Value `json:"shown"`
	}
	if err := json.Unmarshal(text, &answer); err != nil || status != http.StatusOK || answer.Error != nil {
		w.Fatalf("%s: %d %s", method, status, text)
	}
	if result != nil {
		if err := json.Unmarshal(answer.Result, result); err != nil {
			w.Fatal(err)
		}
	}
}

// operate makes a call on the operator socket.
func (w *world) operate(method string, params, result any) {
	w.Helper()
	c, err := client.Dial(w.Context(), w.path("run/operator.sock"))
	if err != nil {
		w.Fatal(err)
	}
	defer c.Close()
	if err := c.Call(w.Context(), method, params, result); err != nil {
		w.Fatalf("%s: %v", method, err)
	}
}

// records are the records of an event.
func (w *world) records(event string) (list []audit.Entry) {
	w.Helper()
	var found api.AuditQueryResult
	w.operate("audit.query", api.AuditQueryParams{Filter: audit.Filter{Like: audit.Record{Event: event}}}, &found)
	for _, raw := range found.Records {
		var e audit.Entry
		if err := json.Unmarshal(raw, &e); err != nil {
			w.Fatal(err)
		}
		list = append(list, e)
	}
	return list
}
