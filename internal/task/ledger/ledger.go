package ledger

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/openclawos/ocipd/internal/base/durable"
	"github.com/openclawos/ocipd/internal/base/peer"
	"github.com/openclawos/ocipd/internal/task/taskapi"
	"golang.org/x/sys/unix"
)

// The files of a run in the ledger, as kinds for [Run.Path]: its claim, its process, its end, the
// end of a process that got no order, its output so far, and the folder of its copies of inputs.
const (
	ClaimFile     = "claim"
	ProcessFile   = "pid"
	ResultFile    = "result"
	WithdrawnFile = "withdrawn"
	StdoutFile    = "out"
	StderrFile    = "err"
	InputsDir     = "inputs"
)

// Ledger is the directory of runs.
type Ledger struct {
	dir string
	key []byte
}

// At is the ledger in a directory that [Open] has made.
func At(dir string, key []byte) *Ledger { return &Ledger{dir: dir, key: key} }

// Dir is the ledger's directory.
func (l *Ledger) Dir() string { return l.dir }

// Key is the key that the keys of runs are made of.
func (l *Ledger) Key() []byte { return l.key }

// Of is a run in the ledger. Its key is its own: after a restoration of the daemon's state numbers of
// runs are given a second time, and a file of the first run is none of the second.
func (l *Ledger) Of(r taskapi.RunnerRef, started time.Time) *Run {
	mac := hmac.New(sha256.New, l.key)
	fmt.Fprintf(mac, "%s\n%s\n%d\n%s\n", r.TaskID, r.EffectID, r.Run, started.UTC().Format(time.RFC3339Nano))
	return &Run{RunnerRef: r, Ledger: l.dir, StartedAt: started, Key: mac.Sum(nil)}
}

// Run is one run in the ledger, as a shim is told of it.
type Run struct {
	taskapi.RunnerRef
	Ledger    string    `json:"ledger"`
	StartedAt time.Time `json:"started_at"`
	// Key seals the run's files.
	Key []byte `json:"key"`
}

// Open makes the directory where it is not there, and writes down since when it is.
func Open(dir string, key []byte, now time.Time) (*Ledger, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("cannot make the runner's ledger: %w", err)
	}
	l := At(dir, key)
	since := filepath.Join(dir, "since")
	if _, err := os.Stat(since); errors.Is(err, fs.ErrNotExist) {
		if err := durable.Replace(since, ".part", 0o600, []byte(now.UTC().Format(time.RFC3339Nano)+"\n")); err != nil {
			return nil, fmt.Errorf("cannot make the runner's ledger: %w", err)
		}
	}
	return l, nil
}

// Since returns when the ledger began: it does not know earlier runs.
func (r *Run) Since() (time.Time, error) {
	text, err := os.ReadFile(filepath.Join(r.Ledger, "since"))
	if err != nil {
		return time.Time{}, err
	}
	return time.Parse(time.RFC3339Nano, strings.TrimSpace(string(text)))
}

// Path returns where a file of a run is.
func (r *Run) Path(kind string) string {
	return filepath.Join(r.Ledger, r.EffectID+"."+strconv.Itoa(r.Run)+"."+kind)
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

// Withdrawal is the last word of a process that got no order.
type Withdrawal struct {
	// Process is its name.
	Process string `json:"process"`
}

// ErrClaimed says that another shim has the run.
var ErrClaimed = errors.New("the run is claimed already")

// ErrUnsealed says that a file is not the run's: somebody else has written it, or an earlier version.
var ErrUnsealed = errors.New("it has no seal of the runner's")

// seal is the seal of a file of a run.
func (r *Run) seal(kind string, text []byte) string {
	mac := hmac.New(sha256.New, r.Key)
	fmt.Fprintf(mac, "%s\n%s", kind, text)
	return hex.EncodeToString(mac.Sum(nil))
}

// sealed is a file's text with its seal in its last line.
func (r *Run) sealed(kind string, text []byte) []byte {
	return append(append(slices.Clip(text), r.seal(kind, text)...), '\n')
}

// unsealed is the text of a file that has the run's seal.
func (r *Run) unsealed(kind string, file []byte) ([]byte, error) {
	text := file[:bytes.LastIndexByte(bytes.TrimSuffix(file, []byte("\n")), '\n')+1]
	if !hmac.Equal(file, r.sealed(kind, text)) {
		return nil, ErrUnsealed
	}
	return text, nil
}

// Claim makes the run the caller's for as long as the file that it returns is open: the
// name appears with the lock on it.
func (r *Run) Claim() (*os.File, error) {
	f, err := os.CreateTemp(r.Ledger, "claim-*.part")
	if err != nil {
		return nil, err
	}
	defer os.Remove(f.Name()) //nolint:errcheck // what is left of it is nobody's claim
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if err == nil {
		_, err = f.Write(r.sealed(ClaimFile, fmt.Appendf(nil, "%d\n%s\n", os.Getpid(), r.StartedAt.UTC().Format(time.RFC3339Nano))))
	}
	if err == nil {
		err = f.Sync()
	}
	if err == nil {
		if err = os.Link(f.Name(), r.Path(ClaimFile)); errors.Is(err, fs.ErrExist) {
			err = ErrClaimed
		}
	}
	if err == nil {
		err = durable.SyncDir(r.Ledger)
	}
	if err != nil {
		f.Close() //nolint:errcheck // there is nothing to keep
		return nil, err
	}
	return f, nil
}

// Holder is who has the claim of a run.
type Holder struct {
	// There is set if there is a claim, and Held while its process is there. Shim is that process, 0 if
	// the claim has not the run's seal.
	There, Held bool
	Shim        int
}

// Holder looks who has the claim.
func (r *Run) Holder() (h Holder, err error) {
	f, err := os.Open(r.Path(ClaimFile))
	if errors.Is(err, fs.ErrNotExist) {
		return h, nil
	}
	if err != nil {
		return h, err
	}
	defer f.Close()
	h.There = true
	file, err := io.ReadAll(io.LimitReader(f, 1<<10))
	if err != nil {
		return h, err
	}
	if text, err := r.unsealed(ClaimFile, file); err == nil {
		pid, _, _ := strings.Cut(string(text), "\n")
		h.Shim, _ = strconv.Atoi(pid)
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		h.Held, err = true, nil
	}
	return h, err
}

// IsOf reports whether the claim of the run's number is the run's, or there is none.
func (r *Run) IsOf() (bool, error) {
	text, err := os.ReadFile(r.Path(ClaimFile))
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	_, then, _ := strings.Cut(string(text), "\n")
	then, _, _ = strings.Cut(then, "\n")
	at, err := time.Parse(time.RFC3339Nano, then)
	return err == nil && at.Equal(r.StartedAt), nil
}

// Put makes a file of a run durable, with the run's seal.
func (r *Run) Put(kind string, value any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	return durable.Replace(r.Path(kind), ".part", 0o600, r.sealed(kind, append(text, '\n')))
}

// Get reads a file of a run, and reports false if there is none. Without the run's seal it is
// [ErrUnsealed].
func (r *Run) Get(kind string, value any) (bool, error) {
	file, err := os.ReadFile(r.Path(kind))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err == nil {
		file, err = r.unsealed(kind, file)
	}
	if err == nil {
		err = json.Unmarshal(file, value)
	}
	return err == nil, err
}

// Lives reports whether a process of a run may still be there: its shim, which has the name begun,
// its command, one of their session, or one with its mark.
func (r *Run) Lives(begun string) bool {
	if h, err := r.Holder(); h.Held && h.Shim > 0 || err != nil || Running(begun) {
		return true
	}
	var p Process
	shim := 0
	known, err := r.Get(ProcessFile, &p)
	if err != nil && !errors.Is(err, ErrUnsealed) {
		return true
	}
	if known {
		if boot, err := peer.Boot(); err == nil && boot != p.Boot {
			return false
		}
		pid, _, _ := strings.Cut(p.Shim, "@")
		shim, _ = strconv.Atoi(pid)
	}
	marked := []byte(MarkName + "=" + Mark(r.RunnerRef) + "\x00")
	for _, s := range peer.Processes() {
		// One that has ended and that nobody has taken note of is none of these.
		if known && s.PID == p.PID && peer.Runs(p.Name) || shim > 0 && s.Session == shim {
			return true
		}
		if env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", s.PID)); err == nil && bytes.Contains(env, marked) {
			return true
		}
	}
	return Running(p.Shim)
}

// Running reports whether the process of a name has not ended, whether or not anybody has taken note.
func Running(name string) bool {
	pid, _, _ := strings.Cut(name, "@")
	n, err := strconv.Atoi(pid)
	return err == nil && peer.Runs(name) && slices.ContainsFunc(peer.Processes(), func(p peer.Listed) bool { return p.PID == n })
}

// MarkName is the variable that every process of a run is given.
const MarkName = "OCIPD_EFFECT"

// Mark is the content of [MarkName].
func Mark(r taskapi.RunnerRef) string { return r.EffectID + ":" + strconv.Itoa(r.Run) }
