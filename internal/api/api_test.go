package api

import (
	"bytes"
	"errors"
	"fmt"
	"github.com/openclawos/ocipd/internal/audit/gate"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/ocip"
)

// The protocol has fourteen codes, and no two are one.
func TestCodes(t *testing.T) {
	codes := Codes()
	slices.Sort(codes)
	if len(slices.Compact(codes)) != 14 {
		t.Errorf("codes are %q", codes)
	}
}

func TestAsError(t *testing.T) {
	coded := &Error{Code: NotFound, Message: "no session", Details: 1}
	for _, tc := range []struct {
		err  error
		want Code
		says string
	}{
		{coded, NotFound, "no session"},
		{fmt.Errorf("while looking: %w", coded), NotFound, "no session"},
		{errors.Join(errors.New("first"), coded), NotFound, "no session"},
		{errors.New("/home/operator/secret"), UnknownError, "the kernel could not answer; its log has the cause"},
	} {
		if e := AsError(tc.err); e.Code != tc.want || e.Message != tc.says {
			t.Errorf("%v: got %v", tc.err, e)
		}
	}
	if Invalid(nil) != nil {
		t.Error("nothing wrong is an error")
	}
}

func TestParseHook(t *testing.T) {
	for name, want := range map[string]Hook{
		"message_received": MessageReceived, "message_sending": MessageSending, "agent_starting": AgentStarting,
		"agent_completed": AgentCompleted, "tool_executing": ToolExecuting, "tool_completed": ToolCompleted,
		"before_agent_start": AgentStarting, "agent_end": AgentCompleted, "before_tool_call": ToolExecuting, "after_tool_call": ToolCompleted,
		"message_sent": MessageSent, "session_start": SessionStart, "session_end": SessionEnd,
		"": "", "MESSAGE_SENDING": "", "message_sending ": "", "gateway_start": "",
	} {
		if got, known := ParseHook(name); got != want || known != (want != "") {
			t.Errorf("%q: got %q %v, want %q", name, got, known, want)
		}
		if want.Interceptable() != (want == MessageSending || want == ToolExecuting) {
			t.Errorf("%q interceptable: %v", want, want.Interceptable())
		}
	}
}

// A capability is named by the first member that says something.
func TestCapabilityID(t *testing.T) {
	for _, tc := range []struct{ kind, config, want string }{
		{"channel", `{"channelId":"a","id":"b"}`, "a"},
		{"channel", `{"channelId":"","id":"b"}`, "b"},
		{"channel", `{"channelId":7,"id":"b"}`, "b"},
		{"channel", `{"name":"b"}`, ""},
		{"tool", `{"name":"\u0061b"}`, "ab"},
		{"hook", `{"event":"x"}`, "x"},
		{"cable", `{"id":"b"}`, ""},
		{"tool", `"t1"`, ""},
		{"tool", `["t1"]`, ""},
	} {
		p := CapabilityParams{Type: tc.kind}
		if err := json.Unmarshal([]byte(tc.config), &p.Config); err != nil {
			t.Fatal(err)
		}
		if got := p.ID(); got != tc.want {
			t.Errorf("%s %s: got %q, want %q", tc.kind, tc.config, got, tc.want)
		}
	}
}

func TestContextAsTheLibrary(t *testing.T) {
	for _, c := range []HookContext{
		{}, {AgentID: "a", SessionKey: "chat:\"b\"", ChannelID: "chat", AccountID: "x", Timestamp: 1 << 41, AuditID: "01a2"},
		{AccountID: "only", Timestamp: -1},
	} {
		want, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		if got := c.Append(nil); string(got) != string(want) {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

// Each member of an answer is written as the library does, wherever it is set.
func TestResultAsTheLibrary(t *testing.T) {
	var results []DispatchResult
	each := func(v any, add func()) {
		fields := reflect.ValueOf(v).Elem()
		for _, f := range fields.Fields() {
			switch f.Kind() {
			case reflect.String:
				f.SetString("a \"text\"\u2028")
			case reflect.Bool:
				f.SetBool(true)
			case reflect.Int:
				f.SetInt(-7)
			case reflect.Slice:
				f.Set(reflect.MakeSlice(f.Type(), 2, 2))
				if f.Index(0).Kind() == reflect.String {
					f.Index(1).SetString("\n")
				}
			case reflect.Pointer:
				f.Set(reflect.New(f.Type().Elem()))
			}
			add()
			f.SetZero()
		}
	}
	var r DispatchResult
	each(&r, func() { results = append(results, r) })
	var e ExchangeRef
	each(&e, func() { results = append(results, DispatchResult{OCIP: new(e)}) })
	all := DispatchResult{DispatchID: "d", Queued: true, Waiting: true, Held: true, ApprovalID: "a", OCIP: &ExchangeRef{
		ExchangeID: "e", ConversationID: "c", Round: 1, MaxRounds: 3, AuditID: "r", Code: ocip.RoundLimit, Reason: "why", RequiresHuman: true,
		DetectedKeywords: []string{}, Escalation: &ocip.Escalation{ExchangeID: "e"}, EscalatedExchange: "other",
		Chain: &ocip.Chain{ID: "c", Hops: 2, Path: []string{"a", "b"}, StartedAt: ocip.Time{Time: time.UnixMilli(1 << 41)}},
	}}
	for _, r := range append(results, all) {
		want, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		if got := r.Append(nil); string(got) != string(want) {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

// FuzzAppend writes messages by hand, and has the JSON library read them: they
// are one line, and say what they were given.
func FuzzAppend(f *testing.F) {
	f.Add("telegram", "123", "Hello!", []byte(`{"a":[1,{"b":null}],"c":"\u2028"}`))
	f.Add("", "", "", []byte(`{}`))
	f.Add(`"},{"`, "\n\r\x00", "\xff\u2028", []byte(`{"":1,"\n":2}`))
	f.Fuzz(func(t *testing.T, channel, target, content string, metadata []byte) {
		var object Object
		if bytes.ContainsRune(metadata, '\n') || json.Unmarshal(metadata, &object) != nil {
			return // it came in on a line
		}
		written, told := Message{ChannelID: channel, Target: target, Content: gate.NewText(content), Metadata: object, DispatchID: "d"}.Write(nil)
		if len(object) == 0 && told.Metadata != nil || len(object) > 0 && !bytes.Equal(told.Metadata, object.Append(nil)) || told.Target != target || told.Content != gate.NewText(content) {
			t.Fatalf("%q is told as %+v", object, told)
		}
		if !jsontext.Value(written).IsValid() || bytes.ContainsRune(written, '\n') {
			t.Fatalf("%q", written)
		}
		var m Message
		if err := json.Unmarshal(written, &m); err != nil {
			t.Fatal(err)
		}
		valid := func(s string) string { return strings.ToValidUTF8(s, "") }
		clean := func(s string) string { return strings.ReplaceAll(valid(s), "\ufffd", "") }
		if clean(m.ChannelID) != clean(channel) || clean(m.Target) != clean(target) || clean(m.Content.Inspect()) != clean(content) || m.DispatchID != "d" {
			t.Fatalf("%q is read as %+v", written, m)
		}
		if len(m.Metadata) != len(object) {
			t.Fatalf("metadata %q is read as %q", object, m.Metadata)
		}
		for key, value := range object {
			if !bytes.Equal(m.Metadata[key], value) {
				t.Fatalf("metadata %q is read as %q", object, m.Metadata)
			}
		}
		arrived := Inbound{RunID: "r", SessionKey: target, ReplyTo: channel, Content: gate.NewText(content), Metadata: object}.Append(nil)
		if !jsontext.Value(arrived).IsValid() || bytes.ContainsRune(arrived, '\n') {
			t.Fatalf("%q", arrived)
		}
	})
}

// A person reads the sentence first, and finds the code behind it.
func TestErrorLeadsWithTheSentence(t *testing.T) {
	err := fmt.Errorf("cannot approve held-1: %w", Errorf(Forbidden, "apps do not operate the daemon"))
	if got := err.Error(); got != "cannot approve held-1: apps do not operate the daemon (FORBIDDEN)" {
		t.Errorf("it reads %q", got)
	}
}

// What stood in the way of a decision is read as it was written.
func TestDetailsOf(t *testing.T) {
	for _, want := range []Obstacle{
		{State: ApprovalDenied, By: "uid:1000", At: 12},
		{Changed: []ApprovalChange{{Field: "content", Was: "a", Now: "b"}}, Digest: "sha256:x"},
		{Blocked: "no round is left"},
	} {
		line, err := json.Marshal(want.Conflict(ApprovalStale, "look again"))
		if err != nil {
			t.Fatal(err)
		}
		var refused Error
		if err := json.Unmarshal(line, &refused); err != nil {
			t.Fatal(err)
		}
		want.Code, want.Reason = ApprovalStale, "look again"
		if got := DetailsOf[Obstacle](fmt.Errorf("cannot: %w", &refused)); !reflect.DeepEqual(got, want) || refused.Code != Conflict {
			t.Errorf("%s: got %+v, want %+v", line, got, want)
		}
	}
	for _, err := range []error{nil, errors.New("x"), Errorf(Conflict, "x"), &Error{Code: Conflict, Details: "x"}, &Error{Code: Conflict, Details: map[string]any{"ocip": 1}}} {
		if got := DetailsOf[Obstacle](err); !reflect.DeepEqual(got, Obstacle{}) {
			t.Errorf("%v: got %+v", err, got)
		}
	}
}

// A message that is written into the room it asks for stays where it is.
func TestMessageRoom(t *testing.T) {
	m := Message{
		ChannelID: "telegram", Target: "dave",
		Content: gate.NewText(strings.Repeat("text ", 100)), DispatchID: "5b1d2b9e-8f2a-4a57-8d2e-9a0f1f1d6f10",
		Metadata: Object{"exchange": []byte(`{"round":1}`), "notes": []byte(`"` + strings.Repeat("n", 4000) + `"`)},
	}
	room := make([]byte, 1, m.Room()+1)
	if b, _ := m.Write(room); &b[0] != &room[0] {
		t.Errorf("%d bytes do not fit in the room of %d", len(b), m.Room())
	}
}
