package export

import (
	"strings"
	"testing"
)

// docs/reference/export-formats.md shows a record in each format.
func TestDocumented(t *testing.T) {
	doc := readFile(t, "../../../docs/reference/export-formats.md")
	m := &Mapping{Version: "0.5.0", Host: "workstation", Log: "ocipd/01a1fa2b-9a2e-7000-8000-000000000001"}
	r := Read([]byte(strings.TrimSuffix(readFile(t, "testdata/record.jsonl"), "\n")))
	if !r.Known {
		t.Fatal("testdata/record.jsonl is no record")
	}
	otlp, err := m.OTLPJSON([]Record{r})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"OCSF": string(m.OCSF(&r)), "OTLP": string(otlp), "syslog": string(m.Syslog(&r, DefaultMaxBytes)[0]), "journal": string(m.Journal(&r)),
	} {
		if !strings.Contains(doc, "```text\n"+strings.TrimSuffix(want, "\n")+"\n```") && !strings.Contains(doc, "```json\n"+want+"\n```") {
			t.Errorf("docs/reference/export-formats.md does not show this as %s:\n%s", name, want)
		}
	}
}
