package main

import (
	"bufio"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// hangUp is a socket whose other end reads one line and ends the connection.
func hangUp(t *testing.T, dir, name string) string {
	path := filepath.Join(dir, name+".sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = bufio.NewReader(conn).ReadString('\n')
			conn.Close()
		}
	}()
	return path
}

// TestTour saves the configuration of the tour, with which the daemon serves. The shell script that the
// tour names is an app, with socat and with nc.
func TestTour(t *testing.T) {
	t.Parallel()
	for _, tool := range []string{"bash", "jq"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("the tour needs %s", tool)
		}
	}
	page, err := os.ReadFile("../../docs/tour.md")
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "ocipd")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	files := regexp.MustCompile("(?s)<!-- file (\\S+) -->\n```\\w+\n(.*?)```").FindAllSubmatch(page, -1)
	if len(files) != 1 || string(files[0][1]) != "tour.yaml" {
		t.Fatalf("the tour has the files %q", files)
	}
	app, err := os.ReadFile("../../examples/shell/app.sh")
	if err := errors.Join(err, os.WriteFile(filepath.Join(dir, "app.sh"), app, 0o600), os.WriteFile(filepath.Join(dir, "tour.yaml"), files[0][2], 0o600)); err != nil {
		t.Fatal(err)
	}
	k := &killTest{dir: dir, socket: filepath.Join(dir, "run", "kernel.sock")}
	if err := os.Rename(filepath.Join(dir, "tour.yaml"), filepath.Join(dir, "ocipd.yaml")); err != nil {
		t.Fatal(err)
	}
	daemon := k.start(t)
	for _, tool := range []string{"socat", "nc"} {
		path, err := exec.LookPath(tool)
		if err != nil {
			t.Logf("without %s", tool)
			continue
		}
		t.Run(tool, func(t *testing.T) {
			// The script prefers socat, so it sees one tool at a time.
			bin := t.TempDir()
			for _, name := range []string{"bash", "jq"} {
				found, err := exec.LookPath(name)
				if err != nil {
					t.Fatal(err)
				}
				if err := os.Symlink(found, filepath.Join(bin, name)); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.Symlink(path, filepath.Join(bin, tool)); err != nil {
				t.Fatal(err)
			}
			run := func(socket string) ([]byte, error) {
				script := exec.CommandContext(t.Context(), "bash", "app.sh")
				script.Dir = dir
				script.Env = []string{"PATH=" + bin, "OPENCLAWOS_KERNEL_SOCKET=" + socket}
				return script.CombinedOutput()
			}
			// If nobody listens or the connection ends, the script says so.
			for _, socket := range []string{filepath.Join(dir, "nobody.sock"), hangUp(t, dir, tool)} {
				out, err := run(socket)
				if err == nil || !strings.Contains(string(out), "nobody answers on "+socket) || strings.Contains(string(out), "unbound") {
					t.Errorf("on %s: %v\n%s", socket, err, out)
				}
			}
			out, err := run(k.socket)
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			for _, want := range []string{`"granted":true`, `"queued":true`, "CROSS_ENTERPRISE_BLOCKED", `"target": "friend"`, "Sent by me's assistant", `"exchange_round"`, `app.shutdown → {"ok":true}`} {
				if !strings.Contains(string(out), want) {
					t.Errorf("the output does not have %s:\n%s", want, out)
				}
			}
		})
	}
	if err := daemon.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := daemon.Wait(); err != nil {
		t.Error(err)
	}
}
