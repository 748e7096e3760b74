package main

import (
	"cmp"
	"crypto/sha1" //nolint:gosec // parts texts in two and guards nothing
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/openclawos/ocipd/internal/cli/measure"
	"go.yaml.in/yaml/v3"
)

// corpora are the forms of other people's texts that are read where a reader has
// them on disk. None is downloaded, and no text of theirs is kept here.
//
//	trajectories  traces of agents: Who&When (Hand-Crafted, Algorithm-Generated),
//	              MASFT (annotated_traces/AG2, annotated_traces/HyperAgent)
//	tau-bench     historical_trajectories
//	sgd           Schema-Guided Dialogue, dialogues_*.json, with the makers' acts
//	casino        CaSiNo
//	crosswoz      CrossWOZ
//	xsid          xSID, *.conf and *.conll with "# text"
//	aeslc         AESLC, mails of Enron, *.subject
//	irc           Ubuntu's logs, "[12:00] <nick> text"
//	noseyparker   rules with examples and counterexamples, *.yml
//	labelled      JSON lines {"text", "want", "rule"}: the examples of a scanner
//	              whose examples are code, written out by the reader
//	messages      JSON lines {"text"}
//
// The same names stand in README.md.
type corpus struct {
	suffixes []string
	read     func(c *collection, raw []byte) error
}

func corpora() map[string]corpus {
	inJSON := func(list string, roles string, members ...string) corpus {
		return corpus{[]string{".json", ".jsonl"}, func(c *collection, raw []byte) error { return c.json(raw, list, strings.Fields(roles), members) }}
	}
	return map[string]corpus{
		"trajectories": {[]string{".json"}, (*collection).trajectory},
		"tau-bench":    inJSON("traj", "user assistant", "content"),
		"sgd":          inJSON("turns", "", "utterance"),
		"casino":       inJSON("chat_logs", "", "text"),
		"crosswoz":     inJSON("messages", "", "content"),
		"xsid":         {[]string{".conf", ".conll"}, (*collection).xsid},
		"aeslc":        {[]string{".subject"}, (*collection).mail},
		"irc":          {[]string{".txt"}, (*collection).irc},
		"noseyparker":  {[]string{".yml", ".yaml"}, (*collection).examples},
		"labelled":     {[]string{".jsonl"}, (*collection).lines},
		"messages":     {[]string{".jsonl"}, (*collection).lines},
	}
}

// collection has the texts that were read of a corpus.
type collection struct {
	texts []measure.Text
	// acts are the acts of a text by the labels of the corpus's makers, by the text's id.
	acts map[string][]string
	// scanner is set where texts are the examples of a secret scanner.
	scanner bool
	// again are the ids of texts that were there already.
	again map[string]bool

	seen map[string]bool
	talk int
	last *measure.Text
}

// readCorpus reads "FORM=PATH", a file or a folder with all below it.
func readCorpus(argument string) (c *collection, err error) {
	form, path, found := strings.Cut(argument, "=")
	how, known := corpora()[form]
	if !found || !known {
		names := make([]string, 0, len(corpora()))
		for name := range corpora() {
			names = append(names, name)
		}
		slices.Sort(names)
		return nil, fmt.Errorf("cannot read the corpus %q: want FORM=PATH with a form of %s", argument, strings.Join(names, ", "))
	}
	c = &collection{acts: map[string][]string{}, again: map[string]bool{}, seen: map[string]bool{}, scanner: form == "noseyparker" || form == "labelled"}
	err = filepath.WalkDir(path, func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !slices.Contains(how.suffixes, filepath.Ext(file)) && file != path {
			return err
		}
		raw, err := os.ReadFile(file) //nolint:gosec // the reader names the folder, and its texts are only counted
		if err != nil {
			return err
		}
		c.talk++
		c.last = nil
		if err := how.read(c, raw); err != nil {
			fmt.Fprintf(os.Stderr, "detection: left out %s: %v\n", file, err)
		}
		return nil
	})
	if err == nil && len(c.texts) == 0 {
		err = fmt.Errorf("cannot find texts of the form %s in %s", form, path)
	}
	return c, err
}

// longest is how long a message of a corpus may be to be counted as one.
const longest = 200_000

// add adds a message; by is its speaker. A message whose text was there already is kept
// because of its answer, and not counted.
func (c *collection) add(by, text string) *measure.Text {
	text = strings.TrimSpace(text)
	if text == "" || len(text) > longest {
		return nil
	}
	t := measure.Text{ID: fmt.Sprint(len(c.texts) + 1), Exchange: fmt.Sprint(c.talk), Turn: len(c.texts) + 1, From: by, Text: text}
	if c.last != nil && (by == "" || c.last.From != by) {
		t.Answers = c.last.ID
	}
	c.last = &t
	c.again[t.ID] = c.seen[text]
	c.seen[text] = true
	t.Half = halfReport
	if sha1.Sum([]byte(text))[0]%2 == 1 { //nolint:gosec // parts texts in two and guards nothing
		t.Half = halfTune
	}
	c.texts = append(c.texts, t)
	return &c.texts[len(c.texts)-1]
}

// json reads every list of that name, wherever it stands, for the members of its
// objects.
func (c *collection) json(raw []byte, list string, roles, members []string) error {
	var walk func(value any)
	walk = func(value any) {
		switch v := value.(type) {
		case []any:
			for _, one := range v {
				walk(one)
			}
		case map[string]any:
			turns, _ := v[list].([]any)
			if turns == nil {
				names := make([]string, 0, len(v))
				for name := range v {
					names = append(names, name)
				}
				slices.Sort(names)
				for _, name := range names {
					walk(v[name])
				}
				return
			}
			c.talk++
			c.last = nil
			for _, one := range turns {
				turn, _ := one.(map[string]any)
				by, _ := firstOf(turn, "name", "speaker", "role", "id").(string)
				if role, _ := turn["role"].(string); len(roles) > 0 && !slices.Contains(roles, role) {
					continue
				}
				text, _ := firstOf(turn, members...).(string)
				if t := c.add(by, text); t != nil {
					c.acts[t.ID] = actsOf(turn)
				}
			}
		}
	}
	// A file that was cut off is read up to its end.
	decoder := json.NewDecoder(strings.NewReader(string(raw)))
	if strings.HasPrefix(strings.TrimSpace(string(raw)), "[") {
		if _, err := decoder.Token(); err != nil {
			return err
		}
	}
	for decoder.More() {
		var value any
		if err := decoder.Decode(&value); err != nil {
			if len(c.texts) > 0 {
				return nil
			}
			return err
		}
		walk(value)
	}
	return nil
}

func firstOf(in map[string]any, names ...string) any {
	for _, name := range names {
		if v, there := in[name]; there && v != nil {
			return v
		}
	}
	return nil
}

// actsOf reads the acts that the makers of SGD gave a turn.
func actsOf(turn map[string]any) (acts []string) {
	frames, _ := turn["frames"].([]any)
	for _, f := range frames {
		frame, _ := f.(map[string]any)
		actions, _ := frame["actions"].([]any)
		for _, a := range actions {
			action, _ := a.(map[string]any)
			if act, _ := action["act"].(string); act != "" && !slices.Contains(acts, act) {
				acts = append(acts, act)
			}
		}
	}
	return acts
}

// logged matches the prefix of a message in HyperAgent's traces, which are lists of lines.
var logged = regexp.MustCompile(`^\S+ - (?:INFO|DEBUG)\s*-?\s*`)

// trajectory reads the traces of agents: lists of messages, or of lines.
func (c *collection) trajectory(raw []byte) error {
	var whole any
	if err := json.Unmarshal(raw, &whole); err != nil {
		return err
	}
	list, _ := whole.([]any)
	if object, ok := whole.(map[string]any); ok {
		list, _ = firstOf(object, "history", "trajectory", "messages").([]any)
	}
	var lines []string
	for i, one := range list {
		switch m := one.(type) {
		case string:
			lines = append(lines, logged.ReplaceAllString(m, ""))
			next := ""
			if i+1 < len(list) {
				next, _ = list[i+1].(string)
			}
			if next == "" && i+1 < len(list) || next != "" && !logged.MatchString(next) {
				continue
			}
			c.add("", strings.Join(lines, "\n"))
			lines = nil
		case map[string]any:
			by, _ := firstOf(m, "name", "role").(string)
			switch content := firstOf(m, "content", "text").(type) {
			case string:
				c.add(by, content)
			case []any:
				var lines []string
				for _, line := range content {
					lines = append(lines, fmt.Sprint(line))
				}
				c.add(by, strings.Join(lines, "\n"))
			}
		}
	}
	return nil
}

func (c *collection) xsid(raw []byte) error {
	for line := range strings.Lines(string(raw)) {
		if name, text, found := strings.Cut(strings.TrimPrefix(line, "#"), ":"); found && strings.HasPrefix(line, "#") && strings.TrimSpace(name) == "text" {
			c.last = nil
			c.add("", text)
		}
	}
	return nil
}

func (c *collection) mail(raw []byte) error {
	body, _, _ := strings.Cut(string(raw), "\n@subject")
	c.add("", body)
	return nil
}

var said = regexp.MustCompile(`^\[\d\d:\d\d\] <([^>]+)> (.*)`)

func (c *collection) irc(raw []byte) error {
	for line := range strings.Lines(string(raw)) {
		if m := said.FindStringSubmatch(line); m != nil {
			c.last = nil // whom it answers is not known
			c.add(m[1], m[2])
		}
	}
	return nil
}

func (c *collection) examples(raw []byte) error {
	var file struct {
		Rules []struct {
			ID       string   `yaml:"id"`
			Examples []string `yaml:"examples"`
			Negative []string `yaml:"negative_examples"`
		} `yaml:"rules"`
	}
	if err := yaml.Unmarshal(raw, &file); err != nil {
		return err
	}
	for _, rule := range file.Rules {
		for _, text := range rule.Examples {
			c.example(text, rule.ID, true)
		}
		for _, text := range rule.Negative {
			c.example(text, rule.ID, false)
		}
	}
	return nil
}

func (c *collection) example(text, rule string, want bool) {
	c.last = nil
	if t := c.add("", text); t != nil && want {
		t.Secrets = []string{rule}
	}
}

func (c *collection) lines(raw []byte) error {
	for line := range strings.Lines(string(raw)) {
		// Each line is a conversation of its own.
		c.talk++
		c.last = nil
		var one struct {
			Text, Rule string
			Want       bool
		}
		if err := json.Unmarshal([]byte(line), &one); err != nil {
			return err
		}
		c.example(one.Text, cmp.Or(one.Rule, "any"), one.Want)
	}
	return nil
}

func perHundred(part, whole int) float64 { return 100 * measure.ShareOf(part, whole).Value }

// runCorpora measures on other people's texts and prints a line for each. Of each
// corpus the half named is counted, or all of it.
func runCorpora(arguments []string, half string, weigh bool, out io.Writer) error {
	if half != "" && half != halfTune && half != halfReport {
		return fmt.Errorf("cannot count the half %q: want %s or %s", half, halfTune, halfReport)
	}
	rules, err := defaults(weigh)
	if err != nil {
		return err
	}
	const head, row = "%-26s %6s %15s %7s %6s %6s %7s\n", "%-26s %6d %15v %7.1f %6.1f %6.1f %7.1f\n"
	fmt.Fprintln(out, "Different messages. Of 100: held, by what, and held or answering what is held.")
	fmt.Fprintf(out, head, "", "texts", "held", "keyword", "cue", "both", "answers")
	for _, argument := range arguments {
		c, err := readCorpus(argument)
		if err != nil {
			return err
		}
		form, path, _ := strings.Cut(argument, "=")
		name := form + " " + filepath.Base(path)
		name = name[:min(len(name), 26)]
		all := rules.Look(c.texts, nil)
		held := map[string]bool{}
		for i := range all {
			held[all[i].ID] = all[i].Held
		}
		counted := where(all, func(s *measure.Seen) bool { return half == "" || s.Half == half })
		different := where(counted, func(s *measure.Seen) bool { return !c.again[s.ID] })
		if c.scanner {
			r := measure.Secrets(different)
			fmt.Fprintf(out, "%-26s %6d   found %v of %d, false %d of %d\n", name, len(different), r.Found, r.Found.Whole, r.False.Part, r.False.Whole)
			continue
		}
		waits := func(some []measure.Seen, answers bool) measure.Share {
			n := 0
			for i := range some {
				if some[i].Held || answers && held[some[i].Answers] {
					n++
				}
			}
			return measure.ShareOf(n, len(some))
		}
		r := measure.Commitments(different)
		fmt.Fprintf(out, row, name, r.Texts, r.Held, 100*r.ByKeyword.Rate.Value, 100*r.ByCue.Rate.Value, 100*r.ByBoth.Rate.Value, 100*waits(counted, true).Value)
		if a := measure.CountActs(all, 3, 10); a.Messages > a.Exchanges {
			fmt.Fprintf(out, "  asked of 100: %.1f; 3 rounds %.1f, 10 rounds %.1f, all words %.1f, least %.1f\n",
				perHundred(a.Asked, a.Messages), perHundred(a.Within[0].Asked, a.Messages), perHundred(a.Within[1].Asked, a.Messages), perHundred(a.Within[1].Ticked, a.Messages), perHundred(a.Least, a.Messages))
		}
		raised := measure.Secrets(different).False
		fmt.Fprintf(out, "  with a secret, as it seems: %d\n", raised.Part)
		for _, act := range []string{"AFFIRM", "AFFIRM_INTENT", "NOTIFY_SUCCESS", "CONFIRM"} {
			some := where(counted, func(s *measure.Seen) bool { return slices.Contains(c.acts[s.ID], act) })
			if len(some) > 0 {
				fmt.Fprintf(out, "  %-22s %6d  held %v, with answers %v\n", act, len(some), waits(some, false), waits(some, true))
			}
		}
	}
	return nil
}
