package acp

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	sdk "github.com/coder/acp-go-sdk"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/task"
)

const (
	// maxCalls is how many tool calls are known at once, and maxReported how many are told
	// to the daemon at once.
	maxCalls    = 1024
	maxReported = 24
	// keptText is how much of the end of what the agent said is kept, and shortText how
	// much of a title is put on record.
	keptText  = 256 << 10
	shortText = 200
)

// toolCall is what the agent says of a call of a tool.
type toolCall struct {
	ID        string         `json:"toolCallId"`
	Title     string         `json:"title"`
	Kind      string         `json:"kind"`
	Status    string         `json:"status"`
	Input     jsontext.Value `json:"rawInput"`
	Content   jsontext.Value `json:"content"`
	Locations []location     `json:"locations"`
	Meta      struct {
		Claude struct {
			Tool string `json:"toolName"`
		} `json:"claudeCode"`
	} `json:"_meta"`

	// longInput and longContent are set where the two are too long to be shown.
	longInput, longContent bool
	seq                    int
}

// long reports whether what the agent would do is too long to be shown.
func (c *toolCall) long() bool { return c.longInput || c.longContent && !given(c.Input) }

type location struct {
	Path string `json:"path"`
}

// merge adds what is newly said of a call.
func (c *toolCall) merge(n *toolCall) {
	c.ID = n.ID
	c.Title, c.Kind, c.Status = cmp.Or(n.Title, c.Title), cmp.Or(n.Kind, c.Kind), cmp.Or(n.Status, c.Status)
	c.Meta.Claude.Tool = cmp.Or(n.Meta.Claude.Tool, c.Meta.Claude.Tool)
	if given(n.Input) {
		c.Input, c.longInput = n.Input, len(n.Input) > task.MaxArgvBytes
	}
	if given(n.Content) {
		c.Content, c.longContent = n.Content, len(n.Content) > task.MaxArgvBytes
	}
	if n.Locations != nil {
		c.Locations = n.Locations
	}
}

func given(v jsontext.Value) bool {
	return len(v) > 0 && v.Kind() != 'n' && string(v) != "{}" && string(v) != "[]"
}

// keep lets go of what would not be shown anyway.
func (c *toolCall) keep() {
	c.Input, c.Content = slices.Clone(c.Input), slices.Clone(c.Content)
	if c.longInput {
		c.Input = nil
	}
	if c.longContent {
		c.Content = nil
	}
}

// told is what the agent has said of its work so far.
type told struct {
	said tail

	mu       sync.Mutex
	heard    time.Time
	asking   int
	id       string
	reported bool
	seq      int
	calls    map[string]*toolCall
	changed  map[string]bool
}

func (t *told) init(now time.Time) {
	t.heard, t.calls, t.changed, t.said.limit = now, make(map[string]*toolCall), make(map[string]bool), keptText
}

// tolerant reads what an agent writes: its JSON is not always as it should be.
func tolerant(data []byte, into any) error {
	return json.Unmarshal(data, into, jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
}

// update takes a notification, and reports false for any other message.
func (t *told) update(line []byte) bool {
	var m struct {
		ID     jsontext.Value `json:"id"`
		Method string         `json:"method"`
		Params jsontext.Value `json:"params"`
	}
	if tolerant(line, &m) != nil || m.Method == "" || len(m.ID) > 0 && m.ID.Kind() != 'n' {
		return false
	}
	if m.Method != sdk.ClientMethodSessionUpdate {
		return m.Method != "$/cancel_request" // which the SDK takes
	}
	var n struct {
		Update struct {
			toolCall
			What    string         `json:"sessionUpdate"`
			Content jsontext.Value `json:"content"`
		} `json:"update"`
	}
	if tolerant(m.Params, &n) != nil {
		return true
	}
	switch n.Update.What {
	case "agent_message_chunk":
		var text struct {
			Text string `json:"text"`
		}
		if tolerant(n.Update.Content, &text) == nil {
			_, _ = t.said.Write([]byte(text.Text)) // into memory
		}
	case "tool_call", "tool_call_update":
		n.Update.toolCall.Content = n.Update.Content
		t.call(&n.Update.toolCall)
	}
	return true
}

// call takes what is said of a tool call, and returns all that is known of it.
func (t *told) call(said *toolCall) toolCall {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.calls[said.ID]
	if c == nil {
		if len(t.calls) >= maxCalls {
			oldest := slices.MinFunc(slices.Collect(maps.Values(t.calls)), func(a, b *toolCall) int { return cmp.Compare(a.seq, b.seq) })
			delete(t.calls, oldest.ID)
			delete(t.changed, oldest.ID)
		}
		c = &toolCall{}
		t.calls[said.ID] = c
	}
	t.seq++
	c.seq = t.seq
	c.merge(said)
	whole := *c
	c.keep()
	t.changed[said.ID] = true
	return whole
}

func (t *told) spoke(now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.heard = now
}

// asks counts those that wait for a permission, by 1 and -1.
func (t *told) asks(n int, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.asking += n
	t.heard = now
}

// silent is for how long nothing was heard of an agent that does not wait itself.
func (t *told) silent(now time.Time) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.asking > 0 {
		return 0
	}
	return now.Sub(t.heard)
}

func (t *told) opened(session string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.id = session
}

func (t *told) session() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.id
}

// newSession is the session where the daemon was not told of it yet.
func (t *told) newSession() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.reported || t.id == "" {
		return ""
	}
	t.reported = true
	return cut(t.id, task.MaxText)
}

func (t *told) text() string { return t.said.String() }

// report is one tool call as the daemon is told of it: not what it was about.
type report struct {
	ID     string `json:"id"`
	Kind   string `json:"kind,omitzero"`
	Title  string `json:"title,omitzero"`
	Status string `json:"status,omitzero"`
	Input  string `json:"input_digest,omitzero"`
}

// newCalls are some of the tool calls that the daemon was not told of yet, the oldest
// first, nil where there is none.
func (t *told) newCalls() jsontext.Value {
	t.mu.Lock()
	defer t.mu.Unlock()
	ids := slices.SortedFunc(maps.Keys(t.changed), func(a, b string) int { return cmp.Compare(t.calls[a].seq, t.calls[b].seq) })
	ids = ids[:min(len(ids), maxReported)]
	for len(ids) > 0 {
		var list []report
		for _, id := range ids {
			c := t.calls[id]
			r := report{ID: cut(id, shortText), Kind: cut(c.Kind, shortText), Title: cut(c.Title, shortText), Status: cut(c.Status, shortText)}
			if len(c.Input) > 0 {
				r.Input = task.Digest(c.Input)
			}
			list = append(list, r)
		}
		payload, err := json.Marshal(map[string]any{"calls": list}, jsontext.AllowInvalidUTF8(true))
		if err == nil && len(payload) <= task.MaxPayloadBytes {
			for _, id := range ids {
				delete(t.changed, id)
			}
			return payload
		}
		ids = ids[:len(ids)/2]
	}
	return nil
}
