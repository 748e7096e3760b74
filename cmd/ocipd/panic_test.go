package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/api/client"
	"github.com/openclawos/ocipd/test/buildtest"
)

// The texts of messages at which the daemon of [TestPanicInACommit] panics, in the part of
// the commit that writes them, or in the callback after it.
const (
	panicsInPart     = "PANIC IN A PART"
	panicsInCallback = "PANIC IN A CALLBACK"
)

// panicking builds the daemon with faults in its commits.
func panicking(t *testing.T) string {
	t.Helper()
	const seeded = `package store

import "bytes"

func seeded(part Part, word string) {
	if m, ok := part.(*Message); ok && bytes.Contains(m.Body, []byte(word)) {
		panic("seeded")
	}
}
`
	program, err := buildtest.Mutant("../..", "./cmd/ocipd", t.TempDir(),
		buildtest.Edit{File: "internal/store/seeded.go", New: seeded},
		buildtest.Edit{
			File: "internal/store/writer.go", Old: "if err := part.put(&w.transaction)",
			New: "seeded(part, \"" + panicsInPart + "\")\nif err := part.put(&w.transaction)",
		},
		buildtest.Edit{
			File: "internal/store/commit.go", Old: "p.Durable(p.receipt)",
			New: "for _, part := range p.Parts { seeded(part, \"" + panicsInCallback + "\") }\np.Durable(p.receipt)",
		})
	if err != nil {
		t.Fatal(err)
	}
	return program
}

// supervise runs a daemon like a service manager that follows the unit: it restarts the
// daemon when the unit says so, and reports each start when the daemon is ready.
func (k *killTest) supervise(ctx context.Context, t *testing.T, program string) (ready <-chan *exec.Cmd, ended <-chan error) {
	t.Helper()
	unit, err := os.ReadFile("../../systemd/ocipd.service")
	if err != nil {
		t.Fatal(err)
	}
	setting := func(name string) string {
		_, value, _ := strings.Cut(string(unit), "\n"+name+"=")
		value, _, _ = strings.Cut(value, "\n")
		return value
	}
	if setting("Restart") != "on-failure" {
		t.Fatalf("the unit has Restart=%s", setting("Restart"))
	}
	final := strings.Fields(setting("RestartPreventExitStatus"))
	n := newNotices(t, k.dir)
	log, err := os.OpenFile(filepath.Join(k.dir, "log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { log.Close() })
	running, end := make(chan *exec.Cmd), make(chan error, 1)
	go func() {
		for {
			cmd := exec.CommandContext(ctx, program, "serve", "--config", filepath.Join(k.dir, "ocipd.yaml"), "--socket", k.socket)
			cmd.Env = append(os.Environ(), "XDG_STATE_HOME="+k.dir, "NOTIFY_SOCKET="+n.path)
			cmd.Stderr = log
			err := cmd.Start()
			if err == nil {
				n.until("READY=1")
				running <- cmd
				err = cmd.Wait()
			}
			failed, ok := errors.AsType[*exec.ExitError](err)
			if !ok || slices.Contains(final, strconv.Itoa(failed.ExitCode())) {
				end <- err
				return
			}
		}
	}()
	return running, end
}

// TestPanicInACommit has the daemon panic in a commit, in a part and in a callback. It
// ends, the service manager starts it again, and it continues: nothing is half done, and a
// message without an answer exists completely or not at all.
func TestPanicInACommit(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("builds a daemon")
	}
	program := panicking(t)
	for word, kept := range map[string]bool{panicsInPart: false, panicsInCallback: true} {
		t.Run(word, func(t *testing.T) {
			k := newKillTest(t)
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			ready, ended := k.supervise(ctx, t, program)
			var sender *client.Client
			started := func() (cmd *exec.Cmd) {
				t.Helper()
				select {
				case cmd = <-ready:
				case <-ctx.Done():
					t.Fatal("no daemon is started")
				}
				var err error
				if sender, err = k.app(ctx, "@kill/a0", api.Capabilities{}); err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { sender.Close() })
				return cmd
			}
			say := func(content string) error {
				var result api.DispatchResult
				err := sender.Call(ctx, "message.dispatch", map[string]any{
					"sessionKey": "chat:p0", "content": content, "metadata": map[string]any{"exchange": map[string]any{"new": true}},
				}, &result)
				if err == nil {
					k.acknowledged[0] = append(k.acknowledged[0], result.DispatchID)
				}
				return err
			}
			started()
			if err := say("before"); err != nil {
				t.Fatal(err)
			}
			if err := say(word); err == nil {
				t.Error("the change that panicked was acknowledged")
			}
			second := started()
			if err := say("after"); err != nil {
				t.Errorf("after the restart: %v", err)
			}
			if err := second.Process.Signal(os.Interrupt); err != nil {
				t.Fatal(err)
			}
			if err := <-ended; err != nil {
				t.Errorf("the daemon does not end in peace: %v", err)
			}
			said, err := os.ReadFile(filepath.Join(k.dir, "log"))
			if err != nil {
				t.Fatal(err)
			}
			for _, want := range []string{"a commit panicked: the process ends", "seeded", "verifying every record"} {
				if bytes.Count(said, []byte(want)) == 0 {
					t.Errorf("the log of the service lacks %q: %s", want, said)
				}
			}
			k.settle(t)
			k.judge(t)
			want := 2
			if kept {
				want = 3
			}
			if len(k.arrived) != want {
				t.Errorf("%d messages arrived, want %d", len(k.arrived), want)
			}
		})
	}
}
