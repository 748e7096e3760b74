package commitment

// keyword is one of the thirteen keywords, with the words that count as it.
type keyword struct {
	name string
	// forms are its inflections, the nouns of its deed, and common misspellings. Nouns of the doer
	// (scheduler, approver, assignee, guarantor) are not among them: they name a part or a program,
	// and bind nobody.
	forms string
	// derived are the nouns of its deed that do not contain it.
	derived string
}

var keywords = [...]keyword{
	{"schedule", "schedule schedules scheduled scheduling schedulings shedule sheduled schedual scheduale", ""},
	{"meeting", "meeting meetings", ""},
	{"agree", "agree agrees agreed agreeing agreement agreements agreeement aggree aggreed aggreement agrement", ""},
	{"approve", "approve approves approved approving aprove aproved", "approval approvals aproval"},
	{"allocate", "allocate allocates allocated allocating alocate alocated", "allocation allocations alocation"},
	{"assign", "assign assigns assigned assigning assignment assignments asign asigned asignment", ""},
	{"reserve", "reserve reserves reserved reserving", "reservation reservations"},
	{"commit", "commit commits committed committing commitment commitments" +
		" commited commiting committment committments comitted comitment comit", ""},
	{"confirm", "confirm confirms confirmed confirming confirmation confirmations comfirm comfirmed", ""},
	{"book", "book books booked booking bookings", ""},
	{"deadline", "deadline deadlines deadlined deadlining", ""},
	{"promise", "promise promises promised promising promis promissed", ""},
	{"guarantee", "guarantee guarantees guaranteed guaranteeing guaranty guaranties guarantied" +
		" garantee garanteed guarentee guarenteed gaurantee gauranteed", ""},
}

// innocents are words that contain a keyword and are none. Any other run of letters that contains a
// keyword in the reference plugin's spelling is held: "pleaseapprove", "booknow". An
// innocent in the middle of a longer run is also held ("searchandbook" is no handbook). It is not
// held with a hyphen ("e-book"), spaced out ("c o m m i t t e e"), with digits for letters
// ("faceb00k") or with a hump ("MacBook").
const innocents = "facebook facebooks ebook ebooks notebook notebooks handbook handbooks textbook textbooks" +
	" cookbook cookbooks yearbook yearbooks workbook workbooks playbook playbooks runbook runbooks logbook logbooks" +
	" casebook casebooks guidebook guidebooks checkbook checkbooks chequebook chequebooks passbook passbooks" +
	" scrapbook scrapbooks sketchbook sketchbooks songbook songbooks storybook storybooks audiobook audiobooks" +
	" macbook macbooks chromebook chromebooks quickbook quickbooks freshbooks gitbook gitbooks ibook ibooks powerbook thinkbook" +
	" zenbook vivobook elitebook probook matebook netbook netbooks ultrabook ultrabooks pocketbook pocketbooks addressbook addressbooks" +
	" gradebook gradebooks lookbook lookbooks bluebook redbook bankbook bankbooks daybook daybooks copybook copybooks phonebook phonebooks" +
	" hymnbook hymnbooks rulebook rulebooks stylebook stylebooks sourcebook sourcebooks coursebook coursebooks schoolbook schoolbooks" +
	" wordbook wordbooks phrasebook phrasebooks guestbook guestbooks datebook datebooks cashbook cashbooks chapbook chapbooks" +
	" matchbook matchbooks hornbook psalmbook prayerbook promptbook promptbooks studbook studbooks blankbook subnotebook nonbook" +
	" photobook photobooks comicbook picturebook picturebooks orderbook orderbooks" +
	" bookmark bookmarks bookmarked bookmarking bookmarker bookmarkers bookmarklet bookmarklets bookkeeper bookkeepers bookkeeping" +
	" bookshelf bookshelves bookcase bookcases bookstore bookstores bookshop bookshops booklet booklets bookend bookends bookworm bookworms" +
	" bookish bookseller booksellers bookselling bookmaker bookmakers bookmaking bookie bookies bookable booker bookers bookman" +
	" bookbinder bookbinders bookbindery bookbinderies bookbinding bookcraft booklover booklovers bookmobile bookmobiles bookplate bookplates" +
	" bookrack bookrest bookstack bookstacks bookstall bookstalls bookstand bookstands bookwork bookbag bookbags bookrunner" +
	" unbooked committee committees committeeman committeemen committeewoman committeewomen subcommittee subcommittees intercommittee" +
	" committer committers committable committal committals noncommittal noncommittally uncommitted uncommit" +
	" disagree disagrees disagreed disagreeing disagreement disagreements disagreeable disagreeably disagreeableness" +
	" agreeable agreeably agreeableness agreeability agreer filagree filagrees fillagree shagreen" +
	" disapprove disapproves disapproved disapproving disapprovingly disapproval unapproved nonapproved approver approvers approvingly" +
	" assignee assignees assigner assigners assignor assignors assignable assignability assignation assignations assignat" +
	" unassigned unassign nonassignable reassignable" +
	" unreserved unreserve unreservedly reservedly reservedness reservist reservists reservable bioreserve" +
	" preserve preserves preserved preserving preserver preservers unpreserved" +
	" scheduler schedulers unscheduled nonscheduled allocator allocators allocatee unallocated deallocate deallocates deallocated deallocating" +
	" misallocate misallocated autoallocate" +
	" unconfirmed confirmatory confirmable confirmand confirmedly confirmer confirmers" +
	" promisingly unpromising unpromisingly promisee promisees promiser promisers procompromise immunocompromised" +
	" compromise compromises compromised compromiser compromising uncompromising uncompromisingly" +
	" meetinghouse meetinghouses deadliness guarantor guarantors"

// prefixed are words made of a keyword and a prefix. They are other words than the keywords, and
// bind as much: a family of their own.
const prefixed = "reschedule reschedules rescheduled rescheduling preschedule prescheduled" +
	" reapprove reapproved reapproval preapprove preapproves preapproved preapproving preapproval" +
	" reallocate reallocates reallocated reallocating reallocation overallocate overallocated" +
	" reassign reassigns reassigned reassigning reassignment reassignments preassign preassigned" +
	" recommit recommits recommitted recommitting recommitment precommit precommitted" +
	" overcommit overcommitted overcommitting overcommitment overcommitments" +
	" reconfirm reconfirms reconfirmed reconfirming reconfirmation reconfirmations" +
	" rebook rebooks rebooked rebooking prebook prebooked prebooking overbook overbooks overbooked overbooking"
