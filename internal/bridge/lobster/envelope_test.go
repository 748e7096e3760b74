package lobster

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"golang.org/x/sys/unix"
)

func TestParse(t *testing.T) {
	tests := []struct{ name, out, approval, text, fault string }{
		{name: "ok", out: `{"protocolVersion":1,"ok":true,"status":"ok","output":[{"a":1}],"requiresApproval":null,"requiresInput":null}` + "\n", text: "it says ok"},
		{name: "a gate", out: `{"protocolVersion":1,"ok":true,"status":"needs_approval","requiresApproval":{"type":"approval_request","items":["x",{"approval_id":7},{"approval_id":"apr_1"}],"resumeToken":"t"}}`, approval: "apr_1", text: "it says needs_approval"},
		{name: "a gate of something else", out: `{"protocolVersion":1,"ok":true,"status":"needs_approval","requiresApproval":{"prompt":"Go on?","resumeToken":"t"}}`, text: "it says needs_approval"},
		{name: "cancelled", out: `{"protocolVersion":1,"ok":true,"status":"cancelled","output":[]}`, text: "it says cancelled"},
		{name: "an error", out: `{"protocolVersion":1,"ok":false,"error":{"type":"runtime_error","message":"Workflow resume state not found"}}`, text: "Workflow resume state not found"},
		{name: "an error without words", out: `{"protocolVersion":1,"ok":false}`, text: "does not say why"},
		{name: "nothing", out: " \n", fault: "said nothing"},
		{name: "text", out: "Done.", fault: "one envelope"},
		{name: "two", out: `{"protocolVersion":1,"ok":true,"status":"ok"}{"protocolVersion":1,"ok":true,"status":"ok"}`, fault: "one envelope"},
		{name: "text before it", out: `x{"protocolVersion":1,"ok":true,"status":"ok"}`, fault: "one envelope"},
		{name: "a member twice", out: `{"protocolVersion":1,"ok":false,"ok":true,"status":"ok"}`, fault: "one envelope"},
		{name: "cut short", out: `{"protocolVersion":1,"ok":true,"sta`, fault: "one envelope"},
		{name: "another version", out: `{"protocolVersion":2,"ok":true,"status":"ok"}`, fault: "version 2"},
		{name: "a gate without a token", out: `{"protocolVersion":1,"ok":true,"status":"needs_approval","requiresApproval":null}`, fault: "without a token"},
		{name: "another word", out: `{"protocolVersion":1,"ok":true,"status":"fine"}`, fault: `says "fine"`},
	}
	for _, tt := range tests {
		e, err := parse([]byte(tt.out))
		switch {
		case tt.fault != "":
			if err == nil || !strings.Contains(err.Error(), tt.fault) {
				t.Errorf("%s: %v", tt.name, err)
			}
		case err != nil:
			t.Errorf("%s: %v", tt.name, err)
		case !strings.Contains(e.text(), tt.text) || e.paused() && e.approval() != tt.approval:
			t.Errorf("%s: %+v", tt.name, e)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"protocolVersion":1,"ok":true,"status":"needs_approval","requiresApproval":{"items":[{"approval_id":"apr_1"}],"resumeToken":"t"}}`))
	f.Add([]byte(`{"protocolVersion":1,"ok":false,"error":{"message":"x"}}`))
	f.Fuzz(func(t *testing.T, out []byte) {
		e, err := parse(out)
		if err != nil {
			return
		}
		if e.paused() && (e.RequiresApproval == nil || e.RequiresApproval.ResumeToken == "") {
			t.Errorf("a gate without a token: %q", out)
		}
		if e.paused() {
			_ = e.approval()
		}
		if e.ok() && e.paused() || e.text() == "" {
			t.Errorf("%q is %+v", out, e)
		}
	})
}

func TestArgs(t *testing.T) {
	var got map[string]string
	if err := json.Unmarshal([]byte(argsOf("tsk_1", `a"b$(x)`)), &got); err != nil || got["key"] != `a"b$(x)` || got["task_id"] != "tsk_1" {
		t.Errorf("%v, %v", got, err)
	}
}

func TestEnvironment(t *testing.T) {
	got := strings.Join(Environment([]string{"PATH=/bin", "OCIPD_TOKEN=mine", "OCIPD_TOKEN_FILE=/mine", "OPENCLAWOS_KERNEL_SOCKET=/x"}, "ocg_1", "/run/kernel.sock", "/usr/bin/ocipd"), " ")
	if want := "OCIPD_TOKEN=ocg_1 OPENCLAWOS_KERNEL_SOCKET=/run/kernel.sock PATH=/bin OCIPD_BIN=/usr/bin/ocipd"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got := strings.Join(Environment([]string{"OCIPD_BIN=/mine"}, "", "", "/usr/bin/ocipd"), " "); strings.Contains(got, "/usr/bin") {
		t.Errorf("%s", got)
	}
}

// If a program writes too much, fails or does not exist, the error says so.
func TestProgram(t *testing.T) {
	if _, err := Find("no-such-lobster"); err == nil {
		t.Error("it was found")
	}
	sh, err := Find("sh")
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ script, out, fault string }{
		{"printf x; exit 0", "x", ""},
		{"printf x; echo why >&2; exit 3", "x", "exit status 3: why"},
		{"head -c 17000000 /dev/zero", "", "more than 16 MiB"},
	} {
		out, err := Program(sh)(t.Context(), nil, "-c", "PATH=/usr/bin:/bin; "+tt.script)
		if string(out) != tt.out || (err == nil) != (tt.fault == "") || err != nil && !strings.Contains(err.Error(), tt.fault) {
			t.Errorf("%s: %.100q, %v", tt.script, out, err)
		}
	}
}

// When nobody waits for Lobster any more, it ends with its steps, including those that ignore SIGTERM.
func TestProgramEnds(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	step := filepath.Join(dir, "step")
	if err := unix.Mkfifo(step, 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := Program("/bin/sh")(ctx, []string{"PATH=/usr/bin:/bin"}, "-c", `(trap "" TERM; echo begun; exec sleep 1000) >"`+step+`" 2>&1 & trap "exit 1" TERM; wait`)
		ended <- err
	}()
	// The step keeps the pipe open while it lives.
	f, err := os.Open(step)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	text := make([]byte, len("begun\n"))
	if _, err := io.ReadFull(f, text); err != nil || string(text) != "begun\n" {
		t.Fatalf("%q, %v", text, err)
	}
	cancel()
	if err := <-ended; err == nil {
		t.Error("it ended well")
	}
	if err := f.SetReadDeadline(time.Now().Add(5 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if n, err := f.Read(text); !errors.Is(err, io.EOF) {
		t.Errorf("its step lives on: %d, %v", n, err)
	}
}
