package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
)

// webhook is a client's webhook that records what it gets.
type webhook struct {
	*httptest.Server
	mu     sync.Mutex
	got    []string
	status int
}

func newWebhook(t *testing.T) *webhook {
	h := &webhook{status: http.StatusOK}
	h.Server = httptest.NewServer(h)
	t.Cleanup(h.Close)
	return h
}

func (h *webhook) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.got = append(h.got, fmt.Sprintf("%s %s token=%s auth=%s %s", r.Method, r.URL.RequestURI(), r.Header.Get("X-A2A-Notification-Token"), r.Header.Get("Authorization"), body))
	w.WriteHeader(h.status)
}

func (h *webhook) calls() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return strings.Join(h.got, "\n")
}

func (h *webhook) answer(status int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.status = status
}

// notifies sends a push notification as the other side does.
func (a *a2aTrial) notifies(at, body string) (status int, text string) {
	a.t.Helper()
	r, err := http.Post(at, "application/a2a+json", strings.NewReader(body))
	if err != nil {
		a.t.Fatal(err)
	}
	defer r.Body.Close()
	answer, err := io.ReadAll(r.Body)
	if err != nil {
		a.t.Fatal(err)
	}
	return r.StatusCode, string(answer)
}

const (
	workingTask = `{"task":{"id":"t1","contextId":"c1","status":{"state":"TASK_STATE_WORKING"}}}`
	wholeUpdate = `{"artifactUpdate":{"taskId":"t1","contextId":"c1","artifact":{"artifactId":"a1","parts":[{"text":%q}]},"lastChunk":true}}`
)

// The peer gets an address of the proxy in place of the client's webhook, and neither its token
// nor its credentials. A notification to that address is the peer's word: it is decided, and goes
// to the webhook with the token. The client's view of its configuration is as it was set.
func TestA2AProxyPasses(t *testing.T) {
	t.Parallel()
	h := newWebhook(t)
	a := newA2ATrial(t, proxyTeam, "--webhook", h.URL+"/hooks", "--push-listen", "127.0.0.1:0")
	if !strings.Contains(a.card, `"pushNotifications":true`) {
		t.Errorf("the card is %s", a.card)
	}
	mine := fmt.Sprintf(`{"taskId":"t1","id":"h1","url":%q,"token":"tok-1","authentication":{"scheme":"Bearer","credentials":"cred-1"}}`, h.URL+"/hooks/ann?x=1")
	call := func(method, params string) string {
		return a.post(a.rpc, fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":%q,"params":%s}`, method, params))
	}
	want := fmt.Sprintf(`"url":%q,"token":"tok-1","authentication":{"scheme":"Bearer","credentials":"cred-1"}`, h.URL+"/hooks/ann?x=1")
	for what, got := range map[string]string{
		"Create": call("CreateTaskPushNotificationConfig", mine),
		"Get":    call("GetTaskPushNotificationConfig", `{"taskId":"t1","id":"h1"}`),
		"List":   call("ListTaskPushNotificationConfigs", `{"taskId":"t1"}`),
		"route":  a.get(a.web + "/tasks/t1/pushNotificationConfigs/h1"),
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%s: %s", what, got)
		}
	}
	at := a.peer.hookURL()
	if sent := a.peer.calls(); !strings.HasPrefix(at, "http://127.0.0.1:") || strings.Contains(sent, h.URL) || strings.Contains(sent, "tok-1") || strings.Contains(sent, "cred-1") {
		t.Fatalf("the peer got %s", sent)
	}
	if len(a.recorded(`"tool_executing"`, "CreateTaskPushNotificationConfig"))+len(a.recorded(`CreateTaskPushNotificationConfig`, h.URL)) == 0 {
		t.Errorf("the registration is not on record:\n%s", strings.Join(a.recorded("PushNotificationConfig"), "\n"))
	}
	for _, body := range []string{workingTask, fmt.Sprintf(wholeUpdate, "part one")} {
		if status, text := a.notifies(at, body); status != http.StatusNoContent {
			t.Errorf("%s: %d %s", body, status, text)
		}
		if got := h.calls(); !strings.HasSuffix(got, "POST /hooks/ann?x=1 token=tok-1 auth=Bearer cred-1 "+body) {
			t.Errorf("the webhook got %s", got)
		}
	}
	if got := a.recorded(`"event":"human_message"`); len(got) != 2 {
		t.Errorf("%d records of what came in: card, artifact\n%s", len(got), strings.Join(got, "\n"))
	}
	calls := h.calls()
	for body, want := range map[string]int{`{"task":{"id":"t1","Id":"t2"}}`: http.StatusForbidden, `{"task":7}`: http.StatusForbidden, `{`: http.StatusForbidden} {
		if status, text := a.notifies(at, body); status != want || strings.Contains(text, "member") {
			t.Errorf("%s: %d %s", body, status, text)
		}
	}
	if status, _ := a.notifies(at+"x", workingTask); status != http.StatusNotFound {
		t.Errorf("at another address: %d", status)
	}
	if r, err := http.Get(at); err != nil || r.StatusCode != http.StatusUnsupportedMediaType {
		t.Errorf("by GET: %v %v", r, err)
	}
	if got := h.calls(); got != calls {
		t.Errorf("the webhook got %s", got)
	}
	h.answer(http.StatusInternalServerError)
	if status, _ := a.notifies(at, workingTask); status != http.StatusBadGateway {
		t.Errorf("if the webhook fails: %d", status)
	}
	h.answer(http.StatusOK)
	// In version 0.3, by a route, and inside a message.
	for what, register := range map[string]func(){
		"0.3": func() {
			call("tasks/pushNotificationConfig/set", `{"taskId":"t1","pushNotificationConfig":`+strings.Replace(mine, `"taskId":"t1",`, "", 1)+`}`)
		},
		"route":   func() { a.post(a.web+"/tasks/t1/pushNotificationConfigs", mine) },
		"message": func() { a.registers("pushNotificationConfig", strings.Replace(mine, `"taskId":"t1",`, "", 1)) },
	} {
		before := a.peer.hookURL()
		register()
		now := a.peer.hookURL()
		if status, text := a.notifies(now, workingTask); now == before || status != http.StatusNoContent {
			t.Errorf("%s: %d %s", what, status, text)
		}
	}
	if call("DeleteTaskPushNotificationConfig", `{"taskId":"t1","id":"h1"}`); h.calls() != "" {
		if status, _ := a.notifies(at, workingTask); status != http.StatusNotFound {
			t.Errorf("deleted: %d", status)
		}
	}
	if sent := a.peer.calls(); strings.Contains(sent, h.URL) || strings.Contains(sent, "tok-1") {
		t.Errorf("the peer got %s", sent)
	}
}

// registers sends a message with a webhook, and keeps the configuration that the peer got.
func (a *a2aTrial) registers(name, config string) string {
	a.t.Helper()
	got := a.post(a.rpc, fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{"message":{"messageId":"h-9","role":"ROLE_USER","parts":[{"text":"Tell me."}]},"configuration":{%q:%s}}}`, name, config))
	_, sent, _ := strings.Cut(a.peer.calls(), `"Tell me.`)
	a.peer.mu.Lock()
	defer a.peer.mu.Unlock()
	a.peer.hook = sent
	return got
}

// A webhook that the user has not named is refused, and so is every address that two programs
// could read differently. Nothing reaches the peer.
func TestA2AProxyRefusesWebhooks(t *testing.T) {
	t.Parallel()
	h := newWebhook(t)
	a := newA2ATrial(t, proxyTeam, "--webhook", h.URL+"/hooks", "--push-listen", "127.0.0.1:0")
	host := strings.TrimPrefix(h.URL, "http://")
	for _, url := range []string{
		"", "https://" + host + "/hooks", "http://evil.example/hooks", "http://169.254.169.254/hooks", h.URL, h.URL + "/", h.URL + "/hooksx", h.URL + "/hooks/../admin",
		h.URL + "/hooks/%2e%2e/admin", h.URL + "/hooks/a%2fb", "http://x@" + host + "/hooks", h.URL + "/hooks#x", "HTTP://" + host + "/hooks", h.URL + "/hooks//x",
		"http://" + host + "@evil.example/hooks", "http://evil.example\\@" + host + "/hooks", h.URL + "/hooks\n", "file:///hooks", h.URL + "/hooks/..;/admin", h.URL + "/hooks/..%5Cadmin", h.URL + "/hooks/a%00b", h.URL + "/hooks/%09",
	} {
		got := a.post(a.rpc, fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"CreateTaskPushNotificationConfig","params":{"taskId":"t1","url":%q}}`, url))
		if !strings.Contains(got, "ocipd: refused (WEBHOOK_REFUSED)") {
			t.Errorf("%q: %s", url, got)
		}
		got = a.registers("taskPushNotificationConfig", fmt.Sprintf(`{"url":%q}`, url))
		if !strings.Contains(got, "ocipd: refused (WEBHOOK_REFUSED)") {
			t.Errorf("%q in a message: %s", url, got)
		}
	}
	for _, params := range []string{
		`{"taskId":"t1","url":"` + h.URL + `/hooks","token":"a\nb"}`, `{"taskId":"t1","url":"` + h.URL + `/hooks","token":7}`,
		`{"taskId":"t1","url":"` + h.URL + `/hooks","authentication":[]}`, `{"taskId":"t1","url":"` + h.URL + `/hooks","more":"x"}`,
		`{"taskId":"t1","url":"` + h.URL + `/hooks","pushNotificationConfig":{"url":"` + h.URL + `/hooks"}}`,
	} {
		if got := a.post(a.rpc, `{"jsonrpc":"2.0","id":1,"method":"CreateTaskPushNotificationConfig","params":`+params+`}`); !strings.Contains(got, "ocipd: refused (MALFORMED)") {
			t.Errorf("%s: %s", params, got)
		}
	}
	if got := a.peer.calls(); got != "" {
		t.Errorf("the peer got %s", got)
	}
	for _, args := range [][]string{
		{"--webhook", "http://hooks.example/"}, {"--webhook", "ftp://hooks.example/"}, {"--webhook", h.URL}, {"--push-listen", "127.0.0.1:0"},
		{"--webhook", h.URL, "--push-listen", "0.0.0.0:0"}, {"--webhook", h.URL, "--push-listen", "127.0.0.1:0", "--push-public", "x"},
	} {
		s := a.open(append([]string{os.Args[0], "a2a-proxy", "--agent", "ann", "--token-file", a.token, "--socket", a.socket, "--url", a.peer.URL, "--local", "127.0.0.1:0"}, args...), asProgram+"=1")
		if line, err := s.out.ReadString('\n'); err == nil {
			t.Errorf("%v: it starts: %s", args, line)
		}
	}
}

// A peer's webhook at the incoming side: the agent's own server gets an address of this machine,
// and each notification is the agent's message to that peer. A secret stays, also in pieces, and a
// text that a person has to approve goes once it is approved.
func TestA2AProxyPassesForPeers(t *testing.T) {
	t.Parallel()
	h := newWebhook(t)
	b := &a2aTrial{proxyTrial: newProxyTrialOf(t, benTeam), peer: newA2APeer(t)}
	b.rpc, b.web = interfacesOf(t, b.get(b.proxy("ann", b.token, "--listen", "127.0.0.1:0", "--hold", "20s", "--url", b.peer.URL, "--webhook", h.URL)))
	got := b.post(b.rpc, fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"CreateTaskPushNotificationConfig","params":{"taskId":"t1","id":"h1","url":%q,"token":"tok-1"}}`, h.URL))
	if !strings.Contains(got, fmt.Sprintf(`"url":%q,"token":"tok-1"`, h.URL)) || strings.Contains(b.peer.calls(), h.URL) {
		t.Errorf("%s, and the agent got %s", got, b.peer.calls())
	}
	at := b.peer.hookURL()
	if status, text := b.notifies(at, fmt.Sprintf(wholeUpdate, "the report")); status != http.StatusNoContent || !strings.Contains(h.calls(), "the report\\n\\nSent by") {
		t.Errorf("%d %s, and the webhook got %s", status, text, h.calls())
	}
	if len(b.recorded(`"sessionKey":"a2a:unverified:127.0.0.1"`)) == 0 {
		t.Error("the notification is not on record")
	}
	for body, want := range map[string]string{
		fmt.Sprintf(wholeUpdate, "The key is AKIAIOSFODNN7EXAMPLF"):                                                                         "CLASSIFICATION_VIOLATION",
		`{"artifactUpdate":{"taskId":"t1","append":true,"artifact":{"artifactId":"a2","parts":[{"text":"AKIAIOSF"}]}}}`:                     "appends to an artifact",
		`{"kind":"artifact-update","taskId":"t1","append":true,"artifact":{"artifactId":"a2","parts":[{"kind":"text","text":"AKIAIOSF"}]}}`: "appends to an artifact",
	} {
		if status, text := b.notifies(at, body); status != http.StatusForbidden || !strings.Contains(text, want) {
			t.Errorf("%s: %d %s", body, status, text)
		}
	}
	answers := make(chan int, 1)
	go func() {
		status, _ := b.notifies(at, fmt.Sprintf(wholeUpdate, "I promise to be done on Friday."))
		answers <- status
	}()
	id := b.waiting()
	if strings.Contains(h.calls(), "Friday") {
		t.Errorf("the webhook got %s", h.calls())
	}
	b.decide("approve", id)
	if status := <-answers; status != http.StatusNoContent || strings.Count(h.calls(), "Friday") != 1 {
		t.Errorf("approved: %d, and the webhook got %s", status, h.calls())
	}
	if strings.Contains(h.calls(), "AKIA") {
		t.Errorf("the webhook got %s", h.calls())
	}
	h.answer(http.StatusNotFound)
	if status, _ := b.notifies(at, fmt.Sprintf(wholeUpdate, "another report")); status != http.StatusBadGateway {
		t.Errorf("if the webhook fails: %d", status)
	}
	b.until("what was not taken is on record", func() bool {
		return len(b.recorded(`"event":"not_taken"`, "the webhook answered with status 404")) == 1
	})
}

// postFrom posts from an address of this machine, as a peer of its own.
func (a *a2aTrial) postFrom(from, at, body string) string {
	a.t.Helper()
	d := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	r, err := (&http.Client{Transport: &http.Transport{DialContext: d.DialContext, DisableKeepAlives: true}}).Post(at, "application/json", strings.NewReader(body))
	if err != nil {
		a.t.Fatal(err)
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	if err != nil {
		a.t.Fatal(err)
	}
	return string(text)
}

// A peer that names the webhook of another peer has nothing sent there: the daemon decides for the peer
// that asked, and the other one is of another tenant. A webhook that is given for a peer serves that
// peer alone.
func TestA2AProxyNotifiesAPeerAtItsOwn(t *testing.T) {
	t.Parallel()
	theirs, given := newWebhook(t), newWebhook(t)
	rival := strings.Replace(benTeam, "directory:\n", "directory:\n  - {instance_id: agent-eve-1, user_id: eve, org_unit: sales, tenant_id: globex, accepts: [public], sessions: [\"a2a:unverified:127.0.0.1\"]}\n", 1)
	b := &a2aTrial{proxyTrial: newProxyTrialOf(t, rival), peer: newA2APeer(t)}
	b.rpc, b.web = interfacesOf(t, b.get(b.proxy("ann", b.token, "--listen", "127.0.0.1:0", "--url", b.peer.URL, "--webhook", theirs.URL, "--webhook", "unverified:127.0.0.2="+given.URL)))
	// register returns the address at which the agent reports.
	register := func(from, url string) (answer, at string) {
		answer = b.postFrom(from, b.rpc, fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"CreateTaskPushNotificationConfig","params":{"taskId":"t1","id":"h1","url":%q}}`, url))
		return answer, b.peer.hookURL()
	}
	for from, url := range map[string]string{"127.0.0.2": theirs.URL, "127.0.0.1": given.URL, "127.0.0.3": theirs.URL} {
		answer, at := register(from, url)
		if !strings.Contains(answer, "ocipd: refused (WEBHOOK_REFUSED)") || at != "" {
			t.Errorf("%s at another peer's webhook: %s, and the agent reports at %q", from, answer, at)
		}
	}
	_, at := register("127.0.0.1", theirs.URL)
	if status, text := b.notifies(at, fmt.Sprintf(wholeUpdate, "the report")); status != http.StatusForbidden || !strings.Contains(text, "CROSS_ENTERPRISE_BLOCKED") {
		t.Errorf("to the peer of another tenant: %d %s", status, text)
	}
	_, at = register("127.0.0.2", given.URL+"/a")
	if status, text := b.notifies(at, fmt.Sprintf(wholeUpdate, "the report")); status != http.StatusNoContent {
		t.Errorf("to the peer that asked: %d %s", status, text)
	}
	if !strings.Contains(given.calls(), "the report") || theirs.calls() != "" {
		t.Errorf("the peer that asked got %s, the other one %s", given.calls(), theirs.calls())
	}
}
