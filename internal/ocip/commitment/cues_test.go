package commitment

import (
	"slices"
	"strings"
	"testing"
)

func TestCues(t *testing.T) {
	d := detector(t, Options{})
	for _, c := range []struct {
		rule, text, span string
	}{
		{FirstPersonFuture, "I'll send it by Friday", "I'll send"},
		{FirstPersonFuture, "I’ll send it by Friday", "I’ll send"},
		{FirstPersonFuture, "We will deliver the report.", "We will deliver"},
		{FirstPersonFuture, "we shall gladly pay for dinner", "we shall gladly pay"},
		{FirstPersonFuture, "I'm going to fix it today", "I'm going to fix"},
		{FirstPersonFuture, "Im going to fix it today", "Im going to fix"},
		{FirstPersonFuture, "I am gonna handle this", "I am gonna handle"},
		{FirstPersonFuture, "I will definitely also be there.", "I will definitely also be there"},
		{FirstPersonFuture, "we'll be sending the draft", "we'll be sending"},
		{FirstPersonFuture, "I'll have it ready", "I'll have"},
		{FirstPersonFuture, "I will\nfollow up", "I will\nfollow"},
		{FirstPersonFuture, "I **will** *send* it", "I **will** *send"},
		{FirstPersonFuture, "I'd be happy to help", "I'd be happy to help"},
		{FirstPersonFuture, "You'll have it by Monday.", "You'll have it"},
		{FirstPersonFuture, "you will receive the files tonight", "you will receive the"},
		{FirstPersonFuture, "Count me in!", "Count me in"},
		{FirstPersonFuture, "Leave it to me.", "Leave it to me"},
		{FirstPersonFuture, "let me send you the draft", "let me send"},
		{FirstPersonFuture, "It'll be ready tomorrow", "It'll be ready"},
		{FirstPersonFuture, "i\u200b'll se\u00adnd it", "i\u200b'll se\u00adnd"},
		{FirstPersonFuture, "Ι will dеliver it", "Ι will dеliver"}, // Greek and Cyrillic
		{FirstPersonFuture, "ｗｅ　ｗｉｌｌ　ｄｅｌｉｖｅｒ", "ｗｅ　ｗｉｌｌ　ｄｅｌｉｖｅｒ"},
		{Acceptance, "Thursday works for me.", "works for me"},
		{Acceptance, "That would work for us", "work for us"},
		{Acceptance, "Sounds good, talk then.", "Sounds good"},
		{Acceptance, "ok, let's do it", "let's do it"},
		{Acceptance, "Deal.", "Deal"},
		{Acceptance, "Great. Deal!", "Deal"},
		{Acceptance, "deal", "deal"},
		{Acceptance, "> old\n\nDeal - see you", "Deal"},
		{Acceptance, "It's a deal", "It's a deal"},
		{Acceptance, "Consider it done.", "Consider it done"},
		{Acceptance, "You have my word", "You have my word"},
		{Acceptance, "I'm in.", "I'm in"},
		{Acceptance, "I'm in, thanks", "I'm in"},
		{Acceptance, "Will do.", "Will do"},
		{Acceptance, "We accept your terms", "We accept"},
		{Acceptance, "Fine by me", "Fine by me"},
		{Money, "we'd pay $500", "we'd pay $500"},
		{Money, "We can offer you a flat $1,200.50 for it", "We can offer you a flat $1,200.50"},
		{Money, "budget of 20k approved", "20k approved"},
		{Money, "approved a budget of 20k", "approved a budget of 20k"},
		{Money, "we can give you 10% off", "we can give you 10%"},
		{Money, "I could pay 500", "I could pay 500"},
		{Money, "happy to pay 500 euros", "happy to pay 500 euros"},
		{Money, "I am refunding €40 today", "I am refunding €40"},
		{Money, "we are transferring EUR 3000", "we are transferring EUR 3000"},
		{Money, "$500 works", "$500 works"},
		{Money, "our offer: we pay 2 million dollars", "we pay 2 million dollars"},
		{Prefixed, "It was rescheduled.", "rescheduled"},
	} {
		hits := d.Detect(c.text)
		hits = slices.DeleteFunc(hits, func(h Hit) bool { return h.Rule == RuleKeyword })
		if len(hits) != 1 || hits[0].Rule != c.rule || hits[0].Shadow || hits[0].Keyword != "" {
			t.Errorf("%q: found %+v, want one of %s", c.text, hits, c.rule)
			continue
		}
		if got := c.text[hits[0].Start:hits[0].End]; got != c.span {
			t.Errorf("%q: the span is %q, want %q", c.text, got, c.span)
		}
		if result := Judge(hits); !result.RequiresHuman || len(result.DetectedKeywords) != 0 || result.DetectedKeywords == nil {
			t.Errorf("%q: judged %+v", c.text, result)
		}
	}
}

// TestNoCues holds what sounds alike and binds nobody who writes it.
func TestNoCues(t *testing.T) {
	d := detector(t, Options{})
	for _, text := range []string{
		"Will you send it?", "Will you send it by Friday, please?", "Can you pay $500?", "Could we do it on Monday?", "Shall I send it?",
		"Will I see you there tomorrow?", "Do you think he will deliver?", "They will deliver it.", "She'll send it.", "You will need a key.",
		"I'll see.", "I will not send it.", "I'll never pay.", "I won't send it.", "I'll be in Houston.", "We will be out of the office.",
		"I'll need your help", "I'll have to check", "If I will send it is unclear.", "I wonder whether we will deliver", "I'm going to the shop",
		"I will", "we'll,", "Let me know.", "Let me see.", "let me think about it",
		"You'll have to ask her.", "You will have time.", "you'll get there", "Will you have it by Monday?",
		"Does that work for you?", "Works for you?", "Works for me?", "That doesn't work for me.", "Nothing works for me",
		"I am not sure that works for me", "Would Friday work for us?", "Sounds good?", "Are you in?", "I'm in Houston.", "I am in favour of tea",
		"A big deal.", "Deal with it.", "We deal in cars.", "What's the deal?", "Deal?", "Do we have a deal?", "The dealer is here.",
		"Neither is fine by me", "He accepted the job", "I don't accept that: I accepted nothing", "The work is done.",
		"It costs $500.", "They paid $500 last year.", "How much is $500 in euros?", "You need to pay $500.", "Please pay $500 by Friday.",
		"Will you pay $500?", "we can't pay $500", "If we pay $500, what then?", "20k users", "Milestone 2 is at 75 percent", "75% done",
		"We are 100% sure", "He pays $500 rent", "Revenue was $5 million", "version 1.2.500", "the budget of 20k was refused",
		"Not 200k cleared", "not 1,200k cleared", "if 1.200.300k released then what",
		"ill send word", "well deliver", "wed", "were going to send", "",
		"Sent 5 files", "on it goes", "I count on you", "The ones who count meet here",
	} {
		if hits := d.Detect(text); len(hits) > 0 {
			t.Errorf("%q: found %+v", text, hits)
		}
	}
}

func TestModes(t *testing.T) {
	const text = "I'll book it. Works for me. We could pay $500. Rescheduled."
	for _, family := range Families() {
		for _, mode := range []Mode{Enforce, Shadow, Off} {
			hits := detector(t, Options{Families: map[string]Mode{family: mode}}).Detect(text)
			for _, rule := range append(Families(), RuleKeyword) {
				want := rule != family || mode != Off
				at := slices.IndexFunc(hits, func(h Hit) bool { return h.Rule == rule })
				if at >= 0 != want {
					t.Errorf("%s %s: found %s: %v, in %+v", family, mode, rule, at >= 0, hits)
				}
				if at >= 0 && hits[at].Shadow != (rule == family && mode == Shadow) {
					t.Errorf("%s %s: %+v", family, mode, hits[at])
				}
			}
			if got := Judge(hits).Reason; got == nil || strings.Contains(*got, family) != (mode == Enforce) {
				t.Errorf("%s %s: the reason is %v", family, mode, got)
			}
		}
	}
	shadowed := Options{Families: map[string]Mode{FirstPersonFuture: Shadow}}
	if result := Judge(detector(t, shadowed).Detect("I'll send it.")); result.RequiresHuman || result.Reason != nil {
		t.Errorf("a shadowed family judged %+v", result)
	}
	for name, o := range map[string]Options{
		"match":  {Match: "words"},
		"family": {Families: map[string]Mode{"keyword": Off}},
		"mode":   {Families: map[string]Mode{Money: "on"}},
		"empty":  {Families: map[string]Mode{Money: ""}},
		"hidden": {Match: MatchSubstring, Families: map[string]Mode{"monney": Off}},
	} {
		if d, err := New(o); err == nil || d != nil {
			t.Errorf("%s: accepted %+v", name, o)
		}
	}
}

func TestZones(t *testing.T) {
	d := detector(t, Options{})
	const signature = "\n-- \nI'll book it\nSomebody"
	for _, c := range []struct{ text, zones string }{
		{"I'll book it", "body body"},
		{"> I'll book it", "quote quote"},
		{"   > I'll book it", "quote quote"},
		{"> a\nbook\n> book\nbook", "body quote body"},
		{"On Monday Bob wrote:\nI'll book it\nbook", "quote quote quote"},
		{"On Monday Bob wrote:\n> book\n\nI'll book it", "quote body body"},
		{"On Mon, 1 Jan 2026 at 10:00,\nBob <b@example.org> wrote:\n\n> book\nbook", "quote body"},
		{"On Monday I'll book it.\nHe wrote: book", "body body body"},
		{"ok\n-----Original Message-----\nFrom: me\nbook", "quote"},
		{"```\nbook\n```\nbook", "code body"},
		{"~~~~ go\nbook\n```\nbook\n~~~\nbook\n~~~~\nbook", "code code code body"},
		{"```\nbook", "code"},
		{"```book``` book", "code body"},
		{"a `book` book ``x ` book`` book", "code body code body"},
		{"a ` book\nb ` book", "body body"},
		{"a `` book ` book ` book", "body code body"},
		{"book" + signature, "body signature signature"},
		{"book\n--\r\nbook", "body signature"},
		{"-- \n" + strings.Repeat("a line\n", 20) + "I'll book it", "body body"},
		{"book\nSent from my phone, which can book\nbook", "body signature body"},
		{"-- \nme\n> book", "quote"},
		{"> ```\nbook", "body"},
	} {
		var zones []string
		for _, h := range d.Detect(c.text) {
			zone := h.Zone
			if zone == ZoneBody {
				zone = "body"
			}
			zones = append(zones, zone)
			if cue := h.Rule != RuleKeyword; h.Shadow != (cue && h.Zone != ZoneBody) {
				t.Errorf("%q: %+v", c.text, h)
			}
		}
		if got := strings.Join(zones, " "); got != c.zones {
			t.Errorf("%q: zones %s, want %s", c.text, got, c.zones)
		}
	}
}

func TestDigest(t *testing.T) {
	d := detector(t, Options{})
	text := strings.Repeat("book ", 1000) + "\n> " + strings.Repeat("I'll send. ", 500) + "\n\nI'll send. commit"
	hits := d.Detect(text)
	if len(hits) != 2*MaxPerKind+2 {
		t.Fatalf("found %d hits", len(hits))
	}
	kept := Digest(hits, 64)
	if len(kept) != 64 || !sameResult(Judge(kept), Judge(hits)) {
		t.Errorf("kept %d: %+v", len(kept), Judge(kept))
	}
	if !slices.IsSortedFunc(kept, func(a, b Hit) int { return a.Start - b.Start }) {
		t.Errorf("out of order: %+v", kept)
	}
	if got := Digest(hits, 0); len(got) != 0 {
		t.Errorf("kept %+v of none", got)
	}
	if got := Digest(hits[:3], 64); len(got) != 3 {
		t.Errorf("kept %+v of three", got)
	}
}

// TestFlood drowns one commitment of each sort in thousands of others: the
// first of each sort and zone are reported, in order, and no sort hides another.
func TestFlood(t *testing.T) {
	const many = 3 * maxOpen
	text := strings.Repeat("book ", many) + "we can pay $500. " + strings.Repeat("I'll send it, we can pay $500. book ", many) +
		"\n> " + strings.Repeat("agree ", many) + "\n\ndeal. commit"
	hits := detector(t, Options{Families: map[string]Mode{FirstPersonFuture: Shadow}}).Detect(text)
	if !slices.IsSortedFunc(hits, func(a, b Hit) int { return a.Start - b.Start }) {
		t.Error("out of order")
	}
	count, first, last := map[kind]int{}, map[kind]int{}, map[kind]int{}
	for _, h := range hits {
		k := h.kind()
		if count[k]++; count[k] == 1 {
			first[k] = h.Start
		}
		last[k] = h.Start
	}
	for _, want := range []struct {
		kind        kind
		count       int
		first, last int
	}{
		{kind{"book", ZoneBody, false}, MaxPerKind, 0, 5 * (MaxPerKind - 1)},
		{kind{Money, ZoneBody, false}, MaxPerKind, 5 * many, -1},
		{kind{FirstPersonFuture, ZoneBody, true}, MaxPerKind, 5*many + 17, 5*many + 17 + 36*(MaxPerKind-1)},
		{kind{"agree", ZoneQuote, false}, MaxPerKind, strings.Index(text, "agree"), strings.Index(text, "agree") + 6*(MaxPerKind-1)},
		{kind{Acceptance, ZoneBody, false}, 1, strings.Index(text, "deal"), -1},
		{kind{"commit", ZoneBody, false}, 1, strings.Index(text, "commit"), -1},
	} {
		k := want.kind
		if count[k] != want.count || first[k] != want.first || want.last >= 0 && last[k] != want.last {
			t.Errorf("%+v: %d from %d to %d, want %d from %d to %d", k, count[k], first[k], last[k], want.count, want.first, want.last)
		}
		delete(count, k)
	}
	if len(count) > 0 {
		t.Errorf("besides: %v", count)
	}
}
