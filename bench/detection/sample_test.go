package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A sample has held messages and others, tells nothing of which are which, and is
// measured by the labels that came back.
func TestSample(t *testing.T) {
	dir := t.TempDir()
	var talk []string
	for i := range 30 {
		talk = append(talk, fmt.Sprintf(`{"speaker":"USER","utterance":"Is number %d on the list?"}`, i))
	}
	for i := range 12 {
		talk = append(talk, fmt.Sprintf(`{"speaker":"SYSTEM","utterance":"I promise you number %d by Friday."}`, i))
	}
	corpus := filepath.Join(dir, "dialogues_1.json")
	if err := os.WriteFile(corpus, []byte(`[{"turns":[`+strings.Join(talk, ",")+`]}]`), 0o600); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "sample.jsonl")
	if err := writeSample(file, "4", "", []string{"sgd=" + corpus}); err != nil {
		t.Fatal(err)
	}
	sample, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if lines := bytes.Count(sample, []byte("\n")); lines != 8 || bytes.Count(sample, []byte("promise")) < 4 || bytes.Contains(sample, []byte("eld")) {
		t.Errorf("the sample of %d lines is %s", lines, sample)
	}
	raw, err := os.ReadFile(file + ".tsv")
	if err != nil {
		t.Fatal(err)
	}
	labels := filepath.Join(dir, "labels.tsv")
	var told strings.Builder
	fmt.Fprintln(&told, "# id, messages it stands for, strict, lenient")
	for line := range strings.Lines(string(raw)) {
		id, weight, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		strict := 0
		if weight == "3.000" { // what is held, 12 messages by 4
			strict = 1
		}
		fmt.Fprintf(&told, "%s\t%s\t%d\t0\n", id, weight, strict)
	}
	fmt.Fprintln(&told, "0000000000000000\t1.0\t1\t1")
	if err := os.WriteFile(labels, []byte(told.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := runLabelled(labels, []string{"sgd=" + corpus}, false, &out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{fmt.Sprintf("%-24s %5d %15s", "all", 8, "50.0 [22-78]"), "100.0 [100-100]", "1 labelled texts are not in these corpora"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in:\n%s", want, &out)
		}
	}
	for _, wrong := range []string{"x", "0", "1,2"} {
		if err := writeSample(file, wrong, "", []string{"sgd=" + corpus}); err == nil {
			t.Errorf("sizes %q are taken", wrong)
		}
	}
}

// The labels that are kept are read, and each is of its own text.
func TestLabelsKept(t *testing.T) {
	labels, err := readLabels("labels.tsv")
	if err != nil {
		t.Fatal(err)
	}
	strict := 0
	for id, l := range labels {
		if len(id) != 16 || l.weight < 1 || l.strict && !l.lenient {
			t.Errorf("%s is %+v", id, l)
		}
		if l.strict {
			strict++
		}
	}
	if len(labels) != 400 || strict != 44 {
		t.Errorf("%d labels, %d of them strict", len(labels), strict)
	}
}
