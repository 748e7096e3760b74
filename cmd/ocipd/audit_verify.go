package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/checkpoints"
	"github.com/openclawos/ocipd/internal/cli"
	"github.com/openclawos/ocipd/internal/config"
	"github.com/openclawos/ocipd/internal/durable"
	"github.com/openclawos/ocipd/internal/index"
	"github.com/openclawos/ocipd/internal/keyring"
	"github.com/openclawos/ocipd/internal/logreader"
	"github.com/openclawos/ocipd/internal/mirror"
	"github.com/openclawos/ocipd/internal/store"
	"github.com/openclawos/ocipd/internal/term"
	"github.com/openclawos/ocipd/internal/witness"
	"github.com/spf13/cobra"
	"golang.org/x/mod/sumdb/note"
)

// verifyFlags say what a log is held against.
type verifyFlags struct {
	asJSON, inDatabase bool
	keys               []string
	checkpoints        []string
	receipts           []string
	witnesses          []string
	tombstone          string
}

func newAuditVerify(s *shell) *cobra.Command {
	var f verifyFlags
	c := &cobra.Command{
		Use: "verify [PATH]",
		Example: "  ocipd audit verify\n" +
			"  ocipd audit verify copy/ --key checkpoint.pub --checkpoints audit-checkpoints.jsonl",
		Short: "verify that no record was changed, removed or added",
		Long: "Read every byte of an audit log and check it: the chain from record to record, the Merkle tree,\n" +
			"the signed checkpoints in the log, and those that were kept outside it. It needs no daemon, may\n" +
			"run beside one, and changes nothing.\n" +
			"Without PATH it checks this daemon's mirror with this daemon's public key and checkpoints; with\n" +
			"--database the database itself. PATH is a copy: a directory with segments, a file of lines, or\n" +
			"a compressed segment. A copy is held against what --key, --checkpoints and --with-receipts\n" +
			"name, and nothing else is trusted. A fault ends it with exit code 4 and names the first bad\n" +
			"record.",
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			v := &verification{shell: s, verifyFlags: f}
			return v.run(cmd.Context(), strings.Join(args, ""))
		},
	}
	flags := c.Flags()
	flags.BoolVar(&f.asJSON, "json", false, "print JSON")
	flags.BoolVar(&f.inDatabase, "database", false, "check the records in a database: PATH, or this daemon's")
	flags.StringArrayVar(&f.keys, "key", nil, "public `KEY` of the log, or a file that holds it (checkpoint.pub)")
	flags.StringArrayVar(&f.checkpoints, "checkpoints", nil, "`FILE` of checkpoints kept outside the log")
	flags.StringArrayVar(&f.receipts, "with-receipts", nil, "`FILE` or directory of receipts and checkpoints that counterparties hold")
	flags.StringArrayVar(&f.witnesses, "witness", nil, "public `KEY` of a witness that must have cosigned the log, or a file that holds it")
	flags.StringVar(&f.tombstone, "tombstone", "", "`FILE` that stands for the records before a copy's first")
	return c
}

// verification is one run of `ocipd audit verify`.
type verification struct {
	*shell
	verifyFlags

	proof audit.Proof
	// former are public keys that were followed by others.
	former []string
	// defaulted marks the file of checkpoints as one that nobody named: it may be
	// empty.
	defaulted bool
	// newest is the checkpoint that is kept beside this daemon's key, in a file.
	newest, newestIn string
	// against counts where the checkpoints from outside came from.
	against []string
	path    string
	about   string
	// cosigned says how far the witnesses have cosigned the log.
	cosigned []string
	// unsound is what is wrong with what stands beside the log.
	unsound *audit.Fault
	// own marks this daemon's mirror, which may be a moment behind, databasePath is
	// the database that it is of; beside and indexed say that it was checked too, and
	// its index.
	own             bool
	databasePath    string
	beside, indexed bool
	// behind is how many records the mirror lacks.
	behind uint64
	// each, where set, is given every line of the database that was found good.
	each func(seq uint64, line []byte) error
	// keyless is where this daemon's public key should be and is not.
	keyless string
	// left is the last of the retired records that are still there.
	left audit.Head
	// files are the mirror's, nil where one file is checked alone.
	files    *mirror.Files
	bytes    int64
	verifier *audit.Verifier
	progress func(end bool)
}

func (v *verification) run(ctx context.Context, path string) error {
	if path == "" {
		if err := v.ownLog(); err != nil {
			return err
		}
	}
	if path != "" {
		v.path = path
	}
	err := v.gather()
	switch {
	case err != nil:
	case v.inDatabase:
		err = v.database(ctx)
	default:
		err = v.copy(ctx)
	}
	return v.conclude(ctx, err)
}

// damaged makes faults of errors that say that a file does not hold what it should,
// and leaves those that say that it could not be read.
func damaged(err error) error {
	var fault *audit.Fault
	if err == nil || errors.As(err, &fault) {
		return err
	}
	switch err = store.Damaged(err); {
	case errors.Is(err, store.ErrDamaged), errors.Is(err, durable.ErrNoFile):
		return &audit.Fault{Problem: err.Error()}
	}
	return err
}

// ownLog takes what this daemon's configuration says of its log.
func (v *verification) ownLog() error {
	keys := []string{"store.url"}
	if !v.inDatabase {
		keys = append(keys, "audit.mirror")
	}
	if len(v.keys) == 0 {
		keys = append(keys, "audit.keys")
	}
	if len(v.checkpoints) == 0 {
		keys = append(keys, "audit.checkpoints")
	}
	cfg, err := v.Places(keys...)
	if err != nil {
		return err
	}
	database := config.DatabasePath(cfg, v.Getenv)
	v.path = config.MirrorPath(cfg, database)
	if v.inDatabase {
		v.path = database
	}
	if v.path == "" {
		return errors.New("cannot tell where the audit log is: HOME is not set; name a file")
	}
	if database == "" {
		return nil
	}
	if !v.inDatabase {
		v.own = true
		if _, err := os.Stat(database); err == nil {
			v.about, v.databasePath = "the mirror of "+database, database
		}
	}
	if len(v.keys) == 0 {
		dir := config.KeysPath(cfg, database)
		if err := v.ownKeys(dir); err != nil {
			return err
		}
		if v.newest, err = keyring.Newest(dir); err != nil {
			return err
		}
		v.newestIn = keyring.NewestPath(dir)
		notes, err := witness.Kept(dir)
		if err != nil {
			return err
		}
		if len(notes) > 0 {
			v.proof.Held = append(v.proof.Held, notes...)
			v.against = append(v.against, fmt.Sprintf("%s that witnesses cosigned", term.Count(len(notes), "checkpoint")))
		}
	}
	if file := config.CheckpointsPath(cfg, database); len(v.checkpoints) == 0 && cli.Exists(file) {
		v.checkpoints, v.defaulted = []string{file}, true
	}
	return nil
}

// ownKeys takes the public keys of this daemon: the last is in force.
func (v *verification) ownKeys(dir string) error {
	keys, err := keyring.PublicKeys(dir)
	if errors.Is(err, fs.ErrNotExist) {
		// A log without checkpoints has none: it is of before there were any.
		v.keyless = dir
		return nil
	}
	if err != nil {
		return err
	}
	for _, k := range keys {
		v.former = append(v.former, k.Verifier)
	}
	last := len(v.former) - 1
	v.keys, v.former = v.former[last:], v.former[:last]
	return nil
}

// gather reads what the log is held against.
func (v *verification) gather() error {
	for _, text := range v.keys {
		key, err := publicKey(text)
		if err != nil {
			return err
		}
		v.proof.Keys = append(v.proof.Keys, key)
	}
	for _, text := range v.former {
		key, err := publicKey(text)
		if err != nil {
			return err
		}
		v.proof.Former = append(v.proof.Former, key)
	}
	for _, file := range v.checkpoints {
		notes, err := checkpoints.Read(file)
		if err != nil {
			return err
		}
		if len(notes) == 0 {
			if v.defaulted {
				continue
			}
			return fmt.Errorf("cannot hold the log against %s: there is no whole checkpoint in it", file)
		}
		v.proof.Held = append(v.proof.Held, notes...)
		v.against = append(v.against, fmt.Sprintf("%s of %s", term.Count(len(notes), "checkpoint"), file))
	}
	for _, file := range v.receipts {
		notes, err := heldNotes(file)
		if err != nil {
			return err
		}
		v.proof.Held = append(v.proof.Held, notes...)
		v.against = append(v.against, fmt.Sprintf("%s of %s", term.Count(len(notes), "receipt"), file))
	}
	if v.newest != "" && !slices.Contains(v.proof.Held, v.newest) {
		v.proof.Held = append(v.proof.Held, v.newest)
		v.against = append(v.against, "1 checkpoint of "+v.newestIn)
	}
	if v.inDatabase {
		return nil
	}
	file := v.tombstone
	if file == "" {
		if file = tombstoneBeside(v.path); !cli.Exists(file) {
			return nil
		}
	}
	text, err := durable.ReadFile(file)
	if err != nil {
		return fmt.Errorf("cannot read the tombstone: %w", err)
	}
	t, err := audit.OpenTombstone(string(text))
	if err != nil && !errors.Is(err, audit.ErrUnsigned) {
		v.unsound = &audit.Fault{Seq: 1, Problem: fmt.Sprintf("the tombstone in %s cannot be read: %v", file, err)}
		return nil
	}
	v.proof.Tombstone = &t
	return nil
}

// tombstoneBeside is where the tombstone of a mirror stands.
func tombstoneBeside(path string) string {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return filepath.Join(path, checkpoints.TombstoneFile)
	}
	return filepath.Join(filepath.Dir(path), checkpoints.TombstoneFile)
}

// publicKey reads a public key, or the file that holds it.
func publicKey(text string) (note.Verifier, error) {
	if read, err := durable.ReadFile(text); err == nil {
		text = strings.TrimSpace(string(read))
	}
	key, err := note.NewVerifier(text)
	if err != nil {
		return nil, cli.Usagef("cannot use the key %.80q: it is no file, and no public key such as ocipd audit key show prints", text)
	}
	return key, nil
}

// maxHeldFile bounds a file that somebody gave as evidence.
const maxHeldFile = 64 << 20

// heldNotes reads the checkpoints out of what somebody holds: receipts, notes,
// or lines of a file of checkpoints; in a file, or a directory of such files.
func heldNotes(path string) (notes []string, err error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("cannot read the receipts: %w", err)
	}
	if info.IsDir() {
		entries, err := os.ReadDir(path)
		if err != nil {
			return nil, fmt.Errorf("cannot read the receipts: %w", err)
		}
		for _, e := range entries {
			if e.IsDir() {
				continue
			}
			more, err := heldNotes(filepath.Join(path, e.Name()))
			if err != nil {
				return nil, err
			}
			notes = append(notes, more...)
		}
		return notes, nil
	}
	if info.Size() > maxHeldFile {
		return nil, fmt.Errorf("cannot read the receipts in %s: larger than %d bytes", path, maxHeldFile)
	}
	text, err := durable.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("cannot read the receipts: %w", err)
	}
	var r audit.Receipt
	if r.UnmarshalText(text) == nil {
		return []string{r.Note}, nil
	}
	var c audit.Consistency
	if c.UnmarshalText(text) == nil {
		return []string{c.Note}, nil
	}
	if _, err := audit.OpenCheckpoint(string(text)); errors.Is(err, audit.ErrUnsigned) {
		return []string{string(text)}, nil
	}
	notes, err = checkpoints.Read(path)
	if err != nil || len(notes) == 0 {
		return nil, fmt.Errorf("cannot read the receipts in %s: it holds no receipt, no checkpoint and no lines of them", path)
	}
	return notes, nil
}

// begin makes the verifier, once all that it is given is known.
func (v *verification) begin() (err error) {
	if v.unsound != nil {
		return v.unsound
	}
	if v.verifier, err = audit.NewVerifier(v.proof); err != nil {
		return err
	}
	v.progress = v.reportProgress()
	return nil
}

func (v *verification) add(line []byte) error {
	v.bytes += int64(len(line)) + 1
	v.progress(false)
	before := v.verifier.Head()
	if before.Seq == v.retired() && before.Seq > 0 {
		if old, err := v.remnant(line); old || err != nil {
			return err
		}
	}
	if err := v.verifier.Add(line); err != nil {
		return err
	}
	if v.files != nil {
		v.files.Record(len(line), before, v.verifier.Head())
	}
	return nil
}

// remnant reports whether a line is of a record that the tombstone stands for,
// and checks it: while retention goes on some are still there, and what is there
// must be what was retired.
func (v *verification) remnant(line []byte) (old bool, err error) {
	head, err := audit.HeadOf(line)
	if err != nil || head.Seq > v.retired() {
		// The verifier says what is wrong with it.
		return false, v.rested()
	}
	if v.left.Seq == 0 {
		e, err := audit.Parse(line)
		if err != nil {
			return true, &audit.Fault{Seq: head.Seq, Problem: err.Error()}
		}
		v.left = audit.Head{Seq: e.Seq - 1, Hash: e.Prev}
	}
	v.left, err = v.left.Check(line)
	return true, err
}

// rested says whether the remnants are the end of what the tombstone stands for.
func (v *verification) rested() error {
	if v.left.Seq == 0 {
		return nil
	}
	if end := v.proof.Tombstone.Head; v.left.Seq != end.Seq || v.left.Hash != end.Hash {
		return &audit.Fault{Seq: v.left.Seq, Problem: fmt.Sprintf("it is not one of the %d records that the tombstone stands for", end.Seq)}
	}
	return nil
}

// database checks the record itself.
func (v *verification) database(ctx context.Context) error {
	reader, err := logreader.OpenWhole(ctx, v.path, v.operatorSocket)
	if err != nil {
		return err
	}
	defer reader.Close()
	tomb, err := reader.Tombstone(ctx)
	switch {
	case err == nil:
		v.proof.Tombstone = &tomb
	case !errors.Is(err, store.ErrNotFound):
		return err
	}
	if err := v.begin(); err != nil {
		return err
	}
	if n, err := reader.Misplaced(ctx); err != nil || n > 0 {
		return cmp.Or(err, error(&audit.Fault{Seq: 1, Problem: fmt.Sprintf("%s with no number of a record stand before it", term.Count(int(n), "row"))}))
	}
	err = reader.EachStored(ctx, 0, func(seq uint64, line []byte) error {
		if err := v.add(line); err != nil || v.each == nil {
			return err
		}
		return v.each(seq, line)
	})
	if err != nil {
		return err
	}
	return reader.CheckTree(ctx, v.verifier.Head().Seq, v.verifier.Root())
}

// agree checks what else this daemon answers from, the database with its tiles and the
// index, and that it is the same log. Where it is not, the report is about that.
func (v *verification) agree(ctx context.Context, report *audit.Report) error {
	if v.databasePath == "" {
		return nil
	}
	d := &verification{shell: v.shell, verifyFlags: v.verifyFlags, proof: v.proof, path: v.databasePath}
	d.inDatabase, d.proof.Tombstone = true, nil
	indexed, err := index.OpenCheck(index.Path(d.path))
	if err != nil {
		return err
	}
	mirrored := report.Head
	var apart error
	d.each = func(seq uint64, line []byte) error {
		if seq == mirrored.Seq && d.verifier.Head().Hash != mirrored.Hash {
			apart = &audit.Fault{Seq: seq, Problem: "the database and the mirror have two records of this number"}
		}
		if indexed == nil {
			return nil
		}
		return indexed.Add(seq, line)
	}
	found := audit.Report{}
	if err = d.database(ctx); err == nil {
		found, err = d.verifier.Finish()
	}
	if d.verifier != nil {
		d.progress(true)
		found.Head = d.verifier.Head()
	}
	if indexed != nil {
		v.indexed = true
		err = cmp.Or(err, indexed.Finish())
	}
	err = cmp.Or(err, d.rested(), apart)
	if err == nil && found.Head.Seq < mirrored.Seq {
		err = &audit.Fault{Seq: found.Head.Seq + 1, Problem: fmt.Sprintf("the database ends before it, and the mirror goes on to record %d", mirrored.Seq)}
	}
	v.beside, v.behind = true, found.Head.Seq-min(mirrored.Seq, found.Head.Seq)
	if err != nil {
		*report = found
		v.path, v.about, v.proof.Tombstone = d.path, "", d.proof.Tombstone
	}
	return err
}

const (
	// behindTries and behindWait bound how long a mirror that is a moment
	// behind, or whose last line is just being written, is waited for.
	behindTries = 100
	behindWait  = 20 * time.Millisecond
)

// copy checks a mirror or a copy of one.
func (v *verification) copy(ctx context.Context) error {
	if err := v.begin(); err != nil {
		return err
	}
	// Where there should be a log, one that is gone is a fault of it.
	expected := len(v.proof.Keys)+len(v.proof.Held) > 0
	info, err := os.Stat(v.path)
	if err != nil && (!v.own || !expected || !errors.Is(err, fs.ErrNotExist)) {
		return fmt.Errorf("cannot verify the audit log: %w", err)
	}
	if v.own || info.IsDir() {
		if v.files, err = mirror.OpenFiles(v.path); err != nil && !errors.As(err, &v.unsound) {
			return err
		}
	}
	want := uint64(0)
	for _, signed := range v.proof.Held {
		// What is no checkpoint was refused when the verifier was made.
		c, _ := audit.OpenCheckpoint(signed)
		want = max(want, c.Size)
	}
	for try := 0; ; try++ {
		err := v.walk(ctx)
		if expected && v.files != nil && errors.Is(err, fs.ErrNotExist) && v.verifier.Head().Seq == v.retired() {
			return nil
		}
		torn := errors.Is(err, mirror.ErrTorn)
		if err != nil && !torn {
			return err
		}
		if !v.own || try == behindTries || !torn && v.verifier.Head().Seq >= want {
			if torn {
				return &audit.Fault{Seq: v.verifier.Head().Seq + 1, Problem: "cut short: no newline at the end"}
			}
			return nil
		}
		again := time.NewTimer(behindWait)
		select {
		case <-again.C:
		case <-ctx.Done():
			again.Stop()
			return ctx.Err()
		}
	}
}

// retired is the last record that the tombstone stands for.
func (v *verification) retired() uint64 {
	if v.proof.Tombstone == nil {
		return 0
	}
	return v.proof.Tombstone.Head.Seq
}

// walk reads on from where the verifier is.
func (v *verification) walk(ctx context.Context) error {
	visit := func(line []byte) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		return v.add(line)
	}
	head := v.verifier.Head().Seq
	if head == v.retired() {
		head, v.left = 0, audit.Head{}
	}
	var err error
	if info, statErr := os.Stat(v.path); statErr == nil && !info.IsDir() && !v.own {
		err = mirror.WalkFile(v.path, visit)
	} else {
		from := head
		if from > 0 {
			from++
		}
		err = mirror.Walk(v.path, from, visit)
	}
	var fault *audit.Fault
	var inFile *fs.PathError
	if err == nil || errors.As(err, &fault) || errors.As(err, &inFile) || errors.Is(err, mirror.ErrTorn) || ctx.Err() != nil {
		return err
	}
	// What cannot be read as lines, or be decompressed, was changed.
	return &audit.Fault{Seq: v.verifier.Head().Seq + 1, Problem: err.Error()}
}

// verifyReport is what `ocipd audit verify --json` prints.
type verifyReport struct {
	File    string `json:"file"`
	OK      bool   `json:"ok"`
	Records uint64 `json:"records"`
	Retired uint64 `json:"retired,omitzero"`
	Log     string `json:"log,omitempty"`
	// Database is what was checked besides, and agrees, and Behind how many records
	// more it has than the mirror.
	Database string      `json:"database,omitempty"`
	Behind   uint64      `json:"behind,omitzero"`
	Head     *verifyHead `json:"head,omitempty"`
	Signed   uint64      `json:"signedUpTo"`
	KeyUsed  bool        `json:"keyGiven"`
	Points   int         `json:"checkpoints"`
	Held     int         `json:"heldOutside"`
	// Late counts the times that records were signed long after they were written,
	// Gaps those that no checkpoint stood for long between two records of an older
	// version.
	Late     int            `json:"signedLate,omitzero"`
	LastLate *verifyStretch `json:"lastSignedLate,omitempty"`
	Gaps     int            `json:"gaps,omitzero"`
	FirstGap *verifyStretch `json:"firstGap,omitempty"`
	Fault    *verifyFault   `json:"fault,omitempty"`
}

type verifyHead struct {
	Seq  uint64     `json:"seq"`
	Time time.Time  `json:"time"`
	Hash audit.Hash `json:"hash"`
}

type verifyStretch struct {
	First uint64    `json:"first"`
	Last  uint64    `json:"last"`
	From  time.Time `json:"from"`
	To    time.Time `json:"to"`
}

type verifyFault struct {
	Seq     uint64 `json:"seq"`
	Problem string `json:"problem"`
}

// conclude reports how a check ended.
func (v *verification) conclude(ctx context.Context, err error) error {
	var report audit.Report
	if v.verifier != nil {
		v.progress(true)
		report.Head = v.verifier.Head()
	}
	if err == nil {
		report, err = v.verifier.Finish()
	}
	if err == nil {
		err = cmp.Or(v.rested(), v.around(ctx, &report), v.witnessed())
	}
	if err == nil && v.own {
		err = v.agree(ctx, &report)
	}
	err = damaged(err)
	var fault *audit.Fault
	if err != nil && !errors.As(err, &fault) {
		return err
	}
	if v.asJSON {
		err = v.printReport(&report, fault)
	} else {
		v.tell(&report, fault)
		err = nil
	}
	if err != nil {
		return err
	}
	if fault != nil {
		return fmt.Errorf("cannot trust %s: %w", v.path, fault)
	}
	return nil
}

// around checks what stands beside a log whose records are good.
func (v *verification) around(ctx context.Context, report *audit.Report) error {
	switch {
	case v.unsound != nil:
		return v.unsound
	case v.keyless != "" && report.Checkpoints > 0:
		return &audit.Fault{Problem: fmt.Sprintf("nothing can be said of its %s: there is no public key in %s; name it with --key", term.Count(report.Checkpoints, "checkpoint"), v.keyless)}
	case v.files != nil:
		return v.files.Check(ctx, report.Head.Seq)
	}
	return nil
}

func (v *verification) printReport(report *audit.Report, fault *audit.Fault) error {
	head := report.Head
	r := verifyReport{
		File: v.path, OK: fault == nil, Records: head.Seq - min(v.retired(), head.Seq), Retired: report.Retired, Log: report.Origin,
		Signed: report.Signed, KeyUsed: len(v.proof.Keys) > 0, Points: report.Checkpoints, Held: report.Held, Database: v.databasePath, Behind: v.behind,
	}
	if head.Seq > 0 {
		r.Head = &verifyHead{Seq: head.Seq, Time: head.Time, Hash: head.Hash}
	}
	if report.Late > 0 {
		last := verifyStretch(report.LastLate)
		r.Late, r.LastLate = report.Late, &last
	}
	if report.Gaps > 0 && !unsigned(report) {
		first := verifyStretch(report.FirstGap)
		r.Gaps, r.FirstGap = report.Gaps, &first
	}
	if fault != nil {
		r.Fault = &verifyFault{Seq: fault.Seq, Problem: fault.Problem}
	}
	return v.PrintJSON(r)
}

func (v *verification) tell(report *audit.Report, fault *audit.Fault) {
	p, head := v.Screen().Colour, report.Head
	verdict, checked := p.Paint(term.Green, "intact"), "checked"
	switch {
	case fault == nil:
	case fault.Seq == 0:
		verdict = p.Paint(term.Red, "doubtful")
	default:
		verdict = p.Paint(term.Red, "damaged") + fmt.Sprintf(" at record %d", fault.Seq)
		if fault.Seq == head.Seq+1 {
			checked = "good up to there"
		}
	}
	about := ""
	if v.about != "" {
		about = " (" + v.about + ")"
	}
	fmt.Fprintf(v.Stdout, "%s%s: %s, %s %s\n", term.Printable(v.path), term.Printable(about), verdict, term.Count(int(head.Seq-min(v.retired(), head.Seq)), "record"), checked)
	if head.Seq > 0 {
		fmt.Fprintf(v.Stdout, "head %d of %s, hash %s\n", head.Seq, head.Time.Format(time.RFC3339Nano), head.Hash)
	}
	if fault != nil {
		return
	}
	v.tellBeside()
	keyed := len(v.proof.Keys) > 0
	if report.Retired > 0 {
		fmt.Fprintf(v.Stdout, "the first %s were retired; a tombstone stands for them\n", term.Count(int(report.Retired), "record"))
	}
	switch {
	case unsigned(report):
		fmt.Fprintln(v.Stdout, "not signed: the log holds no checkpoint, so whoever can write it can rewrite it")
		return
	case !keyed:
		fmt.Fprintf(v.Stdout, "%s of %s, signatures not checked: name the log's public key with --key\n", term.Count(report.Checkpoints, "checkpoint"), term.Printable(report.Origin))
	case report.Signed == head.Seq:
		fmt.Fprintf(v.Stdout, "signed by %s to the last record\n", term.Printable(report.Origin))
	default:
		fmt.Fprintf(v.Stdout, "signed by %s up to record %d; the %s after it, since %s, only chained\n", term.Printable(report.Origin), report.Signed,
			term.Count(int(head.Seq-report.Signed), "record"), report.UnsignedSince.Local().Format(time.DateTime))
	}
	if l := &report.LastLate; report.Late > 0 {
		fmt.Fprintf(v.Stdout, "%s records were signed late, as after a crash or while the machine slept: last those from %d to %d of %s, at %s\n",
			times(report.Late), l.First, l.Last, l.From.Local().Format(time.DateTime), l.To.Local().Format(time.DateTime))
	}
	if g := &report.FirstGap; report.Gaps > 0 {
		fmt.Fprintf(v.Stdout, "%s no checkpoint stands for long between two records, as older versions let it: first behind record %d of %s, until %s\n",
			times(report.Gaps), g.First, g.From.Local().Format(time.DateTime), g.To.Local().Format(time.DateTime))
	}
	for _, from := range v.against {
		fmt.Fprintf(v.Stdout, "held against %s: they fit\n", term.Printable(from))
	}
	for _, said := range v.cosigned {
		fmt.Fprintln(v.Stdout, term.Printable(said))
	}
	if report.Passed > 0 {
		fmt.Fprintf(v.Stdout, "%d of them are of records that were retired, and were not compared\n", report.Passed)
	}
	if len(v.against) == 0 {
		fmt.Fprintln(v.Stdout, "held against nothing from outside: a cut tail, or an older copy, would not show")
	}
}

// tellBeside says what else was checked.
func (v *verification) tellBeside() {
	if !v.beside {
		return
	}
	also := "its tree"
	if v.indexed {
		also = "its tree and its index"
	}
	fmt.Fprintf(v.Stdout, "%s holds the same log; %s fit\n", term.Printable(v.databasePath), also)
	if v.behind > 0 {
		fmt.Fprintf(v.Stdout, "the mirror lacks the last %s of it; a daemon fills it in\n", term.Count(int(v.behind), "record"))
	}
}

// unsigned reports that nothing in a log says that it was ever signed: then it is no
// news that no checkpoint stands between two of its records.
func unsigned(report *audit.Report) bool { return report.Checkpoints == 0 && report.Origin == "" }

// times is how often something is the case, in words.
func times(n int) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}

// reportProgress tells a person how far a long check is. It is called with true
// at the end.
func (v *verification) reportProgress() func(end bool) {
	if !term.IsTerminal(v.Stderr) || v.Getenv("TERM") == "dumb" {
		return func(bool) {}
	}
	size := int64(0)
	if info, err := os.Stat(v.path); err == nil && info.Mode().IsRegular() && !v.inDatabase {
		size = info.Size()
	}
	began := time.Now()
	next, shown, lines := began.Add(time.Second), false, 0
	return func(end bool) {
		if lines++; lines%64 != 0 && !end {
			return
		}
		switch now := time.Now(); {
		case end && shown:
			fmt.Fprint(v.Stderr, "\r\x1b[K")
		case end || now.Before(next):
		default:
			next, shown = now.Add(time.Second/5), true
			done := ""
			if size > v.bytes {
				done = fmt.Sprintf(", %.0f%%", 100*float64(v.bytes)/float64(size))
			}
			fmt.Fprintf(v.Stderr, "\r\x1b[K%d records checked, %.0f MB/s%s", v.verifier.Head().Seq, float64(v.bytes)/1e6/now.Sub(began).Seconds(), done)
		}
	}
}
