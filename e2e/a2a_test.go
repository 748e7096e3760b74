//go:build e2e

package e2e

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// a2aTrial is an agent on the official SDK, with its address.
type a2aTrial struct {
	*trial
	url string
	got *bytes.Buffer
}

func newA2ATrial(t *testing.T) *a2aTrial {
	t.Helper()
	r := &a2aTrial{trial: begin(t), got: new(bytes.Buffer)}
	for _, agent := range []string{"ann", "ben"} {
		r.operate("task", "grant", "--agent", agent, "--out", r.at(agent+".token"))
	}
	r.url = r.begins(r.got, "node", script(t, "server.mjs"))
	return r
}

func script(t *testing.T, name string) string {
	t.Helper()
	at, err := filepath.Abs(filepath.Join("a2a", name))
	if err != nil {
		t.Fatal(err)
	}
	return at
}

// begins starts a program, and returns the first line that it writes.
func (r *a2aTrial) begins(said io.Writer, name string, args ...string) string {
	r.t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Env, cmd.Dir, cmd.Stderr = r.env(), r.dir, said
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		r.t.Fatalf("%s: %v", name, err)
	}
	return strings.TrimSpace(line)
}

// proxied starts the proxy of an agent, and returns the address of its card.
func (r *a2aTrial) proxied(agent string, args ...string) string {
	r.t.Helper()
	return r.begins(os.Stderr, r.ocipd, append([]string{"a2a-proxy", "--agent", agent, "--token-file", r.at(agent + ".token"), "--socket", r.socket}, args...)...)
}

// speaks runs the client on the official SDK.
func (r *a2aTrial) speaks(card, binding string, only ...string) string {
	r.t.Helper()
	out, err := r.tries(card, binding, only...)
	if err != nil {
		r.t.Fatal(err)
	}
	return out
}

func (r *a2aTrial) tries(card, binding string, only ...string) (string, error) {
	r.t.Helper()
	node, err := exec.LookPath("node")
	if err != nil {
		r.t.Fatal(err)
	}
	return r.run(r.env(), node, append([]string{script(r.t, "client.mjs"), card, binding}, only...)...)
}

// The official client says the same to the official server, and hears the same, through the
// outgoing proxy, through the incoming one, and without: messages with texts, data and files,
// streams, tasks and errors, by both bindings.
func TestA2A(t *testing.T) {
	r := newA2ATrial(t)
	direct := r.url + "/.well-known/agent-card.json"
	ways := map[string]string{
		"outgoing": r.proxied("ann", "--local", "127.0.0.1:0", "--url", r.url),
		"incoming": r.proxied("ben", "--listen", "127.0.0.1:0", "--url", r.url),
	}
	for _, binding := range []string{"JSONRPC", "HTTP+JSON"} {
		want := r.speaks(direct, binding)
		if strings.Count(want, "\n") != 12 || !strings.Contains(want, "Hello back.") {
			t.Fatalf("without a proxy, by %s:\n%s", binding, want)
		}
		for way, card := range ways {
			// The count of tasks grows, and an agent's own words have the disclosure.
			clean := func(text string) string {
				text = strings.NewReplacer(`\n\nSent by ann's assistant`, "", `\n\nSent by ben's assistant`, "").Replace(text)
				lines := strings.Split(text, "\n")
				for i, line := range lines {
					if strings.HasPrefix(line, "tasks ") {
						lines[i] = "tasks"
					}
				}
				return strings.Join(lines, "\n")
			}
			if got := r.speaks(card, binding); clean(got) != clean(want) {
				t.Errorf("%s, by %s:\n%s\nwithout:\n%s", way, binding, got, want)
			}
		}
	}
	if !strings.Contains(r.got.String(), `Sent by ann's assistant`) {
		t.Errorf("the agent got\n%s", r.got)
	}
	// A refusal is an error of the client, and the agent gets nothing; without a daemon too.
	r.notifies(direct)
	for _, binding := range []string{"JSONRPC", "HTTP+JSON"} {
		if got := r.speaks(ways["outgoing"], binding, "m-8", "The key is "+secret); !strings.Contains(got, "ocipd: refused (CLASSIFICATION_VIOLATION)") {
			t.Errorf("a secret, by %s: %s", binding, got)
		}
	}
	r.stopped()
	for way, card := range ways {
		if got, err := r.tries(card, "JSONRPC", "m-9", "Hello without a daemon"); err == nil && !strings.Contains(got, "ocipd") {
			t.Errorf("%s, without a daemon: %s", way, got)
		}
	}
	if got := r.got.String(); strings.Contains(got, secret) || strings.Contains(got, "without a daemon") {
		t.Errorf("the agent got\n%s", got)
	}
}

// notifies holds that a client's webhook gets the push notifications of the official server through
// each proxy as it does without, and that both sides see their own addresses alone. A piece
// that is appended to an artifact does not leave the incoming side.
func (r *a2aTrial) notifies(direct string) {
	r.t.Helper()
	got := make(chan string, 16)
	hook := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, q *http.Request) {
		body, _ := io.ReadAll(q.Body)
		got <- q.Header.Get("X-A2A-Notification-Token") + " " + string(body)
	}))
	defer hook.Close()
	ways := map[string]string{
		"without":  direct,
		"outgoing": r.proxied("ann", "--local", "127.0.0.1:0", "--url", r.url, "--webhook", hook.URL, "--push-listen", "127.0.0.1:0"),
		"incoming": r.proxied("ben", "--listen", "127.0.0.1:0", "--url", r.url, "--webhook", hook.URL),
	}
	for _, binding := range []string{"JSONRPC", "HTTP+JSON"} {
		var want string
		for _, way := range []string{"without", "outgoing", "incoming"} {
			said := r.speaks(ways[way], binding, "push", hook.URL+"/ann")
			if way == "without" {
				want = said
			}
			if said != want || strings.Count(said, hook.URL+"/ann") != 2 {
				r.t.Errorf("%s, by %s:\n%s\nwithout:\n%s", way, binding, said, want)
			}
			events := map[string]int{"without": 5, "outgoing": 5, "incoming": 4}[way]
			for i := range events {
				select {
				case event := <-got:
					if !strings.HasPrefix(event, "token of h1 {") || way == "incoming" && strings.Contains(event, `"append"`) {
						r.t.Errorf("%s, by %s: the webhook got %s", way, binding, event)
					}
				case <-time.After(time.Minute):
					r.t.Fatalf("%s, by %s: the webhook got %d notifications of %d", way, binding, i, events)
				}
			}
		}
	}
	if len(got) > 0 {
		r.t.Errorf("the webhook got more: %s", <-got)
	}
}
