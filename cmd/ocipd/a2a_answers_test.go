package main

import (
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/openclawos/ocipd/internal/bridge/a2aproxy"
)

func (p *a2aPeer) answer(result string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.says = result
}

const aTask = `"id":"t1","status":{"state":"TASK_STATE_WORKING"}`

// Texts that stand where an answer has none by the protocol: names of members, the extension, ids.
// An agent's secret does not leave by them.
func TestA2AProxyListensToAllTexts(t *testing.T) {
	t.Parallel()
	a := newA2ATrial(t, proxyTeam)
	at, _ := interfacesOf(t, a.get(a.proxy("ann", a.token, "--listen", "127.0.0.1:0", "--url", a.peer.URL)))
	const secret = "AKIAIOSFODNN7EXAMPLF"
	unit := func(more string) string {
		return `{` + aTask + `,"history":[{"messageId":"m8","role":"ROLE_AGENT","parts":[{"text":"known"}]` + more + `}]}`
	}
	for _, result := range []string{
		`{` + aTask + `,"` + secret + `":null}`,
		`{` + aTask + `,"` + secret + `":true}`,
		`{` + aTask + `,"` + secret + `":{}}`,
		`{` + aTask + `,"` + secret + `":5}`,
		`{"id":"` + secret + `","status":{"state":"TASK_STATE_WORKING"}}`,
		`{` + aTask + `,"artifacts":[{"artifactId":"` + secret + `","parts":[]}]}`,
		unit(`,"` + secret + `":""`),
		unit(`,"metadata":{"` + secret + `":[]}`),
		unit(`,"contextId":{"` + secret + `":1}`),
	} {
		for range 2 {
			a.peer.answer(unit(""))
			if got := a.post(at, `{"jsonrpc":"2.0","id":1,"method":"GetTask","params":{"id":"t1"}}`); !strings.Contains(got, "known") {
				t.Errorf("without the text: %s", got)
			}
		}
		a.peer.answer(result)
		if got := a.post(at, `{"jsonrpc":"2.0","id":1,"method":"GetTask","params":{"id":"t1"}}`); !strings.Contains(got, "refused") || strings.Contains(got, secret) {
			t.Errorf("%s: %s", result, got)
		}
	}
}

// What a peer says in such places is in the record, and a member of the extension reaches the agent
// only as the daemon has decided it.
func TestA2AProxyRecordsAllTexts(t *testing.T) {
	t.Parallel()
	a := newA2ATrial(t, proxyTeam)
	known := `{"messageId":"m8","role":"ROLE_AGENT","parts":[{"text":"known"}]`
	for i, form := range []string{
		`{` + aTask + `,%q:null}`, `{` + aTask + `,%q:true}`, `{` + aTask + `,%q:7}`,
		`{` + aTask + `,"history":[` + known + `,%q:""}]}`, `{` + aTask + `,"history":[` + known + `,"metadata":{%q:[]}}]}`,
	} {
		a.peer.answer(`{` + aTask + `,"history":[` + known + `}]}`)
		a.post(a.rpc, `{"jsonrpc":"2.0","id":1,"method":"GetTask","params":{"id":"t1"}}`)
		before := len(a.recorded(`"event":"human_message"`))
		a.peer.answer(fmt.Sprintf(form, fmt.Sprintf("do this now, number %d", i)))
		got := a.post(a.rpc, `{"jsonrpc":"2.0","id":1,"method":"GetTask","params":{"id":"t1"}}`)
		if !strings.Contains(got, "do this now") || len(a.recorded(`"event":"human_message"`)) != before+1 {
			t.Errorf("%s passed without a record: %s", form, got)
		}
	}
	said := `"metadata":{"` + a2aproxy.Extension + `":{"note":"do this now","aiDisclosure":"do this now"}}`
	for _, result := range []string{`{` + aTask + `,` + said + `}`, `{` + aTask + `,"history":[` + known + `,` + said + `}]}`} {
		a.peer.answer(result)
		if got := a.post(a.rpc, `{"jsonrpc":"2.0","id":1,"method":"GetTask","params":{"id":"t1"}}`); strings.Contains(got, "do this now") || !strings.Contains(got, "t1") {
			t.Errorf("%s: %s", result, got)
		}
	}
	a.peer.answer(`{"tasks":[],"totalSize":4111111111111111}`)
	if got := a.post(a.rpc, `{"jsonrpc":"2.0","id":1,"method":"ListTasks","params":{}}`); !strings.Contains(got, "totalSize has the wrong type") {
		t.Errorf("a long number: %s", got)
	}
	// The id of a request is the client's alone.
	a.peer.answer(`{` + aTask + `}`)
	if got := a.post(a.rpc, `{"jsonrpc":"2.0","id":"the-word-is-swordfish","method":"GetTask","params":{"id":"t1"}}`); !strings.Contains(got, `"id":"the-word-is-swordfish"`) {
		t.Errorf("an id: %s", got)
	}
	if got := a.peer.calls(); strings.Contains(got, "swordfish") {
		t.Errorf("the peer got %s", got)
	}
}

// A card that differs from a decided one in members without a content is decided.
func TestA2AProxyDecidesEachCard(t *testing.T) {
	t.Parallel()
	a := newA2ATrial(t, proxyTeam)
	at := a.proxy("ann", a.token, "--local", "127.0.0.1:0", "--url", a.peer.URL)
	for _, more := range []string{"", `,"do this now":""`, `,"contextId":"do this now"`, `,"do that now":true`} {
		before := len(a.recorded(`"event":"human_message"`))
		a.peer.mu.Lock()
		a.peer.more = more
		a.peer.mu.Unlock()
		if got := a.get(at); !strings.Contains(got, strings.Trim(more, ",")) || len(a.recorded(`"event":"human_message"`)) != before+1 {
			t.Errorf("%s: the card passed without a record: %s", more, got)
		}
	}
}

// An approved message reaches a peer that speaks HTTP+JSON alone, whole and by its route.
func TestA2AProxySendsApprovedByRoute(t *testing.T) {
	t.Parallel()
	a := newA2ATrial(t, proxyTeam)
	a.peer.mu.Lock()
	a.peer.webOnly = true
	a.peer.mu.Unlock()
	at := a.proxy("ann", a.token, "--local", "127.0.0.1:0", "--hold", "1ms", "--url", a.peer.URL)
	_, web := interfacesOf(t, a.get(at))
	body := `{"message":{"messageId":"w-1","role":"ROLE_USER","parts":[{"text":"I promise to pay on Friday."}]}}`
	if got := a.post(web+"/message:send", body); !strings.Contains(got, "HELD") {
		t.Fatalf("not held: %s", got)
	}
	a.decide("approve", a.waiting())
	a.until("the message is sent", func() bool { return a.peer.calls() != "" })
	if calls := strings.Split(a.peer.calls(), "\n"); !slices.ContainsFunc(calls, func(c string) bool {
		return strings.HasPrefix(c, "POST /rest/message:send {") && strings.Contains(c, "I promise to pay")
	}) {
		t.Errorf("the peer got %q", calls)
	}
}

// A request or an answer of so many values that they would not fit in the memory is refused, and the
// proxy goes on.
func TestA2AProxyBoundsItsMemory(t *testing.T) {
	t.Parallel()
	a := newA2ATrial(t, proxyTeam)
	values := `[0` + strings.Repeat(",0", 2<<20) + `]`
	if got := a.post(a.rpc, rpcSend("SendMessage", "v-1", `[{"data":`+values+`}]`)); !strings.Contains(got, "would take more than") {
		t.Errorf("a request: %.300s", got)
	}
	a.peer.answer(`{` + aTask + `,"metadata":{"x":` + values + `}}`)
	if got := a.post(a.rpc, `{"jsonrpc":"2.0","id":1,"method":"GetTask","params":{"id":"t1"}}`); !strings.Contains(got, "would take more than") {
		t.Errorf("an answer: %.300s", got)
	}
	a.peer.answer("")
	if got := a.post(a.rpc, rpcSend("SendMessage", "v-2", textPart("hi"))); !strings.Contains(got, "the answer") {
		t.Errorf("afterwards: %.300s", got)
	}
}

// Clients that begin a request and do not end it keep no other out.
func TestA2AProxyAnswersBesideSlowClients(t *testing.T) {
	t.Parallel()
	a := newA2ATrial(t, proxyTeam)
	at, err := url.Parse(a.rpc)
	if err != nil {
		t.Fatal(err)
	}
	for range 300 {
		conn, err := net.Dial("tcp", at.Host)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if _, err := fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nContent-Length: 1000\r\nExpect: 100-continue\r\n\r\n", at.Path, at.Host); err != nil {
			t.Fatal(err)
		}
		// The proxy reads the body by now.
		if _, err := conn.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
	}
	if got := a.post(a.rpc, rpcSend("SendMessage", "m-1", textPart("hi"))); !strings.Contains(got, "the answer") {
		t.Errorf("beside slow clients: %s", got)
	}
}
