package config

import (
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/openclawos/ocipd/internal/config/keypath"
)

func TestSizes(t *testing.T) {
	for text, want := range map[string]struct {
		bytes Size
		shown string
	}{
		"0": {0, "0"}, "1": {1, "1"}, "4096": {4096, "4KiB"}, "12345": {12345, "12345"}, "-1": {-1, "-1"},
		"1MiB": {1 << 20, "1MiB"}, "64KB": {64000, "64KB"}, "2 gib": {2 << 30, "2GiB"}, "1TB": {1e12, "1TB"}, "100B": {100, "100"},
		"1024KiB": {1 << 20, "1MiB"}, "8000": {8000, "8KB"}, "9223372036854775807": {math.MaxInt, "9223372036854775807"}, "-4KiB": {-4096, "-4KiB"},
	} {
		got, err := parseSize(text)
		if err != nil || got != want.bytes || got.String() != want.shown {
			t.Errorf("%q is read as %d, shown as %q, %v; want %d, %q", text, int(got), got, err, int(want.bytes), want.shown)
		}
		if again, err := parseSize(got.String()); err != nil || again != got {
			t.Errorf("%q is shown as %q, which is read as %d, %v", text, got, int(again), err)
		}
	}
	// A bare K or M counts thousands for some and 1024 for others.
	for _, text := range []string{"", " ", "B", "MiB", "1K", "1M", "1.5MiB", "1 MiB x", "0x10", "9223372036854775808", "8796093022208MiB", "-9223372036854775808KB"} {
		if got, err := parseSize(text); err == nil {
			t.Errorf("%q is read as %d", text, int(got))
		}
	}
}

// TestKeysOfBytesAreSizes holds every key about bytes to the type that takes units.
func TestKeysOfBytesAreSizes(t *testing.T) {
	found := 0
	var walk func(at string, section reflect.Type)
	walk = func(at string, section reflect.Type) {
		for section.Kind() == reflect.Slice || section.Kind() == reflect.Map || section.Kind() == reflect.Pointer {
			section = section.Elem()
		}
		if section.Kind() != reflect.Struct {
			return
		}
		for field := range section.Fields() {
			key := keyOf(field)
			if key == "" {
				continue
			}
			if strings.HasSuffix(key, "bytes") {
				if found++; field.Type != sizeType {
					t.Errorf("%s.%s is a %s", at, key, field.Type)
				}
			}
			walk(at+"."+key, field.Type)
		}
	}
	walk("", reflect.TypeFor[Config]())
	if found < 9 {
		t.Errorf("there are %d such keys", found)
	}
}

// TestSizesWithUnits sets a size in the file, by a variable and by a flag, and finds it in what is shown.
func TestSizesWithUnits(t *testing.T) {
	file := write(t, t.TempDir(), "ocipd.yaml", "audit:\n  rotate: {bytes: 1MiB}\n  sinks:\n    - {name: a, type: syslog, network: unixgram, address: /dev/log, max_bytes: 64KiB}\nipc: {max_line_bytes: 300000}\n")
	c, err := Load(Options{File: file, Env: []string{"OCIPD_STORE_RESERVE_BYTES=8MiB"}, Flags: map[string]any{"ipc.max_queue_bytes": "2 MB"}})
	if err != nil {
		t.Fatal(err)
	}
	if c.Audit.Rotate.Bytes != 1<<20 || c.Audit.Sinks[0].MaxBytes != 64<<10 || c.IPC.MaxLineBytes != 300_000 || c.Store.ReserveBytes != 8<<20 || c.IPC.MaxQueueBytes != 2e6 {
		t.Errorf("read as %+v, %+v, %+v", c.Audit, c.IPC, c.Store)
	}
	shown, err := c.Redacted()
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"bytes: 1MiB", "max_bytes: 64KiB", "max_line_bytes: 300KB", "reserve_bytes: 8MiB", "max_queue_bytes: 2MB", "min_free_bytes: 64MiB"} {
		if !strings.Contains(string(shown), " "+line+"\n") {
			t.Errorf("%q is not in what is shown:\n%s", line, shown)
		}
	}
	if again, err := Parse("", shown); err != nil || again.Audit.Rotate != c.Audit.Rotate || !reflect.DeepEqual(again.IPC, c.IPC) {
		t.Errorf("what is shown is read as %+v, %v", again, err)
	}
	if changes := c.Since(Default()).Changes; !slices.Contains(changes, keypath.Change{Path: "audit.rotate.bytes", Old: "64MiB", New: "1MiB"}) {
		t.Errorf("the changes are %+v", changes)
	}
	for text, want := range map[string]string{
		"audit: {rotate: {bytes: 1KB}}":               "audit.rotate.bytes: want at least 4KiB, got 1KB",
		"audit: {rotate: {bytes: 1M}}":                `audit.rotate.bytes: want a size such as 4096, 64KB or 1MiB, got "1M"`,
		"store: {reserve_bytes: 2TiB}":                "store.reserve_bytes: want 0 to 1GiB, got 2TiB",
		"store: {min_free_bytes: 2GiB}":               "want at most store.warn_free_bytes (1GiB), so that the warning comes first, got 2GiB",
		"store: {min_free_bytes: -1}":                 "want at least 0, got -1",
		"ipc: {max_line_bytes: 99999999999999999999}": "want a size such as",
		"ocip: {max_annotation_bytes: 256KiB}":        "want less than ipc.max_line_bytes (256KiB), got 256KiB",
	} {
		if _, err := Parse("ocipd.yaml", []byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}
