// Package doctor examines a daemon from outside: the machine, the configuration, files, the
// daemon itself, its service, clock, disk, policy and log. For each it reports whether it
// is well, and if not, what to do.
//
// [New] makes an examiner for the places of a command's process, and its Run prints a
// [Diagnosis] for each of the [Checks]. It needs no running daemon. Without repairs, it
// changes nothing, except for a temporary file that measures the disk.
package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/api/client"
	"github.com/openclawos/ocipd/internal/base/fileowner"
	"github.com/openclawos/ocipd/internal/base/term"
	"github.com/openclawos/ocipd/internal/bridge/integrate"
	"github.com/openclawos/ocipd/internal/cli"
	"github.com/openclawos/ocipd/internal/config"
)

// Health is the result of a check.
type Health string

// The results of a check.
const (
	Pass Health = "pass"
	Warn Health = "warn"
	Fail Health = "fail"
	// Mended means that --fix repaired it.
	Mended Health = "fixed"
)

// Diagnosis is one finding.
type Diagnosis struct {
	Check  string `json:"check"`
	Health Health `json:"health"`
	Text   string `json:"text"`
	// Advice says what to do, if anything.
	Advice string `json:"advice,omitzero"`

	// repair, if set, carries out the advice and describes what it did. It never loses data
	// and never widens access.
	repair func() (string, error)
}

func passed(format string, args ...any) Diagnosis {
	return Diagnosis{Health: Pass, Text: fmt.Sprintf(format, args...)}
}

func warned(format string, args ...any) Diagnosis {
	return Diagnosis{Health: Warn, Text: fmt.Sprintf(format, args...)}
}

func failed(format string, args ...any) Diagnosis {
	return Diagnosis{Health: Fail, Text: fmt.Sprintf(format, args...)}
}

// advise sets the advice.
func (f Diagnosis) advise(format string, args ...any) Diagnosis {
	f.Advice = fmt.Sprintf(format, args...)
	return f
}

// by sets the repair for --fix.
func (f Diagnosis) by(repair func() (string, error)) Diagnosis {
	f.repair = repair
	return f
}

// Examiner examines a daemon from outside: its requirements, the files that it left behind, and
// whether it answers. Without repairs, it changes nothing, except for a temporary file of a few
// hundred kilobytes that measures the disk.
type Examiner struct {
	*cli.Process
	ctx context.Context
	now func() time.Time

	// Gates is the place of the agent runtimes whose gates are tested; nil for none. Each
	// test takes a turn of an agent.
	Gates *integrate.Place

	// cfg is the configuration, or the defaults if it has an error.
	cfg    *config.Config
	cfgErr error
	places places
	// live is the daemon's status, or nil if none answers.
	live    *api.Status
	liveErr error
	// other says that the daemon uses another configuration file, or is "".
	other string
}

// places are the locations of the daemon's files.
type places struct {
	config                    string
	socket, operator, runtime string
	state, database           string
	mirror, keys, checkpoints string
}

// examination is one check; its name is in the second column.
type examination struct {
	name string
	ask  func(*Examiner) []Diagnosis
}

// examinations returns all checks, in the order of the report.
func examinations() []examination {
	return []examination{
		{"machine", machine},
		{"config", (*Examiner).configuration},
		{"people", (*Examiner).people},
		{"access", (*Examiner).access},
		{"who", (*Examiner).operators},
		{"files", (*Examiner).files},
		{"daemon", (*Examiner).daemon},
		{"service", (*Examiner).service},
		{"clock", (*Examiner).clock},
		{"disk", (*Examiner).disk},
		{"policy", (*Examiner).policy},
		{"log", (*Examiner).log},
		{"keep", (*Examiner).keep},
		{"rows", (*Examiner).rows},
		{"mirror", (*Examiner).mirror},
		{"sinks", (*Examiner).sinks},
		{"fleet", fleet},
		{"witnesses", (*Examiner).witnesses},
		{"index", (*Examiner).index},
		{"gates", (*Examiner).gates},
	}
}

// Checks returns the names of all checks, in the order of the report.
func Checks() (names []string) {
	for _, e := range examinations() {
		names = append(names, e.name)
	}
	return names
}

// AnotherFile says that the daemon uses another configuration than this command would, and
// names it; both results are "" if it does not.
func (d *Examiner) AnotherFile() (note, file string) {
	if d.look(); d.other == "" {
		return "", ""
	}
	return d.other, d.live.ConfigFile
}

// New returns an examiner for the places of a command's process.
func New(ctx context.Context, p *cli.Process) *Examiner {
	return &Examiner{Process: p, ctx: ctx, now: time.Now}
}

// Run makes all checks and prints the findings, with the repairs if fix is set. It returns
// an error if a check fails.
func (d *Examiner) Run(asJSON, quiet, fix bool) error {
	d.look()
	tally := map[Health]int{}
	for _, q := range examinations() {
		found := q.ask(d)
		if done := mend(found, fix && d.uncertain() == nil); len(done) > 0 {
			d.look()
			found = append(done, q.ask(d)...)
		}
		for _, f := range found {
			f.Check = q.name
			if tally[f.Health]++; quiet && f.Health == Pass {
				continue
			}
			if err := d.show(&f, asJSON); err != nil {
				return err
			}
		}
		if err := d.ctx.Err(); err != nil {
			return err
		}
	}
	if !asJSON && !quiet {
		var parts []string
		for _, v := range []Health{Mended, Pass, Warn, Fail} {
			if tally[v] > 0 {
				parts = append(parts, fmt.Sprintf("%d %s", tally[v], v))
			}
		}
		text := strings.Join(parts, ", ")
		if d.Screen().Terminal && tally[Warn]+tally[Fail] > 0 {
			text += "; these alone: ocipd doctor -q" // the findings may have scrolled away
		}
		if _, err := fmt.Fprintln(d.Stdout, text); err != nil {
			return err
		}
	}
	if tally[Fail] > 0 {
		return cli.ErrSaid
	}
	return nil
}

// Findings makes all checks for a command's process, without repairs and without tests of gates.
func Findings(ctx context.Context, p *cli.Process) (all []Diagnosis, err error) {
	d := New(ctx, p)
	d.look()
	for _, q := range examinations() {
		for _, f := range q.ask(d) {
			f.Check = q.name
			all = append(all, f)
		}
	}
	return all, ctx.Err()
}

// mend makes the repairs if fix is set, and returns the results.
func mend(found []Diagnosis, fix bool) (done []Diagnosis) {
	for _, f := range found {
		if f.repair == nil || !fix {
			continue
		}
		did, err := f.repair()
		if err != nil {
			done = append(done, warned("cannot fix: %v", err))
			continue
		}
		done = append(done, Diagnosis{Health: Mended, Text: did})
	}
	return done
}

// look locates the daemon's files and asks it for its status.
func (d *Examiner) look() {
	d.lookAt(d.ConfigFile)
	d.live, d.liveErr, d.other = nil, nil, ""
	if d.units().idle() {
		// A connection would start it.
		return
	}
	ctx, cancel := context.WithTimeout(d.ctx, statusPatience)
	defer cancel()
	var raw jsontext.Value
	err := askAt(ctx, d.places.operator, "kernel.status", nil, &raw)
	if err == nil {
		d.live = new(api.Status)
		err = json.Unmarshal(raw, d.live)
	}
	if err != nil {
		d.live, d.liveErr = nil, err
		return
	}
	d.compareFiles()
}

// compareFiles finds out whether the answering daemon uses another configuration file. If
// the person named none, the examiner uses the daemon's.
func (d *Examiner) compareFiles() {
	reads, here := d.live.ConfigFile, d.places.config
	switch {
	case fileowner.Same(reads, here), reads == "" && d.ConfigFile == "" && !cli.Exists(here):
	case reads == "":
		d.other = fmt.Sprintf("the running daemon uses no configuration file; ocipd looked at %s", here)
	case d.ConfigFile != "":
		d.other = fmt.Sprintf("the running daemon uses %s; ocipd looked at %s", reads, here)
	default:
		d.other = fmt.Sprintf("the running daemon uses %s, so ocipd looked at that file and not at %s", reads, here)
		socket, operator := d.places.socket, d.places.operator
		d.lookAt(reads)
		d.places.socket, d.places.operator, d.places.runtime = socket, operator, cli.Absolute(filepath.Dir(socket))
	}
}

// lookAt reads a configuration file and derives the locations from it.
func (d *Examiner) lookAt(file string) {
	if d.cfg, d.cfgErr = d.LocateBy(file); d.cfg == nil {
		d.cfg = config.Default()
		d.cfg.IPC.Socket = d.Socket
	}
	p := &d.places
	p.config = cmp.Or(file, config.FilePath(d.Getenv))
	p.socket = config.SocketPath(d.cfg, d.Getenv)
	p.operator, p.runtime = config.OperatorPath(p.socket), filepath.Dir(p.socket)
	p.database = config.DatabasePath(d.cfg, d.Getenv)
	p.state = filepath.Dir(p.database)
	p.mirror, p.keys = config.MirrorPath(d.cfg, p.database), config.KeysPath(d.cfg, p.database)
	p.checkpoints = config.CheckpointsPath(d.cfg, p.database)
	for _, path := range []*string{&p.config, &p.runtime, &p.database, &p.state, &p.mirror, &p.keys, &p.checkpoints} {
		*path = cli.Absolute(*path)
	}
}

// uncertain names the places that the configuration does not determine; nil for none. The
// defaults used instead may be another daemon's, and are not touched.
func (d *Examiner) uncertain() error {
	var errs []error
	if d.cfg.File == "" && d.cfgErr != nil && d.ConfigFile != "" {
		errs = append(errs, errors.New("cannot tell where things are: there is no file of the name that was given"))
	}
	for _, key := range []string{cli.SocketKey, "store.url", "audit.mirror", "audit.keys", "audit.checkpoints"} {
		errs = append(errs, d.cfg.Certain(key))
	}
	return errors.Join(errs...)
}

// statusPatience bounds the daemon's answer about its status.
const statusPatience = 5 * time.Second

// askAt calls a method of the operator socket at a path.
func askAt(ctx context.Context, path, method string, params, result any) error {
	c, err := client.Dial(ctx, path)
	if err != nil {
		return err
	}
	defer c.Close()
	return c.Call(ctx, method, params, result)
}

// show writes one diagnosis, as a line of JSON or for a person.
func (d *Examiner) show(f *Diagnosis, asJSON bool) error {
	if asJSON {
		return d.PrintJSON(f)
	}
	_, err := d.Stdout.Write([]byte(f.draw(d.Screen())))
	return err
}

// draw formats a diagnosis for a person. A terminal gets lines folded only at blanks, so
// that paths and commands can be copied; other outputs get whole lines.
func (f *Diagnosis) draw(scr term.Screen) string {
	const left = len("fixed  machine  ")
	colours := map[Health]term.Colour{Pass: term.Green, Warn: term.Yellow, Fail: term.Red, Mended: term.Green}
	var b strings.Builder
	say := func(first, next, text string) {
		for line := range strings.SplitSeq(strings.TrimSpace(text), "\n") {
			folded := []string{term.Printable(line)}
			if scr.Terminal {
				folded = term.FoldAtBlanks(folded[0], max(scr.Width-len(next), 20))
			}
			for _, line := range folded {
				b.WriteString(first + line + "\n")
				first = next
			}
		}
	}
	blank := strings.Repeat(" ", left)
	pad := strings.Repeat(" ", len("fixed")-len(f.Health))
	say(fmt.Sprintf("%s%s  %-7s  ", scr.Colour.Paint(colours[f.Health], string(f.Health)), pad, f.Check), blank, f.Text)
	switch {
	case f.Advice == "":
	case f.Health == Pass:
		say(blank, blank, f.Advice)
	default:
		const label = "to do: "
		say(blank+scr.Colour.Paint(term.Bold, label), blank+strings.Repeat(" ", len(label)), f.Advice)
	}
	return b.String()
}

// orWell returns the findings, and adds the one that says all is well if there are no problems.
func orWell(found []Diagnosis, well Diagnosis) []Diagnosis {
	if slices.ContainsFunc(found, func(f Diagnosis) bool { return f.Health != Pass }) {
		return found
	}
	return append(found, well)
}
