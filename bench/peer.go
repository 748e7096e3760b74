package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/google/uuid"
	"github.com/openclawos/ocipd/internal/config"
	"github.com/openclawos/ocipd/internal/evidence/mirror"
	"github.com/openclawos/ocipd/internal/ocip"
	"github.com/openclawos/ocipd/internal/store"
	"go.uber.org/zap"
	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"
)

// serveEcho is the floor of a round trip: it decodes each line and encodes it
// again, with the standard library, and does nothing else.
func serveEcho(ctx context.Context, socket string) error {
	l, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	context.AfterFunc(ctx, func() { _ = l.Close() })
	fmt.Fprintln(os.Stderr, `{"msg":"ready"}`)
	for {
		c, err := l.Accept()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		go func() {
			defer c.Close()
			lines := bufio.NewReader(c)
			for {
				line, err := lines.ReadBytes('\n')
				if err != nil {
					return
				}
				var m map[string]any
				if json.Unmarshal(line, &m) != nil {
					return
				}
				out, err := json.Marshal(m)
				if err != nil {
					return
				}
				if _, err := c.Write(append(out, '\n')); err != nil {
					return
				}
			}
		}()
	}
}

// discard reads what nobody looks at, so that its writer never waits.
func discard(r io.Reader) { _, _ = io.Copy(io.Discard, r) }

// process is a server in a process of its own.
type process struct {
	cmd    *exec.Cmd
	socket string
	ready  time.Duration
}

// launch starts a server and waits for the line that says it is ready. The bench stops
// it when the figure is measured.
func (b *bench) launch(cmd *exec.Cmd, socket string) (*process, error) {
	stderr, err := cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	lines := bufio.NewScanner(stderr)
	var seen []string
	for lines.Scan() {
		if strings.Contains(lines.Text(), `"msg":"ready"`) {
			p := &process{cmd, socket, time.Since(began)}
			*b.running = append(*b.running, p)
			go discard(stderr)
			return p, nil
		}
		seen = append(seen, lines.Text())
	}
	return nil, errors.Join(fmt.Errorf("%s did not become ready: %s", cmd.Path, strings.Join(seen, "; ")), cmd.Wait())
}

// stop ends a server; once more does nothing.
func (p *process) stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	_ = p.cmd.Wait()
}

func (b *bench) echo() (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	socket := filepath.Join(b.dir, "echo.sock")
	_ = os.Remove(socket)
	return b.launch(exec.CommandContext(b.ctx, self, "-echo", socket), socket)
}

// daemon is the built binary over a directory of its own.
type daemon struct {
	*process
	dir  string
	sink *conn
	// received gets the first message of the sink.
	received chan []byte
}

// start runs the daemon with as many agents, each with its own app and its own
// colleagues at a chat channel.
func (b *bench) start(name string, agents int) (*daemon, error) {
	return b.startKnowing(name, agents, 0)
}

// startKnowing is start for a daemon that knows further contacts, whom nobody
// writes to.
func (b *bench) startKnowing(name string, agents, contacts int) (*daemon, error) {
	dir := filepath.Join(b.dir, name)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	var cfg strings.Builder
	// One process is apps and operator.
	bound := ", max_connections_per_process: 2000"
	if b.unbound {
		bound = ""
	}
	cfg.WriteString(b.also + "ipc: {apps_may_operate: true" + bound + "}\nagents:\n")
	for i := range agents {
		fmt.Fprintf(&cfg, "  - {id: a%d, app: \"@bench/a%d\", instance_id: agent-a%d, user_id: u%d, org_unit: engineering, tenant_id: acme}\n", i, i, i, i)
	}
	person := ""
	if b.binary != b.beside { // which may know no tasks, no agents without an app and no limits for persons
		person = "  - {kind: person, user_id: reader, org_unit: engineering, tenant_id: acme, accepts: [public, internal], sessions: [\"desk:reader\"]}\n"
		cfg.WriteString("  - {id: proxied, tools: off, instance_id: agent-proxied, user_id: proxied, org_unit: engineering, tenant_id: acme}\n")
		cfg.WriteString("  - {id: hooked, instance_id: agent-hooked, user_id: hooked, org_unit: engineering, tenant_id: acme}\n")
		cfg.WriteString("ocip: {person: {max_messages: 1000000}}\n")
		cfg.WriteString("tasks:\n  actors:\n    - {name: lead, role: orchestrator, tenant_id: acme}\n    - {name: checker, role: spec_reviewer, tenant_id: acme}\n  self_review: true\n")
	}
	cfg.WriteString("directory:\n" + person)
	for i := range agents {
		for j := range talks {
			fmt.Fprintf(&cfg, "  - {instance_id: agent-p%d-%d, user_id: p%d, org_unit: engineering, tenant_id: acme, accepts: [public, internal], sessions: [\"chat:p%d-%d\"]}\n", i, j, i, i, j)
		}
	}
	// A long directory stands in a file of its own.
	var listed strings.Builder
	for i := range contacts {
		fmt.Fprintf(&listed, `{"instance_id":"agent-c%d","user_id":"c%d","org_unit":"engineering","tenant_id":"acme","accepts":["public","internal"],"sessions":["mail:c%d","irc:direct:c%d"]}`+"\n", i, i, i, i)
	}
	if contacts > 0 {
		cfg.WriteString("directory_file: contacts.jsonl\n")
		if err := os.WriteFile(filepath.Join(dir, "contacts.jsonl"), []byte(listed.String()), 0o600); err != nil {
			return nil, err
		}
	}
	file := filepath.Join(dir, "ocipd.yaml")
	if err := os.WriteFile(file, []byte(cfg.String()), 0o600); err != nil {
		return nil, err
	}
	socket := filepath.Join(dir, "run", "kernel.sock")
	cmd := exec.CommandContext(b.ctx, b.binary, "serve", "--config", file, "--socket", socket)
	cmd.Env = append(os.Environ(), "XDG_STATE_HOME="+dir)
	p, err := b.launch(cmd, socket)
	if err != nil && !b.unbound && strings.Contains(err.Error(), "max_connections_per_process") {
		b.unbound = true
		return b.startKnowing(name, agents, contacts)
	}
	if err != nil {
		return nil, err
	}
	return &daemon{process: p, dir: dir}, nil
}

// resident is the memory that is resident now.
func (p *process) resident() (kb int, err error) { return p.status("VmRSS:") }

// resting is the resident memory after a daemon has returned the memory of its start.
func (p *process) resting() (kb int, err error) {
	<-time.After(time.Second)
	return p.resident()
}

// processorTime is how long the threads of a process have run, in nanoseconds.
func (p *process) processorTime() (all int64, err error) {
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", p.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return 0, err
		}
		one, _, _ := strings.Cut(string(text), " ")
		ran, err := strconv.ParseInt(one, 10, 64)
		if err != nil {
			return 0, err
		}
		all += ran
	}
	return all, nil
}

func (p *process) status(name string) (kb int, err error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, name); ok {
			return strconv.Atoi(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")))
		}
	}
	return 0, errors.New("no " + name)
}

// conn is the measuring end: as little work as can be, the same for the daemon
// and for its floor.
type conn struct {
	socket net.Conn
	lines  *bufio.Reader
	token  string
	n      int
	buf    []byte
	peer   string
}

func dial(socket string) (*conn, error) {
	c, err := net.Dial("unix", socket)
	if err != nil {
		return nil, err
	}
	return &conn{socket: c, lines: bufio.NewReaderSize(c, 16<<10)}, nil
}

// call sends one request and reads lines until its answer.
func (c *conn) call(method, params string) ([]byte, error) {
	c.buf = c.buf[:0]
	c.ask(method, params)
	if _, err := c.socket.Write(c.buf); err != nil {
		return nil, err
	}
	return c.answer(method)
}

// ask adds a request to the next write.
func (c *conn) ask(method, params string) {
	c.n++
	c.buf = append(c.buf, `{"id":"`...)
	c.buf = strconv.AppendInt(c.buf, int64(c.n), 10)
	c.buf = append(c.buf, `","type":"request","timestamp":1707000000000,"method":"`...)
	c.buf = append(append(append(c.buf, method...), `","params":`...), params...)
	if c.token != "" {
		c.buf = append(append(append(c.buf, `,"token":"`...), c.token...), '"')
	}
	c.buf = append(c.buf, '}', '\n')
}

// answer reads lines until one is an answer.
func (c *conn) answer(method string) ([]byte, error) {
	for {
		line, err := c.lines.ReadSlice('\n')
		if err != nil {
			return nil, err
		}
		if bytes.Contains(line, []byte(`"type":"event"`)) {
			continue
		}
		// A message that is held is never delivered, and costs something else.
		if bytes.Contains(line, []byte(`"success":false`)) || bytes.Contains(line, []byte(`"held":true`)) {
			return nil, fmt.Errorf("%s: %s", method, line)
		}
		return line, nil
	}
}

func (c *conn) heartbeat() error {
	_, err := c.call("app.heartbeat", `{"status":{"queue":0,"state":"idle"}}`)
	return err
}

func (c *conn) register(id, capabilities string) error {
	line, err := c.call("app.register", fmt.Sprintf(`{"manifest":{"id":%q,"name":"bench","version":"1.0.0","type":"app","main":"x","protocol":{"version":"1.0"},"capabilities":%s}}`, id, capabilities))
	if err != nil {
		return err
	}
	var m struct {
		Result struct {
			Token string `json:"token"`
		} `json:"result"`
	}
	if err := json.Unmarshal(line, &m); err != nil {
		return err
	}
	c.token = m.Result.Token
	_, err = c.call("app.ready", "{}")
	return err
}

// app connects and registers the app of an agent.
func (d *daemon) app(i int) (*conn, error) {
	c, err := dial(d.socket)
	if err != nil {
		return nil, err
	}
	c.peer = fmt.Sprintf("chat:p%d-", i)
	return c, c.register(fmt.Sprintf("@bench/a%d", i), "{}")
}

// sender is an app with a receiver of its messages: one app that owns the channel and
// reads the messages for it.
func (d *daemon) sender(i int) (*conn, error) {
	if d.sink == nil {
		sink, err := dial(d.socket)
		if err != nil {
			return nil, err
		}
		if err := sink.register("@bench/chat", `{"channels":{"provides":["chat"]},"hooks":{"subscribes":["message_sending"]}}`); err != nil {
			return nil, err
		}
		if _, err := sink.call("capability.register", `{"type":"channel","config":{"channelId":"chat"}}`); err != nil {
			return nil, err
		}
		if _, err := sink.call("hook.subscribe", `{"events":["message_sending"]}`); err != nil {
			return nil, err
		}
		d.sink, d.received = sink, make(chan []byte, 1)
		go func() {
			if line, err := sink.lines.ReadBytes('\n'); err == nil {
				d.received <- line
			}
			discard(sink.lines)
		}()
	}
	return d.app(i)
}

// report is 400 bytes of plain text that binds nobody to anything.
const report = "The build of milestone 2 is at 75 percent and on track. The last three runs were green, the slow test is fixed, and the numbers of the week are in the usual place. Could you tell me how far the review of the second part is, and whether anything in it needs work from our side before the end of the week? Nothing here is urgent, there is no hurry with answers. It can wait for you. Thanks and regards!"

// message opens an exchange with a peer.
func (c *conn) message(talk int) string {
	return `{"sessionKey":"` + c.peer + strconv.Itoa(talk) + `","content":"` + report + `","metadata":{"exchange":{"type":"information_query","new":true}}}`
}

// dispatch sends one message.
func (c *conn) dispatch() error {
	_, err := c.call("message.dispatch", c.message(0))
	return err
}

// dispatchTalks sends a message in each of the app's conversations, and reads
// the answers to all.
func (c *conn) dispatchTalks() error {
	c.buf = c.buf[:0]
	for talk := range talks {
		c.ask("message.dispatch", c.message(talk))
	}
	if _, err := c.socket.Write(c.buf); err != nil {
		return err
	}
	for range talks {
		if _, err := c.answer("message.dispatch"); err != nil {
			return err
		}
	}
	return nil
}

// durableBytes sends one message and returns what had to become durable for
// it: the line that records it, as soon as the mirror has it, and the message
// as its receiver was given it.
func (d *daemon) durableBytes(c *conn) ([]byte, error) {
	if err := c.dispatch(); err != nil {
		return nil, err
	}
	message := <-d.received
	line, err := d.recordWith(`"actionType":"agent_exchange"`, c.heartbeat)
	return append(line, message...), err
}

// recordWith is the first line of the log with some text in it, as soon as the mirror has
// it. A step takes the time between two looks.
func (d *daemon) recordWith(text string, step func() error) ([]byte, error) {
	for range 1000 {
		log, err := os.ReadFile(filepath.Join(d.dir, "openclawos", "audit.jsonl"))
		if err != nil {
			return nil, err
		}
		for line := range bytes.Lines(log) {
			if bytes.Contains(line, []byte(text)) && line[len(line)-1] == '\n' {
				return line, nil
			}
		}
		if err := step(); err != nil {
			return nil, err
		}
	}
	return nil, fmt.Errorf("no record has %s", text)
}

var errNoPerf = errors.New("perf cannot count system calls here")

// calls counts the system calls that the daemon makes meanwhile.
func (d *daemon) calls(work func() error) (n int, err error) {
	var said strings.Builder
	perf := exec.Command("perf", "stat", "-x,", "-e", "raw_syscalls:sys_enter", "-p", strconv.Itoa(d.cmd.Process.Pid))
	perf.Stderr = &said
	if err := perf.Start(); err != nil {
		return 0, errNoPerf
	}
	<-time.After(time.Second / 2) // it says not when it has begun
	err = work()
	_ = perf.Process.Signal(syscall.SIGINT)
	_ = perf.Wait() // ends by the signal
	if err != nil {
		return 0, err
	}
	count, _, _ := strings.Cut(said.String(), ",")
	if n, err = strconv.Atoi(strings.TrimSpace(count)); err != nil {
		return 0, errNoPerf
	}
	return n, nil
}

// bareCommit returns a step that writes a record and a message to a SQLite database
// which does nothing else, and a function that closes the database.
func (b *bench) bareCommit(durable []byte) (commit func() error, end func(), err error) {
	record, message, _ := bytes.Cut(durable, []byte("\n"))
	path := filepath.Join(b.dir, "commit.db")
	for _, suffix := range []string{"", "-wal"} {
		_ = os.Remove(path + suffix)
	}
	conn, err := sqlite.OpenConn("file:"+path+"?vfs=unix-excl", sqlite.OpenReadWrite|sqlite.OpenCreate|sqlite.OpenURI)
	if err != nil {
		return nil, nil, err
	}
	for _, statement := range []string{
		"PRAGMA journal_mode=WAL", "PRAGMA synchronous=FULL", "PRAGMA locking_mode=EXCLUSIVE",
		"CREATE TABLE records (seq INTEGER PRIMARY KEY, line TEXT)", "CREATE TABLE state (key INTEGER PRIMARY KEY, message BLOB)",
	} {
		if err := sqlitex.ExecuteTransient(conn, statement, nil); err != nil {
			return nil, nil, errors.Join(err, conn.Close())
		}
	}
	var stmts []*sqlite.Stmt
	for _, statement := range []string{"BEGIN IMMEDIATE", "INSERT INTO records (line) VALUES (?)", "INSERT OR REPLACE INTO state VALUES (1, ?)", "COMMIT"} {
		stmt, err := conn.Prepare(statement)
		if err != nil {
			return nil, nil, errors.Join(err, conn.Close())
		}
		stmts = append(stmts, stmt)
	}
	commit = func() error {
		stmts[1].BindBytes(1, record)
		stmts[2].BindBytes(1, message)
		for _, stmt := range stmts {
			if _, err := stmt.Step(); err != nil {
				return err
			}
			if err := stmt.Reset(); err != nil {
				return err
			}
		}
		return nil
	}
	return commit, func() { _ = conn.Close() }, nil
}

// fill makes a store with as many records and exchanges as the figure asks for,
// through the store itself.
func (b *bench) fill(name string) error {
	dir := filepath.Join(b.dir, name, "openclawos")
	s, err := store.Open(b.ctx, store.Options{Path: filepath.Join(dir, "ocipd.db"), Clock: time.Now, Log: zap.NewNop(), Signing: signing(dir), RowKey: rowKey(dir)})
	if err != nil {
		return err
	}
	// As a daemon would have left it, so that none has to catch up later.
	files, err := mirror.Open(b.ctx, mirror.Options{
		Path: filepath.Join(dir, "audit.jsonl"), Source: s, Clock: time.Now, Log: zap.NewNop(), RotateBytes: int64(config.Default().Audit.Rotate.Bytes),
	})
	if err != nil {
		return errors.Join(err, s.Close())
	}
	const batch = 5000
	now, exchanges := time.Now(), 0
	for done := 0; done < b.records; done += batch {
		change := new(store.Change)
		for i := range batch {
			id := uuid.Must(uuid.NewV7()).String()
			change.Records = append(change.Records, benchRecord(id))
			if (done+i)%(max(1, b.records/max(1, b.exchanges))) == 0 {
				// All but the last hundred have ended: how open rows grow is a figure of its own.
				outcome := ocip.Resolved
				if exchanges++; exchanges > b.exchanges-100 {
					outcome = ocip.InProgress
				}
				change.Add(&store.Exchange{Exchange: ocip.Exchange{
					ID: id, ConversationID: id, Type: ocip.InformationQuery, Agent: "agent-a0", Counterparty: "agent-p0", SessionKey: "chat:p0",
					Outcome: outcome, Round: 1, MaxRounds: 3, OpenedAt: now, UpdatedAt: now, ExpiresAt: now.Add(24 * time.Hour),
					Transcript: []ocip.Turn{{Round: 1, Sender: "agent-a0", Summary: "The build of milestone 2 is at 75 percent and on track."}},
				}})
			}
		}
		if _, err := s.Commit(change); err != nil {
			return errors.Join(err, files.Close(b.ctx), s.Close())
		}
		if done%500_000 == 0 {
			fmt.Fprintf(os.Stderr, "  filling the large store: %d of %d records\r", done, b.records)
		}
	}
	fmt.Fprintln(os.Stderr)
	return errors.Join(b.packed(files, b.records), files.Close(b.ctx), s.Close())
}

// packed returns when a mirror has written and compressed everything.
func (b *bench) packed(files *mirror.Mirror, records int) error {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		if s := files.Status(); s.Mirrored >= uint64(records) && s.Pending == 0 {
			return nil
		}
		select {
		case <-tick.C:
		case <-b.ctx.Done():
			return b.ctx.Err()
		}
	}
}
