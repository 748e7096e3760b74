package approvalsui

import (
	"context"
	"errors"
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
	queue     queue

	stage stage
	// shown is the message on the page.
	shown  *api.Approval
	page   page
	asking string // the id that was asked for last, to be read
	// read is the digest of the last request whose page was seen to its end on the whole screen.
	read string

	// decision is the decision in progress about shown, and course the requests that it is about.
	decision string
	course   course
	// week says how many acts the last week took.
	week string
	help help
	// unfolded is set while all metadata are shown.
	unfolded bool
	words    draft
	typed    input // the line that is being typed
	note     string

	remark
	fatal error
}

func newModel(ctx context.Context, scr term.Screen, next tea.Cmd, o decider, now time.Time) *model {
	return &model{
		ctx: ctx, decider: o, next: next, screen: scr, height: term.DefaultHeight, now: now,
		queue: newQueue(),
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
		d.queue.table.widths = nil
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
	if d.shown != nil && (d.stage == reading || d.stage == confirming) && d.page.below(d.pageHeight()) <= 0 {
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
		d.queue.filter = d.typed.String()
		d.queue.sort(d.now)
	case choosing, reading, fetching, confirming, deciding:
	}
}

// hear handles messages of the feed.
func (d *model) hear(news newsMsg) tea.Cmd {
	var cmd tea.Cmd
	for _, n := range news {
		switch n := n.(type) {
		case newsBegin:
			if !d.connected && d.queue.fresh == nil {
				d.say(term.Green, "connected again")
			}
			d.connected, d.queue.fresh, d.asking = true, make(map[string]bool), ""
		case newsHeld:
			cmd = tea.Batch(cmd, d.change(n.message))
		case newsCaught:
			for id := range d.queue.held {
				if !d.queue.fresh[id] {
					d.queue.forget(id)
				}
			}
			d.queue.fresh = nil
		case newsLost:
			d.connected, d.queue.fresh = false, nil
			if d.stage == fetching || d.stage == confirming {
				d.back()
			}
			d.say(term.Red, "the daemon is gone (%v); looking for it", n.err)
		case newsEnd:
			d.fatal = n.err
			return tea.Quit
		}
	}
	d.queue.sort(d.now)
	return cmd
}

// change handles a new or changed message.
func (d *model) change(a *api.ApprovalSummary) tea.Cmd {
	if a.State == api.ApprovalPending {
		d.queue.held[a.ApprovalID] = a
		if d.queue.fresh != nil {
			d.queue.fresh[a.ApprovalID] = true
		}
	} else {
		d.queue.forget(a.ApprovalID)
	}
	same := d.shown == nil || d.shown.ApprovalID != a.ApprovalID || reflect.DeepEqual(&d.shown.ApprovalSummary, a)
	if same && !d.course.outdates(a) {
		return nil
	}
	// The screen is out of date.
	switch d.stage {
	case confirming, writing:
		d.back()
		d.say(term.Yellow, "%s changed under your eyes, and is %s now: look again", d.queue.table.short(a.ApprovalID), describe.State(a.State))
	case deciding:
		return nil
	case choosing, reading, fetching, noting, filtering:
	}
	d.asking = a.ApprovalID
	return d.look(a.ApprovalID, "")
}

// follow fetches the page of the chosen row.
func (d *model) follow() tea.Cmd {
	if d.stage != choosing && d.stage != filtering {
		return nil
	}
	row := d.queue.at()
	if row < 0 {
		d.asking = ""
		d.turnTo(nil)
		return nil
	}
	id := d.queue.rows[row].oldest().ApprovalID
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
	d.asking, d.page.top, d.course = msg.id, 0, course
	if len(msg.together) > 1 {
		d.course.together = msg.together
	}
	d.stage = confirming
	if msg.decision == api.DecideTakeover {
		d.stage = writing
		if d.words.of != msg.id {
			d.words = draft{newInput(msg.a.Content, true, maxWords), msg.id}
		}
	}
	d.turnTo(msg.a)
	d.said = ""
}

// turnTo shows a message.
func (d *model) turnTo(a *api.Approval) {
	if a == nil || d.shown == nil || a.ApprovalID != d.shown.ApprovalID {
		d.page.top = 0
	}
	d.shown, d.page.lines = a, nil
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
		d.page.lines = p.Lines[1:]
	}
	if d.stage == confirming && len(d.course.together) > 0 {
		d.page.lines = pageTogether(d.screen, d.course.together, d.unfolded)
		return
	}
	d.page.lines = append(d.page.lines, approvalPage(d.screen, a, d.now, d.unfolded)...)
}

// maxWords bounds the text in place of a message, in bytes, well below the longest line
// that a daemon reads.
const maxWords = 64 << 10

// back returns to the list, with the start of the chosen message below it.
func (d *model) back() {
	d.stage, d.said, d.page.top, d.course.marked, d.course.together = choosing, "", 0, nil, nil
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
	if d.help.shown {
		d.help.next(d.screen.Width, d.height)
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
		case len(d.queue.marked) > 0:
			clear(d.queue.marked)
		case d.queue.filter != "":
			d.queue.filter = ""
			d.queue.sort(d.now)
		}
	case "?":
		d.help.shown = true
	case "i":
		d.unfolded = !d.unfolded
		d.turnTo(d.shown)
	case "m":
		d.mark()
	case "g":
		d.regroup()
	case "M":
		if d.stage == choosing {
			d.queue.mark(d.queue.rows...)
		}
	case "G":
		d.queue.choose(len(d.queue.rows) - 1)
	case "/":
		d.stage, d.typed = filtering, newInput(d.queue.filter, false, api.MaxNote)
	case "n":
		d.stage, d.typed = noting, newInput(d.note, false, api.MaxNote)
	case "a", "d", "t", "r", "c":
		return d.begin(map[string]string{"a": api.DecideApprove, "d": api.DecideDeny, "t": api.DecideTakeover, "r": api.DecideResolve, "c": api.DecideChanges}[k.String()])
	case "o":
		d.order()
	}
	return nil
}

// mark marks or unmarks the messages of the chosen row, and goes to the next row.
func (d *model) mark() {
	row := d.queue.at()
	if row < 0 || d.stage != choosing {
		return
	}
	d.queue.mark(d.queue.rows[row])
	d.queue.choose(row + 1)
	d.say(term.Dim, "%d marked", len(d.queue.marked))
}

// regroup switches between a row for each request and one for similar requests.
func (d *model) regroup() {
	d.queue.flat = !d.queue.flat
	d.queue.table.widths = nil
	d.queue.sort(d.now)
	if d.queue.flat {
		d.say(term.Dim, "a row for each request: %d", len(d.queue.rows))
		return
	}
	d.say(term.Dim, "one row for equal texts, or unlikely ones, to one receiver: %d in %s", count(d.queue.rows), term.Count(len(d.queue.rows), "row"))
}

// order switches to the next order of the list.
func (d *model) order() {
	d.queue.orders = append(d.queue.orders[1:], d.queue.orders[0])
	d.queue.sort(d.now)
	d.say(term.Dim, "in the order of %s", d.queue.orders[0])
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
		d.page.top += page
	case "shift+space":
		d.page.top -= page
	case "up", "k", "down", "j", "home", "end", "pgdown", "pgup":
		far := max(len(d.queue.rows), len(d.page.lines))
		if d.stage == choosing {
			page = max(1, d.listHeight()-1)
		}
		by := map[string]int{"up": -1, "k": -1, "down": 1, "j": 1, "home": -far, "end": far, "pgdown": page, "pgup": -page}[key]
		if d.stage == choosing {
			d.queue.choose(d.queue.at() + by)
			d.said = ""
			return true
		}
		d.page.top += by
	default:
		return false
	}
	d.page.top = max(0, min(d.page.top, len(d.page.lines)-d.pageHeight()))
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
		d.queue.filter, d.stage = "", choosing
		d.queue.sort(d.now)
	case key == "esc":
		d.stage = choosing
	default:
		d.typed.key(k)
		if d.stage == filtering {
			d.queue.filter = d.typed.String()
			d.queue.sort(d.now)
		}
	}
}

// writing handles a key while the text in place of a message is written.
func (d *model) writing(k tea.KeyPressMsg) {
	switch k.String() {
	case "esc":
		d.words.of = ""
		d.back()
	case "ctrl+d", "ctrl+s":
		if strings.TrimSpace(d.words.String()) == "" {
			d.say(term.Red, "say something, or leave it with esc")
			return
		}
		d.stage, d.said, d.page.top = confirming, "", 0
		d.turnTo(d.shown)
	default:
		d.words.key(k)
	}
}
