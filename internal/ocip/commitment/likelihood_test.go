package commitment

import (
	"strings"
	"testing"
)

func TestLikelihood(t *testing.T) {
	d, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		content    string
		likelihood Likelihood
		reason     string
	}{
		{"hello", Low, ""},
		{"Book the book, agreed?", Low, "keyword"},
		{"We talked about the promise.", Low, "keyword"},
		{"I promise it.", Medium, "keyword in the first person"},
		{"We promise not to promise again.", Medium, "keyword in the first person"},
		{"Shall we promise it?", Low, "keyword"},
		{"if we agree", Low, "keyword"},
		{"We agreed on nothing.", Low, "keyword"},
		{"> I promise it.\n\nWhat is this?", Low, "keyword"},
		{"the reservation of the book", Medium, "derived, keyword"},
		{"Ich liefere Ihnen das am Freitag.", Medium, "de"},
		{"I'll send it to you by Friday.", High, "first-person-future"},
		{"Deal, I promise you 90 euros.", High, "acceptance, keyword in the first person"},
		{`{"schedule": 1}`, Low, "keyword, looks like the output of a tool"},
		{strings.Repeat("I'll send it to you by Friday. ", 1000), Low, "first-person-future, looks like the output of a tool"},
	} {
		if likelihood, reason := LikelihoodOf(d.Detect(tt.content), tt.content); likelihood != tt.likelihood || reason != tt.reason {
			t.Errorf("%.40q: %v (%s), want %v (%s)", tt.content, likelihood, reason, tt.likelihood, tt.reason)
		}
	}
	// A hit outside the content has no meaning for it.
	for _, h := range []Hit{
		{Rule: RuleKeyword, Keyword: "promise", Zone: ZoneBody, Start: 2, End: 90}, {Rule: RuleKeyword, Keyword: "promise", Zone: ZoneBody, Start: -1, End: 9},
		{Rule: RuleKeyword, Keyword: "promise", Zone: ZoneBody, Start: 9, End: 2}, {Rule: RuleKeyword, Keyword: "promise", Zone: ZoneBody, Member: "caption", Start: 2, End: 9},
	} {
		if likelihood, reason := LikelihoodOf([]Hit{h}, "I promise"); likelihood != Low {
			t.Errorf("%+v: %v (%s)", h, likelihood, reason)
		}
	}
	for _, family := range Families() {
		if _, known := weights[family]; !known {
			t.Errorf("%s has no weight", family)
		}
	}
}
