// Package configlog records the configuration in force, as a whole or as the difference to the one
// before it. From the records alone it finds out which one was in force at any record.
//
// The records contain a configuration as two documents. The first is its YAML with secrets masked,
// as people see it, with the digest of the directory file in its last line. The second has the
// entries of the directory file, each as a line of JSON. A [Log] makes the records. The caller
// commits them, together with the part from [Log.Note], before any decision under the
// configuration. A [Replay] reads them.
package configlog

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/go-json-experiment/json"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/base/text"
	"github.com/openclawos/ocipd/internal/config"
	"github.com/openclawos/ocipd/internal/ocip/directory/entries"
	"github.com/openclawos/ocipd/internal/store"
)

const (
	// partBytes is approximately the size of a configuration's part in one record.
	partBytes = 256 << 10
	// maxLine bounds the bytes of one line in a record.
	maxLine = 64 << 10
	// keptBytes bounds the size of a directory file whose entries are kept, to find changes at the
	// next start that were made while the daemon was stopped. If a larger file was changed then,
	// all entries are recorded again.
	keptBytes = 1 << 20
	// leastBytes is the least size of differences after which a configuration is recorded as a
	// whole again. If the last whole one was larger, its size is the limit.
	leastBytes = 1 << 20
)

// metaName is the name of the database's value with the last recorded configuration.
const metaName = "configuration"

// MetaName is the name of the database's value that [New] reads.
func MetaName() string { return metaName }

// Options configure a log.
type Options struct {
	NewID func() string
	// Redact removes text from a line that the operator wants kept out of the log. Several goroutines
	// call it at once. May be nil.
	Redact func(string) string
	// Key is a secret of this daemon, for a digest that includes the masked values.
	Key []byte
}

// last is the last recorded configuration, in the form of the database.
type last struct {
	Text []string `json:"text"`
	// Directory is absent for a large directory file.
	Directory []string `json:"directory,omitempty"`
	Large     bool     `json:"large,omitzero"`
	Digest    string   `json:"digest"`
	Keyed     string   `json:"keyed"`
	// WholeAfter is a record before the last one with a whole configuration. Whole is the size of
	// that configuration in bytes, and Since that of the differences after it.
	WholeAfter uint64 `json:"wholeAfter"`
	Whole      int    `json:"whole"`
	Since      int    `json:"since"`
}

// Log makes the records of configurations. It is for one caller at a time.
type Log struct {
	o    Options
	last *last
	// listed are the last recorded entries of the directory file, as far as they are known.
	listed *entries.List
}

// New starts from the last recorded configuration in the database's value, which is empty at the
// first start. An unreadable value counts as none: then everything is recorded again.
func New(o Options, value []byte) *Log {
	l := &Log{o: o}
	var kept last
	if len(value) > 0 && json.Unmarshal(value, &kept) == nil && kept.Digest == digestOf(kept.Text) {
		l.last = &kept
	}
	return l
}

// Digest returns the digest of the last recorded configuration, or "".
func (l *Log) Digest() string {
	if l.last == nil {
		return ""
	}
	return l.last.Digest
}

// Found continues from the configuration that the records lead to, in place of the database's value.
func (l *Log) Found(c *InForce) {
	next := last{Text: strings.Split(strings.TrimSuffix(c.Text, "\n"), "\n"), Digest: c.Digest}
	next.keep(c.Directory)
	l.last = &next
}

// Former returns the last recorded configuration as YAML, or "".
func (l *Log) Former() string {
	if l.last == nil {
		return ""
	}
	return join(l.last.Text)
}

// Goes reports whether the last record with a whole configuration may be among the records up to
// that number, which are about to be removed.
func (l *Log) Goes(upTo uint64) bool { return l.last != nil && l.last.WholeAfter < upTo }

// Place is the position of the next records in the log.
type Place struct {
	// Head is the last record of the log, or an earlier one. Retired is the last one that retention
	// removed.
	Head, Retired uint64
	// Whole requests the whole configuration.
	Whole bool
}

// Note returns the records of a configuration that is about to be in force. The first is the given
// one, with additions. The part belongs into their commit. The caller calls done after the commit
// is durable.
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

// keep keeps the entries of the directory file if there are few.
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

// entries returns the edits of the directory file's entries, or false if the former entries are
// unknown.
func (l *Log) entries(was *last, cfg *config.Config, lines []string) (edits []Edit, known bool) {
	if pin(was.Text) == pin(lines) {
		return nil, true
	}
	if l.listed != nil {
		begin, gone, come := config.ListedChange(l.listed, cfg.Listed)
		edits = diff(l.linesOf(gone), l.linesOf(come))
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

// parts distributes edits over records, of which the first is given.
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

// document returns the first document of a configuration.
func (l *Log) document(cfg *config.Config) ([]string, error) {
	shown, err := cfg.Redacted()
	if err != nil {
		return nil, err
	}
	lines := strings.Split(strings.TrimSuffix(string(shown), "\n"), "\n")
	if roster := cfg.Fleet.Line(); roster != "" {
		lines = append(lines, "# fleet.roster: "+roster)
	}
	if digest, entries := cfg.ListedDigest(); digest != "" {
		lines = append(lines, fmt.Sprintf("%s%s, %d entries", pinned, digest, entries))
	}
	for i := range lines {
		lines[i] = l.line(lines[i])
	}
	return lines, nil
}

// pinned begins the line with the digest of the configuration's directory file.
const pinned = "# directory_file: "

// pin returns that line, or "".
func pin(lines []string) string {
	if len(lines) > 0 && strings.HasPrefix(lines[len(lines)-1], pinned) {
		return lines[len(lines)-1]
	}
	return ""
}

// contacts returns the lines of the second document of a configuration.
func (l *Log) contacts(cfg *config.Config) []string {
	return l.lines(cfg.Listed.Len(), func(i int) config.Contact { return config.Contact(cfg.Listed.At(i)) })
}

func (l *Log) linesOf(some []config.Contact) []string {
	return l.lines(len(some), func(i int) config.Contact { return some[i] })
}

func (l *Log) lines(n int, at func(i int) config.Contact) []string {
	lines := make([]string, n)
	// Each line is looked through for secrets, so every processor takes a share of a long directory.
	share := max(1000, (n+runtime.GOMAXPROCS(0)-1)/runtime.GOMAXPROCS(0))
	var writers sync.WaitGroup
	for from := 0; from < n; from += share {
		writers.Go(func() {
			for i := from; i < min(from+share, n); i++ {
				shown := at(i).Shown()
				// A contact has only strings and lists of strings, so this cannot fail.
				encoded, _ := json.Marshal(&shown)
				lines[i] = l.line(string(encoded))
			}
		})
	}
	writers.Wait()
	return lines
}

// line returns a line in its recorded form.
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

// keyed returns the keyed digest of a configuration with its secrets.
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

// join returns a document in its printed form.
func join(lines []string) string {
	if len(lines) == 0 {
		return ""
	}
	return strings.Join(lines, "\n") + "\n"
}

// digestOf returns the SHA-256 of a document in its printed form.
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
