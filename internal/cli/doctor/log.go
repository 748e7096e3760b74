package doctor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/base/term"
	"github.com/openclawos/ocipd/internal/cli"
	"github.com/openclawos/ocipd/internal/config"
	"github.com/openclawos/ocipd/internal/evidence/checkpoints"
	"github.com/openclawos/ocipd/internal/evidence/keyring"
	"github.com/openclawos/ocipd/internal/evidence/logreader"
	"github.com/openclawos/ocipd/internal/evidence/mirror"
	"github.com/openclawos/ocipd/internal/store"
	"github.com/openclawos/ocipd/internal/store/logstore"
	"golang.org/x/mod/sumdb/note"
)

const verifyAdvice = "ocipd audit verify --database says more"

// log checks the end of the audit log: its chain, its newest checkpoint, and the outside
// copy of that.
func (d *Examiner) log() (found []Diagnosis) {
	p := &d.places
	if !cli.Exists(p.database) {
		if len(d.lost()) > 0 {
			return []Diagnosis{passed("not checked: there is no database to look at")}
		}
		return []Diagnosis{passed("no record yet")}
	}
	r, err := d.openLog()
	if err != nil {
		return []Diagnosis{failed("%v", err).advise("put the right file there, or name another (store.url); a copy is whole with its -wal alone")}
	}
	defer r.Close()
	// The checkpoint first: the log may grow meanwhile.
	newest, err := r.Checkpoint(d.ctx)
	if err != nil {
		return []Diagnosis{failed("cannot read the newest checkpoint: %v", err).advise(verifyAdvice)}
	}
	head, err := r.CheckTail(d.ctx)
	if err != nil {
		return []Diagnosis{failed("the end of the log is damaged: %v", err).advise(verifyAdvice+"; keep a copy of %s before anything else; then "+audit.PutBack, p.state)}
	}
	if d.live != nil && d.live.Audit.Damaged != "" {
		found = append(found, failed("the log is not what was written: %s", term.Printable(d.live.Audit.Damaged)).advise(verifyAdvice+"; keep a copy of %s before anything else; then "+audit.PutBack, p.state))
	} else if cli.Exists(p.database + ".latched") {
		found = append(found, warned("the daemon closed the database after a fault (%s.latched says which)", p.database).advise("the next start verifies the whole log"))
	}
	signed, problem := r.checkpoint(newest)
	found = append(found, problem...)
	found = append(found, r.reaches(head.Seq, newest)...)
	found = append(found, r.tombstone()...)
	return orWell(found, passed("record %d; the last records are chained, the newest checkpoint covers %d and is signed by the key in force", head.Seq, signed))
}

// examinedLog is the log of the examined daemon.
type examinedLog struct {
	logreader.Log
	ctx    context.Context
	places *places
}

// openLog opens the examined log.
func (d *Examiner) openLog() (*examinedLog, error) {
	r, err := logreader.Open(d.ctx, d.places.database, func() (string, error) { return d.places.operator, nil })
	return &examinedLog{r, d.ctx, &d.places}, err
}

// checkpoint checks the newest checkpoint against the current key and the records, and
// returns how many records it covers.
func (l *examinedLog) checkpoint(newest logstore.Signed) (covered uint64, found []Diagnosis) {
	if newest.Seq == 0 {
		return 0, []Diagnosis{warned("the log is not signed yet").advise("it is within a minute of its first record, while the daemon runs")}
	}
	inForce, err := l.PublicKey(l.ctx)
	if err != nil {
		return 0, []Diagnosis{failed("%v", err).advise(verifyAdvice)}
	}
	key, err := note.NewVerifier(inForce)
	if err != nil {
		return 0, []Diagnosis{failed("the public key in the database is none: %v", err).advise(verifyAdvice)}
	}
	c, err := audit.OpenCheckpoint(newest.Note, key)
	if err != nil {
		return 0, []Diagnosis{failed("the newest checkpoint is not signed by the key in force: %v", err).advise(verifyAdvice)}
	}
	root, err := l.RootAt(l.ctx, c.Size)
	switch {
	case err != nil:
		found = append(found, failed("cannot compare the newest checkpoint with the records: %v", err).advise(verifyAdvice))
	case root != c.Root:
		found = append(found, failed("the first %d records are not those that were signed", c.Size).advise(verifyAdvice))
	}
	keys, err := keyring.PublicKeys(l.places.keys)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		found = append(found, failed("the public key is not in %s", l.places.keys).advise("put the directory back from a backup; where only the public key is gone, a restart writes it again"))
	case err != nil:
		found = append(found, failed("%v", err).advise("put the directory %s back from a backup, or correct what is wrong with it", l.places.keys))
	case keys[len(keys)-1].Verifier != inForce:
		found = append(found, failed("%s is not the key that signs this log", keys[len(keys)-1].File).advise("put the right one back from a backup: the daemon does not start with another"))
	case !cli.Exists(filepath.Join(l.places.keys, "checkpoint.key")):
		found = append(found, failed("the signing key is not in %s", l.places.keys).advise("put it back from a backup, for the daemon does not start without it"+audit.OrNewLog))
	}
	return c.Size, append(found, l.digestKeys()...)
}

// digestKeys is the file of digest keys in the directory of keys.
const digestKeys = "digest.json"

// digestKeys checks that the keys of the log's digests are there.
func (l *examinedLog) digestKeys() []Diagnosis {
	path := filepath.Join(l.places.keys, digestKeys)
	if cli.Exists(path) {
		return nil
	}
	// A page may be empty although others follow.
	for before, first := uint64(0), true; before > 0 || first; first = false {
		lines, next, err := l.Query(l.ctx, audit.Filter{Like: audit.Record{ActionType: string(audit.ActionExchange)}}, 0, before, 256)
		if err != nil {
			return []Diagnosis{failed("cannot look for digests in the log: %v", err).advise(verifyAdvice)}
		}
		if slices.ContainsFunc(lines, func(line []byte) bool { return bytes.Contains(line, []byte(`"contentDigest":"hmac-`)) }) {
			return []Diagnosis{failed("the keys of digests are gone (%s), and the log has digests: no text can be held against them", path).
				advise("put the file back from a backup before the daemon starts again. To give the keys up, so that those digests match nothing any more: (umask 077; echo '{\"tenants\":{}}' > %s)", shellWord(path))}
		}
		before = next
	}
	return nil
}

// reaches compares the log with the newest checkpoint outside.
func (l *examinedLog) reaches(last uint64, newest logstore.Signed) []Diagnosis {
	path := l.places.checkpoints
	notes, err := checkpoints.Read(path)
	if errors.Is(err, fs.ErrNotExist) {
		if newest.Seq == 0 {
			return nil
		}
		return []Diagnosis{warned("the checkpoints outside the log are gone: %s", path).
			advise("the next checkpoint begins the file anew; compare the log with older ones you kept: ocipd audit verify --checkpoints")}
	}
	if err != nil {
		return []Diagnosis{failed("%v", err).
			advise("put it back from a backup; the daemon does not start with it. Moved aside, it is begun anew, and what it held no longer counts")}
	}
	var held audit.Checkpoint
	for _, n := range notes {
		if c, err := audit.OpenCheckpoint(n); errors.Is(err, audit.ErrUnsigned) && c.Size > held.Size {
			held = c
		}
	}
	if held.Size == 0 {
		return nil
	}
	root, err := l.RootAt(l.ctx, held.Size)
	switch {
	case errors.Is(err, store.ErrNotFound) && last == 0:
		return []Diagnosis{failed("the database %s is new and empty, and %s holds a checkpoint of %d records: the one that holds the log is gone", l.places.database, path, held.Size).
			advise("move the empty one aside and put the right one in its place: where it was moved, that file, and else one from a backup")}
	case errors.Is(err, store.ErrNotFound):
		return []Diagnosis{failed("%v", checkpoints.Missing(path, last, held.Size)).advise("put the right database back")}
	case err != nil:
		return []Diagnosis{failed("cannot compare the log with %s: %v", path, err).advise(verifyAdvice)}
	case root != held.Root:
		return []Diagnosis{failed("%v", checkpoints.Differs(path, held.Size)).advise(verifyAdvice)}
	}
	return nil
}

// tombstone checks that the mirror also has the tombstone of removed records.
func (l *examinedLog) tombstone() []Diagnosis {
	stone, err := l.Tombstone(l.ctx)
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	if err != nil {
		return []Diagnosis{failed("%v", err).advise(verifyAdvice)}
	}
	dir := filepath.Dir(l.places.mirror)
	path := filepath.Join(dir, checkpoints.TombstoneFile)
	text, err := os.ReadFile(path)
	if err == nil && string(text) == stone.Signed {
		return nil
	}
	how := "is not there"
	if err == nil {
		how = "is another one"
	}
	return []Diagnosis{warned("the tombstone of the records that were removed %s: %s; a copy of the mirror does not verify without", how, path).
		advise("ocipd doctor --fix writes it from the database").by(func() (string, error) {
		return "wrote " + path, checkpoints.WriteTombstone(dir, &stone)
	})}
}

// keep checks the retention time of records.
func (d *Examiner) keep() []Diagnosis {
	switch keep := d.cfg.Audit.Keep; {
	case keep == 0:
		return []Diagnosis{passed("records are kept until somebody removes them")}
	case keep < config.AdvisedKeep:
		return []Diagnosis{warned("records are removed for good after %s", term.Age(keep)).
			advise("logs of high-risk AI systems are to be kept for at least six months (EU AI Act, articles 19 and 26): audit.keep: %s, or 0 to keep all", strings.TrimSuffix(config.AdvisedKeep.String(), "0m0s"))}
	default:
		return []Diagnosis{passed("records are removed for good after %s", term.Age(keep))}
	}
}

// mirror checks how far the mirror is behind.
func (d *Examiner) mirror() []Diagnosis {
	if d.live != nil {
		return d.liveMirror()
	}
	if !cli.Exists(d.places.database) {
		return []Diagnosis{passed("no database to compare it with")}
	}
	r, err := d.openLog()
	if err != nil {
		return []Diagnosis{passed("not checked: the database cannot be read")}
	}
	defer r.Close()
	last, err := r.LastSeq(d.ctx)
	if err != nil {
		return []Diagnosis{failed("%v", err).advise(verifyAdvice)}
	}
	copied, err := lastMirrored(d.ctx, d.places.mirror)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return []Diagnosis{warned("%s is not there", d.places.mirror).advise("the next start writes it from the database")}
	case err != nil:
		return []Diagnosis{failed("the mirror is damaged: %v", err).advise("ocipd audit verify says more; the database is the record")}
	case copied > last:
		return []Diagnosis{failed("the mirror ends at record %d and the database at %d: the database was cut or replaced", copied, last).advise("put the right database back")}
	case copied < last:
		return []Diagnosis{warned("the mirror ends at record %d and the database at %d", copied, last).advise("the next start catches it up")}
	}
	return []Diagnosis{passed("up to record %d, as the database", last)}
}

func (d *Examiner) liveMirror() (found []Diagnosis) {
	a := &d.live.Audit
	if len(a.Mirror.Problems) > 0 {
		found = append(found, failed("%s", strings.Join(a.Mirror.Problems, "; ")).advise("see who touches %s and why it cannot be written; ocipd audit verify names a segment that is not what it was, to be put back from a copy", filepath.Dir(d.places.mirror)))
	}
	if behind := a.Seq - min(a.Mirrored, a.Seq); behind > ManyBehind {
		found = append(found, warned("the mirror is %d records behind", behind).advise("it catches up by itself; look at the daemon's log if it does not"))
	}
	return orWell(found, passed("up to record %d, in %s (%s)", a.Mirrored, term.Count(a.Mirror.Segments+a.Mirror.Pending, "segment"), term.Mebibytes(a.Mirror.SegmentBytes)))
}

// lastMirrored is the last record in a mirror's files: of the live file, or of the segments
// if that is empty.
func lastMirrored(ctx context.Context, path string) (last uint64, err error) {
	if _, err := os.Stat(path); err != nil {
		return 0, err
	}
	visit := func(line []byte) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		head, err := audit.HeadOf(line)
		if err != nil {
			return fmt.Errorf("after record %d: %w", last, err)
		}
		last = head.Seq
		return nil
	}
	if err = mirror.WalkFile(path, visit); err == nil && last == 0 {
		err = mirror.Walk(path, 0, visit)
	}
	if errors.Is(err, mirror.ErrTorn) {
		// A crash can cut the last line; the next start repairs it.
		err = nil
	}
	return last, err
}
