// Package configlog puts the configuration in force on record, as a whole or as the difference
// to the one before it, and finds out from the records alone which one was in force at any of
// them.
//
// A configuration is on record as two documents. The first is its YAML with secrets masked, as
// people are shown it, with the digest of the directory file in its last line; the second has
// the entries of the directory file, a line of JSON each. A [Log] words the records; the caller
// commits them before anything is decided under the configuration, with what [Log.Note] gives
// beside them. A [Replay] reads them.
package configlog

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/base/text"
	"github.com/openclawos/ocipd/internal/config"
	"github.com/openclawos/ocipd/internal/store"
)

const (
	// partBytes is how much of a configuration stands in one record, about.
	partBytes = 256 << 10
	// maxLine is how many bytes of one line are on record.
	maxLine = 64 << 10
	// keptBytes is how large a directory file is at most whose entries are kept, to tell at the
	// next start what was changed while the daemon was stopped. Of a larger one that was
	// changed then, all entries go on record again.
	keptBytes = 1 << 20
	// leastBytes is how many bytes of differences may follow a configuration that is on record
	// as a whole, before it is there as a whole again; or as many as it has itself.
	leastBytes = 1 << 20
)

// metaName is where the database keeps what was on record last.
const metaName = "configuration"

// MetaName is the name of the value of the database that [New] takes up.
func MetaName() string { return metaName }

// Options are what a log is given.
type Options struct {
	NewID func() string
	// Redact takes out of a line what the operator wants kept out of the log. May be nil.
	Redact func(string) string
	// Key is a secret of this daemon, for a digest of what is masked too.
	Key []byte
}

// last is what was on record last, as the database keeps it.
type last struct {
	Text []string `json:"text"`
	// Directory is absent where the directory file is a large one.
	Directory []string `json:"directory,omitempty"`
	Large     bool     `json:"large,omitzero"`
	Digest    string   `json:"digest"`
	Keyed     string   `json:"keyed"`
	// WholeAfter is a record before the last one that has a configuration as a whole, Whole how
	// many bytes that one has, and Since how many bytes of differences have followed.
	WholeAfter uint64 `json:"wholeAfter"`
	Whole      int    `json:"whole"`
	Since      int    `json:"since"`
}

// Log words the records of configurations. It is for one caller at a time.
type Log struct {
	o    Options
	last *last
	// listed are the entries of the directory file that was on record last, as far as they
	// are known.
	listed []config.Contact
}

// New takes up what was on record last, from the value of the database, which is empty at the
// first start. One that cannot be read counts as none: then all goes on record again.
func New(o Options, value []byte) *Log {
	l := &Log{o: o}
	var kept last
	if len(value) > 0 && json.Unmarshal(value, &kept) == nil && kept.Digest == digestOf(kept.Text) {
		l.last = &kept
	}
	return l
}

// Former is the configuration that was on record last, as YAML, "" for none.
func (l *Log) Former() string {
	if l.last == nil {
		return ""
	}
	return join(l.last.Text)
}

// Goes reports whether the last record with a configuration as a whole may be among the first
// ones of the log, which are about to be removed.
func (l *Log) Goes(upTo uint64) bool { return l.last != nil && l.last.WholeAfter < upTo }

// Place says where in the log the records will stand.
type Place struct {
	// Head is the last record of the log, or an earlier one, and Retired the last one that
	// retention removed.
	Head, Retired uint64
	// Whole asks for the configuration as a whole.
	Whole bool
}

// Note returns the records of a configuration that is about to be in force. The first is the
// one given, to which it adds; the part belongs into their commit, and done is to be called once
// that is durable.
func (l *Log) Note(first *audit.Record, cfg *config.Config, at Place) (records []*audit.Record, part store.Part, done func(), err error) {
	lines, err := l.document(cfg)
	if err != nil {
		return nil, nil, nil, err
	}
	next := last{Text: lines, Digest: digestOf(lines)}
	if next.Keyed, err = l.keyed(cfg); err != nil {
		return nil, nil, nil, err
	}
	was := l.last
	d := first.Details
	d["digest"], d["keyedDigest"] = next.Digest, next.Keyed
	if was != nil {
		d["was"] = was.Digest
		d["maskedChanged"] = was.Digest == next.Digest && was.Keyed != next.Keyed
	}
	entries, known := []Edit(nil), was != nil
	if known {
		entries, known = l.entries(was, cfg, lines)
	}
	var edits []Edit
	restate := false
	if known {
		edits = diff(was.Text, lines)
		next.WholeAfter, next.Whole, next.Since = was.WholeAfter, was.Whole, was.Since+bytesOf(edits)+bytesOf(entries)
		next.Directory, next.Large = was.Directory, was.Large
		if len(entries) > 0 {
			next.keep(l.contacts(cfg))
		}
		restate = at.Whole || next.WholeAfter < at.Retired || next.Since > max(next.Whole, leastBytes)
		records = l.parts(first, edits, entries)
	}
	if !known || restate {
		listed, whole := l.contacts(cfg), first
		if known && len(edits)+len(entries) == 0 {
			records = nil
		} else if known {
			whole = &audit.Record{ID: l.o.NewID(), ActionType: first.ActionType, Event: first.Event, PolicyRevision: first.PolicyRevision, Details: map[string]any{
				"by": d["by"], "file": d["file"], "digest": next.Digest, "keyedDigest": next.Keyed, "was": next.Digest,
			}}
		}
		whole.Details["whole"] = true
		edits, entries = diff(nil, lines), diff(nil, listed)
		next.keep(listed)
		next.WholeAfter, next.Whole, next.Since = at.Head, bytesOf(edits)+bytesOf(entries), 0
		records = append(records, l.parts(whole, edits, entries)...)
	}
	value, err := json.Marshal(&next)
	if err != nil {
		return nil, nil, nil, fmt.Errorf("cannot keep which configuration is on record: %w", err)
	}
	return records, store.Meta{Key: metaName, Value: value}, func() { l.last, l.listed = &next, cfg.Listed }, nil
}

// keep keeps the entries of the directory file, where they are few.
func (n *last) keep(entries []string) {
	n.Directory, n.Large = entries, false
	total := 0
	for _, line := range entries {
		if total += len(line); total > keptBytes {
			n.Directory, n.Large = nil, true
			return
		}
	}
}

// entries returns the edits of the directory file's entries, and false where the former ones
// are not known.
func (l *Log) entries(was *last, cfg *config.Config, lines []string) (edits []Edit, known bool) {
	if pin(was.Text) == pin(lines) {
		return nil, true
	}
	if l.listed != nil {
		begin, gone, come := config.ListedChange(l.listed, cfg.Listed)
		edits = diff(l.lines(gone), l.lines(come))
		for i := range edits {
			edits[i].Line += begin
		}
		return edits, true
	}
	if was.Large {
		return nil, false
	}
	return diff(was.Directory, l.contacts(cfg)), true
}

// parts puts edits into records, of which the first is given.
func (l *Log) parts(first *audit.Record, edits, entries []Edit) []*audit.Record {
	records, room := []*audit.Record{first}, partBytes
	add := func(member string, list []Edit) {
		for _, some := range split(list, partBytes) {
			needed := sizeOf(some)
			if needed > room {
				records = append(records, &audit.Record{ID: l.o.NewID(), ActionType: first.ActionType, Event: first.Event, PolicyRevision: first.PolicyRevision,
					Details: map[string]any{"by": first.Details["by"], "digest": first.Details["digest"]}})
				room = partBytes
			}
			if len(some) > 0 {
				records[len(records)-1].Details[member] = some
			}
			room -= needed
		}
	}
	add("configEdits", edits)
	add("directoryEdits", entries)
	for i, r := range records {
		r.Details["part"], r.Details["parts"] = i+1, len(records)
	}
	return records
}

// document is the first document of a configuration.
func (l *Log) document(cfg *config.Config) ([]string, error) {
	shown, err := cfg.Redacted()
	if err != nil {
		return nil, err
	}
	lines := strings.Split(strings.TrimSuffix(string(shown), "\n"), "\n")
	if digest, entries := cfg.ListedDigest(); digest != "" {
		lines = append(lines, fmt.Sprintf("%s%s, %d entries", pinned, digest, entries))
	}
	for i := range lines {
		lines[i] = l.line(lines[i])
	}
	return lines, nil
}

// pinned begins the line that says which directory file belongs to a configuration.
const pinned = "# directory_file: "

// pin is that line, "" where there is none.
func pin(lines []string) string {
	if len(lines) > 0 && strings.HasPrefix(lines[len(lines)-1], pinned) {
		return lines[len(lines)-1]
	}
	return ""
}

// contacts are the lines of the second document of a configuration.
func (l *Log) contacts(cfg *config.Config) []string { return l.lines(cfg.Listed) }

func (l *Log) lines(contacts []config.Contact) []string {
	lines := make([]string, len(contacts))
	for i := range contacts {
		shown := contacts[i].Shown()
		// A contact is strings and lists of them.
		encoded, _ := json.Marshal(&shown)
		lines[i] = l.line(string(encoded))
	}
	return lines
}

// line is a line as it is on record.
func (l *Log) line(s string) string {
	if l.o.Redact != nil {
		s = l.o.Redact(s)
	}
	if len(s) > maxLine {
		sum := sha256.Sum256([]byte(s))
		s = fmt.Sprintf("%s… (%d bytes, sha256:%x)", text.Clip(s, maxLine), len(s), sum)
	}
	return strings.ToValidUTF8(s, "\ufffd")
}

// keyed is the keyed digest of a configuration with its secrets.
func (l *Log) keyed(cfg *config.Config) (string, error) {
	whole, err := cfg.Whole()
	if err != nil {
		return "", err
	}
	listed, _ := cfg.ListedDigest()
	mac := hmac.New(sha256.New, l.o.Key)
	fmt.Fprintf(mac, "configuration\n%s\n%s", listed, whole)
	return "hmac-sha256:" + hex.EncodeToString(mac.Sum(nil)), nil
}

// join is a document as it is printed.
func join(lines []string) string {
	if len(lines) == 0 {
		return ""
	}
	return strings.Join(lines, "\n") + "\n"
}

// digestOf is the SHA-256 of a document as it is printed.
func digestOf(lines []string) string {
	sum := sha256.Sum256([]byte(join(lines)))
	return "sha256:" + hex.EncodeToString(sum[:])
}

func bytesOf(edits []Edit) (n int) {
	for _, e := range edits {
		for _, line := range slices.Concat(e.Was, e.Now) {
			n += len(line) + 1
		}
	}
	return n
}
