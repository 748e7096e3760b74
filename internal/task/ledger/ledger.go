package ledger

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/openclawos/ocipd/internal/base/durable"
	"github.com/openclawos/ocipd/internal/base/peer"
	"github.com/openclawos/ocipd/internal/task/taskapi"
	"golang.org/x/sys/unix"
)

// The files of a run in the ledger, as kinds for [Ledger.Path]: its claim, its process, its end,
// its output so far, and the folder of its copies of inputs.
const (
	ClaimFile   = "claim"
	ProcessFile = "pid"
	ResultFile  = "result"
	StdoutFile  = "out"
	StderrFile  = "err"
	InputsDir   = "inputs"
)

// Ledger is the directory of runs.
type Ledger struct{ dir string }

// At is the ledger in a directory that [Open] has made.
func At(dir string) *Ledger { return &Ledger{dir: dir} }

// Dir is the ledger's directory.
func (l *Ledger) Dir() string { return l.dir }

// Open makes the directory where it is not there, and writes down since when it is.
func Open(dir string, now time.Time) (*Ledger, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("cannot make the runner's ledger: %w", err)
	}
	l := &Ledger{dir: dir}
	since := filepath.Join(dir, "since")
	if _, err := os.Stat(since); errors.Is(err, fs.ErrNotExist) {
		if err := durable.Replace(since, ".part", 0o600, []byte(now.UTC().Format(time.RFC3339Nano)+"\n")); err != nil {
			return nil, fmt.Errorf("cannot make the runner's ledger: %w", err)
		}
	}
	return l, nil
}

// Since returns when the ledger began: it does not know earlier runs.
func (l *Ledger) Since() (time.Time, error) {
	text, err := os.ReadFile(filepath.Join(l.dir, "since"))
	if err != nil {
		return time.Time{}, err
	}
	return time.Parse(time.RFC3339Nano, strings.TrimSpace(string(text)))
}

// Path returns where a file of a run is.
func (l *Ledger) Path(r taskapi.RunnerRef, kind string) string {
	return filepath.Join(l.dir, r.EffectID+"."+strconv.Itoa(r.Run)+"."+kind)
}

// Process is which process a run's command has.
type Process struct {
	// Name is the process's, and Shim that of its shim, as [peer.NameOf] makes them.
	Name string    `json:"process"`
	Shim string    `json:"shim"`
	PID  int       `json:"pid"`
	Boot string    `json:"boot"`
	At   time.Time `json:"at"`
}

// ErrClaimed says that another shim has the run.
var ErrClaimed = errors.New("the run is claimed already")

// Claim makes the run the caller's for as long as the file that it returns is open: the
// name appears with the lock on it. Started is when the run is on record as started.
func (l *Ledger) Claim(r taskapi.RunnerRef, started time.Time) (*os.File, error) {
	f, err := os.CreateTemp(l.dir, "claim-*.part")
	if err != nil {
		return nil, err
	}
	defer os.Remove(f.Name()) //nolint:errcheck // what is left of it is nobody's claim
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if err == nil {
		_, err = fmt.Fprintf(f, "%d\n%s\n", os.Getpid(), started.UTC().Format(time.RFC3339Nano))
	}
	if err == nil {
		err = f.Sync()
	}
	if err == nil {
		if err = os.Link(f.Name(), l.Path(r, ClaimFile)); errors.Is(err, fs.ErrExist) {
			err = ErrClaimed
		}
	}
	if err == nil {
		err = durable.SyncDir(l.dir)
	}
	if err != nil {
		f.Close() //nolint:errcheck // there is nothing to keep
		return nil, err
	}
	return f, nil
}

// Holder looks who has a claim. If nobody does any more, the lock is the caller's until it closes
// the file.
func (l *Ledger) Holder(r taskapi.RunnerRef) (f *os.File, shim int, held bool, err error) {
	f, err = os.Open(l.Path(r, ClaimFile))
	if err != nil {
		return nil, 0, false, err
	}
	text := make([]byte, 32)
	n, _ := f.ReadAt(text, 0)
	pid, _, _ := strings.Cut(string(text[:n]), "\n")
	shim, _ = strconv.Atoi(strings.TrimSpace(pid))
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		f.Close() //nolint:errcheck // it was only looked at
		return nil, shim, true, nil
	}
	return f, shim, false, err
}

// IsOf reports whether the ledger's files of a run are of the one that was started then, or there
// are none. After a restoration of the daemon's state, numbers of runs are given a second time.
func (l *Ledger) IsOf(r taskapi.RunnerRef, started time.Time) (bool, error) {
	text, err := os.ReadFile(l.Path(r, ClaimFile))
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	if _, then, _ := strings.Cut(strings.TrimSpace(string(text)), "\n"); then != "" {
		at, err := time.Parse(time.RFC3339Nano, then)
		return err == nil && at.Equal(started), err
	}
	// An earlier version has written no time: a process has its own.
	var p Process
	known, err := l.Get(r, ProcessFile, &p)
	return err == nil && (!known || !p.At.Before(started)), err
}

// Put makes a file of a run durable.
func (l *Ledger) Put(r taskapi.RunnerRef, kind string, value any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	path := l.Path(r, kind)
	return durable.Replace(path, ".part", 0o600, text)
}

// Get reads a file of a run, and reports false if there is none.
func (l *Ledger) Get(r taskapi.RunnerRef, kind string, value any) (bool, error) {
	text, err := os.ReadFile(l.Path(r, kind))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err == nil {
		err = json.Unmarshal(text, value)
	}
	return err == nil, err
}

// Lives reports whether a process of a run may still be there: its shim, its command, one
// of their session, or one with its mark.
func (l *Ledger) Lives(r taskapi.RunnerRef) bool {
	f, shim, held, err := l.Holder(r)
	if f != nil {
		f.Close() //nolint:errcheck // it was only looked at
	}
	if held {
		return true
	}
	if errors.Is(err, fs.ErrNotExist) {
		return false
	}
	var p Process
	if known, err := l.Get(r, ProcessFile, &p); err != nil || !known {
		return err != nil
	}
	if boot, err := peer.Boot(); err == nil && boot != p.Boot {
		return false
	}
	marked := []byte(MarkName + "=" + Mark(r) + "\x00")
	for _, s := range peer.Processes() {
		// One that has ended and that nobody has taken note of is none of these.
		if s.PID == p.PID && peer.Runs(p.Name) || s.PID == shim && peer.Runs(p.Shim) || s.Session == shim && shim > 0 {
			return true
		}
		if env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", s.PID)); err == nil && bytes.Contains(env, marked) {
			return true
		}
	}
	return false
}

// MarkName is the variable that every process of a run is given.
const MarkName = "OCIPD_EFFECT"

// Mark is the content of [MarkName].
func Mark(r taskapi.RunnerRef) string { return r.EffectID + ":" + strconv.Itoa(r.Run) }
