package audit

import (
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
)

// TestMembersDocumented compares the page with the tables, and those with the structure.
func TestMembersDocumented(t *testing.T) {
	var names []string
	for line := range strings.Lines(membersText) {
		of, meaning, _ := strings.Cut(strings.TrimSpace(line), " | ")
		if meaning == "" {
			t.Errorf("members.txt gives no meaning: %s", line)
		}
		names = append(names, strings.Split(of, ", ")...)
	}
	var want []string
	for f := range reflect.TypeFor[Record]().Fields() {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" && name != "-" {
			want = append(want, name)
		}
	}
	if !slices.Equal(names, want) {
		t.Errorf("members.txt has the members %q, a record %q", names, want)
	}
	if page, err := os.ReadFile("../../docs/reference/records.md"); err != nil || string(page) != string(Reference()) {
		t.Errorf("docs/reference/records.md is stale: make reference writes it (%v)", err)
	}
	for _, a := range ActionTypes() {
		if len(Events()[a]) == 0 {
			t.Errorf("kinds.txt does not describe records of type %s", a)
		}
	}
}

// TestMembers checks each member of the table.
func TestMembers(t *testing.T) {
	seen := make(map[string]string)
	for _, m := range Members() {
		var r Record
		*m.Of(&r) = "x"
		if reflect.ValueOf(r).IsZero() {
			t.Errorf("%s: nothing is set", m.Name)
		}
		body, err := json.Marshal(&r)
		if last := m.Name[strings.LastIndexByte(m.Name, '.')+1:]; err != nil || !strings.Contains(string(body), `"`+last+`":"x"`) {
			t.Errorf("%s is written as %s, %v", m.Name, body, err)
		}
		if (m.Filter == "") != (m.help == "") {
			t.Errorf("%s: filter %q, help %q", m.Name, m.Filter, m.help)
		}
		for _, name := range []string{"filter " + m.Filter, "flag " + m.Flag, "export " + m.Export, "OTLP " + m.OTLP, "OCSF " + m.OCSF} {
			if _, value, _ := strings.Cut(name, " "); value != "" && seen[name] != "" {
				t.Errorf("%s is the %s as well", m.Name, name)
			}
			seen[name] = m.Name
		}
	}
}

// TestFilterForm writes and reads filters.
func TestFilterForm(t *testing.T) {
	f := Filter{Since: start, Text: "a"}
	f.Like.AgentID, f.Like.Counterparty.InstanceID = "b", "c"
	text, err := json.Marshal(f)
	want := `{"since":"2026-03-13T10:00:00Z","text":"a","agent":"b","counterparty":"c"}`
	if err != nil || string(text) != want {
		t.Errorf("%s, %v, want %s", text, err, want)
	}
	var back Filter
	if err := json.Unmarshal(text, &back); err != nil || !reflect.DeepEqual(back, f) {
		t.Errorf("%+v, %v", back, err)
	}
	if err := json.Unmarshal([]byte(`{"agent":7}`), &back); err == nil {
		t.Error("a number is an agent")
	}
	if text, err := json.Marshal(struct {
		Filter Filter `json:"filter,omitzero"`
	}{}); err != nil || string(text) != `{}` {
		t.Errorf("an empty filter is %s, %v", text, err)
	}
}

// FuzzFilter parses arbitrary texts, and encodes valid filters again.
func FuzzFilter(f *testing.F) {
	f.Add([]byte(`{"since":"2026-03-13T10:00:00Z","agent":"a","text":"b","unknown":[]}`))
	f.Add([]byte(`{"agent":"\ud800"}`))
	f.Add([]byte(`{"agent":null,"until":""}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var filter, again Filter
		if json.Unmarshal(text, &filter) != nil {
			return
		}
		written, err := json.Marshal(filter)
		if err != nil {
			t.Skip("a time that has no form in RFC 3339")
		}
		if err := json.Unmarshal(written, &again); err != nil || !again.Since.Equal(filter.Since) || !again.Until.Equal(filter.Until) || again.Text != filter.Text || !reflect.DeepEqual(again.Like, filter.Like) {
			t.Errorf("%s became %s: %+v, %v", text, written, again, err)
		}
	})
}
