package judge

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/openclawos/ocipd/test/buildtest"
)

// othersVariable has this test's program be a server of another user.
const (
	othersVariable = "JUDGE_TEST_OTHERS"
	nobody         = 65534
)

func TestMain(m *testing.M) {
	if os.Getenv(othersVariable) != "" {
		if err := serveAsNobody(); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		return
	}
	buildtest.Isolated(m).Run()
}

// serveAsNobody prints its address, and each byte that it gets.
func serveAsNobody() error {
	if err := syscall.Setuid(nobody); err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(l.Addr())
	c, err := l.Accept()
	if err != nil {
		return err
	}
	said, _ := io.ReadAll(c)
	fmt.Printf("%d bytes\n", len(said))
	return nil
}

// A server of another user, and one that has not accepted the connection, get no text.
func TestOwnServer(t *testing.T) {
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	s := &Server{URL: "http://" + l.Addr().String() + "/v1", Model: "wise", Timeout: 2 * time.Second}
	if _, err := s.ask(t.Context(), "Hello."); err == nil || !strings.HasPrefix(err.Error(), "no program of this machine has accepted the connection to "+l.Addr().String()) && !strings.HasPrefix(err.Error(), "no answer within") {
		t.Errorf("nobody accepts: %v", err)
	}
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	if said, err := io.ReadAll(c); err != nil || len(said) > 0 {
		t.Errorf("sent was %q, %v", said, err)
	}

	if os.Geteuid() != 0 {
		t.Skip("only root can be another user")
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.Env, cmd.Stderr = append(os.Environ(), othersVariable+"=1"), os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	lines := bufio.NewScanner(out)
	if !lines.Scan() {
		t.Fatal("the other user's server has ended")
	}
	s = &Server{URL: "http://" + lines.Text() + "/v1", Model: "wise", Timeout: time.Minute}
	if _, err := s.ask(t.Context(), "Hello."); err == nil || !strings.HasPrefix(err.Error(), "the server at "+lines.Text()+" is of another user, ") || !strings.Contains(err.Error(), "uid 65534") {
		t.Errorf("another user's server: %v", err)
	}
	if !lines.Scan() || lines.Text() != "0 bytes" {
		t.Errorf("the other user's server got %q", lines.Text())
	}
	// The operator's word that texts may go elsewhere is for such a server too.
	own := stand(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, completion(commitsNot)) })
	own.Elsewhere = true
	if answer, err := own.ask(t.Context(), "Hello."); err != nil || answer != commitsNot {
		t.Errorf("with elsewhere: %q, %v", answer, err)
	}
}
