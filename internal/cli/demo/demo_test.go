package demo

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/openclawos/ocipd/internal/base/term"
	"github.com/openclawos/ocipd/internal/config"
	"github.com/openclawos/ocipd/internal/daemon"
	"github.com/openclawos/ocipd/internal/daemon/supervisor"
	"github.com/openclawos/ocipd/test/buildtest"
	"go.uber.org/zap"
)

// TestMain lets the demo use the test's program as its daemon.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "serve" {
		if err := serve(os.Args[3], os.Args[5]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(buildtest.Isolated(m).Run())
}

func serve(file, socket string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	cfg, err := config.Load(config.Options{File: file, Env: os.Environ(), Flags: map[string]any{"ipc.socket": socket}})
	if err != nil {
		return err
	}
	log, err := zap.NewProduction()
	if err != nil {
		return err
	}
	d, err := daemon.New(daemon.Options{Config: cfg, Getenv: os.Getenv, Version: "test", Log: log, Manager: supervisor.New(log)})
	if err != nil {
		return err
	}
	return d.Run(ctx, nil)
}

// play runs the demo in its own directory, which must be empty afterwards.
func play(t *testing.T, stdin string) (shown string, err error) {
	t.Helper()
	// Socket addresses are limited in length, so the directory's name must be short.
	dir, err := os.MkdirTemp("", "d")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	t.Setenv("TMPDIR", dir)
	var out bytes.Buffer
	err = Run(t.Context(), Options{
		Stdin: strings.NewReader(stdin), Stdout: &out, Screen: term.Screen{Width: 80}, Getenv: os.Getenv, Pause: true,
	})
	if left, err := filepath.Glob(filepath.Join(dir, "*")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %q, %v", left, err)
	}
	return out.String(), err
}

// A person can end the demo early, and nothing of it stays.
func TestQuit(t *testing.T) {
	shown, err := play(t, "\n\nq\n")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"1. A question to a colleague of the same unit", "what the apps saw", "what the log recorded", "accepted", "3. A colleague in legal", "POLICY_DENIED"} {
		if !strings.Contains(shown, want) {
			t.Errorf("no %q in\n%s", want, shown)
		}
	}
	if strings.Contains(shown, "\n4. ") {
		t.Errorf("it goes on:\n%s", shown)
	}
	for line := range strings.Lines(shown) {
		if w := term.Width(strings.TrimSuffix(line, "\n")); w > 80 {
			t.Errorf("%d columns: %s", w, line)
		}
	}
}

// If no daemon starts, the demo says so.
func TestWithoutDaemon(t *testing.T) {
	self := os.Args[0]
	t.Cleanup(func() { os.Args[0] = self })
	os.Args[0] = "false"
	if shown, err := play(t, ""); err == nil || !strings.Contains(err.Error(), "cannot start the demo's daemon") {
		t.Errorf("it ends with %v:\n%s", err, shown)
	}
}

func TestWrap(t *testing.T) {
	lines := []term.Cell{term.Plain("  " + strings.Repeat("word ", 30)), term.Plain(strings.Repeat("x", 100)), term.Tinted("short", term.Red)}
	for width := 20; width < 100; width++ {
		wrapped, text := wrap(lines, width), ""
		for _, line := range wrapped {
			if term.Width(line.Text) > width {
				t.Errorf("%d columns in %d: %q", term.Width(line.Text), width, line.Text)
			}
			text += line.Text + " "
		}
		if last := wrapped[len(wrapped)-1]; strings.Count(text, "word") != 30 || last.Text != "short" || last.Colour != term.Red {
			t.Errorf("in %d columns: %q", width, text)
		}
	}
}
