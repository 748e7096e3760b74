// Package backup copies the data that a daemon must not lose into a directory, and restores it.
//
// [Make] copies the database, also from a running daemon, and the files that belong to it: the
// checkpoints outside the log, the signing key with the key of rows, and the keys of digests. Each
// of these may be left out. [Restore] replaces the present state by a backup. It moves the present
// state aside and never removes it.
package backup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/base/durable"
	"github.com/openclawos/ocipd/internal/base/peer"
	"github.com/openclawos/ocipd/internal/evidence/checkpoints"
	"github.com/openclawos/ocipd/internal/evidence/keyring"
	"github.com/openclawos/ocipd/internal/evidence/logreader"
	"github.com/openclawos/ocipd/internal/store"
	"golang.org/x/mod/sumdb/note"
)

// The names in a backup.
const (
	databaseName    = "ocipd.db"
	checkpointsName = "audit-checkpoints.jsonl"
	keysName        = "keys"
	digestName      = "digest.json"
	rowsName        = "rows.json"
	publicPrefix    = "checkpoint.pub"
	newestName      = "checkpoint.newest"
)

// Places are the locations of a daemon's state.
type Places struct {
	Database, Checkpoints, Keys, Mirror string
	// Socket is the daemon's socket for operators.
	Socket logreader.Socket
}

// Without lists the parts that a backup leaves out.
type Without struct{ Checkpoints, SigningKey, DigestKeys bool }

// Contents describes a backup.
type Contents struct {
	// Records is the last record, and Bytes the size of the database.
	Records uint64 `json:"records"`
	Bytes   int64  `json:"bytes"`
	// Witnessed is the number of records that the newest checkpoint in the backup covers, zero
	// without one.
	Witnessed  uint64 `json:"witnessed"`
	SigningKey bool   `json:"signingKey"`
	DigestKeys bool   `json:"digestKeys"`
}

// Make makes a backup in a directory, which must not exist yet or be empty. The result is complete
// or absent.
func Make(ctx context.Context, p Places, dir string, without Without) (made Contents, err error) {
	fail := func(err error) (Contents, error) {
		return Contents{}, fmt.Errorf("cannot make a backup: %w", err)
	}
	if entries, err := os.ReadDir(dir); err == nil && len(entries) > 0 {
		return fail(fmt.Errorf("%s is not empty; name a directory that is not there yet", dir))
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fail(err)
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o700); err != nil {
		return fail(err)
	}
	part, err := os.MkdirTemp(filepath.Dir(dir), "."+filepath.Base(dir)+".part-")
	if err != nil {
		return fail(err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(part)) }()
	// The checkpoints are copied before the log, so that the log covers all of them.
	if err := copyKept(p, part, without); err != nil {
		return fail(err)
	}
	log, err := logreader.OpenWhole(ctx, p.Database, p.Socket)
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("there is no database at %s; --config names the configuration of another daemon", p.Database)
	}
	if err != nil {
		return fail(err)
	}
	copied := filepath.Join(part, databaseName)
	err = log.CopyTo(ctx, copied)
	if err = errors.Join(err, log.Close()); err != nil {
		return fail(err)
	}
	// A daemon that starts on the copy, however it came into place, knows by the mark that decisions
	// may have been made since.
	if err := store.MarkCopy(copied); err != nil {
		return fail(err)
	}
	if made, _, err = look(ctx, part); err != nil {
		return fail(err)
	}
	if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fail(err)
	}
	if err := errors.Join(syncTree(part), os.Rename(part, dir), durable.SyncDir(filepath.Dir(dir))); err != nil {
		return fail(err)
	}
	return made, nil
}

// copyKept copies the files outside the database.
func copyKept(p Places, part string, without Without) error {
	if !without.Checkpoints {
		if err := copyFile(p.Checkpoints, filepath.Join(part, checkpointsName)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	entries, err := os.ReadDir(p.Keys)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := os.Mkdir(filepath.Join(part, keysName), 0o700); err != nil {
		return err
	}
	for _, e := range entries {
		name := e.Name()
		public := strings.HasPrefix(name, publicPrefix)
		switch {
		case !e.Type().IsRegular(), strings.HasSuffix(name, ".part"):
		case name == digestName && without.DigestKeys, name == newestName && without.Checkpoints, name != digestName && name != newestName && !public && without.SigningKey:
		default:
			if err := copyFile(filepath.Join(p.Keys, name), filepath.Join(part, keysName, name)); err != nil {
				return err
			}
		}
	}
	return nil
}

// look reads a backup. It checks that the database is intact and that the files beside it fit.
func look(ctx context.Context, dir string) (found Contents, inForce string, err error) {
	database, keys := filepath.Join(dir, databaseName), filepath.Join(dir, keysName)
	log, err := store.OpenReader(ctx, database)
	if err != nil {
		return found, "", err
	}
	defer func() { err = errors.Join(err, log.Close()) }()
	info, err := os.Stat(database)
	if err != nil {
		return found, "", err
	}
	found.Bytes = info.Size()
	if inForce, err = log.PublicKey(ctx); err != nil {
		return found, "", err
	}
	var proof audit.Proof
	if known, err := keyring.PublicKeys(keys); err == nil {
		for i, k := range known {
			key, err := note.NewVerifier(k.Verifier)
			if err != nil {
				return found, "", err
			}
			if i == len(known)-1 {
				proof.Keys = []note.Verifier{key}
			} else {
				proof.Former = append(proof.Former, key)
			}
		}
		if last := known[len(known)-1].Verifier; last != inForce {
			return found, "", errors.New("the log got another signing key meanwhile: try again")
		}
	}
	if proof.Held, err = held(filepath.Join(dir, checkpointsName), keys); err != nil {
		return found, "", err
	}
	report, err := log.Verify(ctx, proof)
	if err != nil {
		return found, "", fmt.Errorf("the log in %s: %w", database, err)
	}
	found.Records, found.Witnessed = report.Head.Seq, witnessed(proof.Held)
	found.SigningKey, found.DigestKeys = signs(filepath.Join(keys, "checkpoint.key"), inForce), exists(filepath.Join(keys, digestName))
	return found, inForce, nil
}

// signs reports whether a file has the private key for a public one.
func signs(path, public string) bool {
	text, err := durable.ReadFile(path)
	if err != nil {
		return false
	}
	signer, err := note.NewSigner(strings.TrimSpace(string(text)))
	if err != nil {
		return false
	}
	verifier, err := note.NewVerifier(public)
	if err != nil {
		return false
	}
	signed, err := note.Sign(&note.Note{Text: "restore\n"}, signer)
	if err == nil {
		_, err = note.Open(signed, note.VerifierList(verifier))
	}
	return err == nil
}

// held returns the checkpoints that are kept outside a log.
func held(file, keys string) (notes []string, err error) {
	if notes, err = checkpoints.Read(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	newest, err := keyring.Newest(keys)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	if newest != "" && !slices.Contains(notes, newest) {
		notes = append(notes, newest)
	}
	return notes, err
}

// witnessed returns the highest number of records that checkpoints cover.
func witnessed(notes []string) (size uint64) {
	for _, n := range notes {
		if c, err := audit.OpenCheckpoint(n); errors.Is(err, audit.ErrUnsigned) {
			size = max(size, c.Size)
		}
	}
	return size
}

// OlderError reports that a backup lacks records that existed according to checkpoints outside the
// log.
type OlderError struct{ Has, Witnessed uint64 }

func (e *OlderError) Error() string {
	return fmt.Sprintf("the backup ends at record %d, and the checkpoints kept here are of a log of %d: the records after it are lost with it, and messages that were sent since may be sent again", e.Has, e.Witnessed)
}

// Restored describes a restoration.
type Restored struct {
	Contents
	// Aside is the directory, beside each file, that now has the earlier state.
	Aside string `json:"aside"`
	// Lost is the number of records that the checkpoints cover and the backup lacks.
	Lost uint64 `json:"lost,omitzero"`
	// Kept is set if the present signing key is the backup's, and stays.
	Kept bool `json:"kept"`
	// RowKeyLeft is set if the backup has a key of rows without the signing key. The key was not
	// taken, since no daemon makes such a backup.
	RowKeyLeft bool `json:"rowKeyLeft,omitzero"`
}

// Restore replaces a stopped daemon's state by a backup. If checkpoints outside the log cover more
// records than the backup, it returns an [*OlderError]. With older set, it moves those checkpoints
// aside too. The next start records the restoration, and revokes the approvals of unused effects:
// no backup has the ledger of effects that ran, so the effects since the backup are unknown.
func Restore(ctx context.Context, p Places, dir string, older bool, now time.Time) (done Restored, err error) {
	fail := func(err error) (Restored, error) {
		return Restored{}, fmt.Errorf("cannot restore %s: %w", dir, err)
	}
	if r, err := store.OpenReader(ctx, p.Database); errors.Is(err, store.ErrRunning) {
		return fail(errors.New("the daemon is running; stop it first, and its socket unit if it has one"))
	} else if err == nil {
		err = r.Close()
		if err != nil {
			return fail(err)
		}
	}
	if !exists(filepath.Join(dir, databaseName)) {
		return fail(fmt.Errorf("it is no backup, as it has no %s; name a directory that ocipd backup made", databaseName))
	}
	contents, inForce, err := look(ctx, dir)
	if err != nil {
		return fail(err)
	}
	done.Contents = contents
	notes, err := held(p.Checkpoints, p.Keys)
	if err != nil {
		return fail(err)
	}
	if seen := witnessed(notes); seen > done.Records {
		if !older {
			return fail(&OlderError{Has: done.Records, Witnessed: seen})
		}
		done.Lost = seen - done.Records
	}
	if current, err := keyring.PublicKeys(p.Keys); err == nil && exists(filepath.Join(p.Keys, "checkpoint.key")) {
		done.Kept = current[len(current)-1].Verifier == inForce
	}
	if !done.Kept && !done.SigningKey && inForce != "" {
		return fail(fmt.Errorf("its log is signed with %s, and neither the backup nor %s has that key", inForce, p.Keys))
	}
	done.Aside = "before-restore-" + now.UTC().Format("20060102T150405Z")
	mark := Mark{At: now.UTC(), Records: done.Records, Witnessed: done.Records + done.Lost}
	if err := mark.readProcesses(ctx, p.Database); err != nil {
		return fail(err)
	}
	if err := p.put(dir, &done, &mark); err != nil {
		return fail(fmt.Errorf("%w; what was there is in the directories %s beside its place", err, done.Aside))
	}
	return done, nil
}

// put moves the present state aside and puts the backup in its place, with the database last. A
// daemon that is started before then finds no database, and says so.
func (p *Places) put(dir string, done *Restored, mark *Mark) error {
	aside := mover(done.Aside)
	if err := aside(p.logFiles()...); err != nil {
		return err
	}
	// The daemon writes the mirror anew from the database.
	mirrored, err := p.mirrorFiles()
	if err != nil {
		return err
	}
	if err := aside(mirrored...); err != nil {
		return err
	}
	if done.Lost > 0 {
		if err := aside(p.Checkpoints, filepath.Join(p.Keys, newestName)); err != nil {
			return err
		}
	}
	if !exists(p.Checkpoints) {
		if err := os.MkdirAll(filepath.Dir(p.Checkpoints), 0o700); err != nil {
			return err
		}
		if err := copyFile(filepath.Join(dir, checkpointsName), p.Checkpoints); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if err := p.putKeys(dir, done, aside); err != nil {
		return err
	}
	marked, err := json.Marshal(mark)
	if err == nil {
		err = durable.Create(MarkPath(p.Database), 0o600, marked)
	}
	if err != nil {
		return err
	}
	part := p.Database + ".restoring"
	if err := os.Remove(part); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return errors.Join(copyFile(filepath.Join(dir, databaseName), part), os.Rename(part, p.Database), durable.SyncDir(filepath.Dir(p.Database)))
}

// mover returns the function that moves files into a directory beside each of them, as far as they
// exist.
func mover(name string) func(paths ...string) error {
	return func(paths ...string) error {
		for _, path := range paths {
			to := filepath.Join(filepath.Dir(path), name)
			if !exists(path) {
				continue
			}
			if err := errors.Join(os.MkdirAll(to, 0o700), os.Rename(path, filepath.Join(to, filepath.Base(path)))); err != nil {
				return err
			}
		}
		return nil
	}
}

// logFiles are the database and the files that belong to it.
func (p *Places) logFiles() []string {
	return []string{p.Database, p.Database + "-wal", p.Database + "-shm", p.Database + ".latched", p.Database + ".reserve"}
}

// mirrorFiles are the files of the mirror and its segments.
func (p *Places) mirrorFiles() ([]string, error) {
	live := filepath.Base(p.Mirror)
	segments := strings.TrimSuffix(live, filepath.Ext(live)) + "-"
	mirrored, err := filesIn(filepath.Dir(p.Mirror), func(name string) bool { return strings.HasPrefix(name, live) || strings.HasPrefix(name, segments) })
	return slices.DeleteFunc(mirrored, func(path string) bool { return path == p.Checkpoints }), err
}

// putKeys adds the missing keys. If the present keys belong to another log or time, it replaces all
// of them.
func (p *Places) putKeys(dir string, done *Restored, aside func(...string) error) error {
	from := filepath.Join(dir, keysName)
	entries, err := os.ReadDir(from)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := os.MkdirAll(p.Keys, 0o700); err != nil {
		return err
	}
	if !done.Kept {
		present, err := filesIn(p.Keys, func(name string) bool { return strings.HasPrefix(name, "checkpoint.") })
		if err == nil {
			err = aside(present...)
		}
		if err != nil {
			return err
		}
	}
	for _, e := range entries {
		to := filepath.Join(p.Keys, e.Name())
		if e.Name() == rowsName {
			// A holder of the backup without the signing key must not decide who wrote the log's
			// rows.
			if !done.SigningKey {
				done.RowKeyLeft = true
				continue
			}
			// The backup's rows are sealed with the backup's key.
			if err := aside(to); err != nil {
				return err
			}
		}
		if exists(to) {
			continue
		}
		if err := copyFile(filepath.Join(from, e.Name()), to); err != nil {
			return err
		}
	}
	return durable.SyncDir(p.Keys)
}

// Mark reports that a state was restored. Witnessed is the least number of records that its log
// had. It exceeds Records if the backup lacks some.
type Mark struct {
	At        time.Time `json:"at"`
	Records   uint64    `json:"records"`
	Witnessed uint64    `json:"witnessed"`
	// Former is set if the state is a new log after another one.
	Former *Former `json:"former,omitzero"`
	// Processes are the apps' processes by the state that was replaced, and those from which somebody
	// restored it. Known says that they are all of the apps'.
	Processes []store.AppProcess `json:"processes,omitempty"`
	Known     bool               `json:"known,omitzero"`
}

// readProcesses reads from a stopped daemon's database which processes are or were apps'. Of one that
// is missing or cannot be read, they are not known. It adds the processes from which this one was started:
// the terminal of the person who restores the state operates the daemon.
func (m *Mark) readProcesses(ctx context.Context, database string) error {
	if r, err := store.OpenReader(ctx, database); err == nil {
		defer r.Close()
		m.Processes, err = r.AppProcesses(ctx)
		m.Known = err == nil
	}
	boot, err := peer.Boot()
	if err != nil {
		return err
	}
	line, err := peer.LineOf(int32(os.Getppid()))
	if err != nil {
		return fmt.Errorf("cannot tell from where this command was started: %w", err)
	}
	for _, name := range line {
		m.Processes = append(m.Processes, store.AppProcess{Boot: boot, Name: name, App: store.RestoringSession})
	}
	return nil
}

// MarkPath returns the path of the mark. The next start records the restoration and removes the
// mark.
func MarkPath(database string) string { return database + ".restored" }

// Marked returns the mark beside a database, or nil.
func Marked(database string) (*Mark, error) {
	text, err := durable.ReadFile(MarkPath(database))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	m := new(Mark)
	if err := json.Unmarshal(text, m); err != nil {
		return nil, fmt.Errorf("cannot read %s: %w; remove it to start without a record of the restoration", MarkPath(database), err)
	}
	return m, nil
}

// filesIn returns the files of a directory whose names are meant. The directory's own name may
// contain any characters. Folders do not count, since a backup may be there too.
func filesIn(dir string, meant func(name string) bool) (paths []string, err error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for _, e := range entries {
		if !e.IsDir() && meant(e.Name()) {
			paths = append(paths, filepath.Join(dir, e.Name()))
		}
	}
	return paths, err
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// copyFile makes a durable copy for its owner alone. It does not write to an existing file of the
// new name.
func copyFile(from, to string) (err error) {
	source, err := durable.Open(from)
	if err != nil {
		return err
	}
	defer source.Close()
	f, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, source)
	return errors.Join(err, f.Sync(), f.Close())
}

// syncTree makes the names in a directory and those below it durable.
func syncTree(dir string) error {
	return filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.IsDir() {
			return err
		}
		return durable.SyncDir(path)
	})
}
