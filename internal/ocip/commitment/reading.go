package commitment

import "github.com/openclawos/ocipd/internal/base/text"

// Reading weighs one message. Its results share their work: each keyword is weighed once in its
// sentence, and the score is added up once. It is not safe for concurrent use.
type Reading struct {
	d     *Detector
	hits  []Hit
	asked bool
	// tail is set if an earlier message ends in the middle of a sentence.
	tail bool
	// content is the message's text, prose its sheets by member.
	content string
	prose   map[string]*sheet
	// signs are the reasons for and against a commitment by the keyword of each hit.
	signs  map[int][]reason
	scored *scored
}

// Read begins to weigh a message by the detector's hits in its passages, of which the one without a
// member is its content.
func (d *Detector) Read(hits []Hit, passages []text.Passage, before Before) *Reading {
	r := &Reading{d: d, hits: hits, asked: before.Asked, tail: before.Tail != "", prose: make(map[string]*sheet), signs: make(map[int][]reason)}
	for i := range passages {
		one := &passages[i]
		if one.Prose {
			r.prose[one.Member] = &sheet{d: d, text: one.Text}
		}
		if one.Member == "" {
			r.content = one.Text
		}
	}
	return r
}

// reasons returns the reasons for and against a commitment by the keyword of a hit, and the text in
// which it stands. The text is nil if it cannot be weighed.
func (r *Reading) reasons(hit int) (of *sheet, found []reason) {
	h := &r.hits[hit]
	if of = r.prose[h.Member]; of == nil {
		return nil, nil
	}
	found, known := r.signs[hit]
	if !known {
		found = of.weigh(h)
		r.signs[hit] = found
	}
	return of, found
}

// Keywords weighs a message that only keywords and their nouns hold, in the sentences around them. It
// returns nil if anything else holds the message, or nothing does. It finds that the message binds if
// it has a reason for that which outweighs those against it. If nothing speaks for it and nothing
// against it, the [Score] of the message decides. It always finds that the message binds if
//
//   - the message answers a question that asks for a yes,
//   - a keyword had to be undisguised, or put together from two messages, or the text has characters that hide or imitate others,
//   - the text is in another language than English, in which this was not measured,
//   - a sum of money or a deadline is beside a keyword, or a date with a verb in the first person.
func (r *Reading) Keywords() *Weighed {
	w := Weighed{}
	for i := range r.hits {
		switch h := &r.hits[i]; {
		case h.Shadow:
		case h.Keyword == "":
			return nil
		default:
			w.Keywords = insert(w.Keywords, h.Keyword)
		}
	}
	if len(w.Keywords) == 0 {
		return nil
	}
	var found []reason
	if r.asked {
		found = append(found, reason{always: true, why: askedReason})
	}
	w.Binds = r.asked
	open := false
	for i := range r.hits {
		h := &r.hits[i]
		if h.Shadow {
			continue
		}
		of, one := r.reasons(i)
		if of == nil {
			found = append(found, reason{always: true, why: "its text cannot be weighed"})
			w.Binds = true
			break
		}
		sum, speaks := 0, h.Member != "" || len(of.text) > maxScored
		for _, s := range one {
			sum, speaks = sum+s.weight, speaks || s.weight > 1 || s.always
			w.Binds = w.Binds || s.always
		}
		w.Binds = w.Binds || sum > 0 && speaks
		open = open || sum > 0
		found = append(found, one...)
	}
	if open && !w.Binds {
		w.Binds = r.Score().Points >= openBound
		found = append(found, reason{weight: -2, why: "nothing speaks for it, and its words speak against it"})
	}
	w.Reasons = heaviest(found, w.Binds)
	return &w
}

// Score estimates whether the message commits somebody.
func (r *Reading) Score() Score { return r.score().Score }
