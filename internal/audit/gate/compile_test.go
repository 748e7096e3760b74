package gate_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// No other package can make a message that may leave, or a receipt, or read a closed message: such
// code does not compile.
func TestNobodyElseMakesASealed(t *testing.T) {
	tests := []struct{ code, want string }{
		{`var _ gate.Sealed`, ""},
		{`func _(r gate.Receipt, l gate.Letter) { _, _ = gate.Open(r, l, nil) }`, ""},
		{`var _ = gate.Sealed{data: []byte("x")}`, "unexported field data"},
		{`var _ = gate.Sealed{[]byte("x")}`, "unexported field data"},
		{`var _ = gate.Sealed([]byte("x"))`, "cannot convert"},
		{`var _ = gate.Sealed(struct{ data []byte }{})`, "cannot convert"},
		{`func _(s *gate.Sealed) { s.data = nil }`, "s.data undefined"},
		{`var _ = gate.Receipt{records: nil}`, "unexported field records"},
		{`func _(r *gate.Receipt) { r.records = nil }`, "r.records undefined"},
		{`func _(l gate.Letter) any { return l.data }`, "l.data undefined"},
		{`func _(l gate.Letter) any { return l.String() }`, "l.String undefined"},
		{`var _ = gate.Event{name: "x"}`, "unexported field name"},
		{`var _ = gate.Shown[string]{view: "x"}`, "unexported field view"},
	}
	text := "package outsider\n\nimport \"github.com/openclawos/ocipd/internal/audit/gate\"\n"
	for _, tc := range tests {
		text += tc.code + "\n"
	}
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	file, overlay := filepath.Join(dir, "outsider.go"), filepath.Join(dir, "overlay.json")
	replace, err := json.Marshal(map[string]any{"Replace": map[string]string{filepath.Join(here, "outsider", "outsider.go"): file}})
	if err == nil {
		err = os.WriteFile(overlay, replace, 0o600)
	}
	if err == nil {
		err = os.WriteFile(file, []byte(text), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	said, err := exec.CommandContext(t.Context(), "go", "build", "-overlay", overlay, "-gcflags=-e", "./outsider").CombinedOutput()
	if err == nil {
		t.Fatal("all of it compiles")
	}
	for i, tc := range tests {
		found := ""
		for line := range strings.Lines(string(said)) {
			if strings.Contains(line, fmt.Sprintf("outsider.go:%d:", i+4)) {
				found += line
			}
		}
		if tc.want == "" && found != "" || !strings.Contains(found, tc.want) {
			t.Errorf("%s: the compiler says %q, want %q", tc.code, found, tc.want)
		}
	}
	if t.Failed() {
		t.Logf("%s", said)
	}
}
