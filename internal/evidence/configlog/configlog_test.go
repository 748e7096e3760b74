package configlog

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/config"
	"github.com/openclawos/ocipd/internal/store"
)

// For any two documents, the edits lead from one to the other and back, also after they were split
// into parts that fit into records.
func TestEditsLeadThereAndBack(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	document := func() (doc []string) {
		for range random.IntN(30) {
			doc = append(doc, fmt.Sprintf("%d%s", random.IntN(12), strings.Repeat("x", random.IntN(40))))
		}
		return doc
	}
	for range 5000 {
		was, now := document(), document()
		if random.IntN(2) == 0 {
			now = slices.Clone(was)
			for range random.IntN(4) {
				at := random.IntN(len(now) + 1)
				now = slices.Insert(now, at, document()...)
				now = slices.Delete(now, at, min(len(now), at+random.IntN(5)))
			}
		}
		edits := diff(was, now)
		cut := slices.Concat(split(edits, 150)...)
		for _, list := range [][]Edit{edits, cut} {
			doc := applied(t, slices.Clone(was), list)
			if !slices.Equal(doc, now) {
				t.Fatalf("from %q to %q: %q", was, now, doc)
			}
			doc = applied(t, doc, undone(list))
			if !slices.Equal(doc, was) {
				t.Fatalf("from %q back to %q: %q", now, was, doc)
			}
		}
	}
	long := []string{"a", "b", "c", "d", "e", "f"}
	moved := []string{"a", "c", "d", "b", "e", "g"}
	if edits := diff(long, moved); len(edits) != 3 {
		t.Errorf("too much is replaced: %+v", edits)
	}
}

// place is a log with recorded configurations.
type place struct {
	*testing.T
	dir   string
	lines [][]byte
	head  audit.Head
	meta  []byte
	log   *Log
	ids   int
	// digests are those in force after each record.
	digests []string
	texts   map[string]string
}

func newPlace(t *testing.T) *place {
	p := &place{T: t, dir: t.TempDir(), texts: map[string]string{}}
	p.start()
	return p
}

// start starts a daemon that has only the database's value.
func (p *place) start() {
	p.log = New(Options{NewID: func() string { p.ids++; return fmt.Sprint("id", p.ids) }, Key: []byte("key")}, p.meta)
}

func (p *place) add(r *audit.Record) {
	p.Helper()
	body, err := audit.Encode(r)
	if err != nil {
		p.Fatal(err)
	}
	var line []byte
	line, p.head = p.head.Seal(nil, time.Date(2026, 3, 13, 10, 0, len(p.lines), 0, time.UTC), body)
	if len(line) > partBytes+16<<10 {
		p.Errorf("record %d has %d bytes", p.head.Seq, len(line))
	}
	p.lines = append(p.lines, line)
	digest := ""
	if len(p.digests) > 0 {
		digest = p.digests[len(p.digests)-1]
	}
	p.digests = append(p.digests, digest)
}

// note records a configuration, and returns its records.
func (p *place) note(yaml string, listing []string, at Place) []audit.Entry {
	p.Helper()
	file := filepath.Join(p.dir, "ocipd.yaml")
	if listing != nil {
		yaml += "directory_file: people.jsonl\n"
		if err := os.WriteFile(filepath.Join(p.dir, "people.jsonl"), []byte(join(listing)), 0o600); err != nil {
			p.Fatal(err)
		}
	}
	if err := os.WriteFile(file, []byte(yaml), 0o600); err != nil {
		p.Fatal(err)
	}
	cfg, err := config.Load(config.Options{File: file})
	if err != nil {
		p.Fatal(err)
	}
	at.Head = p.head.Seq
	first := &audit.Record{ID: "first", ActionType: audit.ActionConfigChange, Event: "loaded", Details: map[string]any{"by": "start", "file": file}}
	records, part, done, err := p.log.Note(first, cfg, at)
	if err != nil {
		p.Fatal(err)
	}
	var entries []audit.Entry
	for _, r := range records {
		p.add(r)
		e, err := audit.Parse(p.lines[len(p.lines)-1])
		if err != nil {
			p.Fatal(err)
		}
		entries = append(entries, e)
		if e.Details["part"] == e.Details["parts"] {
			p.digests[len(p.digests)-1] = e.Details["digest"].(string)
		}
	}
	p.meta = part.(store.Meta).Value
	done()
	digest := entries[0].Details["digest"].(string)
	p.texts[digest] = strings.Join(listing, "\n")
	// A decision under it.
	p.add(&audit.Record{ID: "d", ActionType: audit.ActionExchange})
	return entries
}

// replays checks the configuration that is found for each record from one on.
func (p *place) replays(from int) {
	p.Helper()
	for target := from; target < len(p.lines); target++ {
		r := NewReplay(uint64(target + 1))
		for i, line := range p.lines[from:] {
			more, err := r.Add(uint64(from+i+1), line)
			if err != nil {
				p.Fatal(err)
			}
			if !more {
				break
			}
		}
		found, err := r.InForce()
		if want := p.digests[target]; want == "" {
			if err == nil {
				p.Errorf("at record %d of %d: %s", target+1, from, found.Digest)
			}
		} else if err != nil || found.Digest != want || digestOf(strings.Split(strings.TrimSuffix(found.Text, "\n"), "\n")) != want || len(found.Directory) != strings.Count(p.texts[want], "{") {
			p.Errorf("at record %d, from %d on: %s, %v, want %s; %d entries", target+1, from+1, found.Digest, err, want, len(found.Directory))
		}
	}
}

const alice = "agents:\n  - {id: alice, app: \"@acme/alice\", instance_id: agent-alice-1, user_id: alice, org_unit: engineering, tenant_id: acme-corp, max_rounds: %d}\n"

func people(n int, accepts string) (list []string) {
	for i := range n {
		list = append(list, fmt.Sprintf(`{"kind":"agent","instance_id":"agent-%07d","user_id":"u%d","org_unit":"sales","tenant_id":"acme-corp","accepts":["%s"],"sessions":["telegram:%d"]}`, i, i, accepts, i))
	}
	return list
}

// The first configuration is recorded as a whole and each later one as the difference, also over
// starts of the daemon. Each of them is found again from the records alone, even if the first
// records are gone.
func TestConfigurationAtEachRecord(t *testing.T) {
	p := newPlace(t)
	p.add(&audit.Record{ID: "before", ActionType: audit.ActionSecurity})
	first := p.note(fmt.Sprintf(alice, 3), nil, Place{})
	if d := first[0].Details; len(first) != 1 || d["whole"] != true || d["was"] != nil {
		t.Errorf("the first is %v", d)
	}
	p.start()
	same := p.note(fmt.Sprintf(alice, 3), nil, Place{})
	if d := same[0].Details; len(same) != 1 || d["whole"] != nil || d["configEdits"] != nil || d["was"] != d["digest"] || d["maskedChanged"] != false {
		t.Errorf("the same is %v", d)
	}
	other := p.note(fmt.Sprintf(alice, 500), nil, Place{})
	if d := other[0].Details; len(other) != 1 || d["whole"] != nil || fmt.Sprint(d["configEdits"]) == "" || d["was"] == d["digest"] || !bytes.Contains(p.lines[len(p.lines)-2], []byte("500")) {
		t.Errorf("another is %v", d)
	}
	p.note(fmt.Sprintf(alice, 500), people(4, "public"), Place{})
	p.start()
	// Changed while no daemon ran: one entry.
	changed := people(5, "public")
	changed[2] = strings.Replace(changed[2], "public", "restricted", 1)
	if e := p.note(fmt.Sprintf(alice, 500), changed, Place{}); len(e) != 1 || e[0].Details["whole"] != nil || bytes.Count(p.lines[len(p.lines)-2], []byte("agent-0000002")) != 2 || bytes.Contains(p.lines[len(p.lines)-2], []byte("agent-0000001")) {
		t.Errorf("one entry: %v", e[0].Details)
	}
	secret := "channels:\n  telegram: {token: %s}\n"
	p.note(fmt.Sprintf(alice, 500)+fmt.Sprintf(secret, "one"), nil, Place{})
	if e := p.note(fmt.Sprintf(alice, 500)+fmt.Sprintf(secret, "two"), nil, Place{}); e[0].Details["maskedChanged"] != true || bytes.Contains(p.lines[len(p.lines)-2], []byte("two")) {
		t.Errorf("another secret: %v", e[0].Details)
	}
	p.replays(0)
	// The whole configuration is about to be removed.
	if !p.log.Goes(2) || p.log.Goes(0) {
		t.Error("it does not know where the whole is")
	}
	gone := len(p.lines) - 3
	again := p.note(fmt.Sprintf(alice, 500)+fmt.Sprintf(secret, "two"), nil, Place{Whole: true})
	if d := again[0].Details; len(again) != 1 || d["whole"] != true || d["was"] != d["digest"] {
		t.Errorf("as a whole again: %v", d)
	}
	if p.log.Goes(uint64(gone)) {
		t.Error("the whole is not the new one")
	}
	p.note(fmt.Sprintf(alice, 7), nil, Place{})
	for from := range p.lines {
		if strings.Contains(string(p.lines[from]), `"part"`) || from > len(p.lines)-4 {
			continue
		}
		p.replays(from)
	}
	p.start()
	if e := p.note(fmt.Sprintf(alice, 8), nil, Place{Retired: p.head.Seq}); len(e) != 2 || e[0].Details["whole"] != nil || e[1].Details["whole"] != true {
		t.Errorf("after a retention: %v", e)
	}
	p.replays(0)
}

// A large directory file takes several records. If it was changed while no daemon ran, it is
// recorded again; otherwise its difference is.
func TestLargeDirectoryOnRecord(t *testing.T) {
	p := newPlace(t)
	if e := p.note(fmt.Sprintf(alice, 3), people(12_000, "public"), Place{}); len(e) < 6 || e[0].Details["parts"] != float64(len(e)) {
		t.Errorf("it stands in %d records", len(e))
	}
	if e := p.note(fmt.Sprintf(alice, 3), people(12_001, "public"), Place{}); len(e) != 1 {
		t.Errorf("one more entry takes %d records", len(e))
	}
	p.start()
	if e := p.note(fmt.Sprintf(alice, 3), people(12_002, "public"), Place{}); len(e) < 6 || e[0].Details["whole"] != true {
		t.Errorf("after a start it stands in %d records", len(e))
	}
	p.start()
	if e := p.note(fmt.Sprintf(alice, 4), people(12_002, "public"), Place{}); len(e) != 1 {
		t.Errorf("what is unchanged takes %d records", len(e))
	}
	p.replays(0)
}

// Records that contradict each other are named.
func TestReplayFindsContradictions(t *testing.T) {
	p := newPlace(t)
	p.note(fmt.Sprintf(alice, 3), nil, Place{})
	kept := p.meta
	p.note(fmt.Sprintf(alice, 4), nil, Place{})
	// Somebody has reset the database to an earlier value.
	p.meta = kept
	p.start()
	p.note(fmt.Sprintf(alice, 5), nil, Place{})
	r := NewReplay(p.head.Seq)
	for i, line := range p.lines {
		if _, err := r.Add(uint64(i+1), line); err != nil {
			if !strings.Contains(err.Error(), "goes on from a configuration that was not the one in force before it") {
				t.Error(err)
			}
			return
		}
	}
	t.Error("nothing is found")
}

// applied returns a document after edits.
func applied(t *testing.T, doc []string, list []Edit) []string {
	t.Helper()
	for _, e := range list {
		next, err := e.apply(doc)
		if err != nil {
			t.Fatal(err)
		}
		doc = next
	}
	return doc
}
