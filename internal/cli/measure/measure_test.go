package measure

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/openclawos/ocipd/internal/ocip/commitment"
	"github.com/openclawos/ocipd/internal/ocip/content"
)

func rules(t testing.TB) (r Rules) {
	t.Helper()
	var err error
	if r.Commitments, err = commitment.New(commitment.Options{Families: map[string]commitment.Mode{commitment.Money: commitment.Shadow}}); err != nil {
		t.Fatal(err)
	}
	if r.Content, err = content.New(content.Options{}); err != nil {
		t.Fatal(err)
	}
	return r
}

func TestShareOf(t *testing.T) {
	for _, c := range []struct {
		part, whole int
		want        string
	}{
		{0, 0, "-"},
		{0, 90, "0.0 [0-4]"},
		{10, 106, "9.4 [5-17]"},
		{17, 63, "27.0 [18-39]"},
		{12, 12, "100.0 [76-100]"},
	} {
		if got := ShareOf(c.part, c.whole).String(); got != c.want {
			t.Errorf("%d of %d is %s, want %s", c.part, c.whole, got, c.want)
		}
	}
}

func TestShareJSON(t *testing.T) {
	for raw, want := range map[string]Share{`"10/106"`: ShareOf(10, 106), `{"part":1,"whole":2,"value":7}`: ShareOf(1, 2), `"0/0"`: {}} {
		var got Share
		if err := json.Unmarshal([]byte(raw), &got); err != nil || got != want {
			t.Errorf("%s is %+v, %v", raw, got, err)
		}
	}
	for _, raw := range []string{`"a/b"`, `"1"`, `{"part":"x"}`, `[]`} {
		if json.Unmarshal([]byte(raw), &Share{}) == nil {
			t.Errorf("read the share %s", raw)
		}
	}
}

func TestRead(t *testing.T) {
	const file = "\ufeff# judged by one person\n" +
		`{"text": "I'll send it by Friday", "commitment": true, "source": "ours"}` + "\n\n" +
		"yes\tPlease book the room\twith a tab\r\n" +
		"No\tThe meeting was long\n" +
		`{"id":"x","text":"could you?","commitment":false,"lenient":true,"answers":"line 2"}` + "\n"
	texts, err := Read(strings.NewReader(file))
	if err != nil {
		t.Fatal(err)
	}
	want := []Text{
		{ID: "line 2", Text: "I'll send it by Friday", Commitment: true, Lenient: true, Columns: map[string]string{"source": "ours"}},
		{ID: "line 4", Text: "Please book the room\twith a tab", Commitment: true, Lenient: true},
		{ID: "line 5", Text: "The meeting was long"},
		{ID: "x", Text: "could you?", Lenient: true, Answers: "line 2", Columns: map[string]string{"id": "x", "answers": "line 2"}},
	}
	if !reflect.DeepEqual(texts, want) {
		t.Errorf("read\n%+v, want\n%+v", texts, want)
	}
}

func TestReadFaults(t *testing.T) {
	for _, file := range []string{
		"true\tok\nno tab here", "true\tok\nmaybe\ttext", "true\tok\n{\"text\": \"a\"}", "true\tok\n{\"commitment\": true}",
		"true\tok\n{\"text\": 3, \"commitment\": true}", "true\tok\n{\"text\": \"a\", \"commitment\": true, \"turn\": \"2\"}",
		"{\"id\":\"a\",\"text\":\"a\",\"commitment\":true}\n{\"id\":\"a\",\"text\":\"b\",\"commitment\":true}",
		"true\tok\n" + strings.Repeat("x", maxText+1),
	} {
		if _, err := Read(strings.NewReader(file)); err == nil || !strings.Contains(err.Error(), "line 2") {
			t.Errorf("%.40q: %v", file, err)
		}
	}
}

func FuzzRead(f *testing.F) {
	f.Add("true\tok\nno tab here")
	f.Add(`{"id":"a","text":"a","commitment":true}`)
	f.Add("\ufeff\n#\n1\t\n")
	f.Fuzz(func(t *testing.T, file string) {
		texts, err := Read(strings.NewReader(file))
		if err != nil && texts != nil {
			t.Errorf("read %d texts and failed: %v", len(texts), err)
		}
		for _, x := range texts {
			if x.ID == "" || x.Commitment && !x.Lenient {
				t.Errorf("read %+v", x)
			}
		}
	})
}

func TestCommitments(t *testing.T) {
	texts := []Text{
		{ID: "1", Text: "I'll send you the report by Friday", Commitment: true, Lenient: true},
		{ID: "2", Text: "Please book the room", Lenient: true},
		{ID: "3", Text: "The meeting was long"},
		{ID: "4", Text: "The sky is blue", Answers: "3"},
		{ID: "5", Text: "My pleasure entirely", Commitment: true, Lenient: true, Answers: "2"},
		{ID: "6", Text: "We can pay $500 for it", Commitment: true, Lenient: true},
		{ID: "7", Text: "I'll send you the book", Commitment: true, Lenient: true},
	}
	done := 0
	r := Commitments(rules(t).Look(texts, func(n int) { done = n }))
	if done != len(texts) {
		t.Errorf("%d texts were told, want %d", done, len(texts))
	}
	if r.Texts != 7 || r.Held.Part != 4 || r.Strict.Labelled != 4 || r.Strict.Precision.Part != 2 || r.Strict.Recall.Part != 2 ||
		r.Lenient == nil || r.Lenient.Labelled != 5 || r.Lenient.Precision.Part != 3 {
		t.Errorf("counted %+v", r)
	}
	if r.ByKeyword.Rate.Part != 2 || r.ByCue.Rate.Part != 1 || r.ByBoth.Rate.Part != 1 {
		t.Errorf("held by %+v, %+v, %+v", r.ByKeyword, r.ByCue, r.ByBoth)
	}
	var names []string
	for _, one := range r.Rules {
		names = append(names, one.Name)
	}
	if want := []string{"book", "first-person-future", "meeting", "money"}; !slices.Equal(names, want) {
		t.Fatalf("rules %v, want %v", names, want)
	}
	if book := r.Rules[0]; book.Rate.Part != 2 || book.Strict.Part != 1 || book.Lenient.Part != 2 || book.Alone != 1 || book.AloneRight != 0 {
		t.Errorf("book: %+v", book)
	}
	if cue := r.Rules[1]; cue.Alone != 1 || cue.AloneRight != 1 {
		t.Errorf("first-person-future: %+v", cue)
	}
	if !r.Rules[3].Shadow || r.Rules[3].Strict.Part != 1 {
		t.Errorf("money, in the shadow: %+v", r.Rules[3])
	}
	if want := []Quote{{ID: "5", Answers: "Please book the room", Text: "My pleasure entirely"}, {ID: "6", Shadowed: []string{"money"}, Text: "We can pay $500 for it"}}; !reflect.DeepEqual(r.Misses, want) {
		t.Errorf("misses %+v, want %+v", r.Misses, want)
	}
	if len(r.Useless) != 1 || r.Useless[0].ID != "3" || !slices.Equal(r.Useless[0].Rules, []string{"meeting"}) {
		t.Errorf("useless %+v", r.Useless)
	}
	// Without texts, shares are valid JSON, and lists are not null.
	if raw, err := json.Marshal(Commitments(nil)); err != nil || strings.Contains(string(raw), "null") {
		t.Errorf("nothing measured: %s, %v", raw, err)
	}
}

func TestSecrets(t *testing.T) {
	const token = "ghp_" + "x3fK9pQ2vL7mR4tW8zB1nC6yD5sH0jGaUeIo"
	r := Secrets(rules(t).Look([]Text{
		{ID: "1", Text: "use " + token, Secrets: []string{"github-token"}},
		{ID: "2", Text: "the passphrase is in the drawer", Secrets: []string{"password"}},
		{ID: "3", Text: "again " + token},
		{ID: "4", Text: "write to maria.keller@lundberg-papir.net", Personal: []string{"email"}},
		{ID: "5", Text: "nothing here"},
	}, nil))
	if r.Found.Part != 1 || r.Found.Whole != 2 || r.False.Part != 1 || r.False.Whole != 2 {
		t.Errorf("found %v of %d, false %v of %d", r.Found, r.Found.Whole, r.False, r.False.Whole)
	}
	if len(r.Missed) != 1 || r.Missed[0].ID != "2" || len(r.Useless) != 1 || r.Useless[0].ID != "3" {
		t.Errorf("missed %+v, useless %+v", r.Missed, r.Useless)
	}
	if want := []Family{{"email", ShareOf(1, 1)}}; !reflect.DeepEqual(r.Personal, want) {
		t.Errorf("personal %+v", r.Personal)
	}
	if want := []Family{{"github-token", ShareOf(1, 1)}, {"password", ShareOf(0, 1)}}; !reflect.DeepEqual(r.Families, want) {
		t.Errorf("families %+v", r.Families)
	}
}

func TestCountActs(t *testing.T) {
	seen := func(turn int, from string, names ...string) Seen {
		return Seen{
			Text: &Text{ID: from + string(rune('0'+turn)), Exchange: "x", Turn: turn, From: from},
			Held: len(names) > 0, Names: names, Grantable: !slices.Contains(names, "acceptance"),
		}
	}
	dear := seen(2, "A", "book")
	dear.Grantable = false
	for _, c := range []struct {
		name  string
		seen  []Seen
		asked int
		// three and all are the numbers of decisions for approvals of three rounds and of
		// the whole exchange.
		three, all int
		least      int
	}{
		{"nothing held", []Seen{seen(1, "A"), seen(2, "B")}, 0, 0, 0, 0},
		{"the same word again", []Seen{seen(1, "A", "book"), seen(2, "A", "book"), seen(3, "A", "book")}, 3, 1, 1, 1},
		{"a new word", []Seen{seen(1, "A", "book"), seen(2, "A", "book", "deadline"), seen(3, "A", "deadline")}, 3, 2, 2, 1},
		{"too late", []Seen{seen(1, "A", "book"), seen(2, "A"), seen(3, "A"), seen(4, "A"), seen(5, "A", "book")}, 2, 2, 1, 1},
		{"an acceptance", []Seen{seen(1, "A", "acceptance"), seen(2, "A", "acceptance")}, 2, 2, 2, 1},
		{"a sum beside a word", []Seen{seen(1, "A", "book"), dear}, 2, 2, 2, 1},
		{"the other side", []Seen{seen(1, "A", "book"), seen(2, "B", "book")}, 2, 2, 2, 2},
		{"an answer", []Seen{seen(1, "A", "book"), seen(2, "B"), seen(3, "A"), seen(4, "B")}, 2, 2, 2, 2},
		{"answers of one who has approved", []Seen{seen(1, "A", "book"), seen(2, "B", "book"), seen(3, "A"), seen(4, "B", "book"), seen(5, "A")}, 5, 2, 2, 2},
		{"no exchange", []Seen{{Text: &Text{}, Held: true, Names: []string{"book"}}}, 0, 0, 0, 0},
	} {
		a := CountActs(c.seen, 3, 0)
		if a.Asked != c.asked || a.Within[0].Asked != c.three || a.Within[1].Asked != c.all || a.Least != c.least {
			t.Errorf("%s: %+v, want %+v", c.name, a, c)
		}
	}
}

// The rates by a column divide the texts, and a useless hold has its reasons in words.
func TestBy(t *testing.T) {
	texts, err := Read(strings.NewReader(`{"text": "I'll send it to you by Friday.", "commitment": true, "kind": "mail", "team": "a"}
{"text": "Let me confirm whether the file exists.", "commitment": false, "kind": "agent", "team": 3}
{"text": "Nothing.", "commitment": false, "kind": "agent"}
`))
	if err != nil {
		t.Fatal(err)
	}
	d, err := commitment.New(commitment.Options{})
	if err != nil {
		t.Fatal(err)
	}
	seen := Rules{Commitments: d}.Look(texts, nil)
	parts := By(seen, "kind")
	if len(parts) != 2 || parts[0].Value != "agent" || parts[0].Texts != 2 || parts[0].Held.Part != 1 || parts[0].Keyword.Part != 1 || parts[1].Value != "mail" || parts[1].Cue.Part != 1 || parts[1].Strict.Recall.Part != 1 {
		t.Errorf("by kind: %+v", parts)
	}
	if parts := By(seen, "team"); len(parts) != 2 || parts[0].Value != "" || parts[0].Texts != 2 || !HasColumn(texts, "team") || HasColumn(texts, "text") {
		t.Errorf("by team: %+v", parts)
	}
	useless := Commitments(seen).Useless
	if len(useless) != 1 || useless[0].Likelihood != commitment.Low || !slices.Contains(useless[0].Reasons, `"confirm" means to check something`) {
		t.Errorf("useless: %+v", useless)
	}
}
