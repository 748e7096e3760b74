package commitment

// keyword is one of the thirteen, with the words that count as it.
type keyword struct {
	name string
	// forms are its inflections and the nouns of its deed, and the ways people
	// misspell them. Nouns of the doer (scheduler, approver, assignee,
	// guarantor) are not among them: they name a part or a program, and bind
	// nobody.
	forms string
}

var keywords = [...]keyword{
	{"schedule", "schedule schedules scheduled scheduling schedulings shedule sheduled schedual scheduale"},
	{"meeting", "meeting meetings"},
	{"agree", "agree agrees agreed agreeing agreement agreements agreeement aggree aggreed aggreement agrement"},
	{"approve", "approve approves approved approving approval approvals aprove aproved aproval"},
	{"allocate", "allocate allocates allocated allocating allocation allocations alocate alocated alocation"},
	{"assign", "assign assigns assigned assigning assignment assignments asign asigned asignment"},
	{"reserve", "reserve reserves reserved reserving reservation reservations"},
	{"commit", "commit commits committed committing commitment commitments" +
		" commited commiting committment committments comitted comitment comit"},
	{"confirm", "confirm confirms confirmed confirming confirmation confirmations comfirm comfirmed"},
	{"book", "book books booked booking bookings"},
	{"deadline", "deadline deadlines deadlined deadlining"},
	{"promise", "promise promises promised promising promis promissed"},
	{"guarantee", "guarantee guarantees guaranteed guaranteeing guaranty guaranties guarantied" +
		" garantee garanteed guarentee guarenteed gaurantee gauranteed"},
}

// innocents are words that hold a keyword and are none. They matter only where
// a walk could take them apart again: written with a hyphen ("e-book"), spaced
// out ("c o m m i t t e e"), with digits for letters ("faceb00k") or with a
// hump ("MacBook"). Solid and plain, a word of this kind never matches, listed
// or not.
const innocents = "facebook facebooks ebook ebooks notebook notebooks handbook handbooks textbook textbooks" +
	" cookbook cookbooks yearbook yearbooks workbook workbooks playbook playbooks runbook runbooks logbook logbooks" +
	" casebook casebooks guidebook guidebooks checkbook checkbooks chequebook chequebooks passbook passbooks" +
	" scrapbook scrapbooks sketchbook sketchbooks songbook songbooks storybook storybooks audiobook audiobooks" +
	" macbook macbooks chromebook chromebooks quickbook quickbooks freshbooks gitbook gitbooks ibook ibooks powerbook thinkbook" +
	" zenbook vivobook elitebook probook matebook netbook netbooks ultrabook ultrabooks pocketbook addressbook addressbooks" +
	" gradebook gradebooks lookbook lookbooks bluebook redbook bankbook bankbooks daybook daybooks copybook phonebook phonebooks" +
	" bookmark bookmarks bookmarked bookmarking bookmarklet bookkeeper bookkeepers bookkeeping bookshelf bookshelves" +
	" bookcase bookcases bookstore bookstores bookshop bookshops booklet booklets bookend bookends bookworm bookish" +
	" bookseller booksellers bookmaker bookmakers bookie bookies bookable booker" +
	" committee committees committeeman subcommittee subcommittees committer committers noncommittal" +
	" disagree disagrees disagreed disagreeing disagreement disagreements agreeable agreeably disagreeable" +
	" disapprove disapproves disapproved disapproving disapproval unapproved approver approvers" +
	" assignee assignees assigner assigners assignor assignable assignation unassigned" +
	" unreserved unreservedly reservist reservists reservable" +
	" scheduler schedulers unscheduled allocator allocators unallocated" +
	" unconfirmed confirmatory promisingly compromise compromises compromised compromising unpromising" +
	" guarantor guarantors"

// prefixed are words made of a keyword and a prefix. They are other words than
// the thirteen, and bind as much: a family of their own.
const prefixed = "reschedule reschedules rescheduled rescheduling preschedule prescheduled" +
	" reapprove reapproved reapproval preapprove preapproves preapproved preapproving preapproval" +
	" reallocate reallocates reallocated reallocating reallocation overallocate overallocated" +
	" reassign reassigns reassigned reassigning reassignment" +
	" recommit recommits recommitted recommitting precommit precommitted overcommit overcommitted overcommitting" +
	" reconfirm reconfirms reconfirmed reconfirming reconfirmation" +
	" rebook rebooks rebooked rebooking prebook prebooked prebooking overbook overbooked"
