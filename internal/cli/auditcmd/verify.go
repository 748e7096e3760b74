package auditcmd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/base/durable"
	"github.com/openclawos/ocipd/internal/base/term"
	"github.com/openclawos/ocipd/internal/cli"
	"github.com/openclawos/ocipd/internal/config"
	"github.com/openclawos/ocipd/internal/evidence/verify"
	"github.com/openclawos/ocipd/internal/evidence/witness"
	"github.com/spf13/cobra"
	"golang.org/x/mod/sumdb/note"
)

// verifyFlags select what to verify, and against what.
type verifyFlags struct {
	asJSON, inDatabase bool
	keys               []string
	checkpoints        []string
	receipts           []string
	witnesses          []string
	within             []string
	tombstone          string
}

func newVerify(s *cli.Process) *cobra.Command {
	var f verifyFlags
	c := &cobra.Command{
		Use: "verify [PATH]",
		Example: "  ocipd audit verify\n" +
			"  ocipd audit verify copy/ --key checkpoint.pub --checkpoints audit-checkpoints.jsonl",
		Short: "verify that no record was changed, removed or added",
		Long: "Read every byte of an audit log and check it: the chain from record to record, the Merkle tree,\n" +
			"the signed checkpoints in the log, and those that were kept outside it. It needs no daemon, may\n" +
			"run beside one, and changes nothing.\n" +
			"Without PATH it checks that mirror, database, Merkle tree and index agree with each other and with this\n" +
			"daemon's public key and checkpoints, and the seals of the database's other rows; with --database it\n" +
			"checks the database alone. PATH is a copy: a directory with segments, a file of lines, or a compressed\n" +
			"segment. A copy is compared only with what --key, --checkpoints and --with-receipts name. If there is\n" +
			"a fault, the command names the first bad record and exits with 4.",
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			l, about, err := f.log(s, strings.Join(args, ""))
			if err != nil {
				return err
			}
			found, err := l.Verify(cmd.Context())
			if err != nil {
				return err
			}
			if f.asJSON {
				err = printReport(s, l, found)
			} else {
				tell(s, l, found, about)
			}
			if err == nil && found.Fault != nil {
				err = fmt.Errorf("cannot trust %s: %w", found.Path, found.Fault)
				if len(args) == 0 && !found.Derived {
					err = fmt.Errorf("%w; %s", err, advice(cmd.Context(), l, found))
				}
			}
			return err
		},
	}
	flags := c.Flags()
	flags.BoolVar(&f.asJSON, "json", false, "print JSON")
	flags.BoolVar(&f.inDatabase, "database", false, "check the records in a database: PATH, or this daemon's")
	flags.StringArrayVar(&f.keys, "key", nil, "public `KEY` of the log, or a file that holds it (checkpoint.pub)")
	flags.StringArrayVar(&f.checkpoints, "checkpoints", nil, "`FILE` of checkpoints kept outside the log")
	flags.StringArrayVar(&f.receipts, "with-receipts", nil, "`FILE` or directory of receipts and checkpoints that counterparties hold")
	flags.StringArrayVar(&f.witnesses, "witness", nil, "public `KEY` of a witness that must have cosigned the log, or a file that holds it")
	flags.StringArrayVar(&f.within, "within", nil, "`BOUND` on what a witness has not cosigned: a number of records (1024), or how much older than the newest record one may be (10m)")
	flags.StringVar(&f.tombstone, "tombstone", "", "`FILE` that stands for the records before a copy's first")
	return c
}

// advice says what to do about a fault of this daemon's own log.
func advice(ctx context.Context, l *verify.Log, f *verify.Findings) string {
	if l.Database != "" && f.Path == l.Path && l.Readable() {
		alone := *l
		alone.Path, alone.Database, alone.Own, alone.InDatabase, alone.Proof.Tombstone = l.Database, "", false, true, nil
		if found, err := alone.Verify(ctx); err == nil && found.Fault == nil {
			return "the database is intact: stop the daemon, move the mirror's files (audit.jsonl, audit-manifest.jsonl, audit-0*) out of " +
				filepath.Dir(l.Path) + " for whoever looks into it, and start it again: it writes them anew"
		}
	}
	if !l.Readable() {
		return "put a copy of that file back, or move it out of its directory for whoever looks into it"
	}
	return "stop the daemon, keep a copy of its files for whoever looks into it, and " + audit.PutBack
}

// log returns the log at a path, by default this daemon's, with everything to verify it
// against. about describes this daemon's mirror.
func (f *verifyFlags) log(s *cli.Process, path string) (l *verify.Log, about string, err error) {
	l = &verify.Log{Path: path, InDatabase: f.inDatabase, Socket: s.OperatorSocket, Progress: progress(s)}
	var ownCheckpoints string
	if path == "" {
		if ownCheckpoints, err = f.ownLog(s, l); err != nil {
			return nil, "", err
		}
	}
	if l.Database != "" {
		about = " (the mirror of " + l.Database + ")"
	}
	for _, text := range f.keys {
		key, err := publicKey(text)
		if err != nil {
			return nil, "", err
		}
		l.Proof.Keys = append(l.Proof.Keys, key)
	}
	if l.Within, err = f.bounds(); err != nil {
		return nil, "", err
	}
	for _, text := range f.witnesses {
		key, err := witness.ParseKey(textOrFile(text))
		if err != nil {
			return nil, "", cli.Usagef("cannot use the witness: %v", err)
		}
		l.Witnesses = append(l.Witnesses, key)
	}
	for _, file := range f.checkpoints {
		l.HoldCheckpoints(file, true, f.ofThisDaemon(s, file))
	}
	if ownCheckpoints != "" {
		l.HoldCheckpoints(ownCheckpoints, false, true)
	}
	for _, path := range f.receipts {
		l.HoldReceipts(path)
	}
	if !f.inDatabase {
		l.Tombstone(f.tombstone)
	}
	return l, about, nil
}

// ofThisDaemon reports whether a file of checkpoints is the one that this daemon writes.
func (f *verifyFlags) ofThisDaemon(s *cli.Process, file string) bool {
	cfg, err := s.Places("store.url", "audit.checkpoints")
	if err != nil {
		return false
	}
	own, err := os.Stat(config.CheckpointsPath(cfg, config.DatabasePath(cfg, s.Getenv)))
	if err != nil {
		return false
	}
	named, err := os.Stat(file)
	return err == nil && os.SameFile(own, named)
}

// bounds are the limits for the part of a log that a witness has not cosigned.
func (f *verifyFlags) bounds() (verify.Within, error) {
	w := verify.Within{Records: audit.CheckpointEvery, Age: 10 * time.Minute}
	if len(f.within) > 0 && len(f.witnesses) == 0 {
		return w, cli.Usagef("cannot use --within without --witness")
	}
	for _, text := range f.within {
		if n, err := strconv.ParseUint(text, 10, 62); err == nil {
			w.Records = n
			continue
		}
		age, err := time.ParseDuration(text)
		if err != nil || age < 0 {
			return w, cli.Usagef("cannot use --within %q: it is neither a number of records nor a time such as 10m", text)
		}
		w.Age = age
	}
	return w, nil
}

// ownLog applies this daemon's configuration. It returns the existing file of checkpoints
// if no other was named.
func (f *verifyFlags) ownLog(s *cli.Process, l *verify.Log) (ownCheckpoints string, err error) {
	keys := []string{"store.url"}
	if !f.inDatabase {
		keys = append(keys, "audit.mirror")
	}
	if len(f.keys) == 0 {
		keys = append(keys, "audit.keys")
	}
	if len(f.checkpoints) == 0 {
		keys = append(keys, "audit.checkpoints")
	}
	cfg, err := s.Places(keys...)
	if err != nil {
		return "", err
	}
	database := config.DatabasePath(cfg, s.Getenv)
	if l.Path = database; !f.inDatabase {
		l.Path = config.MirrorPath(cfg, database)
	}
	if l.Path == "" {
		return "", errors.New("cannot tell where the audit log is: HOME is not set; name a file")
	}
	if database == "" {
		return "", nil
	}
	switch l.Own = !f.inDatabase; {
	case !l.Own:
	case cli.Exists(database):
		l.Database = database
	default:
		l.Gone = database
	}
	if len(f.keys) == 0 {
		if err := l.OwnKeys(config.KeysPath(cfg, database)); err != nil {
			return "", err
		}
	}
	if file := config.CheckpointsPath(cfg, database); len(f.checkpoints) == 0 {
		l.Checkpoints = file
		if cli.Exists(file) {
			ownCheckpoints = file
		}
	}
	return ownCheckpoints, nil
}

// verifyReport is the output of `ocipd audit verify --json`.
type verifyReport struct {
	File    string `json:"file"`
	OK      bool   `json:"ok"`
	Records uint64 `json:"records"`
	Retired uint64 `json:"retired,omitzero"`
	Log     string `json:"log,omitempty"`
	// Database was also checked and agrees. Behind is how many more records it has than the mirror.
	Database string      `json:"database,omitempty"`
	Behind   uint64      `json:"behind,omitzero"`
	Head     *verifyHead `json:"head,omitempty"`
	Signed   uint64      `json:"signedUpTo"`
	KeyUsed  bool        `json:"keyGiven"`
	Points   int         `json:"checkpoints"`
	// Held counts the checkpoints from elsewhere that match the log and have a known key's
	// signature. HeldUpTo is the number of records of the largest, or of a named witness's, and
	// HeldHere of the largest in files of this daemon. Unproven counts those without such a
	// signature.
	Held     int               `json:"heldOutside"`
	HeldUpTo uint64            `json:"heldUpTo,omitzero"`
	HeldHere uint64            `json:"heldHere,omitzero"`
	Unproven int               `json:"unproven,omitzero"`
	Cosigned []verify.Cosigned `json:"cosigned,omitempty"`
	// Notices describe problems beside the log that are not faults.
	Notices []string `json:"notices,omitempty"`
	// Late counts the stretches of records that were signed long after they were written. Gaps
	// counts those without a checkpoint for a long time, between two records of an older version.
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

func printReport(s *cli.Process, l *verify.Log, f *verify.Findings) error {
	head := f.Head
	r := verifyReport{
		File: f.Path, OK: f.Fault == nil, Records: f.Records(), Retired: f.Retired, Log: f.Origin,
		Signed: f.Signed, KeyUsed: len(l.Proof.Keys) > 0, Points: f.Checkpoints, Held: f.From, HeldUpTo: f.Elsewhere, HeldHere: f.Here, Unproven: f.Unproven, Cosigned: f.Cosigned, Notices: f.Notices, Database: l.Database, Behind: f.Behind,
	}
	if head.Seq > 0 {
		r.Head = &verifyHead{Seq: head.Seq, Time: head.Time, Hash: head.Hash}
	}
	if f.Late > 0 {
		last := verifyStretch(f.LastLate)
		r.Late, r.LastLate = f.Late, &last
	}
	if f.Gaps > 0 && !f.Unsigned() {
		first := verifyStretch(f.FirstGap)
		r.Gaps, r.FirstGap = f.Gaps, &first
	}
	if f.Fault != nil {
		r.Fault = &verifyFault{Seq: f.Fault.Seq, Problem: f.Fault.Problem}
	}
	return s.PrintJSON(r)
}

func tell(s *cli.Process, l *verify.Log, f *verify.Findings, about string) {
	p, head := s.Screen().Colour, f.Head
	verdict, checked := p.Paint(term.Green, "intact"), "checked"
	switch {
	case f.Fault == nil:
	case f.Fault.Seq == 0:
		verdict = p.Paint(term.Red, "doubtful")
	default:
		verdict = p.Paint(term.Red, "damaged") + fmt.Sprintf(" at record %d", f.Fault.Seq)
		if f.Fault.Seq == head.Seq+1 {
			checked = "good up to there"
		}
	}
	if f.Path != l.Path {
		about = "" // it is about the database itself
	}
	s.Say("%s%s: %s, %s %s", term.Printable(f.Path), term.Printable(about), verdict, term.Count(int(f.Records()), "record"), checked)
	if head.Seq > 0 {
		s.Say("head %d of %s, hash %s", head.Seq, head.Time.Format(time.RFC3339Nano), head.Hash)
	}
	if f.Fault != nil {
		return
	}
	tellBeside(s, l, f)
	keyed := len(l.Proof.Keys) > 0
	if f.Retired > 0 {
		s.Say("the first %s were retired; a tombstone stands for them", term.Count(int(f.Retired), "record"))
	}
	switch {
	case f.Unsigned():
		s.Say("not signed: the log holds no checkpoint, so whoever can write it can rewrite it")
		return
	case !keyed:
		s.Say("%s of %s, signatures not checked: name the log's public key with --key", term.Count(f.Checkpoints, "checkpoint"), term.Printable(f.Origin))
	case f.Signed == head.Seq:
		s.Say("signed by %s to the last record", term.Printable(f.Origin))
	default:
		be := "are"
		if head.Seq == f.Signed+1 {
			be = "is"
		}
		s.Say("signed by %s up to record %d; the %s after it, since %s, %s hash-chained but not signed", term.Printable(f.Origin), f.Signed,
			term.Count(int(head.Seq-f.Signed), "record"), f.UnsignedSince.Local().Format(time.DateTime), be)
	}
	if l := &f.LastLate; f.Late > 0 {
		s.Say("%s records were signed late, as after a crash or while the machine slept: last those from %d to %d of %s, at %s",
			times(f.Late), l.First, l.Last, l.From.Local().Format(time.DateTime), l.To.Local().Format(time.DateTime))
	}
	if g := &f.FirstGap; f.Gaps > 0 {
		s.Say("%s no checkpoint stands for long between two records, as older versions let it: first behind record %d of %s, until %s",
			times(f.Gaps), g.First, g.From.Local().Format(time.DateTime), g.To.Local().Format(time.DateTime))
	}
	tellOutside(s, l, f)
}

// tellOutside prints up to which record outside checkpoints hold the log, and which ones.
func tellOutside(s *cli.Process, l *verify.Log, f *verify.Findings) {
	for i := range l.Against {
		e := &l.Against[i]
		from, it := term.Printable(e.From), "it holds"
		if e.Many {
			it = "they hold"
		}
		switch {
		case e.UpTo > 0 && e.Unproven > 0:
			s.Say("consistent with %s: %s the log up to record %d; %d signed by no key that is known here count for nothing", from, it, e.UpTo, e.Unproven)
		case e.UpTo > 0:
			s.Say("consistent with %s: %s the log up to record %d", from, it, e.UpTo)
		case e.Unproven > 0:
			s.Say("fits %s, which prove nothing: no key that is known here signed them", from)
		default:
			s.Say("consistent with %s, of records that were retired", from)
		}
	}
	for _, c := range f.Cosigned {
		s.Say("cosigned by the witness %s up to record %d, at %s", term.Printable(c.Witness), c.UpTo, c.At.Local().Format(time.DateTime))
	}
	for _, notice := range f.Notices {
		s.Say("%s", s.Screen().Colour.Paint(term.Yellow, term.Printable(notice)))
	}
	if f.Passed > 0 {
		s.Say("%d of them are of records that were retired, and were not compared", f.Passed)
	}
	switch after := f.Head.Seq - f.Elsewhere; {
	case len(l.Against) == 0:
		s.Say("compared with no checkpoint from outside: a cut tail, or an older copy, would not show")
	case f.Elsewhere == 0 && f.Here > 0:
		s.Say("checkpoints on this machine confirm it up to record %d: if somebody changed them too, a cut tail or an older copy would not show; name a checkpoint from elsewhere (--checkpoints, --with-receipts, --witness)", f.Here)
	case f.Elsewhere == 0:
		s.Say("no checkpoint from outside confirms any of it: a cut tail, or an older copy, would not show")
	case after == 0:
		s.Say("checkpoints from elsewhere confirm every record")
	default:
		s.Say("checkpoints from elsewhere confirm it up to record %d: if the log was cut or rewritten behind that, in the last %s, it would not show", f.Elsewhere, term.Count(int(after), "record"))
	}
}

// tellBeside prints the other checks.
func tellBeside(s *cli.Process, l *verify.Log, f *verify.Findings) {
	if !f.Beside {
		return
	}
	also := "a Merkle tree that matches it"
	if f.Indexed {
		also = "a Merkle tree and an index that match it"
	}
	if f.Rows {
		also += "; nobody else has changed its other rows, and the rows that decisions depend on match the log"
	}
	s.Say("%s holds the same log, with %s", term.Printable(l.Database), also)
	if f.Behind > 0 {
		s.Say("the mirror lacks the last %s of it; a daemon fills it in", term.Count(int(f.Behind), "record"))
	}
}

// times describes a count.
func times(n int) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}

// textOrFile returns the content of a file, or the text itself if there is no such file.
func textOrFile(text string) string {
	if read, err := durable.ReadFile(text); err == nil {
		return strings.TrimSpace(string(read))
	}
	return text
}

// publicKey parses a public key, or reads it from a file.
func publicKey(text string) (note.Verifier, error) {
	text = textOrFile(text)
	key, err := note.NewVerifier(text)
	if err != nil {
		return nil, cli.Usagef("cannot use the key %.80q: it is no file, and no public key such as ocipd audit key show prints", text)
	}
	return key, nil
}

// progress shows a person the progress of a long check.
func progress(s *cli.Process) func(size int64) func(seq uint64, bytes int64, end bool) {
	if !term.IsTerminal(s.Stderr) || s.Getenv("TERM") == "dumb" {
		return nil
	}
	return func(size int64) func(seq uint64, bytes int64, end bool) {
		began := time.Now()
		next, shown, lines := began.Add(time.Second), false, 0
		return func(seq uint64, bytes int64, end bool) {
			if lines++; lines%64 != 0 && !end {
				return
			}
			switch now := time.Now(); {
			case end && shown:
				fmt.Fprint(s.Stderr, "\r\x1b[K")
			case end || now.Before(next):
			default:
				next, shown = now.Add(time.Second/5), true
				done := ""
				if size > bytes {
					done = fmt.Sprintf(", %.0f%%", 100*float64(bytes)/float64(size))
				}
				fmt.Fprintf(s.Stderr, "\r\x1b[K%d records checked, %.0f MB/s%s", seq, float64(bytes)/1e6/now.Sub(began).Seconds(), done)
			}
		}
	}
}
