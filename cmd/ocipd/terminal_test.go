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

	"golang.org/x/sys/unix"
)

// terminal is a terminal of its own with a program in it, and what is seen on
// it. It knows what the program needs it to know, and fails for anything else.
type terminal struct {
	t    *testing.T
	cmd  *exec.Cmd
	ptmx *os.File

	mu   sync.Mutex
	rows [][]rune
	x, y int
	// top and bottom bound the lines that scroll.
	top, bottom int
	// colours is set once a colour was used.
	colours bool
	raw     []byte // not understood yet
	changed chan struct{}
	// over is closed when the program has ended, and all it wrote was read.
	over chan struct{}
}

// openTerminal runs a program in a terminal.
func openTerminal(t *testing.T, width, height int, env []string, name string, args ...string) *terminal {
	t.Helper()
	ptmx, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("without terminals: %v", err)
	}
	term := &terminal{t: t, ptmx: ptmx, changed: make(chan struct{}, 1), over: make(chan struct{})}
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
	term.resize(width, height)
	term.cmd = exec.CommandContext(t.Context(), name, args...)
	term.cmd.Env, term.cmd.Stdin, term.cmd.Stdout, term.cmd.Stderr = env, pts, pts, pts
	term.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := term.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go term.read()
	t.Cleanup(func() {
		_ = term.cmd.Process.Kill()
		_ = term.cmd.Wait()
		<-term.over
		ptmx.Close()
	})
	return term
}

func (term *terminal) resize(width, height int) {
	term.t.Helper()
	term.mu.Lock()
	term.rows = make([][]rune, height)
	for i := range term.rows {
		term.rows[i] = []rune(strings.Repeat(" ", width))
	}
	term.top, term.bottom = 0, height-1
	term.mu.Unlock()
	if err := unix.IoctlSetWinsize(int(term.ptmx.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: uint16(height), Col: uint16(width)}); err != nil {
		term.t.Fatal(err)
	}
}

func (term *terminal) read() {
	defer close(term.over)
	buf := make([]byte, 4096)
	for {
		n, err := term.ptmx.Read(buf)
		term.mu.Lock()
		term.raw = append(term.raw, buf[:n]...)
		term.take()
		term.mu.Unlock()
		select {
		case term.changed <- struct{}{}:
		default:
		}
		if err != nil {
			return
		}
	}
}

// take understands what was written, up to what is not whole yet.
func (term *terminal) take() {
	for len(term.raw) > 0 {
		used := term.one(term.raw)
		if used == 0 {
			return
		}
		term.raw = term.raw[used:]
	}
}

// one takes one character or sequence, and returns how long it is.
func (term *terminal) one(b []byte) int {
	width, height := len(term.rows[0]), len(term.rows)
	switch {
	case b[0] == '\r':
		term.x = 0
	case b[0] == '\n':
		if term.y == term.bottom {
			term.scroll(term.top, 1)
		}
		term.y = min(term.y+1, height-1)
	case b[0] == '\b':
		term.x = max(0, term.x-1)
	case b[0] == '\t':
		term.x = min(width-1, term.x/8*8+8)
	case b[0] == 0x1b:
		return term.escape(b)
	case b[0] < ' ':
		term.t.Errorf("the terminal got %q", b[0])
	default:
		if !utf8.FullRune(b) {
			return 0
		}
		r, size := utf8.DecodeRune(b)
		if term.x == width { // the line was full
			term.x, term.y = 0, min(term.y+1, height-1)
		}
		term.rows[term.y][term.x] = r
		term.x = min(width, term.x+max(1, displayWidth(string(r))))
		return size
	}
	return 1
}

// escape takes an escape sequence, and returns how long it is, zero where it is
// not whole.
func (term *terminal) escape(b []byte) int {
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
		if term.y == term.top {
			term.scroll(term.top, -1)
		}
		term.y = max(0, term.y-1)
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
	term.control(string(b[2:end]), b[end])
	return end + 1
}

func (term *terminal) control(given string, final byte) {
	width, height := len(term.rows[0]), len(term.rows)
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
			term.rows[y][x] = ' '
		}
	}
	switch final {
	case 'A':
		term.y = max(0, term.y-number(0, 1))
	case 'B':
		term.y = min(height-1, term.y+number(0, 1))
	case 'C':
		term.x = min(width-1, term.x+number(0, 1))
	case 'D':
		term.x = max(0, term.x-number(0, 1))
	case 'G', '`':
		term.x = min(width, number(0, 1)) - 1
	case 'd':
		term.y = min(height, number(0, 1)) - 1
	case 'H', 'f':
		term.y, term.x = min(height, number(0, 1))-1, min(width, number(1, 1))-1
	case 'J':
		from, to := term.y+1, height
		if number(0, 0) >= 1 {
			from = 0
		} else {
			blank(term.y, term.x, width)
		}
		for y := from; y < to; y++ {
			blank(y, 0, width)
		}
	case 'K':
		switch number(0, 0) {
		case 0:
			blank(term.y, term.x, width)
		case 1:
			blank(term.y, 0, term.x+1)
		default:
			blank(term.y, 0, width)
		}
	case 'S':
		term.scroll(term.top, number(0, 1))
	case 'T':
		term.scroll(term.top, -number(0, 1))
	case 'M':
		term.scroll(term.y, number(0, 1))
	case 'L':
		term.scroll(term.y, -number(0, 1))
	case 'r':
		term.top, term.bottom = number(0, 1)-1, min(number(1, height), height)-1
		term.x, term.y = 0, 0
	case 'X':
		blank(term.y, term.x, term.x+number(0, 1))
	case 'm':
		// One that begins with a sign is no colour but a mode.
		term.colours = term.colours || given != "" && given[0] > '0' && given[0] <= '9'
	case 'h', 'l', 'u', 'p', 'c', 'q', 't', 'n', 'W': // modes and questions
	default:
		term.t.Errorf("the terminal got the control sequence %q %c", given, final)
	}
}

// scroll moves the lines from one to the last that scrolls, up where by is
// positive.
func (term *terminal) scroll(from, by int) {
	height, width := term.bottom-from+1, len(term.rows[0])
	moved := make([][]rune, height)
	for i := range moved {
		if at := i + by; at >= 0 && at < height {
			moved[i] = term.rows[from+at]
		} else {
			moved[i] = []rune(strings.Repeat(" ", width))
		}
	}
	copy(term.rows[from:], moved)
}

// screen is what is seen.
func (term *terminal) screen() string {
	term.mu.Lock()
	defer term.mu.Unlock()
	lines := make([]string, len(term.rows))
	for i, row := range term.rows {
		lines[i] = strings.TrimRight(string(row), " ")
	}
	return strings.Join(lines, "\n")
}

// patience bounds every wait; nothing waits that long unless something is
// broken.
const patience = time.Minute

// want waits until all of this is seen.
func (term *terminal) want(parts ...string) {
	term.t.Helper()
	late := time.NewTimer(patience)
	defer late.Stop()
	for {
		screen, missing := term.screen(), ""
		for _, part := range parts {
			if !strings.Contains(screen, part) {
				missing = part
			}
		}
		if missing == "" {
			return
		}
		select {
		case <-term.changed:
		case <-late.C:
			term.t.Fatalf("%q is not seen:\n%s", missing, screen)
		}
	}
}

func (term *terminal) typed(keys string) {
	term.t.Helper()
	if _, err := term.ptmx.WriteString(keys); err != nil {
		term.t.Fatal(err)
	}
}

// wait waits for the program's end, with all that it wrote, and returns its exit
// code.
func (term *terminal) wait() int {
	term.t.Helper()
	_ = term.cmd.Wait() // the code says it
	<-term.over
	return term.cmd.ProcessState.ExitCode()
}

// coloured reports whether a colour was used.
func (term *terminal) coloured() bool {
	term.mu.Lock()
	defer term.mu.Unlock()
	return term.colours
}

// TestTerminal has a person sit at a real terminal, before a real daemon.
func TestTerminal(t *testing.T) {
	p := newPeople(t, nil, `approvals: {notify: {desktop: false}}`)
	program := []string{"--config", filepath.Join(p.dir, "ocipd.yaml"), "--socket", p.socket, "approvals"}
	env := append(os.Environ(), asProgram+"=1", "TERM=linux", "NO_COLOR=", "GORACE=atexit_sleep_ms=0")
	first := p.hold("I promise to do it by Friday.\n\x1b[2JAnd\u202e more.")
	term := openTerminal(t, 80, 24, env, os.Args[0], program...)
	term.want("ocipd approvals: 1 waiting (alice 1)", "live", "› "+endOf(first, 8), "    │ I promise to do it by Friday.", "        ^^^^^^^ promise", "    │ ‹U+001B›[2JAnd‹U+202E› more.")

	// What comes while one looks is seen.
	second := p.hold("I agree to everything")
	term.want("2 waiting (alice 2)", "  "+endOf(second, 8))

	// What is approved is what was read.
	term.typed("a")
	term.want("Approve sha256:", "y yes  n no")
	term.typed("y")
	term.want("read to the end first")
	term.typed("\x1b[6~\x1b[6~\x1b[6~\x1b[6~")
	term.want("digest sha256:")
	term.typed("y")
	term.want("approved: the message goes on its way (record ", "1 waiting", "› "+endOf(second, 8))
	p.wants(0, ": approved", "show", first)

	// The daemon ends, and another one begins.
	p.end()
	term.want("no daemon", "the daemon is gone")
	p.begin()
	term.want("connected again", "live", "1 waiting")
	third := p.hold("I promise something new")
	term.want("2 waiting", endOf(third, 8))

	// A smaller terminal, and somebody else who decides.
	term.resize(60, 16)
	p.wants(0, "denied", "deny", second)
	term.want("1 waiting", "› "+endOf(third, 8))
	term.typed("t")
	term.want("your words in its place")
	term.typed(" Or not.\x04")
	term.want("What you say in its place", "    │ I promise something new Or not.", "Takeover sha256:")
	term.typed("n")
	term.want("nothing was decided")
	term.typed("/x")
	term.want("filter: x", "0 of 1 waiting, those with x")
	term.typed("\x1b")
	term.want("1 waiting (alice 1)", "a approve")
	term.typed("q")
	if code := term.wait(); code != exitDone {
		t.Errorf("it exits %d", code)
	}
	if !term.coloured() {
		t.Error("it has no colours")
	}

	// Without colours, and with an end that is asked for from outside.
	term = openTerminal(t, 80, 24, append(env, "NO_COLOR=1"), os.Args[0], program...)
	term.want("1 waiting", "I promise something new")
	if err := term.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := term.wait(); code != exitFailed {
		t.Errorf("it exits %d", code)
	}
	if term.coloured() {
		t.Error("it has colours")
	}

	// One that cannot be steered gets the list.
	term = openTerminal(t, 80, 24, append(env, "TERM=dumb"), os.Args[0], program...)
	term.want("ID        AGENT", "To read one and to decide: ocipd approvals show "+endOf(third, 8))
	if code := term.wait(); code != exitDone {
		t.Errorf("it exits %d", code)
	}

	// A daemon that is not there is not waited for.
	p.end()
	term = openTerminal(t, 80, 24, env, os.Args[0], program...)
	term.want("cannot reach the daemon at")
	if code := term.wait(); code != exitNotRunning {
		t.Errorf("it exits %d", code)
	}
}
