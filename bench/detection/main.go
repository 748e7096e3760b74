// Command detection measures the two detectors, as they are built, on the texts
// of this folder, and prints the figures beside those of the commit before.
//
//	go run ./bench/detection [-json] [-write] [-list HALF] [-speed=false]
//	go run ./bench/detection -corpora [-half HALF] FORM=PATH...
//	go run ./bench/detection -sample FILE -sizes N,... [-half HALF] FORM=PATH...
//	go run ./bench/detection -labels FILE FORM=PATH...
//
// Rules are tuned on the half "tune" of the texts; the published figures are measured
// on the half "report".
package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/openclawos/ocipd/internal/cli/measure"
	"github.com/openclawos/ocipd/internal/ocip/commitment"
	"github.com/openclawos/ocipd/internal/ocip/content"
)

// The halves and the kinds of the texts.
const (
	halfTune   = "tune"
	halfReport = "report"
)

func kinds() []string { return []string{"agents", "service", "negotiation", "mail"} }

func main() {
	var o options
	flag.StringVar(&o.dir, "dir", "bench/detection", "the folder of texts and figures")
	flag.BoolVar(&o.json, "json", false, "print the figures as JSON")
	flag.BoolVar(&o.write, "write", false, "keep the figures: the next runs are compared with them")
	flag.StringVar(&o.list, "list", "", "list the misses and the useless holds of this half: tune or report")
	flag.BoolVar(&o.speed, "speed", true, "measure the throughput too")
	others := flag.Bool("corpora", false, "measure on other people's texts instead, given as FORM=PATH")
	teach := flag.String("train", "", "learn the weights of evidence anew, and write them to this file")
	curves := flag.Bool("curve", false, "print what more evidence would find, and hold")
	flag.BoolVar(&o.weigh, "weigh", false, "weigh what only keywords hold, as ocip.commitment.keywords: weigh does")
	half := flag.String("half", "", "with -corpora, count this half: tune or report")
	sample := flag.String("sample", "", "write a sample of other people's texts, given as FORM=PATH, to this file, for labellers")
	sizes := flag.String("sizes", "", "with -sample, how many held texts of each corpus, and how many that pass: N,N,...")
	labels := flag.String("labels", "", "measure on those of other people's texts, given as FORM=PATH, that have labels in this file")
	flag.Parse()
	var err error
	switch {
	case *others:
		err = runCorpora(flag.Args(), *half, o.weigh, os.Stdout)
	case *sample != "":
		err = writeSample(*sample, *sizes, *half, flag.Args())
	case *labels != "":
		err = runLabelled(*labels, flag.Args(), o.weigh, os.Stdout)
	case *teach != "":
		err = train(o.dir, *teach, os.Stdout)
	case *curves:
		err = curve(o.dir, os.Stdout)
	default:
		err = run(o, os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "detection:", err)
		os.Exit(1)
	}
}

type options struct {
	dir, list          string
	json, write, speed bool
	// weigh measures with ocip.commitment.keywords: weigh.
	weigh bool
}

func run(o options, out io.Writer) error {
	texts, err := readTexts(filepath.Join(o.dir, "texts"))
	if err != nil {
		return err
	}
	rules, err := defaults(o.weigh)
	if err != nil {
		return err
	}
	now := figuresOf(rules, texts)
	if o.speed {
		now.Speed = speeds(rules, texts)
	}
	file := filepath.Join(o.dir, "figures.json")
	before, err := readFigures(file)
	if err != nil {
		return err
	}
	switch {
	case o.json:
		raw, err := json.MarshalIndent(now, "", "  ")
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "%s\n", raw)
	case o.list != "":
		show := now.Halves[o.list]
		if show == nil {
			return fmt.Errorf("cannot list the half %q: want %s or %s", o.list, halfTune, halfReport)
		}
		show.list(out)
	default:
		now.print(out, before)
	}
	if !o.write {
		return nil
	}
	return now.keep(file)
}

// defaults are the detectors as a daemon has them that nobody configured, or with keywords weighed.
func defaults(weigh bool) (r measure.Rules, err error) {
	if r.Commitments, err = commitment.New(commitment.Options{}); err != nil {
		return r, err
	}
	r.Content, err = content.New(content.Options{})
	r.Weigh = weigh
	return r, err
}

// withEvidence is the default detector of commitments with the family evidence enforced.
func withEvidence() *commitment.Detector {
	d, err := commitment.New(commitment.Options{Families: map[string]commitment.Mode{commitment.Evidence: commitment.Enforce}})
	if err != nil {
		panic(err) // the family exists
	}
	return d
}

// readTexts reads the texts of a folder, with values in place of the placeholders.
func readTexts(dir string) ([]measure.Text, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.jsonl"))
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("cannot find texts in %s", dir)
	}
	var texts []measure.Text
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		some, err := measure.Read(bytes.NewReader(raw))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		for i := range some {
			if some[i].Text, err = fill(some[i].ID, some[i].Text); err != nil {
				return nil, err
			}
		}
		texts = append(texts, some...)
	}
	return texts, nil
}

// Figures are what is measured.
type Figures struct {
	Halves map[string]*Half `json:"halves"`
	Seed   SeedSignals      `json:"seed"`
	Speed  *Speed           `json:"speed,omitempty"`
}

// Half has the results of one half of the texts.
type Half struct {
	All   *measure.Report            `json:"all"`
	Kinds map[string]*measure.Report `json:"kinds"`
	Other *measure.Report            `json:"otherLanguages"`
	// Answering is All where what answers a held message is held too, as a daemon
	// between agents does.
	Answering *measure.Report `json:"answering"`
	// Weighed and AgentsWeighed are All and the agents with keywords weighed. Evidence is All with
	// the family evidence enforced, and WeighedEvidence with both.
	Weighed         *measure.Report       `json:"weighed"`
	AgentsWeighed   *measure.Report       `json:"agentsWeighed"`
	Evidence        *measure.Report       `json:"evidence"`
	WeighedEvidence *measure.Report       `json:"weighedEvidence"`
	Secrets         measure.SecretsReport `json:"secrets"`
	// AgentSecrets is the report about secrets for agents at work alone, which send the most.
	AgentsFalse measure.Share            `json:"agentsFalse"`
	Acts        map[string]*measure.Acts `json:"acts"`
}

// Speed is the throughput of one core in MB/s.
type Speed struct {
	Commitment float64 `json:"commitment"`
	Content    float64 `json:"content"`
}

func figuresOf(rules measure.Rules, texts []measure.Text) *Figures {
	f := &Figures{Halves: map[string]*Half{}, Seed: seedSignals(rules.Commitments)}
	all := rules.Look(texts, nil)
	more := measure.Rules{Commitments: withEvidence()}
	evidence := more.Look(texts, nil)
	rules.Weigh, more.Weigh = true, true
	weighed, both := rules.Look(texts, nil), more.Look(texts, nil)
	for _, half := range []string{halfTune, halfReport} {
		in := func(s *measure.Seen) bool { return s.Half == half }
		agents := func(s *measure.Seen) bool { return in(s) && s.Kind == "agents" }
		report := func(seen []measure.Seen, yes func(*measure.Seen) bool) *measure.Report {
			r := measure.Commitments(where(seen, yes))
			return &r
		}
		h := halfOf(where(all, in))
		h.Weighed, h.AgentsWeighed, h.Evidence, h.WeighedEvidence = report(weighed, in), report(weighed, agents), report(evidence, in), report(both, in)
		f.Halves[half] = h
	}
	return f
}

func halfOf(seen []measure.Seen) *Half {
	h := &Half{Kinds: map[string]*measure.Report{}, Acts: map[string]*measure.Acts{}}
	report := func(some []measure.Seen) *measure.Report {
		r := measure.Commitments(some)
		return &r
	}
	h.All = report(seen)
	h.Answering = report(measure.Answering(seen))
	h.Other = report(where(seen, func(s *measure.Seen) bool { return s.Lang != "en" }))
	h.Secrets = measure.Secrets(seen)
	for _, kind := range kinds() {
		some := where(seen, func(s *measure.Seen) bool { return s.Kind == kind })
		h.Kinds[kind] = report(some)
		// Only what goes back and forth.
		turns := map[string]int{}
		for i := range some {
			turns[some[i].Exchange]++
		}
		acts := measure.CountActs(where(some, func(s *measure.Seen) bool { return turns[s.Exchange] > 1 }), 3, 10)
		h.Acts[kind] = &acts
		if kind == "agents" {
			h.AgentsFalse = measure.Secrets(some).False
		}
	}
	return h
}

func where(seen []measure.Seen, yes func(*measure.Seen) bool) []measure.Seen {
	var some []measure.Seen
	for i := range seen {
		if yes(&seen[i]) {
			some = append(some, seen[i])
		}
	}
	return some
}

// speeds runs each detector for a while over all texts, message by message, and
// takes the fastest round: other work of the machine only slows a round down.
func speeds(rules measure.Rules, texts []measure.Text) *Speed {
	const rounds = 12
	size := 0
	for i := range texts {
		size += len(texts[i].Text)
	}
	fastest := func(look func(string)) float64 {
		best := time.Duration(0)
		for range rounds {
			start := time.Now()
			for i := range texts {
				look(texts[i].Text)
			}
			if took := time.Since(start); best == 0 || took < best {
				best = took
			}
		}
		return float64(size) / 1e6 / best.Seconds()
	}
	return &Speed{
		Commitment: fastest(func(s string) { rules.Commitments.Detect(s) }),
		Content:    fastest(func(s string) { rules.Content.Detect(s) }),
	}
}

// readFigures reads what was kept, nil where nothing was.
func readFigures(file string) (*Figures, error) {
	raw, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil //nolint:nilnil // nothing was kept, and that is no fault
	}
	if err != nil {
		return nil, err
	}
	f := &Figures{}
	if err := json.Unmarshal(raw, f); err != nil {
		return nil, fmt.Errorf("cannot read the figures kept in %s: %w", file, err)
	}
	return f, nil
}

// keep writes the figures without the texts that they quote: those change with every new
// text, and are longer than the figures.
func (f *Figures) keep(file string) error {
	for _, h := range f.Halves {
		for _, r := range append([]*measure.Report{h.All, h.Other, h.Answering, h.Weighed, h.AgentsWeighed, h.Evidence, h.WeighedEvidence}, h.perKind()...) {
			r.Misses, r.Useless = nil, nil
			if r != h.All {
				r.Rules = nil
			}
		}
		h.Secrets.Missed, h.Secrets.Useless = nil, nil
	}
	raw, err := json.Marshal(f)
	if err != nil {
		return err
	}
	var plain any
	if err := json.Unmarshal(raw, &plain); err != nil {
		return err
	}
	if raw, err = json.MarshalIndent(strip(plain), "", " "); err != nil {
		return err
	}
	return os.WriteFile(file, append(raw, '\n'), 0o644) //nolint:gosec // figures that everybody may read
}

// strip leaves out of shares what follows from their part and whole, and lists
// that are empty.
func strip(value any) any {
	switch v := value.(type) {
	case map[string]any:
		if _, share := v["whole"]; share {
			return fmt.Sprintf("%v/%v", v["part"], v["whole"])
		}
		for name, member := range v {
			if list, ok := member.([]any); member == nil || ok && len(list) == 0 {
				delete(v, name)
				continue
			}
			v[name] = strip(member)
		}
	case []any:
		for i := range v {
			v[i] = strip(v[i])
		}
	}
	return value
}

func (h *Half) perKind() []*measure.Report {
	var all []*measure.Report
	for _, kind := range kinds() {
		all = append(all, h.Kinds[kind])
	}
	return all
}

// rows prints a line for each part of the texts.
func (h *Half) rows(was *Half, one func(name string, r, was *measure.Report)) {
	for _, kind := range kinds() {
		one(kind, h.Kinds[kind], was.Kinds[kind])
	}
	one("all", h.All, was.All)
	one("not English", h.Other, was.Other)
}

const row = "%-16s %6v %15s %16s %16s\n"

func (f *Figures) print(out io.Writer, before *Figures) {
	for _, name := range []string{halfTune, halfReport} {
		h := f.Halves[name]
		was := &Half{}
		if before != nil && before.Halves[name] != nil {
			was = before.Halves[name]
		}
		fmt.Fprintf(out, "half %q: %d texts; in 100, with 95 %% bounds; below, what was kept\n\n", name, h.All.Texts)
		fmt.Fprintf(out, row, "", "texts", "held", "precision", "recall")
		one := func(name string, r, was *measure.Report) {
			match(out, name, r, was, func(r *measure.Report) *measure.Match { return &r.Strict })
		}
		h.rows(was, one)
		lenient := func(r *measure.Report) *measure.Match { return cmp.Or(r.Lenient, &r.Strict) }
		match(out, "all, leniently", h.All, was.All, lenient)
		one("answers too", h.Answering, was.Answering)
		one("all, weighed", h.Weighed, was.Weighed)
		one("agents, weighed", h.AgentsWeighed, was.AgentsWeighed)
		one("evidence", h.Evidence, was.Evidence)
		one("both of them", h.WeighedEvidence, was.WeighedEvidence)
		fmt.Fprintf(out, "order of the held: area under the curve %.3f\n\n", h.All.Order)

		fmt.Fprintf(out, row, "held by", "texts", "rate", "precision", "leniently")
		causes := func(r *measure.Report) [][2]any {
			return [][2]any{{"keywords alone", r.ByKeyword}, {"cues alone", r.ByCue}, {"both", r.ByBoth}}
		}
		for _, c := range causes(h.All) {
			held(out, c[0].(string), c[1].(measure.Held), nil)
		}
		held(out, "agents, cues", h.Kinds["agents"].ByCue, nil)
		for _, l := range commitment.Likelihoods() {
			held(out, "likely: "+string(l), h.All.ByLikelihood[l], nil)
		}
		for i := range h.All.Rules {
			r := &h.All.Rules[i]
			var kept *measure.Held
			if was.All != nil {
				if at := slices.IndexFunc(was.All.Rules, func(w measure.Rule) bool { return w.Name == r.Name && w.Shadow == r.Shadow }); at >= 0 {
					kept = &was.All.Rules[at].Held
				}
			}
			name := "  " + r.Name
			if r.Shadow {
				name = "  (" + r.Name + ")"
			}
			held(out, name, r.Held, kept)
		}
		fmt.Fprintln(out)

		fmt.Fprintf(out, "secrets found    %v of %d%s\n", h.Secrets.Found, h.Secrets.Found.Whole, kept(h.Secrets.Found, was.Secrets.Found))
		fmt.Fprintf(out, "false, all       %v of %d%s\n", h.Secrets.False, h.Secrets.False.Whole, kept(h.Secrets.False, was.Secrets.False))
		fmt.Fprintf(out, "false, agents    %v of %d%s\n\n", h.AgentsFalse, h.AgentsFalse.Whole, kept(h.AgentsFalse, was.AgentsFalse))

		fmt.Fprintf(out, "decisions asked of people, for conversations of two turns and more\n")
		fmt.Fprintf(out, "%-12s %8s %10s %21s %9s %9s %5s\n", "", "messages", "one by one", "by exchange, 3 rounds", "10 rounds", "all words", "least")
		for _, kind := range kinds() {
			a := h.Acts[kind]
			fmt.Fprintf(out, "%-12s %8d %10d %21d %9d %9d %5d\n", kind, a.Messages, a.Asked, a.Within[0].Asked, a.Within[1].Asked, a.Within[1].Ticked, a.Least)
			if w := was.Acts[kind]; w != nil && (w.Asked != a.Asked || !slices.Equal(w.Within, a.Within)) {
				fmt.Fprintf(out, "%-12s %8d %10d %21d %9d %9d\n", "", w.Messages, w.Asked, w.Within[0].Asked, w.Within[1].Asked, w.Within[1].Ticked)
			}
		}
		fmt.Fprintln(out)
	}
	fmt.Fprintf(out, "the seed's own signals: %d of %d", f.Seed.Found.Part, f.Seed.Found.Whole)
	if before != nil {
		fmt.Fprintf(out, " (kept: %d of %d)", before.Seed.Found.Part, before.Seed.Found.Whole)
	}
	fmt.Fprintln(out)
	for _, m := range f.Seed.Missed {
		fmt.Fprintf(out, "  %s: %s\n", m.Dress, strings.Join(m.Forms, " "))
	}
	if f.Speed != nil {
		fmt.Fprintf(out, "throughput: commitment %.0f MB/s, content %.0f MB/s", f.Speed.Commitment, f.Speed.Content)
		if before != nil && before.Speed != nil {
			fmt.Fprintf(out, " (kept: %.0f, %.0f)", before.Speed.Commitment, before.Speed.Content)
		}
		fmt.Fprintln(out)
	}
}

func kept(now, was measure.Share) string {
	if was.Whole == 0 || now.Part == was.Part && now.Whole == was.Whole {
		return ""
	}
	return fmt.Sprintf("   (kept: %v of %d)", was, was.Whole)
}

func match(out io.Writer, name string, r, was *measure.Report, of func(*measure.Report) *measure.Match) {
	now := of(r)
	fmt.Fprintf(out, row, name, r.Texts, r.Held, now.Precision, now.Recall)
	if was == nil {
		return
	}
	if then := of(was); was.Held != r.Held || *then != *now {
		fmt.Fprintf(out, row, "", was.Texts, was.Held, then.Precision, then.Recall)
	}
}

func held(out io.Writer, name string, h measure.Held, was *measure.Held) {
	fmt.Fprintf(out, row, name, h.Rate.Part, h.Rate, h.Strict, h.Lenient)
	if was != nil && *was != h {
		fmt.Fprintf(out, row, "", was.Rate.Part, was.Rate, was.Strict, was.Lenient)
	}
}

// list prints the misses and the useless holds.
func (h *Half) list(out io.Writer) {
	quotes := func(title string, list []measure.Quote) {
		fmt.Fprintf(out, "%s: %d\n", title, len(list))
		for _, q := range list {
			fmt.Fprintf(out, "%s %v %q\n", q.ID, slices.Concat(q.Rules, q.Shadowed), q.Text)
		}
		fmt.Fprintln(out)
	}
	quotes("commitments that pass", h.All.Misses)
	quotes("held and not even leniently commitments", h.All.Useless)
	quotes("secrets not found", h.Secrets.Missed)
	quotes("raised without a secret", h.Secrets.Useless)
}
