package main

import (
	"regexp"
	"testing"
)

// Manual pages name each flag's value, as help pages do, and no Go defaults.
func TestManPages(t *testing.T) {
	s := &shell{}
	pages, err := s.manPages(newRoot(s))
	if err != nil {
		t.Fatal(err)
	}
	bad := regexp.MustCompile(`(?m)\\fP(=|\[)`)
	for _, p := range pages {
		if found := bad.Find(p.text); found != nil {
			t.Errorf("%s: %s", p.name, found)
		}
	}
	const want = `\fB-n\fP, \fB--last\fP \fIN\fP`
	for _, p := range pages {
		if p.name == "ocipd-audit-tail.1" && !regexp.MustCompile(regexp.QuoteMeta(want)).Match(p.text) {
			t.Errorf("no %s in %s", want, p.text)
		}
	}
}
