// Package witness holds the program against a witness and a verifier that others have written: litewitness of
// filippo.io/torchwood, the proofs of github.com/transparency-dev/merkle, and the notes of golang.org/x/mod. It shares
// no code with the program, which OCIPD names.
package witness

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/transparency-dev/merkle/proof"
	"github.com/transparency-dev/merkle/rfc6962"
	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"
	"golang.org/x/mod/sumdb/note"
)

// world is a daemon, its state, and a witness of its log.
type world struct {
	*testing.T
	dir, program, tools string
	daemon, witness     *exec.Cmd
	listen, origin      string
}

func begin(t *testing.T) *world {
	w := &world{T: t, program: os.Getenv("OCIPD"), tools: os.Getenv("WITNESS_TOOLS")}
	if w.program == "" || w.tools == "" {
		t.Skip("OCIPD names no program, or WITNESS_TOOLS no folder with litewitness and witnessctl: make e2e runs this")
	}
	// A socket's path is short.
	dir, err := os.MkdirTemp("", "witness")
	if err != nil {
		t.Fatal(err)
	}
	w.dir = dir
	t.Cleanup(func() {
		w.stop()
		w.silent()
		_ = os.RemoveAll(dir)
	})
	w.write("ocipd.yaml", "approvals: {notify: {desktop: false}}\nagents:\n  - {id: alice, app: \"@acme/alice\", instance_id: agent-alice-1, user_id: alice, org_unit: engineering, tenant_id: acme}\n")
	w.start()
	w.stop()
	w.origin = strings.SplitN(w.key(), "+", 2)[0]
	w.keys()
	w.tool("witnessctl", "add-log", "-db", w.path("witness.db"), "-origin", w.origin)
	w.tool("witnessctl", "add-key", "-db", w.path("witness.db"), "-origin", w.origin, "-key", w.key())
	vkey := w.answers()
	w.ocipd("audit", "witness", "add", vkey, "http://"+w.listen)
	w.lives(1)
	if newest, err := os.ReadFile(w.note()); err != nil || !bytes.Contains(newest, []byte("foreign.example")) {
		t.Fatalf("the witness did not sign: %s, %v", newest, err)
	}
	return w
}

func (w *world) path(name string) string { return filepath.Join(w.dir, name) }

func (w *world) write(name, text string) {
	if err := os.WriteFile(w.path(name), []byte(text), 0o600); err != nil {
		w.Fatal(err)
	}
}

// note is what the witness has signed last, as the daemon keeps it.
func (w *world) note() string {
	found, _ := filepath.Glob(w.path("openclawos/keys/witness-*.note"))
	if len(found) != 1 {
		w.Fatalf("notes of witnesses: %v", found)
	}
	return found[0]
}

func (w *world) command(args ...string) *exec.Cmd {
	cmd := exec.Command(w.program, append([]string{"--config", w.path("ocipd.yaml"), "--socket", w.path("run/kernel.sock")}, args...)...)
	cmd.Env = append(os.Environ(), "XDG_STATE_HOME="+w.dir, "HOME="+w.dir)
	return cmd
}

func (w *world) ocipd(args ...string) string {
	w.Helper()
	out, err := w.command(args...).Output()
	if err != nil {
		said := ""
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			said = string(exit.Stderr)
		}
		w.Fatalf("ocipd %s: %v, %s%s", strings.Join(args, " "), err, out, said)
	}
	return string(out)
}

func (w *world) tool(name string, args ...string) {
	w.Helper()
	if out, err := exec.Command(filepath.Join(w.tools, name), args...).CombinedOutput(); err != nil {
		w.Fatalf("%s %s: %v, %s", name, args[0], err, out)
	}
}

func (w *world) key() string { return strings.TrimSpace(w.ocipd("audit", "key", "show")) }

// keys has an SSH agent with a key of the witness's answer, which litewitness signs by.
func (w *world) keys() {
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		w.Fatal(err)
	}
	ring := agent.NewKeyring()
	if err := ring.Add(agent.AddedKey{PrivateKey: private}); err != nil {
		w.Fatal(err)
	}
	l, err := net.Listen("unix", w.path("agent.sock"))
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() { _ = agent.ServeAgent(ring, conn) }()
		}
	}()
	signers, err := ring.Signers()
	if err != nil {
		w.Fatal(err)
	}
	w.write("fingerprint", ssh.FingerprintSHA256(signers[0].PublicKey()))
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		w.Fatal(err)
	}
	w.listen = free.Addr().String()
	free.Close()
}

// until reads what a program says until it matches.
func (w *world) until(cmd *exec.Cmd, pattern string) []string {
	w.Helper()
	r, out, err := os.Pipe()
	if err != nil {
		w.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		w.Fatal(err)
	}
	out.Close()
	found, said := make(chan []string, 1), make(chan string, 1)
	go func() {
		var text []byte
		var matched bool
		b := make([]byte, 4096)
		for {
			n, err := r.Read(b)
			if text = append(text, b[:n]...); !matched {
				if m := regexp.MustCompile(pattern).FindStringSubmatch(string(text)); m != nil {
					found <- m
					matched = true
				}
			}
			if err != nil {
				said <- string(text)
				return
			}
		}
	}()
	select {
	case m := <-found:
		return m
	case text := <-said:
		_ = cmd.Wait()
		w.Fatalf("%s ended: %s", filepath.Base(cmd.Path), text)
	case <-time.After(time.Minute):
		w.Fatalf("%s does not say %s", filepath.Base(cmd.Path), pattern)
	}
	return nil
}

// answers has the witness be there, silent be away.
func (w *world) answers() (vkey string) {
	w.Helper()
	print, err := os.ReadFile(w.path("fingerprint"))
	if err != nil {
		w.Fatal(err)
	}
	w.witness = exec.Command(filepath.Join(w.tools, "litewitness"), "-name", "foreign.example", "-db", w.path("witness.db"), "-ssh-agent", w.path("agent.sock"), "-listen", w.listen, "-key", string(print))
	vkey = w.until(w.witness, `(?s)vkey=(\S+).*listening`)[1]
	for range 1000 {
		conn, err := net.Dial("tcp", w.listen)
		if err == nil {
			conn.Close()
			return vkey
		}
	}
	w.Fatal("the witness does not answer")
	return ""
}

func (w *world) silent() {
	if w.witness != nil {
		_ = w.witness.Process.Signal(os.Interrupt)
		_ = w.witness.Wait()
	}
	w.witness = nil
}

func (w *world) start() {
	w.Helper()
	w.daemon = w.command("serve")
	w.until(w.daemon, `"ready"|ready`)
}

func (w *world) stop() {
	if w.daemon != nil {
		_ = w.daemon.Process.Signal(syscall.SIGTERM)
		_ = w.daemon.Wait()
	}
	w.daemon = nil
}

// lives has the daemon start and stop some times.
func (w *world) lives(times int) {
	w.Helper()
	for range times {
		w.start()
		w.stop()
	}
}

// keep copies the state, and put puts a copy in its place.
func (w *world) keep(name string) {
	w.Helper()
	if out, err := exec.Command("cp", "-r", w.path("openclawos"), w.path(name)).CombinedOutput(); err != nil {
		w.Fatal(string(out))
	}
}

func (w *world) put(name string) {
	w.Helper()
	if err := errors.Join(os.RemoveAll(w.path("openclawos")), os.Rename(w.path(name), w.path("openclawos"))); err != nil {
		w.Fatal(err)
	}
}

// A log that forked from what the witness has signed does not start, whichever of the two the witness saw first and
// whichever is longer.
func TestForkDoesNotStart(t *testing.T) {
	for _, test := range []struct {
		name         string
		seen, hidden int
	}{{"shorter", 2, 1}, {"as long", 1, 1}, {"longer", 1, 2}} {
		for _, seenFirst := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, seen first %v", test.name, seenFirst), func(t *testing.T) {
				w := begin(t)
				w.keep("copy")
				hide := func() {
					w.silent()
					w.lives(test.hidden)
					w.answers()
				}
				if seenFirst {
					w.lives(test.seen)
					w.keep("seen")
					w.put("copy")
					hide()
				} else {
					hide()
					w.keep("hidden")
					w.put("copy")
					w.lives(test.seen)
					w.keep("seen")
					w.put("hidden")
				}
				out, err := w.command("serve").CombinedOutput()
				if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.ExitCode() != 4 || !bytes.Contains(out, []byte("the witness foreign.example was shown")) || !bytes.Contains(out, []byte("refused is the checkpoint of ")) {
					t.Fatalf("the start: %v, %s", err, out)
				}
				w.put("seen")
				w.lives(1)
			})
		}
	}
}

// A witness that is back and refuses the log of a running daemon pauses all sending.
func TestForkPausesSending(t *testing.T) {
	w := begin(t)
	w.keep("copy")
	w.lives(1)
	w.put("copy")
	w.silent()
	w.lives(2)
	w.start()
	w.answers()
	// A minute with news is signed.
	w.ocipd("pause", "--agent", "alice")
	w.ocipd("resume", "--agent", "alice")
	for end := time.Now().Add(3 * time.Minute); ; <-time.After(time.Second) {
		var status struct {
			Paused    []struct{ Scope, By string }
			Witnesses []struct{ Refused bool }
		}
		if err := json.Unmarshal([]byte(w.ocipd("status", "--json")), &status); err != nil {
			t.Fatal(err)
		}
		if len(status.Paused) == 1 && status.Paused[0].By == "witness:foreign.example" && len(status.Witnesses) == 1 && status.Witnesses[0].Refused {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("status shows %+v", status)
		}
	}
	if out := w.ocipd("audit", "query", "--event", "witness_refused", "--json"); !strings.Contains(out, "foreign.example") {
		t.Errorf("on record is %s", out)
	}
}

// The witness follows to the next key of the log, once it was told that, and what it has signed is held against the log.
// A verifier that shares nothing with the program then reads the log's proofs.
func TestRotationAndProofs(t *testing.T) {
	w := begin(t)
	old := w.key()
	before, err := os.ReadFile(w.note())
	if err != nil {
		t.Fatal(err)
	}
	w.write("older.note", string(before))
	w.start()
	w.ocipd("audit", "key", "rotate")
	next := w.key()
	w.tool("witnessctl", "add-key", "-db", w.path("witness.db"), "-origin", w.origin, "-key", next)
	w.stop()
	w.lives(2)
	signed, err := os.ReadFile(w.note())
	if err != nil {
		t.Fatal(err)
	}
	verifier := func(key string) note.Verifier {
		v, err := note.NewVerifier(key)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	keys := note.VerifierList(verifier(old), verifier(next))
	if old == next {
		t.Fatal("the key is the same")
	}
	older, newest := checkpoint(t, string(before), note.VerifierList(verifier(old))), checkpoint(t, string(signed), note.VerifierList(verifier(next)))
	if !bytes.Contains(signed, []byte("\n— foreign.example ")) || newest.size < 10 {
		t.Fatalf("the witness has signed %s", signed)
	}
	w.start()
	defer w.stop()
	receipts := 0
	for i, line := range strings.Split(strings.TrimSpace(w.ocipd("audit", "query", "--json", "--limit", "1000")), "\n") {
		var r struct {
			Seq uint64
		}
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			// No checkpoint covers the newest records yet.
			continue
		}
		text, err := w.command("audit", "receipt", strconv.FormatUint(r.Seq, 10)).Output()
		if err != nil {
			continue
		}
		at, path, rest := proofOf(t, string(text), "index ")
		top := checkpoint(t, rest, keys)
		if err := proof.VerifyInclusion(rfc6962.DefaultHasher, at, top.size, rfc6962.DefaultHasher.HashLeaf([]byte(line)), path, top.root); err != nil || at != r.Seq-1 {
			t.Errorf("the receipt of record %d: %v", r.Seq, err)
		}
		receipts++
	}
	if receipts < int(older.size) {
		t.Errorf("%d receipts", receipts)
	}
	from, path, rest := proofOf(t, w.ocipd("audit", "prove", w.path("older.note")), "old ")
	top := checkpoint(t, rest, keys)
	if err := proof.VerifyConsistency(rfc6962.DefaultHasher, from, top.size, path, older.root, top.root); err != nil || from != older.size || top.size <= older.size {
		t.Errorf("the proof from %d to %d: %v", from, top.size, err)
	}
}

// head is what a checkpoint says.
type head struct {
	size uint64
	root []byte
}

// checkpoint opens the first signed note of a text.
func checkpoint(t *testing.T, text string, keys note.Verifiers) (h head) {
	t.Helper()
	body, sigs, _ := strings.Cut(text, "\n\n")
	sigs, _, _ = strings.Cut(sigs, "\n\n")
	var lines []string
	for _, line := range strings.Split(sigs, "\n") {
		if strings.HasPrefix(line, "— ") {
			lines = append(lines, line)
		} else {
			break
		}
	}
	n, err := note.Open([]byte(body+"\n\n"+strings.Join(lines, "\n")+"\n"), keys)
	if err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	members := strings.Split(n.Text, "\n")
	if h.size, err = strconv.ParseUint(members[1], 10, 64); err == nil {
		h.root, err = base64.StdEncoding.DecodeString(members[2])
	}
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// proofOf reads a receipt, or a proof that the log goes on: a number behind a word, hashes, and signed notes.
func proofOf(t *testing.T, text, word string) (n uint64, path [][]byte, rest string) {
	t.Helper()
	before, rest, _ := strings.Cut(text, "\n\n")
	for _, line := range strings.Split(before, "\n") {
		if number, ok := strings.CutPrefix(line, word); ok {
			var err error
			if n, err = strconv.ParseUint(number, 10, 64); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if h, err := base64.StdEncoding.DecodeString(line); err == nil && len(h) == 32 {
			path = append(path, h)
		}
	}
	return n, path, rest
}
