package fleetcmd

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/openclawos/ocipd/internal/base/sshsig"
	"github.com/openclawos/ocipd/internal/cli"
	"github.com/openclawos/ocipd/internal/evidence/keyring"
	"github.com/openclawos/ocipd/internal/fleet/roster"
	"golang.org/x/crypto/ssh"
)

// commands runs commands of the fleet in a directory of their own.
type commands struct {
	*testing.T
	dir string
}

func (c *commands) path(parts ...string) string {
	return filepath.Join(append([]string{c.dir}, parts...)...)
}

func (c *commands) write(name string, text []byte) {
	c.Helper()
	if err := os.WriteFile(c.path(name), text, 0o600); err != nil {
		c.Fatal(err)
	}
}

// run runs a command, and returns what it prints.
func (c *commands) run(args ...string) []byte {
	var out, said bytes.Buffer
	p := &cli.Process{Stdout: &out, Stderr: &said, Env: []string{"HOME=" + c.dir, "XDG_STATE_HOME=" + c.path("state")}, ConfigFile: c.path("ocipd.yaml")}
	cmd := New(p)
	cmd.SetArgs(args)
	if err := cmd.ExecuteContext(c.Context()); err != nil {
		c.Errorf("%v: %v\n%s", args, err, &said)
	}
	return out.Bytes()
}

// atOnce runs a command several times at once.
func (c *commands) atOnce(args func(n int) []string) (printed [4][]byte) {
	var all sync.WaitGroup
	for n := range printed {
		all.Go(func() { printed[n] = c.run(args(n)...) })
	}
	all.Wait()
	return printed
}

// Commands that run at once all count: the keys of each rejoin are kept, and each host that is added stays.
func TestCommandsAtOnce(t *testing.T) {
	c := &commands{t, t.TempDir()}
	key, public, err := sshsig.GenerateKey("olga")
	if err != nil {
		t.Fatal(err)
	}
	c.write("olga", key)
	c.write("operators", append([]byte("olga "), ssh.MarshalAuthorizedKey(public)...))
	c.write("ocipd.yaml", []byte("{}\n"))

	lines := c.atOnce(func(int) []string { return []string{"rejoin", "host-a"} })
	kept, err := keyring.ReadFleet(c.path("state", "openclawos", "keys"))
	if err != nil {
		t.Fatal(err)
	}
	has := map[string]bool{}
	for _, pair := range kept {
		sign, _ := pair.Public()
		has[string(sign)] = true
	}
	line := map[string]bool{}
	for _, printed := range lines {
		h, _, err := roster.Lines(printed)
		if err != nil {
			t.Fatal(err)
		}
		if line[string(h.Line)] = true; !has[string(h.Sign)] {
			t.Errorf("the keys of %s are lost", printed)
		}
	}
	if len(kept) != len(lines) || len(line) != 1 {
		t.Errorf("there are %d pairs of keys and %d keys of the line, want %d and one", len(kept), len(line), len(lines))
	}

	c.run("init", c.path("fleet.jsonl"), "--tenant", "acme-corp", "--key", c.path("olga"))
	c.atOnce(func(n int) []string {
		h := host(fmt.Sprint("host-", n), 1, byte(1+2*n))
		one, err := roster.Line(h)
		if err != nil {
			t.Error(err)
		}
		c.write(h.Name, one)
		return []string{"add", c.path("fleet.jsonl"), c.path(h.Name), "--key", c.path("olga"), "--operators", c.path("operators"), "--yes"}
	})
	text, err := os.ReadFile(c.path("fleet.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	r, err := roster.Parse(text)
	if err != nil || r.Version != 5 || len(r.Hosts) != 4 {
		t.Errorf("the roster is %s (%v)", text, err)
	}
}
