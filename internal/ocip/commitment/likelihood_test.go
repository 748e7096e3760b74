package commitment

import (
	"strings"
	"testing"
)

func TestLikelihood(t *testing.T) {
	for _, tt := range []struct {
		names   []string
		content string
		score   float64
		reason  string
	}{
		{nil, "hello", 0, ""},
		{[]string{"book", "agree", "book"}, "book it", .5, "keyword"},
		{[]string{Acceptance, "agree", Money}, "I agree", 5.5, "acceptance, keyword, money"},
		{[]string{"schedule"}, `{"schedule": 1}`, -2.5, "keyword, looks like the output of a tool"},
		{[]string{FirstPersonFuture}, strings.Repeat("I'll send it. ", 1000), -1, "first-person-future, looks like the output of a tool"},
	} {
		if score, reason := Likelihood(tt.names, tt.content); score != tt.score || reason != tt.reason {
			t.Errorf("%v: %v (%s), want %v (%s)", tt.names, score, reason, tt.score, tt.reason)
		}
	}
	for _, family := range Families() {
		if _, known := likelihoods[family]; !known {
			t.Errorf("%s has no likelihood", family)
		}
	}
}
