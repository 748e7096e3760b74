// Package demo plays short scenes on its own daemon: the apps' view beside the log's records.
package demo

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/api/client"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/base/term"
	"github.com/openclawos/ocipd/internal/cli/logview"
	"github.com/openclawos/ocipd/internal/ocip"
)

// Options are the inputs of the demo.
type Options struct {
	Stdin  io.Reader
	Stdout io.Writer
	Screen term.Screen
	Getenv func(string) string
	// Pause makes the demo wait for Enter after each scene.
	Pause bool
}

// Run plays the demo in a temporary directory, with this program as the daemon, and removes
// everything afterwards.
func Run(ctx context.Context, o Options) error {
	dir, err := os.MkdirTemp("", "ocipd-demo-")
	if err != nil {
		return err
	}
	d := &demo{Options: o, ctx: ctx, dir: dir, received: make(map[string]bool), counts: make(map[string]int)}
	if o.Pause {
		d.enter = bufio.NewReader(o.Stdin)
	}
	defer d.cleanUp()
	return d.tell()
}

// demo is the state of the story: a daemon in its own process, and the apps.
type demo struct {
	Options
	ctx context.Context
	dir string
	// enter gets a person's Enter; nil if the demo does not wait.
	enter *bufio.Reader
	// counts are the numbers of decisions, by result.
	counts map[string]int

	daemon   *exec.Cmd
	operator *client.Client

	telegram, alice, bob, cleo *client.Client

	scene    int
	recorded uint64
	// approval is the last held message.
	approval string
	// received holds the dispatch ids of delivered messages. After a crash, a message can
	// come again, and an app drops a known id.
	received map[string]bool
}

// demoPatience bounds every wait of the demo. Only a fault takes that long.
const demoPatience = 15 * time.Second

func (d *demo) tell() error {
	if err := d.prepare(); err != nil {
		return err
	}
	if err := d.start(); err != nil {
		return err
	}
	d.printf("%s\n\n", d.Screen.Colour.Paint(term.Bold, "A daemon of its own, four apps over its Unix socket"))
	d.printf("alice, bob and cleo are agents here, in engineering at acme-corp. Over telegram\n")
	d.printf("they reach dave (engineering), carol (marketing), frank (legal), and eve of\nanother company.\n")
	if err := d.skipRecords(); err != nil {
		return err
	}
	for _, scene := range []struct {
		title string
		play  func() ([]term.Cell, error)
	}{
		{"A question to a colleague of the same unit", d.send("telegram:dave", "What is the status of ticket ENG-1234?", nil)},
		{"A colleague in marketing, which the policy opens", d.send("telegram:carol", "When does the campaign start?", nil)},
		{"A colleague in legal, which it does not", d.send("telegram:frank", "Who signed the contract?", nil)},
		{"Somebody at another company: no policy can allow it", d.send("telegram:eve", "Shall we compare notes?", nil)},
		{"More than alice's agent may share", d.send("telegram:dave", "The numbers of the quarter", map[string]any{"classification": "confidential", "new": true})},
		{"A secret in the text, whatever it was declared", d.send("telegram:dave", "Use AKIAIOSFODNN7SAMPLED for now.", map[string]any{"classification": "public", "new": true})},
		{"Data the receiver does not accept stays behind", d.send("telegram:dave", "Here is the state of the ticket.", map[string]any{"new": true, "data": []map[string]any{
			{"source": "jira", "fields": []string{"status"}, "classification": "internal", "description": "the ticket"},
			{"source": "hr", "fields": []string{"salary"}, "classification": "restricted", "description": "what its owner earns"},
		}})},
		{"What dave's agent has said once, it cannot say again", d.replay},
		{"A person writes to alice's agent", d.human},
		{"Two agents of this daemon: both sides decide and log", d.pair},
		{"Agents that would go on for ever", d.loop},
		{"Three in a circle, no two of which use up their rounds", d.circle},
		{"Decided as for dave, and addressed to eve", d.mismatch},
		{"A name that only looks like dave's", d.send("telegram:d\u0430ve", "Are you there?", nil)},
		{"A promise to somebody whom nobody knows", d.send("telegram:4711", "Deal, I promise to pay you 500 EUR by Friday.", nil)},
		{"Dave's chat brings what claims to be carol's", d.forged},
		{"The receiver is away, and the daemon is killed meanwhile", d.killed},
		{"A promise that no person has agreed to", d.send("telegram:dave", "Fine, I c\u200bonfirm the deadline.", map[string]any{"new": true})},
		{"The daemon is killed; then the person approves", d.approve},
	} {
		saw, err := scene.play()
		if err != nil {
			return fmt.Errorf("cannot show %q: %w", scene.title, err)
		}
		switch err := d.show(scene.title, saw); {
		case errors.Is(err, errQuit):
			return nil
		case err != nil:
			return err
		}
	}
	return d.verdict()
}

func (d *demo) printf(format string, args ...any) { fmt.Fprintf(d.Stdout, format, args...) }

// skipRecords notes the end of the log, so that a scene shows only its own records.
func (d *demo) skipRecords() error {
	_, err := d.newRecords()
	return err
}

// newRecords returns the records since the last call.
func (d *demo) newRecords() (entries []audit.Entry, err error) {
	err = d.operator.Each(d.ctx, "audit.tail", api.AuditTailParams{After: &d.recorded}, func(line jsontext.Value) error {
		e, err := audit.Parse(line)
		if err != nil {
			return err
		}
		d.recorded = e.Seq
		entries = append(entries, e)
		return nil
	})
	return entries, err
}

// show prints a scene: the apps' view beside the log's records.
func (d *demo) show(title string, saw []term.Cell) error {
	entries, err := d.newRecords()
	if err != nil {
		return err
	}
	d.scene++
	d.printf("\n%s\n", d.Screen.Colour.Paint(term.Bold, fmt.Sprintf("%d. %s", d.scene, title)))
	var recorded []term.Cell
	for i := range entries {
		recorded = append(recorded, d.recordCells(&entries[i])...)
	}
	for i := range entries {
		if e := &entries[i]; e.ActionType == audit.ActionExchange && e.Side == audit.SideSender {
			d.counts[e.PolicyResult]++
		}
	}
	saw = append([]term.Cell{term.Tinted("what the apps saw", term.Dim)}, saw...)
	recorded = append([]term.Cell{term.Tinted("what the log recorded", term.Dim)}, recorded...)
	if d.Screen.Width < sideBySide {
		for _, line := range wrap(append(saw, recorded...), max(20, d.Screen.Width)) {
			d.printf("%s\n", d.Screen.Colour.Paint(line.Colour, line.Text))
		}
		return d.pause()
	}
	width := min(d.Screen.Width, 110) - 3
	left, right := wrap(saw, width/2), wrap(recorded, width-width/2)
	bar := d.Screen.Colour.Paint(term.Dim, "│")
	for i := range max(len(left), len(right)) {
		var l, r term.Cell
		if i < len(left) {
			l = left[i]
		}
		if i < len(right) {
			r = right[i]
		}
		gap := strings.Repeat(" ", max(0, width/2-term.Width(l.Text)))
		d.printf("%s\n", strings.TrimRight(d.Screen.Colour.Paint(l.Colour, l.Text)+gap+" "+bar+" "+d.Screen.Colour.Paint(r.Colour, r.Text), " "))
	}
	return d.pause()
}

// sideBySide is the minimum width of a terminal for two columns.
const sideBySide = 80

// pause waits until the person has read a scene. At the end of the input it continues.
func (d *demo) pause() error {
	if d.enter == nil {
		return nil
	}
	d.printf("%s", d.Screen.Colour.Paint(term.Dim, "Enter goes on, q quits: "))
	line, err := d.enter.ReadString('\n')
	if err != nil {
		d.enter = nil
		d.printf("\n")
		return nil
	}
	if strings.TrimSpace(line) == "q" {
		return errQuit
	}
	return d.ctx.Err()
}

// errQuit ends the demo early.
var errQuit = errors.New("quit")

// recordCells shows one record.
func (d *demo) recordCells(e *audit.Entry) []term.Cell {
	if e.ActionType == audit.ActionApproval {
		cells := []term.Cell{term.Tinted(fmt.Sprintf("#%d %s %s", e.Seq, e.ActionType, e.Event), term.Green)}
		if by, ok := e.Details["by"].(string); ok {
			cells = append(cells, term.Plain("  by "+by))
		}
		return cells
	}
	if e.ActionType != audit.ActionExchange {
		return []term.Cell{term.Tinted(fmt.Sprintf("#%d %s %s %s", e.Seq, e.ActionType, e.Event, cmp.Or(e.AppID, e.AgentID)), term.Dim)}
	}
	out := logview.Result(e)
	cells := []term.Cell{
		term.Tinted(strings.TrimSpace(fmt.Sprintf("#%d %s %s", e.Seq, out.Text, e.Code)), out.Colour),
		term.Plain("  " + e.Side + ": " + e.AgentID + " " + logview.With(e)),
	}
	if e.MaxRounds > 0 {
		cells = append(cells, term.Plain(fmt.Sprintf("  %s, round %d of %d, %s", e.Classification, e.Round, e.MaxRounds, e.Outcome)))
	}
	for _, found := range e.Detections {
		cells = append(cells, term.Tinted(fmt.Sprintf("  found %s at %d to %d", found.Rule, found.Start, found.End), term.Yellow))
	}
	for _, kept := range e.DataWithheld {
		cells = append(cells, term.Tinted("  withheld "+kept.Description+": "+kept.Reason, term.Yellow))
	}
	return append(cells, term.Tinted("  "+e.PolicyApplied+": "+e.PolicyReason, term.Dim))
}

// wrap breaks lines at spaces to fit a width, with their indentation.
func wrap(lines []term.Cell, width int) (wrapped []term.Cell) {
	for _, line := range lines {
		indent := line.Text[:len(line.Text)-len(strings.TrimLeft(line.Text, " "))]
		for _, text := range term.Fold(line.Text, width-len(indent)) {
			wrapped = append(wrapped, term.Cell{Text: indent + text, Colour: line.Colour})
		}
	}
	return wrapped
}

// verdict stops the daemon and verifies its log from the first byte.
func (d *demo) verdict() error {
	if err := d.daemon.Process.Signal(os.Interrupt); err != nil {
		return err
	}
	if err := d.daemon.Wait(); err != nil {
		return err
	}
	d.daemon = nil
	log, err := os.Open(d.path("openclawos", "audit.jsonl"))
	if err != nil {
		return err
	}
	defer log.Close()
	var v audit.Verifier
	if _, err := v.ReadFrom(log); err != nil {
		return err
	}
	head := v.Head()
	d.printf("\n%s %d messages: %d allowed, %d refused, %d held for a person.\nKilled twice, nothing was lost or sent twice.\n",
		d.Screen.Colour.Paint(term.Bold, "In short:"), d.counts[string(ocip.Allow)]+d.counts[string(ocip.Deny)]+d.counts[string(ocip.RequireApproval)],
		d.counts[string(ocip.Allow)], d.counts[string(ocip.Deny)], d.counts[string(ocip.RequireApproval)])
	d.printf("%s %d records, each with the hash of the one before it;\nthe last one's is %s\n",
		d.Screen.Colour.Paint(term.Green, "The log is whole:"), head.Seq, head.Hash.String()[:16])
	d.printf("Next: ocipd config init, or the tour in docs/tour.md.\n")
	return nil
}
