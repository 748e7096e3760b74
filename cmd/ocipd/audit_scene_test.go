package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/api/client"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/cli"
	"github.com/openclawos/ocipd/internal/config"
	"github.com/openclawos/ocipd/internal/evidence/checkpoints"
	"github.com/openclawos/ocipd/internal/evidence/mirror"
	"golang.org/x/mod/sumdb/note"
)

// scene is the files of real daemons: one whose log is attacked, and one that talked to it.
// The working directory is the scene's, so that commands and their output have short paths:
//
//	state          the state directory, as it was when the daemon had stopped
//	older          the same at an earlier stop
//	retired        the same after retention had removed segments
//	elsewhere      the other daemon's
//	log.pub        the public key in force, old.pub the one before it
//	outside.jsonl  the checkpoints that were kept outside, then.jsonl those of older
//	held.jsonl     what the other daemon has on record of this one's log
//	records, receipts
//	               records of the log, and a receipt for each
type scene struct {
	*testing.T
	// root is the directory of this package.
	root             string
	lines, elsewhere [][]byte
	// held are the notes of outside.jsonl.
	held []string
	// public and old are the keys in log.pub and old.pub; stolen is the private key that
	// was replaced, and forger the attacker's own key.
	public, old    note.Verifier
	stolen, forger note.Signer
	forged         note.Verifier
}

// staged is one of the daemons.
type staged struct {
	killTest
	cmd            *exec.Cmd
	agent, channel *client.Client
	operator       *client.Client
}

// commandPatience bounds every wait of the scene.
const commandPatience = time.Minute

func newStaged(t *testing.T, cfg string) *staged {
	t.Helper()
	// Socket addresses are limited in length, so the directory's name must be short.
	dir, err := os.MkdirTemp("", "ocipd")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	d := &staged{killTest: killTest{dir: dir, socket: filepath.Join(dir, "run", "kernel.sock")}}
	cfg = "ipc: {apps_may_operate: true}\napprovals: {notify: {desktop: false}}\npolicy: {timeout: 10s}\n" + strings.ReplaceAll(cfg, "DIR", dir)
	if err := os.WriteFile(d.at("ocipd.yaml"), []byte(cfg), 0o600); err != nil {
		t.Fatal(err)
	}
	return d
}

func (d *staged) at(name string) string { return filepath.Join(d.dir, filepath.FromSlash(name)) }

// begin starts the daemon, and connects an agent's app and a channel's.
func (d *staged) begin(t *testing.T, agent, channel string) {
	t.Helper()
	d.cmd = d.start(t)
	dial := func(c *client.Client, err error) *client.Client {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	d.operator = dial(client.Dial(t.Context(), config.OperatorPath(d.socket)))
	d.agent = dial(d.app(t.Context(), agent, api.Capabilities{}))
	d.channel = dial(d.app(t.Context(), channel, api.Capabilities{Channels: api.Provides{Provides: []string{"link"}}}))
	d.must(t, d.channel, "capability.register", map[string]any{"type": "channel", "config": map[string]any{"channelId": "link"}}, nil)
	d.must(t, d.channel, "app.ready", map[string]any{}, nil)
}

func (d *staged) must(t *testing.T, c *client.Client, method string, params, result any) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), commandPatience)
	defer cancel()
	if err := c.Call(ctx, method, params, result); err != nil {
		t.Fatalf("%s: %v", method, err)
	}
}

// end stops the daemon in order.
func (d *staged) end(t *testing.T) {
	t.Helper()
	if err := d.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := d.cmd.Wait(); err != nil {
		t.Fatalf("the daemon does not end in peace: %v", err)
	}
}

// say has the agent send a message in a new exchange.
func (d *staged) say(t *testing.T, session, content string, exchange map[string]any) (api.DispatchResult, error) {
	t.Helper()
	wishes := map[string]any{"new": true}
	maps.Copy(wishes, exchange)
	ctx, cancel := context.WithTimeout(t.Context(), commandPatience)
	defer cancel()
	var result api.DispatchResult
	err := d.agent.Call(ctx, "message.dispatch", map[string]any{"sessionKey": session, "content": content, "metadata": map[string]any{"exchange": wishes}}, &result)
	return result, err
}

// cross has the agent send a message that the channels carry to the other
// daemon.
func (d *staged) cross(t *testing.T, other *staged) {
	t.Helper()
	result, err := d.say(t, "link:dave", "What is the status?", nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), commandPatience)
	defer cancel()
	for {
		in, err := d.channel.Next(ctx)
		if err != nil {
			t.Fatalf("the message does not reach the channel: %v", err)
		}
		var e api.HookEvent
		var m api.Message
		if in.Event != "hook:message_sending" {
			continue
		}
		if err := errors.Join(json.Unmarshal(in.Payload, &e), json.Unmarshal(e.Data, &m)); err != nil {
			t.Fatal(err)
		}
		if m.DispatchID == result.DispatchID {
			other.must(t, other.channel, "agent.queue", map[string]any{"sessionKey": "link:alice", "text": m.Content, "metadata": m.Metadata}, nil)
			return
		}
	}
}

// settled waits until the mirror has compressed all of its segments.
func (d *staged) settled(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), commandPatience)
	defer cancel()
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for {
		plain, err := filepath.Glob(d.at("openclawos/audit-0*.jsonl"))
		if err != nil {
			t.Fatal(err)
		}
		if len(plain) == 0 {
			return
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			t.Fatalf("not compressed: %q", plain)
		}
	}
}

// newScene lets the daemons work: messages, denials, a held message, a replaced key, a
// restart, and in between messages to the other daemon.
func newScene(t *testing.T) *scene {
	t.Helper()
	root, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir())
	s := &scene{T: t, root: root}
	scene := newStaged(t, `
agents:
  - {id: alice, app: "@acme/alice", instance_id: agent-alice-1, user_id: alice, org_unit: engineering, tenant_id: acme-corp}
  - {id: bob, app: "@acme/bob", instance_id: agent-bob-1, user_id: bob, org_unit: engineering, tenant_id: acme-corp}
directory:
  - {instance_id: agent-dave-1, user_id: dave, org_unit: engineering, tenant_id: acme-corp, accepts: [public, internal], sessions: ["link:dave"]}
audit: {rotate: {bytes: 16384}, checkpoints: "DIR/outside/checkpoints.jsonl"}
`)
	other := newStaged(t, `
agents:
  - {id: dave, app: "@acme/dave", instance_id: agent-dave-1, user_id: dave, org_unit: engineering, tenant_id: acme-corp}
directory:
  - {instance_id: agent-alice-1, user_id: alice, org_unit: engineering, tenant_id: acme-corp, accepts: [public, internal], sessions: ["link:alice"]}
routes: [{session: "link:alice", agent: dave}]
`)
	other.begin(t, "@acme/dave", "@acme/link")
	scene.begin(t, "@acme/alice", "@acme/link")
	talk := func(n int) {
		t.Helper()
		for i := range n {
			session, exchange := "agent:bob:main", map[string]any(nil)
			if i%3 == 1 {
				session = "link:dave"
			}
			if i%5 == 4 {
				exchange = map[string]any{"classification": "restricted"}
			}
			if _, err := scene.say(t, session, fmt.Sprintf("Where do we stand with item %d?", i), exchange); (err != nil) != (exchange != nil) {
				t.Fatal(err)
			}
		}
	}
	talk(25)
	scene.cross(t, other)
	if held, err := scene.say(t, "agent:bob:main", "I promise to deliver it by Friday.", nil); err != nil || !held.Held {
		t.Fatalf("it is not held: %+v, %v", held, err)
	}
	state := scene.at("openclawos")
	stolen, err := os.ReadFile(filepath.Join(state, "keys", "checkpoint.key"))
	if err != nil {
		t.Fatal(err)
	}
	s.copyFile(filepath.Join(state, "keys", "checkpoint.pub"), "old.pub")
	scene.must(t, scene.operator, "audit.rotate_key", nil, nil)
	talk(20)
	scene.settled(t)
	scene.end(t)
	s.copyDir(state, "older")
	s.copyFile(scene.at("outside/checkpoints.jsonl"), "then.jsonl")

	scene.begin(t, "@acme/alice", "@acme/link")
	scene.cross(t, other)
	talk(20)
	scene.settled(t)
	scene.end(t)
	other.end(t)
	s.copyDir(state, "state")
	s.copyFile(scene.at("outside/checkpoints.jsonl"), "outside.jsonl")
	s.copyFile(filepath.Join(state, "keys", "checkpoint.pub"), "log.pub")
	s.copyDir(other.at("openclawos"), "elsewhere")

	scene.begin(t, "@acme/alice", "@acme/link")
	var gone api.AuditRetireResult
	scene.must(t, scene.operator, "audit.retire", map[string]any{"before": time.Now().Add(time.Hour)}, &gone)
	if gone.Segments < 3 {
		t.Fatalf("only %d segments were retired", gone.Segments)
	}
	scene.end(t)
	s.copyDir(state, "retired")

	s.read(stolen)
	return s
}

// read reads the daemons' files.
func (s *scene) read(stolen []byte) {
	s.Helper()
	s.lines, s.elsewhere = s.walk("state"), s.walk("elsewhere")
	var err error
	if s.held, err = checkpoints.Read("outside.jsonl"); err != nil {
		s.Fatal(err)
	}
	if s.stolen, err = note.NewSigner(strings.TrimSpace(string(stolen))); err != nil {
		s.Fatal(err)
	}
	s.public, s.old = s.key("log.pub"), s.key("old.pub")
	secret, public, err := note.GenerateKey(rand.Reader, s.public.Name())
	if err != nil {
		s.Fatal(err)
	}
	s.write("forger.pub", public+"\n")
	s.forged = s.key("forger.pub")
	if s.forger, err = note.NewSigner(secret); err != nil {
		s.Fatal(err)
	}
	code, held, complaint := s.ocipd("audit", "receipt", "--held", "--database", "elsewhere/ocipd.db")
	if code != cli.ExitDone {
		s.Fatal(complaint)
	}
	s.write("held.jsonl", held)
	for _, seq := range []int{1, 7, len(s.lines) / 2, len(s.lines) - 2} {
		code, receipt, complaint := s.ocipd("audit", "receipt", fmt.Sprint(seq), "--database", "state/ocipd.db")
		if code != cli.ExitDone {
			s.Fatal(complaint)
		}
		s.write(fmt.Sprintf("receipts/%d.receipt", seq), receipt)
		s.write(fmt.Sprintf("records/%d.json", seq), string(s.lines[seq-1])+"\n")
	}
}

func (s *scene) key(file string) note.Verifier {
	s.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		s.Fatal(err)
	}
	k, err := note.NewVerifier(strings.TrimSpace(string(text)))
	if err != nil {
		s.Fatal(err)
	}
	return k
}

// walk returns the lines of a mirror.
func (s *scene) walk(dir string) (lines [][]byte) {
	s.Helper()
	err := mirror.Walk(dir, 0, func(line []byte) error {
		lines = append(lines, bytes.Clone(line))
		return nil
	})
	if err != nil {
		s.Fatal(err)
	}
	return lines
}

// ocipd runs the program.
func (s *scene) ocipd(args ...string) (code int, stdout, stderr string) {
	s.Helper()
	var out, complaints bytes.Buffer
	code = run(s.Context(), args, strings.NewReader(""), &out, &complaints, []string{"HOME=/nonexistent", "TZ=UTC"})
	return code, out.String(), complaints.String()
}

func (s *scene) write(file, text string) {
	s.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, []byte(text), 0o600)); err != nil {
		s.Fatal(err)
	}
}

func (s *scene) copyFile(from, to string) {
	s.Helper()
	text, err := os.ReadFile(from)
	if err != nil {
		s.Fatal(err)
	}
	s.write(to, string(text))
}

func (s *scene) copyDir(from, to string) {
	s.Helper()
	if err := errors.Join(os.RemoveAll(to), os.CopyFS(to, os.DirFS(from))); err != nil {
		s.Fatal(err)
	}
}

// mirror copies a mirror, as an operator would for an auditor.
func (s *scene) mirror(from, to string) {
	s.Helper()
	if err := errors.Join(os.RemoveAll(to), os.MkdirAll(to, 0o700)); err != nil {
		s.Fatal(err)
	}
	for _, pattern := range []string{"audit.jsonl", "audit-0*", "audit-manifest.jsonl", checkpoints.TombstoneFile} {
		found, err := filepath.Glob(filepath.Join(from, pattern))
		if err != nil {
			s.Fatal(err)
		}
		for _, file := range found {
			s.copyFile(file, filepath.Join(to, filepath.Base(file)))
		}
	}
}

// segments are the compressed files of a mirror, oldest first.
func (s *scene) segments(dir string) []string {
	s.Helper()
	found, err := filepath.Glob(filepath.Join(dir, "audit-0*.zst"))
	if err != nil || len(found) < 3 {
		s.Fatalf("%s has the segments %q, %v", dir, found, err)
	}
	slices.Sort(found)
	return found
}

// edit changes a file.
func (s *scene) edit(file string, change func(text []byte) []byte) {
	s.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		s.Fatal(err)
	}
	s.write(file, string(change(text)))
}

// firstOf is the number of the first record in a file of lines.
func (s *scene) firstOf(file string) uint64 {
	s.Helper()
	var head audit.Head
	err := mirror.WalkFile(file, func(line []byte) (err error) {
		if head.Seq == 0 {
			head, err = audit.HeadOf(line)
		}
		return err
	})
	if err != nil {
		s.Fatal(err)
	}
	return head.Seq
}

// chained is a log by an attacker who can chain records.
type chained struct {
	*scene
	lines    [][]byte
	head     audit.Head
	frontier audit.Frontier
}

// rewrite begins a log with lines of another.
func (s *scene) rewrite(lines ...[]byte) *chained {
	s.Helper()
	c := &chained{scene: s}
	for _, line := range lines {
		var err error
		if c.head, err = audit.HeadOf(line); err != nil {
			s.Fatal(err)
		}
		c.keep(line)
	}
	return c
}

func (c *chained) keep(line []byte) {
	c.lines = append(c.lines, line)
	c.frontier.Append(audit.Leaf(line))
}

// again repeats lines with hashes that are right in their new places.
func (c *chained) again(lines ...[]byte) *chained {
	c.Helper()
	for _, line := range lines {
		head, err := audit.HeadOf(line)
		if err != nil {
			c.Fatal(err)
		}
		// The members of a record are between the time and the end of the chain.
		_, rest, _ := bytes.Cut(line, []byte(`","id":"`))
		body := append([]byte(`{"id":"`), rest[:bytes.LastIndex(rest, []byte(`,"prev":"`))]...)
		c.seal(head.Time, append(body, '}'))
	}
	return c
}

func (c *chained) seal(at time.Time, body []byte) {
	var line []byte
	line, c.head = c.head.Seal(nil, at, body)
	c.keep(line)
}

// without leaves the checkpoints out.
func without(lines [][]byte) [][]byte {
	return slices.DeleteFunc(slices.Clone(lines), func(line []byte) bool { return bytes.Contains(line, []byte(`"actionType":"checkpoint"`)) })
}

// state writes a record with a signed note.
func (c *chained) state(event, signed string) *chained {
	c.Helper()
	body, err := audit.Encode(&audit.Record{ID: fmt.Sprintf("forged-%d", c.head.Seq), ActionType: audit.ActionCheckpoint, Event: event, Details: map[string]any{"note": signed}})
	if err != nil {
		c.Fatal(err)
	}
	c.seal(c.head.Time, body)
	return c
}

// sign writes a checkpoint.
func (c *chained) sign(by note.Signer) *chained {
	c.Helper()
	signed, err := (&audit.Checkpoint{Origin: by.Name(), Size: c.head.Seq, Root: c.frontier.Root()}).Sign(by)
	if err != nil {
		c.Fatal(err)
	}
	return c.state(audit.EventSigned, signed)
}

// put writes the log as a mirror of one file.
func (c *chained) put(dir string) {
	c.Helper()
	if err := os.RemoveAll(dir); err != nil {
		c.Fatal(err)
	}
	c.write(filepath.Join(dir, "audit.jsonl"), string(logText(c.lines)))
}

// logText joins lines into a log.
func logText(lines [][]byte) []byte {
	if len(lines) == 0 {
		return nil
	}
	return append(bytes.Join(lines, []byte("\n")), '\n')
}

// noteOf returns the signed note in a line.
func noteOf(t *testing.T, line []byte) string {
	t.Helper()
	e, err := audit.Parse(line)
	if err != nil {
		t.Fatal(err)
	}
	signed, _ := e.Details["note"].(string)
	return signed
}

// lastWhere returns the index of the last line with a text.
func lastWhere(t *testing.T, lines [][]byte, text string) int {
	t.Helper()
	for i, line := range slices.Backward(lines) {
		if bytes.Contains(line, []byte(text)) {
			return i
		}
	}
	t.Fatalf("no line holds %q", text)
	return 0
}
