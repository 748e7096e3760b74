// Package casefile makes the folder of a case for an investigator or a court: the records about one
// task, exchange, approval or agent, or from a period. The folder also has the records' receipts;
// the configuration, the policies and the signers in force at the time; the kept texts that may be
// read; a page in plain language; and a program that checks the folder alone.
//
// The folder discloses no secret that the log does not: the configuration has the form of the log,
// with secrets masked, and the detectors' secrets are removed from texts.
package casefile

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/docs"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/store/logstore"
	"golang.org/x/mod/sumdb/note"
)

// MaxRecords bounds the records of a case.
const MaxRecords = 10_000

// Log is the source of a case. It must not change meanwhile.
type Log interface {
	EachLine(ctx context.Context, after uint64, visit func(seq uint64, line []byte) error) error
	// Prover makes receipts. It returns [logstore.ErrUnsigned] for a record that no checkpoint
	// covers.
	Prover(ctx context.Context) (func(ctx context.Context, seq uint64) (audit.Receipt, error), error)
	PublicKey(ctx context.Context) (string, error)
	Checkpoint(ctx context.Context) (logstore.Signed, error)
}

// Options select the contents of a case.
type Options struct {
	// Of describes the case in words, and Wanted selects its records. Agent, if set, selects those
	// of an agent on either side.
	Of     string
	Wanted audit.Filter
	Agent  string
	// Unseal decrypts a sealed text from the log; nil leaves all texts out. An error says why the
	// text cannot be read.
	Unseal func(sealed string) (string, error)
	// Mask removes secrets from a text.
	Mask func(text string) string
	// Now is the time, and Version the program's version.
	Now     time.Time
	Version string
}

// ErrNone means that no record matches.
var ErrNone = errors.New("no record matches")

// Made describes a finished folder.
type Made struct {
	// Records counts the records of the case, and Context those that show what was in force.
	Records, Context int
	// Unsigned counts records that no checkpoint covers yet, and Unread the kept texts that are not
	// in the folder.
	Unsigned, Unread int
	// Digest is the SHA-256 of case.json, which contains that of every other file.
	Digest string
}

// Names of the files in the folder.
const (
	manifestName   = "case.json"
	digestName     = "case.sha256"
	recordsName    = "records.jsonl"
	keyName        = "log.pub"
	checkpointName = "checkpoint.note"
	pageName       = "case.html"
	verifierName   = "verify.py"
)

// manifest is case.json.
type manifest struct {
	Case    string    `json:"case"`
	Made    time.Time `json:"made"`
	Program string    `json:"program"`
	Log     string    `json:"log"`
	// First is the number of the first record that is still in the log.
	First   uint64         `json:"firstInLog"`
	Records []listedRecord `json:"records"`
	// Configurations, Policies and Signers list the versions in force, each with the record that
	// announced it.
	Configurations []held            `json:"configurations"`
	Policies       []held            `json:"policies"`
	Signers        []held            `json:"signers"`
	Texts          []listedText      `json:"texts"`
	Files          map[string]string `json:"files"`
}

type listedRecord struct {
	Seq uint64 `json:"seq"`
	// Context is set if the record is included because it shows what was in force.
	Context bool `json:"context,omitzero"`
	// Receipt is the file of its receipt, "" if no checkpoint covers it.
	Receipt string `json:"receipt,omitzero"`
}

// held is a version that a record put in force.
type held struct {
	Record uint64 `json:"record"`
	Digest string `json:"digest"`
	// Files contain it. If it could not be included, there are none, and Why gives the reason.
	Files []string `json:"files,omitempty"`
	Why   string   `json:"why,omitzero"`
}

type listedText struct {
	Record uint64 `json:"record"`
	File   string `json:"file,omitzero"`
	// Masked is set if secrets were removed from it. Why is the reason that it is missing.
	Masked bool   `json:"masked,omitzero"`
	Why    string `json:"why,omitzero"`
}

// folder is a folder in progress.
type folder struct {
	o     *Options
	files map[string][]byte
	manifest
	chosen map[uint64]*entry
	// inForce lists records by kind, each list in the order of the log.
	inForce [kinds][]uint64
	// lines are the lines of those records.
	lines   map[uint64][]byte
	configs []configured
	rotated []string
	public  string
}

// entry is a record of the case.
type entry struct {
	audit.Entry
	line    []byte
	context bool
	receipt bool
}

// The kinds of versions that a record can put in force.
const (
	kindStart = iota
	kindConfiguration
	kindPolicy
	kindSigners
	kinds
)

// kindOf returns the kind of version that a record puts in force, negative for none.
func kindOf(e *audit.Entry) int {
	switch {
	case e.ActionType == audit.ActionSecurity && e.Event == "daemon_started":
		return kindStart
	case e.ActionType == audit.ActionConfigChange && e.Event == "loaded":
		return kindConfiguration
	case e.ActionType == audit.ActionConfigChange && e.Event == "signers_changed":
		return kindSigners
	case e.ActionType == audit.ActionPolicyChange && e.Event == "loaded":
		return kindPolicy
	}
	return -1
}

// mayGovern reports, without decoding, whether a line may have such a kind, or may hand the log
// over.
func mayGovern(line []byte) bool {
	head := line[:min(len(line), 256)]
	for _, kind := range []string{audit.ActionConfigChange, audit.ActionPolicyChange, `security","event":"daemon_started`, `checkpoint","event":"key_rotated`} {
		if bytes.Contains(head, []byte(`"actionType":"`+kind)) {
			return true
		}
	}
	return false
}

// Write makes the folder, which must not exist. If a record contradicts its receipt, it returns an
// [audit.Fault] and writes nothing.
func Write(ctx context.Context, log Log, dir string, o *Options) (Made, error) {
	f := &folder{o: o, files: map[string][]byte{}, chosen: map[uint64]*entry{}, lines: map[uint64][]byte{}}
	f.Case, f.Made, f.Program = o.Of, o.Now.UTC(), o.Version
	steps := []func() error{
		func() error { return f.choose(ctx, log) },
		func() error { return f.follow(ctx, log) },
		f.govern,
		func() error { return f.prove(ctx, log) },
		f.readTexts,
		f.addPage,
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return Made{}, err
		}
	}
	f.files[verifierName] = docs.Verifier
	f.Files = map[string]string{}
	for name, text := range f.files {
		f.Files[name] = sum(text)
	}
	text, err := json.Marshal(&f.manifest, jsontext.WithIndent("  "), json.Deterministic(true))
	if err != nil {
		return Made{}, fmt.Errorf("cannot list the files of the case: %w", err)
	}
	f.files[manifestName] = append(text, '\n')
	made := f.count()
	f.files[digestName] = []byte(made.Digest + "  " + manifestName + "\n")
	return made, f.write(dir)
}

func sum(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

func (f *folder) count() (m Made) {
	m.Digest = sum(f.files[manifestName])
	for _, r := range f.Records {
		switch {
		case r.Context:
			m.Context++
		default:
			m.Records++
		}
		if r.Receipt == "" {
			m.Unsigned++
		}
	}
	for _, t := range f.Texts {
		if t.File == "" {
			m.Unread++
		}
	}
	return m
}

// choose finds the records of the case, and those that put a version in force.
func (f *folder) choose(ctx context.Context, log Log) error {
	wanted := []audit.Filter{f.o.Wanted}
	if f.o.Agent != "" {
		wanted = append(wanted, f.o.Wanted)
		wanted[0].Like.AgentID, wanted[1].Like.Counterparty.InstanceID = f.o.Agent, f.o.Agent
	}
	err := log.EachLine(ctx, 0, func(seq uint64, line []byte) error {
		if f.First == 0 {
			f.First = seq
		}
		if mayGovern(line) {
			e, err := audit.Parse(line)
			if err != nil {
				return &audit.Fault{Seq: seq, Problem: err.Error()}
			}
			if signed, ok := audit.HandOverOf(line); ok {
				f.rotated = append(f.rotated, signed)
			}
			if kind := kindOf(&e); kind >= 0 {
				f.inForce[kind] = append(f.inForce[kind], seq)
				f.lines[seq] = bytes.Clone(line)
			}
		}
		if slices.ContainsFunc(wanted, func(w audit.Filter) bool { return w.Match(line) }) {
			return f.add(seq, line, false)
		}
		return nil
	})
	if err == nil && len(f.chosen) == 0 {
		err = ErrNone
	}
	return err
}

func (f *folder) add(seq uint64, line []byte, context bool) error {
	if known := f.chosen[seq]; known != nil {
		known.context = known.context && context
		return nil
	}
	if !context && len(f.chosen) >= MaxRecords {
		return fmt.Errorf("it has more than %d records: narrow it with --since and --until", MaxRecords)
	}
	e, err := audit.Parse(line)
	if err != nil {
		return &audit.Fault{Seq: seq, Problem: err.Error()}
	}
	f.chosen[seq] = &entry{Entry: e, line: bytes.Clone(line), context: context}
	return nil
}

// follow adds the later records about the messages and the requests of the case: decisions of
// people, deliveries.
func (f *folder) follow(ctx context.Context, log Log) error {
	ids, first := map[string]bool{}, uint64(1<<63)
	for seq, e := range f.chosen {
		first = min(first, seq)
		ids[e.ApprovalID], ids[e.DispatchID] = true, true
	}
	delete(ids, "")
	if len(ids) == 0 {
		return nil
	}
	return log.EachLine(ctx, first-1, func(seq uint64, line []byte) error {
		if f.chosen[seq] != nil || !bytes.Contains(line, []byte(`"approvalId":"`)) && !bytes.Contains(line, []byte(`"dispatchId":"`)) {
			return nil
		}
		e, err := audit.Parse(line)
		if err != nil {
			return &audit.Fault{Seq: seq, Problem: err.Error()}
		}
		if ids[e.ApprovalID] || ids[e.DispatchID] {
			return f.add(seq, line, false)
		}
		return nil
	})
}

// seqs returns the numbers of the records, in order.
func (f *folder) seqs() []uint64 { return slices.Sorted(maps.Keys(f.chosen)) }

// prove makes the receipts, and checks each before anybody relies on it.
func (f *folder) prove(ctx context.Context, log Log) error {
	prove, err := log.Prover(ctx)
	if err != nil {
		return err
	}
	newest, err := log.Checkpoint(ctx)
	if err != nil {
		return err
	}
	if newest.Seq == 0 {
		return errors.New("the log has no checkpoint yet; a running daemon makes one within a minute")
	}
	if f.public, err = log.PublicKey(ctx); err != nil {
		return err
	}
	key, err := note.NewVerifier(f.public)
	if err != nil {
		return fmt.Errorf("the log's public key cannot be used: %w", err)
	}
	f.Log = key.Name()
	f.files[keyName], f.files[checkpointName] = []byte(f.public+"\n"), []byte(newest.Note)
	signed, err := audit.OpenCheckpoint(newest.Note)
	if !errors.Is(err, audit.ErrUnsigned) {
		return fmt.Errorf("cannot read the newest checkpoint: %w", err)
	}
	var handOvers []string
	for _, text := range f.rotated {
		if c, err := audit.OpenCheckpoint(text); errors.Is(err, audit.ErrUnsigned) && c.Size <= signed.Size {
			handOvers = append(handOvers, text)
		}
	}
	var lines []byte
	for _, seq := range f.seqs() {
		e := f.chosen[seq]
		listed := listedRecord{Seq: seq, Context: e.context}
		receipt, err := prove(ctx, seq)
		switch {
		case errors.Is(err, logstore.ErrUnsigned):
		case err != nil:
			return err
		default:
			receipt.HandOvers = handOvers
			if _, err := receipt.Check(e.line, key); err != nil {
				return &audit.Fault{Seq: seq, Problem: err.Error()}
			}
			text, err := receipt.MarshalText()
			if err != nil {
				return err
			}
			e.receipt = true
			listed.Receipt = fmt.Sprintf("receipts/%d.receipt", seq)
			f.files[listed.Receipt] = text
		}
		f.Records = append(f.Records, listed)
		lines = append(append(lines, e.line...), '\n')
	}
	f.files[recordsName] = lines
	return nil
}

// readTexts adds the sealed texts of the records.
func (f *folder) readTexts() error {
	for _, seq := range f.seqs() {
		e := f.chosen[seq]
		if e.Content == "" {
			continue
		}
		t := listedText{Record: seq, Why: "it is encrypted, and no identity was named that can decrypt it"}
		if f.o.Unseal != nil {
			text, err := f.o.Unseal(e.Content)
			if err != nil {
				t.Why = err.Error()
			} else {
				shown := f.o.Mask(text)
				t.Why, t.Masked, t.File = "", shown != text, fmt.Sprintf("texts/%d.txt", seq)
				f.files[t.File] = []byte(shown)
			}
		}
		f.Texts = append(f.Texts, t)
	}
	return nil
}

// write makes the whole folder or nothing. It first writes to a name beside it.
func (f *folder) write(dir string) (err error) {
	if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s: %w", dir, cmp.Or(err, fs.ErrExist))
	}
	part, err := os.MkdirTemp(filepath.Dir(filepath.Clean(dir)), ".case-")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(part))
		}
	}()
	for name, text := range f.files {
		at := filepath.Join(part, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(at), 0o700); err != nil {
			return err
		}
		if err := os.WriteFile(at, text, 0o600); err != nil {
			return err
		}
	}
	return os.Rename(part, dir)
}

// safeName returns a file name below the folder for a path that others chose. It removes elements
// that would lead outside.
func safeName(name string) string {
	name = path.Clean("/" + strings.ReplaceAll(name, `\`, "/"))
	return strings.TrimPrefix(name, "/")
}
