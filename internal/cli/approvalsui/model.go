package approvalsui

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/approval/describe"
	"github.com/openclawos/ocipd/internal/base/term"
)

// Watch shows the pending requests live, and takes decisions by keys.
func (s *People) Watch(ctx context.Context, key string) error {
	keys, err := s.OpenKey(key)
	if err != nil {
		return err
	}
	c, err := s.DialOperator(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	f := newFeed(s.DialOperator)
	var tasks sync.WaitGroup
	tasks.Go(func() { f.run(ctx, c) })
	defer tasks.Wait()
	defer cancel()
	d := newModel(ctx, s.Screen(), f.next(ctx), &daemonDecider{feed: f, keys: keys}, time.Now())
	screen := tea.NewProgram(d, tea.WithContext(ctx), tea.WithInput(s.Stdin), tea.WithOutput(s.Stdout),
		tea.WithEnvironment(s.Env), tea.WithoutSignalHandler())
	tasks.Go(func() { screen.Send(s.lastWeek(ctx)) })
	_, err = screen.Run()
	if errors.Is(err, context.Canceled) {
		return context.Canceled
	}
	return errors.Join(err, d.fatal)
}

// decider carries out a model's decisions.
type decider interface {
	look(ctx context.Context, id string) (*api.Approval, error)
	decide(ctx context.Context, a *api.Approval, p api.ApprovalResolveParams) (api.ApprovalResolveResult, error)
}

// Messages of a model, besides keys and the feed's.
type (
	tickMsg time.Time
	// lookedMsg is a held message that the model requested.
	lookedMsg struct {
		id string
		a  *api.Approval
		// decision is the intended decision, or "" to read the message.
		decision string
		err      error
		// together are requests that are to be approved with it, beginning with a.
		together []*api.Approval
	}
	// decidedMsg is the result of a decision about one or several messages, of which id is the last.
	// rest is set if it was about those that were not shown too.
	decidedMsg struct {
		id, kind, decision string
		done               []string
		rest               bool
		result             api.ApprovalResolveResult
		err                error
	}
)

// stage is the person's current activity.
type stage int

const (
	// choosing: the person goes through the list, with the chosen message below it.
	choosing stage = iota
	// reading: the chosen message has the whole screen.
	reading
	// fetching: the model waits for the message to decide about.
	fetching
	// writing: the person writes a text in place of the message.
	writing
	// confirming: the person is asked for confirmation.
	confirming
	// deciding: the model waits for the daemon to take the decision.
	deciding
	// noting and filtering: the person types one line.
	noting
	filtering
)

// model is the bubbletea model of the interactive command, in which a person sees pending
// requests and decides. One goroutine uses it.
type model struct {
	ctx     context.Context
	decider decider
	next    tea.Cmd // waits for news
	screen  term.Screen
	height  int
	now     time.Time

	connected bool
	// fresh holds the requests since the list began anew; nil if the list is complete.
	fresh map[string]bool
	held  map[string]*api.ApprovalSummary
	// rows are the rows of the list. top is the first visible one.
	rows    []group
	waiting []string // how many of which agent, in the order of rows
	table   *table
	flat    bool
	orders  []string // the first is that of the list
	filter  string
	top     int
	chosen  string // the id of a message of the chosen row

	stage stage
	// shown is the message on the page, and pageTop its first visible line.
	shown   *api.Approval
	asking  string // the id that was asked for last, to be read
	page    []string
	pageTop int
	// read is the digest of the last request whose page was seen to its end on the whole screen.
	read string

	// decision is the decision in progress about shown, and course the requests that it is about.
	decision string
	course   course
	// week says how many acts the last week took.
	week string
	// marked are messages to decide about in turn.
	marked map[string]bool
	// help is set while the keys are shown; helpFrom is the first visible line. unfolded is
	// set while all metadata are shown.
	help, unfolded bool
	helpFrom       int
	words          input  // the text in place of the message
	wordsFor       string // which message that is, "" for none
	typed          input  // the line that is being typed
	note           string

	said  string
	tone  term.Colour
	fatal error
}

func newModel(ctx context.Context, scr term.Screen, next tea.Cmd, o decider, now time.Time) *model {
	return &model{
		ctx: ctx, decider: o, next: next, screen: scr, height: term.DefaultHeight, now: now,
		held: make(map[string]*api.ApprovalSummary), marked: make(map[string]bool), fresh: make(map[string]bool), table: &table{tail: shortID}, orders: Orders(),
	}
}

// Init starts to wait for messages of the feed and for ticks.
func (d *model) Init() tea.Cmd { return tea.Batch(d.next, tick()) }

func tick() tea.Cmd { return tea.Tick(time.Second, func(t time.Time) tea.Msg { return tickMsg(t) }) }

// Update handles one message.
func (d *model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	var cmd tea.Cmd
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		d.screen.Width, d.height = msg.Width, msg.Height
		d.table.widths = nil
		d.turnTo(d.shown)
	case tickMsg:
		d.now = time.Time(msg)
		return d, tick()
	case newsMsg:
		cmd = tea.Batch(d.hear(msg), d.next)
	case lookedMsg:
		d.looked(msg)
	case decidedMsg:
		cmd = d.decided(msg)
	case weekMsg:
		d.week = string(msg)
	case tea.PasteMsg:
		d.paste(msg.Content)
	case tea.KeyPressMsg:
		cmd = d.press(msg)
	}
	if d.shown != nil && (d.stage == reading || d.stage == confirming) && d.readToEnd() {
		d.read = d.course.seen(d.shown)
	}
	return d, tea.Batch(cmd, d.follow())
}

// paste takes a pasted text, which is never the answer to a question.
func (d *model) paste(text string) {
	switch d.stage {
	case writing:
		d.words.insert(text)
	case noting:
		d.typed.insert(text)
	case filtering:
		d.typed.insert(text)
		d.filter = d.typed.String()
		d.sort()
	case choosing, reading, fetching, confirming, deciding:
	}
}

func (d *model) say(c term.Colour, format string, args ...any) {
	d.said, d.tone = term.Printable(fmt.Sprintf(format, args...)), c
}

// hear handles messages of the feed.
func (d *model) hear(news newsMsg) tea.Cmd {
	var cmd tea.Cmd
	for _, n := range news {
		switch n := n.(type) {
		case newsBegin:
			if !d.connected && d.fresh == nil {
				d.say(term.Green, "connected again")
			}
			d.connected, d.fresh, d.asking = true, make(map[string]bool), ""
		case newsHeld:
			cmd = tea.Batch(cmd, d.change(n.message))
		case newsCaught:
			for id := range d.held {
				if !d.fresh[id] {
					delete(d.held, id)
					delete(d.marked, id)
				}
			}
			d.fresh = nil
		case newsLost:
			d.connected, d.fresh = false, nil
			if d.stage == fetching || d.stage == confirming {
				d.back()
			}
			d.say(term.Red, "the daemon is gone (%v); looking for it", n.err)
		case newsEnd:
			d.fatal = n.err
			return tea.Quit
		}
	}
	d.sort()
	return cmd
}

// change handles a new or changed message.
func (d *model) change(a *api.ApprovalSummary) tea.Cmd {
	if a.State == api.ApprovalPending {
		d.held[a.ApprovalID] = a
		if d.fresh != nil {
			d.fresh[a.ApprovalID] = true
		}
	} else {
		delete(d.held, a.ApprovalID)
		delete(d.marked, a.ApprovalID)
	}
	same := d.shown == nil || d.shown.ApprovalID != a.ApprovalID || reflect.DeepEqual(&d.shown.ApprovalSummary, a)
	if same && !d.course.outdates(a) {
		return nil
	}
	// The screen is out of date.
	switch d.stage {
	case confirming, writing:
		d.back()
		d.say(term.Yellow, "%s changed under your eyes, and is %s now: look again", d.table.short(a.ApprovalID), describe.State(a.State))
	case deciding:
		return nil
	case choosing, reading, fetching, noting, filtering:
	}
	d.asking = a.ApprovalID
	return d.look(a.ApprovalID, "")
}

// sort computes the rows anew. The chosen message stays chosen.
func (d *model) sort() {
	messages := make([]*api.ApprovalSummary, 0, len(d.held))
	wanted := strings.ToLower(strings.TrimSpace(d.filter))
	for id := range d.marked {
		if d.held[id] == nil {
			delete(d.marked, id)
		}
	}
	for _, a := range d.held {
		if matches(a, wanted) {
			messages = append(messages, a)
		}
	}
	slices.SortFunc(messages, before(d.orders[0]))
	widths, was := d.table.widths, d.at()
	d.table = newTable(messages, "", d.now)
	d.table.widths = widths
	group := alike
	if d.flat {
		group = alone
	}
	d.rows, d.waiting = inTurn(group(messages)), nil
	for _, part := range byAgent(d.rows) {
		n := 0
		for _, row := range part {
			n += len(row)
		}
		d.waiting = append(d.waiting, fmt.Sprintf("%s %d", term.Printable(part[0].oldest().AgentID), n))
	}
	d.table.oneAgent = len(d.waiting) == 1 && len(messages) == len(d.held) // the title names it
	if d.at() < 0 {
		d.choose(was)
	}
}

// matches reports whether a message contains a text.
func matches(a *api.ApprovalSummary, wanted string) bool {
	return strings.Contains(strings.ToLower(strings.Join([]string{
		a.ApprovalID, a.AgentID, a.Agent, a.UserID, a.Counterparty, a.CounterpartyUserID, a.AppID, a.SessionKey, a.TaskID, describe.Codes(a), describe.Why(a), string(a.Likelihood), a.LikelyBecause, a.Summary,
	}, "\n")), wanted)
}

// at is the index of the chosen row, or -1.
func (d *model) at() int { return d.rowOf(d.chosen) }

func (d *model) rowOf(id string) int {
	return slices.IndexFunc(d.rows, func(row group) bool {
		return slices.ContainsFunc(row, func(a *api.ApprovalSummary) bool { return a.ApprovalID == id })
	})
}

// choose goes to a row, or the nearest one.
func (d *model) choose(at int) {
	d.chosen = ""
	if len(d.rows) > 0 {
		d.chosen = d.rows[max(0, min(at, len(d.rows)-1))].oldest().ApprovalID
	}
}

// follow fetches the page of the chosen row.
func (d *model) follow() tea.Cmd {
	if d.stage != choosing && d.stage != filtering {
		return nil
	}
	row := d.at()
	if row < 0 {
		d.asking = ""
		d.turnTo(nil)
		return nil
	}
	id := d.rows[row].oldest().ApprovalID
	if id == d.asking || !d.connected {
		return nil
	}
	d.asking = id
	return d.look(id, "")
}

func (d *model) look(id, decision string) tea.Cmd {
	ctx, decider := d.ctx, d.decider
	return func() tea.Msg {
		a, err := decider.look(ctx, id)
		return lookedMsg{id: id, a: a, decision: decision, err: err}
	}
}

// looked handles a requested message, unless the person has moved on.
func (d *model) looked(msg lookedMsg) {
	if msg.decision == "" {
		if msg.id != d.asking || d.stage == confirming || d.stage == deciding || d.stage == writing {
			return
		}
		if msg.err != nil {
			if d.asking = ""; d.connected { // otherwise the status already shows the problem
				d.say(term.Red, "cannot look at it: %v", msg.err)
			}
			return
		}
		d.turnTo(msg.a)
		return
	}
	if d.stage != fetching || msg.decision != d.decision {
		return
	}
	course := d.course
	d.back()
	switch {
	case msg.err != nil:
		d.say(term.Red, "cannot %s it: %v", describe.Verb(msg.decision), msg.err)
		return
	case msg.a.State != api.ApprovalPending:
		d.turnTo(msg.a)
		d.say(term.Yellow, "it is %s already", describe.State(msg.a.State))
		return
	case !slices.Contains(api.DecisionsOf(msg.a.Kind), msg.decision):
		d.turnTo(msg.a)
		d.say(term.Yellow, "%s", describe.NotOffered(msg.a.Kind))
		return
	case msg.decision == api.DecideApprove && !msg.a.Approvable:
		d.turnTo(msg.a)
		d.say(term.Red, "it cannot be approved: %s", describe.CannotApprove(msg.a))
		return
	}
	d.asking, d.pageTop, d.course = msg.id, 0, course
	if len(msg.together) > 1 {
		d.course.together = msg.together
	}
	d.stage = confirming
	if msg.decision == api.DecideTakeover {
		d.stage = writing
		if d.wordsFor != msg.id {
			d.wordsFor, d.words = msg.id, newInput(msg.a.Content, true, maxWords)
		}
	}
	d.turnTo(msg.a)
	d.said = ""
}

// turnTo shows a message.
func (d *model) turnTo(a *api.Approval) {
	if a == nil || d.shown == nil || a.ApprovalID != d.shown.ApprovalID {
		d.pageTop = 0
	}
	d.shown, d.page = a, nil
	if a == nil {
		return
	}
	if d.stage == confirming && d.decision == api.DecideTakeover {
		p := &term.Page{Screen: d.screen}
		if words := d.instead(); words != "" {
			(&describe.Text{Writer: p}).Instead(words)
		} else {
			p.Heading("You send the message as your own, as it is")
		}
		p.Line()
		d.page = p.Lines[1:]
	}
	if d.stage == confirming && len(d.course.together) > 0 {
		d.page = pageTogether(d.screen, d.course.together, d.unfolded)
		return
	}
	d.page = append(d.page, approvalPage(d.screen, a, d.now, d.unfolded)...)
}

// maxWords bounds the text in place of a message, in bytes, well below the longest line
// that a daemon reads.
const maxWords = 64 << 10

// back returns to the list, with the start of the chosen message below it.
func (d *model) back() {
	d.stage, d.said, d.pageTop, d.course.marked, d.course.together = choosing, "", 0, nil, nil
	d.turnTo(d.shown)
}

// instead is the text in place of the message, or "" if it is unchanged.
func (d *model) instead() string {
	if d.shown == nil || d.words.String() == d.shown.Content {
		return ""
	}
	return d.words.String()
}

// press handles a key.
func (d *model) press(k tea.KeyPressMsg) tea.Cmd {
	switch k.String() {
	case "ctrl+c":
		return tea.Quit
	case "ctrl+z":
		return tea.Suspend
	}
	if d.help {
		d.nextHelp()
		return nil
	}
	switch d.stage {
	case noting, filtering:
		d.typing(k)
	case writing:
		d.writing(k)
	case confirming:
		return d.confirm(k)
	case fetching:
		if k.String() == "esc" {
			d.back()
		}
	case choosing, reading:
		return d.command(k)
	case deciding:
	}
	return nil
}

// command handles a key of the list or of a page.
func (d *model) command(k tea.KeyPressMsg) tea.Cmd {
	if d.scroll(k) {
		return nil
	}
	switch k.String() {
	case "q":
		return tea.Quit
	case "esc", "enter":
		switch {
		case d.stage == reading:
			d.back()
		case k.String() == "enter" && d.shown != nil:
			d.stage = reading
		case len(d.marked) > 0:
			clear(d.marked)
		case d.filter != "":
			d.filter = ""
			d.sort()
		}
	case "?":
		d.help = true
	case "i":
		d.unfolded = !d.unfolded
		d.turnTo(d.shown)
	case "m":
		d.mark()
	case "g":
		regroup(d)
	case "M":
		markAll(d)
	case "G":
		d.choose(len(d.rows) - 1)
	case "/":
		d.stage, d.typed = filtering, newInput(d.filter, false, api.MaxNote)
	case "n":
		d.stage, d.typed = noting, newInput(d.note, false, api.MaxNote)
	case "a":
		return d.begin(api.DecideApprove)
	case "d":
		return d.begin(api.DecideDeny)
	case "t":
		return d.begin(api.DecideTakeover)
	case "r":
		return d.begin(api.DecideResolve)
	case "c":
		return d.begin(api.DecideChanges)
	case "o":
		d.order()
	}
	return nil
}

// mark marks or unmarks the messages of the chosen row, and goes to the next row.
func (d *model) mark() {
	row := d.at()
	if row < 0 || d.stage != choosing {
		return
	}
	marked := d.isMarked(d.rows[row])
	for _, a := range d.rows[row] {
		if delete(d.marked, a.ApprovalID); !marked {
			d.marked[a.ApprovalID] = true
		}
	}
	d.choose(row + 1)
	d.say(term.Dim, "%d marked", len(d.marked))
}

// markAll marks all listed messages, or unmarks them if all are marked.
func markAll(d *model) {
	if d.stage != choosing {
		return
	}
	all := !slices.ContainsFunc(d.rows, func(row group) bool { return !d.isMarked(row) })
	for _, row := range d.rows {
		for _, a := range row {
			if delete(d.marked, a.ApprovalID); !all {
				d.marked[a.ApprovalID] = true
			}
		}
	}
}

// regroup switches between a row for each request and one for similar requests.
func regroup(d *model) {
	d.flat = !d.flat
	d.table.widths = nil
	d.sort()
	if d.flat {
		d.say(term.Dim, "a row for each request: %d", len(d.rows))
		return
	}
	d.say(term.Dim, "one row for equal texts, or unlikely ones, to one receiver: %d in %s", count(d.rows), term.Count(len(d.rows), "row"))
}

// order switches to the next order of the list.
func (d *model) order() {
	d.orders = append(d.orders[1:], d.orders[0])
	d.sort()
	d.say(term.Dim, "in the order of %s", d.orders[0])
}

func (d *model) isMarked(row group) bool {
	return !slices.ContainsFunc(row, func(a *api.ApprovalSummary) bool { return !d.marked[a.ApprovalID] })
}

// scroll handles keys that move, and reports whether this is one.
func (d *model) scroll(k tea.KeyPressMsg) bool {
	key := k.String()
	page := max(1, d.pageHeight()-1)
	switch key {
	case "ctrl+f", "ctrl+d":
		key = "pgdown"
	case "ctrl+b", "ctrl+u":
		key = "pgup"
	}
	switch key {
	case "space":
		d.pageTop += page
	case "shift+space":
		d.pageTop -= page
	case "up", "k", "down", "j", "home", "end", "pgdown", "pgup":
		far := max(len(d.rows), len(d.page))
		if d.stage == choosing {
			page = max(1, d.listHeight()-1)
		}
		by := map[string]int{"up": -1, "k": -1, "down": 1, "j": 1, "home": -far, "end": far, "pgdown": page, "pgup": -page}[key]
		if d.stage == choosing {
			d.choose(d.at() + by)
			d.said = ""
			return true
		}
		d.pageTop += by
	default:
		return false
	}
	d.pageTop = max(0, min(d.pageTop, len(d.page)-d.pageHeight()))
	return true
}

// typing handles a key while a line is typed.
func (d *model) typing(k tea.KeyPressMsg) {
	switch key := k.String(); {
	case key == "enter" && d.stage == noting:
		d.note, d.stage, d.said = strings.TrimSpace(d.typed.String()), choosing, ""
	case key == "enter":
		d.stage = choosing
	case key == "esc" && d.stage == filtering:
		d.filter, d.stage = "", choosing
		d.sort()
	case key == "esc":
		d.stage = choosing
	default:
		d.typed.key(k)
		if d.stage == filtering {
			d.filter = d.typed.String()
			d.sort()
		}
	}
}

// writing handles a key while the text in place of a message is written.
func (d *model) writing(k tea.KeyPressMsg) {
	switch k.String() {
	case "esc":
		d.wordsFor = ""
		d.back()
	case "ctrl+d", "ctrl+s":
		if strings.TrimSpace(d.words.String()) == "" {
			d.say(term.Red, "say something, or leave it with esc")
			return
		}
		d.stage, d.said, d.pageTop = confirming, "", 0
		d.turnTo(d.shown)
	default:
		d.words.key(k)
	}
}

// begin fetches the chosen message to decide about it, because the decision is about the
// daemon's current version, not the listed one.
func (d *model) begin(decision string) tea.Cmd {
	row := d.at()
	var id string
	switch {
	case !d.connected:
		d.say(term.Red, "no daemon: nothing can be decided")
		return nil
	case d.stage == reading && d.shown != nil:
		// The message on the page, wherever it is in the list now.
		id = d.shown.ApprovalID
		row = d.rowOf(id)
	case row >= 0:
		id = d.rows[row].oldest().ApprovalID
	default:
		d.say(term.Yellow, "nothing is chosen")
		return nil
	}
	d.decision = decision
	if d.stage == choosing && len(d.marked) > 0 {
		if d.course.mark(d.rows, d.marked, decision); d.course.total == 0 {
			d.say(term.Yellow, "what is marked is not in this list: esc forgets it")
			return nil
		}
		return d.nextMarked()
	}
	d.course = course{}
	switch {
	case row < 0:
	case d.stage == choosing && decision == api.DecideApprove && atOnce(d.rows[row]):
		return d.fetch(idsOf(d.rows[row])...)
	default:
		d.course.alike = slices.DeleteFunc(idsOf(d.rows[row]), func(like string) bool { return like == id })
	}
	return d.fetch(id)
}

// confirm handles a key at the confirmation.
func (d *model) confirm(k tea.KeyPressMsg) tea.Cmd {
	if d.scroll(k) {
		d.said = ""
		return nil
	}
	all := k.String() == "A" && len(d.course.alike) > 0 && !Sends(d.decision)
	exchange := k.String() == "x" && d.offers()
	switch {
	case k.String() == "i":
		d.unfolded = !d.unfolded
		d.turnTo(d.shown)
	case k.String() == "n" && len(d.course.marked) > 0:
		delete(d.marked, d.shown.ApprovalID)
		for _, a := range d.course.together {
			delete(d.marked, a.ApprovalID)
		}
		return d.nextMarked()
	case k.String() == "esc", k.String() == "n", k.String() == "q":
		said := "nothing was decided"
		if d.course.total > 1 {
			said = "the rest stays as it is"
		}
		d.back()
		d.say(term.Dim, "%s", said)
	case k.String() != "y" && !all && !exchange:
	case Sends(d.decision) && d.read != d.course.seen(d.shown):
		d.say(term.Yellow, "read to the end first: space goes on")
	default:
		d.stage = deciding
		d.say(term.Dim, "deciding; a key in hardware may want a touch")
		var others []string
		if all {
			others = d.course.alike
		}
		return d.decide(others, exchange)
	}
	return nil
}

// offers reports whether the exchange can be approved together with the message.
func (d *model) offers() bool {
	return d.decision == api.DecideApprove && d.shown.Exchange != nil && len(d.course.together) == 0
}

func (d *model) readToEnd() bool { return d.pageTop+d.pageHeight() >= len(d.page) }

// decided handles the result of a decision.
func (d *model) decided(msg decidedMsg) tea.Cmd {
	course := d.course
	d.back()
	d.asking = ""
	for _, id := range msg.done {
		delete(d.marked, id)
	}
	if msg.err == nil {
		d.wordsFor = ""
		if len(course.marked) > 0 && !msg.rest {
			d.course = course
			return d.nextMarked()
		}
		d.note = ""
		d.say(term.Green, "%s", describe.Decided(msg.kind, msg.result))
		if msg.result.GrantID != "" {
			d.say(term.Green, "approved, and its exchange: ocipd approvals revoke %s takes that back", msg.result.GrantID)
		}
		if len(msg.done) > 1 {
			d.say(term.Green, "%s: %d of them, the last in record %d", describe.State(msg.result.State), len(msg.done), msg.result.AuditSeq)
		}
		return nil
	}
	before := ""
	if len(msg.done) > 0 {
		before = fmt.Sprintf("%d were decided; ", len(msg.done))
	}
	switch o := api.DetailsOf[api.Obstacle](msg.err); o.Code {
	case api.ApprovalStale:
		d.say(term.Yellow, "%sit is no longer what you saw: what changed is shown; look again", before)
	case api.AlreadyDecided:
		d.say(term.Yellow, "%s", decidedBefore(d.table.short(msg.id), msg.decision, o.State, o.By, o.At, d.now))
	default:
		d.say(term.Red, "%scannot %s it: %v", before, describe.Verb(msg.decision), msg.err)
	}
	return nil
}

// The fixed parts of the screen: the title above; below, a rule, the status, and the keys.
const (
	titleLines  = 1
	footerLines = 2
	ruleLines   = 1
)

// listHeight is the number of visible rows of the list; 0 if the page has the whole screen.
func (d *model) listHeight() int {
	switch d.stage {
	case choosing, noting, filtering, fetching:
	default:
		return 0
	}
	return max(1, min(len(d.rows), (d.height-titleLines-footerLines-ruleLines-1)*2/5))
}

// pageHeight is the number of visible lines of the page.
func (d *model) pageHeight() int {
	left := d.height - titleLines - footerLines - ruleLines
	if list := d.listHeight(); list > 0 {
		left -= list + 1
	}
	return max(0, left)
}

// View draws the screen.
func (d *model) View() tea.View {
	p := &term.Page{Screen: d.screen}
	if d.help {
		for _, line := range d.helpLines() {
			p.Line(line)
		}
		view := tea.NewView(strings.Join(p.Lines, "\n"))
		view.AltScreen = true
		return view
	}
	p.Line(d.title())
	if height := d.listHeight(); height > 0 {
		d.list(p, height)
	}
	p.Line(d.rule())
	var cursor *tea.Cursor
	if d.stage == writing {
		cursor = d.writePage(p)
	} else {
		d.readPage(p)
	}
	last := d.status()
	if d.stage == noting || d.stage == filtering {
		last, cursor = d.prompt(len(p.Lines))
	}
	p.Line(last)
	p.Line(p.Paint(term.Dim, term.KeyLine(d.keys(), d.screen.Width)))
	view := tea.NewView(strings.Join(p.Lines, "\n"))
	view.AltScreen, view.Cursor = true, cursor
	return view
}

func (d *model) title() string {
	text := "ocipd approvals: "
	switch {
	case len(d.held) == 0:
		text += "nothing waits for a person"
	case d.filter == "":
		text += fmt.Sprintf("%d waiting%s (%s)", len(d.held), markedWords(d.marked), strings.Join(d.waiting, ", "))
	default:
		text += fmt.Sprintf("%d of %d waiting%s, those with %s", count(d.rows), len(d.held), markedWords(d.marked), term.Printable(d.filter))
	}
	state, c := "live", term.Green
	if !d.connected {
		state, c = "no daemon", term.Red
		if d.fresh != nil {
			state, c = "connecting", term.Yellow
		}
	}
	room := d.screen.Width - len(state) - len(term.Gap)
	text = term.Cut(text, room)
	pad := strings.Repeat(" ", max(0, room-term.Width(text)))
	return d.screen.Colour.Paint(term.Bold, text) + pad + term.Gap + d.screen.Colour.Paint(c, state)
}

// markedWords counts the marked messages, those outside the filter too.
func markedWords(marked map[string]bool) string {
	if len(marked) == 0 {
		return ""
	}
	return fmt.Sprintf(", %d marked", len(marked))
}

// list draws the rows around the chosen one.
func (d *model) list(p *term.Page, height int) {
	at := d.at()
	if at >= 0 {
		d.top = max(min(d.top, at), at-height+1)
	}
	d.top = max(0, min(d.top, len(d.rows)-height))
	d.table.rows, d.table.now = d.rows[d.top:min(len(d.rows), d.top+height)], d.now
	scr := d.screen
	scr.Width = max(1, scr.Width-2)
	lines := d.table.lines(scr)
	p.Line("  ", lines[0])
	for i, line := range lines[1:] {
		mark := " "
		if d.isMarked(d.rows[d.top+i]) {
			mark = "*"
		}
		if d.top+i != at {
			p.Line(" ", p.Paint(term.Bold, mark), line)
			continue
		}
		plain := scr
		plain.Colour.On = false
		d.table.rows = d.rows[at : at+1]
		line = d.table.lines(plain)[1]
		line += strings.Repeat(" ", max(0, scr.Width-term.Width(line)))
		p.Line(p.Paint(term.Reversed, "›"+mark+line))
	}
	for range height - len(lines) + 1 {
		p.Line()
	}
}

// rule separates the list from the page, and says how much of the page is visible.
func (d *model) rule() string {
	text := "──"
	if d.stage == confirming && d.course.total > 1 {
		text += fmt.Sprintf(" %d of %d marked ──", d.course.total-d.course.left(), d.course.total)
	}
	if below := len(d.page) - d.pageTop - d.pageHeight(); d.stage == writing {
		text += " your words in its place "
	} else if below > 0 {
		text += fmt.Sprintf(" %s below: space scrolls", term.Count(below, "more line"))
		if d.stage == choosing {
			text += ", enter reads"
		}
		text += " "
	}
	text = term.Cut(text, d.screen.Width)
	return d.screen.Colour.Paint(term.Dim, text+strings.Repeat("─", max(0, d.screen.Width-term.Width(text))))
}

func (d *model) readPage(p *term.Page) {
	height := d.pageHeight()
	top := max(0, min(d.pageTop, len(d.page)-height))
	for i := range height {
		if top+i < len(d.page) {
			p.Line(d.page[top+i])
		} else {
			p.Line()
		}
	}
}

// writePage shows the text that is being written.
func (d *model) writePage(p *term.Page) *tea.Cursor {
	height := d.pageHeight()
	lines, x, y := d.words.layOut(d.screen.Width - term.Width(term.Gutter))
	top := max(0, y-height+1)
	cursor := tea.NewCursor(x+term.Width(term.Gutter), len(p.Lines)+y-top)
	for i := range height {
		if top+i < len(lines) {
			p.Line(p.Paint(term.Dim, term.Gutter), lines[top+i])
		} else {
			p.Line()
		}
	}
	return cursor
}

// prompt is the line that is being typed, scrolled to the cursor.
func (d *model) prompt(y int) (string, *tea.Cursor) {
	name := "note: "
	if d.stage == filtering {
		name = "filter: "
	}
	room := max(12, d.screen.Width-len(name)-1)
	lines, x, at := d.typed.layOut(room)
	return d.screen.Colour.Paint(term.Bold, name) + lines[at], tea.NewCursor(len(name)+x, y)
}

// status is the line below the page.
func (d *model) status() string {
	text, c := d.said, d.tone
	switch {
	case d.stage == confirming && text == "":
		text, c = question(d.shown, d.decision), term.Bold
		if n := len(d.course.together); n > 0 {
			text = fmt.Sprintf("Approve these %d, each as it is shown?", n)
		}
		if n := len(d.course.alike); n > 0 && d.course.total == 0 && !Sends(d.decision) {
			text += fmt.Sprintf(" There are %d more like it.", n)
		}
	case text == "" && d.note == "" && d.stage == choosing:
		text, c = d.week, term.Dim
	case text == "" && d.note != "":
		text, c = "note: "+term.Printable(d.note), term.Dim
	}
	return d.screen.Colour.Paint(c, term.Cut(text, d.screen.Width))
}

// keys describes the keys of a stage.
func (d *model) keys() string {
	switch d.stage {
	case noting, filtering:
		return "enter keep  esc leave"
	case writing:
		return "ctrl+d go on  esc leave"
	case confirming:
		switch {
		case len(d.course.marked) > 0 && Sends(d.decision):
			return "y yes  n not this one  esc leave  space read on  i metadata"
		case len(d.course.marked) > 0:
			return fmt.Sprintf("y yes  A yes, and the other %d marked  n not this one  esc leave", len(d.course.alike))
		case len(d.course.alike) > 0 && !Sends(d.decision):
			return fmt.Sprintf("y yes  A yes, and the %d like it  n no  space read on", len(d.course.alike))
		}
		if d.offers() {
			return "y yes  x yes, and its exchange within these bounds  n no  space read on"
		}
		return "y yes  n no  space read on"
	case fetching:
		return "esc leave"
	case deciding:
		return ""
	case reading:
		return d.decisionKeys() + "i metadata  esc back  ? help  q quit"
	case choosing:
	}
	return d.decisionKeys() + "m mark  / filter  enter read  ? help  q quit"
}

// decisionKeys describes the keys for decisions about the shown request.
func (d *model) decisionKeys() string {
	kind := api.ApprovalOfMessage
	if d.shown != nil {
		kind = d.shown.Kind
	}
	switch kind {
	case api.ApprovalOfEffect:
		return "a approve  d deny  c changes  "
	case api.ApprovalOfPermission:
		return "a approve  d deny  "
	case api.ApprovalOfEscalation:
		return "d deny  r resolve  "
	case api.ApprovalOfDelivery:
		return "a approve  d deny  r resolve  "
	}
	return "a approve  d deny  t take over  "
}
