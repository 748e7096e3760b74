package main

import (
	"fmt"
	"strings"

	"github.com/openclawos/ocipd/internal/cli/measure"
	"github.com/openclawos/ocipd/internal/ocip/commitment"
)

// seedForms are the thirteen of the reference and their forms.
const seedForms = `schedule schedules scheduled scheduling
meeting meetings
agree agrees agreed agreeing agreement agreements
approve approves approved approving
allocate allocates allocated allocating
assign assigns assigned assigning assignment assignments
reserve reserves reserved reserving
commit commits committed committing commitment commitments
confirm confirms confirmed confirming
book books booked booking bookings
deadline deadlines
promise promises promised promising
guarantee guarantees guaranteed guaranteeing`

// dress is a way to write a word in a message.
type dress struct {
	name string
	as   func(word string) string
}

func between(word, what string) string { return strings.Join(strings.Split(word, ""), what) }

func title(word string) string { return strings.ToUpper(word[:1]) + word[1:] }

// fullWidth writes the letters of a word as East Asian text has them.
func fullWidth(word string) string {
	return strings.Map(func(r rune) rune { return r - 'a' + 0xff41 }, word)
}

// lookAlikes writes the letters of a word that Cyrillic has too in Cyrillic.
func lookAlikes(word string) string {
	return strings.NewReplacer("a", "а", "e", "е", "o", "о", "c", "с", "p", "р").Replace(word)
}

// dresses are the ways of writing that are measured: in plain sight, as programs
// write, and the careless disguises.
func dresses() []dress {
	half := func(w string) int { return len(w) / 2 }
	return []dress{
		{"a sentence", func(w string) string { return "We will " + w + " this on Tuesday, she said." }},
		{"alone", func(w string) string { return w }},
		{"capitals", func(w string) string { return "PLEASE " + strings.ToUpper(w) + "!" }},
		{"a title", func(w string) string { return title(w) + ": see below" }},
		{"bold", func(w string) string { return "they **" + w + "** it" }},
		{"bold inside", func(w string) string { return "they " + w[:half(w)] + "**" + w[half(w):] + "** it" }},
		{"tags", func(w string) string { return "they <b>" + w + "</b> it" }},
		{"an entity", func(w string) string { return fmt.Sprintf("they &#%d;%s it", w[0], w[1:]) }},
		{"soft hyphens", func(w string) string { return "they " + between(w, "\u00ad") + " it" }},
		{"zero width", func(w string) string { return "they " + between(w, "\u200b") + " it" }},
		{"full width", func(w string) string { return "they " + fullWidth(w) + " it" }},
		{"Cyrillic", func(w string) string { return "they " + lookAlikes(w) + " it" }},
		{"spaced out", func(w string) string { return "they " + between(w, " ") + " it" }},
		{"a hyphen at a line's end", func(w string) string { return "they " + w[:half(w)] + "-\n" + w[half(w):] + " it" }},
		{"code", func(w string) string { return "run `" + w + "` twice" }},
		{"a fence", func(w string) string { return "```\n" + w + "\n```" }},
		{"a quotation", func(w string) string { return "> we " + w + " it\n\nSeen." }},
		{"JSON", func(w string) string { return `{"status":"` + w + `"}` }},
		{"JSON, \\n", func(w string) string { return `{"reply":"Thanks.\n` + title(w) + ` for Tuesday."}` }},
		{"JSON, \\t", func(w string) string { return `{"reply":"1\t` + w + `\t2"}` }},
		{"JSON, \\u", func(w string) string { return fmt.Sprintf(`{"reply":"we \u%04x%s it"}`, w[0], w[1:]) }},
		{"XML", func(w string) string { return "<reply to='1'>" + w + "</reply>" }},
		{"camel case", func(w string) string { return `{"action":"please` + title(w) + `Now"}` }},
		{"camel case, first", func(w string) string { return w + "Room(4)" }},
		{"snake case", func(w string) string { return "action=" + w + "_room" }},
		{"a hash sign", func(w string) string { return "#" + title(w) + "Now" }},
		{"a terminal's colour", func(w string) string { return "they \x1b[1m" + w + "\x1b[0m it" }},
		{"URL encoding", func(w string) string { return "q=they%20" + w + "%20it" }},
		{"an underscore emphasis", func(w string) string { return "they _" + w + "_ it" }},
	}
}

// SeedSignals says how many of the thirteen's forms are held, each in each dress.
type SeedSignals struct {
	Found measure.Share `json:"found"`
	// Missed are the dresses in which a form passes, with the forms.
	Missed []Missed `json:"missed,omitempty"`
}

// Missed is a disguise and the forms that are not found in it.
type Missed struct {
	Dress string   `json:"dress"`
	Forms []string `json:"forms"`
}

func seedSignals(d *commitment.Detector) (s SeedSignals) {
	forms := strings.Fields(seedForms)
	found, all := 0, 0
	for _, how := range dresses() {
		var missed []string
		for _, form := range forms {
			all++
			if commitment.Judge(d.Detect(how.as(form))).RequiresHuman {
				found++
			} else {
				missed = append(missed, form)
			}
		}
		if missed != nil {
			s.Missed = append(s.Missed, Missed{how.name, missed})
		}
	}
	s.Found = measure.ShareOf(found, all)
	return s
}
