package commitment

import "strings"

// phrase is an opener of a cue, and the condition under which it is one.
type phrase struct {
	family string
	then   then
	// languages are the languages with the phrase, one bit each.
	languages uint16
}

// then is a condition on the text around an opener.
type then uint8

const (
	// always: the phrase is enough.
	always then = iota
	// aDeed: a promising verb follows, possibly after adverbs.
	aDeed
	// aHandout: one of the few verbs follows that promise after "let me".
	aHandout
	// anObject: "you'll have it", and not "you'll have to".
	anObject
	// aYes: an acceptance, unless it is asked or denied.
	aYes
	// aYesAlone: an acceptance that ends its sentence: "I'm in.", and not "I'm
	// in Houston".
	aYesAlone
	// aYesBare: an acceptance that is a whole sentence: "Deal."
	aYesBare
	// aJudgement: an acceptance that ends its sentence, or names the one it suits: "That deal is
	// acceptable to us", and not "ignoring the error is acceptable, because".
	aJudgement
	// aYesTo: an acceptance that ends its clause, or names its object: "I accept your offer".
	aYesTo
	// anOffer: a verb of giving by the sender follows, and a time: "we can offer the seminar on
	// Monday".
	anOffer
	// aDeedNow: one of the deeds is under way, with an addressee, a time or a sum: "we're letting
	// the fees go".
	aDeedNow
	// aPresent: one of the deeds that people announce in the present tense: "I bring it to you
	// tonight".
	aPresent
	// anOrder: the sentence begins here, and names something of the sender's or a number: "Charge
	// my card", "Ship 200".
	anOrder
	// aPurchase: the sentence orders a quantity, or says please, and not for information: "can I get
	// two lattes?", "I'd like a tea, please".
	aPurchase
	// aGift: a number follows, or the clause has a time or a sum: "I can give you 10 more".
	aGift
	// aLeaving: the sentence begins here, and ends its clause with the sender: "Leave the papers with
	// us".
	aLeaving
	// aYesOpens: an acceptance that begins its sentence.
	aYesOpens
	// aTimeBefore: a time comes directly before: "Saturday works".
	aTimeBefore
	// aTime: the clause has a time: "see you on Friday", "it will be ready at nine".
	aTime
	// aChoice: a time comes before, and the sentence ends: "Thursday it is."
	aChoice
	// aPart: a verb of taking part follows: "we'd love to join".
	aPart
	// aDeedUnsaid: the sentence begins here without "I", and one of the verbs follows with which
	// people omit it: "Will send".
	aDeedUnsaid
	// aDeedOfOurs: a verb of giving follows: "the company will pay".
	aDeedOfOurs
	// spoken: a cue of another language.
	spoken
	// aSealing: a proposal is sealed: "deal accepted", "the contract is signed".
	aSealing
	// aPermission: a verb follows for something that only the sender can allow: "you may publish
	// it".
	aPermission
	// aDoneAlone: a completed deed opens the text and ends its clause: "Cancelled."
	aDoneAlone
	// aDoneNow: aDone, for something that the reader has ordered: "your tickets are issued".
	aDoneNow
	// aDone: a verb follows for a completed deed that needed somebody's decision: "has been
	// cancelled".
	aDone
)

// openers are the phrases of the two families of words. The apostrophe is optional unless the
// result is another word.
var openers = [...]struct {
	family  string
	then    then
	phrases string // separated by commas
}{
	{FirstPersonFuture, aDeed, "i'll,we'll,i 'll,we 'll,i will,we will,i shall,we shall," +
		"i'm going to,i am going to,we're going to,we are going to,i'm gonna,we're gonna,i am gonna,we are gonna," +
		"i'm about to,we're about to,i am about to,we are about to,i intend to,we intend to," +
		"i'm happy to,i am happy to,i'd be happy to,i would be happy to,i'm glad to,i'd be glad to,i would be glad to," +
		"we're happy to,we are happy to,we'd be happy to,we would be happy to,we'd be glad to,we would be glad to," +
		"i'm willing to,i am willing to,we're willing to,we are willing to,i'm prepared to,we're prepared to," +
		"i am prepared to,we are prepared to,we've decided to,we have decided to,i've decided to,i have decided to,i decided to,we decided to,i mean to,we mean to," +
		"we'd be glad to,i'd gladly,we'd gladly,i would gladly,we would gladly,my team will,our team will"},
	{FirstPersonFuture, aDeedUnsaid, "will,ill,shall"},
	{FirstPersonFuture, aPresent, "i,we"},
	{FirstPersonFuture, aTime, "she'll have,he'll have,they'll have,will have it,will have them,will have the,will have your"},
	{FirstPersonFuture, aYesOpens, "count on,rely on,trust me with"},
	{FirstPersonFuture, aLeaving, "leave the,leave your,leave everything"},
	{Acceptance, aYesOpens, "consider me,consider us,yes to,yes for,count our"},
	{FirstPersonFuture, aYes, "i'm coming,we're coming,i am coming,we are coming,i'm bringing,we're bringing,i can make it,we can make it,i can be there,we can be there," +
		"i've got this,we've got this,i've got it covered,we've got you covered,i've got you covered,i'm covering,we're covering,it's on me,it's on us,is on me,is on us,are on me,are on us,on the house,in charge of the,i'm yours,bear the cost,bear the costs,takes over the cost,takes over the costs,get your money back,stand behind the,stand behind our,you may keep,you can keep,you may have the,you can use our,you can use my,you may use our,you may use my,my treat," +
		"i won't tell,we won't tell,i won't share,we won't share,we won't charge,i won't charge,we won't raise,we won't increase,we will not raise,we will not charge,we will not increase," +
		"i won't let you down,we won't let you down,you won't be charged,you will not be charged,won't cost you,free of charge,no charge,no extra charge,at no cost,i take responsibility," +
		"we take responsibility,i'm responsible for,i own this,i'll own,until then it's yours,you have my,you have our,you've got my,you've got our"},
	{Money, anOrder, "charge,debit,bill,invoice,order,ship,buy,sell,cancel,renew,extend,deduct,transfer,wire"},
	{Money, aPurchase, "can i get,could i get,can we get,could we get,can i have,could i have,may i have,can we have,could we have,i'd like,i would like,we'd like,we would like,i'll have,we'll have"},
	{Acceptance, aTimeBefore, "works,suits,fits,is fine,is good,is perfect,is great,is ok,is okay,is settled,is set,is a go,is a yes,is a date,works great,works fine,would work,would be fine,would be perfect"},
	{FirstPersonFuture, aYesBare, "i will,we will,i shall,we shall,i'll do it,we'll do it,i'll be there,we'll be there"},
	{FirstPersonFuture, aDeedNow, "i'm,i am,we're,we are"},
	{FirstPersonFuture, aTime, "they'll be there,they will be there,it'll be with you,it will be with you,they'll be with you,they'll be ready,they'll be up,they will be up,it'll be up,they'll be out,they will be out,it'll be out,will be in your,will be with you," +
		"will be at your,will be on your,will be ready,will arrive,will be delivered,will be shipped,will be refunded,will be back,you'll get a,you'll get an,you will get a," +
		"you will get an,you'll receive a,you will receive a,you'll find it,you'll find them,you will find it,expect it,expect them"},
	{FirstPersonFuture, aPart, "i'd love to,we'd love to,i would love to,we would love to,we'd be delighted to,i'd be delighted to,we would be delighted to,i would be delighted to"},
	{FirstPersonFuture, aDeedOfOurs, "the company will,our company will,my company will,our firm will,our side will,the company shall,our company shall," +
		"my boss will,our office will,my client will,my principal will,my user will"},
	{FirstPersonFuture, anOffer, "i can,we can,i could,we could"},
	{FirstPersonFuture, aHandout, "let me,allow me to"},
	{FirstPersonFuture, anObject, "you'll have,you will have,you'll get,you will get,you'll receive,you will receive"},
	{FirstPersonFuture, always, "it'll be ready,it will be ready,it'll be done,it'll be there,it'll be sent,it'll be delivered," +
		"it'll be finished,it'll be shipped,leave it to me,leave it with me,leave that to me,leave this to me," +
		"rest assured"},
	{FirstPersonFuture, aYes, "count me in,count us in,count on me,count on us,count on it,i'm on it,i am on it,we're on it,we are on it"},
	{Acceptance, aYes, "works for me,works for us,works well for me,works fine for me,works great for me," +
		"work for me,work for us,fine by me,fine by us,fine with me,fine with us,okay with me,ok with me,good with me,good for me," +
		"sounds good,sounds great,sounds fine,sounds perfect,let's go with," +
		"consider it done,consider it handled,consider it sorted,you have my word,you've got my word,i give you my word,we have a deal," +
		"we've got a deal,you have a deal,good with that,good with this,good with it,fine with that,fine with this," +
		"okay with that,ok with that,okay with this,ok with this,cool with that,happy with that,happy with this,sounds like a plan,sounds wonderful," +
		"sounds excellent,sounds right,sounds fair,sounds reasonable,go for it," +
		"it's settled,that's settled,shake on it,shake on that,you can have all,you can have the,you can have both,you can have one," +
		"you can have two,you can have three,you can have my,you can keep all,you can keep the,you can take all," +
		"you've got a deal,you got a deal,it's a deal,it is a deal,that's a deal,got yourself a deal,got yourselves a deal," +
		"it's a date," +
		"i can do that,we can do that,i could do that,see you then,see you there,you can go ahead,please go ahead,feel free to go ahead," +
		"happy to do that,happy to do so,happy to do it,glad to do that,glad to do it,glad to do so"},
	{Acceptance, aJudgement, "is acceptable,are acceptable"},
	{Acceptance, aGift, "i can give you,we can give you,i could give you,i can let you"},
	{Acceptance, aYesAlone, "i'm in,i am in,we're in,we are in,count us in,you're on,let's do it,let's do that,let's do this,let's go ahead,you got it,no objection,no objections,i'll take it,we'll take it," +
		"that works,that'll work,that will work,that would work,that works well,that works great,that works fine,that works perfectly,that's fine,that is fine," +
		"that would be great,that would be perfect,that'd be great,that would be fine"},
	{Acceptance, aYes, "put me down,put us down,put my name down,put our name down,put our names down,sign me up,sign us up,is yours,are yours,consider it paid,good for us,works too," +
		"ok with us,ok by me,ok by us,okay with us,okay by me,okay for me,okay for us,ok for me,ok for us,fine for me,fine for us,cool with me,good with us,great for me,great for us," +
		"fine with your,okay with your,ok with your,happy with your,good with your,works for our,let's do that one,let's go for,let's make it,charge it to,charge the visa," +
		"charge the card,charge my card,put it on my card,put it on my account,bill it to,bill me"},
	{Acceptance, aYes, "on board with,i'm on board,we're on board,i am on board,we are on board,i'm game,we're game,suits me,suits us,i can live with,we can live with,in favour of your,yes from me,yes from us," +
		"yes from our side,the answer is yes,my answer is yes,our answer is yes,green light,i consent,we consent,i give my consent,you have a yes,it's a yes,we'll go with,i'll go with,we go with," +
		"we've decided to go with,we have decided to go with,i've decided to go with,we choose,please proceed,please ship,please charge,please debit,you may charge,you may debit,you may publish,you may use my,you may use our," +
		"fine on our side,fine on my side,okay on our side,ok from our side,fine from our side,no objection from,no objections from,happy to accept,glad to accept,pleased to accept,delighted to accept," +
		"gladly accept,i'd like to proceed,i would like to proceed,i want to proceed,i'd like to go ahead,i would like to go ahead,deal then,it's yours,they're yours,all yours,i'm down for,we're down for,that's settled,you're in,you are in"},
	{Acceptance, aTime, "see you,see you on,see you at"},
	{Acceptance, aChoice, "it is,then,it is then"},
	{Acceptance, aSealing, "deal,offer,proposal,counteroffer,bid,quote,quotation,terms,conditions"},
	{Done, aSealing, "contract,agreement,lease,purchase,transaction,settlement,sale,treaty,papers"},
	{Acceptance, aPermission, "you may,they may,he may,she may"},
	{Done, aDoneAlone, "cancelled,canceled,refunded,reimbursed,paid,ordered,purchased,shipped,dispatched,rebooked,rescheduled,credited,waived,upgraded,renewed"},
	{Done, aDoneNow, "is,are,is all,are all"},
	{Acceptance, aYesOpens, "go ahead and,go ahead with,permission granted,request granted,you have permission,you're cleared,you are cleared,you have the green,you're good to go,that's a yes,it's a yes," +
		"consider it sold,consider it booked,consider it paid,consider it settled,consider it yours,consider it agreed,consider that done,consider that settled"},
	{FirstPersonFuture, aYesOpens, "be there at,be there by,will be there,on my way,be right there"},
	{FirstPersonFuture, aTime, "it goes out,they go out,it ships,they ship,you have it,you have them,you get it,you get them,offer stands,offer is valid,offer holds,price stands,price holds,prices hold"},
	{Acceptance, aYesBare, "you can,you may,i do,we do,that works"},
	{Acceptance, aYesTo, "i accept,we accept,i happily accept,we happily accept,i'd accept,we'd accept,i will accept,we will accept,i'll accept,we'll accept"},
	{Acceptance, aYesBare, "will do,on it,accepted,done deal,go ahead,you bet,sure thing,roger that,copy that,wilco,so be it,it's a go,ship it,do it,merge it,make it so,granted,proceed,please do,by all means,no objection,no objections"},
	{Pledge, aYes, "i vow,we vow,i pledge,we pledge,i swear,we swear,i hereby,we hereby,i solemnly,we solemnly,i undertake,we undertake," +
		"i bind myself,we bind ourselves,i give my word,we give our word,you have our word,my word on it,consider this our," +
		"consider this a binding,consider this a contract,consider this an order,consider this my,binding contract,binding offer,binding order," +
		"legally binding,we are bound,we're bound,i am bound,i'm bound,cross my heart,i assure you,we assure you,i can assure you,we can assure you,i stand by,we stand by,at our cost,at our expense,at my expense,i warrant,we warrant,i take full responsibility," +
		"we take full responsibility,you can count on,you can rely on,you may count on,you may rely on,i owe you,we owe you," +
		"this is our order,this is an order for,please accept this as our,i stake,take this as my,take this as our,accept this as my,treat this as my,treat this as our,regard this as my,regard this as our," +
		"this is my notice,this is our notice,this is my resignation,this is our acceptance,this is my consent,this is our consent,i give notice,we give notice,i'm giving notice,i hand in my notice"},

	{Done, aDone, "has been,have been,has now been,have now been,has just been,has already been,have already been,has also been,is now,are now," +
		"i've,i have,we've,we have,i just,we just,i already,i've just,i have just,i've already,i have already,i've now,i have now"},
	{Done, always, "on its way to you,on their way to you,is in the post,is in the mail,went out today,went out this,went out yesterday,has gone out,have gone out,i've put you down,we've put you down," +
		"i've added you,we've added you,i've set aside,we've set aside,i've kept,we've kept,you're registered,you are registered,you're enrolled,you are enrolled,you're signed up,you're on the list," +
		"it's done,it's paid,it is paid,is all set,you're down for,you are down for,is booked for you,are blocked for you,is blocked for you,you're all set,you are all set,you're booked,your cab is on,your ride is on"},
}

// verb is the meaning of a word after an opener.
type verb uint8

const (
	// work is the sender's own work, the default for unlisted verbs: "I'll search the logs". It
	// promises if its clause has an addressee, a time or a sum.
	work verb = iota
	// deed is for somebody: "I'll send it".
	deed
	// filler is skipped: "I'll gladly send".
	filler
	// state is no deed: "I'll need", "I will not".
	state
	// thing is a deed if the right words follow: "I'll do it", "I'll take care", "I'll make sure".
	thing
	// looking is no deed in "looking forward".
	looking
	// seeing is a deed with a person: "I'll see you at nine".
	seeing
	// helping is work with an object: "I'll help you solve it".
	helping
	// studying is work for an addressee only if the clause names one before its purpose: "I'll read
	// it for you", and not "I'll read the file to see what you changed".
	studying
)

const fillers = " also then just first again soon still only all both now further either therefore thus next once later instead second third" +
	" gladly always simply"

// amidSealing are the words that may stand between a proposal and its outcome.
const amidSealing = "now hereby already just as and"

var verbLists = [...]struct {
	verb  verb
	words string
}{
	{filler, fillers},
	{state, "not never hardly need assume guess admit say know think miss like love bet hope want wish understand" +
		" regret remain wonder believe presume suppose remember recall forget hate lose learn hear" +
		" pass survive live die fail require lack spare wait" +
		" the a an my your our his her their this that no to it in on at for from with by home"},
	{looking, "look"},
	{seeing, "see"},
	{deed, "send resend deliver pay repay ship refund reimburse arrange order sign countersign cancel forward bring buy sell give lend return email mail text" +
		" phone ring join attend come accept cover waive replace repair notify inform hold honor honour support back vouch transfer wire credit discount donate" +
		" contribute sponsor host fund finance invest renew extend upgrade grant release deduct charge bill invoice issue quit resign vote endorse introduce" +
		" invite meet travel fly drive cook bake mentor represent reply respond finish spend offer compensate indemnify settle owe apologize apologise share" +
		" schedule book reserve confirm approve allocate assign guarantee promise commit agree reschedule participate testify serve supply lower match beat" +
		" postpone swap trade keep stay stand throw"},
	{thing, things("do", "it that this so my everything both them whatever what") + things("make", "sure it up good them") + things("take", "care it them all both this that one two three none my") +
		things("get", "it you them him her back done this that your someone somebody everything") + things("have", "it them everything this that your him her someone somebody my") +
		things("handle", "it this that everything them") + things("put", "you your my our together aside") + things("let", "him her them you everyone") +
		things("sort", "it this that out") + things("follow", "up") + things("check", "with back") + things("fix", "it this that") + things("call", "him her them back") +
		things("deal", "with") + things("set", "aside") + things("pick", "up it them him her") + things("report", "back") + things("step", "in") + things("speak", "to with") + things("talk", "to with") + things("go", "with for ahead up down"),
	},
	{studying, "read search explore implement research"},
	{helping, "help assist guide walk explain tell teach remind"},
}

// things lists the words that make a deed of a verb.
func things(verb, words string) string {
	return " " + verb + " " + strings.ReplaceAll(verb+" "+words, " ", "+")
}

func (d *Detector) learnCues() {
	learn := func(spelled string, p phrase) {
		symbols := make([]glyph, len(spelled))
		for i := range symbols {
			switch c := spelled[i]; c {
			case ' ':
				symbols[i] = symGap
			case '\'':
				symbols[i] = symApostrophe
			default:
				symbols[i] = letterOf(c)
			}
		}
		d.cues.add(symbols, len(d.phrases))
		d.phrases = append(d.phrases, p)
	}
	for _, row := range openers {
		for spelled := range strings.SplitSeq(row.phrases, ",") {
			learn(spelled, phrase{family: row.family, then: row.then})
			first, _, _ := strings.Cut(spelled, " ")
			switch first {
			case "i'll", "we'll", "we're", "i'd", "we'd":
				// The results would be ill, well, were, id, wed.
			default:
				if bare := strings.ReplaceAll(spelled, "'", ""); bare != spelled {
					learn(bare, phrase{family: row.family, then: row.then})
				}
			}
		}
	}
	d.verbs, d.things = map[string]verb{}, map[string][]string{}
	for _, row := range verbLists {
		for word := range strings.FieldsSeq(row.words) {
			if with := strings.Split(word, "+"); len(with) > 1 {
				d.things[with[0]] = with[1:]
				continue
			}
			d.verbs[word] = row.verb
		}
	}
	d.money = !d.off(Money)
	d.learnTerms()
}
