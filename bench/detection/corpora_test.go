package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Each form of corpus is read, from a few lines made up in that form.
func TestReadCorpus(t *testing.T) {
	for _, c := range []struct {
		form, file, raw string
		// want are the texts, each with the speaker and what it answers.
		want []string
	}{
		{"trajectories", "1.json", `{"history":[{"role":"user","content":"Find it?"},{"name":"Coder","content":"Found."},{"name":"Coder","content":["line","two"]}]}`,
			[]string{"user||Find it?", "Coder|1|Found.", "Coder||line\ntwo"}},
		{"trajectories", "1.json", `{"trajectory":["H_a-1 - INFO - Thought: go","on","","Action","H_a-1 - INFO - Done"]}`,
			[]string{"||Thought: go\non\n\nAction", "|1|Done"}},
		{"tau-bench", "a.json", `[{"traj":[{"role":"system","content":"Be kind"},{"role":"user","content":"Hi"},{"role":"tool","content":"{}"},{"role":"assistant","content":"Hello"},{"role":"assistant","content":null}]},{"traj":[{"role":"user","content":"cut`,
			[]string{"user||Hi", "assistant|1|Hello"}},
		{"sgd", "dialogues_1.json", `[{"turns":[{"speaker":"USER","utterance":"Shall I?","frames":[{"actions":[{"act":"CONFIRM"},{"act":"CONFIRM"}]}]},{"speaker":"SYSTEM","utterance":"Yes"}]},{"turns":[{"speaker":"USER","utterance":"Yes"}]}]`,
			[]string{"USER||Shall I?", "SYSTEM|1|Yes", "USER||Yes"}},
		{"casino", "c.json", `[{"chat_logs":[{"text":"Wood?","id":"a"},{"text":"Deal","id":"b"}]}]`, []string{"a||Wood?", "b|1|Deal"}},
		{"crosswoz", "w.json", `{"2":{"messages":[{"content":"你好","role":"usr"}]}}`, []string{"usr||你好"}},
		{"xsid", "de.conf", "# id = 1\n# text: Bitte ein Tisch\n# intent: x\n1\tBitte\n\n# text: Danke\n", []string{"||Bitte ein Tisch", "||Danke"}},
		{"aeslc", "a.subject", "Hi all,\nplease read\n\n@subject\nnews\n", []string{"||Hi all,\nplease read"}},
		{"irc", "a.txt", "=== joe joined\n[12:01] <joe> hi\n[12:02] <amy> joe: hello\n", []string{"joe||hi", "amy||joe: hello"}},
		{"noseyparker", "r.yml", "rules:\n- id: np.x.1\n  examples: ['key one']\n  negative_examples: ['no key']\n", []string{"||key one", "||no key"}},
		{"labelled", "g.jsonl", `{"text":"key two","want":true,"rule":"x"}` + "\n" + `{"text":"none","want":false}` + "\n", []string{"||key two", "||none"}},
		{"messages", "m.jsonl", `{"text":"one"}` + "\n" + `{"text":" "}` + "\n", []string{"||one"}},
	} {
		dir := t.TempDir()
		for name, raw := range map[string]string{c.file: c.raw, "README.md": "# not this one"} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(raw), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		got, err := readCorpus(c.form + "=" + dir)
		if err != nil {
			t.Errorf("%s: %v", c.form, err)
			continue
		}
		var texts []string
		for _, x := range got.texts {
			texts = append(texts, x.From+"|"+x.Answers+"|"+x.Text)
		}
		if !slices.Equal(texts, c.want) {
			t.Errorf("%s: read %q, want %q", c.form, texts, c.want)
		}
		if c.form == "sgd" && (!slices.Equal(got.acts["1"], []string{"CONFIRM"}) || !got.again["3"] || got.again["2"]) {
			t.Errorf("acts %v, again %v", got.acts, got.again)
		}
		if got.scanner && (len(got.texts[0].Secrets) != 1 || got.texts[1].Secrets != nil) {
			t.Errorf("%s: secrets %v and %v", c.form, got.texts[0].Secrets, got.texts[1].Secrets)
		}
		var out bytes.Buffer
		if err := runCorpora([]string{c.form + "=" + dir}, "", false, &out); err != nil || !strings.Contains(out.String(), c.form) {
			t.Errorf("%s: %v\n%s", c.form, err, out.String())
		}
		for line := range strings.Lines(out.String()) {
			if len(line) > 81 {
				t.Errorf("%d columns: %s", len(line)-1, line)
			}
		}
	}
}

func TestCorporaFaults(t *testing.T) {
	for _, argument := range []string{"sgd", "books=" + t.TempDir(), "sgd=" + t.TempDir(), "sgd=" + filepath.Join(t.TempDir(), "none")} {
		if err := runCorpora([]string{argument}, halfReport, false, &bytes.Buffer{}); err == nil {
			t.Errorf("ran %q", argument)
		}
	}
	if err := runCorpora(nil, "most", false, &bytes.Buffer{}); err == nil {
		t.Error("counted a half that there is not")
	}
}
