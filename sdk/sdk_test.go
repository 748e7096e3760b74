package sdk

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/openclawos/ocipd/test/buildtest"
)

// programs is the folder of the built daemon and of the runner in Go.
var programs string

func TestMain(m *testing.M) {
	os.Exit(buildtest.Isolated(m).RunWith(&programs, "..", "./cmd/ocipd", "./sdk/go"))
}

// patience bounds each step.
const patience = 30 * time.Second

// runners are the programs that carry out the steps, one for each language.
var runners = map[string][]string{
	"go": {"go"}, "python": {"python3", "python/conformance.py"}, "node": {"node", "node/conformance.mjs"},
}

// row is some steps that belong together.
type row struct {
	Name  string `json:"name"`
	Steps []step `json:"steps"`
}

// step is one of these, by the member that is set: an operation of the SDK (Do), whose result can be
// awaited later (Later, then Result), an event of it, or an act of the test.
type step struct {
	As    string         `json:"as"`
	Do    string         `json:"do"`
	With  map[string]any `json:"with"`
	Want  any            `json:"want"`
	Error any            `json:"error"`

	Later  string `json:"later"`
	Result string `json:"result"`

	Event  string         `json:"event"`
	Answer map[string]any `json:"answer"`

	Approve, Deny string
	Daemon        string
	Grant, Sign   string
	Keep          string
}

// said is a line of a runner.
type said struct {
	N      int    `json:"n"`
	As     string `json:"as"`
	Result any    `json:"result"`
	Error  any    `json:"error"`
	Event  int    `json:"event"`
	What   string `json:"what"`
	Data   any    `json:"data"`
}

// trial is a daemon and a runner.
type trial struct {
	*testing.T
	dir    string
	env    []string
	daemon *exec.Cmd
	// apps and operator are the runners' standard inputs, and killed has those of runners that were killed.
	apps, operator io.Writer
	killed         map[io.Writer]bool
	runners        map[io.Writer]*exec.Cmd
	lines          chan said
	// unread are lines that no step has asked for yet.
	unread []said
	asked  int
	later  map[string]int
	kept   map[string]any
}

// TestConformance carries out the same rows with the SDK of each language, against a daemon.
func TestConformance(t *testing.T) {
	text, err := os.ReadFile("conformance.json")
	if err != nil {
		t.Fatal(err)
	}
	var rows []row
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&rows); err != nil {
		t.Fatal(err)
	}
	for name, command := range runners {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			needs(t, "ssh-keygen")
			if name != "go" {
				needs(t, command[0])
			}
			r := begin(t, command)
			for _, row := range rows {
				if !t.Run(row.Name, func(t *testing.T) {
					r.T = t
					for i := range row.Steps {
						r.take(i+1, &row.Steps[i])
					}
				}) {
					break // the rows after it begin where it ended
				}
			}
			r.T = t
		})
	}
}

// needs skips a test where a program is not installed.
func needs(t *testing.T, name string) {
	t.Helper()
	if _, err := exec.LookPath(name); err != nil {
		t.Skipf("%s is not installed", name)
	}
}

// begin starts a daemon and runners.
func begin(t *testing.T, command []string) *trial {
	r := place(t)
	r.serve()
	// The daemon lets no process operate it that has an app, so the operator's is one of its own.
	r.apps, r.operator = r.start(command), r.start(command)
	return r
}

// place is a configuration in a directory of its own.
func place(t *testing.T) *trial {
	t.Helper()
	dir, err := os.MkdirTemp("", "ocipd")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	r := &trial{T: t, dir: dir, lines: make(chan said, 1024), later: map[string]int{}, killed: map[io.Writer]bool{}, runners: map[io.Writer]*exec.Cmd{}}
	r.kept = map[string]any{
		"$secret": "The key is AKIA" + "Q3EGRT5XPWKJ2LMN.",
		"$grant": map[string]any{
			"grantId": "g-1", "agent": "agent-bot-1", "receiver": "agent-friend-1", "words": []any{"promise"}, "classification": "internal",
			"until": time.Now().Add(24 * time.Hour).UnixMilli(), "maxUses": 2,
		},
	}
	r.env = append(os.Environ(), "OPENCLAWOS_KERNEL_SOCKET="+dir+"/run/kernel.sock", "XDG_STATE_HOME="+dir+"/state", "XDG_CONFIG_HOME="+dir, "HOME="+dir)
	if out, err := exec.CommandContext(t.Context(), "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", dir+"/key").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	public, err := os.ReadFile(dir + "/key.pub")
	if err != nil {
		t.Fatal(err)
	}
	config, err := os.ReadFile("conformance.yaml")
	if err != nil {
		t.Fatal(err)
	}
	r.write("allowed_signers", "me "+string(public))
	r.write("ocipd.yaml", strings.ReplaceAll(string(config), "DIR", dir))
	r.ocipd("policy", "new", dir+"/policy")
	_ = os.Remove(dir + "/policy/my_tool_rules_test.rego")
	r.write("policy/my_tool_rules.rego", toolRules)
	return r
}

// start starts a runner.
func (r *trial) start(command []string) io.Writer {
	r.Helper()
	path := command[0]
	if path == "go" {
		path = filepath.Join(programs, "go")
	}
	runner := exec.CommandContext(context.Background(), path, command[1:]...)
	runner.Env, runner.Stderr = r.env, os.Stderr
	in, err := runner.StdinPipe()
	if err != nil {
		r.Fatal(err)
	}
	out, err := runner.StdoutPipe()
	if err == nil {
		err = runner.Start()
	}
	if err != nil {
		r.Fatal(err)
	}
	r.runners[in] = runner
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		lines := bufio.NewScanner(out)
		lines.Buffer(nil, 1<<24)
		for lines.Scan() {
			var l said
			if err := json.Unmarshal(lines.Bytes(), &l); err != nil {
				l = said{What: "no JSON: " + lines.Text()}
			}
			r.lines <- l
		}
	}()
	r.Cleanup(func() {
		_ = in.Close()
		<-ended
		if err := runner.Wait(); err != nil && !r.killed[in] {
			r.Errorf("the runner ended with %v", err)
		}
	})
	return in
}

// kill ends a runner at once.
func (r *trial) kill(in io.Writer) {
	r.killed[in] = true
	_ = r.runners[in].Process.Kill()
}

// toolRules are those of the policy about tool calls.
const toolRules = `package ocip.tool

denials contains "nobody deletes everything" if input.tool.name == "delete_all"

questions contains "a person looks at a deployment" if input.tool.name == "deploy"
`

func (r *trial) write(name, text string) {
	r.Helper()
	if err := os.WriteFile(filepath.Join(r.dir, name), []byte(text), 0o600); err != nil {
		r.Fatal(err)
	}
}

// serve starts the daemon. The last one is ended after the test.
func (r *trial) serve() {
	r.Helper()
	if r.daemon == nil {
		r.Cleanup(r.end)
	}
	// On a busy machine a policy and an interceptor exceed their usual limits, and deny.
	r.daemon = exec.CommandContext(context.Background(), filepath.Join(programs, "ocipd"), "serve", "--config", r.dir+"/ocipd.yaml", "--set", "policy.timeout=20s", "--set", "hooks.answer=20s")
	r.daemon.Env = r.env
	if err := r.daemon.Start(); err != nil {
		r.Fatal(err)
	}
	r.ocipd("status", "--wait", "30s")
}

// end ends the daemon that runs.
func (r *trial) end() {
	_ = r.daemon.Process.Signal(os.Interrupt)
	if err := r.daemon.Wait(); err != nil {
		r.Errorf("the daemon ended with %v", err)
	}
}

func (r *trial) ocipd(args ...string) string {
	r.Helper()
	c := exec.CommandContext(r.Context(), filepath.Join(programs, "ocipd"), args...)
	c.Env = r.env
	out, err := c.CombinedOutput()
	if err != nil {
		r.Fatalf("ocipd %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// take carries out a step.
func (r *trial) take(at int, s *step) {
	r.Helper()
	where := fmt.Sprintf("step %d", at)
	switch {
	case s.Do != "":
		r.asked++
		r.say(map[string]any{"n": r.asked, "as": s.As, "do": s.Do, "with": r.fill(s.With)})
		if s.Later != "" {
			r.later[s.Later] = r.asked
			return
		}
		r.result(where+", "+s.Do, r.asked, s)
	case s.Result != "":
		r.result(where+", "+s.Result, r.later[s.Result], s)
	case s.Event != "":
		// The daemon may tell a decision once more that an app of the id has read just before its end.
		l := r.next(where, fmt.Sprintf("%s of %s like %v", s.Event, s.As, s.Want), func(l *said) bool {
			return l.As == s.As && l.What == s.Event && r.differs(where, s.Want, l.Data) == ""
		})
		if l.Event != 0 {
			with := r.fill(s.Answer)
			r.say(map[string]any{"answer": l.Event, "with": with})
		}
	case s.Approve != "":
		id := r.fill(s.Approve).(string)
		var shown struct{ Digest string }
		if err := json.Unmarshal([]byte(r.ocipd("approvals", "show", id, "--json")), &shown); err != nil {
			r.Fatal(err)
		}
		r.ocipd("approvals", "approve", id, "--yes", "--digest", shown.Digest, "--key", r.dir+"/key")
	case s.Deny != "":
		r.ocipd("approvals", "deny", r.fill(s.Deny).(string), "--yes", "--key", r.dir+"/key")
	case s.Daemon == "kill":
		_ = r.daemon.Process.Kill()
		_ = r.daemon.Wait()
	case s.Daemon == "start":
		r.serve()
	case s.Grant != "":
		file := filepath.Join(r.dir, "token")
		_ = os.Remove(file)
		r.ocipd("task", "grant", "--agent", s.Grant, "--out", file, "--key", r.dir+"/key")
		token, err := os.ReadFile(file)
		if err != nil {
			r.Fatal(err)
		}
		r.kept[s.Keep] = strings.TrimSpace(string(token))
	case s.Sign != "":
		c := exec.CommandContext(r.Context(), "ssh-keygen", "-q", "-Y", "sign", "-n", "approval@ocipd", "-f", r.dir+"/key")
		c.Stdin = strings.NewReader(r.fill(s.Sign).(string))
		out, err := c.Output()
		if err != nil {
			r.Fatal(err)
		}
		r.kept[s.Keep] = string(out)
	default:
		r.Fatalf("%s is none: %+v", where, s)
	}
}

func (r *trial) say(l map[string]any) {
	r.Helper()
	if l["with"] == nil {
		l["with"] = map[string]any{}
	}
	text, err := json.Marshal(l)
	to := r.apps
	if l["as"] == "operator" {
		to = r.operator
	}
	if err == nil {
		_, err = to.Write(append(text, '\n'))
	}
	if err != nil {
		r.Fatal(err)
	}
}

func (r *trial) result(where string, n int, s *step) {
	r.Helper()
	l := r.next(where, "result", func(l *said) bool { return l.N == n })
	if s.Error == nil && l.Error != nil {
		r.Fatalf("%s failed: %v", where, l.Error)
	}
	r.holds(where, s.Error, l.Error)
	r.holds(where, s.Want, l.Result)
}

// next is the next line that fits.
func (r *trial) next(where, what string, fits func(*said) bool) said {
	r.Helper()
	for i, l := range r.unread {
		if fits(&l) {
			r.unread = append(r.unread[:i:i], r.unread[i+1:]...)
			return l
		}
	}
	limit := time.NewTimer(patience)
	defer limit.Stop()
	for {
		select {
		case l := <-r.lines:
			if fits(&l) {
				return l
			}
			r.unread = append(r.unread, l)
		case <-limit.C:
			r.Fatalf("%s: no %s; the runner said %+v", where, what, r.unread)
		}
	}
}

// fill puts kept values in the place of their names.
func (r *trial) fill(v any) any {
	switch v := v.(type) {
	case string:
		if kept, is := r.kept[v]; is && strings.HasPrefix(v, "$") {
			return kept
		}
	case map[string]any:
		filled := map[string]any{}
		for name, member := range v {
			filled[name] = r.fill(member)
		}
		return filled
	}
	return v
}

// holds compares what came with what is wanted: "$name" keeps the value at first and is it
// afterwards, "~text" is an expression that is found in it, and objects may have further members.
func (r *trial) holds(where string, want, got any) {
	r.Helper()
	if fault := r.differs(where, want, got); fault != "" {
		r.Fatal(fault)
	}
}

// differs says how what came differs from what is wanted, "" if it does not.
func (r *trial) differs(where string, want, got any) string {
	var same bool
	switch want := want.(type) {
	case nil:
		return ""
	case string:
		text, is := got.(string)
		expression, matches := strings.CutPrefix(want, "~")
		kept, before := r.kept[want]
		switch {
		case before:
			same = reflect.DeepEqual(kept, got)
		case strings.HasPrefix(want, "$"):
			if same = got != nil && got != ""; same {
				r.kept[want] = got
			}
		case matches:
			same = is && regexp.MustCompile(expression).MatchString(text)
		default:
			same = text == want
		}
	case map[string]any:
		object, is := got.(map[string]any)
		if same = is; same {
			for _, name := range slices.Sorted(maps.Keys(want)) {
				if fault := r.differs(where+"."+name, want[name], object[name]); fault != "" {
					return fault
				}
			}
		}
	case []any:
		list, is := got.([]any)
		if same = is && len(list) == len(want); same {
			for i := range want {
				if fault := r.differs(fmt.Sprintf("%s[%d]", where, i), want[i], list[i]); fault != "" {
					return fault
				}
			}
		}
	default:
		same = want == got || want == false && got == nil
	}
	if same {
		return ""
	}
	return fmt.Sprintf("%s: %#v, want %#v (%#v)", where, got, want, r.kept[fmt.Sprint(want)])
}
