package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// proxyFigures are the figures of ocipd mcp-proxy: the time that it adds to a call of a tool,
// and the memory that a long result takes.
func proxyFigures() []figure {
	return []figure{
		{"gated tool call, added by the proxy, p50", "commit+echo", "≤ 2×", proxyLatency},
		{"tool call that passes unasked, p50", "a request that passes", "≤ 1.05×", proxyUnasked},
		{"gated tool call, processor time of the proxy, beside another build", "-beside", "≤ 1.05×", proxyTime},
		{"MCP proxy, most memory, 20 MB result", "idle", "≤ 60 MB", func(b *bench) (result, error) { return proxyMemory(b, lookUp, 60) }},
		{"MCP proxy, most memory, 20 MB of a gated call", "idle", "≤ 160 MB", func(b *bench) (result, error) { return proxyMemory(b, sendLong, 160) }},
	}
}

const longResult = 20_000_000

// serveMCP is a server whose tools do nothing: one that is asked for a long result has it.
func serveMCP(in io.Reader, out io.Writer) error {
	r := bufio.NewReader(in)
	long := bytes.Repeat([]byte("x"), 1000)
	for {
		line, err := r.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		var m struct {
			ID     json.RawMessage `json:"id"`
			Params struct {
				Arguments struct {
					Long bool `json:"long"`
				} `json:"arguments"`
			} `json:"params"`
		}
		if err := json.Unmarshal(line, &m); err != nil {
			return err
		}
		w := bufio.NewWriter(out)
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"done`, m.ID)
		for n := 0; m.Params.Arguments.Long && n < longResult; n += len(long) {
			_, _ = w.Write(long) // Flush reports it
		}
		fmt.Fprintln(w, `"}]}}`)
		if err := w.Flush(); err != nil {
			return err
		}
	}
}

// tools is an MCP client.
type tools struct {
	*process
	in  io.Writer
	out *bufio.Reader
	n   int
}

// tools starts an MCP server, or a proxy in front of one.
func (b *bench) tools(command ...string) (*tools, error) {
	cmd := exec.CommandContext(b.ctx, command[0], command[1:]...)
	cmd.Env, cmd.Stderr = append(os.Environ(), "XDG_STATE_HOME="+b.dir), os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	t := &tools{process: &process{cmd: cmd}, in: in, out: bufio.NewReaderSize(out, 64<<10)}
	*b.running = append(*b.running, t.process)
	return t, nil
}

// sendIt is a call that is gated, and sendLong one whose result is long too. lookUp is
// one that is not gated, with a long result.
const (
	sendIt   = `{"name":"send_message","arguments":{"to":"reader","text":"` + report + `"}}`
	sendLong = `{"name":"send_message","arguments":{"to":"reader","text":"` + report + `","long":true}}`
	lookUp   = `{"name":"look_up","arguments":{"long":true}}`
	// lookUpShort has a short result.
	lookUpShort = `{"name":"look_up","arguments":{}}`
)

// call calls a tool, and returns how many bytes it is answered.
func (t *tools) call(params string) (bytesRead int, err error) {
	return t.request("tools/call", params)
}

// ask makes requests.
func (t *tools) ask(method, params string) func() error {
	return func() error {
		_, err := t.request(method, params)
		return err
	}
}

func (t *tools) request(method, params string) (bytesRead int, err error) {
	t.n++
	if _, err := fmt.Fprintf(t.in, `{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`+"\n", t.n, method, params); err != nil {
		return 0, err
	}
	for {
		piece, err := t.out.ReadSlice('\n')
		bytesRead += len(piece)
		if err == nil && bytes.Contains(piece, []byte(`"isError":true`)) {
			return bytesRead, fmt.Errorf("%s: %s", params, piece)
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return bytesRead, err
		}
	}
}

func (t *tools) send() error {
	_, err := t.call(sendIt)
	return err
}

// proxied starts a daemon, and the server with the proxy in front of it and without.
func (b *bench) proxied() (d *daemon, through, without *tools, err error) {
	if d, err = b.start("proxied", 1); err != nil {
		return nil, nil, nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, nil, nil, err
	}
	if without, err = b.tools(self, "-mcp"); err != nil {
		return nil, nil, nil, err
	}
	through, err = b.before(d, b.binary)
	return d, through, without, err
}

// before starts the proxy of a build in front of the server, with a grant of its own: one is bound to a program.
func (b *bench) before(d *daemon, binary string) (*tools, error) {
	operator, err := dial(filepath.Join(filepath.Dir(d.socket), "operator.sock"))
	if err != nil {
		return nil, err
	}
	defer operator.socket.Close()
	granted, err := operator.call("task.grant", `{"agent":"proxied"}`)
	if err != nil {
		return nil, err
	}
	files := map[string]string{"token": member(granted, "token"), "desk.yaml": "channel: desk\ntools:\n  send_message: {text: [text], to: [\"{to}\"], with: [long]}\ncalls: [look_up]\n"}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(d.dir, name+"-"+filepath.Base(binary)), []byte(text), 0o600); err != nil {
			return nil, err
		}
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return b.tools(binary, "mcp-proxy", "--agent", "proxied", "--token-file", filepath.Join(d.dir, "token-"+filepath.Base(binary)), "--socket", d.socket,
		"--map", filepath.Join(d.dir, "desk.yaml-"+filepath.Base(binary)), "--", self, "-mcp")
}

// proxyLatency compares the time that the proxy adds to a call of a tool with the least that a
// decision takes: a commit of its record, and a round trip.
func proxyLatency(b *bench) (result, error) {
	d, through, without, err := b.proxied()
	if err != nil {
		return result{}, err
	}
	record, err := d.recordWith(`"desk:reader"`, through.send)
	if err != nil {
		return result{}, err
	}
	parts, end, err := b.bareParts(record, "", "desk:")
	if err != nil {
		return result{}, err
	}
	defer end()
	t, err := medians(turns*turnSamples, through.send, without.send, parts)
	if err != nil {
		return result{}, err
	}
	r := times(t[0]-t[1], t[2], 2)
	r.ours += fmt.Sprintf(" (%s − %s)", t[0].Round(100*time.Nanosecond), t[1].Round(100*time.Nanosecond))
	return r, nil
}

// proxyUnasked compares a call of a tool of an agent whose calls are not recorded with a request about
// which no daemon is ever asked.
func proxyUnasked(b *bench) (result, error) {
	_, through, _, err := b.proxied()
	if err != nil {
		return result{}, err
	}
	t, err := medians(turns*turnSamples, through.ask("tools/call", lookUpShort), through.ask("tools/list", lookUpShort))
	if err != nil {
		return result{}, err
	}
	return times(t[0], t[1], 1.05), nil
}

// proxyTime compares the processor time that a gated call takes of the proxy with that of another build, in
// turns: unlike a latency, it does not depend on other programs on the machine.
func proxyTime(b *bench) (result, error) {
	if b.beside == "" {
		return notAskedFor, nil
	}
	d, through, _, err := b.proxied()
	if err != nil {
		return result{}, err
	}
	other, err := b.before(d, b.beside)
	if err != nil {
		return result{}, err
	}
	var each [2][]float64
	for turn := range 2 * besideTurns {
		for i, side := range [...]*tools{through, other} {
			before, err := side.processorTime()
			if err != nil {
				return result{}, err
			}
			for range turnSamples {
				if err := side.send(); err != nil {
					return result{}, err
				}
			}
			after, err := side.processorTime()
			if err != nil {
				return result{}, err
			}
			if turn > 0 { // the first warms up
				each[i] = append(each[i], float64(after-before)/turnSamples/1000)
			}
		}
	}
	ours, floor := middle(each[0]), middle(each[1])
	return result{fmt.Sprintf("%.1f µs", ours), fmt.Sprintf("%.1f µs", floor), fmt.Sprintf("%.2f×", ours/floor), ours <= 1.05*floor}, nil
}

// proxyMemory is the most that the proxy has had in memory after a long result.
func proxyMemory(b *bench, params string, goal int) (result, error) {
	_, through, _, err := b.proxied()
	if err != nil {
		return result{}, err
	}
	if err := through.send(); err != nil {
		return result{}, err
	}
	idle, err := through.resident()
	if err != nil {
		return result{}, err
	}
	for range 5 {
		n, err := through.call(params)
		if err != nil {
			return result{}, err
		}
		if n < longResult {
			return result{}, fmt.Errorf("the result has %d bytes", n)
		}
	}
	most, err := through.status("VmHWM:")
	return result{
		fmt.Sprintf("%.1f MB", float64(most)/1000), fmt.Sprintf("%.1f MB", float64(idle)/1000), fmt.Sprintf("%.2f×", float64(most)/float64(idle)), most <= goal*1000,
	}, err
}
