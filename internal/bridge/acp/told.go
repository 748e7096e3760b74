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
	// maxCalls bounds the tool calls in memory. maxReported bounds the tool calls in one checkpoint.
	maxCalls    = 1024
	maxReported = 24
	// keptText bounds the kept end of the agent's text. shortText bounds a title in the record.
	keptText  = 256 << 10
	shortText = 200
)

// toolCall is the agent's description of a tool call.
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

	// longInput and longContent are set if the input or the content is too long to be shown.
	longInput, longContent bool
	seq                    int
}

// long reports whether a person could not be shown the whole call because of its length.
func (c *toolCall) long() bool { return c.longInput || c.longContent && !given(c.Input) }

type location struct {
	Path string `json:"path"`
}

// merge adds an update to a call.
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

// keep drops an input or content that is too long to be shown.
func (c *toolCall) keep() {
	c.Input, c.Content = slices.Clone(c.Input), slices.Clone(c.Content)
	if c.longInput {
		c.Input = nil
	}
	if c.longContent {
		c.Content = nil
	}
}

// told holds everything that the agent has reported so far.
type told struct {
	said tail

	mu     sync.Mutex
	heard  time.Time
	asking int
	id     string
	// mode is the session's mode, and warning a remark about it.
	mode, warning string
	// reported is set when the daemon knows the session. changed holds the calls with updates
	// that the daemon does not know yet. dropped counts calls that are never reported to it.
	reported bool
	seq      int
	calls    map[string]*toolCall
	changed  map[string]bool
	dropped  int
}

func (t *told) init(now time.Time) {
	t.heard, t.calls, t.changed, t.said.limit = now, make(map[string]*toolCall), make(map[string]bool), keptText
}

// tolerant reads an agent's JSON, which may have duplicate names or invalid UTF-8.
func tolerant(data []byte, into any) error {
	return json.Unmarshal(data, into, jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
}

// update handles a notification, and returns false for other messages, which the SDK handles.
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

// call merges an update of a tool call, and returns the whole call.
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

// forgetLocked makes room for a call. It drops the oldest call that the daemon knows,
// or else the oldest of all, which it counts as dropped.
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

// asks counts the calls that wait for a permission; n is 1 or -1.
func (t *told) asks(n int, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.asking += n
	t.heard = now
}

// silent returns how long the agent has been silent. An agent that waits for a
// permission does not count as silent.
func (t *told) silent(now time.Time) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.asking > 0 {
		return 0
	}
	return now.Sub(t.heard)
}

// opened notes the session, its mode, and a warning about the mode.
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

// report is one tool call in a checkpoint, without its content.
type report struct {
	ID     string `json:"id"`
	Kind   string `json:"kind,omitzero"`
	Title  string `json:"title,omitzero"`
	Status string `json:"status,omitzero"`
	Input  string `json:"input_digest,omitzero"`
}

// news is the content of the next checkpoint, with its kind.
type news struct {
	kind    string
	payload jsontext.Value
	// calls are the reported calls with the sequence number of their state, and dropped
	// the number of calls that are never reported.
	calls   map[string]int
	dropped int
}

// news returns the session if the daemon does not know it yet, or else unreported tool
// calls, the oldest first; nil if there are none. They stay until taken is called.
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

// taken notes that the daemon has accepted the news.
func (t *told) taken(n *news) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if n.kind == task.CheckpointSession {
		t.reported = true
	}
	t.dropped -= n.dropped
	t.forgetNewsLocked(n)
}

// refused notes that the daemon will never accept the news.
func (t *told) refused(n *news) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if n.kind == task.CheckpointSession {
		t.reported = true
	}
	t.dropped += t.forgetNewsLocked(n)
}

// forgetNewsLocked forgets the news, except for calls with later updates.
func (t *told) forgetNewsLocked(n *news) (forgotten int) {
	for id, seq := range n.calls {
		if c := t.calls[id]; c != nil && c.seq == seq {
			delete(t.changed, id)
			forgotten++
		}
	}
	return forgotten
}
