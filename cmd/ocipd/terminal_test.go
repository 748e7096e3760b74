package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/openclawos/ocipd/internal/base/term"
	"github.com/openclawos/ocipd/internal/cli"
	"golang.org/x/sys/unix"
)

// terminal is a terminal with a program in it, and its screen. It supports what the program
// needs, and fails for anything else.
type terminal struct {
	t    *testing.T
	cmd  *exec.Cmd
	ptmx *os.File

	mu   sync.Mutex
	rows [][]rune
	x, y int
	// top and bottom bound the scrolling lines.
	top, bottom int
	// colours is set after a colour was used.
	colours bool
	raw     []byte // not understood yet
	changed chan struct{}
	// over is closed when the program has ended and all of its output was read.
	over chan struct{}
}

// openTerminal runs a program in a terminal.
func openTerminal(t *testing.T, width, height int, env []string, name string, args ...string) *terminal {
	t.Helper()
	ptmx, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("without terminals: %v", err)
	}
	tty := &terminal{t: t, ptmx: ptmx, changed: make(chan struct{}, 1), over: make(chan struct{})}
	fd := int(ptmx.Fd())
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	pts, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer pts.Close()
	tty.resize(width, height)
	tty.cmd = exec.CommandContext(t.Context(), name, args...)
	tty.cmd.Env, tty.cmd.Stdin, tty.cmd.Stdout, tty.cmd.Stderr = env, pts, pts, pts
	tty.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := tty.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go tty.read()
	t.Cleanup(func() {
		_ = tty.cmd.Process.Kill()
		_ = tty.cmd.Wait()
		<-tty.over
		ptmx.Close()
	})
	return tty
}

func (tty *terminal) resize(width, height int) {
	tty.t.Helper()
	tty.mu.Lock()
	tty.rows = make([][]rune, height)
	for i := range tty.rows {
		tty.rows[i] = []rune(strings.Repeat(" ", width))
	}
	tty.top, tty.bottom = 0, height-1
	tty.mu.Unlock()
	if err := unix.IoctlSetWinsize(int(tty.ptmx.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: uint16(height), Col: uint16(width)}); err != nil {
		tty.t.Fatal(err)
	}
}

func (tty *terminal) read() {
	defer close(tty.over)
	buf := make([]byte, 4096)
	for {
		n, err := tty.ptmx.Read(buf)
		tty.mu.Lock()
		tty.raw = append(tty.raw, buf[:n]...)
		tty.take()
		tty.mu.Unlock()
		select {
		case tty.changed <- struct{}{}:
		default:
		}
		if err != nil {
			return
		}
	}
}

// take interprets the output, up to an incomplete sequence.
func (tty *terminal) take() {
	for len(tty.raw) > 0 {
		used := tty.one(tty.raw)
		if used == 0 {
			return
		}
		tty.raw = tty.raw[used:]
	}
}

// one interprets one character or sequence, and returns its length.
func (tty *terminal) one(b []byte) int {
	width, height := len(tty.rows[0]), len(tty.rows)
	switch {
	case b[0] == '\r':
		tty.x = 0
	case b[0] == '\n':
		if tty.y == tty.bottom {
			tty.scroll(tty.top, 1)
		}
		tty.y = min(tty.y+1, height-1)
	case b[0] == '\b':
		tty.x = max(0, tty.x-1)
	case b[0] == '\t':
		tty.x = min(width-1, tty.x/8*8+8)
	case b[0] == 0x1b:
		return tty.escape(b)
	case b[0] < ' ':
		tty.t.Errorf("the terminal got %q", b[0])
	default:
		if !utf8.FullRune(b) {
			return 0
		}
		r, size := utf8.DecodeRune(b)
		if tty.x == width { // the line was full
			tty.x, tty.y = 0, min(tty.y+1, height-1)
		}
		tty.rows[tty.y][tty.x] = r
		tty.x = min(width, tty.x+max(1, term.Width(string(r))))
		return size
	}
	return 1
}

// escape interprets an escape sequence, and returns its length, or zero if it is incomplete.
func (tty *terminal) escape(b []byte) int {
	if len(b) < 2 {
		return 0
	}
	switch b[1] {
	case '[':
	case 'P', ']', '_':
		if end := strings.Index(string(b), "\x1b\\"); end >= 0 {
			return end + 2
		}
		return 0
	case '(':
		return 3
	case 'M': // up a line
		if tty.y == tty.top {
			tty.scroll(tty.top, -1)
		}
		tty.y = max(0, tty.y-1)
		return 2
	default: // saves and resets
		return 2
	}
	end := 2
	for end < len(b) && (b[end] < 0x40 || b[end] > 0x7e) {
		end++
	}
	if end == len(b) {
		return 0
	}
	tty.control(string(b[2:end]), b[end])
	return end + 1
}

func (tty *terminal) control(given string, final byte) {
	width, height := len(tty.rows[0]), len(tty.rows)
	number := func(i, otherwise int) int {
		if parts := strings.Split(given, ";"); i < len(parts) {
			if n, err := strconv.Atoi(parts[i]); err == nil {
				return n
			}
		}
		return otherwise
	}
	blank := func(y, from, to int) {
		for x := max(0, from); x < min(to, width); x++ {
			tty.rows[y][x] = ' '
		}
	}
	switch final {
	case 'A':
		tty.y = max(0, tty.y-number(0, 1))
	case 'B':
		tty.y = min(height-1, tty.y+number(0, 1))
	case 'C':
		tty.x = min(width-1, tty.x+number(0, 1))
	case 'D':
		tty.x = max(0, tty.x-number(0, 1))
	case 'G', '`':
		tty.x = min(width, number(0, 1)) - 1
	case 'd':
		tty.y = min(height, number(0, 1)) - 1
	case 'H', 'f':
		tty.y, tty.x = min(height, number(0, 1))-1, min(width, number(1, 1))-1
	case 'J':
		from, to := tty.y+1, height
		if number(0, 0) >= 1 {
			from = 0
		} else {
			blank(tty.y, tty.x, width)
		}
		for y := from; y < to; y++ {
			blank(y, 0, width)
		}
	case 'K':
		switch number(0, 0) {
		case 0:
			blank(tty.y, tty.x, width)
		case 1:
			blank(tty.y, 0, tty.x+1)
		default:
			blank(tty.y, 0, width)
		}
	case 'S':
		tty.scroll(tty.top, number(0, 1))
	case 'T':
		tty.scroll(tty.top, -number(0, 1))
	case 'M':
		tty.scroll(tty.y, number(0, 1))
	case 'L':
		tty.scroll(tty.y, -number(0, 1))
	case 'r':
		tty.top, tty.bottom = number(0, 1)-1, min(number(1, height), height)-1
		tty.x, tty.y = 0, 0
	case 'P':
		n := min(number(0, 1), width-tty.x)
		copy(tty.rows[tty.y][tty.x:], tty.rows[tty.y][tty.x+n:])
		blank(tty.y, width-n, width)
	case '@':
		n := min(number(0, 1), width-tty.x)
		copy(tty.rows[tty.y][tty.x+n:], tty.rows[tty.y][tty.x:width-n])
		blank(tty.y, tty.x, tty.x+n)
	case 'X':
		blank(tty.y, tty.x, tty.x+number(0, 1))
	case 'm':
		// One that begins with a sign is no colour but a mode.
		tty.colours = tty.colours || given != "" && given[0] > '0' && given[0] <= '9'
	case 'h', 'l', 'u', 'p', 'c', 'q', 't', 'n', 'W': // modes and questions
	default:
		tty.t.Errorf("the terminal got the control sequence %q %c", given, final)
	}
}

// scroll moves the lines from one to the last that scrolls, up where by is
// positive.
func (tty *terminal) scroll(from, by int) {
	height, width := tty.bottom-from+1, len(tty.rows[0])
	moved := make([][]rune, height)
	for i := range moved {
		if at := i + by; at >= 0 && at < height {
			moved[i] = tty.rows[from+at]
		} else {
			moved[i] = []rune(strings.Repeat(" ", width))
		}
	}
	copy(tty.rows[from:], moved)
}

// screen is what is seen.
func (tty *terminal) screen() string {
	tty.mu.Lock()
	defer tty.mu.Unlock()
	lines := make([]string, len(tty.rows))
	for i, row := range tty.rows {
		lines[i] = strings.TrimRight(string(row), " ")
	}
	return strings.Join(lines, "\n")
}

// patience bounds every wait; nothing waits that long unless something is
// broken.
const patience = time.Minute

// want waits until all of this is seen.
func (tty *terminal) want(parts ...string) {
	tty.t.Helper()
	late := time.NewTimer(patience)
	defer late.Stop()
	for {
		screen, missing := tty.screen(), ""
		for _, part := range parts {
			if !strings.Contains(screen, part) {
				missing = part
			}
		}
		if missing == "" {
			return
		}
		select {
		case <-tty.changed:
		case <-late.C:
			tty.t.Fatalf("%q is not seen:\n%s", missing, screen)
		}
	}
}

func (tty *terminal) typed(keys string) {
	tty.t.Helper()
	if _, err := tty.ptmx.WriteString(keys); err != nil {
		tty.t.Fatal(err)
	}
}

// wait waits for the program's end, with all that it wrote, and returns its exit
// code.
func (tty *terminal) wait() int {
	tty.t.Helper()
	_ = tty.cmd.Wait() // the code says it
	<-tty.over
	return tty.cmd.ProcessState.ExitCode()
}

// coloured reports whether a colour was used.
func (tty *terminal) coloured() bool {
	tty.mu.Lock()
	defer tty.mu.Unlock()
	return tty.colours
}

// TestTerminal has a person sit at a real terminal, before a real daemon.
func TestTerminal(t *testing.T) {
	t.Parallel()
	p := newOperators(t, nil, `approvals: {notify: {desktop: false}}`)
	program := []string{"--config", filepath.Join(p.dir, "ocipd.yaml"), "--socket", p.socket, "approvals"}
	env := append(os.Environ(), asProgram+"=1", "TERM=linux", "NO_COLOR=")
	first := p.hold("I promise to do it by Friday.\n\x1b[JAnd\u202e more.")
	tty := openTerminal(t, 80, 24, env, os.Args[0], program...)
	tty.want("ocipd approvals: 1 waiting (alice 1)", "live", "› "+endOf(first, 8), "    │ I promise to do it by Friday.", "        ^^^^^^^ promise", "    │ ‹U+001B›[JAnd‹U+202E› more.")

	// A new request appears.
	second := p.hold("I agree to everything")
	tty.want("2 waiting (alice 2)", "  "+endOf(second, 8))

	// The approved text is the one that was read.
	tty.typed("a")
	tty.want("Approve ", "y yes  x yes, and its exchange within these bounds  n no")
	tty.typed("y")
	tty.want("read to the end first")
	tty.typed("\x1b[6~\x1b[6~\x1b[6~\x1b[6~")
	tty.want("words ")
	tty.typed("y")
	tty.want("approved: the message goes on its way (record ", "1 waiting", "› "+endOf(second, 8))
	p.wants(0, ": approved", "show", first)

	// The daemon ends, and another one begins.
	p.end()
	tty.want("no daemon", "the daemon is gone")
	p.begin()
	tty.want("connected again", "live", "1 waiting")
	third := p.hold("I promise something new")
	tty.want("2 waiting", endOf(third, 8))

	// A smaller terminal, and a decision by somebody else.
	tty.resize(60, 16)
	p.wants(0, "denied", "deny", second)
	tty.want("1 waiting", "› "+endOf(third, 8))
	tty.typed("t")
	tty.want("your words in its place")
	tty.typed(" Or not.\x04")
	tty.want("What you say in its place", "    │ I promise something new Or not.", "Takeover ")
	tty.typed("n")
	tty.want("nothing was decided")
	tty.typed("/x")
	tty.want("filter: x", "0 of 1 waiting, those with x")
	tty.typed("\x1b")
	tty.want("1 waiting (alice 1)", "a approve")
	tty.typed("q")
	if code := tty.wait(); code != cli.ExitDone {
		t.Errorf("it exits %d", code)
	}
	if !tty.coloured() {
		t.Error("it has no colours")
	}

	// Without colours, and with an end that is asked for from outside.
	tty = openTerminal(t, 80, 24, append(env, "NO_COLOR=1"), os.Args[0], program...)
	tty.want("1 waiting", "I promise something new")
	if err := tty.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := tty.wait(); code != cli.ExitFailed {
		t.Errorf("it exits %d", code)
	}
	if tty.coloured() {
		t.Error("it has colours")
	}

	// One that cannot be steered gets the list.
	tty = openTerminal(t, 80, 24, append(env, "TERM=dumb"), os.Args[0], program...)
	tty.want("ID        AGENT", "To read one and to decide: ocipd approvals show "+endOf(third, 8))
	if code := tty.wait(); code != cli.ExitDone {
		t.Errorf("it exits %d", code)
	}

	// A daemon that is not there is not waited for.
	p.end()
	tty = openTerminal(t, 80, 24, env, os.Args[0], program...)
	tty.want("cannot reach the daemon at")
	if code := tty.wait(); code != cli.ExitNotRunning {
		t.Errorf("it exits %d", code)
	}
}

// endOf is the end of an id, as it is listed.
func endOf(id string, n int) string { return id[len(id)-n:] }
