package approvalsui

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/base/term"
)

// Watch shows what waits for a person as it changes, and takes
// decisions by keys.
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
	_, err = tea.NewProgram(d, tea.WithContext(ctx), tea.WithInput(s.Stdin), tea.WithOutput(s.Stdout),
		tea.WithEnvironment(s.Env), tea.WithoutSignalHandler()).Run()
	if errors.Is(err, context.Canceled) {
		return context.Canceled
	}
	return errors.Join(err, d.fatal)
}

// decider is where a model's decisions are taken.
type decider interface {
	look(ctx context.Context, id string) (*api.Approval, error)
	decide(ctx context.Context, a *api.Approval, p api.ApprovalResolveParams) (api.ApprovalResolveResult, error)
}

// What a model learns besides keys and news.
type (
	tickMsg time.Time
	// lookedMsg is a held message that was asked for.
	lookedMsg struct {
		id string
		a  *api.Approval
		// decision is what it was asked for, "" to be read.
		decision string
		err      error
	}
	// decidedMsg is how a decision went, or several about messages that are
	// alike.
	decidedMsg struct {
		id, kind, decision string
		done               int
		result             api.ApprovalResolveResult
		err                error
	}
)

// stage is what a person is about at a model.
type stage int

const (
	// choosing is going through the list, with the chosen message below it.
	choosing stage = iota
	// reading is having the chosen message on the whole screen.
	reading
	// fetching is waiting for the message that is to be decided about.
	fetching
	// writing is saying what stands in place of a message that is taken over.
	writing
	// confirming is being asked for the last word.
	confirming
	// deciding is waiting for the daemon to take the decision.
	deciding
	// noting and filtering are typing one line.
	noting
	filtering
)

// model is where a person sees what waits and decides: the model of the
// interactive command. It is used by one goroutine, as bubbletea does.
type model struct {
	ctx     context.Context
	decider decider
	next    tea.Cmd // waits for news
	screen  term.Screen
	height  int
	now     time.Time

	connected bool
	// fresh holds what came since the feed began anew, nil once all has come.
	fresh map[string]bool
	held  map[string]*api.ApprovalSummary
	// rows are what is listed, and top is the first of them that is seen.
	rows    []group
	listed  int      // how many messages the rows are
	waiting []string // how many of which agent, in the order of rows
	table   *table
	flat    bool
	orders  []string // the first is that of the list
	filter  string
	top     int
	chosen  string // the id of a message of the chosen row

	stage stage
	// shown is the message whose page is seen, from line pageTop on.
	shown   *api.Approval
	asking  string // the id that was asked for last, to be read
	page    []string
	pageTop int

	// decision is what is being decided, about shown.
	decision string
	alike    []string // further messages that it may be decided about at once
	// marked are messages to be decided about one by one, queue those of them that
	// come after shown, and queued is how many there were.
	marked map[string]bool
	queue  []string
	queued int
	// help is set while the keys are shown, of which helpFrom are above the screen, and
	// unfolded where all metadata are.
	help, unfolded bool
	helpFrom       int
	words          input  // what is said in place of the message
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

// Init begins to wait for news and for time to pass.
func (d *model) Init() tea.Cmd { return tea.Batch(d.next, tick()) }

func tick() tea.Cmd { return tea.Tick(time.Second, func(t time.Time) tea.Msg { return tickMsg(t) }) }

// Update takes one message.
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
	case tea.PasteMsg:
		d.paste(msg.Content)
	case tea.KeyPressMsg:
		cmd = d.press(msg)
	}
	return d, tea.Batch(cmd, d.follow())
}

// paste takes a text that is pasted, which is never the answer to a question.
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

// hear takes news.
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

// change takes a message that is new, or no longer as it was.
func (d *model) change(a *api.ApprovalSummary) tea.Cmd {
	if a.State == api.ApprovalPending {
		d.held[a.ApprovalID] = a
		if d.fresh != nil {
			d.fresh[a.ApprovalID] = true
		}
	} else {
		delete(d.held, a.ApprovalID)
	}
	if d.shown == nil || d.shown.ApprovalID != a.ApprovalID || d.shown.ApprovalSummary == *a {
		return nil
	}
	// What is on the screen is no longer so.
	switch d.stage {
	case confirming, writing:
		d.back()
		d.say(term.Yellow, "%s changed under your eyes, and is %s now: look again", d.table.short(a.ApprovalID), stateWords(a.State))
	case deciding:
		return nil
	case choosing, reading, fetching, noting, filtering:
	}
	d.asking = a.ApprovalID
	return d.look(a.ApprovalID, "")
}

// sort works out the rows anew. Who had chosen a message goes on to have it.
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
	d.rows, d.listed, d.waiting = inTurn(group(messages)), len(messages), nil
	for _, part := range byAgent(d.rows) {
		n := 0
		for _, row := range part {
			n += len(row)
		}
		d.waiting = append(d.waiting, fmt.Sprintf("%s %d", term.Printable(part[0].oldest().AgentID), n))
	}
	d.table.oneAgent = len(d.waiting) == 1 && d.listed == len(d.held) // the title names it
	if d.at() < 0 {
		d.choose(was)
	}
}

// matches reports whether a message has a text somewhere, as a whole.
func matches(a *api.ApprovalSummary, wanted string) bool {
	return strings.Contains(strings.ToLower(strings.Join([]string{
		a.ApprovalID, a.AgentID, a.Agent, a.UserID, a.Counterparty, a.CounterpartyUserID, a.AppID, a.SessionKey, a.TaskID, a.Code, why(a.Code), string(a.Likelihood), a.LikelyBecause, a.Summary,
	}, "\n")), wanted)
}

// at is the index of the chosen row, -1 where there is none.
func (d *model) at() int { return d.rowOf(d.chosen) }

func (d *model) rowOf(id string) int {
	return slices.IndexFunc(d.rows, func(row group) bool {
		return slices.ContainsFunc(row, func(a *api.ApprovalSummary) bool { return a.ApprovalID == id })
	})
}

// choose goes to a row, or the nearest.
func (d *model) choose(at int) {
	d.chosen = ""
	if len(d.rows) > 0 {
		d.chosen = d.rows[max(0, min(at, len(d.rows)-1))].oldest().ApprovalID
	}
}

// follow keeps the page that of the chosen row.
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

// looked takes a message that was asked for, unless something else is wanted by
// now.
func (d *model) looked(msg lookedMsg) {
	if msg.decision == "" {
		if msg.id != d.asking || d.stage == confirming || d.stage == deciding || d.stage == writing {
			return
		}
		if msg.err != nil {
			if d.asking = ""; d.connected { // else what is wrong has been said
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
	queue := d.queue
	d.back()
	switch {
	case msg.err != nil:
		d.say(term.Red, "cannot %s it: %v", verbOf(msg.decision), msg.err)
		return
	case msg.a.State != api.ApprovalPending:
		d.turnTo(msg.a)
		d.say(term.Yellow, "it is %s already", stateWords(msg.a.State))
		return
	case !slices.Contains(api.DecisionsOf(msg.a.Kind), msg.decision):
		d.turnTo(msg.a)
		d.say(term.Yellow, "%s", notOffered(msg.a.Kind))
		return
	case msg.decision == api.DecideApprove && !msg.a.Approvable:
		d.turnTo(msg.a)
		d.say(term.Red, "it cannot be approved: %s", cannotApprove(msg.a))
		return
	}
	d.asking, d.pageTop, d.queue = msg.id, 0, queue
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

// turnTo makes a message the one that is seen.
func (d *model) turnTo(a *api.Approval) {
	if a == nil || d.shown == nil || a.ApprovalID != d.shown.ApprovalID {
		d.pageTop = 0
	}
	d.shown, d.page = a, nil
	if a == nil {
		return
	}
	if d.stage == confirming && d.decision == api.DecideTakeover {
		p := &approvalText{term.Page{Screen: d.screen}}
		if words := d.instead(); words != "" {
			p.instead(words)
		} else {
			p.Heading("You send the message as your own, as it is")
		}
		p.Line()
		d.page = p.Lines[1:]
	}
	d.page = append(d.page, approvalPage(d.screen, a, d.now, d.unfolded)...)
}

// maxWords bounds what is typed in place of a message, in bytes, so that it
// stays well below the longest line that a daemon reads.
const maxWords = 64 << 10

// back goes to the list, with the chosen message below it from its beginning.
func (d *model) back() {
	d.stage, d.said, d.pageTop, d.queue = choosing, "", 0, nil
	d.turnTo(d.shown)
}

// instead is what is said in place of the message, empty where it stays as it is.
func (d *model) instead() string {
	if d.shown == nil || d.words.String() == d.shown.Content {
		return ""
	}
	return d.words.String()
}

// press takes a key.
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

// command takes a key of the list or of a page.
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
		d.flat = !d.flat
		d.table.widths = nil
		d.sort()
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

// mark marks the messages of the chosen row, or no longer, and goes on to the next.
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

// order goes on to the next order of the list.
func (d *model) order() {
	d.orders = append(d.orders[1:], d.orders[0])
	d.sort()
	d.say(term.Dim, "in the order of %s", d.orders[0])
}

func (d *model) isMarked(row group) bool {
	return !slices.ContainsFunc(row, func(a *api.ApprovalSummary) bool { return !d.marked[a.ApprovalID] })
}

// scroll takes the keys that move. It reports whether it was one.
func (d *model) scroll(k tea.KeyPressMsg) bool {
	key := k.String()
	page := max(1, d.pageHeight()-1)
	switch key {
	case "pgdown", "space", "ctrl+f":
		d.pageTop += page
	case "pgup", "ctrl+b", "shift+space":
		d.pageTop -= page
	case "up", "k", "down", "j", "home", "end":
		far := max(len(d.rows), len(d.page))
		by := map[string]int{"up": -1, "k": -1, "down": 1, "j": 1, "home": -far, "end": far}[key]
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

// typing takes a key of a line that is typed.
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

// writing takes a key of the words in place of a message.
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

// begin fetches the chosen message to decide about it: what is decided about is
// what the daemon has now, and not what was listed.
func (d *model) begin(decision string) tea.Cmd {
	row := d.at()
	var id string
	switch {
	case !d.connected:
		d.say(term.Red, "no daemon: nothing can be decided")
		return nil
	case d.stage == reading && d.shown != nil:
		// It is this page's message, wherever it is listed by now.
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
		for _, row := range d.rows {
			for _, a := range row {
				if d.marked[a.ApprovalID] {
					d.queue = append(d.queue, a.ApprovalID)
				}
			}
		}
		if d.queued = len(d.queue); d.queued == 0 {
			d.say(term.Yellow, "what is marked is not in this list: esc forgets it")
			return nil
		}
		return d.nextMarked()
	}
	d.alike, d.queue, d.queued = nil, nil, 0
	if row >= 0 {
		for _, like := range d.rows[row] {
			if like.ApprovalID != id {
				d.alike = append(d.alike, like.ApprovalID)
			}
		}
	}
	return d.fetch(id)
}

// nextMarked goes to the next of those that are marked.
func (d *model) nextMarked() tea.Cmd {
	id := d.queue[0]
	d.queue = d.queue[1:]
	d.alike = d.queue
	d.choose(d.rowOf(id))
	return d.fetch(id)
}

func (d *model) fetch(id string) tea.Cmd {
	d.stage = fetching
	d.say(term.Dim, "looking…")
	return d.look(id, d.decision)
}

// confirm takes a key of the last question.
func (d *model) confirm(k tea.KeyPressMsg) tea.Cmd {
	if d.scroll(k) {
		d.said = ""
		return nil
	}
	all := k.String() == "A" && len(d.alike) > 0 && !Sends(d.decision)
	exchange := k.String() == "x" && d.offers()
	switch {
	case k.String() == "i":
		d.unfolded = !d.unfolded
		d.turnTo(d.shown)
	case k.String() == "n" && len(d.queue) > 0:
		delete(d.marked, d.shown.ApprovalID)
		return d.nextMarked()
	case k.String() == "esc", k.String() == "n", k.String() == "q":
		said := "nothing was decided"
		if d.queued > 1 {
			said = "the rest stays as it is"
		}
		d.back()
		d.say(term.Dim, "%s", said)
	case k.String() != "y" && !all && !exchange:
	case Sends(d.decision) && !d.readToEnd():
		d.say(term.Yellow, "read to the end first: space goes on")
	default:
		d.stage = deciding
		d.say(term.Dim, "deciding; a key in hardware may want a touch")
		var others []string
		if all {
			others = d.alike
		}
		return d.decide(others, exchange)
	}
	return nil
}

// offers reports whether the exchange of the message can be approved with it.
func (d *model) offers() bool { return d.decision == api.DecideApprove && d.shown.Exchange != nil }

func (d *model) readToEnd() bool { return d.pageTop+d.pageHeight() >= len(d.page) }

// decide takes the decision to the decider, and the same one about others that
// are alike, or about the exchange too.
func (d *model) decide(others []string, exchange bool) tea.Cmd {
	ctx, decider, a := d.ctx, d.decider, d.shown
	p := api.ApprovalResolveParams{ApprovalID: a.ApprovalID, Decision: d.decision, Digest: a.Digest, Note: d.note}
	if d.decision == api.DecideTakeover {
		p.Content = d.instead()
	}
	if exchange {
		p.Exchange = a.Exchange
	}
	return func() tea.Msg {
		msg := decidedMsg{id: a.ApprovalID, kind: a.Kind, decision: p.Decision}
		if msg.result, msg.err = decider.decide(ctx, a, p); msg.err == nil {
			msg.done++
		}
		for _, id := range others {
			if msg.err != nil {
				break
			}
			var other *api.Approval
			if other, msg.err = decider.look(ctx, id); msg.err != nil {
				break
			}
			p.ApprovalID, p.Digest = id, other.Digest
			if msg.result, msg.err = decider.decide(ctx, other, p); msg.err == nil {
				msg.done++
			}
		}
		return msg
	}
}

// decided takes how a decision went.
func (d *model) decided(msg decidedMsg) tea.Cmd {
	queue := d.queue
	d.back()
	d.asking = ""
	if msg.err == nil {
		delete(d.marked, msg.id)
		d.wordsFor = ""
		if len(queue) > 0 && msg.done == 1 {
			d.queue = queue
			return d.nextMarked()
		}
		d.note = ""
		d.say(term.Green, "%s", decidedLine(msg.kind, msg.result))
		if msg.result.GrantID != "" {
			d.say(term.Green, "approved, and its exchange: ocipd approvals revoke %s takes that back", msg.result.GrantID)
		}
		if msg.done > 1 {
			d.say(term.Green, "%s: %d of them, the last in record %d", stateWords(msg.result.State), msg.done, msg.result.AuditSeq)
		}
		return nil
	}
	switch o := api.DetailsOf[api.Obstacle](msg.err); o.Code {
	case api.ApprovalStale:
		d.say(term.Yellow, "it is no longer what you saw: what changed is shown; look again")
	case api.AlreadyDecided:
		d.say(term.Yellow, "%s", decidedBefore(d.table.short(msg.id), msg.decision, o.State, o.By, o.At, d.now))
	default:
		d.say(term.Red, "cannot %s it: %v", verbOf(msg.decision), msg.err)
	}
	return nil
}

// The parts of the screen that are always there: the title above, and below a
// rule, what is said, and the keys.
const (
	titleLines  = 1
	footerLines = 2
	ruleLines   = 1
)

// listHeight is how many rows of the list are seen, none where the page has the
// screen to itself.
func (d *model) listHeight() int {
	switch d.stage {
	case choosing, noting, filtering, fetching:
	default:
		return 0
	}
	return max(1, min(len(d.rows), (d.height-titleLines-footerLines-ruleLines-1)*2/5))
}

// pageHeight is how many lines of the page are seen.
func (d *model) pageHeight() int {
	left := d.height - titleLines - footerLines - ruleLines
	if list := d.listHeight(); list > 0 {
		left -= list + 1
	}
	return max(0, left)
}

// View is what is seen.
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
		text += fmt.Sprintf("%d waiting (%s)", len(d.held), strings.Join(d.waiting, ", "))
	default:
		text += fmt.Sprintf("%d of %d waiting, those with %s", d.listed, len(d.held), term.Printable(d.filter))
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

// list shows the rows around the chosen one.
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

// rule parts the list from the page, and says how much of the page is seen.
func (d *model) rule() string {
	text := "──"
	if d.stage == confirming && d.queued > 1 {
		text += fmt.Sprintf(" %d of %d marked ──", d.queued-len(d.queue), d.queued)
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

// writePage shows the words that are being written.
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

// prompt is the line that is being typed. The cursor's part of it is seen.
func (d *model) prompt(y int) (string, *tea.Cursor) {
	name := "note: "
	if d.stage == filtering {
		name = "filter: "
	}
	room := max(12, d.screen.Width-len(name)-1)
	lines, x, at := d.typed.layOut(room)
	return d.screen.Colour.Paint(term.Bold, name) + lines[at], tea.NewCursor(len(name)+x, y)
}

// status is what is said below the page.
func (d *model) status() string {
	text, c := d.said, d.tone
	switch {
	case d.stage == confirming && text == "":
		text, c = question(d.shown, d.decision), term.Bold
		if n := len(d.alike); n > 0 && d.queued == 0 && !Sends(d.decision) {
			text += fmt.Sprintf(" There are %d more like it.", n)
		}
		if Sends(d.decision) {
			// With the digest it fits 80 columns just so.
			text = strings.TrimSuffix(text, "?")
		}
	case text == "" && d.note != "":
		text, c = "note: "+term.Printable(d.note), term.Dim
	}
	return d.screen.Colour.Paint(c, term.Cut(text, d.screen.Width))
}

// keys says which keys do what.
func (d *model) keys() string {
	switch d.stage {
	case noting, filtering:
		return "enter keep  esc leave"
	case writing:
		return "ctrl+d go on  esc leave"
	case confirming:
		switch {
		case d.queued > 0 && len(d.queue) > 0 && Sends(d.decision):
			return "y yes  n not this one  esc leave  space read on  i metadata"
		case d.queued > 0 && len(d.queue) > 0:
			return fmt.Sprintf("y yes  A yes, and the other %d marked  n not this one  esc leave", len(d.alike))
		case len(d.alike) > 0 && !Sends(d.decision):
			return fmt.Sprintf("y yes  A yes, and the %d like it  n no  space read on", len(d.alike))
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

// decisionKeys are the keys of what can be decided about the request that is seen.
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

// helpRoom is how many lines of the help are seen at once.
func (d *model) helpRoom() int { return max(1, d.height-1) }

// nextHelp goes on to what of the help is below the screen, or closes it.
func (d *model) nextHelp() {
	if d.helpFrom += d.helpRoom(); d.helpFrom >= len(keyHelp(d.screen.Width)) {
		d.help, d.helpFrom = false, 0
	}
}

// helpLines are what all keys do, as many as fit.
func (d *model) helpLines() []string {
	lines := keyHelp(d.screen.Width)
	if len(lines) <= d.height {
		return append(lines, make([]string, d.height-len(lines))...)
	}
	lines = lines[min(d.helpFrom, len(lines)-1):]
	more := "any key closes this help"
	if room := d.helpRoom(); len(lines) > room {
		more = term.Count(len(lines)-room, "more line") + ": any key goes on"
		lines = lines[:room]
	}
	lines = append(lines, make([]string, d.helpRoom()-len(lines))...)
	return append(lines, term.Cut(more, d.screen.Width))[:max(1, d.height)]
}

// keyHelp is what all keys do.
func keyHelp(width int) []string {
	return append([]string{"ocipd approvals: keys", ""}, term.KeyHelp([][2]string{
		{"up, down, k, j", "choose a request; in a page, scroll by a line"},
		{"space, page keys", "scroll the page"},
		{"enter", "read the request on the whole screen; esc goes back"},
		{"i", "show the metadata that ocipd writes too, or fold them again"},
		{"a", "approve exactly what is shown"},
		{"d", "deny; the exchange ends"},
		{"t", "take over: send it, or other words, as your own"},
		{"r", "resolve: deny it and settle the exchange"},
		{"c", "deny an effect and ask its task for changes; n says which"},
		{"m", "mark, or no longer; a, d, t, r, c then ask about each marked"},
		{"n", "write a note for the record of the next decision"},
		{"/", "list only requests with a text; esc ends that"},
		{"o", "the likeliest first, or the oldest"},
		{"g", "one row for similar requests, or a row for each"},
		{"q", "quit"},
		{"?", "this help; any key closes it"},
	}, width)...)
}
