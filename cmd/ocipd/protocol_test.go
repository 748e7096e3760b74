package main_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/api/schema"
	"github.com/openclawos/ocipd/internal/ocip"
)

// protocolPages are the pages of docs/reference/protocol and their examples, concatenated.
func protocolPages(t *testing.T) string {
	t.Helper()
	names, err := filepath.Glob("../../docs/reference/protocol/*.*")
	if err != nil || len(names) < 10 {
		t.Fatalf("the pages of the protocol are %q, %v", names, err)
	}
	var pages strings.Builder
	for _, name := range names {
		page, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		pages.Write(page)
		pages.WriteString("\n")
	}
	return pages.String()
}

// TestVerdictsAreDocumented compares the page of errors with the tables and with the examples:
// each code has an example, and no example has a code outside the table.
func TestVerdictsAreDocumented(t *testing.T) {
	pages := protocolPages(t)
	_, section, found := strings.Cut(pages, "\n## Verdicts\n")
	section, _, ended := strings.Cut(section, "\n# ")
	shown, err := os.ReadFile("../../docs/reference/protocol/verdicts.jsonl")
	if !found || !ended || err != nil {
		t.Fatal("the pages have no verdicts, or no examples of them", err)
	}
	var table []string
	for _, row := range regexp.MustCompile("(?m)^\\| `([A-Z_]+)` \\|").FindAllStringSubmatch(section, -1) {
		table = append(table, row[1])
	}
	want, err := schema.Errors()
	if page, readErr := os.ReadFile("../../docs/reference/protocol/errors.md"); err != nil || readErr != nil || string(page) != string(want) {
		t.Errorf("docs/reference/protocol/errors.md is stale: make reference writes it (%v, %v)", err, readErr)
	}

	examples := make(map[string]bool)
	for line := range strings.Lines(string(shown)) {
		// A refusal is the error of a response; a held message is a result.
		var example struct {
			Code    api.Code `json:"code"`
			Message string   `json:"message"`
			Held    bool     `json:"held"`
			OCIP    judgment `json:"ocip"`
			Details struct {
				OCIP judgment `json:"ocip"`
			} `json:"details"`
		}
		if err := json.Unmarshal([]byte(line), &example); err != nil {
			t.Errorf("%s: %v", line, err)
			continue
		}
		j := example.Details.OCIP
		if example.Held {
			j = example.OCIP
		} else if !slices.Contains(api.Codes(), example.Code) || !strings.HasSuffix(example.Message, j.Reason) {
			t.Errorf("no error of the protocol: %s", line)
		}
		if j.Reason == "" || !slices.Contains(table, j.Code) {
			t.Errorf("no verdict of the table: %s", line)
		}
		examples[j.Code] = true
	}
	for _, code := range table {
		if !examples[code] {
			t.Errorf("%s has no example", code)
		}
	}
}

// TestWithheldDataIsDocumented checks that the pages show a message in its receiver's form
// after some of its data was withheld.
func TestWithheldDataIsDocumented(t *testing.T) {
	shown := 0
	for line := range strings.Lines(protocolPages(t)) {
		var event struct {
			Event   string        `json:"event"`
			Payload api.HookEvent `json:"payload"`
		}
		if !strings.HasPrefix(line, "{") || json.Unmarshal([]byte(line), &event) != nil || event.Event != "hook:message_sending" {
			continue
		}
		shown++
		var m api.Message
		if err := json.Unmarshal(event.Payload.Data, &m); err != nil {
			t.Fatal(err)
		}
		envelope, err := ocip.ParseEnvelope(m.Metadata["ocip"])
		if err != nil || envelope.SourceAgent.InstanceID == "" {
			t.Errorf("%s: %v", m.Metadata["ocip"], err)
		}
		for _, name := range []string{"dataShared", "dataWithheld"} {
			var items []jsontext.Value
			if err := json.Unmarshal(at(t, m.Metadata["exchange"], name), &items); err != nil || len(items) == 0 {
				t.Errorf("%s has no %s: %v", m.Metadata["exchange"], name, err)
			}
		}
	}
	if shown == 0 {
		t.Error("no message with data that was withheld is shown")
	}
}
