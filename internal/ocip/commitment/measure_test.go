package commitment

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
)

func TestMeasure(t *testing.T) {
	const file = "\ufeff# judged by one person\n" +
		`{"text": "I'll send it by Friday", "commitment": true, "source": "ours"}` + "\n\n" +
		"yes\tPlease book the room\twith a tab\r\n" +
		"No\tThe meeting was long\n" +
		"0\tThe sky is blue\n" +
		"TRUE\tmy pleasure entirely\n"
	examples, err := ReadExamples(strings.NewReader(file))
	if err != nil {
		t.Fatal(err)
	}
	if len(examples) != 5 || examples[0] != (Example{"I'll send it by Friday", true}) || examples[3] != (Example{"The sky is blue", false}) {
		t.Fatalf("read %+v", examples)
	}
	want := Report{
		Examples: 5, Commitments: 3, Held: 3, TruePositives: 2, FalsePositives: 1, FalseNegatives: 1,
		Precision: 2. / 3, Recall: 2. / 3, HoldRate: 3. / 5,
		Parts: []Part{{"book", 1, 1, 1}, {FirstPersonFuture, 1, 1, 1}, {"meeting", 1, 0, 0}},
	}
	if got := detector(t, Options{}).Measure(examples); !reflect.DeepEqual(got, want) {
		t.Errorf("measured\n%+v, want\n%+v", got, want)
	}
	// No examples: ratios that JSON can write.
	if raw, err := json.Marshal(detector(t, Options{}).Measure(nil)); err != nil || !strings.Contains(string(raw), `"parts":[]`) {
		t.Errorf("nothing measured: %s, %v", raw, err)
	}
}

func TestReadExamplesFaults(t *testing.T) {
	for _, file := range []string{
		"true\tok\nno tab here", "true\tok\nmaybe\ttext", "true\tok\n{\"text\": \"a\"}", "true\tok\n{\"commitment\": true}",
		"true\tok\n{\"text\": 1, \"commitment\": true}", "true\tok\n{", "true\tok\n1\t" + strings.Repeat("x", maxExample),
	} {
		if _, err := ReadExamples(strings.NewReader(file)); err == nil || !strings.Contains(err.Error(), "line 2") {
			t.Errorf("%.40q: %v, want an error that names line 2", file, err)
		}
	}
}

func TestResultOnTheWire(t *testing.T) {
	d := detector(t, Options{})
	for text, want := range map[string]string{
		"Nothing.":                 `{"requiresHuman":false,"reason":null,"detectedKeywords":[]}`,
		"Confirmed, book, booked.": `{"requiresHuman":true,"reason":"commitment keywords: book, confirm","detectedKeywords":["book","confirm"]}`,
		"I'll book it. Deal.":      `{"requiresHuman":true,"reason":"commitment keywords: book; commitment cues: acceptance, first-person-future","detectedKeywords":["book"]}`,
	} {
		raw, err := json.Marshal(Judge(d.Detect(text)))
		if err != nil || string(raw) != want {
			t.Errorf("%q: %s, %v\nwant %s", text, raw, err, want)
		}
	}
}
