package measure

import (
	"cmp"
	"slices"

	"github.com/openclawos/ocipd/internal/base/text"
	"github.com/openclawos/ocipd/internal/ocip"
	"github.com/openclawos/ocipd/internal/ocip/commitment"
	"github.com/openclawos/ocipd/internal/ocip/content"
)

// Rules are the measured detectors. Either may be nil.
type Rules struct {
	Commitments *commitment.Detector
	Content     *content.Detector
	// Weigh is set if a text that only keywords hold is weighed.
	Weigh bool
}

// Seen is a text with the detectors' findings.
type Seen struct {
	*Text
	// Held is set if the text alone would be held.
	Held bool
	// Names are the keywords and families that hold it. Shadowed are those that would if
	// they were enforced. Both are sorted.
	Names, Shadowed []string
	// Keyword and Cue say which of the two kinds of rules hold it.
	Keyword, Cue bool
	// Likelihood is how likely a held text binds its sender.
	Likelihood commitment.Likelihood
	// Points is the score of a held text, and Reasons are those that weighed most, in words.
	Points  int
	Reasons []string
	// Weighed is set if only keywords would hold the text, and it was weighed.
	Weighed *commitment.Weighed
	// Grantable is set if a person can approve its words beforehand.
	Grantable bool
	// Findings are the rules that raise its level. Noted are those that only note a
	// finding. Both are sorted.
	Findings, Noted []string
	// Level is the raised level, or public.
	Level string
}

// Look runs the detectors over texts in the order in which they were said, because a yes
// binds if it answers a question. It reports progress to step, which may be nil.
func (r Rules) Look(texts []Text, step func(done int)) []Seen {
	seen := make([]Seen, len(texts))
	asked := map[string]bool{}
	tails := map[[2]string]string{}
	for i := range texts {
		t := &texts[i]
		before := commitment.Before{Asked: asked[t.Answers]}
		if t.Exchange != "" {
			side := [2]string{t.Exchange, t.From}
			before.Tail = tails[side]
			tails[side] = commitment.Tail(before.Tail, t.Text)
		}
		asked[t.ID] = commitment.Asks(t.Text)
		seen[i] = r.look(t, before)
		if step != nil {
			step(i + 1)
		}
	}
	return seen
}

func (r Rules) look(t *Text, before commitment.Before) Seen {
	s := Seen{Text: t}
	if r.Commitments != nil {
		passages := []text.Passage{{Text: t.Text, Prose: true}}
		hits := r.Commitments.ScanAfter(before, passages)
		s.Held = commitment.Judge(hits).RequiresHuman
		read := r.Commitments.Read(hits, passages, before)
		if r.Weigh {
			if s.Weighed = read.Keywords(); s.Weighed != nil {
				s.Held = s.Weighed.Binds
			}
		}
		if s.Held {
			score := read.Score()
			s.Likelihood, s.Points, s.Reasons = score.Likelihood(), score.Points, score.Reasons
			if s.Weighed != nil {
				s.Reasons = s.Weighed.Reasons
			}
			s.Reasons = commitment.InWords(s.Reasons)
		}
		_, all := ocip.Granted(hits)
		s.Grantable = all && !ocip.OfMoney(passages)
		for _, h := range hits {
			switch {
			case h.Shadow, s.Weighed != nil && !s.Weighed.Binds:
				s.Shadowed = insert(s.Shadowed, h.Name())
			case h.Keyword != "":
				s.Keyword, s.Names = true, insert(s.Names, h.Name())
			default:
				s.Cue, s.Names = true, insert(s.Names, h.Name())
			}
		}
	}
	if r.Content != nil {
		found := r.Content.Detect(t.Text)
		s.Level = content.Highest(found)
		for _, f := range found {
			if f.Shadow {
				s.Noted = insert(s.Noted, f.Rule)
			} else {
				s.Findings = insert(s.Findings, f.Rule)
			}
		}
	}
	return s
}

// Answer is the name of the rule that holds an answer to a held message.
const Answer = "answer"

// Answering returns the texts as a daemon between agents treats them: an answer to a held
// message is held too, whatever its words.
func Answering(seen []Seen) []Seen {
	held := map[string]bool{}
	for i := range seen {
		held[seen[i].ID] = seen[i].Held
	}
	all := slices.Clone(seen)
	for i := range all {
		if s := &all[i]; !s.Held && held[s.Answers] {
			s.Held, s.Names = true, []string{Answer}
		}
	}
	return all
}

// insert puts a name into a sorted list if it is missing.
func insert(sorted []string, name string) []string {
	at, found := slices.BinarySearch(sorted, name)
	if found {
		return sorted
	}
	return slices.Insert(sorted, at, name)
}

// Report compares the commitment detector with the labels.
type Report struct {
	Texts int `json:"texts"`
	// Held is the share of all texts that would be held.
	Held   Share `json:"held"`
	Strict Match `json:"strict"`
	// Lenient is absent if the texts have no lenient labels.
	Lenient *Match `json:"lenient,omitempty"`
	// ByKeyword, ByCue and ByBoth divide the held texts by the kinds of rules that hold them.
	ByKeyword Held `json:"byKeyword"`
	ByCue     Held `json:"byCue"`
	ByBoth    Held `json:"byBoth"`
	// ByLikelihood divides the held texts by their likelihood.
	ByLikelihood map[commitment.Likelihood]Held `json:"byLikelihood"`
	// Order is the share of pairs of held texts, a commitment and one that is none, in which the
	// commitment has more points: the area under the curve. 0 means that there are none.
	Order float64 `json:"order,omitzero"`
	// Rules are the keywords and families, with the most texts first. A text counts once
	// for each of them.
	Rules []Rule `json:"rules"`
	// Misses are commitments that pass. Useless are held texts that are not commitments
	// even by the lenient label.
	Misses  []Quote `json:"misses"`
	Useless []Quote `json:"useless"`
}

// Match compares holding with a label.
type Match struct {
	Labelled int `json:"labelled"`
	// Precision is the share of held texts that have the label. Recall is the share of
	// texts with the label that are held.
	Precision Share `json:"precision"`
	Recall    Share `json:"recall"`
}

// Held is a part of the held texts.
type Held struct {
	// Rate is its share of all texts.
	Rate    Share `json:"rate"`
	Strict  Share `json:"strict"`
	Lenient Share `json:"lenient"`
}

// Rule is the contribution of one keyword or family.
type Rule struct {
	Name string `json:"name"`
	Held
	// Alone counts the texts that nothing else holds, and AloneRight the commitments among
	// them. Switching the rule off would spare the former and lose the latter.
	Alone      int `json:"alone"`
	AloneRight int `json:"aloneRight"`
	// Shadow is set for a rule that is not enforced yet, so that it can be judged first.
	Shadow bool `json:"shadow,omitzero"`
}

// Quote is a listed text, with the rules that hold it.
type Quote struct {
	ID    string   `json:"id"`
	Rules []string `json:"rules,omitempty"`
	// Shadowed are the rules that would hold it if they were enforced.
	Shadowed []string `json:"shadowed,omitempty"`
	// Likelihood and Reasons estimate whether a held text commits somebody.
	Likelihood commitment.Likelihood `json:"likelihood,omitzero"`
	Reasons    []string              `json:"reasons,omitempty"`
	// Answers is the previous message, if known.
	Answers string `json:"answers,omitzero"`
	Text    string `json:"text"`
}

type tally struct{ texts, strict, lenient, alone, aloneRight int }

func (c *tally) count(t *Text) {
	c.texts++
	if t.Commitment {
		c.strict++
	}
	if t.Lenient {
		c.lenient++
	}
}

func (c *tally) held(all int) Held {
	return Held{Rate: ShareOf(c.texts, all), Strict: ShareOf(c.strict, c.texts), Lenient: ShareOf(c.lenient, c.texts)}
}

// Commitments reports on texts with findings.
func Commitments(seen []Seen) Report {
	r := Report{Texts: len(seen), Rules: []Rule{}, Misses: []Quote{}, Useless: []Quote{}}
	t := tallies{rules: map[ruleName]*tally{}, likely: map[commitment.Likelihood]*tally{}}
	for _, l := range commitment.Likelihoods() {
		t.likely[l] = &tally{}
	}
	said := map[string]string{}
	for i := range seen {
		s := &seen[i]
		said[s.ID] = s.Text.Text
		t.count(s)
		quote := Quote{ID: s.ID, Rules: s.Names, Shadowed: s.Shadowed, Likelihood: s.Likelihood, Reasons: s.Reasons, Answers: said[s.Answers], Text: s.Text.Text}
		switch {
		case s.Held && !s.Lenient:
			r.Useless = append(r.Useless, quote)
		case !s.Held && s.Commitment:
			r.Misses = append(r.Misses, quote)
		}
	}
	r.Held, r.Order = ShareOf(t.held.texts, len(seen)), orderOf(seen)
	r.Strict = Match{t.all.strict, ShareOf(t.held.strict, t.held.texts), ShareOf(t.held.strict, t.all.strict)}
	if t.all.lenient != t.all.strict {
		r.Lenient = &Match{t.all.lenient, ShareOf(t.held.lenient, t.held.texts), ShareOf(t.held.lenient, t.all.lenient)}
	}
	r.ByKeyword, r.ByCue, r.ByBoth = t.keyword.held(len(seen)), t.cue.held(len(seen)), t.both.held(len(seen))
	r.ByLikelihood = map[commitment.Likelihood]Held{}
	for l, c := range t.likely {
		r.ByLikelihood[l] = c.held(len(seen))
	}
	for n, c := range t.rules {
		r.Rules = append(r.Rules, Rule{Name: n.rule, Held: c.held(len(seen)), Alone: c.alone, AloneRight: c.aloneRight, Shadow: n.shadow})
	}
	slices.SortFunc(r.Rules, func(a, b Rule) int {
		order := 0
		if a.Shadow != b.Shadow {
			order = -1
			if a.Shadow {
				order = 1
			}
		}
		return cmp.Or(order, b.Rate.Part-a.Rate.Part, cmp.Compare(a.Name, b.Name))
	})
	return r
}

// tallies count texts, all of them and by what held them.
type tallies struct {
	all, held, keyword, cue, both tally
	rules                         map[ruleName]*tally
	likely                        map[commitment.Likelihood]*tally
}

// ruleName names a rule, or its shadow.
type ruleName struct {
	rule   string
	shadow bool
}

func (t *tallies) count(s *Seen) {
	t.all.count(s.Text)
	rule := func(of string, shadow bool) *tally {
		n := ruleName{of, shadow}
		if t.rules[n] == nil {
			t.rules[n] = &tally{}
		}
		t.rules[n].count(s.Text)
		return t.rules[n]
	}
	for _, of := range s.Names {
		c := rule(of, false)
		if len(s.Names) == 1 {
			c.alone++
			if s.Commitment {
				c.aloneRight++
			}
		}
	}
	for _, of := range s.Shadowed {
		if !slices.Contains(s.Names, of) {
			rule(of, true)
		}
	}
	if !s.Held {
		return
	}
	t.held.count(s.Text)
	if c := t.likely[s.Likelihood]; c != nil { // answers to held messages have none
		c.count(s.Text)
	}
	switch {
	case s.Keyword && s.Cue:
		t.both.count(s.Text)
	case s.Keyword:
		t.keyword.count(s.Text)
	default:
		t.cue.count(s.Text)
	}
}

// orderOf measures how well the points order the held texts.
func orderOf(seen []Seen) float64 {
	var held []*Seen
	for i := range seen {
		if seen[i].Held {
			held = append(held, &seen[i])
		}
	}
	slices.SortStableFunc(held, func(a, b *Seen) int { return cmp.Compare(a.Points, b.Points) })
	var pairs, right, others, level float64
	for i := 0; i < len(held); {
		commitments, equal := 0., 0.
		for points := held[i].Points; i < len(held) && held[i].Points == points; i++ {
			if held[i].Commitment {
				commitments++
			} else {
				equal++
			}
		}
		right, level = right+commitments*(others+equal/2), level+commitments
		others += equal
	}
	if pairs = level * others; pairs == 0 {
		return 0
	}
	return right / pairs
}
