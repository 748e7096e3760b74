package codexprobe

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/openclawos/ocipd/test/buildtest"
	"github.com/pelletier/go-toml/v2"
)

// plays is the variable that makes this program play Codex: it opens a shell, asks its hook
// about typed text, or neither.
const plays = "OCIPD_PLAYS_CODEX"

func TestMain(m *testing.M) {
	if how := os.Getenv(plays); how != "" {
		if err := play(how); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	buildtest.Isolated(m).Run()
}

// play acts like Codex: it asks its model three times, and its hook about tool calls.
func play(how string) error {
	home := os.Getenv("CODEX_HOME")
	var settings struct {
		Providers map[string]struct {
			URL string `toml:"base_url"`
		} `toml:"model_providers"`
	}
	text, err := os.ReadFile(filepath.Join(home, "config.toml"))
	if err == nil {
		err = toml.Unmarshal(text, &settings)
	}
	var hooks struct {
		Hooks map[string][]struct {
			Hooks []struct{ Command string }
		}
	}
	if err == nil {
		text, err = os.ReadFile(filepath.Join(home, "hooks.json"))
	}
	if err == nil {
		err = json.Unmarshal(text, &hooks, json.MatchCaseInsensitiveNames(true))
	}
	if err != nil {
		return err
	}
	say := func(outputs, want string) error {
		got, err := http.Post(settings.Providers["canary"].URL+"/responses", "application/json", strings.NewReader(`{"input":[`+outputs+`]}`))
		if err != nil {
			return err
		}
		defer got.Body.Close()
		answer, err := io.ReadAll(got.Body)
		if err == nil && !strings.Contains(string(answer), want) {
			err = fmt.Errorf("answered %s", answer)
		}
		return err
	}
	ask := func(question string) error {
		cmd := exec.Command("/bin/sh", "-c", hooks.Hooks["PreToolUse"][0].Hooks[0].Command)
		cmd.Stdin = strings.NewReader(question)
		return cmd.Run()
	}
	switch how {
	case "asks about a script's calls", "runs scripts", "no script":
		if err := say("", `custom_tool_call`); err != nil {
			return err
		}
		output := "unsupported"
		if how != "no script" {
			output = typed
		}
		if how == "asks about a script's calls" {
			if err := ask(`{"tool_name":"Bash","tool_input":{"command":"echo ` + typed + `"}}`); err != nil {
				return err
			}
		}
		return say(`{"type":"custom_tool_call_output","output":"`+output+`"}`, `"done"`)
	}
	const opened = `{"type":"function_call_output","output":"Process running with session ID 7"}`
	if err := say("", `exec_command`); err != nil || how == "no shell" {
		return err
	}
	if err := ask(`{"tool_name":"Bash","tool_input":{"command":"cat"}}`); err != nil {
		return err
	}
	if err := say(opened, `\"session_id\":7`); err != nil {
		return err
	}
	if how == "asks" {
		if err := ask(`{"tool_name":"write_stdin","tool_input":{"chars":"` + typed + `"}}`); err != nil {
			return err
		}
	}
	return say(opened+`,{"type":"function_call_output","output":"`+typed+`"}`, `"done"`)
}

// The probe distinguishes a Codex that asks its hook about typed text, one that does not,
// and one for which the result is unknown.
func TestAsked(t *testing.T) {
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		how  string
		way  Way
		want bool
		err  error
	}{
		{"asks", Typing, true, nil}, {"is silent", Typing, false, nil}, {"no shell", Typing, false, ErrUnknown},
		{"asks about a script's calls", Scripting, true, nil}, {"runs scripts", Scripting, false, nil}, {"no script", Scripting, false, ErrUnknown},
	} {
		t.Setenv(plays, tt.how)
		if asked, err := Asked(t.Context(), program, tt.way); asked != tt.want || !errors.Is(err, tt.err) {
			t.Errorf("one that %s: %t, %v", tt.how, asked, err)
		}
	}
	if _, err := Asked(t.Context(), filepath.Join(t.TempDir(), "none"), Typing); !errors.Is(err, ErrUnknown) {
		t.Errorf("none is there: %v", err)
	}
}
