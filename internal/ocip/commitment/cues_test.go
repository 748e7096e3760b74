package commitment

import (
	"slices"
	"strings"
	"testing"

	textpkg "github.com/openclawos/ocipd/internal/base/text"
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
		{FirstPersonFuture, "I'd be happy to help on Saturday", "I'd be happy to help"},
		{FirstPersonFuture, "I 'll send it over", "I 'll send"},
		{FirstPersonFuture, "Ill let you know", "Ill let"},
		{FirstPersonFuture, "Will send it over.", "Will send"},
		{FirstPersonFuture, "Thanks! Will keep you posted", "Will keep"},
		{FirstPersonFuture, "I will see you at 9 am on Sunday", "I will see you"},
		{FirstPersonFuture, "We can offer the seminar on Monday", "We can offer"},
		{FirstPersonFuture, "The company will pay for it", "The company will pay"},
		{FirstPersonFuture, "I'll review the contract by Friday.", "I'll review"},
		{FirstPersonFuture, "I'll check the logs for you", "I'll check"},
		{FirstPersonFuture, "By Friday I'll run the tests", "I'll run"},
		{FirstPersonFuture, "I'll process the refund", "I'll process"},
		{FirstPersonFuture, "I'll take 2 of them", "I'll take"},
		{FirstPersonFuture, "I'll take care of it", "I'll take"},
		{FirstPersonFuture, "We'll make sure it works", "We'll make"},
		{FirstPersonFuture, "I will personally deliver it", "I will personally deliver"},
		{Acceptance, "Yes. That deal is acceptable.", "is acceptable"},
		{Acceptance, "I accept your offer", "I accept"},
		{Acceptance, "I'm fine with that.", "fine with that"},
		{Acceptance, "You can have all the water.", "You can have all"},
		{Acceptance, "Roger that.", "Roger that"},
		{Acceptance, "Let's do it!", "Let's do it"},
		{Pledge, "I vow to return it", "I vow"},
		{Pledge, "We pledge our support", "We pledge"},
		{Pledge, "I swear it is real", "I swear"},
		{Pledge, "We hereby order 100 units", "We hereby"},
		{Pledge, "Consider this our contract", "Consider this our"},
		{Pledge, "This is legally binding.", "legally binding"},
		{Pledge, "You can count on us", "You can count on"},
		{Done, "Your order has been cancelled", "has been cancelled"},
		{Done, "Your order has been successfully changed.", "has been successfully changed"},
		{Done, "It has been paid.", "has been paid"},
		{Done, "I've cancelled the subscription", "I've cancelled"},
		{Done, "I have just transferred your seat", "I have just transferred"},
		{FirstPersonFuture, "I will.", "I will"},
		{FirstPersonFuture, "We're letting the fees go on Monday", "We're letting"},
		{FirstPersonFuture, "They'll be there by the 12th.", "They'll be there"},
		{FirstPersonFuture, "I'll keep it till the 1st.", "I'll keep"},
		{FirstPersonFuture, "I'll take the blue one.", "I'll take"},
		{FirstPersonFuture, "We'd be delighted to take part", "We'd be delighted to take"},
		{Acceptance, "Put us down for it", "Put us down"},
		{Acceptance, "See you Saturday at 10.", "See you"},
		{Acceptance, "OK, Thursday it is.", "it is"},
		{Acceptance, "20:30 then.", "then"},
		{Acceptance, "The garden is yours on 12 July.", "is yours"},
		{Acceptance, "You've got yourself a deal.", "got yourself a deal"},
		{Pledge, "There'll be none, I assure you", "I assure you"},
		{Done, "Your appointment has been moved", "has been moved"},
		{Done, "A new card is on its way to you", "on its way to you"},
		{FirstPersonFuture, "Your invoice will be paid by the end of next week.", "will be paid"},
		{FirstPersonFuture, "My assistant will call you tomorrow", "will call"},
		{FirstPersonFuture, "I bring it to you tonight", "I bring"},
		{FirstPersonFuture, "I'll be your witness.", "I'll be your"},
		{FirstPersonFuture, "Leave the papers with us.", "Leave the"},
		{FirstPersonFuture, "We won't charge for it", "We won't charge"},
		{FirstPersonFuture, "Dinner is on me.", "is on me"},
		{FirstPersonFuture, "We've decided to give it to Carol", "We've decided to give"},
		{Money, "Debit our account", "Debit"},
		{Money, "Ship 200 to the depot.", "Ship"},
		{Acceptance, "Noon on Tuesday works.", "works"},
		{Acceptance, "Consider me on the list", "Consider me"},
		{Acceptance, "Please proceed.", "Please proceed"},
		{Done, "It's done.", "It's done"},
		{NextStep, "I'll bin the ages in steps", "I'll bin"},
		{NextStep, "We will handle empty cells", "We will handle"},
		{NextStep, "we'll be executing the code", "we'll be executing"},
		{NextStep, "I'll keep searching", "I'll keep"},
		{NextStep, "I'm sending a request", "I'm sending"},
		{NextStep, "I'll search the logs", "I'll search"},
		{NextStep, "Let's see. Next, I will carefully run the tests.", "I will carefully run"},
		{NextStep, "I'd be happy to help", "I'd be happy to help"},
		{NextStep, "I'll help you solve this", "I'll help"},
		{NextStep, "we will now use a loop", "we will now use"},
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
		{Money, "we could offer you 10% off", "we could offer you 10%"},
		{Money, "I could pay 500", "I could pay 500"},
		{Money, "happy to pay 500 euros", "happy to pay 500 euros"},
		{Money, "I am refunding €40 today", "I am refunding €40"},
		{Money, "we are transferring EUR 3000", "we are transferring EUR 3000"},
		{Money, "$500 works", "$500 works"},
		{Money, "our offer: we pay 2 million dollars", "we pay 2 million dollars"},
		{Prefixed, "It was rescheduled.", "rescheduled"},
		{Acceptance, "The terms are acceptable to us, thanks", "are acceptable"},
		{Acceptance, "I can give you 10 more", "I can give you"},
		{Acceptance, "We can give you a discount", "We can give you"},
		{Acceptance, "Monday at noon works great", "works great"},
		{Acceptance, "That works fine.", "That works fine"},
		{FirstPersonFuture, "Leave the rest of the papers to me", "Leave the"},
		{FirstPersonFuture, "Let me arrange a taxi", "Let me arrange"},
		{FirstPersonFuture, "Your order will be up shortly", "will be up"},
		{FirstPersonFuture, "It will be at the bar in five minutes.", "will be at"},
		{FirstPersonFuture, "The order will be out soon", "will be out"},
		{FirstPersonFuture, "Ill bring that to you now", "Ill bring"},
		{FirstPersonFuture, "Ill work on that today", "Ill work"},
		{FirstPersonFuture, "I'll read it for you", "I'll read"},
		{FirstPersonFuture, "We will research hotels by Friday", "We will research"},
		{NextStep, "I'll read these files to understand what you changed", "I'll read"},
		{NextStep, "I will search the folder so that your list is complete", "I will search"},
		{NextStep, "Ill work on that now", "Ill work"},
		{Money, "Hi, could I get two lattes?", "could I get"},
		{Money, "I'd like a tea with milk please", "I'd like"},
		{Money, "Can I get a decaf cortado please?", "Can I get"},
		{Money, "Please, we'd like 4 menus and a pie.", "we'd like"},
	} {
		hits := d.Detect(c.text)
		hits = slices.DeleteFunc(hits, func(h Hit) bool { return h.Rule == RuleKeyword })
		if c.rule == Money {
			// A promise to pay is reported by two rules.
			hits = slices.DeleteFunc(hits, func(h Hit) bool { return h.Rule == FirstPersonFuture })
		}
		if len(hits) != 1 || hits[0].Rule != c.rule || hits[0].Shadow != (c.rule == NextStep) || hits[0].Keyword != "" {
			t.Errorf("%q: found %+v, want one of %s", c.text, hits, c.rule)
			continue
		}
		if got := c.text[hits[0].Start:hits[0].End]; got != c.span {
			t.Errorf("%q: the span is %q, want %q", c.text, got, c.span)
		}
		if result := Judge(hits); result.RequiresHuman == (c.rule == NextStep) || len(result.DetectedKeywords) != 0 || result.DetectedKeywords == nil {
			t.Errorf("%q: judged %+v", c.text, result)
		}
	}
}

// TestNoCues has similar phrases that do not bind their author.
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
		"Will it send?", "Will you keep me posted?", "The ill will send for help", "We can offer help.", "We accept credit cards and cash.",
		"The function has been changed.", "It has been raining", "I have read your order", "Has your order been cancelled?", "The file has been updated",
		"It has not been paid", "The team has been highly successful", "we need to calculate the profit for selling 10 jars",
		"Yes.", "Sure", "Perfect, thanks!", // binding only as the answer to a question
		"The server will be restarted if it fails.", "He will call you tomorrow.", "We pay attention.", "It works on Tuesday's build", "I look forward to it",
		"The ship 200 miles out", "Our order came", "Shall we go?", "That will be all.",
		"Let me fix both.", "Let me set it to false", "Let me prepare the data", "Let me sort it first", "Let me draft it", "let me organize the files",
		"Ignoring it is acceptable, because it is a cache", "This is acceptable here.", "It is acceptable - mostly", "They are acceptable for tests", "Is that acceptable to us?",
		"I can give you accurate steps", "The build works fine now", "It works great on the second run", "Leave the loop as it is.", "Leave the key under the mat",
		"The server will be up", "I will be out of the office", "Ill people were sent home today", "She will be available",
		"Can I get a copy please?", "Can I get some information please?", "I'd like to know the time, please", "Could I have your name please?", "Can I get a coffee here?", "I'd like a word",
		"Can I get you two teas?", "If I would like two teas, I ask",
		"Sent 5 files", "on it goes", "I count on you", "The ones who count meet here",
	} {
		if hits := d.Detect(text); len(hits) > 0 {
			t.Errorf("%q: found %+v", text, hits)
		}
	}
}

func TestModes(t *testing.T) {
	const text = "I'll book it. Works for me. We could pay $500. Rescheduled. Our approval stands. I vow it. It has been paid. I'll search the logs. Встреча назначена на пятницу вечером"
	families := slices.DeleteFunc(Families(), func(name string) bool { return isLanguage(name) || name == Evidence })
	for _, family := range families {
		for _, mode := range []Mode{Enforce, Shadow, Off} {
			hits := detector(t, Options{Families: map[string]Mode{family: mode}}).Detect(text)
			for _, rule := range append([]string{RuleKeyword}, families...) {
				want := rule != family || mode != Off
				at := slices.IndexFunc(hits, func(h Hit) bool { return h.Rule == rule })
				if at >= 0 != want {
					t.Errorf("%s %s: found %s: %v, in %+v", family, mode, rule, at >= 0, hits)
				}
				if at >= 0 && hits[at].Shadow != (rule == family && mode == Shadow || rule != family && rule != RuleKeyword && DefaultMode(rule) == Shadow) {
					t.Errorf("%s %s: %+v", family, mode, hits[at])
				}
			}
			named := family
			if family == Derived {
				named = "approve" // the keyword from which it is derived
			}
			if got := Judge(hits).Reason; got == nil || strings.Contains(*got, named) != (mode == Enforce) {
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

// TestFlood puts one commitment of each kind among thousands of others: the first of each kind and
// zone are reported, in order, and no kind hides another.
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

// TestAnswers checks that a bare yes binds as the answer to a question, and nowhere else.
func TestAnswers(t *testing.T) {
	d := detector(t, Options{})
	for text, want := range map[string]bool{
		"Yes.": true, "yes": true, "Yep, that's right.": true, "Ok": true, "OK, thanks!": true, "Perfect": true, "Sure, no problem.": true, "*Yes*": true,
		"Yes please, go ahead with that": true, "Of course.": true, "That is correct.": true, "Yes, I would.": true, "That's fine": true, "\U0001f44d": true,
		"Great. The table is by the window.": true, "Yes\n\nSent by user's OpenClaw assistant": true,
		"Yes, please use the card on file.": true, "Yes please, at five o'clock": true, "Yes, let's go ahead with the late flight.": true, "Yes, that seems fair to me.": true, "Yes, for 2 people": true,
		"Yes, for two people.": true, "Perfect, and what is the address?": true, "Yes, what does it cost a day?": true, "Correct, how much is it?": true, "You got it right.": true, "Yes, can you do that for me?": true,
		"Sure, which city are you in?": false, "Sure, please let me know the date.": false, "Yes, let's solve it step by step.": false, "Sure, let us see.": false, "Yes, for the given input it returns ten.": false,
		"Yes, it has a garage, what else?": false, "Yes, both of the sums are the same.": false, "Yes, please note that it rains.": false, "What is the address?": false,
		"Yes, there are ten of them.": false, "No.": false, "No, that's okay.": false, "Okay?": false, "It costs ten.": false, "": false, "Thanks": false,
		"Perfect numbers are rare.": false, "Yes, but I don't know.": false, "Right now it rains": false,
	} {
		p := []textpkg.Passage{{Text: text, Prose: true}}
		hits := d.ScanAfter(Before{Asked: true}, p)
		other := slices.ContainsFunc(hits, func(h Hit) bool { return h.Rule != Acceptance })
		if got := len(hits) > 0; got != want || other {
			t.Errorf("%q: found %+v, want %v", text, hits, want)
		}
	}
	for text, want := range map[string]bool{
		"Shall I send it?": true, "Hi Bob,\n\nwould Friday work for you?\n\nCarol": true, "Is Friday fine?": true, "How about Monday?": true, "Do you want it?": true,
		"Please confirm that you would like two seats.": true, "Please confirm: a table for six at eight.": true, "Confirming your visit on Monday.": true, "All is ready. Kindly confirm if we may go on.": true, "To pay by card? Please confirm.": true,
		"Please confirm that the files have been updated.": false, "Please confirm once it is done.": false, "I can confirm that it works.": false, "The sums confirm it.": false, "They asked you to confirm it.": false, "confirmation": false,
		"Please look. Deal?": true, "好吗？": true, "What does it cost? Shall we?": true,
		"What would you like?": false, "Does it have a garden?": false, "Where are you?": false, "I see.": false, "": false, "When can you come?": false,
	} {
		if got := Asks(text); got != want {
			t.Errorf("%q asks: %v", text, got)
		}
	}
}

// TestHalves checks a commitment that is split over two messages.
func TestHalves(t *testing.T) {
	d := detector(t, Options{})
	for _, tt := range []struct {
		messages []string
		want     string
	}{
		{[]string{"I pro", "mise"}, "promise"}, {[]string{"please con", "firm it"}, "confirm"}, {[]string{"I will", "send it by Friday"}, FirstPersonFuture},
		{[]string{"c o m", "m i t"}, "commit"}, {[]string{"b", "o", "o", "k"}, "book"}, {[]string{"p", "r", "o", "m", "i", "s", "e"}, "promise"},
		{[]string{"we'd pay", "$500"}, Money}, {[]string{"xxapp", "rovexx"}, "approve"}, {[]string{"boo", "k it"}, "book"},
		{[]string{"I will", "not send it"}, ""}, {[]string{"such as", "signed copies"}, ""}, {[]string{"It was a pro.", "Mise en place."}, ""}, {[]string{"I will.", "Send it."}, ""},
		{[]string{"hello", "there"}, ""}, {[]string{"confirm", "it"}, ""}, {[]string{"", "it"}, ""},
	} {
		tail := ""
		var hits []Hit
		for i, m := range tt.messages {
			hits = d.ScanAfter(Before{Tail: tail}, []textpkg.Passage{{Text: m, Prose: true}})
			if i < len(tt.messages)-1 {
				tail = Tail(tail, m)
			}
			for _, h := range hits {
				if h.Start < 0 || h.Start >= h.End || h.End > len(m) {
					t.Errorf("%q: span of %+v", m, h)
				}
			}
		}
		if got := ""; len(hits) > 0 && hits[0].Name() != tt.want || len(hits) == 0 && tt.want != got {
			t.Errorf("%q: found %+v, want %s", tt.messages, hits, tt.want)
		}
		if len(tail) > maxTail {
			t.Errorf("%q: the tail is %q", tt.messages, tail)
		}
	}
}

// TestDerived checks that the nouns of a keyword's deed have a family of their own, which names the
// keyword.
func TestDerived(t *testing.T) {
	for text, keyword := range map[string]string{"The approval came.": "approve", "two RESERVATIONS": "reserve", "the al\u200blocation": "allocate", "pre-approval": "approve"} {
		for _, mode := range []Mode{Enforce, Shadow, Off} {
			hits := detector(t, Options{Families: map[string]Mode{Derived: mode}}).Detect(text)
			switch {
			case mode == Off && len(hits) == 0:
			case mode != Off && len(hits) == 1 && hits[0].Rule == Derived && hits[0].Keyword == keyword && hits[0].Shadow == (mode == Shadow) &&
				Judge(hits).RequiresHuman == (mode == Enforce) && slices.Equal(Judge(hits).DetectedKeywords, []string{keyword}[:map[Mode]int{Enforce: 1}[mode]]):
			default:
				t.Errorf("%q, %s: %+v", text, mode, hits)
			}
		}
	}
}
