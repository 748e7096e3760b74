package daemon_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/api/client"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/ocip"
)

// loose is a socket as a file that processes can share, which is not connected yet.
func loose(t *testing.T) *os.File {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "socket")
	t.Cleanup(func() { f.Close() })
	return f
}

// say writes a request to a socket and returns its answer.
func say(f io.ReadWriter, method, params string) (answer struct {
	Success bool
	Error   api.Error
}, err error) {
	if _, err := fmt.Fprintf(f, `{"id":"1","type":"request","method":%q,"params":%s}`+"\n", method, params); err != nil {
		return answer, err
	}
	line, err := bufio.NewReader(f).ReadBytes('\n')
	if err != nil {
		return answer, err
	}
	return answer, json.Unmarshal(line, &answer, json.MatchCaseInsensitiveNames(true))
}

// spoken turns a shared socket into a connection.
func spoken(t *testing.T, f *os.File) net.Conn {
	t.Helper()
	c, err := net.FileConn(f)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	return c
}

// plays runs this test in a separate process, in a part.
func plays(t *testing.T, part string, h *harness) *exec.Cmd {
	cmd := exec.CommandContext(t.Context(), self(t), "-test.v", "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), appPart+"="+part, appHarness+"="+h.dir, "GORACE=atexit_sleep_ms=0")
	return cmd
}

// joins connects the shared socket, which is descriptor 3.
func joins(t *testing.T, socket string) {
	t.Helper()
	if err := syscall.Connect(3, &syscall.SockaddrUnix{Name: filepath.Join(os.Getenv(appHarness), socket)}); err != nil {
		t.Fatal(err)
	}
}

// A process that connected and ended cannot register: another process that speaks in its
// place could not be distinguished from a person's afterwards.
func TestRegisterOfADeadProcess(t *testing.T) {
	if os.Getenv(appPart) != "" {
		joins(t, "run/kernel.sock")
		return
	}
	h := build(t, acme)
	f := loose(t)
	cmd := plays(t, "connects", h)
	cmd.ExtraFiles = []*os.File{f}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s (%v)", out, err)
	}
	got, err := say(spoken(t, f), "app.register", `{"manifest":`+wireManifestOf("@acme/alice")+`}`)
	if err != nil || got.Success || got.Error.Code != api.Forbidden {
		t.Errorf("it is answered %+v, %v", got, err)
	}
	r := h.records(audit.Filter{Like: audit.Record{ActionType: audit.ActionSecurity, AppID: "@acme/alice"}})
	if len(r) != 1 || r[0].Event != "process_refused" {
		t.Errorf("on record is %+v", r)
	}
}

func wireManifestOf(id string) string {
	b, err := json.Marshal(manifest(id, api.Capabilities{}))
	if err != nil {
		panic(err)
	}
	return string(b)
}

// A binding to a program is checked for the process that speaks: it does not help that the
// process which connected has since become the bound program.
func TestBoundProgramOfAnotherProcess(t *testing.T) {
	switch os.Getenv(appPart) {
	case "connects":
		becomesBound(t)
		return
	case "speaks":
		speaksForParent(t)
		return
	}
	if testing.Short() {
		t.Skip("starts processes")
	}
	sleep := boundSleep(t)
	h := build(t, strings.Replace(acme, `app: "@acme/alice"`, `app: "@acme/alice", exe: `+sleep, 1))
	cmd := plays(t, "connects", h)
	cmd.Env = append(cmd.Env, "BOUND="+sleep)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	lines := bufio.NewScanner(out)
	said := ""
	for said == "" && lines.Scan() {
		if rest, ok := strings.CutPrefix(lines.Text(), "answered: "); ok {
			said = rest
		}
	}
	if said != string(api.Forbidden) {
		t.Errorf("who speaks on the connection of the bound program is answered %q", said)
	}
	if r := h.records(audit.Filter{Like: audit.Record{ActionType: audit.ActionSecurity, AppID: "@acme/alice"}}); len(r) != 1 || r[0].Event != "binding_refused" {
		t.Errorf("on record is %+v", r)
	}
}

// boundSleep is a separate program that sleeps.
func boundSleep(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath("sleep")
	if err != nil {
		t.Skip("no sleep here")
	}
	if path, err = filepath.EvalSymlinks(path); err != nil {
		t.Fatal(err)
	}
	return path
}

// becomesBound connects, starts a process that shares the connection, and becomes the bound program.
func becomesBound(t *testing.T) {
	h := &harness{t: t, dir: os.Getenv(appHarness)}
	f := loose(t)
	if err := syscall.Connect(int(f.Fd()), &syscall.SockaddrUnix{Name: h.path("run/kernel.sock")}); err != nil {
		t.Fatal(err)
	}
	child := exec.Command(self(t), "-test.v", "-test.run=^"+t.Name()+"$")
	child.Env = append(os.Environ(), appPart+"=speaks")
	child.ExtraFiles, child.Stdout, child.Stderr = []*os.File{f}, os.Stdout, os.Stderr
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	t.Fatal(syscall.Exec(os.Getenv("BOUND"), []string{"sleep", "60"}, os.Environ()))
}

// speaksForParent registers once its parent is the bound program.
func speaksForParent(t *testing.T) {
	parent := fmt.Sprintf("/proc/%d/exe", os.Getppid())
	deadline := time.Now().Add(patience)
	for {
		if path, err := os.Readlink(parent); err == nil && path == os.Getenv("BOUND") {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("it never became the bound program")
		}
	}
	got, err := say(spoken(t, os.NewFile(3, "socket")), "app.register", `{"manifest":`+wireManifestOf("@acme/alice")+`}`)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Printf("\nanswered: %s\n", got.Error.Code)
}

// A process that registered cannot decide after a restart either, whether or not it registered again.
func TestAppProcessesAreRememberedOverARestart(t *testing.T) {
	if os.Getenv(appPart) != "" {
		decidesAfterARestart(t)
		return
	}
	h := strictly(t, acme)
	cmd := plays(t, "app", h)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	until := func(prefix string) string {
		t.Helper()
		var before []string
		for lines.Scan() {
			if rest, ok := strings.CutPrefix(lines.Text(), prefix); ok {
				return rest
			}
			before = append(before, lines.Text())
		}
		t.Fatalf("it ended with %q", before)
		return ""
	}
	id := until("held: ")
	h.restart()
	fmt.Fprintln(in, "restarted")
	if said := until("said: "); !strings.Contains(said, "is app @acme/alice") {
		t.Errorf("after a restart it is told %q", said)
	}
	in.Close()
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	// A person is admitted.
	h.decides(api.DecideDeny, id)
}

func decidesAfterARestart(t *testing.T) {
	h := &harness{t: t, dir: os.Getenv(appHarness)}
	alice := h.agent("@acme/alice")
	held := alice.held(ocip.CommitmentRequiresHuman, "telegram:dave", promise, fresh(nil))
	fmt.Printf("\nheld: %s\n", held.ApprovalID)
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	c, err := client.Dial(t.Context(), h.path("run/operator.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	err = c.Call(ctx, "approval.resolve", map[string]any{"approvalId": held.ApprovalID, "decision": api.DecideDeny}, nil)
	fmt.Printf("\nsaid: %v\n", err)
}

// An operator's connection that another process opened cannot be used for anything, because
// its user is not the process that was checked.
func TestOperatorConnectionThatWasHandedOn(t *testing.T) {
	if os.Getenv(appPart) != "" {
		joins(t, "run/operator.sock")
		fmt.Println("\njoined")
		_, _ = io.Copy(io.Discard, os.Stdin)
		return
	}
	h := strictly(t, acme)
	f := loose(t)
	// The shell between them ends, so that its child is nobody's child here.
	helper := plays(t, "helper", h)
	cmd := exec.CommandContext(t.Context(), "/bin/sh", append([]string{"-c", `"$0" "$@" <&4 & exit 0`}, helper.Args...)...)
	cmd.Env = helper.Env
	held, release, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer release.Close()
	cmd.ExtraFiles = []*os.File{f, held}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	held.Close()
	lines := bufio.NewScanner(out)
	for lines.Scan() && lines.Text() != "joined" {
	}
	var described api.Description
	h.operator("kernel.describe", map[string]any{}, &described)
	c, asked := spoken(t, f), 0
	for i := range described.Methods {
		m := &described.Methods[i]
		asked++
		got, err := say(c, m.Name, `{}`)
		if err != nil || got.Success || got.Error.Code != api.Forbidden || !strings.Contains(got.Error.Message, "not who speaks") {
			t.Errorf("%s is answered %+v, %v", m.Name, got, err)
		}
	}
	if asked < 20 {
		t.Errorf("%d methods were asked for", asked)
	}
	release.Close()
	if err := cmd.Wait(); err != nil && !errors.Is(err, exec.ErrWaitDelay) {
		t.Error(err)
	}
}
