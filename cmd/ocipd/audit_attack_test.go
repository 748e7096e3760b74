package main

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/cli"
	"github.com/openclawos/ocipd/internal/evidence/checkpoints"
	"github.com/openclawos/ocipd/test/buildtest"
	"golang.org/x/mod/sumdb/note"
)

// TestAttacks attacks copies of a real log like somebody who has everything but the private
// key and others' copies. The program must find each attack, and name the first bad record.
func TestAttacks(t *testing.T) {
	s := newScene(t)
	for _, sweep := range []struct {
		name string
		run  func(*scene)
	}{
		{"every bit", (*scene).everyBit},
		{"every cut", (*scene).everyCut},
		{"every record", (*scene).everyRecord},
		{"files", (*scene).everyFile},
		{"database", (*scene).everyPage},
		{"receipt", (*scene).everyBitOfAReceipt},
		{"independent", (*scene).agree},
	} {
		t.Run(sweep.name, func(t *testing.T) {
			if buildtest.Raced {
				t.Skip("thousands of changes one after another, in which nothing can race: make test makes them without the race detector")
			}
			sweep.run(s.on(t))
		})
	}
	t.Run("untouched", func(t *testing.T) { s.on(t).untouched() })
	t.Run("remnants", func(t *testing.T) { s.on(t).remnants() })
	t.Run("own log", func(t *testing.T) { s.on(t).ownLog() })
	samples := &samples{scene: s}
	for _, a := range s.attacks() {
		t.Run(a.name, func(t *testing.T) { samples.run(s.on(t), a) })
	}
	t.Run("example", func(t *testing.T) { s.on(t).example() })
	t.Run("documented", func(t *testing.T) { samples.documented(t) })
}

// on is the scene for a part of the test.
func (s *scene) on(t *testing.T) *scene {
	part := *s
	part.T = t
	return &part
}

// verifier knows all facts about the log.
func (s *scene) verifier() *audit.Verifier {
	s.Helper()
	v, err := audit.NewVerifier(audit.Proof{Keys: []note.Verifier{s.public}, Held: s.held})
	if err != nil {
		s.Fatal(err)
	}
	return v
}

// untouched checks that every copy of the log is good, with any of its keys.
func (s *scene) untouched() {
	for _, args := range [][]string{
		{"--key", "log.pub", "--checkpoints", "outside.jsonl", "--with-receipts", "held.jsonl", "--with-receipts", "receipts", "state"},
		{"--key", "old.pub", "--checkpoints", "then.jsonl", "older"},
		{"--key", "old.pub", "--checkpoints", "outside.jsonl", "--with-receipts", "held.jsonl", "state"},
		{"--key", "log.pub", "--checkpoints", "outside.jsonl", "retired"},
		{"--key", "log.pub", "--checkpoints", "outside.jsonl", "--tombstone", "retired/audit-tombstone.note", "retired"},
		{"--key", "log.pub", "--checkpoints", "outside.jsonl", "--with-receipts", "held.jsonl", "--database", "state/ocipd.db"},
		{"--key", "log.pub", "--checkpoints", "outside.jsonl", "--database", "retired/ocipd.db"},
		{"--key", "elsewhere/keys/checkpoint.pub", "elsewhere"},
		{"state"},
	} {
		code, stdout, stderr := s.ocipd(append([]string{"audit", "verify"}, args...)...)
		if code != cli.ExitDone || !strings.Contains(stdout, ": intact, ") || stderr != "" {
			s.Errorf("%q exits %d:\n%s%s", args, code, stdout, stderr)
		}
	}
	points, rotations := 0, 0
	for _, line := range s.lines {
		if bytes.Contains(line, []byte(`"actionType":"checkpoint"`)) {
			points++
		}
		if bytes.Contains(line, []byte(`"event":"key_rotated"`)) {
			rotations++
		}
	}
	if points < 5 || rotations != 1 || len(s.held) < 4 {
		s.Errorf("%d checkpoints, %d rotations, %d held", points, rotations, len(s.held))
	}
	s.Logf("%d records, %d bytes, %d segments, %d checkpoints", len(s.lines), len(logText(s.lines)), len(s.segments("state")), points)
}

// everyBit changes every bit of the log. A changed line is refused in its place, whatever follows it.
func (s *scene) everyBit() {
	v := s.verifier()
	for i, line := range s.lines {
		changed := bytes.Clone(line)
		for at := range line {
			for bit := range 8 {
				changed[at] = line[at] ^ 1<<bit
				// A newline in it makes two lines.
				first, _, _ := bytes.Cut(changed, []byte("\n"))
				if v.Add(first) == nil {
					s.Fatalf("bit %d of byte %d of record %d changed, and it is good", bit, at, i+1)
				}
			}
			changed[at] = line[at]
		}
		// The newline itself: then the next line is part of this one.
		if i+1 < len(s.lines) && v.Add(slices.Concat(line, []byte("x"), s.lines[i+1])) == nil {
			s.Fatalf("record %d without its newline is good", i+1)
		}
		if err := v.Add(line); err != nil {
			s.Fatal(err)
		}
	}
	if _, err := v.Finish(); err != nil {
		s.Fatal(err)
	}
}

// signedUpTo is the number of records of the newest checkpoint outside.
func (s *scene) signedUpTo() int {
	s.Helper()
	c, err := audit.OpenCheckpoint(s.held[len(s.held)-1])
	if !errors.Is(err, audit.ErrUnsigned) {
		s.Fatal(err)
	}
	return int(c.Size)
}

// everyCut cuts the log at every offset. Its end is then either a partial line, or before
// the end in a checkpoint.
func (s *scene) everyCut() {
	v, reach := s.verifier(), s.signedUpTo()
	for i, line := range s.lines {
		end := *v
		if _, err := end.Finish(); (err == nil) != (i >= reach) {
			s.Errorf("cut after record %d, where a checkpoint is of %d: %v", i, reach, err)
		}
		for at := range line {
			if v.Add(line[:at]) == nil {
				s.Fatalf("record %d, cut after %d bytes, is good", i+1, at)
			}
		}
		if err := v.Add(line); err != nil {
			s.Fatal(err)
		}
	}
	// A line that only lacks its newline.
	var torn audit.Verifier
	if _, err := torn.ReadFrom(bytes.NewReader(bytes.TrimSuffix(logText(s.lines), []byte("\n")))); err == nil {
		s.Error("without the last newline the log is good")
	}
	if reach != len(s.lines)-1 {
		s.Errorf("of %d records a checkpoint is of %d", len(s.lines), reach)
	}
}

// everyRecord drops, doubles, swaps, replaces and inserts every record, each unchanged and
// with a repaired chain.
func (s *scene) everyRecord() {
	reach := s.signedUpTo()
	check := func(what string, at int, lines [][]byte) {
		s.Helper()
		v := s.verifier()
		for _, line := range lines {
			if v.Add(line) != nil {
				return
			}
		}
		if _, err := v.Finish(); err == nil {
			s.Errorf("record %d %s, and the log is good", at+1, what)
		}
	}
	forged := []byte(`{"id":"forged","actionType":"agent_exchange","policyResult":"deny"}`)
	for i := range reach {
		before, line, after := s.lines[:i:i], s.lines[i], s.lines[i+1:]
		check("dropped", i, slices.Concat(before, after))
		check("doubled", i, slices.Concat(before, [][]byte{line, line}, after))
		check("swapped with the next", i, slices.Concat(before, [][]byte{after[0], line}, after[1:]))
		inserted := s.rewrite(before...)
		inserted.seal(inserted.head.Time, forged)
		check("has one inserted before it", i, slices.Concat(inserted.lines, s.lines[i:]))
		replaced := inserted.lines
		check("replaced", i, slices.Concat(replaced, after))
		check("dropped and all after it chained anew", i, s.rewrite(before...).again(after...).lines)
		check("replaced and all after it chained anew", i, inserted.again(after...).lines)
	}
}

// everyFile changes and cuts the files of a mirror.
func (s *scene) everyFile() {
	s.mirror("state", "copy")
	files, err := filepath.Glob("copy/*")
	if err != nil || len(files) < 5 {
		s.Fatalf("%q, %v", files, err)
	}
	for _, file := range files {
		whole, err := os.ReadFile(file)
		if err != nil {
			s.Fatal(err)
		}
		step := 1
		if len(whole) > 400 {
			step = len(whole)/9 | 1
		}
		if strings.Contains(file, "manifest") {
			step = 29
		}
		for at := 0; at < len(whole); at += step {
			changed := bytes.Clone(whole)
			changed[at] ^= 1
			s.write(file, string(changed))
			s.wantFault(fmt.Sprintf("byte %d of %s changed", at, file), "--key", "log.pub", "--checkpoints", "outside.jsonl", "copy")
			if strings.HasSuffix(file, "manifest.jsonl") {
				continue
			}
			s.write(file, string(whole[:at]))
			s.wantFault(fmt.Sprintf("%s cut after %d bytes", file, at), "--key", "log.pub", "--checkpoints", "outside.jsonl", "copy")
		}
		s.write(file, string(whole))
	}
	// Without a manifest a copy is as good as its lines.
	if err := os.Remove("copy/audit-manifest.jsonl"); err != nil {
		s.Fatal(err)
	}
	if code, stdout, stderr := s.ocipd("audit", "verify", "--key", "log.pub", "copy"); code != cli.ExitDone {
		s.Errorf("without a manifest: %d\n%s%s", code, stdout, stderr)
	}
	// A second file with the same records, of which a reader would read only one.
	segment := s.segments("copy")[1]
	plain := strings.TrimSuffix(segment, ".zst")
	lines := s.lines[s.firstOf(segment)-1 : s.firstOf(s.segments("copy")[2])-1]
	s.write(plain, string(logText(lines)))
	if code, stdout, stderr := s.ocipd("audit", "verify", "--key", "log.pub", "copy"); code != cli.ExitDone {
		s.Errorf("just compressed: %d\n%s%s", code, stdout, stderr)
	}
	s.copyFile(s.segments("copy")[0], segment)
	s.wantFault("a segment that hides behind an uncompressed one", "--key", "log.pub", "copy")
	s.mirror("state", "copy")
	s.write(fmt.Sprintf("copy/audit-%012d-%012d.jsonl", 1, 2), string(logText(s.lines[:2])))
	s.wantFault("a segment that hides behind a smaller one", "--key", "log.pub", "copy")
}

// wantFault runs a verification that must find a fault.
func (s *scene) wantFault(what string, args ...string) {
	s.Helper()
	code, stdout, stderr := s.ocipd(append([]string{"audit", "verify"}, args...)...)
	if code != cli.ExitFault || strings.Contains(stdout, "intact") || stderr == "" {
		s.Errorf("%s: exit %d\n%s%s", what, code, stdout, stderr)
	}
}

// everyPage changes bytes all over the database file. It passes only if every record is
// still there, byte for byte.
func (s *scene) everyPage() {
	whole, err := os.ReadFile("state/ocipd.db")
	if err != nil {
		s.Fatal(err)
	}
	verify := []string{"audit", "verify", "--key", "log.pub", "--checkpoints", "outside.jsonl", "--database", "copy.db"}
	faults, errs, intact := 0, 0, 0
	for at := 0; at < len(whole); at += len(whole)/200 | 1 {
		changed := bytes.Clone(whole)
		changed[at] ^= 0x11
		s.write("copy.db", string(changed))
		code, stdout, stderr := s.ocipd(verify...)
		switch {
		case code == cli.ExitFault && stderr != "":
			faults++
		case code == cli.ExitFailed && stdout == "" && stderr != "":
			errs++
		case code == cli.ExitDone:
			intact++
			if !s.exported("copy.db") {
				s.Errorf("byte %d changed, and what is found intact is another log", at)
			}
		default:
			s.Errorf("byte %d changed: exit %d\n%s%s", at, code, stdout, stderr)
		}
	}
	s.Logf("of %d changes %d are faults, %d cannot be read, and %d touch no record", faults+errs+intact, faults, errs, intact)
	if faults == 0 || intact == 0 {
		s.Error("the changes are too few")
	}
	// Some of the records, in each of their parts. Unused pages contain copies of some; a
	// long line continues in another page.
	for i := 0; i < len(s.lines); i += 15 {
		line := s.lines[i]
		for at := 0; at+24 <= len(line); at += len(line)/4 - 6 {
			piece := line[at : at+24]
			changed := bytes.Clone(piece)
			changed[12] ^= 1
			if !bytes.Contains(whole, piece) {
				continue
			}
			s.write("copy.db", string(bytes.ReplaceAll(whole, piece, changed)))
			if code, stdout, stderr := s.ocipd(verify...); code == cli.ExitDone || stderr == "" {
				s.Errorf("byte %d of record %d changed in the database: exit %d\n%s", at+12, i+1, code, stdout)
			}
		}
	}
	for _, size := range []int{0, 1, 100, 4096, len(whole) / 2, len(whole) - 4096, len(whole) - 1} {
		s.write("copy.db", string(whole[:size]))
		code, stdout, stderr := s.ocipd(verify...)
		if code == cli.ExitDone && s.exported("copy.db") || code != cli.ExitDone && stderr != "" {
			continue
		}
		s.Errorf("cut to %d bytes: exit %d\n%s%s", size, code, stdout, stderr)
	}
}

// remnants puts records before those of a log whose beginning was retired: only the genuine
// ones are permitted there.
func (s *scene) remnants() {
	s.mirror("retired", "copy")
	after := s.walk("copy")
	head, err := audit.HeadOf(after[0])
	if err != nil {
		s.Fatal(err)
	}
	first := int(head.Seq)
	for _, test := range []struct {
		what  string
		lines [][]byte
		good  bool
	}{
		{"the last of them", s.lines[first-4 : first-1], true},
		{"all of them", s.lines[:first-1], true},
		{"the last of them but one", s.lines[first-4 : first-2], false},
		{"one that was changed", [][]byte{bytes.Replace(s.lines[first-2], []byte(`"id":"`), []byte(`"iD":"`), 1)}, false},
		{"others with a chain of their own", s.rewrite().again(without(s.lines)[:5]...).lines, false},
	} {
		s.write("whole.jsonl", string(logText(test.lines))+string(logText(after)))
		args := []string{"audit", "verify", "--key", "log.pub", "--tombstone", "retired/audit-tombstone.note", "whole.jsonl"}
		if code, stdout, stderr := s.ocipd(args...); (code == cli.ExitDone) != test.good || code != cli.ExitDone && code != cli.ExitFault {
			s.Errorf("%s: exit %d\n%s%s", test.what, code, stdout, stderr)
		}
	}
}

// exported reports whether a database contains the log, byte for byte.
func (s *scene) exported(database string) bool {
	s.Helper()
	_, got, _ := s.ocipd("audit", "export", "--format", "jsonl", "--database", database)
	return got == string(logText(s.lines))
}

// everyBitOfAReceipt changes every bit of a receipt, of its record and of the
// key.
func (s *scene) everyBitOfAReceipt() {
	receipts, err := filepath.Glob("receipts/*.receipt")
	if err != nil || len(receipts) != 4 {
		s.Fatalf("%q, %v", receipts, err)
	}
	for n, receipt := range receipts {
		record := filepath.Join("records", strings.TrimSuffix(filepath.Base(receipt), ".receipt")+".json")
		args := func(receipt, record, key string) []string {
			return []string{"audit", "receipt", "--check", receipt, "--line", record, "--key", key}
		}
		if code, stdout, stderr := s.ocipd(args(receipt, record, "log.pub")...); code != cli.ExitDone || !strings.Contains(stdout, ": good, record ") {
			s.Fatalf("%s: exit %d\n%s%s", receipt, code, stdout, stderr)
		}
		if code, _, stderr := s.ocipd(args(receipt, record, "forger.pub")...); code != cli.ExitFault || !strings.Contains(stderr, "proves nothing: not signed by a known key") {
			s.Errorf("by another key: exit %d, %s", code, stderr)
		}
		if code, _, stderr := s.ocipd(args(receipt, "records/1.json", "log.pub")...); code != cli.ExitFault && record != "records/1.json" {
			s.Errorf("for another record: exit %d, %s", code, stderr)
		}
		// All bits of the first, and one of each byte of the others.
		bits := 8
		if n > 0 {
			bits = 1
		}
		for file, code := range map[string]int{receipt: cli.ExitFault, record: cli.ExitFault, "log.pub": cli.ExitUsage} {
			named := []string{receipt, record, "log.pub"}
			at := slices.Index(named, file)
			named[at] = "changed"
			whole := make([][]byte, len(named))
			for i, name := range []string{receipt, record, "log.pub"} {
				text, err := os.ReadFile(name)
				if err != nil {
					s.Fatal(err)
				}
				whole[i] = bytes.TrimSuffix(text, []byte("\n"))
			}
			whole[0] = append(whole[0], '\n')
			changed := bytes.Clone(whole[at])
			counts := len(changed)
			if at == 0 {
				// After its own checkpoint come those that hand over, which a holder of the
				// newest key does not need.
				parts := bytes.SplitAfterN(changed, []byte("\n\n"), 4)
				counts = len(changed) - len(parts[len(parts)-1])
				if len(parts) < 4 {
					s.Fatalf("the receipt lacks what hands over: %s", changed)
				}
				counts--
			}
			for i := range changed[:counts] {
				for bit := range bits {
					changed[i] ^= 1 << bit
					parts := slices.Clone(whole)
					parts[at] = changed
					if proves(s.public, parts[0], parts[1], parts[2]) {
						s.Fatalf("bit %d of byte %d of %s changed, and it proves the record", bit, i, file)
					}
					changed[i] ^= 1 << bit
				}
				if (i+7*n)%61 != 0 {
					continue
				}
				changed[i] ^= 1
				s.write("changed", string(changed)+"\n")
				got, stdout, stderr := s.ocipd(args(named[0], named[1], named[2])...)
				changed[i] ^= 1
				// A key in another format is refused, and one with another name has signed nothing.
				if got != code && (code != cli.ExitUsage || got != cli.ExitFault) || stderr == "" || strings.Contains(stdout, "good") {
					s.Fatalf("byte %d of %s: exit %d\n%s%s", i, file, got, stdout, stderr)
				}
			}
		}
	}
}

// proves reports whether a receipt proves a line of a log with a key's text; the key may be
// another log's.
func proves(log note.Verifier, receipt, line, key []byte) bool {
	k, err := note.NewVerifier(string(key))
	if err != nil {
		return false
	}
	var r audit.Receipt
	if r.UnmarshalText(receipt) != nil {
		return false
	}
	if _, err = r.Check(line, k); err != nil {
		return false
	}
	// The hash in a key's text may be in capitals: it is the same key then.
	_, published, _ := bytes.Cut(key, []byte("+"))
	return !bytes.ContainsAny(published[:8], "ABCDEF") || k.KeyHash() != log.KeyHash()
}

// ownLog checks a daemon's own log, with everything to compare it with beside it: a missing
// file must not pass for one that never existed.
func (s *scene) ownLog() {
	verify := func(code int, says string, change func()) {
		s.Helper()
		s.copyDir("state", "home/openclawos")
		s.copyFile("outside.jsonl", "home/openclawos/audit-checkpoints.jsonl")
		change()
		home, err := filepath.Abs("home")
		if err != nil {
			s.Fatal(err)
		}
		var out, complaints bytes.Buffer
		got := run(s.Context(), []string{"audit", "verify"}, strings.NewReader(""), &out, &complaints, []string{"HOME=" + home, "XDG_STATE_HOME=" + home, "TZ=UTC"})
		if got != code || !strings.Contains(out.String()+complaints.String(), says) {
			s.Errorf("exit %d, want %d and %q:\n%s%s", got, code, says, &out, &complaints)
		}
	}
	remove := func(name string) func() {
		return func() {
			s.Helper()
			if err := os.RemoveAll("home/openclawos/" + name); err != nil {
				s.Fatal(err)
			}
		}
	}
	verify(cli.ExitDone, "home/openclawos/audit-checkpoints.jsonl: they hold the log up to record ", func() {})
	verify(cli.ExitDone, "keys/checkpoint.newest: it holds the log up to record ", remove("audit-checkpoints.jsonl"))
	verify(cli.ExitDone, "keys/checkpoint.newest: it holds the log up to record ", func() { s.write("home/openclawos/audit-checkpoints.jsonl", "") })
	verify(cli.ExitDone, "compared with no checkpoint from outside", func() { remove("audit-checkpoints.jsonl")(); remove("keys/checkpoint.newest")() })
	verify(cli.ExitFault, "there is no public key in ", remove("keys"))
	verify(cli.ExitFault, "no checkpoint in the log is signed by the key", func() { s.copyFile("forger.pub", "home/openclawos/keys/checkpoint.pub") })
	verify(cli.ExitFailed, "it holds no public key", func() { s.write("home/openclawos/keys/checkpoint.pub", "nothing\n") })
	verify(cli.ExitFault, "the log ends before it", remove("audit.jsonl"))
}

// attack is one change to a copy of the log.
type attack struct {
	name string
	// change makes the change in the directory copy, and returns the first bad record, or 0
	// if no record is bad.
	change func(s *scene) (seq int)
	// args follow `ocipd audit verify`.
	args []string
	says string
	// passes marks an attack that nothing in the log can show.
	passes bool
}

// Arguments of verify.
func withKey(more ...string) []string { return append([]string{"--key", "log.pub"}, more...) }

func heldAgainst(more ...string) []string {
	return withKey(append([]string{"--checkpoints", "outside.jsonl"}, more...)...)
}

// attacks are those in the documentation, in order.
func (s *scene) attacks() []attack {
	copied := func(change func(s *scene) int) func(*scene) int {
		return func(s *scene) int {
			s.Helper()
			s.mirror("state", "copy")
			return change(s)
		}
	}
	live := func(change func(lines [][]byte) [][]byte) func(*scene) int {
		return copied(func(s *scene) int {
			s.Helper()
			s.edit("copy/audit.jsonl", func(log []byte) []byte {
				return logText(change(bytes.Split(bytes.TrimSuffix(log, []byte("\n")), []byte("\n"))))
			})
			return int(s.firstOf("state/audit.jsonl")) + 1
		})
	}
	rewritten := func(write func(s *scene) (c *chained, seq int)) func(*scene) int {
		return func(s *scene) int {
			s.Helper()
			c, seq := write(s)
			c.put("copy")
			return seq
		}
	}
	deny := func(line []byte) []byte {
		return bytes.Replace(line, []byte(`"policyResult":"deny"`), []byte(`"policyResult":"allow"`), 1)
	}
	denial := lastWhere(s.T, s.lines, `"policyResult":"deny"`)
	rotation := lastWhere(s.T, s.lines, `"event":"key_rotated"`)
	started := lastWhere(s.T, s.lines, `"event":"daemon_started"`)
	// point is the index of the first checkpoint after an index.
	point := func(after int) int {
		return after + slices.IndexFunc(s.lines[after:], func(line []byte) bool { return bytes.Contains(line, []byte(`"actionType":"checkpoint"`)) })
	}
	last := len(s.lines) - 1
	return []attack{
		{name: "nothing", args: heldAgainst("copy"), says: "consistent with", change: copied(func(*scene) int { return 0 }), passes: true},
		{
			name: "a byte changed", args: heldAgainst("copy"), says: "its content does not match its hash: changed after it was written",
			change: live(func(lines [][]byte) [][]byte {
				lines[1] = bytes.Replace(lines[1], []byte(`"id":"`), []byte(`"iD":"`), 1)
				return lines
			}),
		},
		{
			name: "a byte of a segment changed", args: heldAgainst("copy"), says: "the segment cannot be read",
			change: copied(func(s *scene) int {
				segment := s.segments("copy")[1]
				s.edit(segment, func(b []byte) []byte { b[len(b)/2] ^= 1; return b })
				return int(s.firstOf(s.segments("state")[1]))
			}),
		},
		{
			name: "a denial made a permission, and its hash made right", args: heldAgainst("copy"), says: "names ",
			change: copied(func(s *scene) int {
				lines := slices.Clone(s.lines)
				lines[denial] = s.rewrite(lines[:denial]...).again(deny(lines[denial])).lines[denial]
				s.rewrite(lines...).put("copy")
				return denial + 2
			}),
		},
		{
			name: "a denial made a permission, and all that follows chained anew", args: withKey("copy"), says: "the records before it are not those its checkpoint was signed for: the log was rewritten",
			change: rewritten(func(s *scene) (*chained, int) {
				early := lastWhere(s.T, s.lines[:started], `"policyResult":"deny"`)
				return s.rewrite(s.lines[:early]...).again(deny(s.lines[early])).again(s.lines[early+1:]...), point(early) + 1
			}),
		},
		{
			name: "the same, held against nothing but checkpoints from outside", args: []string{"--checkpoints", "outside.jsonl", "copy"}, says: "are not those of a checkpoint that is held outside: the log was rewritten",
			change: rewritten(func(s *scene) (*chained, int) {
				early := lastWhere(s.T, s.lines[:started], `"policyResult":"deny"`)
				return s.rewrite(s.lines[:early]...).again(deny(s.lines[early])).again(without(s.lines[early+1:])...), point(early)
			}),
		},
		{
			name: "a record dropped", args: heldAgainst("copy"), says: "stands here: records are missing or moved",
			change: live(func(lines [][]byte) [][]byte { return slices.Delete(lines, 1, 2) }),
		},
		{
			name: "a record inserted", args: heldAgainst("copy"), says: "names ",
			change: live(func(lines [][]byte) [][]byte {
				head, err := audit.HeadOf(lines[0])
				if err != nil {
					s.Fatal(err)
				}
				line, _ := audit.Head{Seq: head.Seq, Time: head.Time}.Seal(nil, head.Time, []byte(`{"id":"forged","actionType":"agent_exchange"}`))
				return slices.Insert(lines, 1, line)
			}),
		},
		{
			name: "two records swapped", args: heldAgainst("copy"), says: "stands here: records are missing or moved",
			change: live(func(lines [][]byte) [][]byte {
				lines[1], lines[2] = lines[2], lines[1]
				return lines
			}),
		},
		{
			name: "a record doubled", args: heldAgainst("copy"), says: "stands here again: doubled or moved",
			change: live(func(lines [][]byte) [][]byte { return slices.Insert(lines, 1, lines[0]) }),
		},
		{
			name: "a segment removed", args: heldAgainst("copy"), says: "is listed and is not there",
			change: copied(func(s *scene) int {
				segment := s.segments("copy")[1]
				seq := s.firstOf(segment)
				if err := os.Remove(segment); err != nil {
					s.Fatal(err)
				}
				return int(seq)
			}),
		},
		{
			name: "a segment removed, and its line in the manifest", args: heldAgainst("copy"), says: "are missing: no file holds them",
			change: copied(func(s *scene) int {
				segment := s.segments("copy")[1]
				seq := s.firstOf(segment)
				if err := os.Remove(segment); err != nil {
					s.Fatal(err)
				}
				s.unlist(segment)
				return int(seq)
			}),
		},
		{
			name: "the first segment removed", args: heldAgainst("copy"), says: "stands here: records are missing or moved",
			change: copied(func(s *scene) int {
				segment := s.segments("copy")[0]
				if err := os.Remove(segment); err != nil {
					s.Fatal(err)
				}
				s.unlist(segment)
				return 1
			}),
		},
		{
			name: "the first segment removed, with a tombstone of the attacker's", args: heldAgainst("copy"), says: "nothing that is signed says that they were retired",
			change: copied(func(s *scene) int {
				segment := s.segments("copy")[0]
				gone := s.rewrite(s.lines[:s.firstOf(s.segments("copy")[1])-1]...)
				if err := os.Remove(segment); err != nil {
					s.Fatal(err)
				}
				s.unlist(segment)
				tomb, err := audit.SignTombstone(s.public.Name(), gone.head, gone.frontier, s.forger)
				if err != nil {
					s.Fatal(err)
				}
				s.write(filepath.Join("copy", checkpoints.TombstoneFile), tomb.Signed)
				return 1
			}),
		},
		{
			name: "a tombstone changed", args: heldAgainst("copy"), says: "cannot be believed",
			change: func(s *scene) int {
				s.mirror("retired", "copy")
				s.edit(filepath.Join("copy", checkpoints.TombstoneFile), func(b []byte) []byte {
					// A digit of the hash of the last retired record.
					digit := &b[bytes.Index(b, []byte("\nchain "))+len("\nchain ")]
					if *digit == '0' || *digit == 'a' {
						*digit = '2'
					}
					*digit--
					return b
				})
				return 1
			},
		},
		{
			name: "records made up in the place of retired ones", args: heldAgainst("copy"), says: "records that the tombstone stands for",
			change: func(s *scene) int {
				s.mirror("retired", "copy")
				head, err := audit.HeadOf(s.walk("copy")[0])
				if err != nil {
					s.Fatal(err)
				}
				gone := int(head.Seq) - 1
				made := s.rewrite(s.lines[:gone-9]...).again(deny(s.lines[gone-8])).again(s.lines[gone-8 : gone]...)
				s.write(fmt.Sprintf("copy/audit-%012d-%012d.jsonl", 1, gone), string(logText(made.lines)))
				return gone
			},
		},
		{
			name: "the manifest changed", args: heldAgainst("copy"), says: "one of the two was changed",
			change: copied(func(s *scene) int {
				s.edit("copy/audit-manifest.jsonl", func(b []byte) []byte { return bytes.Replace(b, []byte(`"lastTime":"2`), []byte(`"lastTime":"3`), 1) })
				return 0
			}),
		},
		{
			name: "the tail cut in a line", args: heldAgainst("copy"), says: "cut short: no newline at the end",
			change: copied(func(s *scene) int {
				s.edit("copy/audit.jsonl", func(b []byte) []byte { return b[:len(b)-1000] })
				log, err := os.ReadFile("copy/audit.jsonl")
				if err != nil {
					s.Fatal(err)
				}
				return int(s.firstOf("state/audit.jsonl")) + bytes.Count(log, []byte("\n"))
			}),
		},
		{
			name: "the tail cut between lines", args: heldAgainst("copy"), says: "its tail was cut, or it is an older copy",
			change: copied(func(s *scene) int {
				s.edit("copy/audit.jsonl", func(b []byte) []byte {
					lines := bytes.SplitAfter(b, []byte("\n"))
					return bytes.Join(lines[:len(lines)-4], nil)
				})
				return last - 1
			}),
		},
		{
			name: "the tail cut after a checkpoint", args: heldAgainst("copy"), says: "its tail was cut, or it is an older copy",
			change: rewritten(func(s *scene) (*chained, int) {
				at := point(started)
				return s.rewrite(s.lines[:at+1]...), at + 2
			}),
		},
		{
			name: "an older copy in its place", args: heldAgainst("copy"), says: "its tail was cut, or it is an older copy",
			change: func(s *scene) int {
				s.mirror("older", "copy")
				return len(s.walk("older")) + 1
			},
		},
		{
			name: "an older copy, with the checkpoints that another daemon holds", args: withKey("--with-receipts", "held.jsonl", "copy"), says: "its tail was cut, or it is an older copy",
			change: func(s *scene) int {
				s.mirror("older", "copy")
				return len(s.walk("older")) + 1
			},
		},
		{
			name: "an older copy, with a receipt", args: withKey("--with-receipts", fmt.Sprintf("receipts/%d.receipt", last-1), "copy"), says: "its tail was cut, or it is an older copy",
			change: func(s *scene) int {
				s.mirror("older", "copy")
				return len(s.walk("older")) + 1
			},
		},
		{
			name: "the log emptied", args: withKey("copy"), says: "the log is empty",
			change: func(s *scene) int {
				s.rewrite().put("copy")
				return 1
			},
		},
		{
			name: "an empty directory", args: heldAgainst("copy"), says: "its tail was cut, or it is an older copy",
			change: func(s *scene) int {
				if err := errors.Join(os.RemoveAll("copy"), os.Mkdir("copy", 0o700)); err != nil {
					s.Fatal(err)
				}
				return 1
			},
		},
		{
			name: "everything written anew, without checkpoints", args: withKey("copy"), says: "no checkpoint in the log is signed by the key",
			change: rewritten(func(s *scene) (*chained, int) {
				c := s.rewrite().again(without(s.lines)...)
				return c, len(c.lines) + 1
			}),
		},
		{
			name: "everything written anew, with checkpoints of another key", args: withKey("copy"), says: "no checkpoint in the log is signed by the key",
			change: rewritten(func(s *scene) (*chained, int) {
				c := s.rewrite().again(without(s.lines)...).sign(s.forger)
				return c, len(c.lines) + 1
			}),
		},
		{
			name: "everything written anew, with checkpoints of a key that was replaced", args: withKey("copy"), says: "no checkpoint in the log is signed by the key",
			change: rewritten(func(s *scene) (*chained, int) {
				c := s.rewrite().again(without(s.lines)...).sign(s.stolen)
				return c, len(c.lines) + 1
			}),
		},
		{
			name: "the end written anew, with a checkpoint of another key", args: withKey("copy"), says: "its checkpoint is signed by a key that nothing in the log hands over to",
			change: rewritten(func(s *scene) (*chained, int) {
				at := point(started)
				c := s.rewrite(s.lines[:at+1]...).again(without(s.lines[at+1:])...).sign(s.forger)
				return c, len(c.lines)
			}),
		},
		{
			name: "handed over to a key of the attacker's, by a key that was replaced", args: []string{"--key", "old.pub", "copy"}, says: "its checkpoint is signed by a key that nothing in the log hands over to",
			change: rewritten(func(s *scene) (*chained, int) {
				c := s.rewrite(s.lines[:rotation+1]...)
				signed, err := (&audit.Checkpoint{Origin: s.public.Name(), Size: c.head.Seq, Root: c.frontier.Root(), Extension: []string{"key " + s.publicText("forger.pub")}}).Sign(s.stolen, s.forger)
				if err != nil {
					s.Fatal(err)
				}
				return c.state(audit.EventRotated, signed), rotation + 2
			}),
		},
		{
			name: "a checkpoint from elsewhere in the log", args: withKey("copy"), says: "and stands after ",
			change: rewritten(func(s *scene) (*chained, int) {
				c := s.rewrite(s.lines[:started]...).state(audit.EventSigned, noteOf(s.T, s.lines[point(0)]))
				return c, started + 1
			}),
		},
		{
			name: "another daemon's log in its place", args: withKey("copy"), says: "its checkpoint is of the log ",
			change: func(s *scene) int {
				s.mirror("elsewhere", "copy")
				return lastWhere(s.T, s.elsewhere[:6], `"actionType":"checkpoint"`) + 1
			},
		},
		{
			name: "records of another daemon's log among its own", args: withKey("copy"), says: "names ",
			change: rewritten(func(s *scene) (*chained, int) { return s.rewrite(slices.Concat(s.elsewhere[:2], s.lines[2:])...), 3 }),
		},
		{
			name: "another key in the place of the log's", args: []string{"--key", "forger.pub", "copy"}, says: "no checkpoint in the log is signed by the key",
			change: copied(func(*scene) int { return last + 2 }),
		},
		{
			name: "a receipt that was made up", args: withKey("--with-receipts", "made-up.note", "copy"), says: "proves nothing: not signed by a known key",
			change: copied(func(s *scene) int {
				signed, err := (&audit.Checkpoint{Origin: s.public.Name(), Size: 1 << 20, Root: audit.Hash{1}}).Sign(s.forger)
				if err != nil {
					s.Fatal(err)
				}
				s.write("made-up.note", signed)
				return 0
			}),
		},
		{
			name: "the database cut", args: heldAgainst("--database", "older/ocipd.db"), says: "its tail was cut, or it is an older copy",
			change: func(s *scene) int { return len(s.walk("older")) + 1 },
		},
		{
			name: "the tail cut, and nothing held outside", args: withKey("copy"), says: "compared with no checkpoint from outside", passes: true,
			change: rewritten(func(s *scene) (*chained, int) { return s.rewrite(s.lines[:point(started)+1]...), 0 }),
		},
		{
			name: "the records after the last checkpoint written anew", args: withKey("copy"), says: "hash-chained but not signed", passes: true,
			change: rewritten(func(s *scene) (*chained, int) {
				at := point(started)
				return s.rewrite(s.lines[:at+1]...).again(without(s.lines[at+1:])...), 0
			}),
		},
		{
			name: "a log signed by the key that was stolen", args: []string{"--key", "old.pub", "copy"}, says: "intact", passes: true,
			change: rewritten(func(s *scene) (*chained, int) { return s.rewrite().again(without(s.lines)...).sign(s.stolen), 0 }),
		},
	}
}

func (s *scene) publicText(file string) string {
	s.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		s.Fatal(err)
	}
	return strings.TrimSpace(string(text))
}

// unlist removes a segment from the manifest.
func (s *scene) unlist(segment string) {
	s.Helper()
	s.edit("copy/audit-manifest.jsonl", func(b []byte) []byte {
		lines := bytes.SplitAfter(b, []byte("\n"))
		return bytes.Join(slices.DeleteFunc(lines, func(line []byte) bool { return bytes.Contains(line, []byte(filepath.Base(segment))) }), nil)
	})
}

// samples are the program's messages about each attack.
type samples struct {
	*scene
	text strings.Builder
	said []string
}

// run makes an attack and checks that it is found.
func (all *samples) run(s *scene, a attack) {
	seq := a.change(s)
	code, stdout, stderr := s.ocipd(append([]string{"audit", "verify"}, a.args...)...)
	want := cli.ExitFault
	if a.passes {
		want = cli.ExitDone
	}
	named := fmt.Sprintf("damaged at record %d,", seq)
	if seq == 0 {
		named = "doubtful"
	}
	if code != want || !strings.Contains(stdout+stderr, a.says) || !a.passes && !strings.Contains(stdout, named) || a.passes && !strings.Contains(stdout, ": intact, ") {
		s.Errorf("exit %d, want %d, %q and %q:\n%s%s", code, want, named, a.says, stdout, stderr)
	}
	// It does not read the manifest.
	if other, said, ok := s.independent(a.args...); ok && other != want && !strings.Contains(a.name, "manifest") {
		s.Errorf("the independent verifier ends with %d, want %d: %s", other, want, said)
	}
	asJSON, report, _ := s.ocipd(append([]string{"audit", "verify", "--json"}, a.args...)...)
	if asJSON != code || !strings.Contains(report, fmt.Sprintf(`"ok":%t`, a.passes)) || seq > 0 && !strings.Contains(report, fmt.Sprintf(`"fault":{"seq":%d,`, seq)) {
		s.Errorf("as JSON: exit %d, %s", asJSON, report)
	}
	sample := fmt.Sprintf("$ ocipd audit verify %s\n%s%s$ echo $?\n%d\n", strings.Join(a.args, " "), stdout, stderr, code)
	all.said = append(all.said, sample)
	fmt.Fprintf(&all.text, "-- %s --\n%s", a.name, sample)
}

// sampleFile holds a sample of each attack, as in the documentation. With UPDATE_SAMPLES in
// the environment it is written anew.
const sampleFile = "testdata/attacks.txt"

// documented compares the messages with the samples. TestAttacksPage compares those with the pages.
func (all *samples) documented(t *testing.T) {
	root := all.root
	if os.Getenv("UPDATE_SAMPLES") != "" {
		if err := os.WriteFile(filepath.Join(root, sampleFile), []byte(all.text.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	kept, err := os.ReadFile(filepath.Join(root, sampleFile))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := generic(all.text.String()), generic(string(kept)); got != want {
		t.Errorf("the program says\n%s\nand %s has\n%s", got, sampleFile, want)
	}
}

// messageOf returns the last line of a sample in the pages' form: without the record, with
// N for each number and … for each hash.
func messageOf(sample string) string {
	lines := strings.Split(strings.TrimSpace(sample), "\n")
	said := lines[len(lines)-3]
	if fault, ok := strings.CutPrefix(said, "ocipd: cannot trust "); ok {
		_, said, _ = strings.Cut(fault, ": ")
	}
	said = regexp.MustCompile(`^audit record \d+: `).ReplaceAllString(said, "")
	said = unreadText.ReplaceAllString(said, "the segment cannot be read")
	for _, id := range []*regexp.Regexp{hashText, uuidText} {
		said = id.ReplaceAllString(said, "…")
	}
	return numberText.ReplaceAllString(keyText.ReplaceAllString(said, ""), "N")
}

var (
	keyText    = regexp.MustCompile(`\+[0-9a-f]{8}\b`)
	uuidText   = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)
	hashText   = regexp.MustCompile(`[0-9a-f]{64}`)
	momentText = regexp.MustCompile(`\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?Z?`)
	numberText = regexp.MustCompile(`\d+`)
	unreadText = regexp.MustCompile(`the segment cannot be read: .*`)
	pluralText = regexp.MustCompile(`(record|checkpoint|receipt)s?\b`)
)

// example checks that the documentation's checkpoint is valid.
func (s *scene) example() {
	page, err := os.ReadFile(filepath.Join(s.root, "../../docs/for-auditors/chain-and-tree.md"))
	if err != nil {
		s.Fatal(err)
	}
	_, example, _ := strings.Cut(string(page), "```text\nocipd/")
	example, _, _ = strings.Cut(example, "```")
	if c, err := audit.OpenCheckpoint("ocipd/" + example); !errors.Is(err, audit.ErrUnsigned) || c.Size == 0 {
		s.Errorf("the example of a checkpoint is none: %+v, %v", c, err)
	}
}

// independent runs the verifier in docs/verify.py with the arguments of `ocipd audit
// verify` and returns its exit code, and false if it has no such arguments.
func (s *scene) independent(args ...string) (code int, said string, ok bool) {
	s.Helper()
	python, err := exec.LookPath("python3")
	if err != nil {
		s.Skip("there is no python3")
	}
	var rest []string
	key := ""
	for i := 0; i < len(args); i++ {
		switch args[i] {
		case "--key":
			i++
			key = args[i]
		case "--checkpoints", "--tombstone":
			rest = append(rest, args[i], args[i+1])
			i++
		case "--database", "--with-receipts":
			return 0, "", false
		default:
			rest = append(rest, args[i])
		}
	}
	if key == "" {
		return 0, "", false
	}
	out, err := exec.CommandContext(s.Context(), python, append([]string{filepath.Join(s.root, "../../docs/verify.py"), key}, rest...)...).CombinedOutput()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return exit.ExitCode(), string(out), true
	}
	if err != nil {
		s.Fatal(err)
	}
	return cli.ExitDone, string(out), true
}

// agree checks that the independent verifier agrees with the program about whole logs of
// every kind, and about damaged ones.
func (s *scene) agree() {
	same := func(what string, args ...string) {
		s.Helper()
		code, stdout, stderr := s.ocipd(append([]string{"audit", "verify"}, args...)...)
		other, said, _ := s.independent(args...)
		if code != other {
			s.Errorf("%s: the program ends with %d, the other with %d\n%s%s%s", what, code, other, stdout, stderr, said)
		}
	}
	for _, key := range []string{"log.pub", "old.pub", "forger.pub"} {
		for _, state := range []string{"state", "older", "retired", "elsewhere"} {
			s.mirror(state, "copy")
			same(state+" with "+key, "--key", key, "copy")
			same(state+" with "+key+" and checkpoints", "--key", key, "--checkpoints", "outside.jsonl", "copy")
		}
	}
	s.write("log.jsonl", string(logText(s.missigned())))
	same("a signature changed", "--key", "log.pub", "log.jsonl")
	for i := 1; i < len(s.lines); i += 9 {
		line := bytes.Clone(s.lines[i])
		line[len(line)/2] ^= 1
		s.write("log.jsonl", string(logText(slices.Concat(s.lines[:i], [][]byte{line}, s.lines[i+1:]))))
		same("a bit changed", "--key", "log.pub", "log.jsonl")
		s.write("log.jsonl", string(logText(s.lines[:i])))
		same("cut", "--key", "log.pub", "--checkpoints", "outside.jsonl", "log.jsonl")
	}
}

// missigned is a sound log whose newest signature has the right key's name but is from another key.
func (s *scene) missigned() [][]byte {
	s.Helper()
	c := s.rewrite(s.lines...)
	signed, err := (&audit.Checkpoint{Origin: s.public.Name(), Size: c.head.Seq, Root: c.frontier.Root()}).Sign(s.forger)
	if err != nil {
		s.Fatal(err)
	}
	at := strings.LastIndexByte(signed, ' ') + 1
	raw, err := base64.StdEncoding.DecodeString(strings.TrimSpace(signed[at:]))
	if err != nil {
		s.Fatal(err)
	}
	binary.BigEndian.PutUint32(raw, s.public.KeyHash())
	return c.state(audit.EventSigned, signed[:at]+base64.StdEncoding.EncodeToString(raw)+"\n").lines
}

// generic is a sample without the parts that differ between logs.
func generic(sample string) string {
	sample = keyText.ReplaceAllString(sample, "+KEY")
	sample = uuidText.ReplaceAllString(sample, "UUID")
	sample = hashText.ReplaceAllString(sample, "HASH")
	sample = momentText.ReplaceAllString(sample, "TIME")
	sample = unreadText.ReplaceAllString(sample, "the segment cannot be read: WHY")
	sample = numberText.ReplaceAllString(sample, "N")
	return pluralText.ReplaceAllString(sample, "$1")
}
