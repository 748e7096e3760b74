// Package brokertest runs a NATS server for tests: the one that packaging/tools names, built from
// source, in a process of its own that a test may kill.
package brokertest

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// program builds the server once for all tests of a process, into their home, which is removed after
// them.
var program = sync.OnceValues(func() (string, string) {
	home, err := os.UserHomeDir()
	if err != nil {
		return "", err.Error()
	}
	root, err := exec.Command("go", "env", "GOMOD").Output()
	if err != nil {
		return "", err.Error()
	}
	file := filepath.Join(home, "nats-server")
	build := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-o", file, "github.com/nats-io/nats-server/v2")
	build.Dir = filepath.Join(filepath.Dir(strings.TrimSpace(string(root))), "packaging", "tools")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if said, err := build.CombinedOutput(); err != nil {
		return "", err.Error() + "\n" + string(said)
	}
	return file, ""
})

// Program is the path of the server. The test is skipped if the server's source is not on this machine
// and cannot be had.
func Program(tb testing.TB) string {
	tb.Helper()
	file, failed := program()
	for _, offline := range []string{"dial tcp", "no such host", "GOPROXY=off", "GOPROXY list is not the empty string"} {
		if strings.Contains(failed, offline) {
			tb.Skipf("nats-server cannot be built without a network: %s", failed)
		}
	}
	if failed != "" {
		tb.Fatalf("cannot build nats-server: %s", failed)
	}
	return file
}

// Address is a free address of this machine. It stays the same over restarts of a server.
func Address(tb testing.TB) string {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// Broker is a server in a process of its own.
type Broker struct {
	tb      testing.TB
	config  string
	process *exec.Cmd
	ended   chan struct{}
}

// Start runs a server with a configuration file, and returns when it takes connections.
func Start(tb testing.TB, config string) *Broker {
	tb.Helper()
	b := &Broker{tb: tb, config: config}
	b.Again()
	tb.Cleanup(b.Kill)
	return b
}

// Again starts the server after Kill.
func (b *Broker) Again() {
	b.tb.Helper()
	b.process = exec.Command(Program(b.tb), "--config", b.config)
	log, err := b.process.StderrPipe()
	if err != nil {
		b.tb.Fatal(err)
	}
	if err := b.process.Start(); err != nil {
		b.tb.Fatal(err)
	}
	b.ended = make(chan struct{})
	ready := make(chan string, 1)
	go func() {
		defer close(b.ended)
		var said []string
		for lines := bufio.NewScanner(log); lines.Scan(); {
			if said = append(said, lines.Text()); strings.Contains(lines.Text(), "Server is ready") {
				ready <- ""
			}
		}
		select {
		case ready <- strings.Join(said, "\n"):
		default:
		}
		_ = b.process.Wait()
	}()
	if failed := <-ready; failed != "" {
		b.tb.Fatalf("nats-server does not start:\n%s", failed)
	}
}

// Silence stops the server without ending its connections, until Speak.
func (b *Broker) Silence() { _ = b.process.Process.Signal(syscall.SIGSTOP) }

// Speak lets the server go on after Silence.
func (b *Broker) Speak() { _ = b.process.Process.Signal(syscall.SIGCONT) }

// Kill ends the server without warning.
func (b *Broker) Kill() {
	_ = b.process.Process.Kill()
	<-b.ended
}

// Pretend listens as a server of another version would, which takes any connection and answers nothing
// but pings. It returns the address.
func Pretend(tb testing.TB, version string) string {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				fmt.Fprintf(c, "INFO {\"server_id\":\"X\",\"version\":%q,\"proto\":1,\"headers\":true,\"max_payload\":1048576,\"nonce\":\"bm9uY2U\"}\r\n", version)
				for lines := bufio.NewScanner(c); lines.Scan(); {
					if strings.HasPrefix(lines.Text(), "PING") {
						fmt.Fprint(c, "PONG\r\n")
					}
				}
			}()
		}
	}()
	return l.Addr().String()
}

// Observed adds a user without limits to the configuration of a broker, for Observe.
func Observed(tb testing.TB, config string) {
	tb.Helper()
	text, err := os.ReadFile(config)
	if err == nil {
		text = []byte(strings.Replace(string(text), "users: [\n", "users: [\n      { user: observer, password: observer }\n", 1))
		err = os.WriteFile(config, text, 0o600)
	}
	if err != nil {
		tb.Fatal(err)
	}
}

// Publish publishes a message as the user of Observed, and returns the broker's answer.
func Publish(tb testing.TB, address, subject string, message []byte) (answer string) {
	tb.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		tb.Fatal(err)
	}
	defer c.Close()
	fmt.Fprintf(c, observer+"SUB answer 1\r\nPUB %s answer %d\r\n%s\r\n", subject, len(message), message)
	for in := bufio.NewReader(c); ; {
		line, err := in.ReadString('\n')
		if err != nil {
			tb.Fatalf("the broker does not answer: %v", err)
		}
		if strings.HasPrefix(line, "MSG ") {
			answer, err = in.ReadString('\n')
			if err != nil {
				tb.Fatal(err)
			}
			return answer
		}
	}
}

// observer logs the user of Observed in.
const observer = "CONNECT {\"user\":\"observer\",\"pass\":\"observer\",\"verbose\":false}\r\n"

// Observe returns the subjects of everything that is published from now on under a subject, which may have
// wildcards.
func Observe(tb testing.TB, address, subject string) <-chan string {
	tb.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = c.Close() })
	fmt.Fprintf(c, observer+"SUB %s 1\r\nPING\r\n", subject)
	seen, ready := make(chan string, 100_000), make(chan struct{})
	go func() {
		defer close(seen)
		started := false
		for in := bufio.NewReader(c); ; {
			line, err := in.ReadString('\n')
			if err != nil {
				return
			}
			switch words := strings.Fields(line); {
			case len(words) > 0 && words[0] == "PING":
				fmt.Fprint(c, "PONG\r\n")
			case len(words) > 0 && words[0] == "PONG" && !started:
				started = true
				close(ready)
			case len(words) > 3 && words[0] == "MSG":
				size, err := strconv.Atoi(words[len(words)-1])
				if err != nil {
					return
				}
				if _, err := in.Discard(size + len("\r\n")); err != nil {
					return
				}
				seen <- words[1]
			}
		}
	}()
	<-ready
	return seen
}
