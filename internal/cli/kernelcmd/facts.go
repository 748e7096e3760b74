package kernelcmd

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/base/term"
	"github.com/openclawos/ocipd/internal/cli/configcmd"
)

// fact is one line about the daemon as a whole.
type fact struct {
	name string
	term.Cell
	// wrong marks a problem. aside marks lines that a watch omits: places and advice.
	wrong, aside bool
}

// sheet collects the facts of a status.
type sheet struct {
	status *api.Status
	now    time.Time
	list   []fact
}

// facts are the lines about the daemon as a whole, for all displays of its status.
func facts(status *api.Status, now time.Time) []fact {
	f := &sheet{status: status, now: now}
	f.places()
	f.faults()
	f.ungated()
	f.refusals()
	f.log()
	f.witnesses()
	f.counts()
	return f.list
}

func (f *sheet) say(name string, c term.Cell) { f.list = append(f.list, fact{name: name, Cell: c}) }

func (f *sheet) aside(name string, c term.Cell) {
	f.list = append(f.list, fact{name: name, Cell: c, aside: true})
}

func (f *sheet) wrong(name, text string, c term.Colour) {
	f.list = append(f.list, fact{name: name, Cell: term.Cell{Text: term.OneLine(text), Colour: c}, wrong: true})
}

func (f *sheet) places() {
	f.aside("socket", term.Plain(f.status.Socket))
	f.aside("operator", term.Plain(f.status.OperatorSocket))
	if f.status.UnusedSocket != "" {
		f.wrong("unused", f.status.UnusedSocket+" was passed by the service manager, and nobody answers there: another one is configured", term.Yellow)
	}
	f.aside("config", term.Plain(cmp.Or(f.status.ConfigFile, "no file: the defaults serve")))
	f.aside("database", term.Plain(f.status.Database))
	mirror := term.Plain(f.status.Mirror)
	if behind := f.status.Audit.Seq - min(f.status.Audit.Mirrored, f.status.Audit.Seq); behind > 0 {
		mirror = term.Tinted(fmt.Sprintf("%s (%s behind)", f.status.Mirror, term.Count(int(behind), "record")), term.Yellow)
	}
	f.aside("mirror", mirror)
	f.say("policy", term.Plain(strings.TrimSpace(f.status.Policy.Source+" "+f.status.Policy.Revision)))
}

func (f *sheet) faults() {
	if f.status.Audit.Fault != "" {
		f.wrong("fault", f.status.Audit.Fault, term.Red)
	}
	if f.status.Audit.Damaged != "" {
		f.wrong("damaged", "the audit log is not what was written: "+f.status.Audit.Damaged, term.Red)
		f.aside("", term.Plain("keep a copy, look into it: ocipd audit verify; the next start verifies every record"))
	}
	if u := f.status.Audit.Unsigned; u != nil {
		f.wrong("unsigned", fmt.Sprintf("nobody had signed records %d to %d (%s to %s) when the daemon started, more than one leaves behind: they may not be what was decided",
			u.First, u.Last, u.Since.Local().Format(time.DateTime), u.Until.Local().Format(time.DateTime)), term.Red)
		f.aside("", term.Plain("compare them with what others hold: ocipd audit verify --with-receipts, and with the mirror's copies"))
	}
}

func (f *sheet) ungated() {
	for i := range f.status.Ungated {
		u := &f.status.Ungated[i]
		if u.Why != "" {
			f.wrong("ungated", fmt.Sprintf("%s runs (process %d), and for %s its gate has not held: %s", u.Title, u.PID, term.Age(f.now.Sub(u.Since)), u.Why), term.Red)
			f.aside("", term.Plain("look at it: ocipd doctor; enter it again: ocipd integrate "+u.App))
			continue
		}
		f.wrong("ungated", fmt.Sprintf("%s runs (process %d) and its plugin is not connected, for %s: nobody decides about what its agents send", u.Title, u.PID, term.Age(f.now.Sub(u.Since))), term.Red)
		f.aside("", term.Plain("look at it: ocipd doctor; put it behind the daemon: ocipd integrate openclaw"))
	}
}

// refused adds a policy or a configuration that the daemon did not take, and the advice.
func (f *sheet) refused(at time.Time, why string, faults []api.PolicyFault, advice string) {
	if why == "" {
		return
	}
	if len(faults) > 1 {
		why, _, _ = strings.Cut(why, ": ")
		why += ": " + term.Count(len(faults), "fault")
	}
	f.wrong("refused", at.Local().Format(time.DateTime)+" "+why, term.Red)
	if len(faults) > 1 {
		for _, line := range configcmd.FaultLines(faults, len(faults)) {
			f.list = append(f.list, fact{Cell: term.Cell{Text: line, Colour: term.Red}, wrong: true})
		}
	}
	f.aside("", term.Plain(advice))
}

func (f *sheet) refusals() {
	f.refused(f.status.Policy.RefusedAt, f.status.Policy.Refusal, f.status.Policy.Faults,
		"the policy above stays in force; correct that, try it with: ocipd policy check, then: ocipd policy reload")
	f.refused(f.status.Config.RefusedAt, f.status.Config.Refusal, f.status.Config.Faults,
		"the configuration as it was stays in force; correct that, try it with: ocipd config check --diff, then: ocipd config reload")
	if len(f.status.PendingRestart) > 0 {
		f.wrong("restart", "takes effect at the next start: "+strings.Join(f.status.PendingRestart, ", "), term.Yellow)
	}
	for _, problem := range f.status.Audit.Mirror.Problems {
		f.wrong("mirror", problem, term.Red)
	}
}

func (f *sheet) log() {
	f.say("log", logCell(&f.status.Audit))
	if f.status.Audit.Seq > 0 {
		f.aside("", term.Plain(fmt.Sprintf("%s, hash %s", f.status.Audit.Time.Local().Format(time.DateTime), term.Cut(f.status.Audit.Hash, 17))))
	}
}

func (f *sheet) witnesses() {
	for i := range f.status.Witnesses {
		w := &f.status.Witnesses[i]
		switch {
		case w.Refused:
			f.wrong("witness", "sending is paused: "+w.Error, term.Red)
			f.aside("", term.Plain("look into it, with what the witness has signed; then: ocipd resume"))
		case w.Error != "":
			f.wrong("witness", fmt.Sprintf("%s has signed nothing for %s: %s", w.Name, term.Age(f.now.Sub(w.FailingSince)), w.Error), term.Yellow)
		default:
			f.aside("witness", term.Plain(fmt.Sprintf("%s has signed the first %s", w.Name, term.Count(int(w.Signed), "record"))))
		}
	}
}

func (f *sheet) counts() {
	f.say("disk", diskCell(&f.status.Store))
	f.say("sessions", term.Plain(strconv.Itoa(f.status.Sessions)))
	f.say("decisions", term.Plain(latencyText(&f.status.Latency)))
	f.say("exchanges", term.Plain(cmp.Or(counts(f.status.Exchanges), "none")))
	held := term.Plain("none")
	if f.status.Held > 0 {
		held = term.Tinted(heldText(f.status, f.now), term.Yellow)
	}
	f.say("held", held)
	for i := range f.status.Paused {
		f.say("paused", term.Tinted(strings.TrimPrefix(pausedLine(&f.status.Paused[i], f.now), "paused: "), term.Yellow))
	}
}
