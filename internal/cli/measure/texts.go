package measure

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

// Text is one message that a person has judged.
type Text struct {
	// ID is its name in reports; the default is the line's number.
	ID string `json:"id"`
	// Kind, Half and Lang sort it. Exchange, Turn, From and Answers give its place in a
	// conversation. All may be empty.
	Kind     string `json:"kind,omitzero"`
	Half     string `json:"half,omitzero"`
	Lang     string `json:"lang,omitzero"`
	Exchange string `json:"exchange,omitzero"`
	Turn     int    `json:"turn,omitzero"`
	From     string `json:"from,omitzero"`
	Answers  string `json:"answers,omitzero"`

	Text string `json:"text"`
	// Commitment is the strict label: the text should be held.
	Commitment bool `json:"commitment"`
	// Lenient is set if the text commits, asks for a commitment, or promises weakly. The
	// default is Commitment.
	Lenient bool `json:"lenient"`
	// Secrets and Personal are the families of data in it.
	Secrets  []string `json:"secrets,omitempty"`
	Personal []string `json:"personal,omitempty"`
	// Columns are the line's members whose value is a string, except the text.
	Columns map[string]string `json:"-"`
}

// maxText bounds a line in bytes.
const maxText = 1 << 20

// Read reads judged texts, one a line: either a JSON object with at least "text" and
// "commitment", or a label, a tab and the text. Labels are true, yes, 1, commitment and
// false, no, 0, none, in any case. It skips empty lines and lines that begin with #. An
// error names the line.
func Read(from io.Reader) ([]Text, error) {
	var texts []Text
	seen := map[string]bool{}
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, maxText)
	number := 0
	for lines.Scan() {
		number++
		line := lines.Text()
		if number == 1 {
			line = strings.TrimPrefix(line, "\ufeff")
		}
		if strings.TrimSpace(line) == "" || strings.HasPrefix(line, "#") {
			continue
		}
		t, err := read(line)
		if t.ID == "" {
			t.ID = fmt.Sprintf("line %d", number)
		}
		if err == nil && seen[t.ID] {
			err = fmt.Errorf("the id %q is taken by another text", t.ID)
		}
		if err != nil {
			return nil, fmt.Errorf("cannot read the text on line %d: %w", number, err)
		}
		seen[t.ID] = true
		texts = append(texts, t)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("cannot read the text on line %d: %w", number+1, err)
	}
	return texts, nil
}

// columns reads the members that texts can be sorted by.
func (t *Text) columns(line string) error {
	var members map[string]json.RawMessage
	if err := json.Unmarshal([]byte(line), &members); err != nil {
		return err
	}
	t.Columns = map[string]string{}
	for name, value := range members {
		var text string
		if name != "text" && json.Unmarshal(value, &text) == nil {
			t.Columns[name] = text
		}
	}
	return nil
}

func read(line string) (t Text, err error) {
	if strings.HasPrefix(strings.TrimLeft(line, " \t"), "{") {
		// The mandatory members.
		var given struct {
			Text       *string `json:"text"`
			Commitment *bool   `json:"commitment"`
			Lenient    *bool   `json:"lenient"`
		}
		if err := json.Unmarshal([]byte(line), &given); err != nil {
			return t, err
		}
		if given.Text == nil || given.Commitment == nil {
			return t, errors.New(`want both "text" and "commitment"`)
		}
		if err := json.Unmarshal([]byte(line), &t); err != nil {
			return t, err
		}
		t.Lenient = t.Commitment || t.Lenient
		return t, t.columns(line)
	}
	label, text, found := strings.Cut(line, "\t")
	if !found {
		return t, errors.New("want a JSON object, or a label, a tab and the text")
	}
	t.Text = text
	switch strings.ToLower(strings.TrimSpace(label)) {
	case "true", "yes", "1", "commitment":
		t.Commitment, t.Lenient = true, true
		return t, nil
	case "false", "no", "0", "none":
		return t, nil
	}
	return t, fmt.Errorf("unknown label %q, want true or false", label)
}
