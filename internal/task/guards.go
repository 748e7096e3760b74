package task

import "strings"

// Condition is a guard with the condition under which it holds, as a part of a sentence.
type Condition struct {
	Guard Guard
	Means string
}

// Conditions are the conditions of the guards, in the order of the reference page.
func Conditions() []Condition {
	return []Condition{
		{Complete, "the specification has nothing in `missing`"},
		{Idle, "no attempt runs"},
		{Leased, "an attempt runs, and its lease has not ended"},
		{Unblocked, "every task of `depends_on` is completed"},
		{Delivered, "the last attempt succeeded and has an artifact that is no review and has a name that the spec declares as an output"},
		{SpecOK, "enough reviewers approve the present subject, and no newest review is against it"},
		{QualityOK, "enough reviewers approve the quality of the present subject, and no newest review is against it"},
		{NoEffect, "no effect is planned or failed"},
		{Quiet, "no run is under way or has an unknown end"},
		{Approved, "every open effect has an approval that can be used"},
		{Unapproved, "an open effect has no approval that can be used"},
		{Unreviewed, "reviews are missing, because an effect was planned after them"},
		{Changes, "a person requested changes of an open effect"},
	}
}

// Needs describes guards that do not hold: each one's name and its condition.
func Needs(guards []Guard) string {
	var parts []string
	for _, c := range Conditions() {
		for _, g := range guards {
			if g == c.Guard {
				parts = append(parts, string(g)+" ("+c.Means+")")
			}
		}
	}
	return strings.Join(parts, ", ")
}
