package export

import (
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strings"
)

var (
	// referenceText is the reference page, with places for the parts that come from the code.
	//
	//go:embed reference.txt
	referenceText string
	// sampleLine is the record that the page shows in each format.
	//
	//go:embed sample.jsonl
	sampleLine string
)

// Reference returns the reference page of the formats as Markdown.
func Reference() ([]byte, error) {
	m := &Mapping{Version: "0.5.0", Host: "workstation", Log: "ocipd/01a1fa2b-9a2e-7000-8000-000000000001"}
	r := Read([]byte(strings.TrimSuffix(sampleLine, "\n")))
	if !r.Known {
		return nil, errors.New("cannot show a record in each format: sample.jsonl is no record")
	}
	otlp, err := m.OTLPJSON([]Record{r})
	if err != nil {
		return nil, err
	}
	return []byte(strings.NewReplacer(
		"{{severities}}", severityRows(),
		"{{OCSF}}", string(m.OCSF(&r)),
		"{{OTLP}}", string(otlp),
		"{{Syslog}}", string(m.Syslog(&r, DefaultMaxBytes)[0]),
		"{{Journal}}", strings.TrimSuffix(string(m.Journal(&r)), "\n"),
	).Replace(referenceText)), nil
}

// severityRows has a row for each severity, with the events that have it by themselves: those that
// are alerts, and the others.
func severityRows() string {
	var rows []string
	for s := critical; s >= low; s-- {
		var events [2][]string
		for key, r := range readings {
			failed := r.kind == kindRefused || r.kind == kindFailed
			own := r.severity
			if own == byKind && r.alert {
				own = severities[r.kind]
			}
			if own != s {
				continue
			}
			column := 1
			if r.alert || failed {
				column = 0
			}
			_, event, _ := strings.Cut(key, " ")
			events[column] = append(events[column], "`"+event+"`")
		}
		for i := range events {
			slices.Sort(events[i])
			events[i] = slices.Compact(events[i])
		}
		id, name := ocsfSeverity(s)
		rows = append(rows, fmt.Sprintf("| %d %s | %s | %s |", id, name, strings.Join(events[0], ", "), strings.Join(events[1], ", ")))
	}
	return strings.Join(rows, "\n")
}
