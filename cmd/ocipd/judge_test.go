package main

import (
	"bufio"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/openclawos/ocipd/internal/api"
)

// model is a stand-in for an operator's model. Each question takes one answer from the test.
type model struct {
	*httptest.Server
	asked   chan string
	answers chan func(http.ResponseWriter, *http.Request)
}

func newModel(t *testing.T) *model {
	t.Helper()
	m := &model{asked: make(chan string, 8), answers: make(chan func(http.ResponseWriter, *http.Request), 8)}
	m.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		m.asked <- string(body)
		(<-m.answers)(w, r)
	}))
	t.Cleanup(m.Close)
	return m
}

// says answers a question with a model's text.
func (m *model) says(text string) {
	m.answers <- func(w http.ResponseWriter, _ *http.Request) {
		body, err := json.Marshal(map[string]any{"choices": []any{map[string]any{"finish_reason": "stop", "message": map[string]any{"content": text}}}})
		if err == nil {
			_, _ = w.Write(body)
		}
	}
}

// judge is a running `ocipd judge`, and the lines that it says.
type judge struct {
	*exec.Cmd
	lines *bufio.Scanner
}

func (p *operators) judge() *judge {
	p.t.Helper()
	cmd := exec.CommandContext(p.t.Context(), os.Args[0], "--config", p.dir+"/ocipd.yaml", "--socket", p.socket, "judge")
	cmd.Env = append(p.env, asProgram+"=1")
	out, err := cmd.StderrPipe()
	if err != nil {
		p.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	j := &judge{cmd, bufio.NewScanner(out)}
	p.t.Cleanup(func() { _ = cmd.Process.Kill() })
	j.wants(p.t, "ready")
	return j
}

// wants reads the judge's next line.
func (j *judge) wants(t *testing.T, says string) {
	t.Helper()
	if !j.lines.Scan() || !strings.Contains(j.lines.Text(), says) {
		t.Fatalf("the judge says %q (%v), want %q", j.lines.Text(), j.lines.Err(), says)
	}
}

const (
	opens = "I'll take care of it."
	no    = `{"commits": false, "reason": "It only reports."}`
)

// A judge in a process of its own asks a model over HTTP. Its answer stands in the request, and no
// other answer of the server, and no end of the judge, changes anything.
func TestJudgeProcess(t *testing.T) {
	t.Parallel()
	m := newModel(t)
	p := newOperators(t, nil, "approvals: {notify: {desktop: false}}\nocip: {commitment: {keywords: weigh}, judge: {url: '"+m.URL+"/v1', model: wise, timeout: 1s}}\n")
	j := p.judge()

	id := p.hold(opens)
	if asked := <-m.asked; !strings.Contains(asked, opens) || strings.Contains(asked, "agent-alice-1") || strings.Contains(asked, "bob") {
		t.Errorf("the model is asked %s", asked)
	}
	m.says(no)
	j.wants(t, id+" has the model's answer, and waits for a person")
	p.wants(0, "  a model       it commits nobody: «It only reports.»", "show", id)
	waits := func(id string) {
		t.Helper()
		var a api.Approval
		if err := json.Unmarshal([]byte(p.wants(0, id, "show", id, "--json")), &a); err != nil || a.State != api.ApprovalPending || a.Opinion != nil {
			t.Fatalf("it is %+v, %v", a.ApprovalSummary, err)
		}
	}

	// What always holds is not asked about.
	p.hold("I'll take care of it by Friday.")
	for thing, answer := range map[string]string{"door": "No.", "window": `{"commits": false, "reason": "` + strings.Repeat("x", 3000) + `"}`} {
		id = p.hold("I'll take care of the " + thing + ".")
		<-m.asked
		m.says(answer)
		j.wants(t, id+" is left to people: the model's answer is not usable")
		waits(id)
	}
	other := newModel(t)
	id = p.hold("I'll take care of the roof.")
	<-m.asked
	m.answers <- func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, other.URL+"/v1/chat/completions", http.StatusTemporaryRedirect)
	}
	j.wants(t, id+" is left to people: the server answers with status 307")
	waits(id)
	id = p.hold("I'll take care of the floor.")
	<-m.asked
	m.answers <- func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
	j.wants(t, id+" is left to people: no answer within 1s")
	waits(id)

	// A judge that is killed while the model thinks leaves the message to people, or to the next judge.
	id = p.hold("I'll take care of the lamp.")
	<-m.asked
	if err := j.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = j.Wait()
	m.answers <- func(http.ResponseWriter, *http.Request) {}
	waits(id)
	if len(other.asked) > 0 {
		t.Error("another server was asked")
	}
	p.end()
}

// With release, a no sends the message; once the server is gone, people decide.
func TestJudgeProcessReleases(t *testing.T) {
	t.Parallel()
	m := newModel(t)
	p := newOperators(t, nil, "approvals: {notify: {desktop: false}}\nocip: {commitment: {keywords: weigh}, judge: {url: '"+m.URL+"/v1', model: wise, may: release}}\n")
	id := p.hold(opens)
	m.says(no)
	j := p.judge()
	j.wants(t, id+" is released: the model finds that it commits nobody")
	p.wants(0, "by judge, ", "show", id)
	m.says(`{"commits": true, "reason": "It promises."}`)
	id = p.hold("I'll take care of the door.")
	j.wants(t, id+" has the model's answer, and waits for a person")
	m.Close()
	id = p.hold("We'll take care of the rest.")
	j.wants(t, id+" is left to people: ")
	p.wants(0, "pending", "show", id)
	p.wants(0, "denied", "deny", id, "--yes")
	p.end()
}
