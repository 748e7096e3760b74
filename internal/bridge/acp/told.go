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

	mu     sync.Mutex
	heard  time.Time
	asking int
	id     string
	// mode is the one that the session was put into, and warning what is to be known of it.
	mode, warning string
	// reported says that the daemon knows the session, and changed which calls it does not
	// know as they are. dropped is how many it was never told of.
	reported bool
	seq      int
	calls    map[string]*toolCall
	changed  map[string]bool
	dropped  int
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
			t.forgetLocked()
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

// forgetLocked makes room for a call: by the oldest that the daemon knows, else by the
// oldest, which is counted.
func (t *told) forgetLocked() {
	oldest := slices.MinFunc(slices.Collect(maps.Values(t.calls)), func(a, b *toolCall) int {
		if t.changed[a.ID] != t.changed[b.ID] {
			if t.changed[a.ID] {
				return 1
			}
			return -1
		}
		return cmp.Compare(a.seq, b.seq)
	})
	if t.changed[oldest.ID] {
		t.dropped++
	}
	delete(t.calls, oldest.ID)
	delete(t.changed, oldest.ID)
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

// opened notes which session it is, the mode it is put into, and what is to be known of that.
func (t *told) opened(session, mode, warning string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.id, t.mode, t.warning = session, mode, warning
}

func (t *told) session() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.id
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

// news is what the daemon was not told of yet, as a checkpoint of a kind.
type news struct {
	kind    string
	payload jsontext.Value
	// calls are the calls that are told of, as they were at a time, and dropped how many
	// that are never told of.
	calls   map[string]int
	dropped int
}

// news is which session it is, or else some of the tool calls that the daemon was not told
// of yet, the oldest first: nil where there is nothing. It is forgotten once it is taken.
func (t *told) news() *news {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.reported && t.id != "" {
		payload, err := json.Marshal(struct {
			Session string `json:"external_session_ref"`
			Mode    string `json:"mode,omitzero"`
			Warning string `json:"warning,omitzero"`
		}{cut(t.id, task.MaxText), cut(t.mode, shortText), t.warning}, jsontext.AllowInvalidUTF8(true))
		if err == nil {
			return &news{kind: task.CheckpointSession, payload: payload}
		}
	}
	ids := slices.SortedFunc(maps.Keys(t.changed), func(a, b string) int { return cmp.Compare(t.calls[a].seq, t.calls[b].seq) })
	if len(ids) == 0 && t.dropped == 0 {
		return nil
	}
	for ids = ids[:min(len(ids), maxReported)]; ; ids = ids[:len(ids)/2] {
		n := &news{kind: "tool_calls", calls: make(map[string]int), dropped: t.dropped}
		said := struct {
			Calls   []report `json:"calls"`
			Dropped int      `json:"dropped,omitzero"`
		}{Dropped: t.dropped}
		for _, id := range ids {
			c := t.calls[id]
			n.calls[id] = c.seq
			r := report{ID: cut(id, shortText), Kind: cut(c.Kind, shortText), Title: cut(c.Title, shortText), Status: cut(c.Status, shortText)}
			if len(c.Input) > 0 {
				r.Input = task.Digest(c.Input)
			}
			said.Calls = append(said.Calls, r)
		}
		var err error
		if n.payload, err = json.Marshal(said, jsontext.AllowInvalidUTF8(true)); err == nil && len(n.payload) <= task.MaxPayloadBytes || len(ids) == 0 {
			return n
		}
	}
}

// taken says that the daemon knows now what it was told.
func (t *told) taken(n *news) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if n.kind == task.CheckpointSession {
		t.reported = true
	}
	t.dropped -= n.dropped
	t.forgetNewsLocked(n)
}

// refused says that the daemon does not take what it was told, and never will.
func (t *told) refused(n *news) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if n.kind == task.CheckpointSession {
		t.reported = true
	}
	t.dropped += t.forgetNewsLocked(n)
}

// forgetNewsLocked forgets what was told, but for calls of which something was said since.
func (t *told) forgetNewsLocked(n *news) (forgotten int) {
	for id, seq := range n.calls {
		if c := t.calls[id]; c != nil && c.seq == seq {
			delete(t.changed, id)
			forgotten++
		}
	}
	return forgotten
}
