// Package codexprobe tries whether Codex asks its hooks about text that is typed into
// an open shell, and about calls from a Code Mode script. It needs no model and does
// not touch the user's files: Codex runs in a temporary home, against a stand-in for
// the model, with one hook that logs each question.
package codexprobe

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Time bounds a trial.
const Time = 45 * time.Second

// typed is the text that the model types into the shell (cat) and that a script prints.
// It has no effect.
const typed = "ocipd-canary-typed"

// Way is a way to act about which Codex may not ask its hooks.
type Way int

const (
	// Typing is input into an open shell.
	Typing Way = iota
	// Scripting is Code Mode, in which a script calls tools. The trial enables it.
	Scripting
)

// maxAsked bounds a request of Codex to its model.
const maxAsked = 8 << 20

// ErrUnknown means that the trial never reached the point of interest.
var ErrUnknown = errors.New("cannot tell whether Codex asks its hooks")

// sandboxes are tried in turn: the first does not work everywhere, and the second may be forbidden.
var sandboxes = []string{"read-only", "danger-full-access"}

// Asked reports whether a Codex asks its hooks about one way. Errors other than
// [ErrUnknown] are failures of this machine.
func Asked(ctx context.Context, program string, way Way) (asked bool, err error) {
	ctx, stop := context.WithTimeout(ctx, Time)
	defer stop()
	for _, sandbox := range sandboxes {
		if asked, err = in(ctx, program, sandbox, way); err == nil || !errors.Is(err, ErrUnknown) {
			return asked, err
		}
	}
	return false, err
}

// in tries a Codex in one sandbox.
func in(ctx context.Context, program, sandbox string, way Way) (bool, error) {
	home, err := os.MkdirTemp("", "ocipd-codex")
	if err != nil {
		return false, err
	}
	defer func() { _ = os.RemoveAll(home) }() // it holds nothing of anybody
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return false, err
	}
	m := &model{way: way}
	server := &http.Server{Handler: m, ReadHeaderTimeout: Time}
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(l) }) // it ends when it is closed
	defer serving.Wait()
	defer func() { _ = server.Close() }()
	asked := filepath.Join(home, "asked")
	hooks, err := json.Marshal(map[string]any{"hooks": map[string]any{"PreToolUse": []any{map[string]any{
		"matcher": ".*", "hooks": []any{map[string]any{"type": "command", "command": "cat >>" + asked, "timeout": 10}},
	}}}})
	if err != nil {
		return false, err
	}
	settings := fmt.Sprintf("model = \"canary\"\nmodel_provider = \"canary\"\n[model_providers.canary]\nname = \"canary\"\nbase_url = \"http://%s/v1\"\nwire_api = \"responses\"\n", l.Addr())
	if way == Scripting {
		settings += "[features]\ncode_mode = true\n"
	}
	for name, text := range map[string][]byte{"hooks.json": hooks, "config.toml": []byte(settings)} {
		if err := os.WriteFile(filepath.Join(home, name), text, 0o600); err != nil {
			return false, err
		}
	}
	cmd := exec.CommandContext(ctx, program, "exec", "--skip-git-repo-check", "--dangerously-bypass-hook-trust", "--sandbox", sandbox, "go on")
	cmd.Dir, cmd.Env, cmd.WaitDelay = home, append(os.Environ(), "CODEX_HOME="+home), time.Second
	said, failed := cmd.CombinedOutput()
	questions, err := os.ReadFile(asked)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	switch {
	case !m.came() && way == Scripting:
		return false, fmt.Errorf("%w about calls of Code Mode: %w: %.300s", ErrUnknown, errors.Join(failed, errors.New("no script ran")), bytes.TrimSpace(said))
	case way == Typing && (!m.came() || len(questions) == 0):
		return false, fmt.Errorf("%w about what is typed into an open shell: %w: %.300s", ErrUnknown, errors.Join(failed, errors.New("no shell was opened")), bytes.TrimSpace(said))
	}
	return bytes.Contains(questions, []byte(typed)), nil
}

// model plays the model: it opens a shell and types into it, or writes a script, and ends.
type model struct {
	way Way
	mu  sync.Mutex
	// answered is set when the shell got the text or the script has run.
	answered bool
}

func (m *model) came() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.answered
}

func (m *model) done(came bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.answered = came
}

// script is a Code Mode script.
const script = `const said = await tools.exec_command({cmd: "echo ` + typed + `"}); text(JSON.stringify(said));`

// session matches Codex's name of an open shell.
var session = regexp.MustCompile(`session ID:? (\d+)`)

func (m *model) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	var asked struct {
		Input []struct {
			Type   string         `json:"type"`
			Output jsontext.Value `json:"output"`
		} `json:"input"`
	}
	body, err := io.ReadAll(http.MaxBytesReader(rw, r.Body, maxAsked))
	if r.Method != http.MethodPost || err != nil || json.Unmarshal(body, &asked) != nil {
		rw.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(rw, `{"data":[],"models":[]}`) // the client may be gone
		return
	}
	var outputs []string
	for _, one := range asked.Input {
		if strings.HasSuffix(one.Type, "_call_output") {
			outputs = append(outputs, string(one.Output))
		}
	}
	item := map[string]any{"type": "message", "id": "msg_1", "role": "assistant", "content": []any{map[string]any{"type": "output_text", "text": "done"}}}
	call := func(name string, arguments map[string]any) {
		text, err := json.Marshal(arguments)
		if err == nil {
			item = map[string]any{"type": "function_call", "id": fmt.Sprintf("fc_%d", len(outputs)+1), "call_id": fmt.Sprintf("call_%d", len(outputs)+1), "name": name, "arguments": string(text)}
		}
	}
	switch {
	case m.way == Scripting && len(outputs) == 0:
		item = map[string]any{"type": "custom_tool_call", "id": "ctc_1", "call_id": "call_1", "name": "exec", "input": script}
	case m.way == Scripting:
		m.done(strings.Contains(outputs[0], typed))
	case len(outputs) == 0:
		call("exec_command", map[string]any{"cmd": "cat", "tty": true, "yield_time_ms": 300})
	case len(outputs) == 1:
		if found := session.FindStringSubmatch(outputs[0]); found != nil {
			call("write_stdin", map[string]any{"session_id": jsontext.Value(found[1]), "chars": typed + "\n", "yield_time_ms": 300})
		}
	default:
		m.done(true)
	}
	rw.Header().Set("Content-Type", "text/event-stream")
	for _, e := range []map[string]any{
		{"type": "response.created", "response": map[string]any{"id": "resp_1"}},
		{"type": "response.output_item.done", "output_index": 0, "item": item},
		{"type": "response.completed", "response": map[string]any{"id": "resp_1", "usage": map[string]any{
			"input_tokens": 1, "input_tokens_details": nil, "output_tokens": 1, "output_tokens_details": nil, "total_tokens": 2,
		}}},
	} {
		text, err := json.Marshal(e)
		if err != nil {
			return
		}
		if _, err := fmt.Fprintf(rw, "event: %s\ndata: %s\n\n", e["type"], text); err != nil {
			return
		}
	}
}
