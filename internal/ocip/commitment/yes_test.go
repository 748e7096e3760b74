package commitment

import (
	"testing"

	"github.com/openclawos/ocipd/internal/base/text"
)

// A text that leaves the object of a yes open, and lets the other side choose, is no yes.
func TestLeftOpen(t *testing.T) {
	d := detector(t, Options{})
	for _, s := range []string{
		"Any answer by tomorrow is fine.", "Any time on Tuesday works for us.", "Anything before noon works.", "Whatever you send by Friday is fine with us.", "A reply before Monday is fine.",
		"Either of the two by Thursday works for me.", "An answer by Friday works for us", "Some feedback until Tuesday would be fine.", "Whichever room is free on Sunday suits us.", "No reply before Monday is fine.",
		"Whenever you are ready is good for us.", "The deal is off.", "Once the contract is signed we start.", "If the offer is accepted, tell me.", "Is the deal accepted?", "The contract was signed in 2019 by somebody else.", "Has the contract been signed?",
		"The deal is not signed.", "when the papers are signed", "What it is", "As it is", "Yes it is!", "Here it is:", "The cancelled flights", "Paid by the reader", "You may find it there", "You may not publish it", "You may want to copy it", "May I publish it?", "Should I say that I would like to proceed?",
	} {
		for _, h := range d.Detect(s) {
			if !h.Shadow {
				t.Errorf("%q: found %s %q", s, h.Name(), s[h.Start:h.End])
			}
		}
	}
	for s, want := range map[string]string{
		"Tomorrow is fine.": Acceptance, "Friday at nine works for us.": Acceptance, "Your answer by tomorrow is fine by me.": Acceptance, "Deal accepted": Acceptance, "The offer is accepted.": Acceptance, "Your terms are accepted, go on.": Acceptance,
		"The contract is signed.": Done, "The contract is now signed and sealed": Done, "The lease has been countersigned.": Done, "Deal.": Acceptance, "Proposal accepted.": Acceptance,
		"Lunch it is, I think.": Acceptance, "Option B it is!": Acceptance, "Cancelled, thank you for telling us.": Done, "Refunded.": Done, "Your tickets are issued.": Done, "You may publish our name.": Acceptance, "Please take this as my notice.": Pledge,
		"This is my resignation.": Pledge, "Go ahead and order them.": Acceptance, "I'd like to proceed with the late flight.": Acceptance, "I would like to go ahead.": Acceptance, "Consider it sold.": Acceptance, "The offer stands until Friday": FirstPersonFuture,
	} {
		found := false
		for _, h := range d.Detect(s) {
			found = found || h.Name() == want && !h.Shadow
		}
		if !found {
			t.Errorf("%q: no %s in %+v", s, want, d.Detect(s))
		}
	}
}

// As the answer to a question, the sender's next step binds, since somebody relies on it.
func TestAnswersBind(t *testing.T) {
	d := detector(t, Options{})
	for s, want := range map[string]string{"I'll open the file.": FirstPersonFuture, "Yes, send them.": Acceptance, "Sure, order it": Acceptance} {
		if found := d.Detect(s); len(found) > 0 && !found[0].Shadow {
			t.Errorf("%q by itself: %+v", s, found)
		}
		hits := d.ScanAfter(Before{Asked: true}, []text.Passage{{Text: s, Prose: true}})
		if len(hits) == 0 || hits[0].Name() != want || hits[0].Shadow {
			t.Errorf("%q in answer: %+v", s, hits)
		}
	}
}
