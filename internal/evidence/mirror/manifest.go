package mirror

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/base/durable"
)

// Segment is a part of the log that has left the live file, and a line of the manifest. Records
// First to Last are in File, compressed.
type Segment struct {
	First uint64 `json:"first"`
	Last  uint64 `json:"last"`
	// Prev is the hash of the record before First, and Hash that of Last.
	Prev audit.Hash `json:"prev"`
	Hash audit.Hash `json:"hash"`
	// Records counts the lines, and Bytes their bytes, newlines included.
	Records uint64 `json:"records"`
	Bytes   int64  `json:"bytes"`
	// File is the name of the file beside the manifest. PackedBytes and Sum are its length and
	// SHA-256.
	File        string     `json:"file"`
	PackedBytes int64      `json:"compressedBytes"`
	Sum         audit.Hash `json:"sha256"`
	FirstTime   time.Time  `json:"firstTime"`
	LastTime    time.Time  `json:"lastTime"`
	// Retired marks the newest segment that was removed on purpose. The log continues after it.
	Retired bool `json:"retired,omitzero"`
}

// same reports whether two segments have the same content.
func (s Segment) same(o Segment) bool {
	return s.First == o.First && s.Last == o.Last && s.Prev == o.Prev && s.Hash == o.Hash && s.Records == o.Records && s.Bytes == o.Bytes &&
		s.PackedBytes == o.PackedBytes && s.Sum == o.Sum && s.FirstTime.Equal(o.FirstTime) && s.LastTime.Equal(o.LastTime)
}

// layout names the files of a mirror after its live file.
type layout struct {
	// live is the whole path. The names of the other files consist of base, their kind, and ext.
	live, dir, base, ext string
}

const (
	packedExt = ".zst"
	// temporaryExt marks unfinished files. They are useless once their writer has ended.
	temporaryExt = ".tmp"
	seqDigits    = 12
)

func newLayout(live string) layout {
	ext := filepath.Ext(live)
	return layout{live: live, dir: filepath.Dir(live), base: strings.TrimSuffix(filepath.Base(live), ext), ext: ext}
}

func (l layout) path(name string) string { return filepath.Join(l.dir, name) }

func (l layout) manifest() string { return l.path(l.base + "-manifest" + l.ext) }

// plain returns the name of an uncompressed segment, and packed that of a compressed one.
func (l layout) plain(r span) string {
	return fmt.Sprintf("%s-%0*d-%0*d%s", l.base, seqDigits, r.first, seqDigits, r.last, l.ext)
}

func (l layout) packed(r span) string { return l.plain(r) + packedExt }

// span is a run of records, both ends included.
type span struct{ first, last uint64 }

func (s Segment) span() span { return span{s.First, s.Last} }

// parse reads the name of a segment's file.
func (l layout) parse(name string) (r span, packed, ok bool) {
	text, packed := strings.CutSuffix(name, packedExt)
	text, inner := strings.CutPrefix(text, l.base+"-")
	text, outer := strings.CutSuffix(text, l.ext)
	first, last, two := strings.Cut(text, "-")
	if !inner || !outer || !two {
		return span{}, false, false
	}
	var err1, err2 error
	r.first, err1 = strconv.ParseUint(first, 10, 63)
	r.last, err2 = strconv.ParseUint(last, 10, 63)
	// Each span has one name; any other spelling is somebody else's file.
	if err1 != nil || err2 != nil || r.first == 0 || r.last < r.first || strings.TrimSuffix(name, packedExt) != l.plain(r) {
		return span{}, false, false
	}
	return r, packed, true
}

// poses reports whether a file that is no segment has a name that begins like a segment's, so that
// others could mistake it for one.
func (l layout) poses(name string) bool {
	rest, ours := strings.CutPrefix(name, l.base+"-")
	return ours && rest != "" && rest[0] >= '0' && rest[0] <= '9' && !strings.Contains(name, ".foreign-") && !strings.HasSuffix(name, temporaryExt)
}

// parseManifest reads a manifest. The returned segments are in order and do not overlap, and each
// has the correct file name.
func (l layout) parseManifest(text []byte) ([]Segment, error) {
	var list []Segment
	for no := 1; len(text) > 0; no++ {
		line, rest, whole := bytes.Cut(text, []byte("\n"))
		text = rest
		bad := func(format string, args ...any) ([]Segment, error) {
			return nil, fmt.Errorf("line %d: %w", no, fmt.Errorf(format, args...))
		}
		if !whole {
			return bad("it has no end")
		}
		var s Segment
		if err := json.Unmarshal(line, &s, json.RejectUnknownMembers(true)); err != nil {
			return bad("%w", err)
		}
		r, packed, ok := l.parse(s.File)
		switch {
		case !ok || !packed || r != s.span():
			return bad("%.80q is not the file of the segment %d to %d", s.File, s.First, s.Last)
		case s.Records != s.Last-s.First+1 || s.Bytes <= 0 || s.PackedBytes <= 0:
			return bad("the segment %d to %d has %d records, %d bytes and %d compressed", s.First, s.Last, s.Records, s.Bytes, s.PackedBytes)
		case s.LastTime.Before(s.FirstTime):
			return bad("the segment %d to %d ends before it begins", s.First, s.Last)
		}
		if n := len(list); n > 0 {
			before := list[n-1]
			switch {
			case s.First <= before.Last:
				return bad("the segment %d to %d does not stand after %d", s.First, s.Last, before.Last)
			case s.First == before.Last+1 && s.Prev != before.Hash:
				return bad("the segment %d to %d names %s as the hash before it, and it is %s", s.First, s.Last, s.Prev, before.Hash)
			case s.Retired && !before.Retired:
				return bad("the segment %d to %d was retired before an older one", s.First, s.Last)
			}
		}
		list = append(list, s)
	}
	return list, nil
}

func encodeManifest(list []Segment) ([]byte, error) {
	var text []byte
	for _, s := range list {
		line, err := json.Marshal(s)
		if err != nil {
			return nil, fmt.Errorf("cannot encode the mirror's manifest: %w", err)
		}
		text = append(append(text, line...), '\n')
	}
	return text, nil
}

// readManifest returns the segments of the manifest file, or none if there is no file.
func (l layout) readManifest() ([]Segment, error) {
	text, err := durable.ReadFile(l.manifest())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read the mirror's manifest: %w", err)
	}
	list, err := l.parseManifest(text)
	if err != nil {
		return nil, &manifestError{l.manifest(), err}
	}
	return list, nil
}

// manifestError is the error for a manifest that this program did not write.
type manifestError struct {
	file  string
	cause error
}

func (e *manifestError) Error() string { return fmt.Sprintf("cannot use %s: %v", e.file, e.cause) }

// insert adds a segment at its place, or replaces an earlier version.
func insert(list []Segment, s Segment) []Segment {
	at, found := slices.BinarySearchFunc(list, s, func(a, b Segment) int { return cmp.Compare(a.First, b.First) })
	if found {
		list = slices.Clone(list)
		list[at] = s
		return list
	}
	return slices.Insert(slices.Clone(list), at, s)
}

// replaceFile writes the whole file or nothing. It calls step between the operations that a crash
// could interrupt.
func replaceFile(path string, text []byte, step func(string)) error {
	if err := durable.Create(path+temporaryExt, 0o600, text); err != nil {
		return fmt.Errorf("cannot write %s: %w", path, err)
	}
	step("manifest written")
	if err := os.Rename(path+temporaryExt, path); err != nil {
		return fmt.Errorf("cannot replace %s: %w", path, err)
	}
	step("manifest replaced")
	return syncDir(filepath.Dir(path))
}

// syncDir makes the names in a directory durable.
func syncDir(dir string) error {
	if err := durable.SyncDir(dir); err != nil {
		return fmt.Errorf("cannot sync the mirror's directory: %w", err)
	}
	return nil
}
