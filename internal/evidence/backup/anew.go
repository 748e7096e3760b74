package backup

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/base/durable"
	"github.com/openclawos/ocipd/internal/evidence/keyring"
	"github.com/openclawos/ocipd/internal/store"
	"golang.org/x/mod/sumdb/note"
)

// Former is what is known of a log that a new one follows. The first records of the new one have it,
// so that nobody can exchange the former log later.
type Former struct {
	// Origin is the log's name, Records its last record, and Hash that record's hash.
	Origin  string `json:"origin,omitzero"`
	Records uint64 `json:"records"`
	Hash    string `json:"hash,omitzero"`
	// Checkpoint is the newest signed checkpoint, and Keys are the public keys, oldest first.
	Checkpoint string   `json:"checkpoint,omitzero"`
	Keys       []string `json:"keys"`
	// Problem is why the log could not be verified, "" if it is intact. Without a readable log,
	// Records is what the newest checkpoint covers.
	Problem string `json:"problem,omitzero"`
}

// KnownOf finds out what is known of a stopped daemon's log.
func KnownOf(ctx context.Context, p Places) (*Former, error) {
	f := &Former{Keys: []string{}}
	notes, err := held(p.Checkpoints, p.Keys)
	if err != nil {
		return nil, err
	}
	if known, err := keyring.PublicKeys(p.Keys); err == nil {
		for _, k := range known {
			f.Keys = append(f.Keys, k.Verifier)
		}
	}
	for _, n := range notes {
		c, err := audit.OpenCheckpoint(n)
		if errors.Is(err, audit.ErrUnsigned) && c.Size >= f.Records {
			f.Origin, f.Records, f.Checkpoint = c.Origin, c.Size, n
		}
	}
	switch err := f.readLog(ctx, p, notes); {
	case errors.Is(err, store.ErrRunning):
		return nil, errors.New("the daemon is running; stop it first, and its socket unit if it has one")
	case err != nil:
		f.Problem = err.Error()
	}
	return f, nil
}

// readLog verifies the log with the public keys that are known.
func (f *Former) readLog(ctx context.Context, p Places, notes []string) (err error) {
	log, err := store.OpenReader(ctx, p.Database)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, log.Close()) }()
	public, err := log.PublicKey(ctx)
	if err != nil {
		return err
	}
	if public != "" && !slices.Contains(f.Keys, public) {
		// A start without the key has written another public key.
		f.Keys = append(f.Keys[:max(0, len(f.Keys)-1)], public)
	}
	proof := audit.Proof{Held: notes}
	for i, text := range f.Keys {
		key, err := note.NewVerifier(text)
		if err != nil {
			return err
		}
		if f.Origin = key.Name(); i < len(f.Keys)-1 {
			proof.Former = append(proof.Former, key)
		} else {
			proof.Keys = []note.Verifier{key}
		}
	}
	report, err := log.Verify(ctx, proof)
	if err != nil {
		return err
	}
	f.Records, f.Hash = report.Head.Seq, report.Head.Hash.String()
	return nil
}

// BeginAnew moves a stopped daemon's log and its keys aside. The next start makes a new log with a
// new key. It records what is known of the former one, and pauses sending. The keys of digests stay,
// so that equal texts still have equal digests.
func BeginAnew(ctx context.Context, p Places, f *Former, now time.Time) (aside string, err error) {
	mark := Mark{At: now.UTC(), Witnessed: f.Records, Former: f}
	if err := mark.readProcesses(ctx, p.Database); err != nil {
		return "", err
	}
	// After a problem, somebody may have taken a process out.
	mark.Known = mark.Known && f.Problem == ""
	aside = "former-log-" + now.UTC().Format("20060102T150405Z")
	move := mover(aside)
	if err := move(p.logFiles()...); err != nil {
		return aside, err
	}
	mirrored, err := p.mirrorFiles()
	if err != nil {
		return aside, err
	}
	keys, err := filesIn(p.Keys, func(name string) bool { return strings.HasPrefix(name, "checkpoint.") || name == rowsName })
	if err != nil {
		return aside, err
	}
	if err := move(append(append(mirrored, p.Checkpoints), keys...)...); err != nil {
		return aside, err
	}
	marked, err := json.Marshal(&mark)
	if err == nil {
		err = durable.Create(MarkPath(p.Database), 0o600, marked)
	}
	if err != nil {
		return aside, fmt.Errorf("cannot note the former log for the next start: %w", err)
	}
	return aside, durable.SyncDir(filepath.Dir(p.Database))
}
