package daemon

import (
	"errors"
	"slices"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
)

// A step that does not end in order is logged by its name, and all others end as usual, newest first.
func TestStopNamesWhatFails(t *testing.T) {
	core, logs := observer.New(zapcore.InfoLevel)
	d := &Daemon{log: zap.New(core)}
	stuck := errors.New("stuck")
	var ended []string
	d.ends.add("the store", func() error { ended = append(ended, "the store"); return nil })
	d.ends.add("the mirror", func() error { ended = append(ended, "the mirror"); return stuck })
	d.ends.add("the kernel", func() error { ended = append(ended, "the kernel"); return nil })
	if err := d.Stop(); !errors.Is(err, stuck) {
		t.Errorf("a stop that fails returns %v", err)
	}
	if want := []string{"the kernel", "the mirror", "the store"}; !slices.Equal(ended, want) {
		t.Errorf("ended are %q, want %q", ended, want)
	}
	if named := logs.FilterField(zap.String("what", "the mirror")); named.Len() != 1 || logs.Len() != 1 {
		t.Errorf("the log has %v", logs.All())
	}
}

// Every step of a start has its own name.
func TestStepsAreNamed(t *testing.T) {
	seen := map[string]bool{}
	for _, s := range new(Daemon).steps() {
		if s.name == "" || seen[s.name] {
			t.Errorf("step %q has no name of its own", s.name)
		}
		seen[s.name] = true
	}
}
