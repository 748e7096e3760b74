package examples

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"mime/quotedprintable"
	"net"
	"net/http"
	"net/http/httptest"
	"net/mail"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/openclawos/ocipd/test/buildtest"
)

// tools are the built programs: the daemon and the bot in Go.
var tools string

func TestMain(m *testing.M) {
	os.Exit(buildtest.Isolated(m).RunWith(&tools, "..", "./cmd/ocipd", "./examples/go"))
}

// TestNotices has each program tell a server of its own what a notice says.
func TestNotices(t *testing.T) {
	needs(t, "curl")
	needs(t, "jq")
	got := make(chan string, 1)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if unescaped, err := url.QueryUnescape(string(body)); err == nil && r.Header.Get("Content-Type") == "application/x-www-form-urlencoded" {
			body = []byte(unescaped)
		}
		got <- r.URL.Path + " " + r.Header.Get("Title") + " " + string(body)
	}))
	defer server.Close()
	token, hook := filepath.Join(t.TempDir(), "token"), filepath.Join(t.TempDir(), "hook")
	for file, text := range map[string]string{token: "123:abc\n", hook: server.URL + "/hook\n"} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range [][]string{{"ntfy.sh", server.URL + "/topic"}, {"telegram.sh", token, "42"}, {"slack.sh", hook}} {
		c := exec.CommandContext(t.Context(), filepath.Join("notices", args[0]), args[1:]...)
		c.Env = append(os.Environ(), "TELEGRAM_API="+server.URL, "OCIPD_NOTICE_TITLE=alice wants to send to dave", "OCIPD_NOTICE_BODY=commitment keywords: promise\nocipd approvals show 64cda28c")
		if out, err := c.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", args[0], err, out)
			continue
		}
		if said := <-got; !strings.Contains(said, "alice wants to send to dave") || !strings.Contains(said, "ocipd approvals show 64cda28c") {
			t.Errorf("%s sent %s", args[0], said)
		}
	}
}

// TestTasks has scripted agents bring a task from its spec to completed.
func TestTasks(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	c := exec.CommandContext(ctx, "sh", "tasks/run.sh")
	c.Env = append(os.Environ(), "PATH="+tools+":"+os.Getenv("PATH"))
	c.WaitDelay = 10 * time.Second // for a daemon that outlives the script
	out, err := c.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "run 1 of eff_") || !strings.Contains(string(out), "completed") {
		t.Errorf("%v\n%s", err, out)
	}
}

// place is a daemon of its own with a configuration of the examples.
type place struct {
	*testing.T
	env    []string
	socket string
}

func serve(t *testing.T) *place { return serveBy(t, "ocipd.yaml") }

func serveBy(t *testing.T, config string, args ...string) *place {
	dir, err := os.MkdirTemp("", "ocipd")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	socket := dir + "/run/kernel.sock"
	p := &place{t, append(os.Environ(), "OPENCLAWOS_KERNEL_SOCKET="+socket, "XDG_STATE_HOME="+dir+"/state",
		"XDG_CONFIG_HOME="+dir, "PATH="+tools+":"+os.Getenv("PATH")), socket}
	config, err = filepath.Abs(config)
	if err != nil {
		t.Fatal(err)
	}
	// On a busy machine a policy exceeds its usual limit, and denies.
	daemon := p.command("ocipd", append([]string{"serve", "--config", config, "--set", "policy.timeout=20s"}, args...)...)
	var log bytes.Buffer
	daemon.Stderr = &log
	if err := daemon.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = daemon.Process.Signal(os.Interrupt)
		if err := daemon.Wait(); err != nil {
			t.Errorf("the daemon ended with %v:\n%s", err, &log)
		}
	})
	p.ocipd("status", "--wait", "30s")
	return p
}

func (p *place) command(name string, args ...string) *exec.Cmd {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	p.Cleanup(cancel)
	path := name
	if built := filepath.Join(tools, name); name == "ocipd" || name == "go" {
		path = built
	}
	c := exec.CommandContext(ctx, path, args...)
	c.Env, c.Stderr = p.env, os.Stderr
	return c
}

func (p *place) ocipd(args ...string) string {
	p.Helper()
	out, err := p.command("ocipd", args...).Output()
	if err != nil {
		p.Fatalf("ocipd %s: %v", strings.Join(args, " "), err)
	}
	return string(out)
}

// needs skips a test where a tool of an example is not installed.
func needs(t *testing.T, name string) {
	if name == "go" {
		return
	}
	if _, err := exec.LookPath(name); err != nil {
		t.Skipf("%s is not installed", name)
	}
}

// bots are the commands of the bots; that in Go is built.
var bots = [][]string{{"python3", "python/bot.py"}, {"node", "node/bot.mjs"}, {"go"}}

// running is a bot at work.
type running struct {
	*exec.Cmd
	t     *testing.T
	out   io.Reader
	lines *bufio.Scanner
	// told is what it may be told once more: the bot before it may not have read that.
	told string
}

func (p *place) run(t *testing.T, bot []string, stdin io.Reader) *running {
	t.Helper()
	c := p.command(bot[0], bot[1:]...)
	c.Stdin = stdin
	out, err := c.StdoutPipe()
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	return &running{Cmd: c, t: t, out: out, lines: bufio.NewScanner(out)}
}

// next wants the bot to say something, and returns the rest of the line.
func (r *running) next(want string) string {
	r.t.Helper()
	if !r.more() {
		r.t.Fatalf("the bot said nothing more, want %q", want)
	}
	rest, ok := strings.CutPrefix(r.lines.Text(), want)
	if !ok {
		r.t.Fatalf("the bot said %q, want %q", r.lines.Text(), want)
	}
	return rest
}

// more reads the next line that is not what it may be told once more.
func (r *running) more() bool {
	for r.lines.Scan() {
		if r.told == "" || r.lines.Text() != r.told {
			return true
		}
	}
	return false
}

// end wants the bot to end, and to say nothing more.
func (r *running) end() {
	r.t.Helper()
	for r.more() {
		r.t.Errorf("the bot said more: %s", r.lines.Text())
	}
	if err := r.Wait(); err != nil {
		r.t.Errorf("the bot ended with %v", err)
	}
}

func (p *place) approve(id string) {
	p.Helper()
	var shown struct{ Digest string }
	if err := json.Unmarshal([]byte(p.ocipd("approvals", "show", id, "--json")), &shown); err != nil {
		p.Fatal(err)
	}
	p.ocipd("approvals", "approve", id, "--yes", "--digest", shown.Digest)
}

// TestBots has each bot send what is allowed, hold back a promise until a person has
// approved it, and keep a secret. What was approved while no bot ran is sent by the next
// one, once.
func TestBots(t *testing.T) {
	for _, bot := range bots {
		t.Run(bot[0], func(t *testing.T) {
			t.Parallel()
			needs(t, bot[0])
			p := serve(t)
			// Who repeats a text that waits gets the same request, and it is sent once.
			r := p.run(t, bot, strings.NewReader("telegram:4711 How far is the review?\ntelegram:4711 I promise it by Friday.\ntelegram:4711 I promise it by Friday.\n"+
				"telegram:4711 The key is AKIA"+"Q3EGRT5XPWKJ2LMN.\ntelegram:4712 I promise it to you.\ntelegram:4713 I promise it to them.\n"))
			r.next("sent telegram:4711: How far is the review?")
			promised := r.next("held telegram:4711: ")
			if again := r.next("held telegram:4711: "); again != promised {
				t.Errorf("a repetition is another request: %s and %s", promised, again)
			}
			r.next("refused telegram:4711: CLASSIFICATION_VIOLATION")
			refused, late := r.next("held telegram:4712: "), r.next("held telegram:4713: ")
			p.approve(promised)
			r.next("sent telegram:4711: I promise it by Friday.")
			p.ocipd("approvals", "deny", refused, "--yes")
			r.next("denied " + refused)
			if err := r.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			_ = r.Wait() // it was killed
			p.approve(late)
			for _, says := range [][]string{{"sent telegram:4713: I promise it to them."}, nil} {
				r = p.run(t, bot, nil)
				r.told = "denied " + refused
				for _, want := range says {
					r.next(want)
				}
				r.end()
			}
			log := p.ocipd("audit", "query", "--all", "--json")
			if strings.Contains(log, "Q3EGRT5XPWKJ2LMN") {
				t.Error("the secret is in the log")
			}
			if n := strings.Count(log, `"event":"delivered"`); n != 3 {
				t.Errorf("%d messages are on record as sent, want 3:\n%s", n, log)
			}
		})
	}
}

// TestApprovedAtOnce has a person approve a message while the bot waits for its next line: it is sent
// before that line comes.
func TestApprovedAtOnce(t *testing.T) {
	for _, bot := range bots {
		t.Run(bot[0], func(t *testing.T) {
			t.Parallel()
			needs(t, bot[0])
			p := serve(t)
			in, lines, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer in.Close()
			r := p.run(t, bot, in)
			for _, text := range []string{"I promise it by Friday.", "I promise the rest by Monday."} {
				if _, err := io.WriteString(lines, "telegram:4711 "+text+"\n"); err != nil {
					t.Fatal(err)
				}
				p.approve(r.next("held telegram:4711: "))
				r.next("sent telegram:4711: " + text)
			}
			if err := lines.Close(); err != nil {
				t.Fatal(err)
			}
			r.end()
		})
	}
}

// TestBeginnersFaults has each bot say in one line what is wrong, and what to do.
func TestBeginnersFaults(t *testing.T) {
	for _, bot := range bots {
		t.Run(bot[0], func(t *testing.T) {
			t.Parallel()
			needs(t, bot[0])
			ends := func(c *exec.Cmd, code int, want, line string) {
				t.Helper()
				var said bytes.Buffer
				c.Stdin, c.Stdout, c.Stderr = strings.NewReader(line+"\n"), &said, &said
				_ = c.Run()
				if got := said.String(); c.ProcessState.ExitCode() != code || !strings.HasPrefix(got, want) || strings.Count(got, "\n") != 1 {
					t.Errorf("exit code %d, want %d and %q; it says\n%s", c.ProcessState.ExitCode(), code, want, got)
				}
			}
			says := func(p *place, code int, want string, env ...string) {
				t.Helper()
				c := p.command(bot[0], bot[1:]...)
				c.Env = append(p.env, env...)
				ends(c, code, want, "telegram:4711 Hello")
			}
			nowhere := &place{T: t, env: append(os.Environ(), "XDG_RUNTIME_DIR=/nonexistent")}
			says(nowhere, 1, "ocipd does not answer on /nonexistent/openclawos/kernel.sock (")
			dir := fmt.Sprintf("/tmp/openclawos-%d", os.Getuid())
			if _, err := os.Stat(dir); err != nil { // or else a daemon of this machine could answer
				says(nowhere, 1, "ocipd does not answer on "+dir+"/kernel.sock (", "XDG_RUNTIME_DIR=")
			}
			says(nowhere, 1, "", "OPENCLAWOS_KERNEL_SOCKET=/"+strings.Repeat("long", 50))
			locked := t.TempDir() + "/kernel.sock"
			l, err := net.Listen("unix", locked)
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			if err := os.Chmod(locked, 0); err != nil {
				t.Fatal(err)
			}
			if bot, may := withoutRoot(bot); may {
				c := nowhere.command(bot[0], bot[1:]...)
				c.Env = append(c.Env, "OPENCLAWOS_KERNEL_SOCKET="+locked)
				ends(c, 1, "cannot reach the daemon at "+locked+": the socket belongs to another user\n", "telegram:4711 Hello")
			}
			if len(bot) > 1 {
				ends(nowhere.command(bot[0], alone(t, bot[1])), 1, "cannot find the package ", "telegram:4711 Hello")
			}
			p := serve(t)
			for _, line := range []string{"Hello", ""} {
				ends(p.command(bot[0], bot[1:]...), 0, "refused "+line+": INVALID_PARAMS: data.sessionKey: ", line)
			}
			for session, missing := range map[string]string{"telegram": "TELEGRAM_TOKEN", "slack": "SLACK_TOKEN", "irc": "IRC_SERVER", "email": "SMTP_SERVER"} {
				ends(p.command(bot[0], append(slices.Clone(bot[1:]), "--networks")...), 0, "sending failed: not sent: the variable "+missing+" is not set\n", session+":4711 How far is the review?")
			}
			ends(p.command(bot[0], append(slices.Clone(bot[1:]), "--networks")...), 0, "sending failed: not sent: there is no network ", "fax:4711 How far is the review?")
			says(p, 0, "refused telegram:4711: FORBIDDEN: app @example/other speaks for no agent; name it in agents[].app, or add an agent: ocipd config add-agent ID --app @example/other\n", "BOT_APP=@example/other")
			in, lines, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer in.Close()
			first := p.run(t, bot, in)
			if _, err := io.WriteString(lines, "telegram:4711 Hello\n"); err != nil {
				t.Fatal(err)
			}
			first.next("sent ")
			says(p, 1, "ocipd refuses app @example/bot: CONFLICT: ")
			if err := lines.Close(); err != nil {
				t.Fatal(err)
			}
			first.end()
		})
	}
}

// withoutRoot is a bot's command without root's right to open everybody's files, and false if that
// cannot be had.
func withoutRoot(bot []string) (command []string, may bool) {
	path, err := exec.LookPath(bot[0])
	if bot[0] == "go" {
		path, err = filepath.Join(tools, "go"), nil
	}
	command = append([]string{path}, bot[1:]...)
	if err == nil && os.Getuid() == 0 {
		command = append([]string{"setpriv", "--bounding-set=-dac_override,-dac_read_search"}, command...)
		_, err = exec.LookPath("setpriv")
	}
	return command, err == nil
}

// alone copies a bot's file to where nothing else is.
func alone(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	// The bots look for the SDK two folders above.
	dir := filepath.Join(t.TempDir(), "a", "b")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, filepath.Base(file)), text, 0o600); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, filepath.Base(file))
}

// TestAppScriptEnds has the app in the shell say in one line that no daemon listens, and end if it is
// refused.
func TestAppScriptEnds(t *testing.T) {
	needs(t, "bash")
	needs(t, "jq")
	needs(t, "socat")
	nowhere := &place{T: t, env: append(os.Environ(), "XDG_RUNTIME_DIR=/nonexistent")}
	c := nowhere.command("bash", "shell/app.sh")
	var said bytes.Buffer
	c.Stderr = &said
	if err := c.Run(); err == nil || !strings.Contains(said.String(), "nobody answers on /nonexistent/openclawos/kernel.sock; start it: ocipd serve") {
		t.Errorf("without a daemon: %v\n%s", err, &said)
	}
	p := serve(t)
	in, lines, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	other := &place{t, append(slices.Clone(p.env), "BOT_APP=@tour/shell"), p.socket}
	first := other.run(t, []string{"go"}, in)
	if _, err := io.WriteString(lines, "telegram:4711 Hello\n"); err != nil {
		t.Fatal(err)
	}
	first.next("refused ")
	c = p.command("bash", "shell/app.sh")
	if out, err := c.Output(); err == nil || !strings.HasPrefix(string(out), `app.register → {"code":"CONFLICT","message":"app @tour/shell is connected already: end the program`) || strings.Count(string(out), "\n") != 1 {
		t.Errorf("a second copy: %v\n%s", err, out)
	}
	if err := lines.Close(); err != nil {
		t.Fatal(err)
	}
	first.end()
}

// TestNetworks has each bot send by Telegram, Slack, IRC and e-mail to a stand-in of each:
// what was decided about, whole, once, and nothing of what was refused.
func TestNetworks(t *testing.T) {
	for _, bot := range bots {
		t.Run(bot[0], func(t *testing.T) {
			t.Parallel()
			needs(t, bot[0])
			sendsByNetworks(t, append(bot, "--networks"))
		})
	}
}

func sendsByNetworks(t *testing.T, bot []string) {
	var mu sync.Mutex
	var sent []string
	got := func(what string) {
		mu.Lock()
		defer mu.Unlock()
		sent = append(sent, what)
	}
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var said struct {
			Chat    string `json:"chat_id"`
			Channel string `json:"channel"`
			Text    string `json:"text"`
		}
		if err := json.NewDecoder(r.Body).Decode(&said); err != nil {
			t.Error(err)
		}
		if said.Chat == "4712" {
			_, _ = io.WriteString(w, `{"ok": false}`)
			return
		}
		got(strings.Join([]string{r.URL.Path, r.Header.Get("Authorization"), said.Chat + said.Channel, said.Text}, " "))
		_, _ = io.WriteString(w, `{"ok": true}`)
	}))
	defer api.Close()
	irc := standIn(t, func(say func(string), line string) (over bool) {
		switch {
		case strings.HasPrefix(line, "USER"):
			say("PING :x")
		case line == "PONG :x":
			say(":server 001 bot :welcome")
		case strings.HasPrefix(line, "PRIVMSG"):
			got(line)
		}
		return line == "QUIT"
	}, "")
	var letter []string
	smtp := standIn(t, func(say func(string), line string) (over bool) {
		switch {
		case letter != nil && line == ".":
			got(read(t, strings.Join(letter, "\r\n")))
			letter = nil
			say("250 taken")
		case letter != nil:
			letter = append(letter, line)
		case strings.EqualFold(line, "data"):
			letter = []string{}
			say("354 go on")
		case strings.HasPrefix(strings.ToUpper(line), "QUIT"):
			say("221 bye")
			return true
		default:
			say("250 ok")
		}
		return false
	}, "220 stand-in")
	p := serve(t)
	p.env = append(p.env, "TELEGRAM_API="+api.URL, "TELEGRAM_TOKEN=1:a", "SLACK_API="+api.URL, "SLACK_TOKEN=xoxb", "IRC_SERVER="+irc, "SMTP_SERVER="+smtp, "MAIL_FROM=bot@example.org")
	c := p.command(bot[0], bot[1:]...)
	c.Stdin = strings.NewReader("telegram:4712 Hello nobody\ntelegram:4711 Hello Dave\nslack:C1 Hello team\nirc:#team Hello all\nemail:dave@example.org Hello by mail\n" +
		"telegram:4711 The key is AKIA" + "Q3EGRT5XPWKJ2LMN.\n")
	if out, err := c.Output(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	mu.Lock()
	defer mu.Unlock()
	all := strings.Join(sent, "\n\n")
	for _, want := range []string{"/bot1:a/sendMessage  4711 Hello Dave", "/chat.postMessage Bearer xoxb C1 Hello team", "PRIVMSG #team :Hello all",
		"bot@example.org to dave@example.org: Hello by mail"} {
		if strings.Count(all, want) != 1 {
			t.Errorf("%q was sent %d times", want, strings.Count(all, want))
		}
	}
	if strings.Contains(all, "Q3EGRT5XPWKJ2LMN") {
		t.Error("the secret was sent")
	}
	if strings.Count(all, "assistant") != 4 {
		t.Errorf("not each text was sent as it was decided about:\n%s", all)
	}
	log := p.ocipd("audit", "query", "--all", "--json")
	if sent, unknown := strings.Count(log, `"event":"delivered"`), strings.Count(log, `"event":"outcome_unknown"`); sent != 4 || unknown != 1 {
		t.Errorf("%d messages are on record as sent and %d as not known, want 4 and 1", sent, unknown)
	}
}

// read is who writes to whom, and what.
func read(t *testing.T, letter string) string {
	m, err := mail.ReadMessage(strings.NewReader(letter))
	if err != nil {
		t.Error(err)
		return ""
	}
	body := m.Body
	switch strings.ToLower(m.Header.Get("Content-Transfer-Encoding")) {
	case "base64":
		body = base64.NewDecoder(base64.StdEncoding, body)
	case "quoted-printable":
		body = quotedprintable.NewReader(body)
	}
	text, err := io.ReadAll(body)
	if err != nil {
		t.Error(err)
	}
	return m.Header.Get("From") + " to " + m.Header.Get("To") + ": " + string(text)
}

// standIn is a server of lines on loopback.
func standIn(t *testing.T, hear func(say func(string), line string) (over bool), greeting string) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			say := func(line string) { _, _ = io.WriteString(c, line+"\r\n") }
			if greeting != "" {
				say(greeting)
			}
			lines := bufio.NewScanner(c)
			for lines.Scan() {
				if hear(say, lines.Text()) {
					break
				}
			}
			_ = c.Close()
		}
	}()
	return l.Addr().String()
}

// TestSendScript runs the script in the shell once for each kind of answer, and has its next run send
// what a person approved, once.
func TestSendScript(t *testing.T) {
	needs(t, "bash")
	needs(t, "jq")
	p := serve(t)
	says := func(want string, code int, args ...string) (rest string) {
		t.Helper()
		c := p.command("bash", append([]string{"shell/send.sh"}, args...)...)
		out, _ := c.Output()
		rest, ok := strings.CutPrefix(string(out), want)
		if !ok || c.ProcessState.ExitCode() != code || strings.Count(string(out), "\n") > 1 {
			t.Errorf("%q: exit code %d, %s", args, c.ProcessState.ExitCode(), out)
		}
		return strings.TrimSpace(rest)
	}
	says("sent telegram:4711: How far is the review?", 0, "telegram:4711", "How far is the review?")
	says("refused telegram:4711: CLASSIFICATION_VIOLATION: message classified restricted", 6, "telegram:4711", "The key is AKIA"+"Q3EGRT5XPWKJ2LMN.")
	id := says("held telegram:4711: ", 5, "telegram:4711", "I promise it by Friday.")
	says("", 0)
	p.approve(id)
	says("sent telegram:4711: I promise it by Friday.", 0)
	if again := says("", 0); again != "" {
		t.Errorf("it is sent twice: %s", again)
	}
	if shown := p.ocipd("approvals", "show", id); !strings.Contains(shown, "sent, as the agent's runtime says") {
		t.Errorf("the daemon does not know that it was sent:\n%s", shown)
	}
}
