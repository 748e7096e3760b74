package main

import (
	"bytes"
	"crypto/sha256"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"unicode"

	"github.com/openclawos/ocipd/internal/cli/measure"
)

// The texts are what the README says they are.
func TestTexts(t *testing.T) {
	texts, err := readTexts("texts")
	if err != nil {
		t.Fatal(err)
	}
	place := map[string]*measure.Text{}
	said := map[string]string{}
	count := map[string]int{}
	for i := range texts {
		x := &texts[i]
		place[x.ID] = x
		count[x.Kind+" "+x.Half]++
		half := halfReport
		if sha256.Sum256([]byte(x.Exchange))[0]%2 == 0 {
			half = halfTune
		}
		if x.Half != half {
			t.Errorf("%s is of the half %s, want %s", x.ID, x.Half, half)
		}
		if !strings.HasPrefix(x.Exchange, x.Kind+"-") || !strings.HasPrefix(x.ID, x.Exchange+".") || x.Turn < 1 || x.From == "" || x.Lang == "" {
			t.Errorf("%s does not say where it stands: %+v", x.ID, x)
		}
		if x.Commitment && !x.Lenient {
			t.Errorf("%s is a commitment strictly and not leniently", x.ID)
		}
		if before := place[x.Answers]; x.Answers != "" && (before == nil || before.Exchange != x.Exchange || before.From == x.From) {
			t.Errorf("%s answers %s, which is no earlier message of the other side", x.ID, x.Answers)
		}
		if other := said[x.Text]; other != "" && len(x.Text) > 40 {
			t.Errorf("%s says what %s says", x.ID, other)
		}
		said[x.Text] = x.ID
		if strings.Contains(x.Text, "{{") && strings.Contains(x.Text, "-----BEGIN") {
			t.Errorf("%s is not filled", x.ID)
		}
	}
	for _, kind := range kinds() {
		for _, half := range []string{halfTune, halfReport} {
			if n := count[kind+" "+half]; n < 100 {
				t.Errorf("%d texts of %s in the half %s, want at least 100", n, kind, half)
			}
		}
	}
}

func TestFill(t *testing.T) {
	one, err := fill("a.1", "use {{github-token}} and {{ mustache }}")
	if err != nil || !strings.HasPrefix(one, "use ghp_") || !strings.HasSuffix(one, " and {{ mustache }}") || len(one) != len("use ghp_ and {{ mustache }}")+36 {
		t.Errorf("filled %q, %v", one, err)
	}
	if again, _ := fill("a.1", "use {{github-token}} and {{ mustache }}"); again != one {
		t.Errorf("filled %q at first and %q then", one, again)
	}
	if other, _ := fill("a.2", "use {{github-token}} and {{ mustache }}"); other == one {
		t.Error("two texts got the same value")
	}
	if _, err := fill("a.1", "{{unheard-of}}"); err == nil {
		t.Error("filled a value that nobody draws")
	}
}

// What is drawn has the check digits of its kind.
func TestCheckDigits(t *testing.T) {
	for _, id := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
		rules, err := defaults(false)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"card", "iban"} {
			text, err := fill(id, "{{"+name+"}}")
			if err != nil {
				t.Fatal(err)
			}
			if len(rules.Content.Detect(text)) == 0 {
				t.Errorf("%s %q is not taken for one", name, text)
			}
		}
	}
}

// Every one of the thirteen is held in every form and dress: the seed's own
// signals are law.
func TestSeedSignals(t *testing.T) {
	rules, err := defaults(false)
	if err != nil {
		t.Fatal(err)
	}
	s := seedSignals(rules.Commitments)
	for _, m := range s.Missed {
		t.Errorf("%s: %s pass", m.Dress, strings.Join(m.Forms, " "))
	}
	if s.Found.Whole < 1000 {
		t.Errorf("only %d signals were tried", s.Found.Whole)
	}
}

func TestRun(t *testing.T) {
	dir := t.TempDir()
	if err := os.CopyFS(filepath.Join(dir, "texts"), os.DirFS("texts")); err != nil {
		t.Fatal(err)
	}
	var first bytes.Buffer
	if err := run(options{dir: dir, write: true}, &first); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(first.String()) {
		if len([]rune(line)) > 81 {
			t.Errorf("%d columns: %s", len([]rune(line))-1, line)
		}
	}
	// Nothing has changed since.
	var second bytes.Buffer
	if err := run(options{dir: dir}, &second); err != nil {
		t.Fatal(err)
	}
	if strings.Count(second.String(), "\n") != strings.Count(first.String(), "\n") {
		t.Errorf("the figures differ from themselves:\n%s", second.String())
	}
	// They have for another folder of texts.
	if err := os.Remove(filepath.Join(dir, "texts", "mail.jsonl")); err != nil {
		t.Fatal(err)
	}
	var third bytes.Buffer
	if err := run(options{dir: dir}, &third); err != nil {
		t.Fatal(err)
	}
	if strings.Count(third.String(), "\n") == strings.Count(first.String(), "\n") || !strings.Contains(third.String(), "(kept: ") {
		t.Errorf("no figures of before are shown:\n%s", third.String())
	}
	var asJSON bytes.Buffer
	if err := run(options{dir: dir, json: true}, &asJSON); err != nil || !strings.Contains(asJSON.String(), `"agentsFalse"`) {
		t.Errorf("JSON: %v\n%s", err, asJSON.String())
	}
	var list bytes.Buffer
	if err := run(options{dir: dir, list: halfTune}, &list); err != nil || !strings.Contains(list.String(), "commitments that pass: ") {
		t.Errorf("list: %v\n%s", err, list.String())
	}
	if err := run(options{dir: dir, list: "whole"}, &list); err == nil {
		t.Error("a half that there is not was listed")
	}
	if err := run(options{dir: t.TempDir()}, &list); err == nil {
		t.Error("measured no texts")
	}
}

// No text of the half that is reported has taught the weights, and the weights are those
// that the texts teach.
func TestLessons(t *testing.T) {
	texts, err := readTexts("texts")
	if err != nil {
		t.Fatal(err)
	}
	reported := map[string]string{}
	for i := range texts {
		if texts[i].Half == halfReport {
			reported[strings.Join(strings.FieldsFunc(strings.ToLower(texts[i].Text), notWord), " ")] = texts[i].ID
		}
	}
	raw, err := os.ReadFile("lessons.tsv")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(raw)) {
		_, text, _ := strings.Cut(line, "\t")
		if id := reported[strings.Join(strings.FieldsFunc(strings.ToLower(text), notWord), " ")]; id != "" {
			t.Errorf("the lesson %q is the text %s", text, id)
		}
	}
	file := filepath.Join(t.TempDir(), "weights.tsv")
	var out bytes.Buffer
	if err := train(".", file, &out); err != nil {
		t.Fatal(err)
	}
	now, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	kept, err := os.ReadFile("../../internal/ocip/commitment/weights.tsv")
	if err != nil {
		t.Fatal(err)
	}
	// Other machines round elsewhere.
	if runtime.GOARCH == "amd64" && !bytes.Equal(now, kept) {
		t.Error("the weights are not those of the texts: go run ./bench/detection -train internal/ocip/commitment/weights.tsv")
	}
	out.Reset()
	if err := curve(".", &out); err != nil || !strings.Contains(out.String(), "report: area under the curve, held 0.9") {
		t.Errorf("curve: %v\n%s", err, out.String())
	}
}

func notWord(r rune) bool { return r < 0x80 && !unicode.IsLetter(r) && !unicode.IsDigit(r) }
