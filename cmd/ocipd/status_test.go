package main

import (
	"bytes"
	"context"
	"os"
	"strings"
	"testing"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/cli"
)

// TestWatchOfAProgram checks that a program gets one status after another, and that an
// interrupt is a good end.
func TestWatchOfAProgram(t *testing.T) {
	t.Parallel()
	c := newClinic(t)
	c.write(clinicConfig, clinicYAML, 0o600)
	c.serve()
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"--json"}, `"latency":{`},
		{nil, "decisions  none yet\n"},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		out := &nth{text: test.want, n: 3, reached: cancel}
		var errs bytes.Buffer
		code := run(ctx, append([]string{"status", "--watch", "--interval", "100ms"}, test.args...), strings.NewReader(""), out, &errs, c.env)
		if code != cli.ExitDone || errs.Len() > 0 || strings.Contains(out.all.String(), "\x1b") {
			t.Errorf("%q exits %d: %s%q", test.args, code, errs.String(), out.all.String())
		}
		cancel()
	}
	if code, _, said := c.ocipd("status", "--watch", "--interval", "1ms"); code != cli.ExitUsage {
		t.Errorf("exits %d: %s", code, said)
	}
}

// nth is an output that reports when it has received a text a number of times.
type nth struct {
	all     bytes.Buffer
	text    string
	n       int
	reached func()
}

func (o *nth) Write(p []byte) (int, error) {
	o.all.Write(p)
	if strings.Count(o.all.String(), o.text) >= o.n {
		o.reached()
	}
	return len(p), nil
}

// TestWatchOnATerminal checks that the status is updated in place, and that q ends it.
func TestWatchOnATerminal(t *testing.T) {
	t.Parallel()
	c := newClinic(t)
	c.write(clinicConfig, clinicYAML, 0o600)
	c.serve()
	term := openTerminal(t, 80, 24, append(c.env, asProgram+"=1", "TERM=xterm"), os.Args[0], "status", "--watch", "--interval", "100ms")
	term.want("ocipd ", "decisions", "disk", "q quit")
	term.typed("q")
	if code := term.wait(); code != cli.ExitDone {
		t.Errorf("exits %d", code)
	}
}

// TestDebugPprof takes profiles that the tools can read.
func TestDebugPprof(t *testing.T) {
	t.Parallel()
	c := newClinic(t)
	c.write(clinicConfig, clinicYAML, 0o600)
	c.serve()
	gzipped := []byte{0x1f, 0x8b}
	for _, name := range api.Profiles() {
		args := []string{"debug", "pprof", name, "-o", c.path(name)}
		if name == api.ProfileCPU {
			args = append(args, "--for", "1s")
		}
		if code, out, said := c.ocipd(args...); code != cli.ExitDone || !strings.Contains(out, "go tool pprof") {
			t.Errorf("%s exits %d: %s%s", name, code, out, said)
			continue
		}
		if text := c.read(name); !bytes.HasPrefix(text, gzipped) {
			t.Errorf("%s begins with %x", name, text[:min(len(text), 8)])
		}
	}
	if code, out, _ := c.ocipd("debug", "pprof", "heap", "-o", "-"); code != cli.ExitDone || !strings.HasPrefix(out, string(gzipped)) {
		t.Errorf("to stdout: exits %d", code)
	}
	for _, wrong := range [][]string{{"everything"}, {"cpu", "--for", "1h"}, {"cpu", "--for", "1ms"}, {}} {
		if code, _, _ := c.ocipd(append([]string{"debug", "pprof"}, wrong...)...); code != cli.ExitUsage {
			t.Errorf("%q exits %d", wrong, code)
		}
	}
	if code, _, said := c.ocipd("call", "--kernel", "debug.profile", `{"name":"heap"}`); code != cli.ExitFailed || !strings.Contains(said, "FORBIDDEN") {
		t.Errorf("on the apps' socket it exits %d: %s", code, said)
	}
}
