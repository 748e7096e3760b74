package commitment

import (
	"strings"
	"sync"
	"unicode/utf8"
)

// list is one of the lists of words that cues are weighed by.
type list uint8

const (
	handouts      list = iota // the deeds behind "let me": most of what follows is none, as "let me know"
	endedInLy                 // deeds that end as adverbs do
	objects                   // what is promised by "you'll have"
	beings                    // what makes a deed of "I'll be"
	unsaid                    // the deeds that people say with no "I" before "will"
	offers                    // the deeds of "we can offer"
	housed                    // the deeds of those whom the sender acts for
	errands                   // what is no deed behind "I'll be"
	presents                  // the deeds of aPresent
	delivered                 // what is done to what is promised: "will be delivered"
	comings                   // the deeds of others that the sender may speak for
	parts                     // what people take part by
	fitting                   // what goes on a yes behind a time
	accepted                  // what a yes is said to by name
	speakers                  // those for whom the sender does not speak
	affirming                 // what a sentence says that says no more than yes
	outrightly                // of these, what is a yes also before a question
	padding                   // what else it may say
	wanting                   // behind one of these it may go on as it likes
	urging                    // behind "let's", so does one of these
	favours                   // what "please" asks for that is no yes
	noTrouble                 // no problem
	greetings                 // what goes before a question
	openQuestions             // what asks for more than a yes or a no
	yesQuestions              // what asks for a yes
	limits                    // what bounds what is left open: "by tomorrow"
	openEnded                 // what leaves open what a yes is to
	unnamed                   // what does so where it is bounded: "a reply by Friday"
	noChoice                  // what no choice is named by before "it is"
	sealing                   // what becomes of a deal
	auxiliary                 // the verbs before it
	notYet                    // what says that it has not
	permitted                 // what only the sender can allow
	ordered                   // what an order goes on with
	englishWords              // what tells English from the other languages
)

// lists are in lower case.
var lists = [...]string{
	handouts:  "send handle arrange set forward deliver fix sort organize organise prepare draft email mail schedule book confirm",
	endedInLy: "reply apply supply comply rely fly multiply imply",
	objects:   "it them everything this these those my our the",
	beings:    "there happy glad sure",
	unsaid: "send keep get let call forward follow have share email mail revert reply respond ping arrange deliver handle pay ship sign" +
		" join attend meet bring take check update confirm call come see make provide return give help try refund process prepare",
	offers: "offer provide deliver ship send have pay do start give meet accommodate supply refund waive cover finish complete lend sell buy" +
		" throw include extend come be make manage bring pick drop take hold sign join attend host",
	housed: "pay refund deliver ship cover provide send reimburse sign honor honour compensate accept buy order supply transfer wire waive return" +
		" replace repair indemnify",
	errands:  "going seeing traveling travelling leaving having heading looking wondering",
	presents: "pay send deliver ship bring give lend refund reimburse cover guarantee grant offer order buy sell cancel waive transfer return extend keep renew sign owe drop collect pick",
	delivered: "sent delivered shipped paid refunded reimbursed credited returned replaced repaired ready there back done finished completed waived transferred issued" +
		" included covered provided installed picked collected handed",
	comings:  "call contact arrive come join attend",
	parts:    "join attend come accept meet take help be have host sponsor",
	fitting:  "for with by me us well too fine great perfectly then good perfect better best",
	accepted: "your the this that it these those all both them",
	speakers: "you they he she who which what there i we this that if whether people users",
	affirming: "yes yep yup yeah yea aye sure surely ok okay k perfect great good fine right correct exactly absolutely definitely certainly alright" +
		" please do does sounds sound works work course indeed looks go proceed cool excellent wonderful awesome affirmative precisely true both winner" +
		" problem worries means done ja klar genau natürlich gerne oui volontiers sí claro vale perfecto certo prima natuurlijk sim はい 好 好的 可以 是的 行 \U0001f44d \u2705 \U0001f91d",
	outrightly: "yes yep yup yeah correct exactly",
	padding: "all very well it that thats that's this is for me us thanks thank you so much of look ahead with then and just either by one" +
		" was what looking thinking wanted the a an deal plan be will would thatd thatll it's to really quite about lets let's kind too sir maam" +
		" oh ah hi hello nice lovely splendid super amazing also of-course seems seem fair reasonable should got details",
	wanting:       "i i'd id we we'd i'm im",
	urging:        "proceed go book use reserve buy order do pay",
	favours:       "let note find see tell provide give share keep refer remember wait be make ensure check",
	noTrouble:     "problem worries",
	greetings:     "so and great then well thanks please kindly also hi hello sure",
	openQuestions: "what when where which who whom whose how why what's how's",
	yesQuestions: "shall should may would will can could want wanna like okay ok fine good deal right correct proceed ready accept agree" +
		" works work about acceptable confirm yes set willing happy able",
	limits:       "by before until till within after from",
	openEnded:    "any anything anytime anyone whatever whichever whenever wherever whoever everything",
	unnamed:      "a an some no either",
	noChoice:     "what whatever as how that who where which because if since though so and but than when whether is like think say know see sure believe it i you we they this there for not here yes no yeah yep sure ok okay well now still also only always then",
	sealing:      "accepted signed sealed executed concluded struck settled closed countersigned ratified finalised finalized agreed done approved",
	auxiliary:    "is are s has have been stands",
	notYet:       "once after before until till as when while unless was were be being gets got not",
	permitted:    "name publish record quote print reproduce mention copy reuse distribute resell sublicense enter proceed keep reprint translate broadcast display share sell",
	ordered:      "it them that this those these both all everything my our us me",
	englishWords: english,
}

// members are the words of each list, put together once a process.
var members = sync.OnceValue(func() *[len(lists)]map[string]struct{} {
	all := new([len(lists)]map[string]struct{})
	for i, words := range lists {
		all[i] = map[string]struct{}{}
		for word := range strings.FieldsSeq(words) {
			all[i][word] = struct{}{}
		}
	}
	return all
})

// has reports whether a word that was read is in the list.
func (l list) has(w *word) bool {
	_, in := members()[l][string(w.letters[:w.n])]
	return in
}

// holds reports whether a word is in the list, whatever the case.
func (l list) holds(word string) bool {
	var lower [maxWord]byte
	if len(word) > len(lower) {
		return false
	}
	for i := range len(word) {
		c := word[i]
		if c >= utf8.RuneSelf {
			_, in := members()[l][strings.ToLower(word)]
			return in
		}
		if capital(c) {
			c |= 0x20
		}
		lower[i] = c
	}
	_, in := members()[l][string(lower[:len(word)])]
	return in
}
