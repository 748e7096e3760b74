package acp

import (
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/task"
)

// verdict is a reviewer's verdict as written in its text.
type verdict struct {
	Verdict  string         `json:"verdict"`
	Summary  string         `json:"summary"`
	Findings []task.Finding `json:"findings"`
}

const (
	// searched bounds the end of a text that is searched for a verdict, and maxBegins
	// the number of places tried.
	searched  = 64 << 10
	maxBegins = 2000
)

// readVerdict reads the last verdict in a text: a JSON object with the members verdict,
// summary and findings.
func readVerdict(text string) (v verdict, ok bool) {
	text = text[max(0, len(text)-searched):]
	for end, n := len(text), 0; n < maxBegins; n++ {
		at := strings.LastIndexByte(text[:end], '{')
		if at < 0 {
			return v, false
		}
		end = at
		v = verdict{}
		d := jsontext.NewDecoder(strings.NewReader(text[at:]), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
		if json.UnmarshalDecode(d, &v) != nil || !slices.Contains(task.Verdicts(), v.Verdict) {
			continue
		}
		v.Findings = v.Findings[:min(len(v.Findings), task.MaxFindings)]
		for i := range v.Findings {
			f := &v.Findings[i]
			if !slices.Contains(task.Severities(), f.Severity) {
				f.Severity = "major"
			}
			f.Message, f.File = cut(strings.ToValidUTF8(f.Message, "�"), task.MaxText), cut(strings.ToValidUTF8(f.File, "�"), task.MaxText)
			f.Line, f.URI = max(f.Line, 0), cut(strings.ToValidUTF8(f.URI, "�"), task.MaxText)
		}
		v.Findings = slices.DeleteFunc(v.Findings, func(f task.Finding) bool { return f.Message == "" })
		if v.Findings == nil {
			v.Findings = []task.Finding{}
		}
		v.Summary = strings.ToValidUTF8(v.Summary, "�")
		return v, true
	}
	return v, false
}
