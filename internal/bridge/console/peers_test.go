package console

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/api/client"
)

// The parts that this test plays in other processes.
const (
	partVariable   = "CONSOLE_TEST_PART"
	socketVariable = "CONSOLE_TEST_SOCKET"

	anApp      = "app"           // registers as an app, and asks
	appsChild  = "app's child"   // has a child ask
	detached   = "app, detached" // has a process ask that is not its child any more
	otherUser  = "other user"    // asks as another user
	asks       = "asks"
	lets       = "lets"  // starts a process that asks, and ends
	fills      = "fills" // holds many connections as another user, and asks
	nobody     = 65534
	descriptor = 3
)

// appOf are the apps of the parts.
var appOf = map[string]string{anApp: "@acme/alice", appsChild: "@acme/bob", detached: "@acme/carol"}

// asking is a request as its bytes.
type asking struct {
	Address string `json:"address"`
	Text    []byte `json:"text"`
}

// play plays a part: it makes the requests that come in, and writes the answers' statuses.
func play(part string) {
	if err := playing(part); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
}

func playing(part string) error {
	switch part {
	case anApp, appsChild, detached:
		c, err := client.Dial(context.Background(), os.Getenv(socketVariable))
		if err != nil {
			return err
		}
		defer c.Close()
		if _, err := c.Register(context.Background(), &api.Manifest{ID: appOf[part], Name: "x", Version: "1.0.0", Type: "app", Main: "x", Protocol: api.ManifestProtocol{Version: "1.0"}}); err != nil {
			return err
		}
		if part == anApp {
			break
		}
		next := asks
		if part == detached {
			next = lets
		}
		cmd := exec.Command("/proc/self/exe")
		cmd.Env = append(os.Environ(), partVariable+"="+next)
		cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
		if err := cmd.Run(); err != nil || part == appsChild {
			return err
		}
		// The app is there for as long as the test.
		_, err = c.Next(context.Background())
		return err
	case lets:
		cmd := exec.Command("/proc/self/exe")
		cmd.Env = append(os.Environ(), partVariable+"="+asks)
		cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = os.Stdin, os.Stdout, os.Stderr, &syscall.SysProcAttr{Setsid: true}
		return cmd.Start()
	case otherUser, fills:
		if err := syscall.Setuid(nobody); err != nil {
			return err
		}
	}
	if part == fills {
		for range 2 * maxConnections {
			c, err := net.Dial("tcp", os.Getenv(socketVariable))
			if err != nil {
				return err
			}
			defer c.Close()
		}
	}
	fmt.Println("ready", os.Getpid())
	lines := bufio.NewReader(os.Stdin)
	for {
		text, err := lines.ReadBytes('\n')
		if err != nil {
			return nil
		}
		var w asking
		if err := json.Unmarshal(text, &w); err != nil {
			return err
		}
		status, err := w.send()
		if err != nil {
			return err
		}
		fmt.Println(status)
	}
}

// send makes a request over a connection of its own, and returns the status.
func (w *asking) send() (int, error) {
	c, err := net.Dial("tcp", w.Address)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	if _, err := c.Write(w.Text); err != nil {
		return 0, err
	}
	answer, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return 0, err
	}
	// The body of a stream has no end: closing it would wait for that.
	return answer.StatusCode, nil
}

// asker is a process that asks.
type asker struct {
	t     *testing.T
	in    io.WriteCloser
	lines *bufio.Scanner
	pid   int
}

// asker starts a process that plays a part.
func (w *world) asker(part string, files ...*os.File) *asker {
	w.Helper()
	cmd := exec.Command("/proc/self/exe")
	socket := w.path("run/kernel.sock")
	if part == fills {
		socket = w.address()
	}
	cmd.Env = append(os.Environ(), partVariable+"="+part, socketVariable+"="+socket)
	cmd.Stderr, cmd.ExtraFiles = os.Stderr, files
	in, err := cmd.StdinPipe()
	if err != nil {
		w.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		w.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() {
		in.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	a := &asker{t: w.T, in: in, lines: bufio.NewScanner(out)}
	if _, err := fmt.Sscanf(a.line(), "ready %d", &a.pid); err != nil {
		w.Fatal(err)
	}
	return a
}

func (a *asker) line() string {
	a.t.Helper()
	if !a.lines.Scan() {
		a.t.Fatal("the process that asks has ended")
	}
	return a.lines.Text()
}

// status makes a request and returns its status.
func (a *asker) status(w asking) (status int) {
	a.t.Helper()
	text, err := json.Marshal(w)
	if err != nil {
		a.t.Fatal(err)
	}
	if _, err := a.in.Write(append(text, '\n')); err != nil {
		a.t.Fatal(err)
	}
	if _, err := fmt.Sscan(a.line(), &status); err != nil {
		a.t.Fatal(err)
	}
	return status
}

// bytesOf writes a request for a path with some headers.
func bytesOf(method, path, host string, headers map[string]string, body string) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s %s HTTP/1.1\r\n", method, path)
	if host != "" {
		fmt.Fprintf(&b, "Host: %s\r\n", host)
	}
	for name, value := range headers {
		if value != "" {
			fmt.Fprintf(&b, "%s: %s\r\n", name, value)
		}
	}
	if method != http.MethodGet {
		fmt.Fprintf(&b, "Content-Length: %d\r\n", len(body))
	}
	b.WriteString("\r\n" + strings.TrimSpace(body))
	return b.Bytes()
}
